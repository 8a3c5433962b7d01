"""Exports of chat services: a zip, a folder or a file with a list of conversations, or with one."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Protocol

from sessionary.errors import BadInput
from sessionary.importers.base import compressed, documents, files
from sessionary.importers.base.events import Unit

LIST = re.compile(r"\Aconversations(?:-\d{1,6})?\.json\Z")
# A file that goes with a message has at most so many bytes.
MAX_FILE = 64 * 1024 * 1024
_HEAD = 256 * 1024
# What lies in the folder of an export and hardly anywhere else.
_BESIDE = ("chat.html", "user.json", "users.json")


class ExportFiles(Protocol):
    """Where the files of an export lie beside its list."""

    def names(self) -> list[str]:
        """What they are called."""

    def data(self, name: str, most: int) -> bytes | None:
        """The bytes of one; None when there is none or it is too large."""


class ExportFolder:
    """The files of an export that was unpacked. A list alone may lie among anything."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _paths(self) -> dict[str, Path]:
        is_export = any(files.is_file(self._path / each) for each in _BESIDE)
        found = files.walk(self._path, suffixes=("",), depth=3 if is_export else 0)
        return {str(each.relative_to(self._path)): each for each in found}

    def names(self) -> list[str]:
        """What the files are called."""
        return list(self._paths)

    def data(self, name: str, most: int) -> bytes | None:
        """The bytes of one; None when there is none or it is too large."""
        path = self._paths.get(name)
        if path is None or files.size_of(path) > most:
            return None
        try:
            with files.opened(path) as file:
                return file.read(most)
        except (BadInput, OSError):
            return None


def find(place: Path) -> Iterator[Unit]:
    """The lists of an export: a zip is one unit, each list of a folder another."""
    if files.is_file(place):
        yield Unit(str(place), place, files.stamp_of(place), files.size_of(place))
        return
    for path in files.walk(place, suffixes=(".json", ".zip"), depth=1):
        if LIST.match(path.name) or (path.suffix == ".zip" and compressed.is_zip(path)):
            yield Unit(str(path), path, files.stamp_of(path), files.size_of(path))


def has(place: Path, sign: bytes, *, alone: bytes) -> bool:
    """Whether a zip, a folder or a file begins with a list of conversations, or is a single one.

    `sign` is a word of the format; a single conversation must also have the word `alone`.
    """
    try:
        for unit in find(place):
            with lists(unit.path) as (found, _):
                for _, file in found:
                    head = file.read(_HEAD).lstrip(b"\xef\xbb\xbf \t\r\n")
                    wanted = (sign, alone) if head.startswith(b"{") else (sign,)
                    if head.startswith((b"[", b"{")) and all(each in head for each in wanted):
                        return True
    except (BadInput, OSError):
        pass
    return False


def conversations(path: Path) -> Iterator[tuple[str, documents.Item, ExportFiles]]:
    """Each item of a unit's lists: where it stands, what it is, and the files beside it."""
    with lists(path) as (found, shelf):
        for name, file in found:
            for item in documents.items(file):
                yield f"{name} conversation {item.number + 1}", item, shelf


@contextmanager
def lists(path: Path) -> Iterator[tuple[Iterator[tuple[str, BinaryIO]], ExportFiles]]:
    """The lists of one unit, each open while it is read, and the files that lie beside them."""
    if compressed.is_zip(path):
        with compressed.opened(path) as archive:
            yield _members(path, archive), archive
    else:
        with files.opened(path) as file:
            yield iter([(path.name, file)]), ExportFolder(path.parent)


def _members(path: Path, archive: compressed.Archive) -> Iterator[tuple[str, BinaryIO]]:
    names = sorted(n for n in archive.names() if LIST.match(compressed.base_name(n)))
    if not names:
        raise BadInput(f"{path} has no conversations.json; it is no export of conversations.")
    for name in names:
        with archive.member(name) as file:
            yield name, file
