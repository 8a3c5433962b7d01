"""The text of a mail: HTML as text, and the person's own words without quotes and signature."""

import re
from dataclasses import dataclass
from html.parser import HTMLParser

# How mail programs introduce a quote.
_ATTRIBUTION = re.compile(
    r"^\s*(?:On\b.+\bwrote|Am\b.+\bschrieb\b.*|Le\b.+\ba écrit|El\b.+\bescribió|Il\b.+\bha scritto"
    r"|Op\b.+\bschreef\b.*|W dniu\b.+\b(?:pisze|napisał\(?a?\)?)\b.*|Em\b.+\bescreveu"
    r"|Den\b.+\bskrev\b.*|.+<\S+@\S+>\s*(?:wrote|schrieb|пишет|napsal\(a\)))\s*:\s*$",
    re.IGNORECASE,
)
_ORIGINAL = re.compile(
    r"^\s*-{2,}\s*(?:Original Message|Ursprüngliche Nachricht|Message d'origine|Mensaje original"
    r"|Messaggio originale|Forwarded message)\s*-{2,}\s*$",
    re.IGNORECASE,
)
_OUTLOOK_FROM = re.compile(r"^\s*\*?(?:From|Von|De|Da|Van)\s*:\*?\s*\S", re.IGNORECASE)
_OUTLOOK_SENT = re.compile(
    r"^\s*\*?(?:Sent|Date|Gesendet|Datum|Envoyé|Enviado|Inviato|Verzonden)\s*:\*?\s*\S",
    re.IGNORECASE,
)
_DEVICE = re.compile(r"^\s*(?:Sent from my|Von meinem|Envoyé de mon|Get Outlook for)\b.{0,60}$")
_SILENT = frozenset({"head", "script", "style", "title", "template", "noscript"})
_BLOCKS = frozenset(
    {"address", "article", "div", "dl", "dt", "dd", "footer", "form", "h1", "h2", "h3", "h4"}
    | {"h5", "h6", "header", "hr", "ol", "p", "pre", "section", "table", "tr", "ul"}
)
_SPACES = re.compile(r"[ \t\r\n\f\v]+")
_BLANK_LINES = re.compile(r"\n{3,}")
_LONGEST_ATTRIBUTION = 3
_LONGEST_LINE = 400
_LONGEST_SIGNATURE = 15


@dataclass(frozen=True, slots=True)
class OwnWords:
    """The person's own words, and what was left out of the mail.

    If nothing in it is theirs, `text` is the whole mail and `is_quote` is set.
    """

    text: str
    left_out: str = ""
    is_quote: bool = False


def own_words(text: str) -> OwnWords:
    """Return the text without signature and without the quoted mail above or below it.

    Quotes that are answered line by line stay: without them the answers mean nothing. A mail that would be empty
    stays as it is.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").strip("\n").split("\n")
    kept = _without_original(lines)
    kept = _without_quote_below(kept)
    kept = _without_signature(kept)
    kept = _without_quote_below(kept)
    kept = _without_quote_above(kept)
    words = "\n".join(kept).strip("\n").rstrip()
    if not words.strip():
        return OwnWords("\n".join(lines).rstrip(), is_quote=True)
    return OwnWords(words, _difference(lines, kept), is_quote=_is_original(lines, 0))


def _without_original(lines: list[str]) -> list[str]:
    """Cut at the header of the original mail, as Outlook appends it."""
    for index in range(1, len(lines)):
        if _is_original(lines, index):
            end = index
            while end and (not lines[end - 1].strip() or set(lines[end - 1].strip()) <= {"_"}):
                end -= 1
            return lines[:end]
    return lines


def _is_original(lines: list[str], index: int) -> bool:
    """Return whether the header of an original mail begins at this line."""
    if _ORIGINAL.match(lines[index]):
        return True
    return _OUTLOOK_FROM.match(lines[index]) is not None and any(
        _OUTLOOK_SENT.match(other) for other in lines[index + 1 : index + 4]
    )


def is_quoted(line: str) -> bool:
    """Return whether a line is quoted."""
    return line.startswith(">")


def _without_quote_below(lines: list[str]) -> list[str]:
    end = _end_of_words(lines, len(lines))
    start = end
    while start and (is_quoted(lines[start - 1]) or not lines[start - 1].strip()):
        start -= 1
    if not any(is_quoted(line) for line in lines[start:end]):
        return lines[:end]
    length = _attribution_before(lines, start)
    return lines[: _end_of_words(lines, start - length)]


def _without_quote_above(lines: list[str]) -> list[str]:
    """Remove a quoted block with its introduction above the reply."""
    first = next((index for index, line in enumerate(lines) if is_quoted(line)), None)
    if first is None or not _attribution_before(lines, _end_of_words(lines, first)):
        return lines
    if _end_of_words(lines, first) > _attribution_before(lines, _end_of_words(lines, first)):
        return lines
    end = first
    while end < len(lines) and (is_quoted(lines[end]) or not lines[end].strip()):
        end += 1
    return lines if any(is_quoted(line) for line in lines[end:]) else lines[end:]


def _without_signature(lines: list[str]) -> list[str]:
    for index, line in enumerate(lines):
        is_mark = line == "-- " or (line == "--" and len(lines) - index <= _LONGEST_SIGNATURE)
        if is_mark and index:
            return lines[:index]
    last = _end_of_words(lines, len(lines))
    if last > 1 and _DEVICE.match(lines[last - 1]):
        return lines[: last - 1]
    return lines


def _attribution_before(lines: list[str], end: int) -> int:
    """Return how many lines before `end` introduce a quote; mail programs wrap them."""
    for length in range(1, min(_LONGEST_ATTRIBUTION, end) + 1):
        joined = " ".join(lines[end - length : end])
        if len(joined) <= _LONGEST_LINE and _ATTRIBUTION.match(joined):
            return length
    return 0


def _end_of_words(lines: list[str], end: int) -> int:
    while end and not lines[end - 1].strip():
        end -= 1
    return end


def _difference(lines: list[str], kept: list[str]) -> str:
    """Return the lines of the mail before and after the kept ones."""
    if len(kept) == len(lines):
        return ""
    for start in range(len(lines) - len(kept) + 1):
        if lines[start : start + len(kept)] == kept:
            return "\n".join(lines[:start] + lines[start + len(kept) :]).strip("\n")
    return "\n".join(lines)


def text_of_html(html: str) -> str:
    """Return the text of a page: paragraphs as lines, quotes with `>`, links with their address."""
    parser = _HtmlTextParser()
    parser.feed(html)
    parser.close()
    return parser.text()


class _HtmlTextParser(HTMLParser):
    """Collects the text; accepts any input."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._lines: list[str] = []
        self._line = ""
        self._silent = 0
        self._depth = 0
        self._as_it_is = 0
        self._links: list[tuple[str, int]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SILENT:
            self._silent += 1
        elif tag == "br":
            self._break()
        elif tag == "li":
            self._open_line()
            self._line = "- "
        elif tag in ("td", "th"):
            self._line += " " if self._line.strip() else ""
        elif tag == "a":
            self._links.append((dict(attrs).get("href") or "", len(self._line)))
        elif tag == "blockquote":
            self._open_line()
            self._depth += 1
        elif tag in _BLOCKS:
            self._open_line()
            self._as_it_is += tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        if tag in _SILENT:
            self._silent = max(0, self._silent - 1)
        elif tag == "a" and self._links:
            self._close_link(*self._links.pop())
        elif tag == "blockquote":
            self._open_line()
            self._depth = max(0, self._depth - 1)
        elif tag in _BLOCKS:
            self._open_line()
            self._as_it_is = max(0, self._as_it_is - (tag == "pre"))
            if tag == "p":
                self._lines.append("")

    def handle_data(self, data: str) -> None:
        if self._silent:
            return
        if self._as_it_is:
            *whole, rest = data.split("\n")
            for line in whole:
                self._line += line
                self._break()
            self._line += rest
            return
        words = _SPACES.sub(" ", data)
        self._line += words.lstrip(" ") if not self._line else words

    def text(self) -> str:
        """Return what was collected."""
        self._open_line()
        return _BLANK_LINES.sub("\n\n", "\n".join(self._lines)).strip("\n")

    def _open_line(self) -> None:
        if self._line.strip():
            self._break()
        self._line = ""

    def _break(self) -> None:
        quoted = "> " * self._depth
        self._lines.append((quoted + self._line.rstrip()).rstrip())
        self._line = ""

    def _close_link(self, address: str, begin: int) -> None:
        shown = self._line[begin:].strip()
        is_web = address.startswith(("http://", "https://"))
        if is_web and shown and shown.rstrip("/") not in (address.rstrip("/"), address):
            self._line += f" ({address})"
        elif is_web and not shown:
            self._line += address
