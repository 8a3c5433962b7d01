"""The chains in which newer releases of `llm` keep messages.

A node is a message behind another node; a turn names the node it was asked at and the node at which
its answer ends. Turns that share a beginning share its nodes. Since 0.36 a message is its own node, named
by a hash of itself and all before it, and its parts are rows of their own.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sessionary.formats import openai_items, parts, shape
from sessionary.importers import calls, times, trees
from sessionary.importers.base import Event, Json, Said, Skipped
from sessionary.importers.content import Content
from sessionary.model.usage import Usage
from sessionary.store.sqlite.foreign import ForeignDatabase

_TURN = (
    *("id", "model", "resolved_model", "output_node_id", "input_node_id", "datetime_utc"),
    *("input_tokens", "output_tokens", "token_details", "tip_message_hash", "parent_message_hash"),
)
_PART = ("id", "type", "text", "payload")


def read(database: ForeignDatabase, hint: Json, at: datetime) -> Iterator[Event]:
    """A conversation as the tree of its turns; the newest turn is the current one."""
    parents: dict[str, str | None] = {}
    said: dict[str, list[Said]] = {}
    last: str | None = None
    where, order = (hint["by"], hint["id"]), ("datetime_utc", "id")
    for row in database.rows("turns", _TURN, where=where, order=order):
        turn = dict(zip(_TURN, row, strict=True))
        at = times.of(turn["datetime_utc"]) or at
        ends = ("tip_message_hash", "output_node_id", "parent_message_hash", "input_node_id")
        end = next((turn[name] for name in ends if shape.name(turn[name])), None)
        if end is None:
            yield Skipped(where=f"turn {turn['id']}", why="it names no message")
        for node, parent, message in _chain(database, end, parents):
            parents[node] = parent
            made = _message(database, node, message, at)
            if made is None:
                yield Skipped(where=f"message {message}", why="it is not in the database")
            else:
                said[node] = [made]
        last = end or last
        if end in said:
            _sign(said[end][0], f"{turn['id']}", turn, at)
    yield from trees.branches(parents, said, current=last)


def _sign(message: Said, id: str, turn: Json, at: datetime) -> None:
    """Say which model ended a turn, and what it used."""
    message.usage = (*message.usage, *usage_of(id, turn, at))
    if message.role == "assistant":
        message.model = shape.name(turn["resolved_model"]) or shape.name(turn["model"])


def _chain(
    database: ForeignDatabase, end: str | None, known: dict[str, str | None]
) -> list[tuple[str, str | None, Any]]:
    """The nodes that lead to an end and are not known yet, the first one first.

    A node that the database lacks is given too: it cannot be read, and is told of.
    """
    found: dict[str, tuple[str, str | None, Any]] = {}
    while end is not None and end not in known and end not in found:
        if database.has("messages", "hash", "parent_hash"):
            rows = database.rows("messages", ("parent_hash", "hash"), where=("hash", end))
        else:
            rows = database.rows("message_nodes", ("parent_id", "message_id"), where=("id", end))
        row = next(rows, None)
        if row is None:
            found[end] = (end, None, end)
            break
        found[end] = (end, shape.name(row[0]), row[1])
        end = shape.name(row[0])
    return list(reversed(found.values()))


def _message(database: ForeignDatabase, node: str, message: Any, at: datetime) -> Said | None:
    content = Content()
    if database.has("messages", "hash"):
        rows = database.rows("messages", ("role",), where=("hash", message))
        (role,) = next(rows, (None,))
        if role is None:
            return None
        given: Any = _parts(database, message)
    else:
        rows = database.rows("messages", ("role", "parts"), where=("id", message))
        role, text = next(rows, (None, None))
        given = shape.parsed(text)
        if not isinstance(given, list):
            return None
    for part in given:
        _add(content, database, part)
    return content.said(openai_items.role_of(role), at, id=node)


def _parts(database: ForeignDatabase, message: Any) -> Iterator[Json]:
    """The parts of a message, in the form in which earlier releases kept them in one list."""
    where, order = ("message_hash", message), ("position", "id")
    for _, kind, text, payload in database.rows("parts", _PART, where=where, order=order):
        part = {**shape.record(shape.parsed(payload)), "type": kind}
        if "text_ref" in part:
            part["text"] = _resolved(database, part.pop("text_ref"))
        elif isinstance(text, str):
            part["text"] = text
        attachment = shape.record(part.get("attachment"))
        if "id" in attachment:
            part["attachment_id"] = attachment["id"]
        part["attachment_ids"] = [
            each["id"] for each in shape.records(part.pop("attachments", None)) if "id" in each
        ]
        yield part


def _resolved(database: ForeignDatabase, pieces: object) -> str:
    """A text that is put together from fragments and what stands between them."""
    told = []
    for piece in shape.records(pieces):
        if "fragment" in piece:
            rows = database.rows("fragments", ("content",), where=("id", piece["fragment"]))
            told += [shape.words(row[0]) for row in rows]
        else:
            told.append(shape.words(piece.get("literal")))
    return "".join(told)


def _add(content: Content, database: ForeignDatabase, part: object) -> None:
    match part:
        case {"type": "reasoning", "text": str(words), **rest}:
            content.think(words, rest.get("provider_metadata"))
        case {"type": "tool_call", "name": str(name), **rest}:
            id = shape.words(rest.get("tool_call_id"))
            content.add(parts.tool_call(id, name, rest.get("arguments")))
        case {"type": "tool_result", **rest}:
            id, tool = shape.words(rest.get("tool_call_id")), shape.name(rest.get("name"))
            told, is_error = shape.words(rest.get("output")), bool(rest.get("exception"))
            content.add(parts.tool_result(id, told, name=tool, is_error=is_error))
            for attachment in shape.items(rest.get("attachment_ids")):
                attach(content, database, attachment)
        case {"type": "attachment", "attachment_id": attachment}:
            attach(content, database, attachment)
        case _:
            openai_items.add(content, [part])


def attach(content: Content, database: ForeignDatabase, id: Any) -> None:
    """Add an attachment of the log: its bytes, or where they were."""
    rows = database.rows("attachments", ("type", "path", "url", "content"), where=("id", id))
    kind, path, url, data = next(rows, (None, None, None, None))
    if isinstance(data, bytes) and data:
        content.attach(data, kind)
    else:
        named = {"media_type": kind, "path": path, "url": url}
        kept = {name: value for name, value in named.items() if isinstance(value, str)}
        content.keep({"type": "llm_attachment", "native": kept})


def usage_of(id: str, row: Json, at: datetime) -> tuple[Usage, ...]:
    """The tokens of a response; cached ones are a part of the input there."""
    details = shape.record(shape.parsed(row["token_details"]))
    read = shape.record(details.get("prompt_tokens_details")).get("cached_tokens")
    cached = shape.count(read or details.get("cache_read_input_tokens"))
    sent = shape.count(row["input_tokens"])
    thought = shape.record(details.get("completion_tokens_details")).get("reasoning_tokens")
    return calls.one(
        "llm",
        id,
        model=shape.name(row["resolved_model"]) or shape.name(row["model"]),
        at=at,
        input=sent - cached if sent >= cached else sent,
        output=row["output_tokens"],
        cache_read=cached,
        reasoning=thought,
    )
