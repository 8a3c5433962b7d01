"""The events of a unit as the merger takes them: messages as the log stores them, calls as rows of the ledger.

This is all that can be done with a message without looking at the store, so that a worker process can do it. Other
events pass through unchanged.
"""

from collections.abc import Generator, Iterable
from datetime import datetime
from typing import Any

import msgspec

from sessionary.clock import to_micros
from sessionary.importers.base.events import (
    Branch,
    Compacted,
    Event,
    Importer,
    MessageEvent,
    Resume,
    TokenUsage,
    Unit,
    UsageEvent,
)
from sessionary.model import codec
from sessionary.model.usage import CostStatus, Usage
from sessionary.prices import Tokens, cost_of, find_model
from sessionary.prices import version as price_version
from sessionary.store.tables import usage
from sessionary.store.tables.sessions import column
from sessionary.store.tables.usage import UsageRow


class PreparedMessage(msgspec.Struct, array_like=True, gc=False):
    """A message as the log stores it, and what its session's record is made from."""

    role: str
    # The stored body, and when it was written, in microseconds.
    text: str
    at: int
    id: str | None
    parent: str | None
    # What a person wrote; None in other messages.
    words: str | None
    tool_calls: int
    model: str | None
    usage: list[UsageRow]
    blobs: list[bytes]


class PreparedBranch(msgspec.Struct, gc=False):
    """A `Branch` of prepared messages."""

    items: list[PreparedMessage | Compacted]
    is_current: bool


class PreparedUsage(msgspec.Struct, gc=False):
    """A `UsageEvent` as rows of the ledger."""

    usage: list[UsageRow]


PreparedEvent = Event | PreparedMessage | PreparedBranch | PreparedUsage


def prepared_events(
    importer: Importer, unit: Unit, resume: Resume | None, *, now: datetime
) -> Generator[PreparedEvent]:
    """Yield the events of a unit; `now` is the time of calls that have none."""
    tool = importer.name
    for event in importer.read(unit, resume):
        if type(event) is MessageEvent:
            yield prepare(event, tool, now=now)
        elif isinstance(event, Branch):
            items = [
                each if isinstance(each, Compacted) else prepare(each, tool, now=now)
                for each in event.items
            ]
            yield PreparedBranch(items, event.is_current)
        elif isinstance(event, UsageEvent):
            yield PreparedUsage(ledger_rows(event.usage, now=now))
        else:
            yield event


def prepare(message: MessageEvent, tool: str, *, now: datetime) -> PreparedMessage:
    """Return a message as the log stores it."""
    role, given, calls = message.role, message.parts, 0
    for part in given:
        if part["type"] == "tool_call":
            calls += 1
    words: str | None = None
    if role == "user":
        words = "\n".join([part["text"] for part in given if part["type"] == "text"])
    used, blobs = message.usage, message.blobs
    return PreparedMessage(
        role,
        body_text(message, tool),
        to_micros(message.at),
        message.id,
        message.parent,
        words,
        calls,
        message.model,
        ledger_rows(used, now=now) if used else _NOTHING,
        list(blobs) if blobs else _NOTHING,
    )


# Never changed; most messages have neither calls nor attachments.
_NOTHING: list[Any] = []


class _Body(msgspec.Struct, omit_defaults=True, gc=False):
    """The stored fields of a message, in their order; defaults are left out."""

    parts: list[dict[str, Any]]
    person: dict[str, Any] | None = None
    model: str | None = None
    finish_reason: str | None = None
    token_count: int | None = None
    platform_message_id: str | None = None
    extra: dict[str, Any] | None = None


_encode = msgspec.json.Encoder().encode


def body_text(message: MessageEvent, tool: str) -> str:
    """Return a message as the log stores it."""
    extra = message.extra
    if message.role == "system":
        # Another system's instructions: people may read them, no model shall follow them.
        extra = {"imported": tool} | (extra or {})
    body = _Body(
        message.parts,
        message.person,
        message.model,
        message.finish_reason,
        message.token_count,
        message.id,
        extra or None,
    )
    try:
        return _encode(body).decode()
    except UnicodeEncodeError:
        # Half of a surrogate pair.
        known = ((name, getattr(body, name)) for name in body.__struct_fields__)
        return codec.encode({name: value for name, value in known if value is not None})


def ledger_rows(used: Iterable[Usage | TokenUsage], *, now: datetime) -> list[UsageRow]:
    """Return calls as rows of the ledger, with our price if their tool gave none."""
    return [
        _of_tokens(each) if isinstance(each, TokenUsage) else _of_usage(each, now=now)
        for each in used
    ]


def _of_tokens(used: TokenUsage) -> UsageRow:
    # The ledger counts all cache writes together: the sixth number is only for the price.
    tokens = Tokens(
        used.input_tokens,
        used.output_tokens,
        used.cache_read_tokens,
        used.cache_write_tokens,
        0,
        used.cache_write_1h_tokens,
    )
    model = find_model(used.model)
    microusd = None if model is None else model.microusd(tokens, used.at)
    known = column(used.call_id), to_micros(used.at), usage.word(used.model)
    if model is None or microusd is None:
        return UsageRow(*known, None, None, None, None, *tokens[:5])
    sums = (*tokens[:5], microusd)
    status, source, version = CostStatus.ESTIMATED, model.source, model.version
    return UsageRow(*known, model.provider, None, None, None, *sums, status, source, version)


def _of_usage(used: Usage, *, now: datetime) -> UsageRow:
    call, cost = usage.call_of(used, at=now), cost_of(used, at=now)
    if cost is None:
        return call
    return call._replace(
        provider=call.provider or cost.provider,
        cost_microusd=cost.microusd,
        cost_status=CostStatus.ESTIMATED,
        price_source=cost.source,
        price_version=price_version(),
    )
