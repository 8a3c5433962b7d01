"""From a delivery to the events that Matrix takes. Pure."""

import json
import re
from dataclasses import dataclass
from typing import Any

from markdown_it import MarkdownIt

from sessionary.channels.enclosures import Enclosure, files_of
from sessionary.channels.split import split_text
from sessionary.engine.ports import Capabilities
from sessionary.model import codec
from sessionary.model.message import Attachment, text_of
from sessionary.model.turn import Delivery

LONGEST_BYTES = 16_000
NOTHING = "(An empty message.)"
_LARGEST_EVENT = 60_000
_SHOWN = frozenset({"image", "audio", "video"})
_PERSON = re.compile(r"(?<![\w/])@[\w.=/+-]+:[\w.-]+(?::\d+)?\b")
_MARKDOWN = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable("table")

CAPABILITIES = Capabilities(
    longest_text=10 * LONGEST_BYTES // 4,
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

    said: str | Attachment
    transaction: str


def posts(delivery: Delivery) -> list[Post]:
    """The events of a delivery, in order, its files last; at least one."""
    files, text = files_of(delivery.parts), text_of(delivery.parts)
    said: list[str | Attachment] = [*(pieces_of(text) if text.strip() or not files else ()), *files]
    return [Post(each, f"sessionary-{delivery.id}-{index}") for index, each in enumerate(said)]


def pieces_of(text: str) -> list[str]:
    """A text in pieces that are short enough and not empty."""
    sayable = "".join(char for char in codec.storable_text(text) if char >= " " or char in "\n\t")
    return split_text(sayable, LONGEST_BYTES, measure=_bytes) or [NOTHING]


def content_of(text: str, thread: str | None) -> dict[str, Any]:
    """What is sent for a text: its words, and the same as HTML where that says more."""
    content: dict[str, Any] = {"msgtype": "m.text", "body": text, **_in_thread(thread)}
    people = sorted(set(_PERSON.findall(text)))
    # Named even when empty: programs would else look for names in the text.
    content["m.mentions"] = {"user_ids": people} if people else {}
    html = _MARKDOWN.render(text).strip()
    if html != f"<p>{text}</p>":
        rich = {**content, "format": "org.matrix.custom.html", "formatted_body": html}
        if len(json.dumps(rich)) <= _LARGEST_EVENT:
            return rich
    return content


def file_content(file: Enclosure, url: str, thread: str | None) -> dict[str, Any]:
    """What is sent for a file that the homeserver has already."""
    return {
        "msgtype": f"m.{file.kind}" if file.kind in _SHOWN else "m.file",
        "body": file.name,
        "filename": file.name,
        "url": url,
        "info": {"mimetype": file.media_type, "size": len(file.data)},
        "m.mentions": {},
        **_in_thread(thread),
    }


def notice_of(text: str) -> dict[str, Any]:
    """A word of the house that no bot answers."""
    return {"msgtype": "m.notice", "body": text, "m.mentions": {}}


def _in_thread(thread: str | None) -> dict[str, Any]:
    if thread is None:
        return {}
    relation = {"rel_type": "m.thread", "event_id": thread, "is_falling_back": True}
    return {"m.relates_to": {**relation, "m.in_reply_to": {"event_id": thread}}}


def _bytes(text: str) -> int:
    return len(text.encode())
