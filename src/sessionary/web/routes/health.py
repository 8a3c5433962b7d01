"""`/healthz`, `/readyz`, `/metrics`: probes for orchestrators, and numbers for Prometheus."""

import asyncio
from collections import Counter

from fastapi import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sessionary.errors import SessionaryError
from sessionary.store.tables import arrivals
from sessionary.web.auth import ContextDep, Reader
from sessionary.web.connections import OpenConnections
from sessionary.web.context import PREFIX, WebContext
from sessionary.web.openapi import PUBLIC, response_content
from sessionary.web.routing import api_router

public = api_router(prefix=PREFIX, tags=["health"])
probes = api_router(include_in_schema=False)  # the same where orchestrators look for them
router = api_router(prefix=PREFIX, tags=["health"])
READY_SECONDS = 2.0
# Those that are counted by name: a client may make up others without end.
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
TEXT = "text/plain"
DAMAGED = "damaged: nothing is written; run `sessionary doctor` on the server\n"
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class AnswerCounter:
    """Counts answers by method and status; a piece of middleware."""

    def __init__(self, app: ASGIApp, counts: "Counter[tuple[str, int]]") -> None:
        self._app = app
        self._counts = counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                method = scope["method"] if scope["method"] in METHODS else "OTHER"
                self._counts[(method, message["status"])] += 1
            await send(message)

        await self._app(scope, receive, counted if scope["type"] == "http" else send)


@probes.head("/healthz", openapi_extra=PUBLIC)
@probes.get("/healthz", openapi_extra=PUBLIC)
@public.head("/healthz", openapi_extra=PUBLIC, include_in_schema=False)
@public.get(
    "/healthz",
    openapi_extra=PUBLIC,
    response_class=Response,
    responses=response_content(TEXT, description="The process answers."),
)
async def healthz() -> Response:
    """Check whether the process answers.

    Needs no authentication.
    """
    return PlainTextResponse("ok\n")


@probes.head("/readyz", openapi_extra=PUBLIC)
@probes.get("/readyz", openapi_extra=PUBLIC)
@public.head("/readyz", openapi_extra=PUBLIC, include_in_schema=False)
@public.get(
    "/readyz",
    openapi_extra=PUBLIC,
    response_class=Response,
    responses=response_content(TEXT, description="Ready.")
    | response_content(TEXT, status=503, description="Not ready, or the store is damaged."),
)
async def readyz(context: ContextDep) -> Response:
    """Check whether the store can be used.

    A damaged store accepts no writes: 503 with `damaged`, until a backup is restored and the server is started again.
    Needs no authentication.
    """
    try:
        await asyncio.wait_for(
            context.store.read(arrivals.count_work, profile=context.profile), READY_SECONDS
        )
    except (SessionaryError, TimeoutError):
        if context.store.damage is None:
            return PlainTextResponse("not ready\n", 503)
    if context.store.damage is not None:
        return PlainTextResponse(DAMAGED, 503)
    return PlainTextResponse("ok\n")


@router.get(
    "/metrics",
    response_class=Response,
    responses=response_content(TEXT, description="Prometheus text."),
)
async def get_metrics(request: Request, context: ContextDep, caller: Reader) -> Response:
    """Get metrics.

    Prometheus text without names or content. A caller of the profile that is served also gets the numbers of the
    server.
    """
    waiting, sending, running = await context.store.read(
        arrivals.count_work, profile=caller.profile
    )
    lines = [
        *_metric("sessionary_arrivals_waiting", "gauge", {"": waiting}),
        *_metric("sessionary_deliveries_open", "gauge", {"": sending}),
        *_metric("sessionary_turns_running", "gauge", {"": running}),
    ]
    if caller.profile == context.profile:
        lines += _server_metrics(request, context)
    return Response("\n".join([*lines, ""]), media_type=_TEXT)


def _server_metrics(request: Request, context: WebContext) -> list[str]:
    connections: OpenConnections = request.app.state.connections
    lines = [
        *_metric("sessionary_streams_open", "gauge", {"": len(request.app.state.streams)}),
        *_metric("sessionary_waits_open", "gauge", {"": len(request.app.state.waits)}),
        *_metric("sessionary_connections_open", "gauge", {"": len(connections)}),
        *_metric("sessionary_connections_refused_total", "counter", {"": connections.refused}),
    ]
    if context.engine is not None:
        states = {
            f'{{loop="{_label(name)}"}}': int(state == "running")
            for name, state in sorted(context.engine.states.items())
        }
        lines += _metric("sessionary_loop_up", "gauge", states)
    answered = {
        f'{{method="{_label(method)}",status="{status}"}}': count
        for (method, status), count in sorted(request.app.state.counts.items())
    }
    return lines + _metric("sessionary_http_answers_total", "counter", answered)


def _metric(name: str, kind: str, values: dict[str, int]) -> list[str]:
    return [f"# TYPE {name} {kind}", *(f"{name}{label} {value}" for label, value in values.items())]


def _label(text: str) -> str:
    return "".join(char if char.isalnum() or char in " ._-" else "_" for char in text)
