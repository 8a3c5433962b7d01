"""`sessionary verify`, `rebuild`, `stats` and `doctor`."""

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import apsw
import click

from sessionary import __version__, config
from sessionary.actions import questions
from sessionary.actions import verify as checking
from sessionary.cli import indexing
from sessionary.cli.console import HOW_TO_BEGIN, Column, Console, count, shown_url, size, table
from sessionary.cli.tree import command, pass_console
from sessionary.errors import NotFound, SessionaryError
from sessionary.store import filesystem, migrations
from sessionary.store.filesystem import BESIDE
from sessionary.store.open import sqlite_path
from sessionary.store.sqlite import db_file
from sessionary.store.tables import exchanges, upkeep

if TYPE_CHECKING:
    from sessionary.app.context import AppContext

SHOWN_SIZES = 12
MOST_COUNTED = 1_000


@command("verify", example="sessionary verify && echo clean")
@pass_console
def verify(console: Console) -> None:
    """Check that the store is consistent, and list every violation.

    Every session of every profile is compared with its log, its usage and its turns.
    """
    with console.open() as app:
        found = checking.verify(
            app.store, progress=lambda done: console.progress(f"{done:,} sessions checked")
        )
    console.end_progress()
    broken = [
        {"invariant": each.invariant, "where": each.where, "what": each.what}
        for each in found.broken
    ]
    checked = f"{count(found.sessions, 'session')}, {count(found.entries, 'entry')} checked"
    lines = [f"{each['invariant']}: {each['where']}: {each['what']}" for each in broken]
    if broken:
        lines.append(
            f"{checked}; {count(len(broken), 'violation')}. `sessionary rebuild` recomputes counts and sums, "
            "`sessionary rebuild --index` the search index; for damage, `sessionary restore` a backup."
        )
    else:
        lines.append(f"{checked}; everything is consistent.")
    value = {
        "ok": not broken,
        "sessions": found.sessions,
        "entries": found.entries,
        "broken": broken,
    }
    console.answer(value, "\n".join(lines))
    if broken:
        raise click.exceptions.Exit(1)


@command("rebuild", example="sessionary rebuild\nsessionary rebuild --index")
@click.option("--index", is_flag=True, help="Only the search index, from scratch.")
@pass_console
def rebuild(console: Console, *, index: bool) -> None:
    """Recompute counts, previews and sums from the log; the log is not changed."""
    if index:
        _rebuild_index(console)
        return
    with console.open() as app:
        wrong = checking.rebuild(
            app.store, progress=lambda done: console.progress(f"{done:,} sessions rebuilt")
        )
    console.end_progress()
    console.answer({"changed": wrong}, f"{count(wrong, 'session')} corrected.")


def _rebuild_index(console: Console) -> None:
    with console.open() as app:
        app.store.rebuild_index().result()
        total = indexing.catch_up(console, app)
    console.answer({"indexed": total}, f"{count(total, 'change')} indexed.")


@command("stats", example="sessionary stats")
@pass_console
def stats(console: Console) -> None:
    """Count what is in the store, of all profiles, and show what takes the space."""
    with console.open() as app:
        found = app.store.read(upkeep.stats).result()
    names = (
        "sessions",
        "open_sessions",
        "entries",
        "turns",
        "waiting_arrivals",
        "open_deliveries",
        "blobs",
        "blob_bytes",
    )
    value = {name: getattr(found, name) for name in names}
    sizes = [{"name": name, "bytes": amount} for name, amount in found.sizes]
    total = sum(amount for _, amount in found.sizes)
    rows = [
        [name.replace("_", " "), size(number) if name.endswith("bytes") else f"{number:,}"]
        for name, number in value.items()
    ]
    rows.append(["tables and indexes", size(total)])
    largest = [[name, size(amount)] for name, amount in found.sizes[:SHOWN_SIZES]]
    counts = table((Column("WHAT"), Column("HOW MUCH", right=True)), rows, width=None)
    room = table((Column("LARGEST"), Column("SIZE", right=True)), largest, width=None)
    console.answer(value | {"bytes": total, "sizes": sizes}, f"{counts}\n\n{room}")


LONG_WAL = 64_000_000
LITTLE_ROOM = 500_000_000
NO_ROOM = 20_000_000
Status = Literal["ok", "warn", "bad"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, and what to do about it."""

    name: str
    status: Status
    what: str
    do: str | None = None


@command("doctor", example="sessionary doctor\nsessionary doctor --json | jq '.findings[].status'")
@pass_console
def doctor(console: Console) -> None:
    """Diagnose the store and this machine, and say how to fix each problem.

    Nothing is changed. The exit code is 1 if something is wrong.
    """
    settings = config.load(home=console.home, database=console.database, profile=console.profile)
    path = sqlite_path(settings.database)
    if path is not None and not os.path.exists(path) and db_file.read_identity(path) is None:
        raise NotFound(f"There is no store at {path}; nothing was created. {HOW_TO_BEGIN}")
    findings = [_program(), *_plugins()]
    if path is not None:
        findings += _file(path, own_home=os.path.dirname(path) == str(settings.home))
    findings += _store_findings(console)
    wrong = any(each.status == "bad" for each in findings)
    value = {
        "ok": not wrong,
        "database": shown_url(settings.database),
        "findings": [asdict(each) for each in findings],
    }
    console.answer(value, "\n".join(map(_line, findings)))
    if wrong:
        raise click.exceptions.Exit(1)


def _index(app: "AppContext", path: str | None) -> Finding:
    from sessionary.store.search.health import examine  # compiles the tokenizer's patterns

    health = examine(app.store, path)
    if health.problem is not None:
        do = "The conversations are safe. Rebuild it with: sessionary rebuild --index"
        return Finding("search index", "bad", f"damaged ({health.problem})", do)
    if not health.exists:
        return Finding("search index", "ok", "not created yet; the first search creates it")
    room = f"{size(health.bytes)}, " if health.bytes else ""
    if health.behind:
        what = f"{room}{count(health.behind, 'change')} behind; the next search adds them"
        return Finding("search index", "ok", what)
    return Finding("search index", "ok", f"{room}complete")


def _line(found: Finding) -> str:
    do = f"\n      {found.do}" if found.do else ""
    return f"{found.status:<4}  {found.name}: {found.what}{do}"


def _program() -> Finding:
    release = apsw.sqlite_lib_version()
    what = f"Sessionary {__version__}, SQLite {release}"
    if db_file.is_sound(db_file.version()):
        return Finding("program", "ok", what)
    do = "This release can corrupt a store. Install a newer apsw (SQLite 3.51.3 or later)."
    return Finding("program", "bad", what, do)


def _plugins() -> Iterator[Finding]:
    from sessionary.cli.plugins import installed_plugins  # reads the metadata of all packages

    for each in installed_plugins():
        problem = each.problem
        yield Finding("plug-in", "ok" if problem is None else "bad", problem or str(each))


def _file(path: str, *, own_home: bool) -> Iterator[Finding]:
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.exists(path):
        yield Finding("file", "ok", f"{path}, {size(os.stat(path).st_size)}")
    else:
        yield Finding("file", "bad", f"{path} is gone", "Bring it back, or `sessionary restore`.")
    known = db_file.read_identity(path)
    if known is None:
        do = "It is written when the store is next opened for writing."
        yield Finding(
            "identity", "warn", "the file that says which store this is does not exist", do
        )
    else:
        yield Finding("identity", "ok", known)
    yield from _modes(path, folder, own_home=own_home)
    wal = Path(f"{path}-wal")
    length = wal.stat().st_size if wal.exists() else 0
    if length > LONG_WAL:
        do = "A program keeps an old read open; stop it, and the file shrinks."
        yield Finding("wal", "warn", size(length), do)
    else:
        yield Finding("wal", "ok", size(length))
    yield _file_system(folder)
    yield _room(folder)


def _modes(path: str, folder: str, *, own_home: bool) -> Iterator[Finding]:
    wanted = {path + end: 0o600 for end in BESIDE}
    if own_home:
        wanted[folder] = 0o700
    open_ones = {
        name: most
        for name, most in wanted.items()
        if (found := filesystem.mode(name)) is not None and found & ~most
    }
    for name, most in open_ones.items():
        yield Finding(
            "permissions", "bad", f"others can use {name}", f"Run: chmod {most:o} '{name}'"
        )
    if not open_ones:
        yield Finding("permissions", "ok", "only you can read and write")


def _file_system(folder: str) -> Finding:
    kind = filesystem.kind(folder)
    if kind is None:
        return Finding("file system", "ok", "unknown on this machine")
    if filesystem.is_shared(kind):
        do = "SQLite needs a local disk. Move the store, or use PostgreSQL: `sessionary migrate --to`."
        return Finding("file system", "warn", f"{kind}, shared or virtual", do)
    return Finding("file system", "ok", kind)


def _room(folder: str) -> Finding:
    free = filesystem.free_bytes(folder)
    if free >= LITTLE_ROOM:
        return Finding("room", "ok", f"{size(free)} free")
    status: Status = "bad" if free < NO_ROOM else "warn"
    return Finding(
        "room",
        status,
        f"only {size(free)} free",
        "Free some space: without it nothing can be stored.",
    )


def _store_findings(console: Console) -> Iterator[Finding]:
    """Yield what the open store reports, or why it does not open."""
    try:
        with console.open() as app:
            yield from _opened(app)
    except NotFound:
        raise
    except SessionaryError as error:
        yield Finding("store", "bad", str(error), "Nothing can be stored until this is fixed.")


def _opened(app: "AppContext") -> Iterator[Finding]:
    dialect = "postgres" if sqlite_path(app.config.database) is None else "sqlite"
    yield Finding("schema", "ok", f"{dialect}, {migrations.known(dialect)[-1].name}")
    broken = app.store.read(checking.check_database).result()
    for each in broken:
        do = "Keep the file, and `sessionary restore` a backup."
        yield Finding("integrity", "bad", f"{each.invariant}: {each.where}: {each.what}", do)
    if not broken:
        yield Finding("integrity", "ok", "no damage found (`sessionary verify` looks deeper)")
    yield _index(app, sqlite_path(app.config.database))
    found = app.store.read(upkeep.health, now=app.moment().now).result()
    waiting = (
        f"{count(found.waiting_arrivals, 'arrival')} and "
        f"{count(found.open_deliveries, 'delivery')} waiting"
    )
    yield Finding("queues", "ok", waiting)
    asked = app.store.read(
        questions.list_questions, profile=app.profile, limit=MOST_COUNTED, only_open=True
    ).result()
    if asked.items:
        least = "at least " if asked.next is not None else ""
        verb = "waits" if len(asked.items) == 1 else "wait"
        what = f"{least}{count(len(asked.items), 'question')} {verb} for an answer"
        yield Finding("questions", "ok", what, "See `sessionary questions list`.")
    passed = app.store.read(exchanges.count).result()
    if waiting_exchanges := passed.get(exchanges.DONE, 0):
        what = f"{count(waiting_exchanges, 'exchange')} not in the log yet"
        do = "`sessionary proxy`, or a server with [proxy], adds them at its next start."
        yield Finding("proxy", "ok", what, do)
    if failed_exchanges := passed.get(exchanges.FAILED, 0):
        what = f"{count(failed_exchanges, 'exchange')} could not be recorded"
        do = "They are kept as they came, and tried again at the next start of the proxy; its log says why."
        yield Finding("proxy", "warn", what, do)
    if found.abandoned_deliveries:
        what = f"{found.abandoned_deliveries:,} abandoned"
        yield Finding(
            "deliveries",
            "warn",
            what,
            "See `sessionary deliveries list --state abandoned`; retry or redirect what still matters.",
        )
    if found.dead_turns:
        what = f"{count(found.dead_turns, 'turn')} with an expired lease"
        yield Finding(
            "turns",
            "warn",
            what,
            "A running server interrupts them soon; until then their sessions wait.",
        )


COMMANDS: dict[str, click.Command] = {
    "verify": verify,
    "rebuild": rebuild,
    "stats": stats,
    "doctor": doctor,
}
