"""Gemini CLI: a file of JSON lines a session, or, in older releases, one JSON document.

The lines are a log of changes: a message that comes again replaces the first, `$set` changes what is
known of the session or its list of messages, `$rewindTo` takes back a message and all after it.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from sessionary.errors import BadInput
from sessionary.formats import coerce
from sessionary.importers.base import files
from sessionary.importers.base.content import parse_time
from sessionary.importers.base.events import (
    Branch,
    Compacted,
    Event,
    Json,
    MessageEvent,
    Resume,
    Skipped,
    Unit,
    UserEnvironment,
    begin_session,
    facts,
    workspace,
)
from sessionary.importers.gemini.messages import (
    answered_calls,
    answers_in,
    is_context,
    text_of,
    to_messages,
)

SUMMARY = "<state_snapshot>"
Item = MessageEvent | Compacted


class GeminiCli:
    """Reads the sessions of Gemini CLI."""

    name = "gemini-cli"
    title = "Gemini CLI"

    def places(self, user: UserEnvironment) -> list[Path]:
        """Return its directory of projects, and that of its fork Qwen Code."""
        home = user.path("GEMINI_CLI_HOME", ".")
        return [home / ".gemini" / "tmp", user.home / ".qwen" / "tmp"]

    def recognises(self, path: Path) -> bool:
        if files.is_file(path):
            return path.suffix in (".json", ".jsonl") and _is_session(path)
        return any(True for _ in _found(path))

    def find(self, place: Path) -> Iterator[Unit]:
        """Yield the files of subagents after those of their sessions."""
        found = [place] if files.is_file(place) else _found(place)
        for path in sorted(found, key=lambda each: (len(each.parts), each)):
            root = _project_root(path)
            yield Unit(
                str(path), path, files.stamp_of(path), files.size_of(path), (root,), hint=root
            )

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        session = _GeminiSession(unit.path)
        yield from session.fill()
        id = coerce.name(session.facts.get("sessionId"))
        if id is None:
            raise BadInput(f"{unit.path} names no session; it was left alone.")
        began = parse_time(session.facts.get("startTime"))
        yield begin_session(id, began, parent=_parent_of(unit.path))
        folders = coerce.items(session.facts.get("directories"))
        noted = files.head(unit.hint).decode("utf-8", "replace").strip()
        yield facts(
            title=coerce.name(session.facts.get("summary")),
            workspace=workspace(folders[0] if folders else noted),
        )
        cache = _MessageCache(id, files.changed_at(unit.path))
        for branch in session.abandoned:
            yield Branch(items=cache.items(branch), is_current=False)
        yield Branch(items=cache.items(session.current()), is_current=True)


class _GeminiSession:
    """A session of a file, after all its changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.facts: Json = {}
        self._messages: dict[str, Json] = {}
        # The most complete form of each message so far.
        self._fullest: dict[str, Json] = {}
        # A resumed session begins with a shorter list. The whole list follows, unless the session
        # was rewound: then `_taken_back` is the first message that is gone.
        self._is_resuming = False
        self._taken_back: str | None = None
        # The messages before each rewind.
        self.abandoned: list[list[Json]] = []

    def current(self) -> list[Json]:
        """Return the messages after all changes."""
        return list(self._messages.values())

    def fill(self) -> Iterator[Skipped]:
        """Read the file; yield what cannot be read."""
        if self._path.suffix == ".json":
            self._change(coerce.record(files.read_json(self._path)))
            return
        for line in files.read_json_lines(self._path):
            if line.data is None:
                yield line.skipped
            else:
                self._take(line.data)

    def _take(self, record: Json) -> None:
        if isinstance(record.get("$rewindTo"), str):
            self._rewind(record["$rewindTo"])
        elif isinstance(record.get("$set"), dict):
            self._change(record["$set"])
        elif isinstance(record.get("id"), str) and "type" in record:
            if self._taken_back is not None:
                self._rewind(self._taken_back)
            self._is_resuming, self._taken_back = False, None
            self._messages[record["id"]] = self._fullest[record["id"]] = record
        else:
            self._is_resuming = bool(self._messages)
            self._change(record)

    def _change(self, patch: Json) -> None:
        # Each time the session is resumed there is another header, which says when that was.
        began = self.facts.get("startTime")
        self.facts |= {name: value for name, value in patch.items() if name != "messages"}
        if began is not None:
            self.facts["startTime"] = began
        # An empty list comes with each header; it takes nothing back.
        if isinstance(patch.get("messages"), list) and patch["messages"]:
            self._replace(patch["messages"])

    def _replace(self, given: list[object]) -> None:
        """A new list of messages: one taken back to, one made shorter for the model, or one that grew."""
        messages = {
            each["id"]: each for each in coerce.records(given) if coerce.name(each.get("id"))
        }
        known = list(self._messages)
        self._taken_back = None
        if list(messages) == known[: len(messages)] and len(messages) < len(known):
            if self._is_resuming:
                self._taken_back = known[len(messages)]
            else:
                self._rewind(known[len(messages)])
            return
        first = next((each for each in messages.values() if not is_context(each)), {})
        if known and first.get("id") not in self._messages and SUMMARY in text_of(first):
            self._compact(messages)
            return
        for id, message in messages.items():
            self._messages[id] = self._fullest[id] = _fuller(self._fullest.get(id), message)

    def _compact(self, messages: dict[str, Json]) -> None:
        """The model read a summary from here on; people read on."""
        given = [each for each in messages.values() if not is_context(each)]
        new = [each for each in given if each["id"] not in self._messages]
        summary, *rest = new
        self._messages[summary["id"]] = {**summary, "type": SUMMARY}
        # The model's thanks for the summary are nobody's words.
        self._messages |= {each["id"]: each for each in rest[1:]}

    def _rewind(self, id: str) -> None:
        ids = list(self._messages)
        at = ids.index(id) if id in self._messages else 0
        self.abandoned.append(self.current())
        for each in ids[at:]:
            del self._messages[each]


class _MessageCache:
    """Messages made once, however many branches share them."""

    def __init__(self, session_id: str, otherwise: datetime) -> None:
        self._session_id = session_id
        self._at = otherwise
        self._known: dict[int, Sequence[Item]] = {}

    def items(self, messages: list[Json]) -> list[Item]:
        """What the messages say, each tool's answer once: newer releases also write it as a message."""
        found: list[Item] = []
        answered: set[str] = set()
        for message in messages:
            given = answers_in(message)
            # An answer that names no call may be any call's: it is never taken for a copy.
            if given and "" not in given and given <= answered:
                continue
            answered |= given | answered_calls(message)
            found += self._items(message)
        return found

    def _items(self, message: Json) -> Sequence[Item]:
        found = self._known.get(id(message))
        if found is None:
            self._at = parse_time(message.get("timestamp")) or self._at
            if message.get("type") == SUMMARY:
                found = (Compacted(summary=text_of(message), at=self._at),)
            else:
                found = tuple(to_messages(message, self._at, session_id=self._session_id))
            self._known[id(message)] = found
        return found


def _fuller(known: Json | None, given: Json) -> Json:
    """Return the more complete of two forms of a message.

    A resumed session lists its messages again as the model reads them: without tokens, model and
    results of tools, and with a new time.
    """
    if known is None:
        return given
    if any(name in known and name not in given for name in ("tokens", "model", "toolCalls")):
        return known
    if "timestamp" in known:
        return given | {"timestamp": known["timestamp"]}
    return given


def _found(place: Path) -> Iterator[Path]:
    for path in files.walk(place, suffixes=(".json", ".jsonl"), depth=4):
        if "chats" in path.parts[len(place.parts) - 1 :] and _is_session(path):
            yield path


def _is_session(path: Path) -> bool:
    """Whether a file begins with a session's header; other tools have theirs further in."""
    if path.suffix == ".jsonl":
        first = next(files.first_objects(path), {})
        return "sessionId" in first and ("projectHash" in first or "startTime" in first)
    head = files.head(path, 2048)
    return b'"sessionId"' in head and (b'"projectHash"' in head or b'"startTime"' in head)


def _parent_of(path: Path) -> str | None:
    """Return the session in whose directory a subagent's file is."""
    folder = path.parent
    return folder.name if folder.parent.name == "chats" else None


def _project_root(path: Path) -> Path:
    """Return the file in which the tool writes where a project is."""
    chats = next((each for each in path.parents if each.name == "chats"), path.parent)
    return chats.parent / ".project_root"


IMPORTER = GeminiCli()
