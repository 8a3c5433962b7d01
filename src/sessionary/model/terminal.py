"""Text that others wrote, made safe to show: on one line, in a terminal, in a table."""

import re
import unicodedata

# Invisible, though Unicode files them under letters and marks: grapheme joiner, Hangul fillers,
# Khmer inherent vowels, Mongolian and other variation selectors. U+FE0F stays: emoji need it.
_INVISIBLE = frozenset(
    map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0, *range(0x180B, 0x1810)))
) | frozenset(map(chr, range(0xFE00, 0xFE0F)))
_TAGS_AND_SELECTORS = range(0xE0000, 0xE1000)
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# Persian, the Indic scripts and joined emoji are misspelt without them.
_JOINERS = frozenset("\u200c\u200d")
_NOT_PLAIN = re.compile(r"[^ -~]")
# Latin, Greek, Cyrillic and Armenian letters, and punctuation.
_ONE_COLUMN_EACH = re.compile(
    r"[ -~\u00a1-\u02ff\u0370-\u0482\u048a-\u058a\u2010-\u2027\u2030-\u205e]*"
)
_REPLACEMENT = "\ufffd"
_CUT_MARK = "…"
_DELETE = 0x7F
_SCANNED_PER_SHOWN = 64


def is_hidden(char: str) -> bool:
    """Whether a character steers or hides instead of showing: control, bidi, zero-width, tag."""
    if char.isascii():
        return not char.isprintable()
    return (
        unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
        or char in _INVISIBLE
        or ord(char) in _TAGS_AND_SELECTORS
    )


def one_line(text: str, limit: int | None = None) -> str:
    """Give the visible text on one line, spaces collapsed, cut with `…` to `limit` characters."""
    if limit is not None:
        text = text.lstrip()[: limit * _SCANNED_PER_SHOWN]
    line = " ".join(_NOT_PLAIN.sub(_on_one_line, text).split())
    if limit is None or len(line) <= limit:
        return line
    return line[: limit - 1].rstrip() + _CUT_MARK


def _on_one_line(found: re.Match[str]) -> str:
    char = found[0]
    if char.isspace():
        return " "
    if "\ud800" <= char <= "\udfff":
        return _REPLACEMENT
    return "" if is_hidden(char) else char


def safe_terminal(text: str, *, keep_newlines: bool = False) -> str:
    """Give text that cannot steer a terminal: what would is shown as a sign or left out."""
    if keep_newlines:
        text = text.replace("\r\n", "\n").expandtabs(4)
    lines = text.split("\n") if keep_newlines else [text]
    return "\n".join(_NOT_PLAIN.sub(_on_a_terminal, line) for line in lines)


def _on_a_terminal(found: re.Match[str]) -> str:
    char = found[0]
    code = ord(char)
    if char == "\t":
        return " "
    if code < 0x20:
        return chr(0x2400 + code)
    if code == _DELETE:
        return "\u2421"
    if "\ud800" <= char <= "\udfff":
        return _REPLACEMENT
    if char in _BIDI or unicodedata.category(char) in {"Cc", "Zl", "Zp"}:
        return f"<U+{code:04X}>"
    return "" if is_hidden(char) and char not in _JOINERS else char


def display_width(text: str) -> int:
    """Count the columns that a terminal uses: two for wide characters and emoji, none for combining marks."""
    if text.isprintable() and (text.isascii() or _ONE_COLUMN_EACH.fullmatch(text)):
        return len(text)
    import wcwidth  # its tables take as long to load as `--help`, and most text needs none of them

    return wcwidth.width(text, control_codes="ignore")


def fit(text: str, width: int) -> str:
    """Give safe text of exactly `width` columns: padded with spaces, or cut with `…`."""
    text = safe_terminal(text)
    columns = display_width(text)
    if columns <= width:
        return text + " " * (width - columns)
    if width <= 0:
        return ""
    text, columns = _cut(text, width - 1)
    return text + _CUT_MARK + " " * (width - 1 - columns)


def _cut(text: str, width: int) -> tuple[str, int]:
    """Cut text to at most `width` columns; return it with its columns."""
    if text.isascii():
        return text[:width], width
    import wcwidth  # the text is not ASCII

    columns, end = 0, 0
    for grapheme in wcwidth.iter_graphemes(text):
        next_columns = columns + display_width(grapheme)
        if next_columns > width:
            break
        columns, end = next_columns, end + len(grapheme)
    return text[:end], columns
