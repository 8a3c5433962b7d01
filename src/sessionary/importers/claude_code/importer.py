"""Claude Code: one file of JSON lines for each session, and those of its agents in a folder beside it.

The program deletes its files after a while: what was read here stays.
"""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from sessionary.clock import Clock, SystemClock
from sessionary.formats import coerce
from sessionary.importers.base import files
from sessionary.importers.base.events import Event, HeldBack, Json, Resume, Unit, UserEnvironment
from sessionary.importers.claude_code.lines import IGNORED_KINDS
from sessionary.importers.claude_code.reader import TOOL, SessionIdentity, TranscriptReader

# Answers are written in pieces; the last answer of a file that is quiet for longer is complete.
QUIET = timedelta(minutes=2)
KEPT_DAYS = 30
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
# Kinds of lines that no other tool has.
_KINDS = IGNORED_KINDS | {"ai-title", "custom-title", "teleported-from"}
_MESSAGE_KINDS = frozenset({"user", "assistant", "system", "attachment"})
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
        # The session whose agents were read last: its stamp, and the ids of its lines.
        self._names: tuple[tuple[str, str], frozenset[str]] = ("", ""), frozenset()

    def places(self, user: UserEnvironment) -> list[Path]:
        """Return `CLAUDE_CONFIG_DIR` or `~/.claude`, and the directory of some versions."""
        return [
            user.path("CLAUDE_CONFIG_DIR", ".claude") / "projects",
            user.path("XDG_CONFIG_HOME", ".config") / "claude" / "projects",
        ]

    def recognises(self, path: Path) -> bool:
        """Return whether a line at the beginning is one of the program's."""
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
        """Yield the sessions, originals before copies, then their agents."""
        if files.is_file(place):
            yield self._unit(place, _retention(place))
            return
        root = _root(place)
        keeps_for = _retention(root / "any")
        found = list(_sessions(root))
        for path in sorted((each for each in found if not _is_agent(each)), key=_order):
            yield self._unit(path, keeps_for)
        for path in found:
            if _is_agent(path):
                yield self._unit(path, keeps_for)

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        """Yield the session, then the agents whose lines old versions wrote among its own."""
        at = files.changed_at(unit.path)
        with files.opened(unit.path, buffer=_BUFFER) as file:
            who = _identity(unit.path)
            is_settled = not unit.stamp.endswith(_UNSETTLED)
            copied = self._copied(unit.path) if resume is None else frozenset()
            reader = TranscriptReader(who, resume, at=at, is_settled=is_settled, copied=copied)
            yield from reader.events(_lines_from(file, resume))
            if reader.held_at is not None:
                yield HeldBack(until=at + QUIET)
                known = reader.last_checkpoint or resume
                before = TranscriptReader(who, known, at=at, copied=copied)
                yield from before.checkpoint_at(reader.held_at, _lines_from(file, known))
            for name, begins in reader.sidechains.items():
                session_id = reader.native_id or who.session_id
                agent = SessionIdentity(session_id, f"agent-{name}")
                inner = TranscriptReader(agent, at=at, has_places=False)
                yield from inner.events(_lines_at(file, begins))

    def _copied(self, path: Path) -> frozenset[str]:
        """Return the ids of the lines of the session that an agent belongs to.

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

    def _unit(self, path: Path, keeps_for: timedelta | None) -> Unit:
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
            expires_at=None if keeps_for is None else changed + keeps_for,
        )


def _is_line(line: Json) -> bool:
    """Whether a line is Claude Code's; other tools write similar ones."""
    kind = line.get("type")
    if not isinstance(kind, str):
        return False
    if kind in _MESSAGE_KINDS:
        is_placed = isinstance(line.get("uuid"), str) or "parentUuid" in line
        return is_placed or ("message" in line and "sessionId" in line)
    if kind == "summary":
        return isinstance(line.get("leafUuid"), str)
    return kind in _KINDS and ("sessionId" in line or kind.startswith("file-history-"))


def _is_of_qwen(line: Json) -> bool:
    """Whether a line is Qwen Code's: its messages have the format of Google's API."""
    message = line.get("message")
    return isinstance(message, dict) and "parts" in message and "content" not in message


def _root(place: Path) -> Path:
    """Return the directory of the projects, or the one that was named."""
    inside = place / "projects"
    return inside if files.is_directory(inside) else place


def _sessions(root: Path) -> Iterator[Path]:
    return files.walk(root, suffixes=(".jsonl",))


def _is_agent(path: Path) -> bool:
    return "subagents" in path.parts or path.name.startswith("agent-")


def _order(path: Path) -> tuple[bool, datetime, str]:
    """Return a key that sorts originals before copies, whose first lines name another session."""
    named = _SESSION_ID.search(files.head(path, _HEAD))
    is_copy = named is not None and named[1].decode("utf-8", "replace") != path.stem
    return is_copy, files.changed_at(path), path.name


def _identity(path: Path) -> SessionIdentity:
    if "subagents" in path.parts:
        at = len(path.parts) - 1 - path.parts[::-1].index("subagents")
        within = "/".join((*path.parts[at + 1 : -1], path.stem))
        return SessionIdentity(path.parts[at - 1] if at > 0 else None, within, _agent_title(path))
    if path.name.startswith("agent-"):
        return SessionIdentity(None, path.stem, _agent_title(path))
    return SessionIdentity(path.stem if _UUID.fullmatch(path.stem) else None)


def _session_of(path: Path) -> Path | None:
    """Return the file of the session that an agent belongs to; None without one."""
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
    """Return the ids of a session's own lines, without those of its agents."""
    names: set[str] = set()
    with files.opened(path, buffer=_BUFFER) as file:
        for _, _, text in files.raw_lines(file):
            try:
                line = _named(text or b"{}")
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                # It is reported when the session itself is read.
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
    """Return what an agent was asked to do, or its kind."""
    for beside in _meta(path):
        meta = _object(beside)
        for name in ("description", "agentType"):
            if isinstance(meta.get(name), str) and meta[name].strip():
                return str(meta[name])
    return None


def _retention(path: Path) -> timedelta | None:
    """Return how long the program keeps a file; None for files outside its directories."""
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
