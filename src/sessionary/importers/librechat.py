"""LibreChat: a conversation as it exports it, its messages in a list or as a tree."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from sessionary.errors import BadInput
from sessionary.formats import coerce, openai_items
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
    Importer,
    Json,
    MessageEvent,
    Resume,
    Skipped,
    Unit,
    UserEnvironment,
    begin_session,
    facts,
)

_HEAD = 64 * 1024
_MARKERS = (re.compile(rb'"conversationId"\s*:'), re.compile(rb'"messages(?:Tree)?"\s*:\s*\['))
_THINKING = ":::thinking\n"


class LibreChat(Importer):
    """Reads the exports of LibreChat."""

    name = "librechat"
    title = "LibreChat"

    def places(self, user: UserEnvironment) -> list[Path]:
        """Return none: its conversations are in a server's database."""
        return []

    def recognises(self, path: Path) -> bool:
        return any(True for _ in _found(path))

    def find(self, place: Path) -> Iterator[Unit]:
        for path in [place] if files.is_file(place) else _found(place):
            yield files.unit(path)

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        conversation = coerce.record(files.read_json(unit.path))
        id = coerce.name(conversation.get("conversationId"))
        if id is None:
            raise BadInput(f"{unit.path} names no conversation.")
        flat = _flat(conversation.get("messagesTree") or conversation.get("messages"))
        at = parse_time(conversation.get("exportAt")) or files.changed_at(unit.path)
        found = [parse_time(message.get("createdAt")) for message in flat]
        began = min(filter(None, found), default=at)
        yield begin_session(id, began)
        options = coerce.record(conversation.get("options"))
        tags = coerce.items(conversation.get("tags") or options.get("tags"))
        endpoint = conversation.get("endpoint") or options.get("endpoint")
        yield facts(
            title=conversation.get("title"),
            labels=[tag for tag in tags if coerce.name(tag)],
            model=coerce.name(options.get("model")),
            extra={"librechat": {"endpoint": endpoint}},
        )
        yield from _messages(flat, began)


def _found(place: Path) -> Iterator[Path]:
    for path in files.named_or_below(place, suffixes=(".json",), depth=1):
        first = files.head(path, _HEAD) if path.suffix == ".json" else b""
        if all(each.search(first) for each in _MARKERS) and b'"mapping"' not in first:
            yield path


def _flat(given: object) -> list[Json]:
    """Return the messages of a list or of a tree in order of time, each after its parent."""
    waiting = coerce.records(given)[::-1]
    found: list[Json] = []
    while waiting and len(found) < MAX_TREE_MESSAGES:
        message = waiting.pop()
        found.append(message)
        waiting.extend(coerce.records(message.get("children"))[::-1])
    return sorted(found, key=lambda each: coerce.text(each.get("createdAt")))


def _messages(flat: list[Json], at: datetime) -> Iterator[Event]:
    parents: dict[str, str | None] = {}
    messages: dict[str, list[MessageEvent]] = {}
    for number, message in enumerate(flat):
        id = coerce.name(message.get("messageId"))
        if id is None:
            yield Skipped(where=f"message {number + 1}", why="it has no name")
            continue
        at = parse_time(message.get("createdAt")) or at
        parents.setdefault(id, coerce.name(message.get("parentMessageId")))
        messages.setdefault(id, list(_to_messages(message, id, at)))
    yield from tree_branches(parents, messages)


def _to_messages(message: Json, id: str, at: datetime) -> Iterator[MessageEvent]:
    is_person = message.get("isCreatedByUser") is True
    turn = ModelTurn()
    for part in coerce.items(message.get("content")):
        _add(turn, part)
    if not message.get("content"):
        _add_text(turn.words, coerce.text(message.get("text")))
    for file in coerce.records(message.get("files")):
        turn.words.add_unknown({"type": "librechat_file", "native": file})
    names = ("error", "unfinished", "feedback")
    extra = {name: message[name] for name in names if message.get(name)}
    yield from turn.to_messages(
        "user" if is_person else "assistant",
        at,
        id=id,
        model=None if is_person else coerce.name(message.get("model")),
        token_count=coerce.count(message.get("tokenCount")) or None,
        extra=extra or None,
    )


def _add_text(content: MessageContent, words: str) -> None:
    """Add the reasoning at the beginning of a text, and the text itself."""
    if words.startswith(_THINKING):
        thought, _, words = words.removeprefix(_THINKING).partition("\n:::")
        content.add_reasoning(thought)
        words = words.lstrip("\n")
    content.add_text(words)


def _add(turn: ModelTurn, part: object) -> None:
    match part:
        case {"type": "think", "think": str(words)}:
            turn.words.add_reasoning(words)
        case {"type": "text", "text": {"value": str(words)}}:
            turn.words.add_text(words)
        case {"type": "error", "error": str(words)}:
            turn.words.add_text(words)
        case {"type": "tool_call", "tool_call": {**call}}:
            _add_call(turn, coerce.record(call))
        case _:
            openai_items.add(turn.words, [part])


def _add_call(turn: ModelTurn, call: Json) -> None:
    content, results = turn.tools
    function = coerce.record(call.get("function"))
    id, name = call.get("id"), coerce.first_name(call.get("name"), function.get("name"), "tool")
    given = call.get("args", function.get("arguments"))
    content.add_call(id, str(name), coerce.parse_json_or_keep(given))
    output = call.get("output", function.get("output"))
    if output is not None:
        results.add_result(id, output, name=name)


IMPORTER = LibreChat()
