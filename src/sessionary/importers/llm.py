"""The log that Simon Willison's `llm` keeps: prompts and responses, or, in newer releases, chains."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from sessionary.errors import BadInput
from sessionary.formats import coerce, openai_items, parts
from sessionary.importers.base import databases, files
from sessionary.importers.base.content import MessageContent, call_usage, parse_time, tree_branches
from sessionary.importers.base.databases import DatabaseSession
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
from sessionary.model.usage import Usage
from sessionary.store.sqlite.external_file import ExternalDatabase, is_sqlite

DATABASE = "logs.db"
_RESPONSE = (
    *("id", "model", "resolved_model", "prompt", "system", "response", "datetime_utc"),
    *("input_tokens", "output_tokens", "token_details"),
)


_TURN = (
    *("id", "model", "resolved_model", "output_node_id", "input_node_id", "datetime_utc"),
    *("input_tokens", "output_tokens", "token_details", "tip_message_hash", "parent_message_hash"),
)
_PART = ("id", "type", "text", "payload")


def read(database: ExternalDatabase, hint: Json, at: datetime) -> Iterator[Event]:
    """A conversation as the tree of its turns; the newest turn is the current one."""
    parents: dict[str, str | None] = {}
    said: dict[str, list[MessageEvent]] = {}
    last: str | None = None
    where, order = (hint["by"], hint["id"]), ("datetime_utc", "id")
    for row in database.rows("turns", _TURN, where=where, order=order):
        turn = dict(zip(_TURN, row, strict=True))
        at = parse_time(turn["datetime_utc"]) or at
        ends = ("tip_message_hash", "output_node_id", "parent_message_hash", "input_node_id")
        end = next((turn[name] for name in ends if coerce.name(turn[name])), None)
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
    yield from tree_branches(parents, said, current=last)


def _sign(message: MessageEvent, id: str, turn: Json, at: datetime) -> None:
    """Say which model ended a turn, and what it used."""
    message.usage = (*message.usage, *usage_of(id, turn, at))
    if message.role == "assistant":
        message.model = coerce.name(turn["resolved_model"]) or coerce.name(turn["model"])


def _chain(
    database: ExternalDatabase, end: str | None, known: dict[str, str | None]
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
        found[end] = (end, coerce.name(row[0]), row[1])
        end = coerce.name(row[0])
    return list(reversed(found.values()))


def _message(
    database: ExternalDatabase, node: str, message: Any, at: datetime
) -> MessageEvent | None:
    content = MessageContent()
    if database.has("messages", "hash"):
        rows = database.rows("messages", ("role",), where=("hash", message))
        (role,) = next(rows, (None,))
        if role is None:
            return None
        given: Any = _parts(database, message)
    else:
        rows = database.rows("messages", ("role", "parts"), where=("id", message))
        role, text = next(rows, (None, None))
        given = coerce.parse_json(text)
        if not isinstance(given, list):
            return None
    for part in given:
        _add(content, database, part)
    return content.said(openai_items.role_of(role), at, id=node)


def _parts(database: ExternalDatabase, message: Any) -> Iterator[Json]:
    """The parts of a message, in the form in which earlier releases kept them in one list."""
    where, order = ("message_hash", message), ("position", "id")
    for _, kind, text, payload in database.rows("parts", _PART, where=where, order=order):
        part = {**coerce.record(coerce.parse_json(payload)), "type": kind}
        if "text_ref" in part:
            part["text"] = _resolved(database, part.pop("text_ref"))
        elif isinstance(text, str):
            part["text"] = text
        attachment = coerce.record(part.get("attachment"))
        if "id" in attachment:
            part["attachment_id"] = attachment["id"]
        part["attachment_ids"] = [
            each["id"] for each in coerce.records(part.pop("attachments", None)) if "id" in each
        ]
        yield part


def _resolved(database: ExternalDatabase, pieces: object) -> str:
    """A text that is put together from fragments and what stands between them."""
    told = []
    for piece in coerce.records(pieces):
        if "fragment" in piece:
            rows = database.rows("fragments", ("content",), where=("id", piece["fragment"]))
            told += [coerce.text(row[0]) for row in rows]
        else:
            told.append(coerce.text(piece.get("literal")))
    return "".join(told)


def _add(content: MessageContent, database: ExternalDatabase, part: object) -> None:
    match part:
        case {"type": "reasoning", "text": str(words), **rest}:
            content.think(words, rest.get("provider_metadata"))
        case {"type": "tool_call", "name": str(name), **rest}:
            id = coerce.text(rest.get("tool_call_id"))
            content.add(parts.tool_call(id, name, rest.get("arguments")))
        case {"type": "tool_result", **rest}:
            id, tool = coerce.text(rest.get("tool_call_id")), coerce.name(rest.get("name"))
            told, is_error = coerce.text(rest.get("output")), bool(rest.get("exception"))
            content.add(parts.tool_result(id, told, name=tool, is_error=is_error))
            for attachment in coerce.items(rest.get("attachment_ids")):
                attach(content, database, attachment)
        case {"type": "attachment", "attachment_id": attachment}:
            attach(content, database, attachment)
        case _:
            openai_items.add(content, [part])


def attach(content: MessageContent, database: ExternalDatabase, id: Any) -> None:
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
    details = coerce.record(coerce.parse_json(row["token_details"]))
    read = coerce.record(details.get("prompt_tokens_details")).get("cached_tokens")
    cached = coerce.count(read or details.get("cache_read_input_tokens"))
    sent = coerce.count(row["input_tokens"])
    thought = coerce.record(details.get("completion_tokens_details")).get("reasoning_tokens")
    return call_usage(
        "llm",
        id,
        model=coerce.name(row["resolved_model"]) or coerce.name(row["model"]),
        at=at,
        input=sent - cached if sent >= cached else sent,
        output=row["output_tokens"],
        cache_read=cached,
        reasoning=thought,
    )


class Llm:
    """Reads the log of `llm`."""

    name = "llm"
    title = "llm"

    def places(self, where: Where) -> list[Path]:
        """Its directory on each system."""
        folder = "io.datasette.llm"
        roots = ("Library/Application Support", "AppData/Roaming", "AppData/Local")
        first = where.path("LLM_USER_PATH", f".config/{folder}")
        return [first, *(where.home / root / folder for root in roots)]

    def recognises(self, path: Path) -> bool:
        """Whether it is such a log, or a directory with one."""
        found = path if files.is_file(path) else path / DATABASE
        return is_sqlite(found) and any(
            databases.has(found, table, "model") and databases.has(found, group, "id", "name")
            for table, group in (("responses", "conversations"), ("turns", "threads"))
        )

    def find(self, place: Path) -> Iterator[Unit]:
        """One unit a conversation."""
        path = place if files.is_file(place) else place / DATABASE
        if is_sqlite(path):
            yield from databases.units(path, _conversations)

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        """One conversation."""
        del resume
        with databases.opened(unit) as database:
            hint = unit.hint
            began = parse_time(hint["began"])
            yield SessionBegin(native_id=hint["id"], began_at=began)
            yield Facts(fields={"title": hint["name"]})
            at = began or files.changed_at(unit.path)
            if hint["table"] == "turns":
                yield from read(database, hint, at)
            else:
                yield from _responses(database, hint, at)


def _conversations(database: ExternalDatabase) -> Iterator[DatabaseSession]:
    """Those of both forms; a response that belongs to none is one by itself."""
    seen: set[str] = set()
    for table, by, group in (
        ("turns", _first(database, "turns", "thread_id", "conversation_id"), "threads"),
        ("responses", "conversation_id", "conversations"),
    ):
        names: dict[Any, Any] = dict(database.rows(group, ("id", "name")))
        names |= dict(database.rows("conversations", ("id", "name")))
        told = databases.marks(database, table, by, "id", "datetime_utc")
        began = _beginnings(database, table, by)
        for id, stamp in told.items():
            if isinstance(id, str) and id not in seen:
                seen.add(id)
                hint = {
                    "id": id,
                    "name": names.get(id),
                    "began": began.get(id),
                    "table": table,
                    "by": by,
                }
                yield DatabaseSession(id, (*stamp, names.get(id)), hint)
        rows = database.rows(table, ("id", "datetime_utc"), where=(by, None))
        for id, at in rows if database.has(table, by) else ():
            if isinstance(id, str):
                hint = {"id": id, "name": None, "began": at, "table": table, "by": "id"}
                yield DatabaseSession(id, (at,), hint)


def _first(database: ExternalDatabase, table: str, *names: str) -> str:
    return next((name for name in names if database.has(table, name)), names[0])


def _beginnings(database: ExternalDatabase, table: str, by: str) -> dict[Any, Any]:
    if not database.has(table, by):
        return {}
    rows = database.rows(table, (by, "datetime_utc"), order=("datetime_utc",))
    found: dict[Any, Any] = {}
    for id, at in rows:
        found.setdefault(id, at)
    return found


def _responses(database: ExternalDatabase, hint: Json, at: datetime) -> Iterator[Event]:
    system = None
    where, order = (hint["by"], hint["id"]), ("datetime_utc", "id")
    for row in database.rows("responses", _RESPONSE, where=where, order=order):
        response = dict(zip(_RESPONSE, row, strict=True))
        id = response["id"]
        if not isinstance(id, str):
            raise BadInput(f"Conversation {hint['id']} has a response without a name.")
        at = parse_time(response["datetime_utc"]) or at
        told = _joined(database, "system_fragments", id, response["system"])
        if told and told != system:
            system = told
            yield _words(told).said("system", at, id=f"{id}:system")
        yield from _asked(database, id, response, at)
        yield _answered(database, id, response, at)


def _asked(database: ExternalDatabase, id: str, response: Json, at: datetime) -> Iterator[Event]:
    results = MessageContent()
    columns = ("name", "output", "tool_call_id", "exception")
    for name, output, call, error in database.rows(
        "tool_results", columns, where=("response_id", id), order=("id",)
    ):
        made = parts.tool_result(
            coerce.text(call), coerce.text(output), name=coerce.name(name), is_error=bool(error)
        )
        results.add(made)
    if results:
        yield results.said("tool", at, id=f"{id}:results")
    prompt = _words(_joined(database, "prompt_fragments", id, response["prompt"]))
    names, by = ("attachment_id",), ("response_id", id)
    for (attachment,) in database.rows("prompt_attachments", names, where=by, order=("order",)):
        attach(prompt, database, attachment)
    if prompt:
        yield prompt.said("user", at, id=f"{id}:prompt")


def _answered(database: ExternalDatabase, id: str, response: Json, at: datetime) -> Event:
    content = _words(coerce.text(response["response"]))
    columns = ("id", "name", "arguments", "tool_call_id")
    rows = database.rows("tool_calls", columns, where=("response_id", id), order=("id",))
    for _, name, arguments, call in rows:
        given = coerce.parse_json_or_keep(arguments)
        content.add(parts.tool_call(coerce.text(call), coerce.text(name), given))
    model = coerce.name(response["resolved_model"]) or coerce.name(response["model"])
    return content.said("assistant", at, id=id, model=model, usage=usage_of(id, response, at))


def _words(text: str) -> MessageContent:
    content = MessageContent()
    content.say(text)
    return content


def _joined(database: ExternalDatabase, table: str, id: str, text: object) -> str:
    """A text with the fragments that were put before it."""
    rows = database.rows(table, ("fragment_id",), where=("response_id", id), order=("order",))
    told = []
    for (fragment,) in rows:
        found = database.rows("fragments", ("content",), where=("id", fragment))
        told += [coerce.text(row[0]) for row in found]
    return "\n".join(filter(None, [*told, coerce.text(text)]))


IMPORTER = Llm()
