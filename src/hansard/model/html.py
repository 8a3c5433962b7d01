"""Transcripts as one page of HTML: nothing in it runs, nothing is fetched."""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC
from html import escape

from hansard.model.entry import Compaction, Entry, Message
from hansard.model.part import Attachment, Part, Reasoning, Text, ToolCall, ToolResult, Unknown
from hansard.model.session import SessionHead
from hansard.model.terminal import one_line

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem;"
    "color:#1a1a1a;background:#fff}"
    "article{margin:1rem 0;padding:.5rem 1rem;border-left:3px solid #ccc}"
    "article.user{border-color:#36c}article.assistant{border-color:#2a7}"
    "header{color:#666;font-size:.85rem}pre{white-space:pre-wrap;overflow-wrap:anywhere;"
    "font:inherit;margin:.3rem 0}pre.code{font:13px/1.4 monospace;background:#f4f4f4;padding:.5rem}"
    "blockquote{color:#555;margin:.3rem 0;padding-left:.8rem;border-left:2px solid #ddd}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}"
    "pre.code{background:#242424}header{color:#999}}"
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def beginning(title: str) -> str:
    """The page up to its first session."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>"
    )


def ending() -> str:
    """The page behind its last session."""
    return "</body>\n</html>"


def section(head: SessionHead, entries: Iterable[Entry]) -> Iterator[str]:
    """One session."""
    name = one_line(head.title or head.preview or "Untitled")
    facts = [head.id, one_line(head.source.description), head.began_at.strftime("%Y-%m-%d")]
    yield f'<section id="{_text(head.id)}">\n<h1 dir="auto">{_text(name)}</h1>'
    yield f"<header>{_text(' · '.join(facts))}</header>"
    for entry in entries:
        yield from _entry(entry)
    yield "</section>"


def _entry(entry: Entry) -> Iterator[str]:
    at = entry.at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    match entry.body:
        case Message() as said:
            person = f" ({one_line(said.person.label, 60)})" if said.person else ""
            yield f'<article class="{said.role}" id="{_text(entry.id)}">'
            yield f"<header>#{entry.seq} {said.role}{_text(person)} · {at}</header>"
            for part in said.parts:
                yield _part(part)
            yield "</article>"
        case Compaction(summary, through):
            yield f"<hr><header>Summary of 1 to {through}, for the model</header>"
            yield f'<blockquote dir="auto"><pre>{_text(summary)}</pre></blockquote>'
        case _:
            yield "<hr>"


def _part(part: Part) -> str:
    match part:
        case Text(text):
            return f'<pre dir="auto">{_text(text)}</pre>'
        case Reasoning(text):
            return f'<blockquote dir="auto"><pre>{_text(text)}</pre></blockquote>'
        case ToolCall(name=name, arguments=arguments):
            return f"<header>{_text(one_line(name, 80))}</header>{_code(arguments)}"
        case ToolResult(content=content, is_error=is_error):
            return f"<header>{'failed' if is_error else 'result'}</header>{_code(content)}"
        case Attachment(blob=blob, media_type=media_type, name=name):
            about = f"{one_line(name or blob, 80)}, {one_line(media_type, 80)}"
            return f"<header>attachment {_text(about)}</header>"
        case Unknown(data):
            return _code(data)


def _code(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return f'<pre class="code">{_text(text)}</pre>'


def _text(text: str) -> str:
    """Other people's text as text: no tag, no attribute, no control character."""
    kept = "".join(char if char in "\n\t" or not _steers(char) else "\ufffd" for char in text)
    return escape(kept)


def _steers(char: str) -> bool:
    return char < " " or "\x7f" <= char <= "\x9f" or "\ud800" <= char <= "\udfff"
