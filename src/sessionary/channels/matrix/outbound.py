"""The events that are sent to a room."""

import json
import re
from typing import Any

from markdown_it import MarkdownIt

from sessionary.channels.base import split_text
from sessionary.channels.files import OutgoingFile
from sessionary.engine.ports import Capabilities

LONGEST_BYTES = 16_000
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


def split(text: str) -> list[str]:
    """Split a text into pieces that fit into an event."""
    return split_text(text, LONGEST_BYTES, measure=lambda piece: len(piece.encode()))


def transaction_id(delivery_id: str, index: int) -> str:
    """Return the id of a piece, the same in every attempt: a homeserver accepts it only once."""
    return f"sessionary-{delivery_id}-{index}"


def content_of(text: str, thread: str | None) -> dict[str, Any]:
    """Return the content for a text: plain, and as HTML where that shows more."""
    content: dict[str, Any] = {"msgtype": "m.text", "body": text, **_in_thread(thread)}
    people = sorted(set(_PERSON.findall(text)))
    # Also when empty: otherwise clients look for names in the text.
    content["m.mentions"] = {"user_ids": people} if people else {}
    html = _MARKDOWN.render(text).strip()
    if html != f"<p>{text}</p>":
        rich = {**content, "format": "org.matrix.custom.html", "formatted_body": html}
        if len(json.dumps(rich)) <= _LARGEST_EVENT:
            return rich
    return content


def file_content(file: OutgoingFile, url: str, thread: str | None) -> dict[str, Any]:
    """Return the content for a file that was uploaded."""
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
    """Return the content for a notice, which bots do not answer."""
    return {"msgtype": "m.notice", "body": text, "m.mentions": {}}


def _in_thread(thread: str | None) -> dict[str, Any]:
    if thread is None:
        return {}
    relation = {"rel_type": "m.thread", "event_id": thread, "is_falling_back": True}
    return {"m.relates_to": {**relation, "m.in_reply_to": {"event_id": thread}}}
