"""A session at a glance: what was asked, which files were touched, how full the context is."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from msgspec import Struct

from sessionary.actions.sessions import read
from sessionary.model import codec
from sessionary.model.message import Entry, Message, Role, ToolCall
from sessionary.model.session import SessionHead
from sessionary.model.tokens import estimate
from sessionary.store.database import Tx
from sessionary.store.tables import sessions

_LONGEST_PROMPT = 200
_MOST_FILES = 500
_PATHS = ("path", "file_path", "file", "filename", "notebook_path")
_WRITING = ("edit", "write", "replace", "patch", "create", "delete", "move")
KINDS = ("system", "user", "assistant", "tools", "reasoning")


class SessionPrompt(Struct, frozen=True):
    """What a person asked, in short, and where."""

    seq: int
    text: str
    at: datetime


class SessionFile(Struct, frozen=True):
    """A file that a tool named, and whether one changed it."""

    path: str
    changed: bool
    seq: int


class Overview(Struct, frozen=True):
    """A session at a glance; the sizes are estimates in tokens, by kind."""

    prompts: tuple[SessionPrompt, ...]
    files: tuple[SessionFile, ...]
    sizes: Mapping[str, int]
    ancestors: tuple[SessionHead, ...]
    children: tuple[SessionHead, ...]


def overview(tx: Tx, id: str, *, profile: str) -> Overview:
    """Read a session once, from its beginning to its end."""
    head = read.get_head(tx, id, profile=profile)
    entries = read.read_transcript(tx, id, profile=profile)
    return Overview(
        tuple(_prompts(entries)),
        _files(entries),
        _sizes(tx, head),
        tuple(_ancestors(tx, head)),
        tuple(read.list_children(tx, head)),
    )


def _prompts(entries: list[Entry]) -> Iterator[SessionPrompt]:
    for entry in entries:
        body = entry.body
        if isinstance(body, Message) and body.role is Role.USER and body.text.strip():
            yield SessionPrompt(entry.seq, " ".join(body.text.split())[:_LONGEST_PROMPT], entry.at)


def _files(entries: list[Entry]) -> tuple[SessionFile, ...]:
    found: dict[str, SessionFile] = {}
    for entry in entries:
        parts = entry.body.parts if isinstance(entry.body, Message) else ()
        for part in parts:
            path = _path(part) if isinstance(part, ToolCall) else None
            if isinstance(part, ToolCall) and path:
                changes = any(word in part.name.lower() for word in _WRITING)
                before = found.pop(path, None)
                is_changed = changes or (before is not None and before.changed)
                found[path] = SessionFile(path, is_changed, entry.seq)
    return tuple(list(found.values())[-_MOST_FILES:])


def _path(call: ToolCall) -> str | None:
    given: Any = call.arguments
    if isinstance(given, str):
        with suppress(ValueError, RecursionError):
            given = codec.decode(given)
    if not isinstance(given, Mapping):
        return None
    named = (given.get(name) for name in _PATHS)
    return next((path for path in named if isinstance(path, str) and path), None)


def _sizes(tx: Tx, head: SessionHead) -> dict[str, int]:
    sizes = dict.fromkeys(KINDS, 0)
    prompt = read.get_system_prompt(tx, head)
    sizes["system"] += estimate(prompt) if prompt else 0
    for chat in read.read_context(tx, head.id, profile=head.profile):
        role = "tools" if chat["role"] == "tool" else chat["role"]
        sizes[role if role in sizes else "system"] += estimate(chat["content"])
        sizes["tools"] += estimate(chat["tool_calls"]) if "tool_calls" in chat else 0
        sizes["reasoning"] += estimate(chat["reasoning"]) if "reasoning" in chat else 0
    return sizes


def _ancestors(tx: Tx, head: SessionHead) -> Iterator[SessionHead]:
    """Those it came from, nearest first; a damaged record may name a circle."""
    seen = {head.id}
    while head.parent_id is not None and head.parent_id not in seen:
        seen.add(head.parent_id)
        found = sessions.get(tx, head.parent_id, profile=head.profile)
        if found is None:
            return
        yield found
        head = found
