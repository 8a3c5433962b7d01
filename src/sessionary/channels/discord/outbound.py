"""From a delivery to the messages that Discord takes. Pure."""

import hashlib
from dataclasses import dataclass

from sessionary.channels.enclosures import files_of
from sessionary.channels.growing import preview
from sessionary.channels.split import split_text, utf16_units
from sessionary.engine.ports import Capabilities
from sessionary.model import codec
from sessionary.model.message import Attachment, text_of
from sessionary.model.source import Channel
from sessionary.model.turn import Delivery

LONGEST = 2000
NOTHING = "(An empty message.)"
_LONGEST_NONCE = 25

CAPABILITIES = Capabilities(
    # Ten messages: we cut between code fences ourselves, so a delivery may be longer than one.
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


@dataclass(frozen=True, slots=True)
class Post:
    """One message to be written. Discord takes the same nonce only once within some minutes."""

    said: str | Attachment
    nonce: str


def target(channel: Channel) -> str:
    """The id that Discord knows the place by: a thread is a channel of its own."""
    return channel.thread_id or channel.chat_id


def posts(delivery: Delivery) -> list[Post]:
    """The messages of a delivery, in order, its files last; at least one."""
    files, text = files_of(delivery.parts), text_of(delivery.parts)
    pieces = pieces_of(text) if text.strip() or not files else []
    said: list[str | Attachment] = [*pieces, *files]
    return [Post(each, nonce(delivery.id, index)) for index, each in enumerate(said)]


def pieces_of(text: str) -> list[str]:
    """A text in pieces that are short enough and not empty."""
    return split_text(_sayable(text), LONGEST, measure=utf16_units) or [NOTHING]


def preview_of(text: str) -> str:
    """As much of a growing answer as one message holds."""
    return preview(_sayable(text), LONGEST, measure=utf16_units)


def nonce(delivery_id: str, index: int) -> str:
    """The same name for the same piece in every try."""
    named = f"{delivery_id}/{index}".encode()
    return hashlib.sha256(named).hexdigest()[:_LONGEST_NONCE]


def _sayable(text: str) -> str:
    return "".join(char for char in codec.storable_text(text) if char >= " " or char in "\n\t")
