"""`sessionary import` of Sessionary's own lines."""

import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from sessionary.actions.read import head as head_of
from sessionary.actions.transfer import jsonl_import
from sessionary.actions.transfer.jsonl_import import ImportReport
from sessionary.cli.console import Console
from sessionary.cli.table import count
from sessionary.clock import Moment, RandomIds, SystemClock
from sessionary.errors import SessionaryError
from sessionary.store.open import open_store

if TYPE_CHECKING:
    from sessionary.client.client import Sessionary
    from sessionary.store.database import Tx

STDIN = "-"
_HEAD = 4096


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


def read(console: Console, client: "Sessionary", paths: Sequence[str]) -> Total:
    """Import files of lines; `-` is standard input."""
    total = Total()
    for path in paths:
        with _opened(path) as file:
            total.add(_read(console, client, file))
    return total


def look(client: "Sessionary | None", paths: Sequence[str]) -> Total:
    """What an import of files would bring; without a house everything is new."""
    total = Total()
    for path in paths:
        with _opened(path) as file:
            total.add(_look(client, file))
    return total


def looks_ours(path: str) -> bool:
    """Whether a file begins as ours do."""
    with open(path, "rb") as file:
        return b'"sessionary"' in file.read(_HEAD).split(b"\n", 1)[0]


def _opened(path: str) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdin.buffer) if path == STDIN else open(path, "rb")


def _read(console: Console, client: "Sessionary", file: BinaryIO) -> ImportReport:
    return jsonl_import.import_jsonl(
        client.store,
        jsonl_import.lines_of(file),
        moment=client.moment(),
        profile=console.profile,
        progress=lambda done: console.progress(f"{done:,} sessions"),
    )


def _look(client: "Sessionary | None", file: BinaryIO) -> ImportReport:
    """Import into a store beside, and compare: what would be new, and what is here already."""
    clock, ids = SystemClock(), RandomIds()
    with tempfile.TemporaryDirectory(prefix="sessionary-import-") as folder:
        beside = open_store(str(Path(folder) / "look.db"), create=True, clock=clock, ids=ids)
        try:
            report = jsonl_import.import_jsonl(
                beside, jsonl_import.lines_of(file), moment=Moment(clock.now(), ids)
            )
            heads = beside.read(_all_ids).result()
        finally:
            beside.close()
    here = 0 if client is None else sum(_is_here(client, each) for each in heads)
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


def _is_here(client: "Sessionary", session_id: str) -> bool:
    try:
        client.reading(head_of, session_id, profile=client.profile).result()
    except SessionaryError:
        return False
    return True


def text(total: Total, *, dry_run: bool) -> str:
    """What an import did, or would do."""
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
