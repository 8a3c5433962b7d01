"""Cutting a long text into messages: at the best place, code fences closed and reopened."""

import re
from collections.abc import Callable

# What opens and closes in one line is no fence.
_FENCE = re.compile(r"^(`{3,}(?=[^`\n]*$)|~{3,})([^\n]*)$")
_LONGEST_LANGUAGE = 32
_MOST_FOR_FENCES = 0.25
_SMALLEST_SHARE = 0.5
_BEYOND_BASIC = 0xFFFF

Measure = Callable[[str], int]


def split_text(text: str, longest: int, *, measure: Measure | None = None) -> list[str]:
    """Pieces of at most `longest` units that together say the text; never cut silently.

    A cut is made between paragraphs, else lines, else words. A code fence that a cut goes
    through is closed in one piece and opened again in the next.
    """
    size = measure or len
    rest = text.strip("\n")
    pieces: list[str] = []
    fence = ""
    while rest:
        opened = f"{fence}\n" if fence else ""
        room = longest - size(opened) - (size(fence_mark(fence)) + 1 if fence else 0)
        if size(opened + rest) <= longest:
            pieces.append(opened + rest)
            break
        head, line, rest = _cut(rest, max(1, room - 8), size)
        fence = _open_fence(opened + head + line)
        if 2 * size(fence) > longest * _MOST_FOR_FENCES:
            fence = ""  # opening and closing it in every piece would leave no room for the words
        closing = f"\n{fence_mark(fence)}" if fence else ""
        pieces.append(opened + head.rstrip("\n") + closing)
        rest = rest if fence else rest.lstrip("\n")
    return [piece for piece in pieces if piece.strip()]


def fence_mark(fence: str) -> str:
    """The marks of a fence without its language."""
    match = _FENCE.match(fence)
    return match[1] if match else ""


def utf16_units(text: str) -> int:
    """The length of a text as JavaScript and several platforms count it."""
    return len(text) + sum(1 for char in text if ord(char) > _BEYOND_BASIC)


def _cut(text: str, room: int, size: Measure) -> tuple[str, str, str]:
    """What fits into the room, what is left of a line that had to be cut, and all the rest."""
    limit = _fitting(text, room, size)
    for mark in ("\n\n", "\n"):
        place = text.rfind(mark, int(limit * _SMALLEST_SHARE), limit)
        if place > 0:
            return text[:place], "", text[place + len(mark) :]
    place = text.rfind(" ", int(limit * _SMALLEST_SHARE), limit)
    head, rest = (text[:place], text[place + 1 :]) if place > 0 else (text[:limit], text[limit:])
    return head, rest.partition("\n")[0], rest


def _fitting(text: str, room: int, size: Measure) -> int:
    """How many characters of the text fit into the room: at least one, and no pair torn apart."""
    limit = min(len(text), room)
    while limit > 1 and size(text[:limit]) > room:
        limit -= max(1, (size(text[:limit]) - room) // 2)
    return max(1, limit)


def _open_fence(text: str) -> str:
    """The opening line of the code fence that is still open at the end of a text, or nothing."""
    opened = ""
    for line in text.split("\n"):
        match = _FENCE.match(line.strip())
        if match is None:
            continue
        if not opened:
            language = match[2] if len(match[2]) <= _LONGEST_LANGUAGE else ""
            opened = f"{match[1]}{language}"
        elif match[1].startswith(fence_mark(opened)) and not match[2].strip():
            opened = ""
    return opened
