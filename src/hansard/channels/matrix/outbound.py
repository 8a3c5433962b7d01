"""From a delivery to the events that Matrix takes. Pure."""

import json
import re
from dataclasses import dataclass
from typing import Any

from markdown_it import MarkdownIt

from hansard.channels.split import split_text
from hansard.engine.ports import Capabilities
from hansard.model import document
from hansard.model.delivery import Delivery
from hansard.model.part import text_of

LONGEST_BYTES = 16_000
NOTHING = "(An empty message.)"
_LARGEST_EVENT = 60_000
_PERSON = re.compile(r"(?<![\w/])@[\w.=/+-]+:[\w.-]+(?::\d+)?\b")
_MARKDOWN = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable("table")

CAPABILITIES = Capabilities(
    longest_text=10 * LONGEST_BYTES // 4,
    can_edit=True,
    shows_typing=True,
    ids_needed_for_mentions=True,
    notes=(
        "You are on Matrix. You see only what is said to you here: no history, no other rooms.",
        "Mention a person by writing their id, for instance @ada:example.org.",
        "Markdown works: bold, italics, lists, quotes, tables, `code` and fenced code.",
    ),
)


@dataclass(frozen=True, slots=True)
class Post:
    """One event to be sent. A homeserver takes the same transaction only once."""

    content: dict[str, Any]
    transaction: str


def posts(delivery: Delivery) -> list[Post]:
    """The events of a delivery, in order; at least one."""
    thread = delivery.channel.thread_id
    return [
        Post(content_of(text, thread), f"hansard-{delivery.id}-{index}")
        for index, text in enumerate(pieces_of(text_of(delivery.parts)))
    ]


def pieces_of(text: str) -> list[str]:
    """A text in pieces that are short enough and not empty."""
    sayable = "".join(char for char in document.speakable(text) if char >= " " or char in "\n\t")
    return split_text(sayable, LONGEST_BYTES, measure=_bytes) or [NOTHING]


def content_of(text: str, thread: str | None) -> dict[str, Any]:
    """What is sent for a text: its words, and the same as HTML where that says more."""
    content: dict[str, Any] = {"msgtype": "m.text", "body": text}
    people = sorted(set(_PERSON.findall(text)))
    # Named even when empty: programs would else look for names in the text.
    content["m.mentions"] = {"user_ids": people} if people else {}
    if thread is not None:
        relation = {"rel_type": "m.thread", "event_id": thread, "is_falling_back": True}
        content["m.relates_to"] = {**relation, "m.in_reply_to": {"event_id": thread}}
    html = _MARKDOWN.render(text).strip()
    if html != f"<p>{text}</p>":
        rich = {**content, "format": "org.matrix.custom.html", "formatted_body": html}
        if len(json.dumps(rich)) <= _LARGEST_EVENT:
            return rich
    return content


def notice_of(text: str) -> dict[str, Any]:
    """A word of the house that no bot answers."""
    return {"msgtype": "m.notice", "body": text, "m.mentions": {}}


def _bytes(text: str) -> int:
    return len(text.encode())
