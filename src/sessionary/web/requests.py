"""How bodies and parameters of requests are read."""

import asyncio
import json
from datetime import datetime
from typing import Annotated, Any, Protocol, TypeVar, get_type_hints

import msgspec
from fastapi import Request
from msgspec import Meta, Struct
from pydantic import Field

from sessionary.errors import BadInput
from sessionary.formats.message_input import MessageInput, read_message
from sessionary.model.json_types import SourceInfo
from sessionary.model.message import MAX_SEQ
from sessionary.model.source import Source
from sessionary.web.auth import context_of
from sessionary.web.problems import RequestRefused

B = TypeVar("B", bound=Struct)
Json = dict[str, Any]
Text = Annotated[str | None, Meta(description="The text of the message.")]
Parts = Annotated[
    list[Json] | None,
    Meta(
        description="The parts of the message, instead of `text`: in our own format, or in those of the OpenAI and "
        "Anthropic APIs."
    ),
]
SourceBody = Annotated[
    Json,
    Meta(
        description="Where the message comes from. `platform` is required; further fields are kept as they are.",
        extra_json_schema={
            "required": ["platform"],
            "properties": {name: {"type": "string"} for name in get_type_hints(SourceInfo)},
        },
    ),
]
Seq = Annotated[int, Meta(ge=0, le=MAX_SEQ)]
CursorQuery = Annotated[str | None, Field(description="`next` of the page before.")]


async def read_raw(request: Request) -> bytes:
    """The body as it came, within its limits of size and time."""
    limits = context_of(request).settings.limits
    try:
        # Not `wait_for`, which makes a task for a body that is there already.
        async with asyncio.timeout(limits.body_seconds):
            return await request.body()
    except TimeoutError as error:
        raise RequestRefused(408, "The body took too long to come.") from error


async def read_json(request: Request) -> Any:
    """The body as JSON, within the limit of depth; `request.state.raw` keeps it as it came."""
    request.state.raw = raw = await read_raw(request)
    media = request.headers.get("content-type", "application/json").split(";")[0].strip().lower()
    if raw and media != "application/json":
        raise RequestRefused(415, "Send JSON, with the content type application/json.")
    data = decode(raw or b"{}")
    if _depth(data) > context_of(request).settings.limits.depth:
        raise BadInput("The JSON is nested too deeply; nothing was written.")
    return data


async def read_body(request: Request, kind: type[B]) -> B:
    """The body as a value of this kind; `request.state.raw` keeps it as it came."""
    data = await read_json(request)
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise BadInput(f"{error}.") from error
    except UnicodeEncodeError as error:
        raise BadInput(
            "Half of a character (a lone surrogate) stands where no text belongs; nothing was written."
        ) from error


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


class MessageBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """A message: either `text` or `parts`."""

    text: Text = None
    parts: Parts = None


class _HasMessage(Protocol):
    @property
    def text(self) -> str | None: ...
    @property
    def parts(self) -> list[Json] | None: ...


def message_of(role: str, body: _HasMessage) -> MessageInput:
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
    Field(
        json_schema_extra={"format": "date-time"},
        description="A time with a zone (RFC 3339), for example `2026-11-15T09:30:00Z`.",
    ),
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
