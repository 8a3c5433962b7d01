"""Files that hang on messages: taken in up to a limit, and named where they are left out."""

import hashlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from hansard.errors import HansardError, RetryLater
from hansard.model.part import Attachment, Part, Text
from hansard.model.terminal import one_line

MEGABYTE = 1024 * 1024
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class File:
    """A file that a platform holds for us."""

    name: str
    size: int
    url: str
    media_type: str = "application/octet-stream"


Fetch = Callable[[File], Awaitable[bytes]]


async def fetched(
    files: Iterable[File], largest: int, fetch: Fetch
) -> tuple[tuple[Part, ...], tuple[bytes, ...]]:
    """The parts of a message for its files, and the bytes of those that were taken in."""
    parts: list[Part] = []
    held: list[bytes] = []
    for file in files:
        if file.size > largest:
            parts.append(too_large(file, largest))
            continue
        try:
            data = await fetch(file)
        except RetryLater:
            raise
        except HansardError:  # the message is worth more than its file
            parts.append(gone(file))
            continue
        if len(data) > largest:  # it was said to be smaller
            parts.append(too_large(file, largest))
            continue
        name = hashlib.sha256(data).hexdigest()
        parts.append(Attachment(name, file.media_type, file.name, len(data)))
        held.append(data)
    return tuple(parts), tuple(held)


def too_large(file: File, largest: int) -> Text:
    """What stands in the place of a file that is not taken in: the person learns of it."""
    name, most = one_line(file.name, _LONGEST_NAME), largest / MEGABYTE
    return Text(f"[The file “{name}” is too large and was left out; at most {most:g} MB.]")


def gone(file: File) -> Text:
    """What stands in the place of a file that the platform does not give out."""
    name = one_line(file.name, _LONGEST_NAME)
    return Text(f"[The file “{name}” could not be read and was left out.]")
