"""Claude Code: one file of JSON lines for each session, those of its agents in a folder beside it.

The program deletes its files after a while: what was read here stays.
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from sessionary.clock import Clock, SystemClock
from sessionary.formats import coerce
from sessionary.importers.base import files
from sessionary.importers.base.events import Event, HeldBack, Json, Resume, Unit, Where
from sessionary.importers.claude_code.lines import ASIDE
from sessionary.importers.claude_code.reader import TOOL, SessionIdentity, TranscriptReader

# An answer may take so long to write; a file that has been quiet for longer is whole.
QUIET = timedelta(minutes=2)
KEPT_DAYS = 30
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
# Lines of these kinds name what they stand in or a session; no other tool has them.
_KINDS = ASIDE | {"ai-title", "custom-title", "teleported-from"}
_TALK = frozenset({"user", "assistant", "system", "attachment"})
_SESSION_ID = re.compile(rb'"sessionId"\s*:\s*"([^"\\]+)"')
_HEAD = 16 * 1024
_BUFFER = 256 * 1024
_UNSETTLED = "~"


class _Named(msgspec.Struct, gc=False):
    uuid: str | None = None
    isSidechain: bool | None = None  # noqa: N815


_named = msgspec.json.Decoder(_Named).decode


class ClaudeCode:
    """Reads the files of Claude Code."""

    name = TOOL
    title = "Claude Code"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Of the session whose agents were read last: its stamp, and the names of its lines.
        self._names: tuple[tuple[str, str], frozenset[str]] = ("", ""), frozenset()

    def places(self, where: Where) -> list[Path]:
        """`CLAUDE_CONFIG_DIR`, else `~/.claude`; and the directory that some versions used."""
        return [
            where.path("CLAUDE_CONFIG_DIR", ".claude") / "projects",
            where.path("XDG_CONFIG_HOME", ".config") / "claude" / "projects",
        ]

    def recognises(self, path: Path) -> bool:
        """A file of which a line in its beginning is the program's."""
        if path.suffix != ".jsonl" or not files.is_file(path):
            return False
        is_known = False
        for line in files.first_objects(path):
            if _is_of_qwen(line):
                return False
            is_known = is_known or _is_line(line)
            if is_known and isinstance(line.get("message"), dict):
                break
        return is_known

    def find(self, place: Path) -> Iterator[Unit]:
        """The sessions, those that others were copied from first, then their agents."""
        if files.is_file(place):
            yield self._unit(place, _kept_for(place))
            return
        root = _root(place)
        kept = _kept_for(root / "any")
        found = list(_sessions(root))
        for path in sorted((each for each in found if not _is_agent(each)), key=_order):
            yield self._unit(path, kept)
        for path in found:
            if _is_agent(path):
                yield self._unit(path, kept)

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        """The session, then the agents whose lines older versions wrote among its own."""
        at = files.changed_at(unit.path)
        with files.opened(unit.path, buffer=_BUFFER) as file:
            who = _identity(unit.path)
            is_settled = not unit.stamp.endswith(_UNSETTLED)
            copied = self._copied(unit.path) if resume is None else frozenset()
            reader = TranscriptReader(who, resume, at=at, is_settled=is_settled, copied=copied)
            yield from reader.events(_lines_from(file, resume))
            if reader.held_at is not None:
                yield HeldBack(until=at + QUIET)
                known = reader.last_mark or resume
                before = TranscriptReader(who, known, at=at, copied=copied)
                yield from before.mark_at(reader.held_at, _lines_from(file, known))
            for name, begins in reader.sidechains.items():
                session_id = reader.native_id or who.session_id
                agent = SessionIdentity(session_id, f"agent-{name}")
                inner = TranscriptReader(agent, at=at, has_places=False)
                yield from inner.events(_lines_at(file, begins))

    def _copied(self, path: Path) -> frozenset[str]:
        """The names of the lines of the session that an agent belongs to.

        Some agents (those that compact a conversation, or answer a question beside it) begin with a
        copy of their session's lines, under the same names.
        """
        session = _session_of(path)
        if session is None:
            return frozenset()
        stamp = str(session), files.stamp_of(session)
        if self._names[0] != stamp:
            self._names = stamp, _line_names(session)
        return self._names[1]

    def _unit(self, path: Path, kept: timedelta | None) -> Unit:
        beside = _meta(path)
        session = _session_of(path)
        stamp = files.stamp_of(path, *beside)
        changed = files.changed_at(path)
        if abs(self._clock.now() - changed) < QUIET:
            stamp += _UNSETTLED
        return Unit(
            name=str(path),
            path=path,
            stamp=stamp,
            size=files.size_of(path),
            beside=beside if session is None else (*beside, session),
            expires_at=None if kept is None else changed + kept,
        )


def _is_line(line: Json) -> bool:
    """Whether a line is Claude Code's. Others name a session and a kind, too, or write in its way."""
    kind = line.get("type")
    if not isinstance(kind, str):
        return False
    if kind in _TALK:
        is_placed = isinstance(line.get("uuid"), str) or "parentUuid" in line
        return is_placed or ("message" in line and "sessionId" in line)
    if kind == "summary":
        return isinstance(line.get("leafUuid"), str)
    return kind in _KINDS and ("sessionId" in line or kind.startswith("file-history-"))


def _is_of_qwen(line: Json) -> bool:
    """Qwen Code writes such lines with messages in the form of Google's interface."""
    message = line.get("message")
    return isinstance(message, dict) and "parts" in message and "content" not in message


def _root(place: Path) -> Path:
    """The directory that has the projects, or the one that someone named."""
    inside = place / "projects"
    return inside if files.is_directory(inside) else place


def _sessions(root: Path) -> Iterator[Path]:
    return files.walk(root, suffixes=(".jsonl",))


def _is_agent(path: Path) -> bool:
    return "subagents" in path.parts or path.name.startswith("agent-")


def _order(path: Path) -> tuple[bool, float, str]:
    """Originals before their copies: a copy's first lines name another session, and it is younger."""
    named = _SESSION_ID.search(files.head(path, _HEAD))
    is_copy = named is not None and named[1].decode("utf-8", "replace") != path.stem
    return is_copy, files.time_of(path), path.name


def _identity(path: Path) -> SessionIdentity:
    if "subagents" in path.parts:
        at = len(path.parts) - 1 - path.parts[::-1].index("subagents")
        within = "/".join((*path.parts[at + 1 : -1], path.stem))
        return SessionIdentity(path.parts[at - 1] if at > 0 else None, within, _agent_title(path))
    if path.name.startswith("agent-"):
        return SessionIdentity(None, path.stem, _agent_title(path))
    return SessionIdentity(path.stem if _UUID.fullmatch(path.stem) else None)


def _session_of(path: Path) -> Path | None:
    """The file of the session that an agent belongs to; None when this is no agent's, or it is gone."""
    if "subagents" in path.parts:
        at = len(path.parts) - 1 - path.parts[::-1].index("subagents")
        folder = Path(*path.parts[:at])
        if not folder.name:
            return None
        found = folder.with_name(f"{folder.name}.jsonl")
    elif path.name.startswith("agent-"):
        named = _SESSION_ID.search(files.head(path, _HEAD))
        name = "" if named is None else named[1].decode("utf-8", "replace")
        if not _UUID.fullmatch(name):
            return None
        found = path.with_name(f"{name}.jsonl")
    else:
        return None
    return found if found != path and files.is_file(found) else None


def _line_names(path: Path) -> frozenset[str]:
    """The names of a session's own lines; those of lines within lines are not among them."""
    names: set[str] = set()
    with files.opened(path, buffer=_BUFFER) as file:
        for _, _, text in files.raw_lines(file):
            try:
                line = _named(text or b"{}")
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                # The session's own reading tells of it.
                continue
            if line.uuid is not None and not line.isSidechain:
                names.add(line.uuid)
    return frozenset(names)


def _meta(path: Path) -> tuple[Path, ...]:
    if not path.name.startswith("agent-"):
        return ()
    beside = path.with_suffix(".meta.json")
    return (beside,) if files.is_file(beside) else ()


def _agent_title(path: Path) -> str | None:
    """What an agent was asked to do, else of which kind it is."""
    for beside in _meta(path):
        told = _object(beside)
        for name in ("description", "agentType"):
            if isinstance(told.get(name), str) and told[name].strip():
                return str(told[name])
    return None


def _kept_for(path: Path) -> timedelta | None:
    """How long the program keeps a file; None where it does not look."""
    settings = next(
        (each.parent / "settings.json" for each in path.parents if each.name == "projects"), None
    )
    if settings is None:
        return None
    days = _object(settings).get("cleanupPeriodDays", KEPT_DAYS)
    is_number = isinstance(days, int | float) and not isinstance(days, bool)
    return timedelta(days=days) if is_number and 0 <= days < 36_500 else None


def _object(path: Path) -> Json:
    try:
        found: Any = coerce.decode_json(files.head(path, 256 * 1024))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _lines_from(file: BinaryIO, resume: Resume | None) -> Iterator[tuple[int, int, bytes | None]]:
    return files.raw_lines(file, 0 if resume is None else resume.place)


def _lines_at(file: BinaryIO, begins: Any) -> Iterator[tuple[int, int, bytes | None]]:
    for begin in begins:
        yield next(files.raw_lines(file, begin))


IMPORTER = ClaudeCode(SystemClock())
