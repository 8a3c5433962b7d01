"""LibreChat: a conversation as it exports it, its messages in a list or as a tree."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from sessionary.errors import BadInput
from sessionary.formats import coerce, openai_items, parts
from sessionary.importers.base import files
from sessionary.importers.base.content import (
    MAX_TREE_MESSAGES,
    MessageContent,
    ModelTurn,
    parse_time,
    tree_branches,
)
from sessionary.importers.base.events import (
    Event,
    Facts,
    Json,
    MessageEvent,
    Resume,
    SessionBegin,
    Skipped,
    Unit,
    Where,
)

_HEAD = 64 * 1024
_SIGNS = (re.compile(rb'"conversationId"\s*:'), re.compile(rb'"messages(?:Tree)?"\s*:\s*\['))
_THINKING = ":::thinking\n"


class LibreChat:
    """Reads the exports of LibreChat."""

    name = "librechat"
    title = "LibreChat"

    def places(self, where: Where) -> list[Path]:
        """Its conversations are in a server's database: there is no place of a person's own."""
        del where
        return []

    def recognises(self, path: Path) -> bool:
        """Whether it is such an export, or a directory with some."""
        return any(True for _ in _found(path))

    def find(self, place: Path) -> Iterator[Unit]:
        """One unit a file."""
        for path in [place] if files.is_file(place) else _found(place):
            yield Unit(str(path), path, files.stamp_of(path), files.size_of(path))

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        """The conversation of a file."""
        del resume
        talk = coerce.record(files.read_json(unit.path))
        id = coerce.name(talk.get("conversationId"))
        if id is None:
            raise BadInput(f"{unit.path} names no conversation.")
        given = talk.get("messagesTree") or talk.get("messages")
        flat = _flat(given)
        at = parse_time(talk.get("exportAt")) or files.changed_at(unit.path)
        found = [parse_time(message.get("createdAt")) for message in flat]
        began = min(filter(None, found), default=at)
        yield SessionBegin(native_id=id, began_at=began)
        yield Facts(fields=_fields(talk))
        yield from _messages(flat, began)


def _found(place: Path) -> Iterator[Path]:
    named = [place] if files.is_file(place) else files.walk(place, suffixes=(".json",), depth=1)
    for path in named:
        first = files.head(path, _HEAD) if path.suffix == ".json" else b""
        if all(each.search(first) for each in _SIGNS) and b'"mapping"' not in first:
            yield path


def _fields(talk: Json) -> Json:
    options = coerce.record(talk.get("options"))
    tags = coerce.items(talk.get("tags") or options.get("tags"))
    return {
        "title": talk.get("title"),
        "labels": [tag for tag in tags if coerce.name(tag)],
        "model": coerce.name(options.get("model")),
        "extra": {"librechat": {"endpoint": talk.get("endpoint") or options.get("endpoint")}},
    }


def _flat(given: object) -> list[Json]:
    """The messages of a list or of a tree, parents before their children, in order of time."""
    waiting = coerce.records(given)[::-1]
    found: list[Json] = []
    while waiting and len(found) < MAX_TREE_MESSAGES:
        message = waiting.pop()
        found.append(message)
        waiting.extend(coerce.records(message.get("children"))[::-1])
    return sorted(found, key=lambda each: coerce.text(each.get("createdAt")))


def _messages(flat: list[Json], at: datetime) -> Iterator[Event]:
    parents: dict[str, str | None] = {}
    said: dict[str, list[MessageEvent]] = {}
    for number, message in enumerate(flat):
        id = coerce.name(message.get("messageId"))
        if id is None:
            yield Skipped(where=f"message {number + 1}", why="it has no name")
            continue
        at = parse_time(message.get("createdAt")) or at
        parents.setdefault(id, coerce.name(message.get("parentMessageId")))
        said.setdefault(id, list(_said(message, id, at)))
    yield from tree_branches(parents, said)


def _said(message: Json, id: str, at: datetime) -> Iterator[MessageEvent]:
    is_person = message.get("isCreatedByUser") is True
    turn = ModelTurn()
    for part in coerce.items(message.get("content")):
        _add(turn, part)
    words = coerce.text(message.get("text"))
    if not message.get("content"):
        _add_words(turn.words, words)
    for file in coerce.records(message.get("files")):
        turn.words.keep({"type": "librechat_file", "native": file})
    extra = {name: message[name] for name in ("error", "unfinished") if message.get(name)}
    if message.get("feedback"):
        extra["feedback"] = message["feedback"]
    yield from turn.said(
        "user" if is_person else "assistant",
        at,
        id=id,
        model=None if is_person else coerce.name(message.get("model")),
        token_count=coerce.count(message.get("tokenCount")) or None,
        extra=extra or None,
    )


def _add_words(content: MessageContent, words: str) -> None:
    """A text, the thoughts before it apart."""
    if words.startswith(_THINKING):
        thought, _, words = words.removeprefix(_THINKING).partition("\n:::")
        content.think(thought)
        words = words.lstrip("\n")
    content.say(words)


def _add(turn: ModelTurn, part: object) -> None:
    match part:
        case {"type": "think", "think": str(words)}:
            turn.words.think(words)
        case {"type": "text", "text": {"value": str(words)}}:
            turn.words.say(words)
        case {"type": "error", "error": str(words)}:
            turn.words.say(words)
        case {"type": "tool_call", "tool_call": {**call}}:
            _add_call(turn, coerce.record(call))
        case _:
            openai_items.add(turn.words, [part])


def _add_call(turn: ModelTurn, call: Json) -> None:
    content, results = turn.tools
    function = coerce.record(call.get("function"))
    id = coerce.text(call.get("id"))
    name = coerce.name(call.get("name")) or coerce.name(function.get("name")) or "tool"
    given = call.get("args", function.get("arguments"))
    content.add(parts.tool_call(id, name, coerce.parse_json_or_keep(given)))
    told = call.get("output", function.get("output"))
    if told is not None:
        results.add(parts.tool_result(id, told, name=name))


IMPORTER = LibreChat()
