"""What the integrations share: the client, missing extras, files, and readable parts of messages."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from sessionary.clock import Moment
from sessionary.formats.parts import Content
from sessionary.model.message import Attachment, Part, ToolResult, Unknown, from_json
from sessionary.model.usage import Usage
from sessionary.store.database import Pending, Store, Tx
from sessionary.store.tables import blobs

T = TypeVar("T")
_ANY_TYPE = "application/octet-stream"
_LONGEST_SHOWN = 500


class SessionaryClient(Protocol):
    """What an integration uses of a client, synchronous or asynchronous."""

    @property
    def store(self) -> Store:
        """The database, open."""

    @property
    def profile(self) -> str:
        """The namespace of its sessions."""

    @property
    def holder(self) -> str:
        """Who holds the leases that are taken here."""

    def moment(self) -> Moment:
        """Now, and where fresh ids come from."""

    def priced(self, used: Usage | None, *, at: datetime | None) -> Usage | None:
        """A call with its cost as far as it is known."""


def read_nothing(tx: Tx) -> None:
    """Read nothing: a call without anything to write still fails on a closed store."""


async def wait_for_write(pending: Pending[T]) -> T:
    """Wait for a write; a cancellation meanwhile is raised once the write is done.

    A write that has begun cannot be cancelled: a task that left at once would not know whether its
    messages are in the log.
    """
    cancelled: asyncio.CancelledError | None = None
    while True:
        try:
            value = await pending
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
            continue
        if cancelled is not None:
            raise cancelled
        return value


@contextmanager
def require_extra(extra: str, what: str) -> Iterator[None]:
    """Import an SDK in this block; if it is missing, the error names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{what} needs an extra: install sessionary[{extra}] ({error}).", name=error.name
        ) from None


class NewFiles:
    """Files to be stored in the transaction of their messages."""

    def __init__(self) -> None:
        self._found: dict[str, bytes] = {}

    def add(self, data: bytes, media_type: str | None, name: str | None = None) -> Attachment:
        """Add a file and return it as a part of a message."""
        blob = blobs.hash_of(data)
        self._found[blob] = data
        return Attachment(blob, media_type or _ANY_TYPE, name, len(data))

    def keep(self, tx: Tx) -> None:
        """Store the files; the messages follow in the same transaction."""
        for data in self._found.values():
            blobs.add(tx, data)


def parts_of(content: Content, files: NewFiles, *, form: str) -> tuple[Part, ...]:
    """The parts of a content; its files are added to `files`.

    What we have no part for is named by its form and type, with long texts cut.
    """
    for data in content.blobs:
        files.add(data, None)
    return tuple(_shown(from_json(part), form) for part in content.parts)


def _shown(part: Part, form: str) -> Part:
    match part:
        case Unknown(data):
            return Unknown(_cut_fields(data) | {"type": f"{form}:{data.get('type')}"})
        case ToolResult(content=list(given)):
            return replace(part, content=_cut(given))
    return part


def _cut_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _cut(value) for name, value in data.items()}


def _cut(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value)
    return value if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
