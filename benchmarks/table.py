"""The table that people read."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from benchmarks.measure import Row

_HEAD = ("", "per s", "p50 ms", "p99 ms", "of floor", "spread")
_WIDTHS = (42, 10, 9, 9, 9, 15)


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


def write(rows: Sequence[Any], path: Path, machine: Mapping[str, str]) -> None:
    """The rows as JSON, or as CSV where the name says so; the machine in a file beside them."""
    described = json.dumps(machine, indent=1, ensure_ascii=False) + "\n"
    path.with_suffix(".machine.json").write_text(described, encoding="utf-8")
    with path.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".csv":
            writer = csv.DictWriter(
                file, [each.name for each in fields(rows[0])], lineterminator="\n"
            )
            writer.writeheader()
            writer.writerows(asdict(row) for row in rows)
        else:
            json.dump([asdict(row) for row in rows], file, indent=1)


def _line(row: Row) -> str:
    if row.kind == "goal":
        figure = f" ({row.figure})" if row.figure else ""
        return f"      goal: {row.goal}: {row.met}{figure}"
    mark = {"product": " ", "floor": "_", "peer": "~"}[row.kind]
    spread = "" if row.lowest is None else f"{row.lowest:.2f}-{row.highest:.2f}"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    rate = f"{row.rate:,.0f}" if row.rate >= 100 else f"{row.rate:.1f}"
    return _aligned(
        (f"    {mark} {row.name}", rate, f"{row.p50_ms:.3f}", f"{row.p99_ms:.3f}", ratio, spread)
    )


def _aligned(cells: Sequence[str]) -> str:
    first, *rest = zip(cells, _WIDTHS, strict=True)
    return (
        f"{first[0]:<{first[1]}}" + "".join(f"{cell:>{width}}" for cell, width in rest)
    ).rstrip()
