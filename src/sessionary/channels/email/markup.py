"""From HTML to the words a person reads. Pure."""

import re
from html.parser import HTMLParser

_SILENT = frozenset({"head", "script", "style", "title", "template", "noscript"})
_BLOCKS = frozenset(
    {"address", "article", "div", "dl", "dt", "dd", "footer", "form", "h1", "h2", "h3", "h4"}
    | {"h5", "h6", "header", "hr", "ol", "p", "pre", "section", "table", "tr", "ul"}
)
_SPACES = re.compile(r"[ \t\r\n\f\v]+")
_BLANK_LINES = re.compile(r"\n{3,}")


def text_of_html(html: str) -> str:
    """The text of a page: paragraphs as lines, quotes with `>`, links with their address."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.text()


class _Reader(HTMLParser):
    """Collects words; never fails, whatever the page looks like."""

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
        """What was collected."""
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
