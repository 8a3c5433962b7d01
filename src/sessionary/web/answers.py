"""What callers get: JSON made by us, told to the description without being made twice."""

import hashlib
from collections.abc import Iterable
from typing import Any, Protocol

from fastapi import Request
from starlette.responses import Response

from sessionary.actions import requests
from sessionary.actions.requests import Repeatable, StoredResponse
from sessionary.errors import BadInput, NotFound
from sessionary.model import document
from sessionary.store.database import Tx
from sessionary.web.auth import idempotency_key, parts_of
from sessionary.web.parts import Caller

JSON = "application/json"
_LONGEST_NAME = 300


class Act(Protocol):
    """A change that is made in the transaction that notes its answer."""

    def __call__(self, tx: Tx, /) -> StoredResponse: ...


def json_response(value: Any, status: int = 200) -> Response:
    """A value as JSON."""
    return Response(document.encode(value).encode("utf-8"), status, media_type=JSON)


def items(values: Iterable[Any], following: str | None = None, **more: Any) -> Response:
    """A list as every list is."""
    return json_response({"items": list(values), "next": following, **more})


def answer(value: Any, status: int = 200, *, session_id: str | None = None) -> StoredResponse:
    """An answer to be noted with its change."""
    return StoredResponse(status, document.encode(value), session_id)


async def change(request: Request, caller: Caller, raw: bytes, act: Act) -> Response:
    """Make a change; the same request with the same idempotency key makes it once."""
    parts = parts_of(request)
    done = await parts.store.write(
        requests.once,
        repeatable(request, raw),
        act,
        profile=caller.profile,
        now=parts.clock.now(),
    )
    return Response(done.body.encode("utf-8"), done.status, media_type=JSON)


def repeatable(request: Request, raw: bytes) -> Repeatable | None:
    """The request's idempotency key with what the request says; None when it has none."""
    key = idempotency_key_of(request)
    if key is None:
        return None
    said = f"{request.method} {request.url.path}?{request.url.query}\n".encode()
    return Repeatable(key, hashlib.sha256(said + raw).hexdigest())


def idempotency_key_of(request: Request) -> str | None:
    """The idempotency key as the log keeps it, for ever."""
    key = idempotency_key(request)
    return None if key is None else f"http/{key}"


def name(text: str, what: str) -> str:
    """An id or a name out of a path; what no record could hold is found nowhere."""
    if len(text) > _LONGEST_NAME or document.storable_text(text) != text:
        raise NotFound(f"There is no such {what}.")
    return text


def plain(text: str | None, most: int = 4000) -> str | None:
    """A short text of a wish; what no record could hold is replaced visibly."""
    if text is not None and len(text) > most:
        raise BadInput(f"Too long: {text[:20]!a}… has {len(text):,} characters; {most:,} at most.")
    return None if text is None else document.storable_text(text)
