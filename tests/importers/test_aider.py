"""Aider's histories."""

from pathlib import Path

import pytest

from hansard.importers.aider import IMPORTER
from hansard.importers.base import Where
from hansard.model.entry import Role
from tests.importers import rubbish
from tests.importers.reading import Archive
from tests.importers.write_aider import FIRST, SECOND

NAME = "mill 2026-02-01 09:00:00"


@pytest.fixture
def history(tmp_path: Path) -> Path:
    path = tmp_path / "src" / "mill" / ".aider.chat.history.md"
    path.parent.mkdir(parents=True)
    path.write_text(FIRST + SECOND)
    return path


def test_each_start_is_a_session(archive: Archive, history: Path, tmp_path: Path) -> None:
    report = archive.take_all(IMPORTER, tmp_path / "src")

    assert (report.added, report.skipped) == (2, 0)
    messages = archive.messages("aider", NAME)
    spoken = [
        (message.role, message.text) for message in messages if message.role is not Role.SYSTEM
    ]
    assert spoken[0] == (Role.USER, "What is in a.txt?\nSay it briefly.")
    quoted = "```text\n> this is quoted inside an answer\n```"
    assert spoken[1] == (Role.ASSISTANT, f"Flour.\n\n{quoted}")
    assert spoken[-2:] == [(Role.USER, "Grind it."), (Role.ASSISTANT, "The mill is broken.")]
    assert archive.texts("aider", "mill 2026-02-02 09:00:00") == ["Another day.", "Yes."]
    assert archive.session("aider", NAME).model == "gpt-5"
    archive.check_again(IMPORTER, tmp_path / "src", history)


def test_a_history_that_grew_adds_what_is_new(archive: Archive, history: Path) -> None:
    archive.take_all(IMPORTER, history)

    history.write_text(FIRST + SECOND + "#### And more.\n")
    report = archive.take_all(IMPORTER, history)

    assert (report.extended, report.unchanged, report.messages) == (1, 1, 1)
    assert archive.texts("aider", "mill 2026-02-02 09:00:00")[-1] == "And more."
    archive.check()


def test_two_that_began_in_one_second_are_two(archive: Archive, history: Path) -> None:
    history.write_text(SECOND + SECOND.replace("Yes", "No"))

    archive.take_all(IMPORTER, history)

    assert archive.texts("aider", "mill 2026-02-02 09:00:00 #2") == ["Another day.", "No."]


def test_a_home_directory_is_not_searched(tmp_path: Path) -> None:
    assert IMPORTER.places(Where(tmp_path)) == []


def test_damage_is_survived(history: Path, tmp_path: Path) -> None:
    rubbish.survives(IMPORTER, tmp_path / "src", tmp_path, times=60)


def test_it_is_recognised(history: Path, tmp_path: Path) -> None:
    assert IMPORTER.recognises(history)
    assert IMPORTER.recognises(history.parent)
    assert not IMPORTER.recognises(tmp_path)
