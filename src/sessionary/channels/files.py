"""Files that hang on messages: taken in up to a limit, and named where they are left out."""

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from sessionary.errors import RetryLater, SessionaryError
from sessionary.model.message import Attachment, Part, Text
from sessionary.model.terminal import one_line

MEGABYTE = 1024 * 1024
# Slack posts a message four times.
MOST_TRIES = 4
_MOST_FAILURES = 1000
_LONGEST_NAME = 100
_LONGEST_REASON = 200


@dataclass(frozen=True, slots=True)
class File:
    """A file that a platform holds for us."""

    name: str
    size: int
    url: str
    media_type: str = "application/octet-stream"


Fetch = Callable[[File], Awaitable[bytes]]


class Failures:
    """How often files could not be fetched: one that never can must not hold up what comes after."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, int] = OrderedDict()

    def is_hopeless(self, name: str) -> bool:
        """Note that a file could not be fetched now; whether to go on without it."""
        self._counts[name] = self._counts.pop(name, 0) + 1
        while len(self._counts) > _MOST_FAILURES:
            self._counts.popitem(last=False)
        return self._counts[name] >= MOST_TRIES


async def fetched(
    files: Iterable[File], largest: int, fetch: Fetch, failures: Failures
) -> tuple[tuple[Part, ...], tuple[bytes, ...]]:
    """The parts of a message for its files, and the bytes of those that were taken in.

    A file that may come later raises `RetryLater`, until it has failed too often.
    """
    parts: list[Part] = []
    held: list[bytes] = []
    for file in files:
        if file.size > largest:
            parts.append(too_large(file.name, largest, file.size))
            continue
        try:
            data = await fetch(file)
        except SessionaryError as error:  # the message is worth more than its file
            if isinstance(error, RetryLater) and not failures.is_hopeless(file.url):
                raise
            parts.append(gone(file.name))
            continue
        if len(data) > largest:  # it was said to be smaller
            parts.append(too_large(file.name, largest, len(data)))
            continue
        parts.append(attachment(data, file.media_type, file.name))
        held.append(data)
    return tuple(parts), tuple(held)


def too_large(name: str, largest: int, size: int | None = None) -> Text:
    """What stands in the place of a file that is not taken in: the agent and the person learn of it."""
    much = "" if size is None else f" ({size / MEGABYTE:.1f} MB)"
    most = largest / MEGABYTE
    return Text(
        f"[The file “{_short(name)}”{much} is too large and was left out; at most {most:g} MB.]"
    )


def gone(name: str, why: str | None = None) -> Text:
    """What stands in the place of a file that the platform does not give out."""
    reason = "" if why is None else f": {one_line(why, _LONGEST_REASON).rstrip('.')}"
    return Text(f"[The file “{_short(name)}” could not be fetched and was left out{reason}.]")


def attachment(data: bytes, media_type: str, name: str | None = None) -> Attachment:
    """The file that these bytes are."""
    return Attachment(hashlib.sha256(data).hexdigest(), media_type, name, len(data))


def _short(name: str) -> str:
    return one_line(name, _LONGEST_NAME)
