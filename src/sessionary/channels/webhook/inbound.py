"""From a verified body to a message of ours. Pure; only the named places are looked at."""

import json
from typing import Any

from sessionary.channels.webhook.settings import Fields
from sessionary.errors import BadInput
from sessionary.model.message import Message, Role, Text
from sessionary.model.source import Source

_LONGEST_ID = 500


def read(body: bytes, fields: Fields) -> tuple[Source, Message]:
    """Who says what; an error names what is missing."""
    found = _parsed(body)
    source = Source(
        "webhook",
        _id(fields.chat.fill(found), "chat"),
        user_id=_id(fields.person.fill(found), "person"),
        user_name=None if fields.name is None else fields.name.fill(found),
        thread_id=None if fields.thread is None else _id(fields.thread.fill(found), "thread"),
        platform_message_id=_id(fields.message_id.fill(found), "message_id"),
    )
    said = fields.text.fill(found)
    return source, Message(
        Role.USER,
        (Text(said),),
        person=source.person,
        platform_message_id=source.platform_message_id,
    )


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadInput("The body is not JSON.") from error


def _id(text: str, name: str) -> str:
    if not text or len(text) > _LONGEST_ID:
        raise BadInput(f"The {name} must have 1 to {_LONGEST_ID} characters.")
    return text
