"""What `sessionary import` tells people."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sessionary.app.imports import Discovery, Outcome, Progress, UnknownFiles
from sessionary.cli.table import Column, count, size, table
from sessionary.importers.base.driver import WORDLESS, Fault

SHOWN = 10
_COLUMNS = (
    Column("SOURCE"),
    Column("WHERE", flexible=True),
    Column("FILES", right=True),
    Column("SIZE", right=True),
    Column("NEW", right=True),
    Column("NEW SIZE", right=True),
)


class Meter:
    """How far an import is, how fast it goes, how long it will take."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._tool: str | None = None
        self._began = 0.0

    def tell(self, progress: Progress) -> None:
        """Show it."""
        now = time.monotonic()
        if progress.tool != self._tool:
            self._tool, self._began = progress.tool, now
        spent = now - self._began
        rate = progress.bytes / spent if spent > 0 else 0.0
        text = f"{progress.tool}: {size(progress.bytes)} of {size(progress.all_bytes)}"
        text += f", {progress.messages:,} messages"
        if spent > 1 and rate > 0:
            left = max(0.0, progress.all_bytes - progress.bytes) / rate
            text += f", {size(int(rate))}/s, {_span(left)} left"
        self._show(text)


def jsonable(value: Discovery | Outcome) -> dict[str, Any]:
    """An answer as a dictionary of plain values."""
    made = asdict(value)
    for name, each in made.items():
        if isinstance(each, datetime):
            made[name] = each.isoformat()
    return made


def discoveries(found: Sequence[Discovery], *, now: datetime, width: int | None) -> str:
    """What is on the machine, what will be gone soon, and how to import it."""
    if not found:
        return (
            "No records of other tools were found on this machine.\n"
            "Something that you downloaded: sessionary import PATH"
        )
    rows = [
        (
            each.tool,
            _from_home(each.place),
            f"{each.units:,}",
            size(each.bytes),
            f"{each.new_units:,}" if each.new_units else "-",
            size(each.new_bytes) if each.new_units else "-",
        )
        for each in found
    ]
    lines = [table(_COLUMNS, rows, width=width), ""]
    lines += [_warning(each, now=now) for each in found if each.expiring]
    fresh = list(dict.fromkeys(each.tool for each in found if each.new_units))
    if not fresh:
        return "\n".join([*lines, "All of it is here already."])
    lines.append("Import all of it:  sessionary import --all")
    lines.append(f"Only one source:   sessionary import {fresh[0]}")
    return "\n".join(lines)


def outcome(done: Outcome, *, dry_run: bool) -> str:
    """What an import of one tool's records did, or would do."""
    lines = [fault(each) for each in done.faults[:SHOWN]]
    if done.skipped > len(lines):
        lines.append(f"… and {done.skipped - len(lines):,} more that could not be read")
    lines += done.notes[:SHOWN]
    if done.left_out:
        most = sorted(done.left_out.items(), key=lambda each: -each[1])
        told = ", ".join(f"{number:,} {what}" for what, number in most[:SHOWN])
        lines.append(f"{done.title}: left out: {told}{', …' if len(most) > SHOWN else ''}")
    lines += _omitted(done)
    if done.held_back:
        assert done.held_back_until is not None
        answers = "1 answer" if done.held_back == 1 else f"{done.held_back:,} answers"
        after = done.held_back_until.astimezone() + timedelta(minutes=1)
        lines.append(
            f"{done.title}: {answers} may still be growing; run the import again after "
            f"{after:%H:%M}."
        )
    lines.append(_dry(done) if dry_run else _done(done))
    return "\n".join(lines)


def unknown(found: UnknownFiles) -> str:
    """Which files of a directory are nobody's record."""
    return (
        f"{count(found.count, 'file')} in {found.place} left alone, no record of a known tool: "
        f"{_listed(found.names, found.count)}"
    )


def _omitted(done: Outcome) -> list[str]:
    """The units that brought nothing, by the reason; a fault that was told is not told again."""
    told = {(each.unit, each.why) for each in done.faults}
    by_reason: dict[str, list[str]] = {}
    for each in done.omissions:
        if (each.unit, each.reason) not in told:
            by_reason.setdefault(each.reason, []).append(each.unit)
    lines = [
        f"{done.title}: {count(len(units), 'file')} brought nothing: {reason}: "
        f"{_listed(units, len(units))}"
        for reason, units in by_reason.items()
    ]
    if done.left_out.get(WORDLESS, 0) and not by_reason:
        names = _listed(done.wordless, done.left_out[WORDLESS])
        lines.append(f"{done.title}: {WORDLESS}, not imported: {names}")
    return lines


def _listed(names: Sequence[str], total: int) -> str:
    shown = ", ".join(names[:SHOWN])
    return f"{shown}, …" if total > SHOWN else shown


def fault(told: Fault) -> str:
    """A fault in one line; a reason that names its file says it once."""
    if told.why.startswith(told.unit):
        return told.why
    return f"{told.unit}: {_place(told.where)}{told.why}"


def _done(done: Outcome) -> str:
    if not done.units:
        return f"{done.title}: nothing of its records is there."
    if done.omitted_units == done.units:
        return f"{done.title}: nothing was imported."
    told = f"{done.title}: {count(done.added, 'session')} added, {done.extended:,} extended"
    told += f", {done.unchanged:,} unchanged" if done.unchanged else ""
    told += f": {count(done.messages, 'new message')}"
    told += f", {done.skipped:,} skipped" if done.skipped else ""
    if done.unchanged_units:
        told += f"; {done.unchanged_units:,} of {count(done.units, 'file')} had not changed"
    return f"{told}."


def _dry(done: Outcome) -> str:
    told = f"{done.title}: {count(done.added, 'session')} would be added"
    told += f", {done.extended:,} looked through for more" if done.extended else ""
    told += f": {count(done.messages, 'message')} read"
    told += f", {done.skipped:,} skipped" if done.skipped else ""
    return f"{told}. Nothing was changed."


def _warning(found: Discovery, *, now: datetime) -> str:
    assert found.expires_at is not None
    left = (found.expires_at - now).total_seconds()
    moment = "the first any time now" if left <= 0 else f"the first in {_span(left)}"
    return f"{found.title} will delete {count(found.expiring, 'new file')} within a week, {moment}."


def _from_home(place: str) -> str:
    """A place as people write it: a path in their home begins with `~`."""
    home = str(Path.home())
    return f"~{place.removeprefix(home)}" if place.startswith(f"{home}/") else place


def _place(where: str) -> str:
    return f"{where}: " if where else ""


def _span(seconds: float) -> str:
    for limit, length, unit in ((90, 1, "s"), (5400, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{max(1, round(seconds / length))} {unit}"
    return f"{round(seconds / 86_400)} days"
