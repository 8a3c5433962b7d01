"""Files that people send and that agents send, and the text that replaces a file that cannot be passed on."""

import hashlib
import mimetypes
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TypeVar

from sessionary.model.message import Attachment, Text
from sessionary.model.terminal import one_line

MEGABYTE = 1024 * 1024
# Slack posts a message four times.
MAX_ATTEMPTS = 4
_MAX_COUNTS = 1000
_MAX_NAME = 100
_MAX_REASON = 200
BYTES = "application/octet-stream"


class FileRefused(Exception):
    """The platform does not accept a file; the message is the reason."""


class FileTooLarge(Exception):
    """A file that a person sent is larger than the channel's limit."""


@dataclass(frozen=True, slots=True)
class IncomingFile:
    """A file that the platform keeps for us. `id` is what the platform gives its bytes for: an id or a URL."""

    id: str
    name: str | None = None
    media_type: str = BYTES
    size: int | None = None
    kind: str = ""

    @property
    def label(self) -> str:
        """What to call it: its name, else its kind or type."""
        return self.name or self.kind or self.media_type


@dataclass(frozen=True, slots=True)
class OutgoingFile:
    """A file of the agent, ready to be sent."""

    name: str
    media_type: str
    data: bytes = field(repr=False)

    @property
    def kind(self) -> str:
        """Return `image` for `image/png`."""
        return self.media_type.partition("/")[0]


K = TypeVar("K")
V = TypeVar("V")


class LatestDict(OrderedDict[K, V]):
    """A dictionary that keeps only the items that were set last, at most `limit` of them."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._limit:
            self.popitem(last=False)


class FailureCounter:
    """Counts failures by name, so that one thing that always fails does not block what comes after it."""

    def __init__(self) -> None:
        self._counts: LatestDict[str, int] = LatestDict(_MAX_COUNTS)

    def is_hopeless(self, name: str) -> bool:
        """Count a failure; return whether to go on without this thing."""
        self._counts[name] = self._counts.get(name, 0) + 1
        return self._counts[name] >= MAX_ATTEMPTS


def attachment(data: bytes, media_type: str, name: str | None = None) -> Attachment:
    """Return the part that names these bytes."""
    return Attachment(hashlib.sha256(data).hexdigest(), media_type, name, len(data))


def not_received_too_large(name: str, limit: int, size: int | None = None) -> Text:
    """Return what the agent reads in place of a file that is too large."""
    actual = "" if size is None else f" ({size / MEGABYTE:.1f} MB)"
    most = limit / MEGABYTE
    name = one_line(name, _MAX_NAME)
    return Text(f"[The file “{name}”{actual} is too large and was left out; at most {most:g} MB.]")


def not_received(name: str, reason: str | None = None) -> Text:
    """Return what the agent reads in place of a file that the platform does not give out."""
    why = "" if reason is None else f": {one_line(reason, _MAX_REASON).rstrip('.')}"
    name = one_line(name, _MAX_NAME)
    return Text(f"[The file “{name}” could not be fetched and was left out{why}.]")


def not_sent(file: Attachment, reason: str) -> str:
    """Return what the person reads in place of a file of the agent, and where they find it."""
    why = one_line(reason, _MAX_REASON)
    return f"[The file “{name_of(file)}” could not be sent: {why}. It is kept in the workbench.]"


def not_sent_too_large(file: Attachment, limit: int) -> str:
    """Return what the person reads in place of a file that is too large for the channel."""
    most = limit / MEGABYTE
    return not_sent(file, f"it is too large for this channel, which takes at most {most:g} MB")


def name_of(file: Attachment) -> str:
    """Return the file's name on one line and without a path, or a made-up one."""
    name = one_line((file.name or "").replace("\\", "/").rpartition("/")[2], _MAX_NAME)
    if name.strip(". "):
        return name
    return f"file{mimetypes.guess_extension(media_type_of(file)) or ''}"


def media_type_of(file: Attachment) -> str:
    """Return the media type without parameters; the type of plain bytes if it is not valid."""
    full = file.media_type.partition(";")[0].strip().lower()
    main, slash, sub = full.partition("/")
    is_valid = slash and full.isascii() and full.isprintable() and " " not in full and main and sub
    return full if is_valid else BYTES
