"""Goose: one database of sessions."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from sessionary.formats import anthropic_blocks, coerce, parts
from sessionary.importers.base import databases, files
from sessionary.importers.base.content import MessageContent, call_usage, parse_time
from sessionary.importers.base.databases import DatabaseSession
from sessionary.importers.base.events import (
    Event,
    Facts,
    Json,
    Resume,
    Skipped,
    Unit,
    UsageEvent,
    Where,
    begin_session,
)
from sessionary.store.sqlite.external_file import ExternalDatabase, is_sqlite

DATABASE = "sessions.db"
_COLUMNS = (
    *("id", "name", "description", "session_type", "working_dir", "created_at", "updated_at"),
    *("provider_name", "model_config_json", "parent_session_id", "accumulated_cost"),
    *("accumulated_input_tokens", "accumulated_output_tokens"),
)
_MESSAGE = ("id", "message_id", "role", "content_json", "metadata_json", "created_timestamp")
_LEDGER = (
    *("id", "model", "provider", "input_tokens", "output_tokens", "cache_read_tokens"),
    *("cache_write_tokens", "cost", "created_at"),
)


class Goose:
    """Reads the sessions of Goose."""

    name = "goose"
    title = "Goose"

    def places(self, where: Where) -> list[Path]:
        """Its directory of sessions on each system."""
        data = where.path("XDG_DATA_HOME", ".local/share")
        windows = where.home / "AppData" / "Roaming" / "Block" / "goose" / "data"
        return [data / "goose" / "sessions", windows / "sessions"]

    def recognises(self, path: Path) -> bool:
        """Whether it is its database, or a directory with it."""
        return _is_ours(path if files.is_file(path) else path / DATABASE)

    def find(self, place: Path) -> Iterator[Unit]:
        """One unit a session."""
        path = place if files.is_file(place) else place / DATABASE
        if is_sqlite(path):
            yield from databases.units(path, _sessions)

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        """One session."""
        del resume
        with databases.opened(unit) as database:
            yield from _head(unit.hint)
            yield from _messages(database, unit)
            yield from _spent(database, unit.hint)


def _is_ours(path: Path) -> bool:
    return is_sqlite(path) and databases.has(path, "messages", "session_id", "content_json")


def _sessions(database: ExternalDatabase) -> Iterator[DatabaseSession]:
    marks = databases.marks(database, "messages", "session_id", "id", "created_timestamp")
    ledger = databases.marks(database, "usage_ledger", "session_id", "id")
    found: list[tuple[bool, DatabaseSession]] = []
    for row in database.rows("sessions", _COLUMNS, order=("created_at", "id")):
        hint: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
        id = hint["id"]
        if isinstance(id, str):
            stamp = (*row, marks.get(id), ledger.get(id))
            found.append((bool(hint["parent_session_id"]), DatabaseSession(id, stamp, hint)))
    yield from (kept for _, kept in sorted(found, key=lambda each: each[0]))


def _head(session: Json) -> Iterator[Event]:
    began = parse_time(session["created_at"])
    yield begin_session(session["id"], began, parent=session["parent_session_id"])
    title = coerce.name(session["description"]) or coerce.name(session["name"])
    fields: Json = {"title": title, "model": _model(session)}
    if coerce.name(session["working_dir"]):
        fields["workspace"] = {"path": session["working_dir"]}
    yield Facts(fields={name: value for name, value in fields.items() if value is not None})


def _model(session: Json) -> str | None:
    config = coerce.record(coerce.parse_json(session["model_config_json"]))
    return coerce.name(config.get("model_name"))


def _messages(database: ExternalDatabase, unit: Unit) -> Iterator[Event]:
    session, at = unit.hint, parse_time(unit.hint["created_at"]) or files.changed_at(unit.path)
    rows = database.rows("messages", _MESSAGE, where=("session_id", session["id"]), order=("id",))
    for number, name, role, text, metadata, created in rows:
        given = coerce.parse_json(text)
        if not isinstance(given, list):
            yield Skipped(where=f"message {number}", why="its content is not a list in JSON")
            continue
        at = parse_time(created) or at
        shown = coerce.record(coerce.parse_json(metadata)).get("userVisible")
        id = coerce.name(name) or f"{number}"
        yield from _message(given, id, role, at, is_hidden=shown is False, model=_model(session))


def _message(
    given: list[Any], id: str, role: object, at: datetime, *, is_hidden: bool, model: str | None
) -> Iterator[Event]:
    content = MessageContent()
    for block in given:
        _add(content, block)
    if not content:
        return
    kinds = {part["type"] for part in content.parts}
    if is_hidden:
        # Words for the model alone, such as a summary of what it no longer reads.
        yield content.said("system", at, id=id, extra={"for_model": True})
    elif role == "assistant":
        yield content.said("assistant", at, id=id, model=model)
    else:
        is_tool = "tool_result" in kinds and "text" not in kinds
        yield content.said("tool" if is_tool else "user", at, id=id)


def _add(content: MessageContent, block: object) -> None:
    match block:
        case {"type": "toolRequest", "toolCall": {"value": {"name": str(name), **call}}, **rest}:
            id = coerce.text(rest.get("id"))
            content.add(parts.tool_call(id, name, call.get("arguments")))
        case {"type": "toolResponse", "toolResult": {**result}, **rest}:
            _add_result(content, coerce.text(rest.get("id")), coerce.record(result))
        case {"type": "redactedThinking", "data": data}:
            content.think("", {"redacted": data})
        case {"type": "image", "data": data, **rest} if content.attach_base64(
            data, rest.get("mimeType")
        ):
            pass
        case {"type": "systemNotification", "msg": str(words)}:
            content.keep({"type": "notification", "native": words})
        case _:
            anthropic_blocks.add_block(content, block)


def _add_result(content: MessageContent, id: str, result: Json) -> None:
    if result.get("status") == "error" or "error" in result:
        told = result.get("error")
        content.add(parts.tool_result(id, "" if told is None else told, is_error=True))
        return
    value = result.get("value")
    inner = value.get("content") if isinstance(value, dict) else value
    is_error = isinstance(value, dict) and value.get("isError") is True
    answer = MessageContent()
    for block in coerce.items(inner):
        _add(answer, block)
    words = [part["text"] for part in answer.parts if part["type"] == "text"]
    rest = [part for part in answer.parts if part["type"] != "text"]
    content.add(parts.tool_result(id, "\n".join(words), is_error=is_error), *rest)
    content.blobs.extend(answer.blobs)


def _spent(database: ExternalDatabase, session: Json) -> Iterator[UsageEvent]:
    """Each call, in releases that note them; else their sum."""
    found = False
    rows = database.rows("usage_ledger", _LEDGER, where=("session_id", session["id"]))
    for id, model, provider, sent, made, read, written, cost, created in rows:
        found = True
        yield UsageEvent(
            usage=call_usage(
                "goose",
                f"{session['id']}:{id}",
                model=coerce.name(model),
                provider=coerce.name(provider),
                at=parse_time(created),
                dollars=cost,
                input=sent,
                output=made,
                cache_read=read,
                cache_write=written,
            )
        )
    if not found:
        yield UsageEvent(
            usage=call_usage(
                "goose",
                f"{session['id']}:sum",
                model=_model(session),
                provider=coerce.name(session["provider_name"]),
                at=parse_time(session["updated_at"]),
                dollars=session["accumulated_cost"],
                input=session["accumulated_input_tokens"],
                output=session["accumulated_output_tokens"],
            )
        )


IMPORTER = Goose()
