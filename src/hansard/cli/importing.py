"""`hansard import`."""

import os
import stat
import sys
import tempfile
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from hansard import config
from hansard.actions import importing
from hansard.actions.importing import ImportReport
from hansard.actions.read import head as head_of
from hansard.cli.console import Console
from hansard.cli.table import count
from hansard.cli.tree import command, pass_console
from hansard.clock import Occasion, RandomIds, SystemClock
from hansard.errors import BadInput, HansardError, NotFound
from hansard.store.filesystem import BESIDE
from hansard.store.opening import open_store, sqlite_path

if TYPE_CHECKING:
    from hansard.app.house import House
    from hansard.store.database import Tx

OURS = "hansard"
STDIN = "-"
NOT_YET = ("hermes", "claude-code", "codex", "chatgpt", "claude", "claude.ai", "openclaw")


@dataclass(slots=True)
class Total:
    """What all files together brought."""

    added: int = 0
    extended: int = 0
    unchanged: int = 0
    entries: int = 0
    refused: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, report: ImportReport) -> None:
        """Count one file."""
        self.added += report.added
        self.extended += report.extended
        self.unchanged += report.unchanged
        self.entries += report.entries
        self.refused += [asdict(each) for each in report.refused]
        self.notes += report.notes


@command(
    "import",
    example="hansard import conversations.jsonl --dry-run\n"
    "ssh other hansard export --all | hansard import -",
)
@click.argument("what", nargs=-1, metavar="[SOURCE] [PATH]…")
@click.option("--dry-run", is_flag=True, help="Read everything, change nothing.")
@pass_console
def import_(console: Console, what: tuple[str, ...], *, dry_run: bool) -> None:
    """Read sessions from Hansard JSONL; what is here already is not added twice.

    PATH `-` reads standard input. Each session comes in whole or not at all.
    """
    paths = _paths(what)
    total = Total()
    own = sqlite_path(config.load(home=console.home, database=console.database).database)
    for path in paths:
        _check(path, own)
    with _house_if_there(console) if dry_run else console.house(create=True) as house:
        for path in paths:
            with _opened(path) as file:
                report = _look(house, file) if dry_run else _read(console, house, file)
            total.add(report)
    console.end_progress()
    console.answer({"dry_run": dry_run, **asdict(total)}, _text(total, dry_run=dry_run))
    if total.refused:
        raise click.exceptions.Exit(1)


def _paths(what: tuple[str, ...]) -> tuple[str, ...]:
    if what and what[0] in NOT_YET and not os.path.exists(what[0]):
        raise BadInput(f"Importing from {what[0]} is not part of this version yet.")
    paths = what[1:] if what[:1] == (OURS,) else what
    if not paths:
        raise click.UsageError("Name a file that `hansard export` wrote, or - for standard input.")
    return paths


def _house_if_there(console: Console) -> "AbstractContextManager[House | None]":
    """A look at a file needs no store: without one everything in it would be new."""
    try:
        return console.house()
    except NotFound:
        return nullcontext()


def _check(path: str, own: str | None) -> None:
    """Refuse what is no file: a pipe that never ends, and the store itself."""
    if path == STDIN:
        return
    try:
        found = os.stat(path)
    except FileNotFoundError as error:
        raise NotFound(f"There is no file {path}; nothing was imported.") from error
    if not stat.S_ISREG(found.st_mode):
        raise BadInput(f"{path} is not a file; nothing was imported.")
    for each in () if own is None else (own + end for end in BESIDE):
        # A plain open and close of a live database would drop its locks.
        if os.path.exists(each) and os.path.samestat(found, os.stat(each)):
            raise BadInput(f"{path} belongs to the store itself; nothing was imported.")


def _opened(path: str) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdin.buffer) if path == STDIN else open(path, "rb")


def _read(console: Console, house: "House | None", file: BinaryIO) -> ImportReport:
    assert house is not None
    return importing.import_jsonl(
        house.store,
        importing.lines_of(file),
        when=house.occasion(),
        profile=console.profile,
        progress=lambda done: console.progress(f"{done:,} sessions"),
    )


def _look(house: "House | None", file: BinaryIO) -> ImportReport:
    """Import into a store beside, and compare: what would be new, and what is here already."""
    clock, ids = SystemClock(), RandomIds()
    with tempfile.TemporaryDirectory(prefix="hansard-import-") as folder:
        beside = open_store(str(Path(folder) / "look.db"), create=True, clock=clock, ids=ids)
        try:
            report = importing.import_jsonl(
                beside, importing.lines_of(file), when=Occasion(clock.now(), ids)
            )
            heads = beside.read(_all_ids).result()
        finally:
            beside.close()
    here = 0 if house is None else sum(_is_here(house, each) for each in heads)
    return ImportReport(
        added=report.added - here,
        unchanged=here,
        entries=report.entries,
        refused=report.refused,
        notes=report.notes,
    )


def _all_ids(tx: "Tx") -> list[str]:
    found: list[str] = []
    after = 0
    while page := tx.all("page_of_all_sessions", after=after, limit=1000):
        found += [row[1] for row in page]
        after = page[-1][0]
    return found


def _is_here(house: "House", session_id: str) -> bool:
    try:
        house.reading(head_of, session_id, profile=house.profile).result()
    except HansardError:
        return False
    return True


def _text(total: Total, *, dry_run: bool) -> str:
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
