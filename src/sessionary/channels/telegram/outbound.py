"""Split texts into Telegram's messages, render Markdown as MarkdownV2, and arrange the buttons of a question."""

import re
from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

from sessionary.channels.base import button_labels, utf16_units
from sessionary.engine.outbox import split_text
from sessionary.model.question import Card

LONGEST = 4096
# What Telegram shows for a moment to whoever presses a button.
LONGEST_TOAST = 200
# A longer label may be cut on a telephone.
LONGEST_LABEL = 40
# How many characters of labels are readable beside each other: all buttons of a row are equally wide.
_ROW_WIDTH = 28
_RESERVED = re.compile(r"([_*\[\]()~`>#+\-=|{}.!\\])")
_IN_CODE = re.compile(r"([`\\])")
_IN_URL = re.compile(r"([)\\])")
_MARKS = {"strong": "*", "em": "_", "s": "~"}
# Agents indent without meaning code; HTML is shown as text.
_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
_PARSER.disable(["code"])


def halves(text: str) -> list[str]:
    """Split a message in two that Telegram found too long."""
    half = max(1, utf16_units(text) // 2 + 16)
    return split_text(text, half, measure=utf16_units)


def markup_of(text: str) -> str | None:
    """Return the text with markup; None if there is nothing to show or it would be too long."""
    made = render(text)
    return made if made.strip() and utf16_units(made) <= 2 * LONGEST else None


def render(text: str) -> str:
    """Render Markdown as MarkdownV2."""
    tokens = _PARSER.parse(text)
    lines = text.splitlines()
    return _BlockRenderer(tokens, lines).render().strip("\n")


def button_rows(card: Card) -> list[list[tuple[str, str]]]:
    """Return the buttons of a card in rows, each with its label and what it carries; short ones share a row."""
    rows: list[list[tuple[str, str]]] = []
    widest = 0
    for number, label in enumerate(button_labels(card, LONGEST_LABEL), 1):
        widest = max(widest, len(label))
        if not rows or (len(rows[-1]) + 1) * widest > _ROW_WIDTH:
            rows.append([])
            widest = len(label)
        rows[-1].append((label, card.button(number)))
    return rows


def escape(text: str) -> str:
    """Escape everything that would be markup."""
    return _RESERVED.sub(r"\\\1", text)


class _BlockRenderer:
    """Renders the blocks of a document as lines."""

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
                # Without content, the text beside its marks is the code.
                info = token.info.strip()
                content, info = (token.content, info) if token.content.strip() else (info, "")
                self._code(content, info.split(" ")[0])
            case "hr":
                self._out.append("———")
                self._gap()
            case _:
                pass

    def _paragraph(self, token: Token) -> None:
        shown = _inline(token.children or [], is_bold=self._is_heading)
        marker, self._marker = self._marker, ""
        indent = "  " * (len(self._lists) - 1) if self._lists else ""
        self._out.append(f"{indent}{marker}{shown}")
        if not self._lists:
            self._gap()

    def _next_marker(self) -> str:
        number = self._lists[-1]
        if number is None:
            return "• "
        self._lists[-1] = number + 1
        return f"{number}\\. "

    def _code(self, content: str, language: str) -> None:
        tag = re.sub(r"[^\w+#-]", "", language)
        body = _escape_code(content.rstrip("\n"))
        self._out.append(f"```{tag}\n{body}\n```")
        self._gap()

    def _raw(self, token: Token) -> None:
        """Render a table as it was written, in a monospaced font."""
        first, last = token.map or (0, 0)
        self._code("\n".join(self._source[first:last]), "")

    def _quote(self, since: int, *, is_inner: bool) -> None:
        if is_inner:
            return
        quoted = "\n".join(self._out[since:]).strip("\n")
        del self._out[since:]
        # A quote cannot contain code.
        lines = quoted.split("\n")
        self._out += lines if "```" in quoted else [f">{line}" for line in lines]
        self._gap()

    def _gap(self) -> None:
        if self._out and self._out[-1] != "":
            self._out.append("")


def _inline(tokens: Sequence[Token], *, is_bold: bool) -> str:
    """Render a line. A mark inside the same mark would end it, so it is written once."""
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
