"""`sessionary import`: what is asked for, the import, and what is printed about it."""

import os
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click
from msgspec import structs

from sessionary import config
from sessionary.actions.sessions.read import get_head as head_of
from sessionary.actions.transfer import jsonl_import
from sessionary.actions.transfer.jsonl_import import ImportReport
from sessionary.app import imports
from sessionary.app.imports import (
    Discovery,
    ImportProgress,
    ImportRequest,
    ImportResult,
    ToolImport,
    UnknownFiles,
)
from sessionary.cli.console import Column, Console, count, size, table
from sessionary.cli.tree import command, pass_console
from sessionary.clock import Moment, RandomIds, SystemClock
from sessionary.errors import BadInput, NotFound, SessionaryError
from sessionary.importers import registry
from sessionary.importers.base.driver import WORDLESS, Fault
from sessionary.store.open import open_store
from sessionary.store.tables import sessions

if TYPE_CHECKING:
    from sessionary.app.context import AppContext
    from sessionary.store.database import Tx

OURS = "sessionary"


@dataclass(slots=True)
class ImportPlan:
    """What was asked for: records of other tools, and our own exports."""

    requests: list[ImportRequest] = field(default_factory=list)
    exports: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ExportTotal:
    """What the import of all our own exports did."""

    added: int = 0
    extended: int = 0
    unchanged: int = 0
    entries: int = 0
    refused: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, report: ImportReport) -> None:
        """Add the report about one file."""
        self.added += report.added
        self.extended += report.extended
        self.unchanged += report.unchanged
        self.entries += report.entries
        self.refused += [structs.asdict(each) for each in report.refused]
        self.notes += report.notes


@command(
    "import",
    example="sessionary import\nsessionary import claude-code\nsessionary import --all --watch\n"
    "sessionary import conversations.zip --dry-run\n"
    "ssh other sessionary export --all | sessionary import -",
)
@click.argument("what", nargs=-1, metavar="[SOURCE] [PATH]…")
@click.option("--all", "is_all", is_flag=True, help="Everything found on this machine.")
@click.option("--dry-run", is_flag=True, help="Read everything, change nothing.")
@click.option("--watch", is_flag=True, help="Keep importing as the files grow, until Ctrl-C.")
@click.option(
    "--jobs",
    type=click.IntRange(0, 64),
    metavar="N",
    help="Read with N more processes; by default, large imports use up to two. 0: none.",
)
@pass_console
def import_(
    console: Console,
    what: tuple[str, ...],
    *,
    is_all: bool,
    dry_run: bool,
    watch: bool,
    jobs: int | None,
) -> None:
    """Import the records of other tools, or Sessionary's own; nothing is added twice.

    Without arguments, list what is on this machine. SOURCE is a tool's name, PATH a file or a directory.
    With only a PATH, the tool is recognized from the content of each file; files of no known tool are
    listed. `-` reads Sessionary JSONL from standard input. The records are only read, never changed.
    """
    if watch and dry_run:
        raise click.UsageError("--watch imports; it cannot be a --dry-run.")
    if jobs is not None and (watch or dry_run):
        raise click.UsageError("--jobs is only for an import that is run once.")
    if not what and not is_all and not watch:
        _discover(console)
        return
    plan = _plan(console, what, is_all=is_all or not what)
    if watch:
        _watch(console, plan)
    elif dry_run:
        _preview(console, plan)
    else:
        _run(console, plan, jobs=jobs)


def _discover(console: Console) -> None:
    with _app_if_any(console) as app:
        now = imports.now(app)
        found = imports.discover(app, imports.this_user(), now=now)
    value = {"items": [to_json(each) for each in found]}
    console.answer(value, discovery_text(found, now=now, width=console.width))


def _run(console: Console, plan: ImportPlan, *, jobs: int | None) -> None:
    with console.open(create=True) as app:
        total = import_exports(console, app, plan.exports)
        result = imports.run(
            app,
            plan.requests,
            ProgressMeter(console.progress).show,
            is_profile_chosen=console.profile is not None,
            workers=jobs,
        )
    console.end_progress()
    _answer(console, total, result, dry_run=False)


def _preview(console: Console, plan: ImportPlan) -> None:
    with _app_if_any(console) as app:
        total = preview_exports(app, plan.exports)
        asked = console.profile is not None
        result = imports.preview(app, plan.requests, is_profile_chosen=asked)
    _answer(console, total, result, dry_run=True)


def _answer(console: Console, total: ExportTotal, result: ImportResult, *, dry_run: bool) -> None:
    outcomes = result.outcomes
    value: dict[str, Any] = {"dry_run": dry_run, **asdict(total)}
    for name in ("added", "extended", "unchanged"):
        value[name] += sum(getattr(each, name) for each in outcomes)
    value["messages"] = sum(each.messages for each in outcomes)
    value["skipped"] = sum(each.skipped for each in outcomes) + len(result.faults)
    value["faults"] = [asdict(each) for each in result.faults]
    value["tools"] = [to_json(each) for each in outcomes]
    value["unknown"] = [asdict(each) for each in result.unknown]
    value["failures"] = list(result.failures)
    texts = [fault_text(each) for each in result.faults]
    texts += [outcome_text(each, dry_run=dry_run) for each in outcomes]
    texts += [unknown_text(each) for each in result.unknown]
    if not outcomes or total.added or total.extended or total.unchanged or total.refused:
        texts.append(exports_text(total, dry_run=dry_run))
    console.answer(value, "\n".join(texts))
    for failure in result.failures:
        console.note(failure)
    if total.refused or result.failures:
        raise click.exceptions.Exit(1)


def _watch(console: Console, plan: ImportPlan) -> None:
    if plan.exports:
        raise BadInput("Only the records of other tools can be watched; nothing was imported.")
    # One import does not need the file watcher.
    from sessionary.app.import_watch import watch

    stop = threading.Event()
    sums: dict[str, int] = {"added": 0, "extended": 0, "messages": 0, "skipped": 0}

    def show(outcome: ToolImport) -> None:
        for name in sums:
            sums[name] += getattr(outcome, name)
        console.end_progress()
        if not console.json:
            console.print(outcome_text(outcome, dry_run=False))
            console.flush()

    with console.open(create=True) as app:
        before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
        for each in before:
            signal.signal(each, lambda *_: stop.set())
        try:
            console.note("Watching; Ctrl-C ends it.")
            meter = ProgressMeter(console.progress)
            watch(app, plan.requests, stop=stop, on_import=show, on_progress=meter.show)
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
    console.end_progress()
    if console.json:
        console.emit(sums)
    console.note("Stopped; what was read is here.")


def _plan(console: Console, what: tuple[str, ...], *, is_all: bool) -> ImportPlan:
    plan, words = ImportPlan(), list(what)
    if is_all:
        if words:
            raise click.UsageError("--all takes no SOURCE and no PATH.")
        plan.requests = imports.default_requests(imports.this_user())
        if not plan.requests:
            raise NotFound("No records of other tools were found on this machine.")
        return plan
    tool = None
    if words[0] == OURS and not os.path.lexists(OURS):
        plan.exports = words[1:]
        if not plan.exports:
            raise click.UsageError(
                "Name a file that `sessionary export` wrote, or - for standard input."
            )
        words = []
    elif words[0] in registry.names() and not os.path.lexists(words[0]):
        tool = words.pop(0)
        plan.requests = [] if words else _default(tool)
    database = config.load(home=console.home, database=console.database).database
    for word in plan.exports:
        if word != STDIN:
            _check(word, database)
    for word in words:
        _add(plan, word, tool, database)
    return plan


def _default(tool: str) -> list[ImportRequest]:
    where = imports.this_user()
    importer = registry.importer(tool)
    found = imports.default_requests(where, [tool])
    if not found:
        places = ", ".join(map(str, importer.places(where)))
        looked = f"Looked in {places}." if places else "It has no place of its own."
        raise NotFound(
            f"No records of {importer.title} were found. {looked} "
            f"Name a path: sessionary import {tool} PATH"
        )
    return found


def _add(plan: ImportPlan, word: str, tool: str | None, database: str) -> None:
    if word == STDIN:
        plan.exports.append(word)
        return
    _check(word, database)
    if tool is not None and stat.S_ISREG(os.stat(word).st_mode) and is_own_export(word):
        raise BadInput(
            f"{word} is an export of Sessionary's own; nothing was imported. "
            f"Import it with: sessionary import {word}"
        )
    request = imports.request_for(Path(word), tool)
    if request is not None:
        plan.requests.append(request)
    elif stat.S_ISREG(os.stat(word).st_mode) and is_own_export(word):
        plan.exports.append(word)
    else:
        raise BadInput(
            f"{word} is no record that is known here; nothing was imported. "
            f"Records of these tools are read: {', '.join(registry.names())}."
        )


def _check(word: str, database: str) -> None:
    """Refuse missing files, pipes and devices, and the store itself."""
    try:
        found = os.stat(word)
    except FileNotFoundError as error:
        raise NotFound(f"There is no file {word}{_near(word)}; nothing was imported.") from error
    except ValueError as error:
        raise BadInput("A path cannot hold that character; nothing was imported.") from error
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise BadInput(f"{word} is neither a file nor a directory; nothing was imported.")
    imports.refuse_own_store(database, Path(word))


def _near(word: str) -> str:
    import difflib  # only a mistyped name needs it

    near = difflib.get_close_matches(word, registry.names(), n=2)
    return f" (did you mean the source {' or '.join(near)}?)" if near else ""


def _app_if_any(console: Console) -> "AbstractContextManager[AppContext | None]":
    """Return the open store, or None if there is none: a preview does not need one."""
    try:
        return console.open()
    except NotFound:
        return nullcontext()


STDIN = "-"
_HEAD = 4096


def import_exports(console: Console, app: "AppContext", paths: Sequence[str]) -> ExportTotal:
    """Import our own exports; `-` is standard input."""
    total = ExportTotal()
    for path in paths:
        with _opened(path) as file:
            total.add(_import_export(console, app, file))
    return total


def preview_exports(app: "AppContext | None", paths: Sequence[str]) -> ExportTotal:
    """Return what an import of our own exports would do."""
    total = ExportTotal()
    for path in paths:
        with _opened(path) as file:
            total.add(_preview_export(app, file))
    return total


def is_own_export(path: str) -> bool:
    """Whether a file is one of our own exports."""
    with open(path, "rb") as file:
        return b'"sessionary"' in file.read(_HEAD).split(b"\n", 1)[0]


def _opened(path: str) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdin.buffer) if path == STDIN else open(path, "rb")


def _import_export(console: Console, app: "AppContext", file: BinaryIO) -> ImportReport:
    return jsonl_import.import_jsonl(
        app.store,
        jsonl_import.lines_of(file),
        moment=app.moment(),
        profile=console.profile,
        progress=lambda done: console.progress(f"{done:,} sessions"),
    )


def _preview_export(app: "AppContext | None", file: BinaryIO) -> ImportReport:
    """Import into a temporary store, and count what is in the real one already."""
    clock, ids = SystemClock(), RandomIds()
    with tempfile.TemporaryDirectory(prefix="sessionary-import-") as folder:
        beside = open_store(str(Path(folder) / "look.db"), create=True, clock=clock, ids=ids)
        try:
            report = jsonl_import.import_jsonl(
                beside, jsonl_import.lines_of(file), moment=Moment(clock.now(), ids)
            )
            ids_read = beside.read(_all_ids).result()
        finally:
            beside.close()
    known = 0 if app is None else sum(_is_stored(app, each) for each in ids_read)
    return ImportReport(
        added=report.added - known,
        unchanged=known,
        entries=report.entries,
        refused=report.refused,
        notes=report.notes,
    )


def _all_ids(tx: "Tx") -> list[str]:
    found: list[str] = []
    after = 0
    while page := sessions.page(tx, profile=None, after=after, limit=1000):
        found += [each.id for each in page]
        after = page[-1].no
    return found


def _is_stored(app: "AppContext", session_id: str) -> bool:
    try:
        app.store.read(head_of, session_id, profile=app.profile).result()
    except SessionaryError:
        return False
    return True


def exports_text(total: ExportTotal, *, dry_run: bool) -> str:
    """Return what the import of our own exports did, or would do."""
    lines = [f"{each['session_id']}: left out: {each['reason']}" for each in total.refused]
    lines += total.notes
    if dry_run:
        lines.append(
            f"{count(total.added, 'session')} would be added; {total.unchanged:,} here already. "
            "Nothing was changed."
        )
    else:
        lines.append(
            f"{count(total.added, 'session')} added, {total.extended:,} extended, "
            f"{total.unchanged:,} unchanged: {count(total.entries, 'entry')} new."
        )
    return "\n".join(lines)


MAX_SHOWN = 10
_COLUMNS = (
    Column("SOURCE"),
    Column("WHERE", flexible=True),
    Column("FILES", right=True),
    Column("SIZE", right=True),
    Column("NEW", right=True),
    Column("NEW SIZE", right=True),
)


class ProgressMeter:
    """Shows how far an import is, how fast it goes, and how long it will take."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._tool: str | None = None
        self._began = 0.0

    def show(self, progress: ImportProgress) -> None:
        """Show the progress."""
        now = time.monotonic()
        if progress.tool != self._tool:
            self._tool, self._began = progress.tool, now
        elapsed = now - self._began
        rate = progress.bytes / elapsed if elapsed > 0 else 0.0
        text = f"{progress.tool}: {size(progress.bytes)} of {size(progress.all_bytes)}"
        text += f", {progress.messages:,} messages"
        if elapsed > 1 and rate > 0:
            left = max(0.0, progress.all_bytes - progress.bytes) / rate
            text += f", {size(int(rate))}/s, {_span(left)} left"
        self._show(text)


def to_json(value: Discovery | ToolImport) -> dict[str, Any]:
    """Return a result as plain values."""
    made = asdict(value)
    for name, each in made.items():
        if isinstance(each, datetime):
            made[name] = each.isoformat()
    return made


def discovery_text(found: Sequence[Discovery], *, now: datetime, width: int | None) -> str:
    """Return what is on this machine, what will be deleted soon, and how to import it."""
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


def outcome_text(done: ToolImport, *, dry_run: bool) -> str:
    """Return what the import of one tool's records did, or would do."""
    lines = [fault_text(each) for each in done.faults[:MAX_SHOWN]]
    if done.skipped > len(lines):
        lines.append(f"… and {done.skipped - len(lines):,} more that could not be read")
    lines += done.notes[:MAX_SHOWN]
    if done.left_out:
        most = sorted(done.left_out.items(), key=lambda each: -each[1])
        text = ", ".join(f"{number:,} {what}" for what, number in most[:MAX_SHOWN])
        lines.append(f"{done.title}: left out: {text}{', …' if len(most) > MAX_SHOWN else ''}")
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


def unknown_text(found: UnknownFiles) -> str:
    """Return which files of a directory no tool is known for."""
    return (
        f"{count(found.count, 'file')} in {found.place} left alone, no record of a known tool: "
        f"{_listed(found.names, found.count)}"
    )


def _omitted(done: ToolImport) -> list[str]:
    """Return why nothing was imported from units, unless their fault is listed already."""
    text = {(each.unit, each.why) for each in done.faults}
    by_reason: dict[str, list[str]] = {}
    for each in done.omissions:
        if (each.unit, each.reason) not in text:
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
    shown = ", ".join(names[:MAX_SHOWN])
    return f"{shown}, …" if total > MAX_SHOWN else shown


def fault_text(text: Fault) -> str:
    """Return a fault as one line that names its file once."""
    if text.why.startswith(text.unit):
        return text.why
    return f"{text.unit}: {_place(text.where)}{text.why}"


def _done(done: ToolImport) -> str:
    if not done.units:
        return f"{done.title}: nothing of its records is there."
    if done.omitted_units == done.units:
        return f"{done.title}: nothing was imported."
    text = f"{done.title}: {count(done.added, 'session')} added, {done.extended:,} extended"
    text += f", {done.unchanged:,} unchanged" if done.unchanged else ""
    text += f": {count(done.messages, 'new message')}"
    text += f", {done.skipped:,} skipped" if done.skipped else ""
    if done.unchanged_units:
        text += f"; {done.unchanged_units:,} of {count(done.units, 'file')} had not changed"
    return f"{text}."


def _dry(done: ToolImport) -> str:
    text = f"{done.title}: {count(done.added, 'session')} would be added"
    text += f", {done.extended:,} looked through for more" if done.extended else ""
    text += f": {count(done.messages, 'message')} read"
    text += f", {done.skipped:,} skipped" if done.skipped else ""
    return f"{text}. Nothing was changed."


def _warning(found: Discovery, *, now: datetime) -> str:
    assert found.expires_at is not None
    left = (found.expires_at - now).total_seconds()
    moment = "the first any time now" if left <= 0 else f"the first in {_span(left)}"
    return f"{found.title} will delete {count(found.expiring, 'new file')} within a week, {moment}."


def _from_home(place: str) -> str:
    """Return a path with `~` for the home directory."""
    home = str(Path.home())
    return f"~{place.removeprefix(home)}" if place.startswith(f"{home}/") else place


def _place(where: str) -> str:
    return f"{where}: " if where else ""


def _span(seconds: float) -> str:
    for limit, length, unit in ((90, 1, "s"), (5400, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{max(1, round(seconds / length))} {unit}"
    return f"{round(seconds / 86_400)} days"
