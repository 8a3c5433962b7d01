"""A conversation as a page for a browser: one file, no scripts, nothing fetched from elsewhere.

Everything that others wrote is escaped or rendered from Markdown without HTML; links lead only
to http, https and mailto; pictures are shown only if their bytes are in the store.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

from sessionary.model import codec
from sessionary.model.markdown import (
    attachment_label,
    facts_of,
    format_time,
    heading_of,
    title_of,
    value_text,
)
from sessionary.model.media import PICTURES
from sessionary.model.message import (
    Attachment,
    Compaction,
    Entry,
    Message,
    Part,
    Reasoning,
    Retraction,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from sessionary.model.session import SessionHead
from sessionary.model.terminal import one_line

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.renderer import RendererHTML
    from markdown_it.token import Token

MAX_PICTURE = 8 * 1024 * 1024
# Longer texts are shown as they are: rendering takes more than linear time.
MAX_RENDERED = 100_000
_LINKS = ("http:", "https:", "mailto:")

_STYLE = """
:root {
  color-scheme: light dark;
  --text: #1c1d1f; --paper: #fff; --soft: #f3f4f6; --line: #d9dce1; --dim: #5b6068;
}
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e7ea; --paper: #17181b; --soft: #212328; --line: #363a41; --dim: #a0a5ae; }
}
body { margin: 0; background: var(--paper); color: var(--text); font: 16px/1.55 system-ui; }
main { max-width: 48rem; margin: 0 auto; padding: 2rem 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .5rem; }
h2 { font-size: .85rem; font-weight: 600; color: var(--dim); margin: 0 0 .5rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; }
dl { font-size: .85rem; color: var(--dim); }
dd { margin: 0; }
article { border-bottom: 1px solid var(--line); padding-bottom: 2rem; margin-bottom: 2rem; }
section { border: 1px solid var(--line); border-radius: .5rem; }
section { padding: .75rem 1rem; margin: .75rem 0; }
section.user { background: var(--soft); }
section, dd, summary { overflow-wrap: anywhere; }
pre { background: var(--soft); padding: .75rem; border-radius: .25rem; white-space: pre-wrap; }
blockquote, .reasoning { color: var(--dim); border-left: 3px solid var(--line); }
blockquote, .reasoning { margin: .5rem 0; padding-left: .75rem; }
table { border-collapse: collapse; }
td, th { border: 1px solid var(--line); padding: .25rem .5rem; }
img { max-width: 100%; }
details { margin: .5rem 0; }
summary { cursor: pointer; color: var(--dim); }
""".strip()
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)


def opening(title: str) -> str:
    """The beginning of a page."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{_line(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
    )


def closing() -> str:
    """The end of a page."""
    return "</main>\n</body>\n</html>\n"


def session_opening(head: SessionHead) -> str:
    """The title and the facts of a session."""
    facts = "".join(
        f"<dt>{name}</dt><dd><bdi>{_line(value)}</bdi></dd>\n" for name, value in facts_of(head)
    )
    title = _line(title_of(head))
    return f'<article>\n<header>\n<h1 dir="auto">{title}</h1>\n<dl>\n{facts}</dl>\n</header>\n'


def session_closing() -> str:
    """The end of a session."""
    return "</article>\n"


def render_entry(entry: Entry, pictures: Mapping[str, bytes]) -> str:
    """One entry of a transcript; `pictures` are the bytes of those that may be shown, by hash."""
    match entry.body:
        case Message() as message:
            content = "".join(_part(part, pictures) for part in message.parts)
            return _section(message.role, heading_of(message), entry.at, content)
        case Compaction(summary) as mark:
            return _section("summary", mark.heading, entry.at, _prose(summary))
        case Retraction():
            return ""


def pictures_of(entry: Entry) -> list[str]:
    """The hashes of an entry's pictures that a page can show."""
    if not isinstance(entry.body, Message):
        return []
    return [
        part.blob for part in entry.body.parts if isinstance(part, Attachment) and _is_picture(part)
    ]


def _is_picture(part: Attachment) -> bool:
    return part.media_type in PICTURES and (part.size or 0) <= MAX_PICTURE


def _section(kind: str, heading: str, at: datetime, content: str) -> str:
    time = f'<time datetime="{at.isoformat()}">{format_time(at)}</time>'
    return (
        f'<section class="{escape(kind)}">\n<h2><bdi>{_line(heading)}</bdi> · {time}</h2>\n'
        f"{content}</section>\n"
    )


def _part(part: Part, pictures: Mapping[str, bytes]) -> str:
    match part:
        case Text(text):
            return _prose(text)
        case Reasoning(text):
            return f'<div class="reasoning">{_prose(text)}</div>\n' if text.strip() else ""
        case ToolCall(name=name, arguments=arguments):
            return _folded(f"Tool call {name}", value_text(arguments))
        case ToolResult(content=content, name=name, is_error=is_error):
            what = "Tool error" if is_error else "Tool result"
            return _folded(f"{what} {name or ''}", value_text(content))
        case Attachment():
            return _attachment(part, pictures)
        case Unknown(data):
            return _folded("Something else", codec.encode(dict(data)))


def _attachment(part: Attachment, pictures: Mapping[str, bytes]) -> str:
    label = _line(attachment_label(part))
    data = pictures.get(part.blob)
    if data is None or not _is_picture(part):
        return f"<p>Attachment: <bdi>{label}</bdi></p>\n"
    encoded = base64.b64encode(data).decode()
    return f'<p><img alt="{label}" src="data:{part.media_type};base64,{encoded}"></p>\n'


def _folded(summary: str, text: str) -> str:
    shown = escape(codec.storable_text(text))
    return (
        f"<details>\n<summary><bdi>{_line(summary)}</bdi></summary>\n"
        f'<pre dir="auto">{shown}</pre>\n</details>\n'
    )


def _prose(text: str) -> str:
    text = codec.storable_text(text)
    if not text.strip():
        return ""
    if len(text) > MAX_RENDERED:
        return f'<pre dir="auto">{escape(text)}</pre>\n'
    return f'<div dir="auto">\n{_parser().render(text)}</div>\n'


def _line(text: str) -> str:
    return escape(one_line(text))


@cache
def _parser() -> "MarkdownIt":
    # Loaded for the first page: a server that exports none starts with 62 modules and 40 ms of CPU less.
    from markdown_it import MarkdownIt

    parser = MarkdownIt("js-default", {"html": False, "linkify": False, "typographer": False})
    parser.validateLink = _is_link  # type: ignore[method-assign]  # the library's way to say so
    parser.add_render_rule("image", _render_image)
    parser.add_render_rule("link_open", _render_link)
    return parser


def _is_link(url: str) -> bool:
    return url.strip().lower().startswith(_LINKS)


def _render_image(_: "RendererHTML", tokens: "Sequence[Token]", index: int, *_others: Any) -> str:
    """A picture from elsewhere is a link to it: the page itself fetches nothing."""
    url = str(tokens[index].attrGet("src") or "")
    label = _line(tokens[index].content) or "picture"
    return f'<a href="{escape(url)}" rel="noopener noreferrer">[picture: {label}]</a>'


def _render_link(
    renderer: "RendererHTML", tokens: "Sequence[Token]", index: int, *others: Any
) -> str:
    tokens[index].attrSet("rel", "noopener noreferrer")
    return renderer.renderToken(tokens, index, *others)
