"""Tables of text: aligned, as wide as the terminal, and harmless."""

from collections.abc import Sequence
from dataclasses import dataclass

from sessionary.model.terminal import display_width, fit, one_line, safe_terminal

GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, whether numbers stand in it, whether it takes what room is left."""

    heading: str
    right: bool = False
    flexible: bool = False


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int | None) -> str:
    """Lay rows out under headings. With a width lines are cut to it; without, nothing is cut."""
    cells = [[safe_terminal(one_line(text)) for text in row] for row in rows]
    headings = [column.heading for column in columns]
    widths = [
        max(display_width(line[place]) for line in (headings, *cells))
        for place in range(len(columns))
    ]
    if width is not None:
        widths = _squeezed(columns, widths, width)
    lines = [_line(columns, line, widths, cut=width is not None) for line in (headings, *cells)]
    return "\n".join(lines)


def _squeezed(columns: Sequence[Column], widths: list[int], width: int) -> list[int]:
    over = sum(widths) + len(GAP) * (len(widths) - 1) - width
    for place, column in enumerate(columns):
        if column.flexible and over > 0:
            taken = min(over, max(0, widths[place] - 8))
            widths[place] -= taken
            over -= taken
    return widths


def _line(
    columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int], *, cut: bool
) -> str:
    out = []
    for column, cell, width in zip(columns, cells, widths, strict=True):
        text = fit(cell, width) if cut else cell + " " * (width - display_width(cell))
        if column.right:
            text = text.rstrip()
            text = " " * (width - display_width(text)) + text
        out.append(text)
    return GAP.join(out).rstrip()


def count(number: int, what: str) -> str:
    """`1 session`, `2 sessions`."""
    plural = what[:-1] + "ies" if what.endswith("ry") else f"{what}s"
    return f"{number:,} {what if number == 1 else plural}"


def size(number: int) -> str:
    """Bytes for people."""
    amount = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def money(microusd: int | None) -> str:
    """Microdollars for people; what is not known is not nothing."""
    if microusd is None:
        return "?"
    decimals = 2 if microusd >= 1_000_000 or microusd == 0 else 4 if microusd >= 1_000 else 6
    return f"${microusd / 1_000_000:,.{decimals}f}"


def share(done: int, whole: int) -> str:
    """How far something is; of how much is not always known."""
    return f"{done / whole:.0%}" if whole else f"{done:,} rows"
