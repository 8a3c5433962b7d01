"""Generate docs/benchmarks.md and its charts from benchmarks/results: `.venv/bin/python -m tools.benchmarks_page`.

The part above the mark in that file is written by hand and kept.
"""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks import chart, comparison, profiles, table
from benchmarks.chart import Bar
from benchmarks.comparison import Before
from benchmarks.measure import Row

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


def page(written: str, results: Path = RESULTS) -> str:
    """Return the whole page: the handwritten part, the mark, the part generated from the results.

    The results of an older revision and the profiles are shown if they are there.
    """
    found = table.read(results / "table.csv")
    before = _before(results)
    loads = [row.load for row in found]
    lines = [
        "## The machine",
        "",
        *_machine(results),
        f"| load while it ran | {min(loads):.1f} to {max(loads):.1f}; the benchmark is 1 to 2 of it |",
        "",
        *_goals(found, before),
        "",
        *_profiles(results),
        "## Everything that was measured",
        "",
    ]
    for bench, disk in dict.fromkeys((row.bench, row.disk) for row in found):
        own = [row for row in found if (row.bench, row.disk) == (bench, disk)]
        lines += _section(bench, disk, own, before)
    return written.partition(MARK)[0] + MARK + "\n" + "\n".join(lines).rstrip() + "\n"


def pictures() -> dict[str, str]:
    """Return the charts by file name."""
    found = table.read(RESULTS / "table.csv")
    return {
        _file(bench): chart.bars(f"{bench}, disk {disk}", unit, _groups(bench, disk, value, found))
        for bench, disk, value, unit in DRAWN
        if any((row.bench, row.disk) == (bench, disk) for row in found)
    }


def _before(results: Path) -> Before:
    path = comparison.before_path(results / "table.csv")
    return Before(table.read(path) if path.exists() else ())


def _machine(results: Path) -> Iterator[str]:
    found = json.loads((results / "table.machine.json").read_text(encoding="utf-8"))
    yield from ("| | |", "|---|---|")
    yield from (f"| {name} | {value} |" for name, value in found.items())


def _goals(found: Sequence[Row], before: Before) -> Iterator[str]:
    goals = [row for row in found if row.kind == "goal"]
    met = sum(row.met == "met" for row in goals)
    yield from ("## Goals", "", f"{met} of {len(goals)} are met.", "")
    both = bool(before)
    yield f"| benchmark | disk | case | goal |{' before |' if both else ''} reached | | load |"
    yield "|---|---|---|---|---|---|---|" + ("---|" if both else "")
    for row in goals:
        verdict = "met" if row.met == "met" else "**not met**"
        older = [before.figure(row)] if both else []
        cells = (row.bench, row.disk, row.case, row.goal, *older, row.figure, verdict)
        yield f"| {' | '.join(cells)} | {row.load:.1f} |"
    reasons = dict.fromkeys(
        (row.bench, row.case, before.reason(row)) for row in found if before.reason(row)
    )
    if reasons:
        yield from ("", f"Cases that were {comparison.NOT_MEASURABLE}:", "")
        yield from (f"- {bench}, {case}: {reason}" for bench, case, reason in reasons)


def _profiles(results: Path) -> Iterator[str]:
    """The functions that take the most CPU time, of each subject before and after."""
    paths = [results / f"profile.{name}.csv" for name in profiles.SUBJECTS]
    there = [path for path in paths if path.exists()]
    if not there:
        return
    yield from ("## Where the CPU time goes", "")
    yield (
        f"The {profiles.TOP} functions with the most CPU time of their own, all threads included "
        "(`./dev bench profile`). What a function spends in SQLite or another library counts as its own."
    )
    for path in there:
        with path.open(encoding="utf-8", newline="") as file:
            read = list(csv.DictReader(file))
        lines = [msgspec.convert(row, profiles.Line, strict=False) for row in read]
        for revision in dict.fromkeys(line.revision for line in lines):
            yield ""
            yield from profiles.markdown([line for line in lines if line.revision == revision])
    yield ""


def _section(bench: str, disk: str, own: Sequence[Row], before: Before) -> Iterator[str]:
    yield from (f"### {bench}, disk {disk}", "")
    if any(drawn[:2] == (bench, disk) for drawn in DRAWN):
        yield from (f"![{bench}, disk {disk}: every contestant](images/{_file(bench)})", "")
    heads = ["case", "", "who", "per second", "p50 ms", "p99 ms"]
    heads += ["CPU µs"] if any(row.cpu_us is not None for row in own) else []
    heads += ["of the floor", "lowest to highest"]
    heads += ["per second before", "CPU µs before"] if before else []
    yield f"| {' | '.join(heads)} |".replace("|  |", "| |")
    yield "|" + "---|" * len(heads)
    last = ""
    for row in own:
        if row.kind != "goal":
            case, last = "" if row.case == last else row.case, row.case
            cells = [case, *_cells(row, with_cpu="CPU µs" in heads)]
            cells += _older(before.row(row)) if before else []
            yield f"| {' | '.join(cells)} |"
    yield ""


def _cells(row: Row, *, with_cpu: bool) -> Iterator[str]:
    yield {"product": "", "floor": "floor", "peer": "peer"}[row.kind]
    yield row.name
    yield from (chart.figure(value) for value in (row.rate, row.p50_ms, row.p99_ms))
    if with_cpu:
        yield "" if row.cpu_us is None else chart.figure(row.cpu_us)
    yield "" if row.ratio is None else f"{row.ratio:.2f}"
    yield "" if row.lowest is None else f"{row.lowest:.2f} to {row.highest:.2f}"


def _older(row: Row | None) -> tuple[str, str]:
    if row is None:
        return "-", "-"
    return chart.figure(row.rate), "-" if row.cpu_us is None else chart.figure(row.cpu_us)


def _groups(bench: str, disk: str, value: str, found: Sequence[Row]) -> dict[str, list[Bar]]:
    groups: dict[str, list[Bar]] = {}
    for row in found:
        if (row.bench, row.disk) == (bench, disk) and row.kind != "goal":
            shown = row.rate if value == "rate" else row.p50_ms
            groups.setdefault(row.case, []).append(Bar(row.name, row.kind, shown))
    return groups


def _file(bench: str) -> str:
    return f"bench-{bench}.svg"


if __name__ == "__main__":
    for name, picture in pictures().items():
        (IMAGES / name).write_text(picture, encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
