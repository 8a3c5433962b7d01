"""`Push to {repository.name} by {pusher.name}`: a text with places for what a body holds. Pure."""

import json
import re
from typing import Any

from sessionary.errors import BadInput

_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]+)\}|[{}]")
_LONGEST = 1_000_000


class Template:
    """A text with places in braces; `{a.0.b}` goes down into objects and lists."""

    def __init__(self, written: str) -> None:
        self.written = written
        for found in _PIECE.finditer(written):
            if found[0] in ("{", "}"):
                raise BadInput(f"{written!r}: a brace stands alone; write {{{{ or }}}} for one.")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and other.written == self.written

    def __hash__(self) -> int:
        return hash(self.written)

    def fill(self, body: Any) -> str:
        """The text with what the body holds in its places; an error names what is missing."""
        filled = _PIECE.sub(lambda found: self._piece(found, body), self.written)
        if len(filled) > _LONGEST:
            raise BadInput(f"{self.written!r} holds more than {_LONGEST:,} characters.")
        return filled

    def _piece(self, found: "re.Match[str]", body: Any) -> str:
        if found[0] in ("{{", "}}"):
            return found[0][0]
        value = body
        for step in found[1].strip().split("."):
            value = _down(value, step)
        if value is None:
            raise BadInput(f"The body has nothing at {found[0]}.")
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _down(value: Any, step: str) -> Any:
    if isinstance(value, dict):
        return value.get(step)
    if isinstance(value, list) and step.isdecimal() and len(step) < 10 and int(step) < len(value):
        return value[int(step)]
    return None
