"""What is sent to Discord."""

import hashlib

from sessionary.channels.base import preview, printable, split_text, utf16_units
from sessionary.engine.ports import Capabilities
from sessionary.model.source import Channel

LONGEST = 2000
_NONCE_LENGTH = 25

CAPABILITIES = Capabilities(
    # Ten messages: the adapter splits between code fences, so a delivery may be longer than one message.
    longest_text=10 * LONGEST,
    shows_typing=True,
    ids_needed_for_mentions=True,
    notes=(
        "You are on Discord. You see only what is said to you here.",
        "You cannot search the history, pin, manage channels or roles, or list members.",
        "Mention a person by writing <@id> with their user id; @everyone and roles are not rung.",
        "Markdown works: bold, italics, lists, quotes, `code` and fenced code. Tables do not.",
    ),
)


def target(channel: Channel) -> str:
    """Return the id that Discord has for a channel: a thread is a channel of its own."""
    return channel.thread_id or channel.chat_id


def split(text: str) -> list[str]:
    """Split a text into messages that Discord accepts."""
    return split_text(text, LONGEST, measure=utf16_units)


def preview_of(text: str) -> str:
    """Return as much of an unfinished reply as one message holds."""
    return preview(printable(text), LONGEST, measure=utf16_units)


def nonce(delivery_id: str, index: int) -> str:
    """Return the nonce of a piece, the same in every attempt: Discord accepts it once within some minutes."""
    return hashlib.sha256(f"{delivery_id}/{index}".encode()).hexdigest()[:_NONCE_LENGTH]
