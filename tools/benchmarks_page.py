"""Generate docs/benchmarks.md and its charts from benchmarks/results: `.venv/bin/python -m tools.benchmarks_page`.

The part above the mark in that file is written by hand and kept.
"""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import chart
from benchmarks.chart import Bar

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
IMAGES = PAGE.parent / "images"
RESULTS = PAGE.parents[1] / "benchmarks" / "results"
MARK = "<!-- Everything below is made by tools/benchmarks_page.py from benchmarks/results/table.csv. -->\n"
SLOW = "with an fsync of 2 ms"
# What is drawn: the benchmark, on which disk, what is shown, in which unit.
DRAWN = (
    ("append", SLOW, "rate", "per second"),
    ("turn", SLOW, "rate", "per second"),
    ("sdk", SLOW, "rate", "per second"),
    ("list", "as it is", "p50_ms", "ms, less is better"),
    ("search", "as it is", "p50_ms", "ms, less is better"),
)
Row = Mapping[str, str]


def rows(path: Path = RESULTS / "table.csv") -> list[dict[str, str]]:
    """Return the committed results."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def machine(path: Path = RESULTS / "table.machine.json") -> Iterator[str]:
    """Yield the table that describes the machine."""
    found = json.loads(path.read_text(encoding="utf-8"))
    yield from ("| | |", "|---|---|")
    yield from (f"| {name} | {value} |" for name, value in found.items())


def page(written: str) -> str:
    """Return the whole page: the handwritten part, the mark, the part generated from the results."""
    found = rows()
    loads = [float(row["load"]) for row in found]
    lines = [
        "## The machine",
        "",
        *machine(),
        f"| load while it ran | {min(loads):.1f} to {max(loads):.1f}; the benchmark is 1 to 2 of it |",
        "",
        *_goals(found),
        "",
        "## Everything that was measured",
        "",
    ]
    for bench, disk in dict.fromkeys((row["bench"], row["disk"]) for row in found):
        lines += _section(bench, disk, found)
    return written.partition(MARK)[0] + MARK + "\n" + "\n".join(lines).rstrip() + "\n"


def pictures() -> dict[str, str]:
    """Return the charts by file name."""
    found = rows()
    return {
        _file(bench): chart.bars(f"{bench}, disk {disk}", unit, _groups(bench, disk, value, found))
        for bench, disk, value, unit in DRAWN
        if any(row["bench"] == bench and row["disk"] == disk for row in found)
    }


def _goals(found: Sequence[Row]) -> Iterator[str]:
    goals = [row for row in found if row["kind"] == "goal"]
    met = sum(row["met"] == "met" for row in goals)
    yield from ("## Goals", "", f"{met} of {len(goals)} are met.", "")
    yield "| benchmark | disk | case | goal | reached | | load |"
    yield "|---|---|---|---|---|---|---|"
    for row in goals:
        verdict = "met" if row["met"] == "met" else "**not met**"
        cells = (row["bench"], row["disk"], row["case"], row["goal"], row["figure"], verdict)
        yield f"| {' | '.join(cells)} | {float(row['load']):.1f} |"


def _section(bench: str, disk: str, found: Sequence[Row]) -> Iterator[str]:
    yield from (f"### {bench}, disk {disk}", "")
    if any(drawn[:2] == (bench, disk) for drawn in DRAWN):
        yield from (f"![{bench}, disk {disk}: every contestant](images/{_file(bench)})", "")
    yield "| case | | who | per second | p50 ms | p99 ms | of the floor | lowest to highest |"
    yield "|---|---|---|---|---|---|---|---|"
    last = ""
    for row in found:
        if (row["bench"], row["disk"]) == (bench, disk) and row["kind"] != "goal":
            case, last = "" if row["case"] == last else row["case"], row["case"]
            yield f"| {case} | {_line(row)} |"
    yield ""


def _line(row: Row) -> str:
    kind = {"product": "", "floor": "floor", "peer": "peer"}[row["kind"]]
    ratio = f"{float(row['ratio']):.2f}" if row["ratio"] else ""
    spread = f"{float(row['lowest']):.2f} to {float(row['highest']):.2f}" if row["lowest"] else ""
    figures = (chart.figure(float(row[name])) for name in ("rate", "p50_ms", "p99_ms"))
    return " | ".join((kind, row["name"], *figures, ratio, spread))


def _groups(bench: str, disk: str, value: str, found: Sequence[Row]) -> dict[str, list[Bar]]:
    groups: dict[str, list[Bar]] = {}
    for row in found:
        if (row["bench"], row["disk"]) == (bench, disk) and row["kind"] != "goal":
            made = Bar(row["name"], row["kind"], float(row[value]))
            groups.setdefault(row["case"], []).append(made)
    return groups


def _file(bench: str) -> str:
    return f"bench-{bench}.svg"


if __name__ == "__main__":
    for name, picture in pictures().items():
        (IMAGES / name).write_text(picture, encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
