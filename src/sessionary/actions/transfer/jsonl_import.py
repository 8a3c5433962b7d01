"""Into the store from lines of JSON: each session whole or not at all, and only once."""

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from sessionary.actions.transfer import restore_session
from sessionary.actions.transfer.restore_session import Packet, RestoreOutcome
from sessionary.clock import Moment
from sessionary.errors import BadInput, Conflict, StoreFull
from sessionary.model import record
from sessionary.model.key import validate_profile
from sessionary.model.record import (
    BlobLine,
    CloseLine,
    DropLine,
    EndLine,
    EntryLine,
    Header,
    Line,
    SessionLine,
)
from sessionary.store.database import Store
from sessionary.store.tables import blobs

# What of a session is held in memory while it is read; the rest waits in a temporary file.
IN_MEMORY = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RefusedSession:
    """A session that was left out, and why."""

    session_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did."""

    added: int = 0
    extended: int = 0
    unchanged: int = 0
    entries: int = 0
    refused: tuple[RefusedSession, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def sessions(self) -> int:
        """How many sessions were read whole."""
        return self.added + self.extended + self.unchanged + len(self.refused)


@dataclass(slots=True)
class _Tally:
    outcomes: dict[str, int] = field(
        default_factory=lambda: {"added": 0, "extended": 0, "unchanged": 0, "entries": 0}
    )
    refused: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, outcome: RestoreOutcome) -> None:
        self.outcomes["entries"] += outcome.entries
        self.notes.extend(outcome.notes)
        if outcome.what is not None:
            self.outcomes[outcome.what] += 1

    @property
    def count(self) -> int:
        """How many sessions of the file are in the store."""
        return sum(self.outcomes[what] for what in ("added", "extended", "unchanged"))

    def report(self) -> ImportReport:
        refused = tuple(RefusedSession(name, why) for name, why in self.refused.items())
        return ImportReport(**self.outcomes, refused=refused, notes=tuple(self.notes))


def lines_of(file: BinaryIO, *, max_line: int = record.MAX_LINE) -> Iterator[bytes]:
    """The lines of a file; one that is too long is cut, so that it is refused and not held."""
    while line := file.readline(max_line + 2):
        yield line


def import_jsonl(
    store: Store,
    lines: Iterable[bytes],
    *,
    moment: Moment,
    profile: str | None = None,
    max_line: int = record.MAX_LINE,
    progress: Callable[[int], None] = lambda _: None,
) -> ImportReport:
    """Put the sessions of an export into the store, into `profile` or the one each came from.

    A session that is here already gets only the entries it lacks; one whose log says something
    else is refused and left as it is, and the others go on. A line that cannot be read ends the
    import with `BadInput`: the sessions before it are in the store, nothing of the others is.
    """
    if profile is not None:
        validate_profile(profile)
    tally = _Tally()
    reader = _ExportReader(max_line)
    try:
        for packet in reader.packets(lines):
            with packet:
                _restore(store, packet, profile=profile, moment=moment, tally=tally)
            progress(reader.sessions)
    except BadInput as error:
        raise BadInput(
            f"{error} {_so_far(tally)}", committed="unknown" if tally.count else "no"
        ) from error.__cause__
    return tally.report()


def _restore(
    store: Store, packet: Packet, *, profile: str | None, moment: Moment, tally: _Tally
) -> None:
    line = packet.session
    if line.inherits and line.parent_id in tally.refused:
        tally.refused[line.id] = f"session {line.parent_id}, which it continues, was refused"
        return
    try:
        tally.add(
            restore_session.restore_session(
                store, packet, profile=profile or line.profile, moment=moment
            )
        )
    except (Conflict, BadInput) as error:
        tally.refused[line.id] = str(error)


def _so_far(tally: _Tally) -> str:
    count = tally.count
    if not count:
        return "Nothing was imported."
    them = "session before it is" if count == 1 else f"{count} sessions before it are"
    return f"The {them} in the store; nothing of the rest was imported."


class _ExportReader:
    """Reads lines into packets, one whole session each."""

    def __init__(self, max_line: int) -> None:
        self.sessions = 0
        self._max_line = max_line
        self._packet: Packet | None = None
        self._next_seq = 0
        self._unused: set[str] = set()
        self._begun = self._closed = False
        self._since_header = 0

    def packets(self, lines: Iterable[bytes]) -> Iterator[Packet]:
        """The sessions of a file, each once its end line has been seen."""
        try:
            for number, raw in enumerate(lines, 1):
                text = record.without_mark(raw) if number == 1 else raw
                if text.strip() and (whole := self._take(text, number)) is not None:
                    yield whole
            self._check_end()
        finally:
            self._discard()

    def _check_end(self) -> None:
        if not self._begun:
            raise BadInput("The file is empty; it is not a Sessionary export.")
        if self._packet is not None:
            raise BadInput(
                f"The file ends inside session {self._packet.session.id}: it is cut off."
            )
        if not self._closed:
            raise BadInput("The file ends before its last line: it is cut off.")

    def _take(self, text: bytes, number: int) -> Packet | None:
        try:
            line = record.read(text.rstrip(b"\r\n"), max_line=self._max_line)
            return self._follow(line, text)
        except BadInput as error:
            cut = "" if text.endswith(b"\n") else " The file ends in the middle of it."
            said = str(error).rstrip(".")
            raise BadInput(f"Line {number} cannot be imported: {said}.{cut}") from None
        except OSError as error:
            why = error.strerror or error
            raise StoreFull(f"There is no room to hold what was read ({why}).") from error

    def _follow(self, line: Line | Header, text: bytes) -> Packet | None:
        """Check that a line may stand here; a packet when it makes a session whole."""
        if isinstance(line, Header):
            _expect(self._begun == self._closed, "a header stands before all sessions")
            self._begun, self._closed, self._since_header = True, False, 0
            return None
        _expect(self._begun and not self._closed, 'a file begins with {"sessionary":1}')
        match line:
            case SessionLine():
                _expect(self._packet is None, "the session before it has no end line")
                self._packet = Packet(line, IN_MEMORY)
                self._next_seq = line.base_seq + 1
                self._unused = set()
            case CloseLine():
                _expect(self._packet is None, "the session before it has no end line")
                count = self._since_header
                _expect(line.sessions == count, f"it counts {line.sessions} sessions, not {count}")
                self._closed = True
            case EndLine():
                return self._end(line)
            case DropLine():
                self._expect_session(line.id)
                self._discard()
            case _:
                self._collect(line, text)
        return None

    def _collect(self, line: Line, text: bytes) -> None:
        packet = self._packet
        if packet is None:
            raise BadInput("it belongs to no session")
        if isinstance(line, EntryLine):
            _expect(line.seq == self._next_seq, f"entry {self._next_seq} comes next")
            self._next_seq += 1
            self._unused -= {str(part.get("blob")) for part in line.parts or ()}
        if isinstance(line, BlobLine):
            _check_blob(line)
            self._unused.add(line.hash)
        packet.add(line, text)

    def _end(self, line: EndLine) -> Packet:
        packet = self._expect_session(line.id)
        said = {"entries": line.entries, "turns": line.turns, "usage": line.usage}
        said["blobs"] = line.blobs
        for what, count in said.items():
            found = packet.counts[what]
            _expect(found == count, f"session {line.id} has {found} of its {count} {what}")
        through, base = packet.session.through, packet.session.base_seq
        _expect(not self._unused, f"session {line.id} has bytes that no entry of it needs")
        reaches = through is None or self._next_seq - 1 == max(through, base)
        _expect(reaches, f"session {line.id} does not reach entry {through}")
        self.sessions += 1
        self._since_header += 1
        self._packet = None
        return packet

    def _expect_session(self, session_id: str) -> Packet:
        packet = self._packet
        if packet is None or packet.session.id != session_id:
            raise BadInput("it ends a session that was not begun")
        return packet

    def _discard(self) -> None:
        if self._packet is not None:
            self._packet.close()
            self._packet = None


def _expect(holds: bool, otherwise: str) -> None:  # noqa: FBT001  # it reads as a sentence
    if not holds:
        raise BadInput(otherwise)


def _check_blob(line: BlobLine) -> None:
    try:
        data = base64.b64decode(line.data, validate=True)
    except (binascii.Error, ValueError):
        raise BadInput("its data is not base64") from None
    if blobs.hash_of(data) != line.hash:
        raise BadInput("its bytes are not those its hash names")
