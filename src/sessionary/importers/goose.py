"""Goose: one database of sessions."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from sessionary.formats import anthropic_blocks, coerce
from sessionary.formats.coerce import Json
from sessionary.importers.base import databases, events, files
from sessionary.importers.base.content import MessageContent, call_usage, parse_time
from sessionary.importers.base.databases import DatabaseSession
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


class Goose(events.Importer):
    """Reads the sessions of Goose."""

    name = "goose"
    title = "Goose"

    def places(self, user: events.UserEnvironment) -> list[Path]:
        data = user.path("XDG_DATA_HOME", ".local/share")
        windows = user.home / "AppData" / "Roaming" / "Block" / "goose" / "data"
        return [data / "goose" / "sessions", windows / "sessions"]

    def recognises(self, path: Path) -> bool:
        return databases.has(path, "messages", "session_id", "content_json")

    def find(self, place: Path) -> Iterator[events.Unit]:
        path = place if files.is_file(place) else place / DATABASE
        if is_sqlite(path):
            yield from databases.units(path, _sessions)

    def read(self, unit: events.Unit, resume: events.Resume | None) -> Iterator[events.Event]:
        with databases.opened(unit) as database:
            session, began = unit.hint, parse_time(unit.hint["created_at"])
            yield events.begin_session(session["id"], began, parent=session["parent_session_id"])
            yield events.facts(
                title=coerce.first_name(session["description"], session["name"]),
                model=_model(session),
                workspace=events.workspace(session["working_dir"]),
            )
            yield from _messages(database, session, began or files.changed_at(unit.path))
            yield from _usage(database, unit.hint)


def _sessions(database: ExternalDatabase) -> Iterator[DatabaseSession]:
    marks = databases.marks(database, "messages", "session_id", "id", "created_timestamp")
    ledger = databases.marks(database, "usage_ledger", "session_id", "id")
    for hint in databases.records(database, "sessions", _COLUMNS, order=("created_at", "id")):
        id = hint["id"]
        if isinstance(id, str):
            stamp = (*hint.values(), marks.get(id), ledger.get(id))
            is_child = bool(hint["parent_session_id"])
            yield DatabaseSession(id, stamp, hint, is_child=is_child)


def _model(session: Json) -> str | None:
    return coerce.name(coerce.parse_record(session["model_config_json"]).get("model_name"))


def _messages(database: ExternalDatabase, session: Json, at: datetime) -> Iterator[events.Event]:
    rows = database.rows("messages", _MESSAGE, where=("session_id", session["id"]), order=("id",))
    for number, name, role, text, metadata, created in rows:
        given = coerce.parse_json(text)
        if not isinstance(given, list):
            yield events.Skipped(where=f"message {number}", why="its content is not a list in JSON")
            continue
        at = parse_time(created) or at
        id = coerce.name(name) or f"{number}"
        content = MessageContent()
        for block in given:
            _add(content, block)
        if not content:
            continue
        if coerce.parse_record(metadata).get("userVisible") is False:
            # Only the model reads it, such as a summary of earlier messages.
            yield content.to_message("system", at, id=id, extra={"for_model": True})
        elif role == "assistant":
            yield content.to_message("assistant", at, id=id, model=_model(session))
        else:
            yield content.to_message(content.user_role, at, id=id)


def _add(content: MessageContent, block: object) -> None:
    match block:
        case {"type": "toolRequest", "toolCall": {"value": {"name": str(name), **call}}, **rest}:
            content.add_call(rest.get("id"), name, call.get("arguments"))
        case {"type": "toolResponse", "toolResult": {**result}, **rest}:
            given: Any = result.get("error")
            is_error = result.get("status") == "error" or "error" in result
            if not is_error:
                value = result.get("value")
                is_error = coerce.record(value).get("isError") is True
                given = MessageContent()
                inner = value.get("content") if isinstance(value, dict) else value
                for each in coerce.items(inner):
                    _add(given, each)
            content.add_result(rest.get("id"), given, is_error=is_error)
        case {"type": "redactedThinking", "data": data}:
            content.add_reasoning("", {"redacted": data})
        case {"type": "image", "data": data, **rest} if content.attach_base64(
            data, rest.get("mimeType")
        ):
            pass
        case {"type": "systemNotification", "msg": str(words)}:
            content.add_unknown({"type": "notification", "native": words})
        case _:
            anthropic_blocks.add_block(content, block)


def _usage(database: ExternalDatabase, session: Json) -> Iterator[events.UsageEvent]:
    """Yield each call, in releases that record them; otherwise their sum."""
    where = ("session_id", session["id"])
    calls = list(databases.records(database, "usage_ledger", _LEDGER, where=where))
    total = {
        "id": "sum",
        "model": _model(session),
        "provider": session["provider_name"],
        "input_tokens": session["accumulated_input_tokens"],
        "output_tokens": session["accumulated_output_tokens"],
        "cost": session["accumulated_cost"],
        "created_at": session["updated_at"],
    }
    for call in calls or [total]:
        yield events.UsageEvent(
            usage=call_usage(
                "goose",
                f"{session['id']}:{call['id']}",
                model=call["model"],
                provider=call["provider"],
                at=parse_time(call["created_at"]),
                dollars=call["cost"],
                input=call["input_tokens"],
                output=call["output_tokens"],
                cache_read=call.get("cache_read_tokens"),
                cache_write=call.get("cache_write_tokens"),
            )
        )


IMPORTER = Goose()
