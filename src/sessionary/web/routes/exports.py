"""`/export`: sessions as a file, streamed: lossless, for people, or for another tool."""

import asyncio
import tempfile
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO, Final, Literal

from fastapi import Query
from pydantic import BaseModel, Field
from starlette.responses import Response, StreamingResponse
from typing_extensions import TypedDict

from sessionary.actions.transfer import export as exports
from sessionary.errors import BadInput
from sessionary.model.handover.excerpt import HandoverExcerpt
from sessionary.model.handover.forms import HANDOVER_FORMATS
from sessionary.model.record import ExportOptions
from sessionary.web.auth import ContextDep, Reader
from sessionary.web.context import PREFIX, Caller, WebContext
from sessionary.web.openapi import response_content
from sessionary.web.responses import checked_name, json_response
from sessionary.web.routes.sessions import SessionId
from sessionary.web.routing import JsonAnswer, api_router

router = api_router(prefix=PREFIX, tags=["export"])
CHUNK = 64 * 1024
MAX_TOKENS = 10_000_000
_SANDBOX = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"


class ExportFormat(StrEnum):
    """The format of an export."""

    JSONL = "jsonl"
    MARKDOWN = "md"
    HTML = "html"


class HandoverTool(StrEnum):
    """A tool that can continue a session."""

    CLAUDE_CODE = "claude-code"
    CODEX = "codex"
    OPENAI = "openai"
    OPEN_WEBUI = "open-webui"
    HERMES = "hermes"


# Not a file to continue from, but one to read by SQL.
STATE: Final = "hermes-state"
_MAKERS = {
    ExportFormat.JSONL: exports.export_jsonl,
    ExportFormat.MARKDOWN: exports.export_markdown,
    ExportFormat.HTML: exports.export_html,
}
_TYPES = {
    "jsonl": "application/x-ndjson",
    "json": "application/json",
    "md": "text/markdown; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "db": "application/vnd.sqlite3",
}


class ContentOptions(BaseModel):
    """What of a session is exported."""

    tools: bool = Field(True, description="Tool calls and their results.")
    reasoning: bool = Field(True, description="The model's reasoning.")
    redact: bool = Field(
        False, description="Hide ids, phone numbers and addresses of people (not inside files)."
    )
    mask_secrets: bool = Field(False, description="Mask keys, tokens and passwords.")

    @property
    def extent(self) -> ExportOptions:
        """The same as export options."""
        return ExportOptions(
            tools=self.tools,
            reasoning=self.reasoning,
            redact=self.redact,
            mask_secrets=self.mask_secrets,
        )


class HandoverQuery(ContentOptions):
    """The tool that continues the session, and how much of it the tool gets."""

    tool: HandoverTool = Field(alias="as", description="The tool that continues the session.")
    budget: int = Field(
        exports.HANDOVER_BUDGET,
        ge=1,
        le=MAX_TOKENS,
        description="How many tokens the file may have.",
    )


class ExportQuery(ContentOptions):
    """Which sessions, and in what format."""

    session_id: list[str] | None = Field(
        None, max_length=1000, description="Only these sessions; repeatable. By default all."
    )
    format: ExportFormat | None = Field(None, description="The format; by default `jsonl`.")
    tool: HandoverTool | Literal["hermes-state"] | None = Field(
        None,
        alias="as",
        description="Instead of a format: a file for this tool, of one session; `hermes-state`: the sessions as a "
        "SQLite file with the tables of Hermes.",
    )
    budget: int | None = Field(
        None, ge=1, le=MAX_TOKENS, description="With `as`: how many tokens the file may have."
    )


class HandoverInfo(TypedDict):
    """The file that `GET /export?as=` writes, and how to continue with it."""

    tool: HandoverTool
    title: str
    """The tool's name."""
    file: str
    """The name of the file."""
    messages: int
    """How many messages the file has."""
    left_out: int
    """How many messages of the session it does not have."""
    summarized: bool
    """Whether it begins with a summary."""
    advice: str
    """How to continue with the file in the tool."""


@router.get(
    "/export",
    response_class=Response,
    responses=response_content(
        *(each.partition(";")[0] for each in _TYPES.values()), description="The file."
    ),
)
async def export_sessions(
    context: ContextDep, caller: Reader, query: Annotated[ExportQuery, Query()]
) -> Response:
    """Export sessions as a file.

    The given sessions, or all of the profile: JSONL is lossless and can be imported again, Markdown and HTML are for
    people. With `as` one session becomes a file that another tool can continue, within a `budget` of tokens;
    with `as=hermes-state` the sessions become a SQLite file for programs that read Hermes' tables.
    """
    named = query.session_id
    ids = None if named is None else [checked_name(each, "session") for each in named]
    if query.tool == STATE:
        chunks = await asyncio.to_thread(_state_chunks, context, caller, query, ids)
        suffix, file = "db", "state.db"
    elif query.tool is not None:
        suffix = HANDOVER_FORMATS[query.tool].suffix
        pieces = await asyncio.to_thread(_handed_over, context, caller, query, ids)
        chunks, file = _chunks(pieces), file_name(query.tool)
    else:
        if query.budget is not None:
            raise BadInput("`budget` goes with `as`.")
        form = query.format or ExportFormat.JSONL
        suffix, file = str(form), f"sessionary.{form}"
        pieces = _MAKERS[form](context.store, ids, profile=caller.profile, options=query.extent)
        chunks = _chunks(pieces)
    # The first chunk is made before the answer begins: what is not there is a 404, not half a file.
    first = await asyncio.to_thread(next, chunks, b"")
    headers = {
        "Content-Disposition": f'attachment; filename="{file}"',
        "Content-Security-Policy": _SANDBOX,
    }
    return StreamingResponse(_after(first, chunks), media_type=_TYPES[suffix], headers=headers)


@router.get("/sessions/{session_id}/handover")
async def preview_handover(
    session_id: SessionId,
    context: ContextDep,
    caller: Reader,
    query: Annotated[HandoverQuery, Query()],
) -> JsonAnswer[HandoverInfo]:
    """Preview a handover to another tool.

    Describes the file that `GET /export?as=` writes: how much of the session it has, and how to continue with it.
    """
    known = checked_name(session_id, "session")
    made = await asyncio.to_thread(
        _excerpt, context, caller, known, budget=query.budget, left=query
    )
    form, file = HANDOVER_FORMATS[query.tool], file_name(query.tool)
    return json_response(
        HandoverInfo(
            tool=query.tool,
            title=form.title,
            file=file,
            messages=len(made.lines),
            left_out=made.left_out,
            summarized=made.summary is not None,
            advice=form.advice(made, file),
        )
    )


def file_name(tool: str) -> str:
    """What a browser calls the file that it gets."""
    return f"sessionary-{tool}.{HANDOVER_FORMATS[tool].suffix}"


def _excerpt(
    context: WebContext, caller: Caller, session_id: str, *, budget: int, left: ContentOptions
) -> HandoverExcerpt:
    """Return what is handed over of a session."""
    return exports.handover_excerpt(
        context.store, session_id, profile=caller.profile, budget=budget, options=left.extent
    )


def _state_chunks(
    context: WebContext, caller: Caller, query: ExportQuery, ids: list[str] | None
) -> Iterator[bytes]:
    """The file with Hermes' tables, written whole before its first piece is sent."""
    if query.format is not None or query.budget is not None or context.export_state is None:
        raise BadInput(f"`as={STATE}` takes no `format` and no `budget`.")
    with tempfile.TemporaryDirectory(prefix="sessionary-") as folder:
        path = Path(folder) / "state.db"
        context.export_state(context.store, path, ids, profile=caller.profile, options=query.extent)
        # Open, it can be read although it has no name any more.
        file = path.open("rb")
    return _file_chunks(file)


def _file_chunks(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while chunk := file.read(CHUNK):
            yield chunk


def _handed_over(
    context: WebContext, caller: Caller, query: ExportQuery, ids: list[str] | None
) -> Iterator[str]:
    if (
        query.format is not None
        or ids is None
        or len(set(ids)) != 1
        or not isinstance(query.tool, HandoverTool)
    ):
        raise BadInput("`as` takes one `session_id`, and no `format`.")
    budget = exports.HANDOVER_BUDGET if query.budget is None else query.budget
    return HANDOVER_FORMATS[query.tool].pieces(
        _excerpt(context, caller, ids[0], budget=budget, left=query)
    )


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
