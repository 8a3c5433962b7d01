"""Gemini CLI: a file of JSON lines a session, or, in older releases, one JSON document.

The lines are a log of changes: a message that comes again replaces the first, `$set` changes what is
known of the session or its list of messages, `$rewindTo` takes back a message and all after it.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from sessionary.errors import BadInput
from sessionary.formats import coerce, parts
from sessionary.formats.coerce import Json
from sessionary.importers.base import events, files
from sessionary.importers.base.content import MessageContent, call_usage, parse_time

SUMMARY = "<state_snapshot>"
Item = events.MessageEvent | events.Compacted
_ROLES = {"user": "user", "gemini": "assistant", "model": "assistant"}
# How the program begins what it tells the model of its surroundings, in the person's name.
CONTEXT = (
    "<session_context>",
    "This is the Gemini CLI. We are setting up the context for our chat.",
)


class GeminiCli(events.Importer):
    """Reads the sessions of Gemini CLI."""

    name = "gemini-cli"
    title = "Gemini CLI"

    def places(self, user: events.UserEnvironment) -> list[Path]:
        """Return its directory of projects, and that of its fork Qwen Code."""
        home = user.path("GEMINI_CLI_HOME", ".")
        return [home / ".gemini" / "tmp", user.home / ".qwen" / "tmp"]

    def recognises(self, path: Path) -> bool:
        is_named_so = path.suffix in (".json", ".jsonl")
        return is_named_so and files.is_file(path) and _is_session(path)

    def find(self, place: Path) -> Iterator[events.Unit]:
        """Yield the files of subagents after those of their sessions."""
        found = [place] if files.is_file(place) else _found(place)
        for path in sorted(found, key=lambda each: (len(each.parts), each)):
            # The file in which the tool writes where a project is.
            chats = next((each for each in path.parents if each.name == "chats"), path.parent)
            root = chats.parent / ".project_root"
            stamp = files.stamp_of(path)
            yield events.Unit(str(path), path, stamp, files.size_of(path), (root,), hint=root)

    def read(self, unit: events.Unit, resume: events.Resume | None) -> Iterator[events.Event]:
        session = _GeminiSession(unit.path)
        yield from session.fill()
        id = coerce.name(session.facts.get("sessionId"))
        if id is None:
            raise BadInput(f"{unit.path} names no session; it was left alone.")
        # A subagent's file is in the directory of its session.
        folder = unit.path.parent
        parent = folder.name if folder.parent.name == "chats" else None
        yield events.begin_session(id, parse_time(session.facts.get("startTime")), parent=parent)
        folders = coerce.items(session.facts.get("directories"))
        noted = files.head(unit.hint).decode("utf-8", "replace").strip()
        yield events.facts(
            title=coerce.name(session.facts.get("summary")),
            workspace=events.workspace(folders[0] if folders else noted),
        )
        cache = _MessageCache(id, files.changed_at(unit.path))
        for branch in session.abandoned:
            yield events.Branch(items=cache.items(branch), is_current=False)
        yield events.Branch(items=cache.items(session.current()), is_current=True)


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

    def fill(self) -> Iterator[events.Skipped]:
        """Read the file; yield what cannot be read."""
        if self._path.suffix == ".json":
            self._change(coerce.record(files.read_json(self._path)))
            return
        for line in files.read_json_lines(self._path):
            record = line.data
            if record is None:
                yield line.skipped
            elif isinstance(record.get("$rewindTo"), str):
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
        """Take a new list of messages: one taken back to, one shortened for the model, or one that grew."""
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
        own = [each for each in messages.values() if not is_context(each)]
        if known and own and own[0]["id"] not in self._messages and SUMMARY in text_of(own[0]):
            # The model reads a summary from here on; people read on.
            summary, *rest = (each for each in own if each["id"] not in self._messages)
            self._messages[summary["id"]] = {**summary, "type": SUMMARY}
            # The model's thanks for the summary are nobody's words.
            self._messages |= {each["id"]: each for each in rest[1:]}
            return
        for id, message in messages.items():
            self._messages[id] = self._fullest[id] = _fuller(self._fullest.get(id), message)

    def _rewind(self, id: str) -> None:
        ids = list(self._messages)
        at = ids.index(id) if id in self._messages else 0
        self.abandoned.append(self.current())
        for each in ids[at:]:
            del self._messages[each]


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


class _MessageCache:
    """Messages made once, however many branches share them."""

    def __init__(self, session_id: str, otherwise: datetime) -> None:
        self._session_id = session_id
        self._at = otherwise
        self._known: dict[int, Sequence[Item]] = {}

    def items(self, messages: list[Json]) -> list[Item]:
        """Return the messages, each tool's answer once: newer releases also write it as a message."""
        found: list[Item] = []
        answered: set[str] = set()
        for message in messages:
            given = _answers_in(message)
            # An answer that names no call may be any call's: it is never taken for a copy.
            if given and "" not in given and given <= answered:
                continue
            calls = coerce.records(message.get("toolCalls"))
            answered |= given | {
                coerce.text(each.get("id")) for each in calls if _is_answered(each)
            }
            made = self._known.get(id(message))
            if made is None:
                self._at = parse_time(message.get("timestamp")) or self._at
                if message.get("type") == SUMMARY:
                    made = (events.Compacted(summary=text_of(message), at=self._at),)
                else:
                    made = tuple(to_messages(message, self._at, session_id=self._session_id))
                self._known[id(message)] = made
            found += made
        return found


# Messages in the form of Google's API, which Qwen Code writes, too


def to_messages(message: Json, at: datetime, *, session_id: str) -> Iterator[events.MessageEvent]:
    """Yield a message, and then what its tools answered."""
    id = coerce.text(message.get("id"))
    kind = message.get("type")
    context, words = split_context(message.get("content")) if kind == "user" else ([], None)
    if context:
        surroundings = content_of(context)
        yield surroundings.to_message("system", at, id=f"{id}:context" if words else id)
        if not words:
            return
        message = {**message, "content": words}
    content = MessageContent()
    for thought in coerce.records(message.get("thoughts")):
        texts = (coerce.text(thought.get("subject")), coerce.text(thought.get("description")))
        content.add_reasoning("\n".join(filter(None, texts)))
    calls = coerce.records(message.get("toolCalls"))
    called = {coerce.text(call.get("id")) for call in calls}
    for part in _parts(message.get("content")):
        call = coerce.record(part).get("functionCall")
        if call is None or coerce.text(coerce.record(call).get("id")) not in called:
            _add_part(content, part)
    results = MessageContent()
    for call in calls:
        _add_call(content, results, call)
    role = _ROLES.get(kind, "system") if isinstance(kind, str) else "system"
    if _answers_in(message):
        role = "tool"
    # What the person saw of a message, where it was something else.
    shown = message.get("displayContent")
    is_same = shown is None or shown == message.get("content")
    extra = {"level": kind} if role == "system" else None if is_same else {"shown": shown}
    tokens = coerce.record(message.get("tokens"))
    model = coerce.name(message.get("model"))
    # Cached tokens are a part of the input here, and thoughts are not part of the output.
    cached, thoughts = coerce.count(tokens.get("cached")), coerce.count(tokens.get("thoughts"))
    sent = coerce.count(tokens.get("input")) + coerce.count(tokens.get("tool"))
    used = call_usage(
        "gemini-cli",
        f"{session_id}:{id}",
        model=model,
        at=at,
        input=max(0, sent - cached),
        cache_read=cached,
        output=coerce.count(tokens.get("output")) + thoughts,
        reasoning=thoughts,
    )
    yield content.to_message(role, at, id=id, model=model, extra=extra, usage=used)
    if results:
        yield results.to_message("tool", at, id=f"{id}:results")


def content_of(given: object) -> MessageContent:
    """Return the content of a text, a part, or a list of them."""
    content = MessageContent()
    for part in _parts(given):
        _add_part(content, part)
    return content


def text_of(message: Json) -> str:
    """Return the text of a message."""
    return content_of(message.get("content")).text


def is_context(message: Json) -> bool:
    """Whether the program alone wrote a message, in the person's name."""
    context, words = split_context(message.get("content"))
    return bool(context) and not words


def split_context(given: object) -> tuple[list[Any], list[Any]]:
    """Return what the program wrote in the person's name, and what the person wrote."""
    context: list[Any] = []
    words: list[Any] = []
    for part in _parts(given):
        text = part if isinstance(part, str) else coerce.record(part).get("text")
        is_context = isinstance(text, str) and text.lstrip().startswith(CONTEXT)
        (context if is_context else words).append(part)
    return context, words


def _answers_in(message: Json) -> set[str]:
    """Return the calls that a message answers, if it says nothing else."""
    given = _parts(message.get("content"))
    found = [coerce.record(coerce.record(part).get("functionResponse")) for part in given]
    return {coerce.text(each.get("id")) for each in found} if all(found) else set()


def _parts(given: object) -> list[Any]:
    return given if isinstance(given, list) else [given]


def _add_part(content: MessageContent, part: object) -> None:
    match part:
        case None:
            return
        case str():
            content.add_text(part)
        case {"text": str(words), "thought": True}:
            content.add_reasoning(words)
        case {"text": str(words)}:
            content.add_text(words)
        case {"inlineData": {"data": str(data), **rest}} if content.attach_base64(
            data, rest.get("mimeType"), rest.get("displayName")
        ):
            return
        case {"functionCall": {"name": str(name), **rest}}:
            content.add_call(rest.get("id"), name, rest.get("args"))
        case {"functionResponse": {**response}}:
            given = response.get("response")
            texts = (coerce.record(given).get(name) for name in ("output", "error"))
            answer = next((each for each in texts if isinstance(each, str)), given)
            content.add_result(response.get("id"), answer, name=response.get("name"))
        case _:
            content.add_unknown({"type": "gemini", "native": part})


def _is_answered(call: Json) -> bool:
    is_over = call.get("status") in ("success", "error", "cancelled")
    return is_over or call.get("result") is not None


def _add_call(content: MessageContent, results: MessageContent, call: Json) -> None:
    id, name = coerce.text(call.get("id")), coerce.text(call.get("name"))
    content.add_call(id, name, call.get("args"))
    if not _is_answered(call):
        return
    answer = content_of(call.get("result"))
    files = [part for part in answer.parts if part["type"] == "attachment"]
    others = [part for part in answer.parts if part["type"] != "attachment"]
    # One text if all parts are texts; otherwise the parts.
    texts: list[Any] = [each.get("content", each.get("text", "")) for each in others]
    result: Any = others
    if len(texts) == 1:
        result = texts[0]
    elif all(isinstance(each, str) for each in texts):
        result = "\n".join(texts)
    is_error = call.get("status") in ("error", "cancelled")
    results.add(parts.tool_result(id, result, name=name or None, is_error=is_error), *files)
    results.blobs.extend(answer.blobs)


IMPORTER = GeminiCli()
