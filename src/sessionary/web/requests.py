"""Request bodies: their types, and how they are read once the caller is known."""

import asyncio
import json
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from fastapi import Request
from msgspec import UNSET, Struct, UnsetType
from pydantic import Field

from sessionary.errors import BadInput
from sessionary.formats.message_input import MessageInput, read_message
from sessionary.model.message import MAX_SEQ
from sessionary.model.source import Source
from sessionary.web.auth import context_of
from sessionary.web.problems import RequestRefused

B = TypeVar("B", bound=Struct)
Role = Literal["user", "assistant", "system", "tool"]
Json = dict[str, Any]


class MessageBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """A message: a text, or parts."""

    text: str | None = None
    parts: list[Json] | None = None


class NewArrival(Struct, kw_only=True):
    """A message from any program. Fields we do not know are passed over."""

    source: Json
    text: str | None = None
    parts: list[Json] | None = None
    platform_message_id: str | int | None = None


class NewSession(Struct, kw_only=True, forbid_unknown_fields=True):
    """A session begins with its first message; with `run` the agent answers it.

    `project` names the project that it stands in.
    `model` and `settings` are the session's own: its agent is asked to answer with them.
    """

    text: str | None = None
    parts: list[Json] | None = None
    role: Role = "user"
    title: str | None = None
    model: str | None = None
    settings: Json | None = None
    labels: list[str] = []
    project: str | None = None
    source: Json | None = None
    run: bool = False


class SessionChange(Struct, kw_only=True, forbid_unknown_fields=True):
    """What shall be different; what is left out stays."""

    title: str | UnsetType | None = UNSET
    pinned: bool | UnsetType = UNSET
    archived: bool | UnsetType = UNSET
    project: str | UnsetType | None = UNSET
    labels: list[str] | UnsetType = UNSET
    draft: str | UnsetType = UNSET
    read_through: int | UnsetType = UNSET


class NewMessageBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """A message to be added without running the agent."""

    role: Role
    text: str | None = None
    parts: list[Json] | None = None


class Fork(Struct, kw_only=True, forbid_unknown_fields=True):
    """Where to fork (by default at the end), and how to call the new session."""

    at: int | None = None
    title: str | None = None


class Retract(Struct, kw_only=True, forbid_unknown_fields=True):
    """Take back what was said after an entry, or the last rounds."""

    after: int | None = None
    rounds: int | None = None


class Compact(Struct, kw_only=True, forbid_unknown_fields=True):
    """A summary through an entry; without one the agent makes it, perhaps with a focus."""

    summary: str | None = None
    through: int | None = None
    focus: str | None = None


class ReasonBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """Why a session or a turn shall end."""

    reason: str | None = None


class ProjectBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """A project's name and colour."""

    name: str | None = None
    colour: str | None = None


class NewSchedule(Struct, kw_only=True, forbid_unknown_fields=True):
    """A task that runs by itself."""

    name: str
    timing: str
    prompt: str
    zone: str | None = None
    deliver_to: str = "local"
    agent: str | None = None
    grace_minutes: int = 60


class ScheduleChange(Struct, kw_only=True, forbid_unknown_fields=True):
    """Rest, or go on."""

    paused: bool


class NewImport(Struct, kw_only=True, forbid_unknown_fields=True):
    """From which tools to import, by default from all; or only to look."""

    tools: list[str] = []
    dry_run: bool = False


class NewUpkeep(Struct, kw_only=True, forbid_unknown_fields=True):
    """What to do for the store."""

    task: Literal["backup", "verify", "shrink"]


class NewPermit(Struct, kw_only=True, forbid_unknown_fields=True):
    """Someone to be let in: by a pairing code, or by platform and id."""

    code: str | None = None
    platform: str | None = None
    person_id: str | None = None
    name: str | None = None


class BindingChange(Struct, kw_only=True, forbid_unknown_fields=True):
    """A key, and the session to point it at; without one the next message opens a new session."""

    key: str
    session_id: str | None = None


class NewToken(Struct, kw_only=True, forbid_unknown_fields=True):
    """A token for a program."""

    scope: Literal["read", "write", "admin"] = "read"
    name: str = ""


class Password(Struct, kw_only=True, forbid_unknown_fields=True):
    """A password, to come in with."""

    password: str


class PasswordChange(Struct, kw_only=True, forbid_unknown_fields=True):
    """A new password; none takes it away."""

    new: str | None
    old: str | None = None


class NewHold(Struct, kw_only=True, forbid_unknown_fields=True):
    """Why a session must not be reset, and until when; without a time until it is released."""

    reason: str
    until: str | None = None


class RedirectDelivery(Struct, kw_only=True, forbid_unknown_fields=True):
    """Where a delivery shall go instead: `platform:chat` or `platform:chat:thread`."""

    channel: str


class AbandonDelivery(Struct, kw_only=True, forbid_unknown_fields=True):
    """Why a delivery is given up."""

    reason: str | None = None


class EmptyBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """A body without fields."""


async def read_raw(request: Request) -> bytes:
    """The body as it came, within its limits of size and time."""
    limits = context_of(request).settings.limits
    try:
        return await asyncio.wait_for(request.body(), limits.body_seconds)
    except TimeoutError as error:
        raise RequestRefused(408, "The body took too long to come.") from error


async def read_body(request: Request, kind: type[B]) -> tuple[B, bytes]:
    """The body as a value of this kind, and as it came."""
    raw = await read_raw(request)
    media = request.headers.get("content-type", "application/json").split(";")[0].strip().lower()
    if raw and media != "application/json":
        raise RequestRefused(415, "Send JSON, with the content type application/json.")
    data = decode(raw or b"{}")
    if _depth(data) > context_of(request).settings.limits.depth:
        raise BadInput("The JSON is nested too deeply; nothing was written.")
    try:
        return msgspec.convert(data, kind), raw
    except msgspec.ValidationError as error:
        raise BadInput(f"{error}.") from error


def decode(raw: bytes) -> Any:
    """JSON as a value; a lone surrogate passes, what is no JSON does not."""
    try:
        return msgspec.json.decode(raw)
    except RecursionError as error:
        raise BadInput("The JSON is nested too deeply; nothing was written.") from error
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return json.loads(raw, parse_constant=_no_constant)
    except RecursionError as error:
        raise BadInput("The JSON is nested too deeply; nothing was written.") from error
    except ValueError as error:
        raise BadInput("The body is no JSON; nothing was written.") from error


def message_of(
    role: str, body: NewMessageBody | NewArrival | NewSession | MessageBody
) -> MessageInput:
    """The message that a body describes, with the files inside it."""
    if (body.text is None) == (body.parts is None):
        raise BadInput("Send either `text` or `parts`; nothing was written.")
    content: str | list[Json] = body.text if body.text is not None else body.parts or []
    if not content:
        raise BadInput("The message is empty; nothing was written.")
    return read_message(role, content)


def source_of(data: Json, platform_message_id: str | int | None = None) -> Source:
    """The source that a body describes."""
    more = {} if platform_message_id is None else {"platform_message_id": platform_message_id}
    return Source.from_json({**data, **more})


def entry_number(value: int | None, name: str, *, least: int = 0) -> int | None:
    """A number of an entry, small enough for the record."""
    if value is not None and not least <= value <= MAX_SEQ:
        raise BadInput(f"{name} is a number from {least} to {MAX_SEQ:,}, not {value}.")
    return value


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _depth(data: Any) -> int:
    """How deeply a value is nested; without recursion, whatever came."""
    level, depth = [data], 0
    while level:
        depth += 1
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return depth


TimeQuery = Annotated[
    str | None,
    Field(json_schema_extra={"format": "date-time"}, description="RFC 3339, with a zone."),
]
_FIRST, _LAST = 1900, 9000


def parse_time(text: str | None) -> datetime | None:
    """The time that a text names."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInput("A time is written like 2026-11-15T09:30:00Z.") from error
    if found.tzinfo is None or not _FIRST <= found.year <= _LAST:
        raise BadInput("A time is written like 2026-11-15T09:30:00Z, with its zone.")
    return found
