"""Titles and previews: what a list shows of a session."""

import re
from collections.abc import Collection

from sessionary.errors import BadInput
from sessionary.model.terminal import one_line

MAX_TITLE = 100
MAX_PREVIEW = 60
MOST_DIGITS = 9

_NUMBERED = re.compile(rf"(.*\S) #([0-9]{{1,{MOST_DIGITS}}})", re.DOTALL)
_DERIVED_LENGTH = 60
_DERIVED_FROM = 4096
_MARKUP = re.compile(r"^(?:#{1,6}\s|>\s?|[-*+]\s|\*\*)+")
_FENCE = ("```", "~~~")


def clean_title(text: str) -> str | None:
    """Return the title as it is stored, None for an empty one; refuse one that is too long."""
    title = one_line(text)
    if len(title) > MAX_TITLE:
        raise BadInput(f"a title has at most {MAX_TITLE} characters; this one has {len(title)}")
    return title or None


def numbered_base(title: str) -> tuple[str, int | None]:
    """Split `name #3` into `name` and 3; any other title is its own base."""
    match = _NUMBERED.fullmatch(title)
    return (title, None) if match is None else (match[1], int(match[2]))


def matches_continuation(query: str, title: str) -> int | None:
    """The number of `title` if it is a numbered continuation of exactly `query`."""
    base, number = numbered_base(title)
    return number if base == query else None


def beginnings(base: str) -> list[tuple[str, int, int]]:
    """The prefixes of numbered titles, each with the fewest and the most digits that may follow."""
    found: dict[str, list[int]] = {}
    for digits in range(1, MOST_DIGITS + 1):
        found.setdefault(_shortened(base, digits) + " #", []).append(digits)
    return [(beginning, min(digits), max(digits)) for beginning, digits in found.items()]


def next_number(title: str, taken: Collection[str]) -> int:
    """The next number of a lineage, above every number in `taken`.

    For each of its `beginnings`, the last title with each number of digits is enough.
    """
    base, own = numbered_base(title)
    numbers = (_number_in(base, other) for other in taken)
    return max((n for n in (own, *numbers) if n is not None), default=1) + 1


def with_number(title: str, number: int) -> str:
    """The title of a lineage with this number, never too long."""
    base, _ = numbered_base(title)
    return f"{_shortened(base, len(str(number)))} #{number}"


def _number_in(base: str, title: str) -> int | None:
    """The number of a title that is this base with a number, shortened where needed."""
    beginning, number = numbered_base(title)
    if number is None:
        return None
    digits = len(title) - len(beginning) - len(" #")
    return number if beginning in (base, _shortened(base, digits)) else None


def _shortened(base: str, digits: int) -> str:
    return base[: MAX_TITLE - len(" #") - digits].rstrip()


def derive_title(first_user_text: str) -> str | None:
    """Make a title of the first words a person wrote; None when nothing of them is visible."""
    lines = first_user_text.lstrip()[:_DERIVED_FROM].splitlines()
    shown = (one_line(line) for line in lines if not line.lstrip().startswith(_FENCE))
    plain = (one_line(_MARKUP.sub("", line)).strip("*` ") for line in shown)
    words = next((line for line in plain if line), "") or preview(first_user_text)
    return _cut_at_word(words) or None


def _cut_at_word(words: str) -> str:
    if len(words) <= _DERIVED_LENGTH:
        return words
    cut = words[: _DERIVED_LENGTH - 1]
    at_word = cut.rpartition(" ")[0]
    return (at_word if len(at_word) > _DERIVED_LENGTH // 2 else cut.rstrip()) + "…"


def preview(text: str) -> str:
    """The first words on one line, at most 60 characters."""
    return one_line(text, MAX_PREVIEW)
