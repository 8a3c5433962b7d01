"""Other tools' files: opened for reading only, never through a link; JSON in them is read within limits."""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from sessionary.errors import BadInput
from sessionary.formats import coerce
from sessionary.formats.coerce import MAX_DEPTH, Json, decode_json, is_deep, is_heavy
from sessionary.importers.base.events import Checkpoint, Event, Resume, Skipped, Unit
from sessionary.store.tables.blobs import hash_of

MAX_WALK_DEPTH = 12
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = 7 * 10**15
# How much of a file's beginning is cached.
_CACHED_HEAD = 64 * 1024
_heads: ContextVar[dict[Path, tuple[bytes, int]] | None] = ContextVar("heads")
_closed: ContextVar[list[tuple[Path, str]]] = ContextVar("closed")
# Without following links and without waiting for pipes, on systems that can.
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def opened(path: Path, *, buffer: int = -1) -> BinaryIO:
    """Open a regular file for reading; anything else is refused."""
    try:
        descriptor = os.open(path, _FLAGS | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        raise BadInput(_refusal(path, error)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BadInput(f"{path} is not a regular file; it was left alone.")
    return os.fdopen(descriptor, "rb", buffer)


def head(path: Path, size: int = 4096) -> bytes:
    """Return the first bytes of a file; none if it cannot be read."""
    cache = _heads.get(None)
    if cache is None:
        return _head(path, size)
    data, asked = cache.get(path, (b"", 0))
    if asked < size and (asked == 0 or len(data) == asked):
        asked = max(size, _CACHED_HEAD)
        cache[path] = data, _ = _head(path, asked), asked
    return data[:size]


def json_head(path: Path, size: int = 4096) -> bytes:
    """Return the first bytes of a file, without a byte order mark and white space before them."""
    return head(path, size).lstrip(_BOM + b" \t\r\n")


def _head(path: Path, size: int) -> bytes:
    try:
        with opened(path) as file:
            return file.read(size)
    except (BadInput, OSError):
        return b""


@contextmanager
def caching_heads() -> Iterator[None]:
    """Read the beginning of each file only once inside the block: every importer asks for it."""
    before = _heads.set({})
    try:
        yield
    finally:
        _heads.reset(before)


def stamp_of(*paths: Path) -> str:
    """Return a text that changes when one of the files does: inode, size and time of each."""
    return ";".join(
        "-" if found is None else f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"
        for found in map(_lstat, paths)
    )


def size_of(*paths: Path) -> int:
    """Return how many bytes the files have together."""
    return sum(found.st_size for found in map(_lstat, paths) if found is not None)


def changed_at(path: Path) -> datetime:
    """Return when a file was last written: the time of records that have none of their own."""
    found = _lstat(path)
    micros = 0 if found is None else found.st_mtime_ns // 1000
    # A file system may hold years that no calendar has.
    return _EPOCH + timedelta(microseconds=min(max(0, micros), _LATEST))


def identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file; None if there is none."""
    found = _lstat(path)
    return None if found is None else (found.st_dev, found.st_ino)


def unit(path: Path, *beside: Path, hint: Any = None) -> Unit:
    """Return a file as a unit; its stamp covers the files that are read with it."""
    return Unit(str(path), path, stamp_of(path, *beside), size_of(path), beside=beside, hint=hint)


def tail(path: Path, place: int, size: int = 256) -> str:
    """Return a digest of the bytes before an offset: it stays the same while the file only grows."""
    with opened(path) as file:
        file.seek(max(0, place - size))
        return hash_of(file.read(min(place, size)))


def walk(
    place: Path,
    *,
    suffixes: tuple[str, ...],
    depth: int = MAX_WALK_DEPTH,
    skip: frozenset[str] = frozenset(),
) -> Iterator[Path]:
    """Yield the files below a directory with these suffixes, in order; links are not followed.

    Directories named in `skip` are not searched.
    """
    try:
        with os.scandir(place) as found:
            inside = sorted(found, key=lambda each: each.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        _closed.get([]).append((place, error.strerror or str(error)))
        return
    for each in inside:
        if each.is_symlink():
            continue
        if each.is_dir(follow_symlinks=False):
            if depth > 0 and each.name not in skip:
                yield from walk(Path(each.path), suffixes=suffixes, depth=depth - 1, skip=skip)
        elif each.is_file(follow_symlinks=False) and each.name.endswith(suffixes):
            yield Path(each.path)


def named_or_below(
    place: Path, *, suffixes: tuple[str, ...], depth: int = MAX_WALK_DEPTH
) -> Iterable[Path]:
    """Return the file that was named, or the files below a directory."""
    return [place] if is_file(place) else walk(place, suffixes=suffixes, depth=depth)


@contextmanager
def noting_closed() -> Iterator[list[tuple[Path, str]]]:
    """Collect the directories that walks inside the block could not list, and why."""
    noted: list[tuple[Path, str]] = []
    before = _closed.set(noted)
    try:
        yield noted
    finally:
        _closed.reset(before)


def is_file(path: Path) -> bool:
    """Whether a path is a regular file, and not a link to one."""
    found = _lstat(path)
    return found is not None and stat.S_ISREG(found.st_mode)


def is_directory(path: Path) -> bool:
    """Whether a path is a directory, and not a link to one."""
    found = _lstat(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def _lstat(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (OSError, ValueError):
        return None


def _refusal(path: Path, error: OSError) -> str:
    if os.path.islink(path):
        return f"{path} is a link; links are not followed."
    return f"{path} cannot be read ({error.strerror}); it was left alone."


MAX_LINE = 64 * 1024 * 1024
# How much of a file is read to recognise it; a first line may hold a picture.
FIRST_BYTES = 256 * 1024
LONG_FIRST_LINE = 16 * 1024 * 1024
_LINE_CHUNK = 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_NEWLINE = ord("\n")


class JsonLine(NamedTuple):
    """One line: where it begins and ends, and its object, or why it has none."""

    start: int
    end: int
    data: Json | None
    why: str | None = None

    @property
    def where(self) -> str:
        """The place of the line, for reports and as an id."""
        return f"byte {self.start}"

    @property
    def skipped(self) -> Skipped:
        """The event for a line that could not be read."""
        return Skipped(where=self.where, why=self.why or "")


def read_json_lines(path: Path) -> Iterator[JsonLine]:
    """Yield the lines of a file of JSON objects."""
    with opened(path) as file:
        yield from json_lines(file)


def resumable_events(
    path: Path,
    resume: Resume | None,
    take: Callable[[Json, str], Iterable[Event]],
    *,
    state: Callable[[], Any] = lambda: None,
) -> Iterator[Event]:
    """Yield the events that `take` makes of each line, and a checkpoint with the `state` after it."""
    start = 0 if resume is None else resume.place
    yield Checkpoint(place=start, note=state())
    with opened(path) as file:
        for line in json_lines(file, start):
            if line.data is None:
                yield line.skipped
            else:
                yield from take(line.data, line.where)
            yield Checkpoint(place=line.end, note=state())


def json_lines(file: BinaryIO, start: int = 0, *, max_line: int = MAX_LINE) -> Iterator[JsonLine]:
    """Yield the objects of a file from a byte offset on.

    A last line without its end is still being written: it is left for the next import. Blank lines
    are ignored. A line that is too long is reported without being held in memory.
    """
    for begin, end, text in raw_lines(file, start, max_line=max_line):
        if text is None:
            yield JsonLine(
                begin, end, None, f"longer than {max_line:,} bytes, or of too many values"
            )
            continue
        stripped = text.strip(b" \t\r\n\x00")
        if begin == 0:
            stripped = stripped.removeprefix(_BOM)
        if not stripped:
            continue
        yield _line(begin, end, stripped)


def raw_lines(
    file: BinaryIO, start: int = 0, *, max_line: int = MAX_LINE
) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield begin, end and bytes of each finished line; None for one that is too large."""
    file.seek(start)
    begin, most, readline = start, max_line + 1, file.readline
    while text := readline(most):
        end = begin + len(text)
        if text[-1] == _NEWLINE:
            yield begin, end, None if is_heavy(text) else text
        elif len(text) > max_line:
            past = _past_line(file, end)
            if past is None:
                return
            end = past
            yield begin, end, None
        else:
            if _is_whole(text):
                yield begin, end, text
            return
        begin = end


def first_objects(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects in the first lines of a file, which tell which tool wrote it."""
    data = head(path, FIRST_BYTES)
    if len(data) == FIRST_BYTES and b"\n" not in data:
        data = head(path, LONG_FIRST_LINE)
    # A last line that was cut off is ignored.
    for line in json_lines(BytesIO(data)):
        if line.data is not None:
            yield line.data


def _past_line(file: BinaryIO, at: int) -> int | None:
    """Return where the current line ends; None if the file ends first."""
    while chunk := file.read(_LINE_CHUNK):
        newline = chunk.find(b"\n")
        if newline >= 0:
            file.seek(at + newline + 1)
            return at + newline + 1
        at += len(chunk)
    return None


def _is_whole(text: bytes) -> bool:
    """Whether a last line without a newline is complete: some tools write none."""
    return _line(0, len(text), text.strip(b" \t\r\n\x00")).data is not None


def _line(begin: int, end: int, text: bytes) -> JsonLine:
    try:
        data = decode_json(text)
    except (ValueError, RecursionError) as error:
        return JsonLine(begin, end, None, f"not JSON ({str(error)[:100]})")
    if not isinstance(data, dict):
        return JsonLine(begin, end, None, f"not an object but {type(data).__name__}")
    if text.count(b"{") + text.count(b"[") > MAX_DEPTH and is_deep(data):
        return JsonLine(begin, end, None, f"nested deeper than {MAX_DEPTH} levels")
    return JsonLine(begin, end, data)


MAX_DOCUMENT = 256 * 1024 * 1024


def read_json(path: Path, *, most: int = MAX_DOCUMENT) -> Any:
    """Return the document in a file; raises `BadInput` if it is too large or not JSON."""
    if size_of(path) > most:
        raise BadInput(f"{path} is larger than {most:,} bytes; it was left alone.")
    with opened(path) as file:
        text = file.read(most + 1)
    if coerce.is_heavy(text):
        raise BadInput(f"{path} holds too many values; it was left alone.")
    found = coerce.parse_json(text.removeprefix(_BOM))
    if found is None:
        raise BadInput(f"{path} is not JSON, or not all of it is there; it was left alone.")
    return found


def read_json_if_any(path: Path, *, most: int = MAX_DOCUMENT) -> Any:
    """Return the document in a file; None if it cannot be read."""
    try:
        return read_json(path, most=most)
    except BadInput:
        return None


def read_record(path: Path, *, most: int = MAX_DOCUMENT) -> Json:
    """Return the object in a file; an empty one if it cannot be read."""
    return coerce.record(read_json_if_any(path, most=most))


MAX_ITEM = 256 * 1024 * 1024
CHUNK = 1024 * 1024
MAX_SCALAR = 1024 * 1024

_NO_SPACE = re.compile(rb"[^ \t\r\n]")
_END_OF_SCALAR = re.compile(rb"[,\]]")
# What can change the depth or begin a string.
_SIGN = re.compile(rb'["\[\]{}]')
_BACKSLASH = ord("\\")
_decode = msgspec.json.Decoder().decode


class JsonItem(NamedTuple):
    """One item of the list: its number from 0, and its value, or why it has none."""

    number: int
    data: Any
    why: str | None = None


def json_items(file: BinaryIO, *, max_item: int = MAX_ITEM) -> Iterator[JsonItem]:
    """Yield the items of a list one by one, or the only object of a document.

    Raises `BadInput` if it is neither, or ends early.
    """
    source = _Source(file)
    source.drop(_BOM)
    first = source.next_sign()
    if first == b"{":
        yield _json_item(0, source.value(max_item))
        return
    if first != b"[":
        raise BadInput("It is not a list in JSON.")
    source.step()
    number = 0
    while (sign := source.next_sign()) != b"]":
        if sign == b"":
            raise BadInput(f"It ends inside the list, after {number} whole items.")
        if sign == b",":
            source.step()
            continue
        yield _json_item(number, source.value(max_item))
        number += 1


def _json_item(number: int, text: bytes | None) -> JsonItem:
    if text is None or coerce.is_heavy(text):
        return JsonItem(number, None, "too large")
    try:
        return JsonItem(number, _decode(text))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return JsonItem(number, None, f"not JSON ({str(error)[:100]})")


class _Source:
    """The bytes that have been read and not used yet."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._bytes = b""
        # Where the unused bytes begin: small items must not move all of them each time.
        self._at = 0
        self._more()

    def _more(self) -> bool:
        chunk = self._file.read(CHUNK)
        self._bytes = self._bytes[self._at :] + chunk
        self._at = 0
        return bool(chunk)

    def drop(self, prefix: bytes) -> None:
        if self._bytes.startswith(prefix, self._at):
            self._at += len(prefix)

    def take(self, end: int) -> bytes:
        """Return the bytes up to an offset, and mark them as used."""
        taken = self._bytes[self._at : end]
        self._at = end
        return taken

    def step(self) -> None:
        """Skip one byte."""
        self._at += 1

    def next_sign(self) -> bytes:
        """Return the next byte that is no white space without using it; none at the end."""
        while True:
            found = _NO_SPACE.search(self._bytes, self._at)
            if found is not None:
                self._at = found.start()
                return found.group()
            self._at = len(self._bytes)
            if not self._more():
                return b""

    def value(self, max_item: int) -> bytes | None:
        """Return the bytes of one value; None for one that is too large."""
        if self._bytes[self._at : self._at + 1] not in (b"{", b"["):
            return self._scalar()
        pieces: list[bytes] = []
        size = depth = 0
        in_string = False
        while True:
            at, depth, in_string = _scan(self._bytes, self._at, depth, in_string=in_string)
            piece = self.take(at)
            size += len(piece)
            if size <= max_item:
                pieces.append(piece)
            else:
                pieces.clear()
            if depth == 0:
                return b"".join(pieces) if size <= max_item else None
            if not self._more():
                raise BadInput("It ends in the middle of an item.")

    def _scalar(self) -> bytes:
        searched = 0
        while True:
            found = _END_OF_SCALAR.search(self._bytes, self._at + searched)
            if found is not None:
                return self.take(found.start())
            searched = len(self._bytes) - self._at
            if searched > MAX_SCALAR or not self._more():
                raise BadInput("It ends in the middle of an item.")


def _scan(data: bytes, at: int, depth: int, *, in_string: bool) -> tuple[int, int, bool]:
    """Follow brackets and strings until the value or the data ends; return offset, depth, in_string."""
    length = len(data)
    while at < length:
        if in_string:
            at, in_string = _past_string(data, at)
            if in_string:
                return at, depth, True
            continue
        sign = _SIGN.search(data, at)
        if sign is None:
            return length, depth, False
        at = sign.end()
        match sign.group():
            case b'"':
                in_string = True
            case b"{" | b"[":
                depth += 1
            case _:
                depth -= 1
                if depth == 0:
                    return at, 0, False
    return at, depth, in_string


def _past_string(data: bytes, at: int) -> tuple[int, bool]:
    """Return where the current string ends, or where the data ends and that the string goes on."""
    while (quote := data.find(b'"', at)) >= 0:
        if not _is_escaped(data, at, quote):
            return quote + 1, False
        at = quote + 1
    # A backslash at the end: the character that it escapes is not read yet.
    return len(data) - _is_escaped(data, at, len(data)), True


def _is_escaped(data: bytes, begin: int, at: int) -> bool:
    """Whether an odd number of backslashes comes before an offset."""
    before = at
    while before > begin and data[before - 1] == _BACKSLASH:
        before -= 1
    return (at - before) % 2 == 1
