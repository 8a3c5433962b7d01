"""LibreChat: a conversation as it exports it, its messages in a list or as a tree."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from sessionary.errors import BadInput
from sessionary.formats import coerce, openai_items
from sessionary.formats.coerce import Json
from sessionary.importers.base import events, files
from sessionary.importers.base.content import (
    MAX_TREE_MESSAGES,
    ModelTurn,
    parse_time,
    tree_branches,
)

_HEAD = 64 * 1024
_MARKERS = (re.compile(rb'"conversationId"\s*:'), re.compile(rb'"messages(?:Tree)?"\s*:\s*\['))
_THINKING = ":::thinking\n"


class LibreChat(events.Importer):
    """Reads the exports of LibreChat."""

    name = "librechat"
    title = "LibreChat"

    # Its conversations are in a server's database: it has no places on this machine.

    def recognises(self, path: Path) -> bool:
        first = files.head(path, _HEAD) if path.suffix == ".json" else b""
        return all(each.search(first) for each in _MARKERS) and b'"mapping"' not in first

    def find(self, place: Path) -> Iterator[events.Unit]:
        below = filter(self.recognises, files.walk(place, suffixes=(".json",), depth=1))
        yield from map(files.unit, [place] if files.is_file(place) else below)

    def read(self, unit: events.Unit, resume: events.Resume | None) -> Iterator[events.Event]:
        conversation = coerce.record(files.read_json(unit.path))
        id = coerce.name(conversation.get("conversationId"))
        if id is None:
            raise BadInput(f"{unit.path} names no conversation.")
        # The messages of a list or of a tree in order of time, each after its parent.
        given = conversation.get("messagesTree") or conversation.get("messages")
        waiting, flat = coerce.records(given)[::-1], list[Json]()
        while waiting and len(flat) < MAX_TREE_MESSAGES:
            flat.append(waiting.pop())
            waiting.extend(coerce.records(flat[-1].get("children"))[::-1])
        flat.sort(key=lambda each: coerce.text(each.get("createdAt")))
        at = parse_time(conversation.get("exportAt")) or files.changed_at(unit.path)
        found = [parse_time(message.get("createdAt")) for message in flat]
        began = min(filter(None, found), default=at)
        yield events.begin_session(id, began)
        options = coerce.record(conversation.get("options"))
        tags = coerce.items(conversation.get("tags") or options.get("tags"))
        endpoint = conversation.get("endpoint") or options.get("endpoint")
        yield events.facts(
            title=conversation.get("title"),
            labels=[tag for tag in tags if coerce.name(tag)],
            model=coerce.name(options.get("model")),
            extra={"librechat": {"endpoint": endpoint}},
        )
        at = began
        parents: dict[str, str | None] = {}
        messages: dict[str, list[events.MessageEvent]] = {}
        for number, message in enumerate(flat):
            name = coerce.name(message.get("messageId"))
            if name is None:
                yield events.Skipped(where=f"message {number + 1}", why="it has no name")
                continue
            at = parse_time(message.get("createdAt")) or at
            parents.setdefault(name, coerce.name(message.get("parentMessageId")))
            messages.setdefault(name, list(_to_messages(message, name, at)))
        yield from tree_branches(parents, messages)


def _to_messages(message: Json, id: str, at: datetime) -> Iterator[events.MessageEvent]:
    is_person = message.get("isCreatedByUser") is True
    turn = ModelTurn()
    for part in coerce.items(message.get("content")):
        _add(turn, part)
    if not message.get("content"):
        words = coerce.text(message.get("text"))
        if words.startswith(_THINKING):
            thought, _, words = words.removeprefix(_THINKING).partition("\n:::")
            turn.words.add_reasoning(thought)
            words = words.lstrip("\n")
        turn.words.add_text(words)
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


def _add(turn: ModelTurn, part: object) -> None:
    match part:
        case {"type": "think", "think": str(words)}:
            turn.words.add_reasoning(words)
        case {"type": "text", "text": {"value": str(words)}}:
            turn.words.add_text(words)
        case {"type": "error", "error": str(words)}:
            turn.words.add_text(words)
        case {"type": "tool_call", "tool_call": {**call}}:
            content, results = turn.tools
            function = coerce.record(call.get("function"))
            name = coerce.first_name(call.get("name"), function.get("name"), "tool")
            given = call.get("args", function.get("arguments"))
            content.add_call(call.get("id"), str(name), coerce.parse_json_or_keep(given))
            output = call.get("output", function.get("output"))
            if output is not None:
                results.add_result(call.get("id"), output, name=name)
        case _:
            openai_items.add(turn.words, [part])


IMPORTER = LibreChat()
