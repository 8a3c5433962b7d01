"""Files: brought in before the message that has them, given out to be kept and never to be run."""

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from sessionary.actions import files
from sessionary.actions.requests import StoredResponse
from sessionary.actions.sessions import read
from sessionary.model import codec, media, message
from sessionary.model.media import PICTURES
from sessionary.model.message import Attachment
from sessionary.model.terminal import one_line
from sessionary.store.database import Tx
from sessionary.web.auth import ContextDep, Reader, Writer
from sessionary.web.context import PREFIX
from sessionary.web.openapi import response_content
from sessionary.web.problems import RequestRefused
from sessionary.web.requests import read_raw
from sessionary.web.responses import answer, change, checked_name

router = APIRouter(prefix=PREFIX, tags=["files"])
MAX_NAME = 200
_SANDBOX = "default-src 'none'; sandbox"
_HASH = 64
_BODY = {"requestBody": {"required": True, "content": {media.BYTES: {"schema": {}}}}}
Name = Annotated[str, Query(alias="name", max_length=2000)]


@router.post("/blobs", status_code=201, openapi_extra=_BODY)
async def upload(
    request: Request, context: ContextDep, caller: Writer, file_name: Name = ""
) -> Response:
    """Keep a file for a message that will have it; the answer is the part to send with it.

    The body is the file itself. What it is is found by looking at it; a file that no message
    has had for a week is let go.
    """
    data = await read_raw(request)
    limit = context.settings.limits.upload_bytes
    if len(data) > limit:
        raise RequestRefused(413, f"A file has {limit:,} bytes at most.")
    called = one_line(codec.storable_text(file_name), MAX_NAME) or None
    kind = media.media_type_of(data, request.headers.get("content-type", ""))
    moment = context.moment()

    def apply(tx: Tx, /) -> StoredResponse:
        known = files.upload(tx, data, profile=caller.profile, moment=moment)
        return answer(message.to_json(Attachment(known, kind, called, len(data))), 201)

    return await change(request, caller, data, apply)


@router.get(
    "/sessions/{session_id}/blobs/{blob}",
    response_class=Response,
    responses=response_content(media.BYTES, *sorted(PICTURES)),
)
async def attachment(
    session_id: str, blob: str, context: ContextDep, caller: Reader, file_name: Name = ""
) -> Response:
    """The bytes of an attachment of this session: to be kept, never to be run."""
    known, wanted = (
        checked_name(session_id, "session"),
        checked_name(blob, "attachment")[: _HASH + 1],
    )
    head = await context.store.read(read.get_head, known, profile=caller.profile)
    data = await context.store.read(files.read_blob, wanted, session_no=head.no)
    headers = {"Content-Disposition": _kept_as(file_name), "Content-Security-Policy": _SANDBOX}
    return Response(data, media_type=media.browser_type(data), headers=headers)


def _kept_as(file_name: str) -> str:
    """A download under a name that leads nowhere."""
    called = one_line(codec.storable_text(file_name), MAX_NAME)
    called = called.replace("/", "_").replace("\\", "_").lstrip(".")
    return f"attachment; filename*=UTF-8''{quote(called, safe='')}" if called else "attachment"
