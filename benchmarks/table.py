"""The table that people read."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.measure import Row

_HEAD = ("", "per s", "p50 ms", "p99 ms", "CPU us", "of floor", "spread")
_WIDTHS = (42, 10, 9, 9, 9, 9, 15)


def lines(rows: Iterable[Row]) -> Iterator[str]:
    """The rows as aligned text, a heading for each benchmark and case."""
    last_bench = last_case = None
    for row in rows:
        if (row.bench, row.disk) != last_bench:
            last_bench, last_case = (row.bench, row.disk), None
            yield ""
            yield _aligned((f"{row.bench}, disk {row.disk}", *_HEAD[1:]))
        if row.case != last_case:
            last_case = row.case
            yield f"  {row.case}"
        yield _line(row)


def write(rows: Sequence[Any], path: Path, machine: Mapping[str, str] | None = None) -> None:
    """Write the rows as JSON, or as CSV where the name says so; the machine in a file beside them."""
    if machine is not None:
        described = json.dumps(machine, indent=1, ensure_ascii=False) + "\n"
        path.with_suffix(".machine.json").write_text(described, encoding="utf-8")
    with path.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".csv":
            names = [each.name for each in fields(rows[0])] if rows else []
            writer = csv.DictWriter(file, names, lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(row) for row in rows)
        else:
            json.dump([asdict(row) for row in rows], file, indent=1)


def read(path: Path) -> list[Row]:
    """Return the rows of a file that `write` made, or an older version of it."""
    with path.open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file)) if path.suffix == ".csv" else json.load(file)
    return [msgspec.convert(_without_empty(row), Row, strict=False) for row in found]


def _without_empty(row: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what has no value: it gets its default."""
    required = ("bench", "disk", "case", "name", "kind")
    return {
        name: value for name, value in row.items() if name in required or value not in ("", None)
    }


def _line(row: Row) -> str:
    if row.kind == "goal":
        figure = f" ({row.figure})" if row.figure else ""
        return f"      goal: {row.goal}: {row.met}{figure}"
    mark = {"product": " ", "floor": "_", "peer": "~"}[row.kind]
    spread = "" if row.lowest is None else f"{row.lowest:.2f}-{row.highest:.2f}"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    rate = f"{row.rate:,.0f}" if row.rate >= 100 else f"{row.rate:.1f}"
    cpu = "" if row.cpu_us is None else f"{row.cpu_us:,.0f}"
    times = (f"{row.p50_ms:.3f}", f"{row.p99_ms:.3f}", cpu)
    return _aligned((f"    {mark} {row.name}", rate, *times, ratio, spread))


def _aligned(cells: Sequence[str]) -> str:
    first, *rest = zip(cells, _WIDTHS, strict=True)
    return (
        f"{first[0]:<{first[1]}}" + "".join(f"{cell:>{width}}" for cell, width in rest)
    ).rstrip()
