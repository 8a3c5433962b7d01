"""What is said, as the log keeps it and as a list shows it."""

from collections.abc import Sequence
from typing import Any

from hansard.importers.base import Said
from hansard.model import document
from hansard.model.title import preview

_PREVIEWED = 400


def body_text(said: Said, tool: str) -> str:
    """A message as the log keeps it."""
    body: dict[str, Any] = {"parts": said.parts}
    if said.person is not None:
        body["person"] = said.person
    if said.model is not None:
        body["model"] = said.model
    if said.finish_reason is not None:
        body["finish_reason"] = said.finish_reason
    if said.token_count is not None:
        body["token_count"] = said.token_count
    if said.id is not None:
        body["platform_message_id"] = said.id
    if said.role == "system":
        # Words of a system that is not ours: people read them, no model takes them for orders.
        body["extra"] = {"imported": tool} | (said.extra or {})
    elif said.extra:
        body["extra"] = said.extra
    return document.encode(body)


def preview_of(parts: Sequence[dict[str, Any]]) -> str | None:
    """The first words of a message; None when it has none."""
    words = "\n".join(part["text"] for part in parts if part["type"] == "text")
    return preview(words[:_PREVIEWED]) or None
