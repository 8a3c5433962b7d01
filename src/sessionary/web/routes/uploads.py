"""Files: uploaded before the message that uses them, and downloaded so that a browser never runs them."""

from typing import Annotated
from urllib.parse import quote

from fastapi import Path, Query, Request
from starlette.responses import Response

from sessionary.actions import files
from sessionary.actions.sessions import read
from sessionary.model import codec, media
from sessionary.model.json_types import AttachmentPart
from sessionary.model.media import PICTURES
from sessionary.model.terminal import one_line
from sessionary.store.database import Tx
from sessionary.web.auth import ContextDep, Reader, Writer
from sessionary.web.context import PREFIX
from sessionary.web.openapi import response_content
from sessionary.web.problems import RequestRefused
from sessionary.web.requests import read_raw
from sessionary.web.responses import StoredAnswer, answer, change, checked_name
from sessionary.web.routes.sessions import SessionId
from sessionary.web.routing import JsonAnswer, api_router

router = api_router(prefix=PREFIX, tags=["files"])
MAX_NAME = 200
_SANDBOX = "default-src 'none'; sandbox"
_HASH = 64
_FILE = {"type": "string", "format": "binary"}
_BODY = {"requestBody": {"required": True, "content": {media.BYTES: {"schema": _FILE}}}}
Name = Annotated[str, Query(alias="name", max_length=2000, description="The file name.")]


@router.post("/blobs", status_code=201, openapi_extra=_BODY)
async def upload_file(
    request: Request, context: ContextDep, caller: Writer, file_name: Name = ""
) -> JsonAnswer[AttachmentPart]:
    """Upload a file.

    The body is the file itself; the answer is the part to send with a message. The media type is detected from the
    content. A file that no message uses is deleted after a week.
    """
    request.state.raw = data = await read_raw(request)
    limit = context.settings.limits.upload_bytes
    if len(data) > limit:
        raise RequestRefused(413, f"A file has {limit:,} bytes at most.")
    called = one_line(codec.storable_text(file_name), MAX_NAME) or None
    kind = media.media_type_of(data, request.headers.get("content-type", ""))
    moment = context.moment()

    def apply(tx: Tx) -> StoredAnswer[AttachmentPart]:
        blob = files.upload(tx, data, profile=caller.profile, moment=moment)
        part: AttachmentPart = {
            "type": "attachment",
            "blob": blob,
            "media_type": kind,
            "size": len(data),
        }
        if called is not None:
            part["name"] = called
        return answer(part, 201)

    return await change(request, caller, apply)


@router.get(
    "/sessions/{session_id}/blobs/{blob}",
    response_class=Response,
    responses=response_content(
        media.BYTES, *sorted(PICTURES), description="The bytes of the file.", binary=True
    ),
)
async def download_file(
    session_id: SessionId,
    blob: Annotated[str, Path(description="The SHA-256 of the file, as its part says.")],
    context: ContextDep,
    caller: Reader,
    file_name: Name = "",
) -> Response:
    """Download an attachment of a session.

    PNG, JPEG, GIF and WebP have their media type, so that a page can show them; other files are
    `application/octet-stream`.
    """
    known, wanted = (
        checked_name(session_id, "session"),
        checked_name(blob, "attachment")[: _HASH + 1],
    )
    head = await context.store.read(read.get_head, known, profile=caller.profile)
    data = await context.store.read(files.read_blob, wanted, session_no=head.no)
    return downloaded(data, file_name)


def downloaded(data: bytes, file_name: str) -> Response:
    """A file as a download: a browser shows it only if it is a picture, and never runs it."""
    headers = {"Content-Disposition": _kept_as(file_name), "Content-Security-Policy": _SANDBOX}
    return Response(data, media_type=media.browser_type(data), headers=headers)


def _kept_as(file_name: str) -> str:
    """A download under a name that leads nowhere."""
    called = one_line(codec.storable_text(file_name), MAX_NAME)
    called = called.replace("/", "_").replace("\\", "_").lstrip(".")
    return f"attachment; filename*=UTF-8''{quote(called, safe='')}" if called else "attachment"
