"""Generate docs/scale.md and its charts from benchmarks/results: `.venv/bin/python -m tools.scale_page`.

The part above the mark in that file is written by hand and kept.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import chart, fleet

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
IMAGES = PAGE.parent / "images"
RESULTS = PAGE.parents[1] / "benchmarks" / "results"
MARK = (
    "<!-- Everything below is made by tools/scale_page.py from benchmarks/results/growth.csv. -->\n"
)
DAYS = (10**6, 10**9)
DATABASES = ("SQLite", "PostgreSQL")
GROWN = ("sessions", "messages")
Points = Sequence[Mapping[str, str]]


def points() -> list[dict[str, str]]:
    """Return the committed measurements."""
    return fleet.read(RESULTS / "growth.csv")


def page(written: str) -> str:
    """Return the whole page: the handwritten part, the mark, the part generated from the results."""
    found = points()
    lines = [*_fleet(found), "", "## The curves", "", *_machine(found), ""]
    for database in DATABASES:
        for grown in GROWN:
            lines += _section(database, grown, found)
    return written.partition(MARK)[0] + MARK + "\n" + "\n".join(lines).rstrip() + "\n"


def pictures() -> dict[str, str]:
    """Return the charts by file name."""
    found = points()
    return {
        _file(database, grown): chart.lines(
            f"{database}: one operation while {grown} grow",
            "median, ms",
            f"{grown} in the store",
            _series(database, grown, found),
        )
        for database in DATABASES
        for grown in GROWN
    }


def _machine(found: Points) -> Iterator[str]:
    path = RESULTS / "growth.machine.json"
    machine = json.loads(path.read_text(encoding="utf-8"))
    loads = [float(point["load"]) for point in found]
    facts = ", ".join(f"{name} {value}" for name, value in machine.items())
    yield f"Measured on: {facts}; load {min(loads):.1f} to {max(loads):.1f}, 1 to 2 of it caused by the benchmark."
    yield "One caller at a time, on the real disk. CPU and bytes are per operation."


def _section(database: str, grown: str, found: Points) -> Iterator[str]:
    series = _series(database, grown, found)
    sizes = sorted({int(x) for curve in series.values() for x, _ in curve})
    yield from (f"### {database}, {grown}", "")
    yield f"![{database}: medians while {grown} grow](images/{_file(database, grown)})"
    yield ""
    head = " | ".join(f"p50 ms at {size:,}" for size in sizes)
    yield f"| operation | {head} | p99 ms | CPU ms | server's CPU ms | bytes written |"
    yield "|---|" + "---|" * (len(sizes) + 4)
    for operation, curve in series.items():
        last = _at(database, grown, operation, sizes[-1], found)
        medians = " | ".join(chart.figure(y) for _, y in curve)
        rest = (last["p99_ms"], last["cpu_ms"], last["server_cpu_ms"], last["written_bytes"])
        figures = " | ".join(chart.figure(float(value)) for value in rest)
        yield f"| {operation} | {medians} | {figures} |"
    yield from ("", "p99, CPU and bytes are those of the largest store.", "")
    yield from (_sizes(database, grown, sizes, found), "")


def _sizes(database: str, grown: str, sizes: Sequence[int], found: Points) -> str:
    sizes_shown = []
    for size in sizes:
        point = _at(database, grown, "append", size, found)
        record, index = int(point["store_bytes"]), int(point["index_bytes"])
        sizes_shown.append(f"{size:,}: {record / 1e6:,.0f} MB and {index / 1e6:,.0f} MB of index")
    return f"Size of the store: {'; '.join(sizes_shown)}."


def _series(database: str, grown: str, found: Points) -> dict[str, list[tuple[float, float]]]:
    series: dict[str, list[tuple[float, float]]] = {}
    for point in found:
        if (point["database"], point["grown"]) == (database, grown):
            curve = series.setdefault(point["operation"], [])
            curve.append((float(point["size"]), float(point["p50_ms"])))
    return series


def _at(database: str, grown: str, name: str, size: int, found: Points) -> Mapping[str, str]:
    wanted = (database, grown, name, str(size))
    keys = ("database", "grown", "operation", "size")
    return next(point for point in found if tuple(point[key] for key in keys) == wanted)


def _fleet(found: Points) -> Iterator[str]:
    yield from ("## What a fleet needs", "")
    yield from ("| | " + " | ".join(_titles()) + " |", "|---|" + "---|" * len(_titles()))
    costs = {name: fleet.costs(found, name) for name in DATABASES}
    needs = [fleet.need(costs[name], day) for day in DAYS for name in DATABASES]
    for name, values in _fleet_rows(needs):
        yield f"| {name} | " + " | ".join(values) + " |"
    yield ""
    for name, cost in costs.items():
        most = fleet.most_for_one(cost)
        yield (
            f"- {name}: a turn takes {(cost.cpu + cost.reading_cpu) * 1000:.2f} ms of CPU in its process"
            f" and {(cost.server_cpu + cost.server_reading_cpu) * 1000:.2f} ms in the server, writes"
            f" {cost.written / 1000:,.1f} kB and leaves {cost.stored / 1000:,.1f} kB. One process takes"
            f" {most:,.0f} turns a second."
        )


def _titles() -> list[str]:
    return [f"{day:,} messages a day, {name}" for day in DAYS for name in DATABASES]


def _fleet_rows(needs: Sequence[fleet.Need]) -> Iterator[tuple[str, list[str]]]:
    yield "turns a second at peak", [f"{each.peak_turns:,.0f}" for each in needs]
    yield "processes", [f"{each.processes:,}" for each in needs]
    yield "cores busy in them", [f"{each.cores:,.1f}" for each in needs]
    yield "cores busy in the server", [f"{each.server_cores:,.1f}" for each in needs]
    yield "syncs a second, all processes", [f"{each.commits:,.0f}" for each in needs]
    yield "written a second", [f"{each.written_a_second / 1e6:,.1f} MB" for each in needs]
    yield "kept a year, with the index", [f"{each.bytes_a_year / 1e12:,.2f} TB" for each in needs]
    yield "added to a turn, p50", [f"{each.each.p50 * 1000:,.0f} ms" for each in needs]
    yield "added to a turn, p99", [f"{each.each.p99 * 1000:,.0f} ms" for each in needs]


def _file(database: str, grown: str) -> str:
    return f"growth-{database.lower()}-{grown}.svg"


if __name__ == "__main__":
    for file, picture in pictures().items():
        (IMAGES / file).write_text(picture, encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
