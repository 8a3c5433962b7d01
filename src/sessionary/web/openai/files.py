"""`/v1/files`: files that programs keep by an id, and name in the messages that they send."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request
from pydantic import Field
from starlette.responses import Response
from typing_extensions import TypedDict

from sessionary.actions import files
from sessionary.actions.files import NewFile
from sessionary.errors import BadInput, NotFound
from sessionary.formats import coerce
from sessionary.formats.coerce import Json
from sessionary.formats.openai_responses import FILE_ID, map_content
from sessionary.model import codec, media
from sessionary.model.terminal import one_line
from sessionary.store.database import Tx
from sessionary.store.tables import files as kept_files
from sessionary.store.tables.files import StoredFile
from sessionary.web.auth import ContextDep, Reader, Writer
from sessionary.web.context import Caller, WebContext
from sessionary.web.openai.errors import ApiError
from sessionary.web.openai.forms import FormField, parse_form
from sessionary.web.requests import read_raw
from sessionary.web.responses import StoredAnswer, answer, change, json_response
from sessionary.web.routes.uploads import MAX_NAME, downloaded
from sessionary.web.routing import JsonAnswer, api_router

router = api_router(prefix="/v1", include_in_schema=False)
PREFIX = "file-"
PURPOSES = ("assistants", "batch", "evals", "fine-tune", "user_data", "vision")
MOST_LISTED = 10_000
# A message names at most this many files.
MOST_NAMED = 100
_LONGEST_PURPOSE = 40
_LEAST_SECONDS, _MOST_SECONDS = 3600, 2_592_000
_EXPIRY = "expires_after"
FileId = Annotated[str, Path(description="The file's id.")]


class FileObject(TypedDict):
    """A file that is kept."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: str
    status: Literal["processed"]
    status_details: None


class FilePage(TypedDict):
    """Files in the order that was asked for."""

    object: Literal["list"]
    data: list[FileObject]
    first_id: str
    """Empty in an empty list."""
    last_id: str
    has_more: bool


class FileDeleted(TypedDict):
    """A file that was deleted."""

    id: str
    object: Literal["file"]
    deleted: bool


@router.post("/files")
async def create_file(
    request: Request, context: ContextDep, caller: Writer
) -> JsonAnswer[FileObject]:
    """Keep a file, until it is deleted or expires; messages name it by its id."""
    form = parse_form(await read_raw(request), request.headers.get("content-type", ""))
    file, limit = form.get("file"), context.settings.limits.upload_bytes
    if file is None or file.file_name is None:
        raise ApiError(400, "The form has no file.", param="file")
    if not file.data:
        raise ApiError(400, "The file is empty; nothing was kept.", param="file")
    if len(file.data) > limit:
        raise ApiError(413, f"A file has {limit:,} bytes at most.", param="file")
    purpose = form["purpose"].text if "purpose" in form else ""
    if purpose not in PURPOSES:
        raise ApiError(400, f"The purpose is one of {', '.join(PURPOSES)}.", param="purpose")
    new = NewFile(
        file.data,
        one_line(codec.storable_text(file.file_name), MAX_NAME) or "file",
        media.media_type_of(file.data, file.media_type),
        purpose,
        _kept_for(form),
    )
    # The boundary of a form differs from one attempt to the next.
    said = [new.name, purpose, str(new.kept_for), hashlib.sha256(new.data).hexdigest()]
    request.state.raw = codec.encode(said).encode()
    moment = context.moment()

    def apply(tx: Tx) -> StoredAnswer[FileObject]:
        made = files.keep_file(tx, new, profile=caller.profile, token_id=caller.id, moment=moment)
        return answer(_told(made))

    return await change(request, caller, apply)


@router.get("/files")
async def list_files(
    context: ContextDep,
    caller: Reader,
    after: Annotated[str | None, Query(max_length=200)] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = MOST_LISTED,
    order: Annotated[Literal["asc", "desc"], Field()] = "desc",
    purpose: Annotated[str, Query(max_length=_LONGEST_PURPOSE)] = "",
) -> JsonAnswer[FilePage]:
    """List the files that are kept, the newest first."""
    now, profile = context.clock.now(), caller.profile

    def look(tx: Tx) -> list[StoredFile]:
        last = None if after is None else _get(tx, after, "after", profile=profile, now=now)
        return kept_files.page(
            tx,
            profile=profile,
            now=now,
            limit=limit + 1,
            after=last,
            purpose=purpose,
            newest_first=order == "desc",
        )

    found = await context.store.read(look)
    data = [_told(each) for each in found[:limit]]
    return json_response(
        FilePage(
            object="list",
            data=data,
            first_id=data[0]["id"] if data else "",
            last_id=data[-1]["id"] if data else "",
            has_more=len(found) > limit,
        )
    )


@router.get("/files/{file_id}")
async def get_file(file_id: FileId, context: ContextDep, caller: Reader) -> JsonAnswer[FileObject]:
    """Get what is known of a file."""
    now = context.clock.now()
    found = await context.store.read(_get, file_id, profile=caller.profile, now=now)
    return json_response(_told(found))


@router.get("/files/{file_id}/content", response_class=Response)
async def get_file_content(file_id: FileId, context: ContextDep, caller: Reader) -> Response:
    """Get the bytes of a file."""
    now = context.clock.now()

    def look(tx: Tx) -> tuple[StoredFile, bytes]:
        found = _get(tx, file_id, profile=caller.profile, now=now)
        return files.read_file(tx, found.id, profile=caller.profile, now=now)

    found, data = await context.store.read(look)
    return downloaded(data, found.name)


@router.delete("/files/{file_id}")
async def delete_file(
    file_id: FileId, request: Request, context: ContextDep, caller: Writer
) -> JsonAnswer[FileDeleted]:
    """Delete a file. Messages that have it keep it."""
    now = context.clock.now()

    def apply(tx: Tx) -> StoredAnswer[FileDeleted]:
        found = _get(tx, file_id, profile=caller.profile, now=now)
        files.delete_file(tx, found.id, profile=caller.profile, now=now)
        return answer(FileDeleted(id=PREFIX + found.id, object="file", deleted=True))

    return await change(request, caller, apply)


def _get(
    tx: Tx, file_id: str, param: str = "file_id", *, profile: str, now: datetime
) -> StoredFile:
    try:
        return files.get_file(tx, file_id.removeprefix(PREFIX), profile=profile, now=now)
    except NotFound as error:
        raise ApiError(404, f"There is no file {file_id[:64]!a}.", param=param) from error


def _kept_for(form: Mapping[str, FormField]) -> timedelta | None:
    anchor, seconds = form.get(f"{_EXPIRY}[anchor]"), form.get(f"{_EXPIRY}[seconds]")
    if anchor is None and seconds is None:
        return None
    text = "" if seconds is None else seconds.text
    wanted = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    is_known = anchor is not None and anchor.text == "created_at"
    if not is_known or not _LEAST_SECONDS <= wanted <= _MOST_SECONDS:
        raise ApiError(
            400,
            f"{_EXPIRY} has the anchor created_at and {_LEAST_SECONDS} to {_MOST_SECONDS} seconds.",
            param=_EXPIRY,
        )
    return timedelta(seconds=wanted)


def _told(file: StoredFile) -> FileObject:
    return {
        "id": PREFIX + file.id,
        "object": "file",
        "bytes": file.size,
        "created_at": int(file.created_at.timestamp()),
        "expires_at": None if file.expires_at is None else int(file.expires_at.timestamp()),
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


def named_files(parts: Sequence[Any]) -> set[str]:
    """The ids of the files that parts of a message name: in the form of either API."""
    return {id for part in parts if (id := _named(part)) is not None}


def find_files(tx: Tx, ids: set[str], *, profile: str, now: datetime) -> dict[str, StoredFile]:
    """The files with these ids, by their ids; refuse an id that this profile does not have."""
    if len(ids) > MOST_NAMED:
        raise BadInput(f"A request names {MOST_NAMED} files at most; nothing was written.")
    return {id: _get(tx, id, profile=profile, now=now) for id in sorted(ids)}


async def with_files(context: WebContext, caller: Caller, messages: Sequence[Any]) -> Sequence[Any]:
    """The messages of a chat with the attachments in place of the files that they name."""
    contents = (coerce.record(each).get("content") for each in messages)
    ids = {id for each in contents for id in named_files(coerce.items(each))}
    if not ids:
        return messages
    now = context.clock.now()
    found = await context.store.read(find_files, ids, profile=caller.profile, now=now)
    return map_content(messages, partial(with_file, found=found))


def with_file(part: Any, found: Mapping[str, StoredFile]) -> Any:
    """The part with the attachment in its place, if it names a file that was found."""
    file = found.get(_named(part) or "")
    if file is None:
        return part
    return {
        "type": "attachment",
        "blob": file.hash,
        "media_type": file.media_type,
        "name": file.name,
        "size": file.size,
        FILE_ID: PREFIX + file.id,
    }


def _named(part: Any) -> str | None:
    given: Json = coerce.record(part)
    if given.get("type") not in ("input_file", "input_image", "file"):
        return None
    return coerce.name((coerce.record(given.get("file")) or given).get("file_id"))
