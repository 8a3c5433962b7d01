"""Zip and zstd files, read as streams; and the exports of chat services."""

import io
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, cast

import zstandard

from sessionary.errors import BadInput
from sessionary.formats import coerce
from sessionary.formats.coerce import Json
from sessionary.importers.base import files
from sessionary.importers.base.events import Event, Importer, Skipped, Unit

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# The directory of a zip is read into memory: an export has some thousand files, not millions.
MAX_DIRECTORY = 64 * 1024 * 1024
MAX_MEMBER = 64 * 1024 * 1024 * 1024
# Text compresses ten or twenty times; what compresses far more is a zip bomb.
MAX_RATIO = 200
_SMALL = 16 * 1024 * 1024
_END = b"PK\x05\x06"
_END_64 = b"PK\x06\x06"
_LOCATOR_64 = b"PK\x06\x07"
_LONGEST_END = 65_557
_FULL = 0xFFFFFFFF
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError)


def is_zip(path: Path) -> bool:
    """Whether a regular file begins like a zip."""
    return files.head(path, 4) in (b"PK\x03\x04", b"PK\x05\x06")


class Archive:
    """The files in a zip, by name."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        _refuse_large_directory(path, file)
        try:
            self._zip = zipfile.ZipFile(file)
        except (*_BROKEN, ValueError) as error:
            raise BadInput(f"{path} is no zip file that can be read ({error}).") from error

    def names(self) -> list[str]:
        """Return the names of its files; they are never used as paths."""
        return [each.filename for each in self._zip.infolist() if not each.is_dir()]

    @contextmanager
    def member(self, name: str) -> Iterator[BinaryIO]:
        """Open one file as a stream; raises `BadInput` if it is damaged, encrypted or a bomb."""
        try:
            info = self._zip.getinfo(name)
            _refuse_bomb(self.path, info)
            with self._zip.open(info) as file:
                yield cast(BinaryIO, _Bounded(file, info.file_size, f"{name[:100]} in {self.path}"))
        except KeyError as error:
            raise BadInput(f"{self.path} has no {name[:100]}.") from error
        except _BROKEN as error:
            raise BadInput(f"{name[:100]} in {self.path} cannot be read ({error}).") from error

    def data(self, name: str, most: int) -> bytes | None:
        """Return the bytes of a small file; None if it is larger or cannot be read."""
        try:
            if self._zip.getinfo(name).file_size > most:
                return None
            with self.member(name) as file:
                return file.read(most)
        except (BadInput, KeyError):
            return None

    def conversation_lists(self) -> Iterator[tuple[str, BinaryIO]]:
        """Yield the lists of conversations, each open until the next one is asked for."""
        names = sorted(n for n in self.names() if CONVERSATION_LIST.match(base_name(n)))
        if not names:
            why = "has no conversations.json; it is no export of conversations."
            raise BadInput(f"{self.path} {why}")
        for name in names:
            with self.member(name) as file:
                yield name, file


class _Bounded:
    """A stream that ends after the size in the zip's directory."""

    def __init__(self, file: object, size: int, name: str) -> None:
        self._file = cast(BinaryIO, file)
        self._left = size
        self._name = name

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        try:
            data = self._file.read(wanted) if wanted else b""
        except _BROKEN as error:
            raise BadInput(f"{self._name} cannot be read further ({error}).") from error
        self._left -= len(data)
        return data


@contextmanager
def open_zip(path: Path) -> Iterator[Archive]:
    """Open a zip for reading."""
    with files.opened(path) as file:
        yield Archive(path, file)


def base_name(name: str) -> str:
    """Return the last component of a name in a zip."""
    return PurePosixPath(name.replace("\\", "/")).name


def _refuse_bomb(path: Path, info: zipfile.ZipInfo) -> None:
    if info.file_size > MAX_MEMBER:
        raise BadInput(f"{info.filename[:100]} in {path} is larger than {MAX_MEMBER >> 30} GiB.")
    packed = max(1, info.compress_size)
    if info.file_size > _SMALL and info.file_size / packed > MAX_RATIO:
        raise BadInput(
            f"{info.filename[:100]} in {path} would unpack to {info.file_size // packed:,} times "
            "its size; it was left alone."
        )


def _refuse_large_directory(path: Path, file: BinaryIO) -> None:
    """Check the directory's size before Python reads it into memory."""
    length = file.seek(0, os.SEEK_END)
    file.seek(max(0, length - _LONGEST_END))
    tail = file.read(_LONGEST_END)
    at = tail.rfind(_END)
    if at < 0 or len(tail) < at + 22:
        raise BadInput(f"{path} is no zip file, or not all of it is there.")
    size = struct.unpack("<L", tail[at + 12 : at + 16])[0]
    if size == _FULL:
        size = _size_64(file, tail[:at])
    if size > MAX_DIRECTORY:
        raise BadInput(f"{path} has a directory of more than {MAX_DIRECTORY >> 20} MiB.")
    file.seek(0)


def _size_64(file: BinaryIO, before: bytes) -> int:
    at = before.rfind(_LOCATOR_64)
    if at < 0 or len(before) < at + 20:
        return 0
    file.seek(struct.unpack("<Q", before[at + 8 : at + 16])[0] & (2**62 - 1))
    record = file.read(56)
    if not record.startswith(_END_64) or len(record) < 56:
        return MAX_DIRECTORY + 1
    return int(struct.unpack("<Q", record[40:48])[0])


MAX_DECOMPRESSED = 4 * 1024 * 1024 * 1024
_WINDOW = 128 * 1024 * 1024


def decompressed(packed: BinaryIO, *, most: int = MAX_DECOMPRESSED) -> BinaryIO:
    """Decompress a stream; raises `BadInput` if it is damaged or has more bytes than `most`."""
    return cast(BinaryIO, io.BufferedReader(_Decompressed(packed, most), 1024 * 1024))


class _Decompressed(io.RawIOBase):
    """A decompressed stream that can only be read forwards."""

    def __init__(self, packed: BinaryIO, most: int) -> None:
        unpacker = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
        self._packed = packed
        self._stream = unpacker.stream_reader(packed, read_across_frames=True)
        self._most = most
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, place: int, whence: int = io.SEEK_SET) -> int:
        """Skip forward by reading."""
        wanted = place if whence == io.SEEK_SET else self._place + place
        if whence == io.SEEK_END or wanted < self._place:
            raise io.UnsupportedOperation("what was unpacked is gone")
        while self._place < wanted:
            step = min(wanted - self._place, io.DEFAULT_BUFFER_SIZE)
            if not self.readinto(bytearray(step)):
                break
        return self._place

    def readinto(self, into: "WriteableBuffer") -> int:
        view = memoryview(into).cast("B")
        try:
            data = self._stream.read(len(view))
        except zstandard.ZstdError as error:
            raise BadInput(f"It cannot be unpacked ({error}).") from error
        self._place += len(data)
        if self._place > self._most:
            raise BadInput(f"It unpacks to more than {self._most:,} bytes; it was left alone.")
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._packed.close()
        super().close()


CONVERSATION_LIST = re.compile(r"\Aconversations(?:-\d{1,6})?\.json\Z")
# The largest attachment that is imported.
MAX_FILE = 64 * 1024 * 1024
_HEAD = 256 * 1024
# Files that only the folder of an export has.
_BESIDE = ("chat.html", "user.json", "users.json")


class ExportFolder:
    """The files of an unpacked export. A list alone may be in any folder: then only that one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _paths(self) -> dict[str, Path]:
        is_export = any(files.is_file(self._path / each) for each in _BESIDE)
        found = files.walk(self._path, suffixes=("",), depth=3 if is_export else 0)
        return {str(each.relative_to(self._path)): each for each in found}

    def names(self) -> list[str]:
        """Return the names of its files."""
        return list(self._paths)

    def data(self, name: str, most: int) -> bytes | None:
        """Return the bytes of a file; None if there is none, or it is larger or cannot be read."""
        path = self._paths.get(name)
        if path is None or files.size_of(path) > most:
            return None
        try:
            with files.opened(path) as file:
                return file.read(most)
        except (BadInput, OSError):
            return None


# The files of an export beside its list of conversations.
ExportFiles = Archive | ExportFolder


class ExportImporter(Importer):
    """An importer for the exports of a chat service.

    `sign` is a word of its list of conversations; a file with a single one must also have `alone`.
    """

    sign: bytes
    alone: bytes

    def recognises(self, path: Path) -> bool:
        """Return whether a zip or file begins with a list of conversations, or with one."""
        try:
            with conversation_lists(path) as (found, _):
                for _, file in found:
                    head = file.read(_HEAD).lstrip(b"\xef\xbb\xbf \t\r\n")
                    wanted = (self.sign, self.alone) if head.startswith(b"{") else (self.sign,)
                    if head.startswith((b"[", b"{")) and all(each in head for each in wanted):
                        return True
        except (BadInput, OSError):
            pass
        return False

    def find(self, place: Path) -> Iterator[Unit]:
        """Yield the units of an export: a zip, or each list in a folder."""
        if files.is_file(place):
            yield files.unit(place)
            return
        for path in files.walk(place, suffixes=(".json", ".zip"), depth=1):
            if CONVERSATION_LIST.match(path.name) or (path.suffix == ".zip" and is_zip(path)):
                yield files.unit(path)


def export_events(
    path: Path, take: Callable[[Json, str, ExportFiles], Iterable[Event]]
) -> Iterator[Event]:
    """Yield the events that `take` makes of each conversation, its place and the export's files."""
    with conversation_lists(path) as (found, export_files):
        for name, file in found:
            for item in files.json_items(file):
                where = f"{name} conversation {item.number + 1}"
                if item.why is not None:
                    yield Skipped(where=where, why=item.why)
                else:
                    yield from take(coerce.record(item.data), where, export_files)


@contextmanager
def conversation_lists(path: Path) -> Iterator[tuple[Iterator[tuple[str, BinaryIO]], ExportFiles]]:
    """Open the lists of a unit, one after the other, and the files beside them."""
    if is_zip(path):
        with open_zip(path) as archive:
            yield archive.conversation_lists(), archive
    else:
        with files.opened(path) as file:
            yield iter([(path.name, file)]), ExportFolder(path.parent)
