"""People's ids and phone numbers, hidden from the model; routing keeps the real values."""

import re
from dataclasses import replace
from hashlib import sha256

from sessionary.model.source import Source
from sessionary.model.terminal import one_line

PHONE_LIKE = re.compile(r"^\+?\d[\d\-\s]{6,}$")

_HEX_DIGITS = 12
_REDACTED = "redacted="


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HEX_DIGITS]


def redact_user_id(user_id: str) -> str:
    """Give a name that is always the same for one id and does not show it."""
    return f"user_{_digest(user_id)}"


def redact_chat_id(chat_id: str) -> str:
    """Hash a chat id; a prefix up to the first colon stays."""
    prefix, colon, rest = chat_id.partition(":")
    return f"{prefix}:{_digest(rest)}" if colon else _digest(chat_id)


def redact_key(key: str) -> str:
    """A printed session key without the ids of chats and people; the same for one key, always."""
    return "/".join([*key.split("/")[:3], f"{_REDACTED}{_digest(key)}"])


def is_redacted_key(text: str) -> bool:
    """Whether this is what `redact_key` gives; no session key is printed so."""
    return text.rpartition("/")[2].startswith(_REDACTED)


def redact_name(name: str) -> str:
    """Hash a name that is really a phone number; any other stays."""
    # WhatsApp wraps numbers in invisible direction marks.
    return redact_user_id(name) if PHONE_LIKE.match(one_line(name)) else name


def redact_source(source: Source) -> Source:
    """The source as the model may see it: no ids, no phone numbers, no unknown fields."""
    ids = {source.user_id, source.user_id_alt, source.chat_id, source.chat_id_alt}

    def shown_name(name: str | None) -> str | None:
        # A platform that knows no name often repeats the id in its place.
        return name and (redact_user_id(name) if name in ids else redact_name(name))

    return replace(
        source,
        chat_id=source.chat_id and redact_chat_id(source.chat_id),
        chat_id_alt=source.chat_id_alt and redact_chat_id(source.chat_id_alt),
        user_id=source.user_id and redact_user_id(source.user_id),
        user_id_alt=source.user_id_alt and redact_user_id(source.user_id_alt),
        chat_name=shown_name(source.chat_name),
        user_name=shown_name(source.user_name),
        chat_topic=shown_name(source.chat_topic),
        # Some platforms number a thread as its chat, and put people's numbers into message ids.
        thread_id=source.thread_id
        and (redact_chat_id(source.thread_id) if source.thread_id in ids else source.thread_id),
        platform_message_id=None
        if any(id and id in (source.platform_message_id or "") for id in ids)
        else source.platform_message_id,
        extra={},
    )
