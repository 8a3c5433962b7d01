"""The log that Simon Willison's `llm` keeps: prompts and responses, or, in newer releases, chains."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from sessionary.errors import BadInput
from sessionary.formats import parts, shape
from sessionary.importers import databases, files, llm_chains, times
from sessionary.importers.base import Begin, Event, Facts, Json, Resume, Unit, Where
from sessionary.importers.content import Content
from sessionary.importers.databases import Kept
from sessionary.store.sqlite.foreign import ForeignDatabase, is_sqlite

DATABASE = "logs.db"
_RESPONSE = (
    *("id", "model", "resolved_model", "prompt", "system", "response", "datetime_utc"),
    *("input_tokens", "output_tokens", "token_details"),
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
            began = times.of(hint["began"])
            yield Begin(native_id=hint["id"], began_at=began)
            yield Facts(fields={"title": hint["name"]})
            at = began or files.changed_at(unit.path)
            if hint["table"] == "turns":
                yield from llm_chains.read(database, hint, at)
            else:
                yield from _responses(database, hint, at)


def _conversations(database: ForeignDatabase) -> Iterator[Kept]:
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
                yield Kept(id, (*stamp, names.get(id)), hint)
        rows = database.rows(table, ("id", "datetime_utc"), where=(by, None))
        for id, at in rows if database.has(table, by) else ():
            if isinstance(id, str):
                hint = {"id": id, "name": None, "began": at, "table": table, "by": "id"}
                yield Kept(id, (at,), hint)


def _first(database: ForeignDatabase, table: str, *names: str) -> str:
    return next((name for name in names if database.has(table, name)), names[0])


def _beginnings(database: ForeignDatabase, table: str, by: str) -> dict[Any, Any]:
    if not database.has(table, by):
        return {}
    rows = database.rows(table, (by, "datetime_utc"), order=("datetime_utc",))
    found: dict[Any, Any] = {}
    for id, at in rows:
        found.setdefault(id, at)
    return found


def _responses(database: ForeignDatabase, hint: Json, at: datetime) -> Iterator[Event]:
    system = None
    where, order = (hint["by"], hint["id"]), ("datetime_utc", "id")
    for row in database.rows("responses", _RESPONSE, where=where, order=order):
        response = dict(zip(_RESPONSE, row, strict=True))
        id = response["id"]
        if not isinstance(id, str):
            raise BadInput(f"Conversation {hint['id']} has a response without a name.")
        at = times.of(response["datetime_utc"]) or at
        told = _joined(database, "system_fragments", id, response["system"])
        if told and told != system:
            system = told
            yield _words(told).said("system", at, id=f"{id}:system")
        yield from _asked(database, id, response, at)
        yield _answered(database, id, response, at)


def _asked(database: ForeignDatabase, id: str, response: Json, at: datetime) -> Iterator[Event]:
    results = Content()
    columns = ("name", "output", "tool_call_id", "exception")
    for name, output, call, error in database.rows(
        "tool_results", columns, where=("response_id", id), order=("id",)
    ):
        made = parts.tool_result(
            shape.words(call), shape.words(output), name=shape.name(name), is_error=bool(error)
        )
        results.add(made)
    if results:
        yield results.said("tool", at, id=f"{id}:results")
    prompt = _words(_joined(database, "prompt_fragments", id, response["prompt"]))
    names, by = ("attachment_id",), ("response_id", id)
    for (attachment,) in database.rows("prompt_attachments", names, where=by, order=("order",)):
        llm_chains.attach(prompt, database, attachment)
    if prompt:
        yield prompt.said("user", at, id=f"{id}:prompt")


def _answered(database: ForeignDatabase, id: str, response: Json, at: datetime) -> Event:
    content = _words(shape.words(response["response"]))
    columns = ("id", "name", "arguments", "tool_call_id")
    rows = database.rows("tool_calls", columns, where=("response_id", id), order=("id",))
    for _, name, arguments, call in rows:
        given = shape.parsed_or_text(arguments)
        content.add(parts.tool_call(shape.words(call), shape.words(name), given))
    model = shape.name(response["resolved_model"]) or shape.name(response["model"])
    return content.said(
        "assistant", at, id=id, model=model, usage=llm_chains.usage_of(id, response, at)
    )


def _words(text: str) -> Content:
    content = Content()
    content.say(text)
    return content


def _joined(database: ForeignDatabase, table: str, id: str, text: object) -> str:
    """A text with the fragments that were put before it."""
    rows = database.rows(table, ("fragment_id",), where=("response_id", id), order=("order",))
    told = []
    for (fragment,) in rows:
        found = database.rows("fragments", ("content",), where=("id", fragment))
        told += [shape.words(row[0]) for row in found]
    return "\n".join(filter(None, [*told, shape.words(text)]))


IMPORTER = Llm()
