"""Files that an agent gives out: their bytes, or words in the place of those that cannot be sent."""

import logging
import mimetypes
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from sessionary.channels.files import MEGABYTE
from sessionary.config.table import Table
from sessionary.engine.ports import DeliveryServices
from sessionary.errors import NotFound
from sessionary.model.message import Attachment, Part
from sessionary.model.terminal import one_line
from sessionary.model.turn import Delivery

_LONGEST_NAME = 100
log = logging.getLogger("sessionary.channels")

Result = TypeVar("Result")


class FileRefused(Exception):
    """A platform does not take a file; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Enclosure:
    """A file on its way to a person."""

    name: str
    media_type: str
    data: bytes = field(repr=False)

    @property
    def kind(self) -> str:
        """`image` of `image/png`."""
        return self.media_type.partition("/")[0].strip().lower()


class Enclosures:
    """Finds the files of deliveries at the desk of the outbox."""

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self.desk: DeliveryServices | None = None

    async def hand_over(
        self,
        delivery: Delivery,
        file: Attachment,
        *,
        give: Callable[[Enclosure], Awaitable[Result]],
        say: Callable[[str], Awaitable[Result]],
    ) -> Result:
        """Give a file to a platform, or say there why it does not come."""
        found = await self.find(delivery, file)
        if isinstance(found, str):
            return await say(found)
        try:
            return await give(found)
        except FileRefused as error:
            log.warning("%s does not take a file: %s", delivery.channel.platform, error)
            return await say(not_sent(file, str(error)))

    async def find(self, delivery: Delivery, file: Attachment) -> Enclosure | str:
        """A file as it is sent, or what is said instead."""
        if file.size is not None and file.size > self.largest:
            return too_large(file, self.largest)
        try:
            data = b"" if self.desk is None else await self.desk.blob(delivery, file.blob)
        except NotFound:
            return not_sent(file, "its bytes are no longer kept")
        if not data:
            return not_sent(file, "it is empty")
        if len(data) > self.largest:  # it was said to be smaller
            return too_large(file, self.largest)
        return Enclosure(name_of(file), media_type_of(file), data)


def largest_sent(table: Table, default: int) -> int:
    """How large a file may be that is sent, from a channel's configuration."""
    return round(table.number("largest_sent_mb", default / MEGABYTE) * MEGABYTE)


def files_of(parts: tuple[Part, ...]) -> list[Attachment]:
    """The files of a delivery."""
    return [part for part in parts if isinstance(part, Attachment)]


def name_of(file: Attachment) -> str:
    """A name that is one line and no path; made up where there is none."""
    name = one_line((file.name or "").replace("\\", "/").rpartition("/")[2], _LONGEST_NAME)
    if name.strip(". "):
        return name
    return f"file{mimetypes.guess_extension(media_type_of(file)) or ''}"


def media_type_of(file: Attachment) -> str:
    """The media type without parameters; bytes where it is none."""
    kind = file.media_type.partition(";")[0].strip().lower()
    main, slash, sub = kind.partition("/")
    is_one = slash and kind.isascii() and kind.isprintable() and " " not in kind and main and sub
    return kind if is_one else "application/octet-stream"


def too_large(file: Attachment, largest: int) -> str:
    """What is said of a file that is too large for this channel."""
    most = largest / MEGABYTE
    return not_sent(file, f"it is too large for this channel, which takes at most {most:g} MB")


def not_sent(file: Attachment, reason: str) -> str:
    """What stands in the place of a file; the person learns of it and where it is."""
    why = one_line(reason, 200)
    return f"[The file “{name_of(file)}” could not be sent: {why}. It is kept in the workbench.]"
