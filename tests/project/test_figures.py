"""The pages about speed and scale say what the committed results say."""

import csv
from types import ModuleType

import pytest

from benchmarks.command import NAMES
from tests.project.code import ROOT
from tools import benchmarks_page, scale_page

RESULTS = ROOT / "benchmarks" / "results"
PAGES = pytest.mark.parametrize("made", [benchmarks_page, scale_page], ids=["benchmarks", "scale"])


@PAGES
def test_the_page_is_what_the_results_say(made: ModuleType) -> None:
    written = made.PAGE.read_text(encoding="utf-8")

    assert written == made.page(written), f"run .venv/bin/python -m {made.__name__}"


@PAGES
def test_the_pictures_are_what_the_results_say(made: ModuleType) -> None:
    pictures = made.pictures()

    assert pictures
    for name, picture in pictures.items():
        assert (made.IMAGES / name).read_text(encoding="utf-8") == picture, name
        assert "prefers-color-scheme: dark" in picture


def test_every_benchmark_is_among_the_results_and_every_goal_has_its_figure() -> None:
    with (RESULTS / "table.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))

    assert {row["bench"] for row in rows} == set(NAMES)
    goals = [row for row in rows if row["kind"] == "goal"]
    assert [row["goal"] for row in goals if not row["figure"]] == []
    assert {row["met"] for row in goals} <= {"met", "not met"}
