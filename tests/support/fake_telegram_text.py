"""How Telegram reads MarkdownV2, after its documentation: strictly."""

import re

LONGEST = 4096
LONGEST_TOAST = 200
# In bytes.
LONGEST_DATA = 64
_RESERVED = frozenset("_*[]()~`>#+-=|{}.!")
_MARKS = ("||", "__", "*", "_", "~")
_PRE = re.compile(r"```(?:[^\n`]*\n)?((?:\\.|[^\\`]|`(?!``))*)```", re.DOTALL)
_CODE = re.compile(r"`((?:\\.|[^\\`])*)`", re.DOTALL)
_LINK = re.compile(r"\]\(((?:\\.|[^\\)])*)\)", re.DOTALL)


def units(text: str) -> int:
    """The length as Telegram counts it."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def shown(text: str, mode: str | None) -> str:
    """What people read of a text; an error for MarkdownV2 that Telegram would refuse."""
    return (_parsed(text) if mode == "MarkdownV2" else text).strip()


def _parsed(text: str) -> str:
    out: list[str] = []
    opened: list[str] = []
    place = 0
    while place < len(text):
        place = _step(text, place, out, opened)
    if opened:
        raise ValueError(f"can't find end of the entity {opened[-1]}")
    return "".join(out)


def _step(text: str, place: int, out: list[str], opened: list[str]) -> int:
    char = text[place]
    if char == "\\" and place + 1 < len(text) and ord(text[place + 1]) < 127:
        out.append(text[place + 1])
        return place + 2
    if char == "`":
        return _code(text, place, out)
    if char == "[":
        opened.append("[")
        return place + 1
    if char == "]" and opened and opened[-1] == "[":
        opened.pop()
        found = _LINK.match(text, place)
        return place + 1 if found is None else found.end()
    if char == ">" and (place == 0 or text[place - 1] == "\n"):
        return place + 1
    mark = next((each for each in _MARKS if text.startswith(each, place)), None)
    if mark is not None:
        _toggle(mark, opened)
        return place + len(mark)
    if char in _RESERVED:
        raise ValueError(f"character '{char}' is reserved and must be escaped")
    out.append(char)
    return place + 1


def _toggle(mark: str, opened: list[str]) -> None:
    if opened and opened[-1] == mark:
        opened.pop()
    elif mark in opened:
        raise ValueError(f"can't find end of the entity {opened[-1]}")
    else:
        opened.append(mark)


def _code(text: str, place: int, out: list[str]) -> int:
    pattern = _PRE if text.startswith("```", place) else _CODE
    found = pattern.match(text, place)
    if found is None:
        raise ValueError("can't find end of code entity")
    out.append(re.sub(r"\\(.)", r"\1", found[1]))
    return found.end()
