"""`/export`: sessions as a file, streamed."""

import asyncio
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from hansard.actions import exporting, rendering
from hansard.model.extent import Extent
from hansard.web.answers import name
from hansard.web.auth import Parts, Reader

router = APIRouter(tags=["export"])
CHUNK = 64 * 1024
_SANDBOX = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"


class Format(StrEnum):
    """As what sessions are exported."""

    JSONL = "jsonl"
    MARKDOWN = "md"
    HTML = "html"


_MAKERS = {
    Format.JSONL: exporting.export_jsonl,
    Format.MARKDOWN: rendering.export_markdown,
    Format.HTML: rendering.export_html,
}
_TYPES = {
    Format.JSONL: "application/x-ndjson",
    Format.MARKDOWN: "text/markdown; charset=utf-8",
    Format.HTML: "text/html; charset=utf-8",
}


@router.get("/export")
async def export(
    parts: Parts,
    caller: Reader,
    *,
    session: Annotated[list[str] | None, Query(max_length=1000)] = None,
    form: Annotated[Format, Query(alias="format")] = Format.JSONL,
    tools: bool = True,
    reasoning: bool = True,
    redact: bool = False,
) -> Response:
    """The named sessions, or all of the profile: lossless as JSONL, or for people.

    Tools and reasoning can be left out, people's ids, numbers and addresses hidden.
    """
    ids = None if session is None else [name(each, "session") for each in session]
    extent = Extent(tools=tools, reasoning=reasoning, redact=redact)
    chunks = _chunks(_MAKERS[form](parts.store, ids, profile=caller.profile, extent=extent))
    # The first chunk is made before the answer begins: what is not there is a 404, not half a file.
    first = await asyncio.to_thread(next, chunks, b"")
    headers = {
        "Content-Disposition": f'attachment; filename="hansard.{form}"',
        "Content-Security-Policy": _SANDBOX,
    }
    return StreamingResponse(_after(first, chunks), media_type=_TYPES[form], headers=headers)


def _after(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _chunks(lines: Iterator[str]) -> Iterator[bytes]:
    """The lines in pieces that are worth sending."""
    held: list[bytes] = []
    size = 0
    for line in lines:
        held.append(line.encode("utf-8", "replace"))
        size += len(held[-1])
        if size >= CHUNK:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)
