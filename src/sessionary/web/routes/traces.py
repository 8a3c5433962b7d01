"""`/v1/traces` and `/v1/logs`: where the exporters of instrumented programs send (OTLP over HTTP)."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from sessionary.errors import BadInput
from sessionary.web.auth import Writer
from sessionary.web.context import Caller, Traces
from sessionary.web.problems import RequestRefused
from sessionary.web.requests import read_raw
from sessionary.web.routing import api_router

PATH = "/v1/traces"
LOGS_PATH = "/v1/logs"
MEDIA_TYPES = ("application/json", "application/x-protobuf")


def router_for(traces: Traces, logs: Traces) -> APIRouter:
    """The paths at which exporters look for it; a token that may write opens them."""
    router = api_router(include_in_schema=False)

    @router.post(PATH)
    async def receive(request: Request, caller: Writer) -> Response:
        """Take spans in; durable when this answers. The same span twice is one."""
        return await _take(request, caller, traces)

    @router.post(LOGS_PATH)
    async def receive_logs(request: Request, caller: Writer) -> Response:
        """Take in what log records say of spans; durable when this answers."""
        return await _take(request, caller, logs)

    return router


async def _take(request: Request, caller: Caller, intake: Traces) -> Response:
    given = request.headers.get("content-type", "")
    media = given.split(";")[0].strip().lower()
    if media not in MEDIA_TYPES:
        raise RequestRefused(415, f"Send {' or '.join(MEDIA_TYPES)}.")
    encoding = request.headers.get("content-encoding")
    raw = await read_raw(request)
    try:
        body = await intake(caller.profile, raw, media, encoding)
    except BadInput as error:
        raise RequestRefused(400, f"{error} Nothing was written.") from error
    if body is None:
        raise RequestRefused(413, "The body is too large, once unpacked.")
    return Response(body, media_type=media)
