"""From a delivery to what Telegram is asked to send. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from sessionary.channels.split import split_text, utf16_units
from sessionary.channels.telegram import markdown
from sessionary.model.message import Attachment, Part, text_of

LONGEST = 4096


@dataclass(frozen=True, slots=True)
class Piece:
    """One message of Telegram: as it is meant, and as it stands without any markup."""

    plain: str
    markup: str | None


def pieces(parts: Sequence[Part]) -> list[Piece | Attachment]:
    """What a delivery says, in messages that Telegram takes, then its files."""
    files = [part for part in parts if isinstance(part, Attachment)]
    return [*texts(text_of(tuple(parts))), *files]


def texts(text: str) -> list[Piece]:
    """A text in messages that Telegram takes; none when it says nothing."""
    said = sayable(text.strip())
    return [_piece(each) for each in split_text(said, LONGEST, measure=utf16_units)]


def halves(piece: Piece) -> list[Piece]:
    """A message that was still too long, in two."""
    half = max(1, utf16_units(piece.plain) // 2 + 16)
    return [_piece(each) for each in split_text(piece.plain, half, measure=utf16_units)]


def sayable(text: str) -> str:
    """The text without what no message may hold: half a character, or a control sign."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return "".join(char for char in whole if char >= " " or char in "\n\t").strip("\n")


def _piece(text: str) -> Piece:
    made = markdown.render(text)
    is_safe = made.strip() and utf16_units(made) <= 2 * LONGEST
    return Piece(text, made if is_safe else None)
