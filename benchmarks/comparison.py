"""Before and after: the rows of an older revision beside those of the working tree."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.goals import shown
from benchmarks.measure import Row

NOT_MEASURABLE = "not measurable before"
_HEAD = ("", "floor", "before", "after", "of floor", "spread")
_WIDTHS = (50, 12, 12, 12, 10, 15)


def before_path(output: Path) -> Path:
    """The file with the rows of the older revision."""
    return output.with_name(f"{output.stem}.before{output.suffix}")


class Before:
    """The rows of the older revision, found by those of the working tree."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows: dict[tuple[str, ...], Row] = {}
        self._missing: dict[tuple[str, ...], str] = {}
        for row in rows:
            if row.kind == "missing":
                self._missing[_case(row)] = row.figure
            else:
                self._rows[_key(row)] = row

    def __bool__(self) -> bool:
        return bool(self._rows or self._missing)

    def row(self, after: Row) -> Row | None:
        """The same contestant or goal; None if it could not be measured."""
        return self._rows.get(_key(after))

    def figure(self, goal: Row) -> str:
        """What was reached of a goal."""
        found = self.row(goal)
        return NOT_MEASURABLE if found is None else found.figure

    def reason(self, row: Row) -> str:
        """Why the case of a row could not be measured, or nothing."""
        return self._missing.get(_case(row), "")


def lines(after: Sequence[Row], before_rows: Iterable[Row]) -> Iterator[str]:
    """Both revisions as aligned text: rates and CPU time beside the floor's, then the goals."""
    before = Before(before_rows)
    last = None
    yield ""
    yield _aligned((f"before and after: {after[0].bench}, disk {after[0].disk}", *_HEAD[1:]))
    for row in after:
        if row.case != last:
            last = row.case
            yield f"  {row.case}"
            if reason := before.reason(row):
                yield f"    {NOT_MEASURABLE}: {reason}"
        floor = next(
            (each for each in after if _case(each) == _case(row) and each.kind == "floor"), None
        )
        if row.kind == "product":
            yield from _figures(row, before.row(row), floor)
        elif row.kind == "goal":
            yield f"      goal: {row.goal}: before {before.figure(row)}, after {row.figure}: {row.met}"


def _figures(row: Row, before: Row | None, floor: Row | None) -> Iterator[str]:
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    spread = "" if row.lowest is None else f"{row.lowest:.2f}-{row.highest:.2f}"
    three = (floor, before, row)
    rates = [_shown(None if each is None else each.rate) for each in three]
    yield _aligned((f"    {row.name}: a second", *rates, ratio, spread))
    cpu = [_shown(None if each is None else each.cpu_us) for each in three]
    yield _aligned(("      CPU us", *cpu, "", ""))


def _shown(value: float | None) -> str:
    return "-" if value is None else shown(value)


def _case(row: Row) -> tuple[str, ...]:
    return row.bench, row.disk, row.case


def _key(row: Row) -> tuple[str, ...]:
    """A goal is the same with another bound."""
    return *_case(row), row.kind, row.name, re.sub(r"\d[\d.,]*", "", row.goal)


def _aligned(cells: Sequence[str]) -> str:
    return "".join(
        f"{cell:<{width}}" if place == 0 else f"{cell:>{width}}"
        for place, (cell, width) in enumerate(zip(cells, _WIDTHS, strict=True))
    ).rstrip()
