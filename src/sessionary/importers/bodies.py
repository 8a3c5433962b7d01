"""What is said, as the log keeps it and as a list shows it."""

from collections.abc import Sequence
from typing import Any

import msgspec

from sessionary.importers.base import Said
from sessionary.model import document
from sessionary.model.title import preview

_PREVIEWED = 400


class _Body(msgspec.Struct, omit_defaults=True, gc=False):
    """The fields of a message in their order; what says nothing is left out."""

    parts: list[dict[str, Any]]
    person: dict[str, Any] | None = None
    model: str | None = None
    finish_reason: str | None = None
    token_count: int | None = None
    platform_message_id: str | None = None
    extra: dict[str, Any] | None = None


_encode = msgspec.json.Encoder().encode


def body_text(said: Said, tool: str) -> str:
    """A message as the log keeps it."""
    extra = said.extra
    if said.role == "system":
        # Words of a system that is not ours: people read them, no model takes them for orders.
        extra = {"imported": tool} | (extra or {})
    body = _Body(
        said.parts,
        said.person,
        said.model,
        said.finish_reason,
        said.token_count,
        said.id,
        extra or None,
    )
    try:
        return _encode(body).decode()
    except UnicodeEncodeError:
        # Half of a surrogate pair.
        known = ((name, getattr(body, name)) for name in body.__struct_fields__)
        return document.encode({name: value for name, value in known if value is not None})


def preview_of(parts: Sequence[dict[str, Any]]) -> str | None:
    """The first words of a message; None when it has none."""
    words = "\n".join(part["text"] for part in parts if part["type"] == "text")
    return preview(words[:_PREVIEWED]) or None
