"""A place in a list that stays right while the list grows."""

import base64
import re
from dataclasses import dataclass
from typing import Self

from sessionary.errors import BadInput

_FORM = re.compile(r"^(-?\d{1,19})\.(\d{1,19})$", re.ASCII)
# Behind a text: its number first, because a text may have anything in it.
_TEXT = re.compile(r"^t(\d{1,19})\.(.{0,1000})$", re.ASCII | re.DOTALL)
_LAST = 2**62


@dataclass(frozen=True, slots=True)
class Cursor:
    """Everything behind this value (a time, a sum, a name) and number is still to come."""

    at: int | str
    no: int

    @classmethod
    def first(cls, until: int | None = None) -> Self:
        """The beginning of a list, perhaps of what was active before a time."""
        return cls(_LAST if until is None else until, _LAST if until is None else 0)

    @classmethod
    def after(cls, at: int | str, no: int) -> Self:
        """The place behind an item."""
        return cls(at, no)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`."""
        try:
            plain = base64.urlsafe_b64decode(text.encode("ascii") + b"==").decode("utf-8")
        except ValueError:
            plain = ""
        named = _TEXT.match(plain)
        if named is not None and int(named[1]) <= _LAST:
            return cls(named[2], int(named[1]))
        found = _FORM.match(plain)
        if found is None or max(abs(int(found[1])), int(found[2])) > _LAST:
            raise BadInput("That cursor is not one of ours; begin again without it.")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        plain = f"t{self.no}.{self.at}" if isinstance(self.at, str) else f"{self.at}.{self.no}"
        return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")
