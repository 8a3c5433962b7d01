"""What came of an import, as people read it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sessionary.actions import verify
from sessionary.clock import Moment, RandomIds, SystemClock
from sessionary.importers.base import driver
from sessionary.importers.base.driver import ToolImportReport
from sessionary.importers.base.events import Importer, Unit
from sessionary.importers.base.session_merger import ImportTarget
from sessionary.model import transcript
from sessionary.model.message import Entry, Message
from sessionary.model.session import SessionHead
from sessionary.store.database import Store, Tx
from sessionary.store.tables import entries, imports, sessions


class Archive:
    """A store after an import."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def take(self, importer: Importer, units: list[Unit]) -> ToolImportReport:
        """Import units as the command does."""
        return driver.run(self.target(importer), importer, units)

    def target(self, importer: Importer) -> ImportTarget:
        """Where imports of the tool go."""
        moment = Moment(SystemClock().now(), RandomIds())
        return ImportTarget(self.store, "main", importer.name, importer.title, moment)

    def take_all(self, importer: Importer, place: Path) -> ToolImportReport:
        """Import everything that is found in a place."""
        return self.take(importer, list(importer.find(place)))

    def check_again(self, importer: Importer, place: Path, *touched: Path) -> None:
        """Nothing changes, whether the place is left unread or all of it is read once more."""
        before = self.everything()
        unread = self.take_all(importer, place)
        assert unread.unchanged_units == unread.units
        for path in touched:
            later = path.stat().st_mtime_ns + 1_000_000_000
            os.utime(path, ns=(later, later))
        report = self.take_all(importer, place)
        if touched:
            assert report.unchanged_units < report.units
        assert (report.added, report.extended, report.messages) == (0, 0, 0)
        assert self.everything() == before
        self.check()

    def session(self, tool: str, native_id: str) -> SessionHead:
        """The session that a tool calls so."""
        return self.store.read(_head, tool, native_id).result()

    def extra(self, tool: str, native_id: str) -> Mapping[str, Any]:
        """What is known of the session besides."""
        return self.store.read(_extra, tool, native_id).result()

    def draft(self, tool: str, native_id: str) -> str | None:
        """What was typed and not sent."""
        return self.store.read(_draft, tool, native_id).result()

    def log(self, tool: str, native_id: str) -> list[Entry]:
        """All that the session's history has, taken back or not."""
        return self.store.read(_log, tool, native_id).result()

    def messages(self, tool: str, native_id: str) -> list[Message]:
        """What people read."""
        read = transcript.transcript(self.log(tool, native_id))
        return [entry.body for entry in read if isinstance(entry.body, Message)]

    def texts(self, tool: str, native_id: str) -> list[str]:
        """The words that people read."""
        return [message.text for message in self.messages(tool, native_id)]

    def count(self) -> int:
        """How many sessions people see."""
        return len(self.heads())

    def heads(self) -> list[SessionHead]:
        """Every session that people see."""
        return self.store.read(_heads).result()

    def everything(self) -> list[Any]:
        """All entries and heads, to see that nothing changed."""
        return [(head, self.store.read(_own, head.no).result()) for head in self.heads()]

    def check(self) -> None:
        """No invariant is broken."""
        broken = list(verify.verify(self.store).broken)
        assert broken == [], broken


def _found(tx: Tx, tool: str, native_id: str) -> int:
    found = imports.find_session(tx, native_id, profile="main", tool=tool)
    assert found is not None, f"{tool} has no session {native_id}"
    return found.no


def _head(tx: Tx, tool: str, native_id: str) -> SessionHead:
    return sessions.get_by_no(tx, _found(tx, tool, native_id))


def _extra(tx: Tx, tool: str, native_id: str) -> Mapping[str, Any]:
    return sessions.details(tx, _found(tx, tool, native_id)).extra


def _draft(tx: Tx, tool: str, native_id: str) -> str | None:
    return sessions.details(tx, _found(tx, tool, native_id)).draft


def _log(tx: Tx, tool: str, native_id: str) -> list[Entry]:
    return list(entries.walk(tx, sessions.segments(tx, _found(tx, tool, native_id))))


def _own(tx: Tx, no: int) -> list[Entry]:
    return list(entries.walk(tx, sessions.segments(tx, no)))


def _heads(tx: Tx) -> list[SessionHead]:
    rows = tx.all("page_of_all_sessions", after=0, limit=100_000)
    found = [sessions.get_by_no(tx, row[0]) for row in rows]
    return [head for head in found if head.folder != "gone"]
