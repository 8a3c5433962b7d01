"""Other tools' files: opened for reading only, never through a link; JSON in them is read within limits."""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from sessionary.errors import BadInput
from sessionary.formats import coerce
from sessionary.formats.coerce import MAX_DEPTH, decode_json, is_deep, is_heavy
from sessionary.store.tables.blobs import hash_of

MAX_WALK_DEPTH = 12
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = 7 * 10**15
# So much of a file's beginning is read at once, where it will be asked for again.
_KEPT = 64 * 1024
_heads: ContextVar[dict[Path, tuple[bytes, int]] | None] = ContextVar("heads")
_closed: ContextVar[list[tuple[Path, str]]] = ContextVar("closed")
# Not on every system: a pipe must not hold us up, a link must not lead us away.
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def opened(path: Path, *, buffer: int = -1) -> BinaryIO:
    """A regular file, open; anything else is refused. One that is read to its end wants a large buffer."""
    try:
        descriptor = os.open(path, _FLAGS | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        raise BadInput(_refusal(path, error)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BadInput(f"{path} is not a regular file; it was left alone.")
    return os.fdopen(descriptor, "rb", buffer)


def head(path: Path, size: int = 4096) -> bytes:
    """The first bytes of a file; none when it cannot be read."""
    kept = _heads.get(None)
    if kept is None:
        return _head(path, size)
    data, asked = kept.get(path, (b"", 0))
    if asked < size and (asked == 0 or len(data) == asked):
        asked = max(size, _KEPT)
        kept[path] = data, _ = _head(path, asked), asked
    return data[:size]


def _head(path: Path, size: int) -> bytes:
    try:
        with opened(path) as file:
            return file.read(size)
    except (BadInput, OSError):
        return b""


@contextmanager
def keeping_heads() -> Iterator[None]:
    """Read the beginning of each file once meanwhile: many ask for that of the same one."""
    before = _heads.set({})
    try:
        yield
    finally:
        _heads.reset(before)


def stamp_of(*paths: Path) -> str:
    """What tells that files have changed: inode, size and time of each."""
    return ";".join(_stamp(path) for path in paths)


def size_of(*paths: Path) -> int:
    """How many bytes the files have together."""
    total = 0
    for path in paths:
        found = _lstat(path)
        total += 0 if found is None else found.st_size
    return total


def changed_at(path: Path) -> datetime:
    """When a file was last written: the time of what names none."""
    found = _lstat(path)
    micros = 0 if found is None else found.st_mtime_ns // 1000
    # A file system may hold years that no calendar has.
    return _EPOCH + timedelta(microseconds=min(max(0, micros), _LATEST))


def time_of(path: Path) -> float:
    """When a file was last written to, in seconds since 1970; 0 when there is none."""
    found = _lstat(path)
    return 0.0 if found is None else found.st_mtime


def identity(path: Path) -> tuple[int, int] | None:
    """Which file this is, whatever it is called; None when there is none."""
    found = _lstat(path)
    return None if found is None else (found.st_dev, found.st_ino)


def tail(path: Path, place: int, size: int = 256) -> str:
    """What stands before a byte: the same as long as the file only grew."""
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
    """The files below a directory whose names end so, in order; links are not followed.

    Directories that are called as one of `skip` are not searched.
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


@contextmanager
def noting_closed() -> Iterator[list[tuple[Path, str]]]:
    """Note which directories a walk passes over meanwhile because they cannot be listed, and why."""
    noted: list[tuple[Path, str]] = []
    before = _closed.set(noted)
    try:
        yield noted
    finally:
        _closed.reset(before)


def is_file(path: Path) -> bool:
    """Whether a regular file stands there, and not a link to one."""
    found = _lstat(path)
    return found is not None and stat.S_ISREG(found.st_mode)


def is_directory(path: Path) -> bool:
    """Whether a directory stands there, and not a link to one."""
    found = _lstat(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def _stamp(path: Path) -> str:
    found = _lstat(path)
    return "-" if found is None else f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"


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
# So much of a file is looked at to tell whose it is; a first line may hold a picture.
FIRST_BYTES = 256 * 1024
LONG_FIRST_LINE = 16 * 1024 * 1024
_LINE_CHUNK = 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_NEWLINE = ord("\n")


class JsonLine(NamedTuple):
    """One line: where it begins and ends, and its object, or why it has none."""

    start: int
    end: int
    data: dict[str, Any] | None
    why: str | None = None


def json_lines(file: BinaryIO, start: int = 0, *, max_line: int = MAX_LINE) -> Iterator[JsonLine]:
    """The objects of a file from a byte on.

    A last line without its end is still being written: it is not given, and reading goes on at it
    another time. Blank lines are passed over. A line that is too long is told of and not held.
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
    """Begin, end and bytes of each finished line; None for one that is too large."""
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
    """The objects in the first lines of a file, to tell whose record it is; other lines are passed over."""
    data = head(path, FIRST_BYTES)
    if len(data) == FIRST_BYTES and b"\n" not in data:
        data = head(path, LONG_FIRST_LINE)
    # A last line that was cut off is not whole, and not given.
    for line in json_lines(BytesIO(data)):
        if line.data is not None:
            yield line.data


def _past_line(file: BinaryIO, at: int) -> int | None:
    """Where the line ends that was begun; None when the file ends first."""
    while chunk := file.read(_LINE_CHUNK):
        newline = chunk.find(b"\n")
        if newline >= 0:
            file.seek(at + newline + 1)
            return at + newline + 1
        at += len(chunk)
    return None


def _is_whole(text: bytes) -> bool:
    """Whether a last line without its newline is all there: some tools write none."""
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
    """What a file says; `BadInput` when it is too large or not JSON."""
    if size_of(path) > most:
        raise BadInput(f"{path} is larger than {most:,} bytes; it was left alone.")
    with opened(path) as file:
        text = file.read(most + 1)
    if coerce.is_heavy(text):
        raise BadInput(f"{path} holds too many values; it was left alone.")
    found = coerce.parse_json(text.removeprefix(b"\xef\xbb\xbf"))
    if found is None:
        raise BadInput(f"{path} is not JSON, or not all of it is there; it was left alone.")
    return found


def read_json_if_any(path: Path, *, most: int = MAX_DOCUMENT) -> Any:
    """What a file says; None when it is not there or not readable."""
    try:
        return read_json(path, most=most)
    except BadInput:
        return None


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
    """The items of a list, or the one object that the document is.

    `BadInput` when it is neither, or ends inside.
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
    """The bytes that have been read and not yet used."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._bytes = b""
        # Where what is not used begins: small items must not move all the rest each time.
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
        """The bytes up to a place in what was read."""
        taken = self._bytes[self._at : end]
        self._at = end
        return taken

    def step(self) -> None:
        """Pass over one sign."""
        self._at += 1

    def next_sign(self) -> bytes:
        """The next byte that is no space, still unused; none at the end."""
        while True:
            found = _NO_SPACE.search(self._bytes, self._at)
            if found is not None:
                self._at = found.start()
                return found.group()
            self._at = len(self._bytes)
            if not self._more():
                return b""

    def value(self, max_item: int) -> bytes | None:
        """The bytes of one value; None for one that is too large, which is passed over."""
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
    """Follow brackets and strings until the value closes or the bytes end: where, how deep."""
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
    """Where the string ends in which we are, or where the bytes end and that it goes on."""
    while (quote := data.find(b'"', at)) >= 0:
        if not _is_escaped(data, at, quote):
            return quote + 1, False
        at = quote + 1
    # A lone backslash at the end: what follows it is not here yet.
    return len(data) - _is_escaped(data, at, len(data)), True


def _is_escaped(data: bytes, begin: int, at: int) -> bool:
    """Whether an odd number of backslashes stands before a place."""
    before = at
    while before > begin and data[before - 1] == _BACKSLASH:
        before -= 1
    return (at - before) % 2 == 1
