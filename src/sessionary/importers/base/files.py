"""Other people's files: opened for reading only, never through a link, never the store's own."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from sessionary.errors import BadInput
from sessionary.store.tables.blobs import hash_of

MAX_DEPTH = 12
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
    depth: int = MAX_DEPTH,
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
