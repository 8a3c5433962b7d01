"""Many stored messages at once: those that are nothing but texts are read without a detour.

msgspec reads such a body straight into its fields. It refuses whatever has a part or a field that
is not among them; `entry.body_from_json` then reads it, slower and with everything kept.
"""

import sys
from collections.abc import Callable
from datetime import datetime
from functools import cache
from types import GenericAlias
from typing import Any, NamedTuple

from sessionary.model.entry import Entry, Message, Role
from sessionary.model.mutable import mutable_class
from sessionary.model.part import Text
from sessionary.model.source import Person

_ROLES: dict[str | None, Role] = {role.value: role for role in Role}
_TextTwin = mutable_class(Text)
_MessageTwin = mutable_class(Message)
_EntryTwin = mutable_class(Entry)
_PersonTwin = mutable_class(Person)


Field = tuple[str, Any] | tuple[str, Any, Any]


class _Reader(NamedTuple):
    """Reads the body of a message that has texts only; `failure` for any other."""

    decode: Callable[[str], Any]
    failure: type[Exception]


@cache
def reader() -> _Reader:
    """Made when it is first needed: loading msgspec takes longer than reading a screenful."""
    import msgspec

    text = msgspec.defstruct(
        "StoredText", [("text", str)], tag_field="type", tag="text", forbid_unknown_fields=True
    )
    names: list[Field] = [("id", str), ("alt_id", str | None, None), ("name", str | None, None)]
    person = msgspec.defstruct("StoredPerson", names, forbid_unknown_fields=True)
    fields: list[Field] = [
        ("parts", GenericAlias(list, (text,))),
        ("person", person | None, None),
        ("model", str | None, None),
        ("finish_reason", str | None, None),
        ("token_count", int | None, None),
        ("platform_message_id", str | None, None),
        ("extra", dict[str, Any] | None, None),
    ]
    body = msgspec.defstruct("StoredMessage", fields, forbid_unknown_fields=True)
    return _Reader(msgspec.json.Decoder(body).decode, msgspec.MsgspecError)


def is_ready() -> bool:
    """Whether a few messages, too, are read faster this way: msgspec is loaded already."""
    return "msgspec" in sys.modules


def message_entry(
    session_id: str, seq: int, at: datetime, turn_id: str | None, *, role: str | None, body: Any
) -> Entry:
    """The entry of a body that `reader` has read."""
    parts = []
    for stored in body.parts:
        text = _TextTwin(stored.text, {})
        text.__class__ = Text
        parts.append(text)
    message = _MessageTwin(
        _ROLES[role],
        tuple(parts),
        body.person and _person(body.person),
        body.model,
        body.finish_reason,
        body.token_count,
        body.platform_message_id,
        body.extra or {},
    )
    message.__class__ = Message
    made = _EntryTwin(session_id, seq, at, message, turn_id)
    made.__class__ = Entry
    entry: Entry = made
    return entry


def _person(stored: Any) -> Person:
    made = _PersonTwin(stored.id, stored.alt_id, stored.name)
    made.__class__ = Person
    person: Person = made
    return person
