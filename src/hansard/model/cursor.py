"""A place in a list that stays right while the list grows."""

import base64
import re
from dataclasses import dataclass
from typing import Self

from hansard.errors import BadInput

_FORM = re.compile(r"^(-?\d{1,19})\.(\d{1,19})$")
_LAST = 2**62


@dataclass(frozen=True, slots=True)
class Cursor:
    """Everything before this activity time and number is still to come."""

    at: int
    no: int

    @classmethod
    def first(cls, until: int | None = None) -> Self:
        """The beginning of a list, perhaps of what was active before a time."""
        return cls(_LAST if until is None else until, _LAST if until is None else 0)

    @classmethod
    def after(cls, at: int, no: int) -> Self:
        """The place behind an item."""
        return cls(at, no)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`."""
        try:
            plain = base64.urlsafe_b64decode(text.encode("ascii") + b"==").decode("ascii")
        except ValueError:
            plain = ""
        found = _FORM.match(plain)
        if found is None or max(abs(int(found[1])), int(found[2])) > _LAST:
            raise BadInput("That cursor is not one of ours; begin again without it.")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(f"{self.at}.{self.no}".encode()).decode().rstrip("=")
