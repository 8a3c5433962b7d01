"""The log that Simon Willison's `llm` keeps: prompts and responses, or, in newer releases, chains."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from sessionary.errors import BadInput
from sessionary.formats import coerce, openai_items
from sessionary.formats.coerce import Json
from sessionary.importers.base import databases, events, files
from sessionary.importers.base.content import (
    MessageContent,
    call_usage,
    parse_time,
    text_content,
    tree_branches,
    uncached_input,
)
from sessionary.importers.base.databases import DatabaseSession
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


def _turns(database: ExternalDatabase, hint: Json, at: datetime) -> Iterator[events.Event]:
    """Yield a conversation as the tree of its turns; the newest turn is current."""
    parents: dict[str, str | None] = {}
    messages: dict[str, list[events.MessageEvent]] = {}
    last: str | None = None
    where, order = (hint["by"], hint["id"]), ("datetime_utc", "id")
    for turn in databases.records(database, "turns", _TURN, where=where, order=order):
        at = parse_time(turn["datetime_utc"]) or at
        ends = ("tip_message_hash", "output_node_id", "parent_message_hash", "input_node_id")
        end = next((turn[name] for name in ends if coerce.name(turn[name])), None)
        if end is None:
            yield events.Skipped(where=f"turn {turn['id']}", why="it names no message")
        for node, parent, message in _chain(database, end, parents):
            parents[node] = parent
            made = _message(database, node, message, at)
            if made is None:
                yield events.Skipped(where=f"message {message}", why="it is not in the database")
            else:
                messages[node] = [made]
        last = end or last
        if end in messages:
            reply = messages[end][0]
            reply.usage = (*reply.usage, *_usage(f"{turn['id']}", turn, at))
            if reply.role == "assistant":
                reply.model = coerce.first_name(turn["resolved_model"], turn["model"])
    yield from tree_branches(parents, messages, current=last)


def _chain(
    database: ExternalDatabase, end: str | None, known: dict[str, str | None]
) -> list[tuple[str, str | None, Any]]:
    """Return the nodes up to an end that are not known yet; a missing one is returned too."""
    found: dict[str, tuple[str, str | None, Any]] = {}
    while end is not None and end not in known and end not in found:
        if database.has("messages", "hash", "parent_hash"):
            rows = database.rows("messages", ("parent_hash", "hash"), where=("hash", end))
        else:
            rows = database.rows("message_nodes", ("parent_id", "message_id"), where=("id", end))
        parent, message = next(rows, (None, end))
        found[end] = (end, coerce.name(parent), message)
        end = coerce.name(parent)
    return list(reversed(found.values()))


def _message(
    database: ExternalDatabase, node: str, message: Any, at: datetime
) -> events.MessageEvent | None:
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
    return content.to_message(openai_items.role_of(role), at, id=node)


def _parts(database: ExternalDatabase, message: Any) -> Iterator[Json]:
    """Yield the parts of a message as earlier releases stored them, in one list."""
    where, order = ("message_hash", message), ("position", "id")
    for _, kind, text, payload in database.rows("parts", _PART, where=where, order=order):
        part = {**coerce.parse_record(payload), "type": kind}
        if "text_ref" in part:
            # The text is put together from fragments and the literals between them.
            part["text"] = "".join(
                _fragment(database, piece["fragment"])
                if "fragment" in piece
                else coerce.text(piece.get("literal"))
                for piece in coerce.records(part.pop("text_ref"))
            )
        elif isinstance(text, str):
            part["text"] = text
        attachment = coerce.record(part.get("attachment"))
        if "id" in attachment:
            part["attachment_id"] = attachment["id"]
        part["attachment_ids"] = [
            each["id"] for each in coerce.records(part.pop("attachments", None)) if "id" in each
        ]
        yield part


def _fragment(database: ExternalDatabase, id: Any) -> str:
    return coerce.text(databases.value(database, "fragments", "content", where=("id", id)))


def _add(content: MessageContent, database: ExternalDatabase, part: object) -> None:
    match part:
        case {"type": "reasoning", "text": str(words), **rest}:
            content.add_reasoning(words, rest.get("provider_metadata"))
        case {"type": "tool_call", "name": str(name), **rest}:
            content.add_call(rest.get("tool_call_id"), name, rest.get("arguments"))
        case {"type": "tool_result", **rest}:
            output, is_error = coerce.text(rest.get("output")), bool(rest.get("exception"))
            call_id, tool = rest.get("tool_call_id"), rest.get("name")
            content.add_result(call_id, output, name=tool, is_error=is_error)
            for attachment in coerce.items(rest.get("attachment_ids")):
                _attach(content, database, attachment)
        case {"type": "attachment", "attachment_id": attachment}:
            _attach(content, database, attachment)
        case _:
            openai_items.add(content, [part])


def _attach(content: MessageContent, database: ExternalDatabase, id: Any) -> None:
    """Add an attachment of the log: its bytes, or a reference to them."""
    rows = database.rows("attachments", ("type", "path", "url", "content"), where=("id", id))
    kind, path, url, data = next(rows, (None, None, None, None))
    if isinstance(data, bytes) and data:
        content.attach(data, kind)
    else:
        named = {"media_type": kind, "path": path, "url": url}
        reference = {name: value for name, value in named.items() if isinstance(value, str)}
        content.add_unknown({"type": "llm_attachment", "native": reference})


def _usage(id: str, row: Json, at: datetime) -> tuple[Usage, ...]:
    details = coerce.parse_record(row["token_details"])
    read = coerce.record(details.get("prompt_tokens_details")).get("cached_tokens")
    cached = read or details.get("cache_read_input_tokens")
    reasoning = coerce.record(details.get("completion_tokens_details")).get("reasoning_tokens")
    return call_usage(
        "llm",
        id,
        model=coerce.first_name(row["resolved_model"], row["model"]),
        at=at,
        input=uncached_input(row["input_tokens"], cached),
        output=row["output_tokens"],
        cache_read=cached,
        reasoning=reasoning,
    )


class Llm(events.Importer):
    """Reads the log of `llm`."""

    name = "llm"
    title = "llm"

    def places(self, user: events.UserEnvironment) -> list[Path]:
        folder = "io.datasette.llm"
        roots = ("Library/Application Support", "AppData/Roaming", "AppData/Local")
        first = user.path("LLM_USER_PATH", f".config/{folder}")
        return [first, *(user.home / root / folder for root in roots)]

    def recognises(self, path: Path) -> bool:
        forms = (("responses", "conversations"), ("turns", "threads"))
        return databases.passes(
            path,
            lambda database: any(
                database.has(table, "model") and database.has(group, "id", "name")
                for table, group in forms
            ),
        )

    def find(self, place: Path) -> Iterator[events.Unit]:
        path = place if files.is_file(place) else place / DATABASE
        if is_sqlite(path):
            yield from databases.units(path, _conversations)

    def read(self, unit: events.Unit, resume: events.Resume | None) -> Iterator[events.Event]:
        with databases.opened(unit) as database:
            hint = unit.hint
            began = parse_time(hint["began"])
            yield events.begin_session(hint["id"], began)
            yield events.facts(title=hint["name"])
            read = _turns if hint["table"] == "turns" else _responses
            yield from read(database, hint, began or files.changed_at(unit.path))


def _conversations(database: ExternalDatabase) -> Iterator[DatabaseSession]:
    """Yield the conversations of both forms; a response without one is a conversation itself."""
    seen: set[str] = set()
    turns_by = "thread_id" if database.has("turns", "thread_id") else "conversation_id"
    for table, by, group in (
        ("turns", turns_by, "threads"),
        ("responses", "conversation_id", "conversations"),
    ):
        if not database.has(table, by):
            continue
        names: dict[Any, Any] = dict(database.rows(group, ("id", "name")))
        names |= dict(database.rows("conversations", ("id", "name")))
        began: dict[Any, Any] = {}
        for id, at in database.rows(table, (by, "datetime_utc"), order=("datetime_utc",)):
            began.setdefault(id, at)
        hint: Json
        for id, stamp in databases.marks(database, table, by, "id", "datetime_utc").items():
            if isinstance(id, str) and id not in seen:
                seen.add(id)
                name = names.get(id)
                hint = {"id": id, "name": name, "began": began.get(id), "table": table, "by": by}
                yield DatabaseSession(id, (*stamp, name), hint)
        for id, at in database.rows(table, ("id", "datetime_utc"), where=(by, None)):
            if isinstance(id, str):
                hint = {"id": id, "name": None, "began": at, "table": table, "by": "id"}
                yield DatabaseSession(id, (at,), hint)


def _responses(database: ExternalDatabase, hint: Json, at: datetime) -> Iterator[events.Event]:
    system = None
    where, order = (hint["by"], hint["id"]), ("datetime_utc", "id")
    for response in databases.records(database, "responses", _RESPONSE, where=where, order=order):
        id = response["id"]
        if not isinstance(id, str):
            raise BadInput(f"Conversation {hint['id']} has a response without a name.")
        at = parse_time(response["datetime_utc"]) or at
        text = _joined(database, "system_fragments", id, response["system"])
        if text and text != system:
            system = text
            yield text_content(text).to_message("system", at, id=f"{id}:system")
        results = MessageContent()
        by: tuple[str, Any] = ("response_id", id)
        columns: tuple[str, ...] = ("name", "output", "tool_call_id", "exception")
        rows = database.rows("tool_results", columns, where=by, order=("id",))
        for name, output, call, error in rows:
            results.add_result(call, coerce.text(output), name=name, is_error=bool(error))
        if results:
            yield results.to_message("tool", at, id=f"{id}:results")
        prompt = text_content(_joined(database, "prompt_fragments", id, response["prompt"]))
        rows = database.rows("prompt_attachments", ("attachment_id",), where=by, order=("order",))
        for (attachment,) in rows:
            _attach(prompt, database, attachment)
        if prompt:
            yield prompt.to_message("user", at, id=f"{id}:prompt")
        reply, columns = text_content(response["response"]), ("name", "arguments", "tool_call_id")
        rows = database.rows("tool_calls", columns, where=by, order=("id",))
        for name, arguments, call in rows:
            reply.add_call(call, coerce.text(name), coerce.parse_json_or_keep(arguments))
        model = coerce.first_name(response["resolved_model"], response["model"])
        used = _usage(id, response, at)
        yield reply.to_message("assistant", at, id=id, model=model, usage=used)


def _joined(database: ExternalDatabase, table: str, id: str, text: object) -> str:
    """Return a text with the fragments that come before it."""
    rows = database.rows(table, ("fragment_id",), where=("response_id", id), order=("order",))
    texts = [_fragment(database, fragment) for (fragment,) in rows]
    return "\n".join(filter(None, [*texts, coerce.text(text)]))


IMPORTER = Llm()
