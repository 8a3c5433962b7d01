"""Files of one JSON object a line: read in a stream, whatever their size and state."""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from sessionary.formats.json_text import MAX_DEPTH, decode, is_deep, is_heavy
from sessionary.importers.base import files

MAX_LINE = 64 * 1024 * 1024
# So much of a file is looked at to tell whose it is; a first line may hold a picture.
FIRST_BYTES = 256 * 1024
LONG_FIRST_LINE = 16 * 1024 * 1024
_CHUNK = 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_NEWLINE = ord("\n")


class JsonLine(NamedTuple):
    """One line: where it begins and ends, and its object, or why it has none."""

    start: int
    end: int
    data: dict[str, Any] | None
    why: str | None = None


def lines(file: BinaryIO, start: int = 0, *, max_line: int = MAX_LINE) -> Iterator[JsonLine]:
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
    head = files.head(path, FIRST_BYTES)
    if len(head) == FIRST_BYTES and b"\n" not in head:
        head = files.head(path, LONG_FIRST_LINE)
    # A last line that was cut off is not whole, and not given.
    for line in lines(BytesIO(head)):
        if line.data is not None:
            yield line.data


def _past_line(file: BinaryIO, at: int) -> int | None:
    """Where the line ends that was begun; None when the file ends first."""
    while chunk := file.read(_CHUNK):
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
        data = decode(text)
    except (ValueError, RecursionError) as error:
        return JsonLine(begin, end, None, f"not JSON ({str(error)[:100]})")
    if not isinstance(data, dict):
        return JsonLine(begin, end, None, f"not an object but {type(data).__name__}")
    if text.count(b"{") + text.count(b"[") > MAX_DEPTH and is_deep(data):
        return JsonLine(begin, end, None, f"nested deeper than {MAX_DEPTH} levels")
    return JsonLine(begin, end, data)
