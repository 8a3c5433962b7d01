"""`sessionary doctor`."""

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import apsw
import click

from sessionary import __version__, config
from sessionary.actions.upkeep import verify
from sessionary.actions.upkeep.stats import health
from sessionary.cli.console import HOW_TO_BEGIN, Console, shown_url
from sessionary.cli.table import count, size
from sessionary.cli.tree import command, pass_console
from sessionary.errors import NotFound, SessionaryError
from sessionary.store import filesystem, migrations
from sessionary.store.filesystem import BESIDE
from sessionary.store.open import sqlite_path
from sessionary.store.sqlite import db_file

if TYPE_CHECKING:
    from sessionary.client.client import Sessionary

LONG_WAL = 64_000_000
LITTLE_ROOM = 500_000_000
NO_ROOM = 20_000_000
Status = Literal["ok", "warn", "bad"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: how it is, and what to do about it."""

    name: str
    status: Status
    what: str
    do: str | None = None


@command("doctor", example="sessionary doctor\nsessionary doctor --json | jq '.findings[].status'")
@pass_console
def doctor(console: Console) -> None:
    """Examine the store and the machine under it; each finding says what to do.

    Nothing is changed. The exit code is 1 when something is wrong.
    """
    settings = config.load(home=console.home, database=console.database, profile=console.profile)
    path = sqlite_path(settings.database)
    if path is not None and not os.path.exists(path) and db_file.read_identity(path) is None:
        raise NotFound(f"There is no store at {path}; nothing was made. {HOW_TO_BEGIN}")
    findings = [_program()]
    if path is not None:
        findings += _file(path, own_home=os.path.dirname(path) == str(settings.home))
    findings += _store(console)
    wrong = any(each.status == "bad" for each in findings)
    value = {
        "ok": not wrong,
        "database": shown_url(settings.database),
        "findings": [asdict(each) for each in findings],
    }
    console.answer(value, "\n".join(map(_line, findings)))
    if wrong:
        raise click.exceptions.Exit(1)


def _index(client: "Sessionary", path: str | None) -> Finding:
    # Compiling the tokenizer's patterns takes longer than opening a store.
    from sessionary.store.search.health import examine

    health = examine(client.store, path)
    if health.problem is not None:
        do = "The conversations are safe. Make it again with: sessionary rebuild --index"
        return Finding("search index", "bad", f"damaged ({health.problem})", do)
    if not health.exists:
        return Finding("search index", "ok", "not made yet; the first search makes it")
    room = f"{size(health.bytes)}, " if health.bytes else ""
    if health.behind:
        what = f"{room}{count(health.behind, 'change')} behind; the next search takes them in"
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


def _file(path: str, *, own_home: bool) -> Iterator[Finding]:
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.exists(path):
        yield Finding("file", "ok", f"{path}, {size(os.stat(path).st_size)}")
    else:
        yield Finding("file", "bad", f"{path} is gone", "Bring it back, or `sessionary restore`.")
    known = db_file.read_identity(path)
    if known is None:
        do = "It is written when the store is next opened where it can be written."
        yield Finding("identity", "warn", "nothing beside the file says which store this is", do)
    else:
        yield Finding("identity", "ok", known)
    yield from _modes(path, folder, own_home=own_home)
    wal = Path(f"{path}-wal")
    length = wal.stat().st_size if wal.exists() else 0
    if length > LONG_WAL:
        do = "A program keeps an old read open; end it, and the file is folded in."
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
        return Finding("file system", "ok", "this machine does not say which it is")
    if filesystem.is_shared(kind):
        do = "SQLite needs a local disk. Move the store, or use PostgreSQL: `sessionary migrate --to`."
        return Finding("file system", "warn", f"{kind}, shared or virtual", do)
    return Finding("file system", "ok", kind)


def _room(folder: str) -> Finding:
    free = filesystem.free_bytes(folder)
    if free >= LITTLE_ROOM:
        return Finding("room", "ok", f"{size(free)} free")
    status: Status = "bad" if free < NO_ROOM else "warn"
    return Finding("room", status, f"only {size(free)} free", "Free space; writes stop without.")


def _store(console: Console) -> Iterator[Finding]:
    """What the open store says; a store that does not open says why."""
    try:
        with console.client() as client:
            yield from _opened(client)
    except NotFound:
        raise
    except SessionaryError as error:
        yield Finding("store", "bad", str(error), "Nothing can be stored until this is settled.")


def _opened(client: "Sessionary") -> Iterator[Finding]:
    dialect = "postgres" if sqlite_path(client.config.database) is None else "sqlite"
    yield Finding("schema", "ok", f"{dialect}, {migrations.known(dialect)[-1].name}")
    broken = client.reading(verify.check_database).result()
    for each in broken:
        do = "Keep the file; `sessionary restore` a backup."
        yield Finding("integrity", "bad", f"{each.invariant}: {each.where}: {each.what}", do)
    if not broken:
        yield Finding("integrity", "ok", "no damage found (`sessionary verify` looks deeper)")
    yield _index(client, sqlite_path(client.config.database))
    found = client.reading(health, now=client.moment().now).result()
    waiting = (
        f"{count(found.waiting_arrivals, 'arrival')} and "
        f"{count(found.open_deliveries, 'delivery')} waiting"
    )
    yield Finding("queues", "ok", waiting)
    if found.abandoned_deliveries:
        what = f"{found.abandoned_deliveries:,} abandoned"
        yield Finding(
            "deliveries",
            "warn",
            what,
            "See: sessionary deliveries list --state abandoned; then retry or redirect what still matters.",
        )
    if found.dead_turns:
        what = f"{count(found.dead_turns, 'turn')} whose lease ran out"
        yield Finding("turns", "warn", what, "The next sweep interrupts them; a message waits.")
