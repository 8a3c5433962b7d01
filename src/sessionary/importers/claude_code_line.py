"""One line of a Claude Code file: what we need of it, whatever else it has."""

from datetime import datetime
from typing import Annotated, Any

import msgspec

from sessionary.formats import json_text
from sessionary.importers import times

_BOM = b"\xef\xbb\xbf"


class CacheWrites(msgspec.Struct, gc=False):
    """How long what was written to the cache is kept."""

    ephemeral_1h_input_tokens: int | None = 0


class Tokens(msgspec.Struct, gc=False):
    """What a call used, as the model's interface says it."""

    input_tokens: int | None = 0
    output_tokens: int | None = 0
    cache_read_input_tokens: int | None = 0
    cache_creation_input_tokens: int | None = 0
    cache_creation: CacheWrites | None = None


class Answer(msgspec.Struct, gc=False):
    """The message of a line, as the model's interface has it."""

    id: str | None = None
    model: str | None = None
    content: Any = None
    stop_reason: str | None = None
    usage: Tokens | None = None


class Line(msgspec.Struct, gc=False):
    """What every line may have."""

    type: str = ""
    uuid: str | None = None
    # Null begins a conversation; files that others wrote may not have it at all.
    parentUuid: str | msgspec.UnsetType | None = msgspec.UNSET  # noqa: N815
    sessionId: str | None = None  # noqa: N815
    # One that has no zone is read in the slow way.
    timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    message: Answer | None = None
    requestId: str | None = None  # noqa: N815
    isSidechain: bool | None = None  # noqa: N815
    isMeta: bool | None = None  # noqa: N815
    isCompactSummary: bool | None = None  # noqa: N815
    isApiErrorMessage: bool | None = None  # noqa: N815
    agentId: str | None = None  # noqa: N815
    cwd: str | None = None
    gitBranch: str | None = None  # noqa: N815
    subtype: str | None = None
    content: Any = None
    attachment: Any = None
    summary: str | None = None
    leafUuid: str | None = None  # noqa: N815
    aiTitle: str | None = None  # noqa: N815
    customTitle: str | None = None  # noqa: N815
    compactMetadata: Any = None  # noqa: N815
    forkedFrom: Any = None  # noqa: N815

    @property
    def parent(self) -> str | None:
        """The line that this one follows, if it names one."""
        return None if self.parentUuid is msgspec.UNSET else self.parentUuid


class Unreadable(Exception):
    """A line that is none: why."""


_decode = msgspec.json.Decoder(Line).decode


def line_of(text: bytes) -> Line | None:
    """A line; None when it is blank. What has the wrong type in it is passed over."""
    try:
        line = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _lenient(text)
    if line.timestamp is not None and not times.is_sensible(line.timestamp):
        line.timestamp = None
    if text.count(b"{") + text.count(b"[") > json_text.MAX_DEPTH:
        message = line.message
        for given in (line.content, line.attachment) if message is None else (message.content,):
            _check_depth(given)
    return line


def raw_of(text: bytes) -> Any:
    """All that a line has."""
    stripped = text.removeprefix(_BOM).strip(b" \t\r\n\x00")
    try:
        data = json_text.decode(stripped)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"not JSON ({str(error)[:100]})") from error
    _check_depth(data)
    return data


def _lenient(text: bytes) -> Line | None:
    if not text.removeprefix(_BOM).strip(b" \t\r\n\x00"):
        return None
    data = raw_of(text)
    if not isinstance(data, dict):
        raise Unreadable(f"not an object but {type(data).__name__}")
    line: Line = _filled(Line, data)
    line.timestamp = times.of(data.get("timestamp"))
    message = data.get("message")
    if isinstance(message, dict):
        line.message = _filled(Answer, message)
        usage = message.get("usage")
        line.message.usage = _filled(Tokens, usage) if isinstance(usage, dict) else None
    return line


def _filled(kind: Any, data: dict[str, Any]) -> Any:
    """The fields that have the right type."""
    made = kind()
    for field in msgspec.structs.fields(kind):
        if field.name in data and field.name not in ("message", "usage", "timestamp"):
            try:
                setattr(made, field.name, msgspec.convert(data[field.name], field.type))
            except (msgspec.ValidationError, UnicodeError):
                continue
    return made


def _check_depth(data: Any) -> None:
    if json_text.is_deep(data):
        raise Unreadable(f"nested deeper than {json_text.MAX_DEPTH} levels")
