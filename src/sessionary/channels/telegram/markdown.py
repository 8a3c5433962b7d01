"""An agent's Markdown as Telegram's MarkdownV2, with everything escaped that must be. Pure."""

import re
from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

_RESERVED = re.compile(r"([_*\[\]()~`>#+\-=|{}.!\\])")
_IN_CODE = re.compile(r"([`\\])")
_IN_URL = re.compile(r"([)\\])")
_MARKS = {"strong": "*", "em": "_", "s": "~"}
# Indented code is what agents get when they indent; html is text to us.
_READER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
_READER.disable(["code"])


def render(text: str) -> str:
    """MarkdownV2 that shows what the Markdown means."""
    tokens = _READER.parse(text)
    lines = text.splitlines()
    return _Blocks(tokens, lines).render().strip("\n")


def escape(text: str) -> str:
    """Text in which nothing is markup."""
    return _RESERVED.sub(r"\\\1", text)


class _Blocks:
    """Walks the blocks of a document; each becomes lines."""

    def __init__(self, tokens: Sequence[Token], source: Sequence[str]) -> None:
        self._tokens = tokens
        self._source = source
        self._lists: list[int | None] = []
        self._is_heading = False
        self._out: list[str] = []
        self._marker = ""

    def render(self) -> str:
        quotes: list[int] = []
        table = 0
        for token in self._tokens:
            table += (token.type == "table_open") - (token.type == "table_close")
            if token.type == "table_open":
                self._raw(token)
            elif table:
                continue
            elif token.type == "blockquote_open":
                quotes.append(len(self._out))
            elif token.type == "blockquote_close":
                self._quote(quotes.pop(), is_inner=bool(quotes))
            else:
                self._block(token)
        return "\n".join(self._out)

    def _block(self, token: Token) -> None:
        match token.type:
            case "heading_open" | "heading_close":
                self._is_heading = token.type == "heading_open"
            case "bullet_list_open":
                self._lists.append(None)
            case "ordered_list_open":
                self._lists.append(int(token.attrGet("start") or 1))
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()
                self._gap()
            case "list_item_open":
                self._marker = self._next_marker()
            case "inline":
                self._paragraph(token)
            case "fence":
                self._fence(token.content, token.info.strip())
            case "hr":
                self._put("———")
                self._gap()
            case _:
                pass

    def _paragraph(self, token: Token) -> None:
        shown = _inline(token.children or [], is_bold=self._is_heading)
        marker, self._marker = self._marker, ""
        indent = "  " * (len(self._lists) - 1) if self._lists else ""
        self._put(f"{indent}{marker}{shown}")
        if not self._lists:
            self._gap()

    def _next_marker(self) -> str:
        number = self._lists[-1]
        if number is None:
            return "• "
        self._lists[-1] = number + 1
        return f"{number}\\. "

    def _fence(self, content: str, info: str) -> None:
        """Code; where there is none below the marks, what stands beside them is it."""
        if not content.strip():
            content, info = info, ""
        self._code(content, info.split(" ")[0])

    def _code(self, content: str, language: str) -> None:
        tag = re.sub(r"[^\w+#-]", "", language)
        body = _escape_code(content.rstrip("\n"))
        self._put(f"```{tag}\n{body}\n```")
        self._gap()

    def _raw(self, token: Token) -> None:
        """A table, as it was written, in letters of one width."""
        first, last = token.map or (0, 0)
        self._code("\n".join(self._source[first:last]), "")

    def _quote(self, since: int, *, is_inner: bool) -> None:
        if is_inner:
            return
        said = "\n".join(self._out[since:]).strip("\n")
        del self._out[since:]
        # Code cannot stand in a quote.
        lines = said.split("\n")
        self._out += lines if "```" in said else [f">{line}" for line in lines]
        self._gap()

    def _put(self, text: str) -> None:
        self._out.append(text)

    def _gap(self) -> None:
        if self._out and self._out[-1] != "":
            self._out.append("")


def _inline(tokens: Sequence[Token], *, is_bold: bool) -> str:
    """The words of a line. A mark inside itself would end it: it is written once."""
    out: list[str] = ["*"] if is_bold else []
    depth = {"strong": int(is_bold), "em": 0, "s": 0}
    links: list[str] = []
    for token in tokens:
        kind, _, side = token.type.rpartition("_")
        if kind in depth and side in ("open", "close"):
            depth[kind] += 1 if side == "open" else -1
            if depth[kind] == int(side == "open"):
                out.append(_MARKS[kind])
        elif token.type == "link_open":
            links.append(str(token.attrGet("href") or ""))
            out.append("[")
        elif token.type == "link_close":
            out.append(f"]({_escape_url(links.pop())})" if links else "")
        else:
            out.append(_leaf(token))
    return "".join([*out, "*" if is_bold else ""])


def _leaf(token: Token) -> str:
    match token.type:
        case "code_inline":
            return f"`{_escape_code(token.content)}`"
        case "softbreak" | "hardbreak":
            return "\n"
        case "image":
            return escape(f"{token.content} ({token.attrGet('src')})")
        case _:
            return escape(token.content)


def _escape_code(text: str) -> str:
    return _IN_CODE.sub(r"\\\1", text)


def _escape_url(text: str) -> str:
    return _IN_URL.sub(r"\\\1", text)
