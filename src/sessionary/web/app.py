"""The application: every router, the gate before them, one place for errors."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import Response

from sessionary.web import (
    access,
    arrivals,
    conversation,
    deliveries,
    described,
    events,
    exports,
    health,
    holds,
    imports,
    lists,
    login,
    overview,
    problems,
    sessions,
    shelves,
    sources,
    static,
    traces,
    upkeep,
    uploads,
    webhooks,
)
from sessionary.web.answers import json_response
from sessionary.web.auth import reading
from sessionary.web.connections import Connections
from sessionary.web.gate import Gate
from sessionary.web.guesses import Guesses
from sessionary.web.jobs import Jobs
from sessionary.web.parts import PREFIX, WebContext
from sessionary.web.stream import Streams

VERSION = "1"
_ROUTERS = (
    arrivals.router,
    sessions.router,
    conversation.router,
    holds.router,
    overview.router,
    uploads.router,
    events.router,
    sources.router,
    lists.router,
    shelves.router,
    access.router,
    deliveries.router,
    exports.router,
    imports.router,
    upkeep.router,
    login.router,
    health.router,
    health.public,
)


def create_app(parts: WebContext) -> FastAPI:
    """The HTTP interface on these parts, for `serve` or for a test."""
    app = FastAPI(
        title="Sessionary",
        version=VERSION,
        description="The record of every conversation with an agent.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=_life,
        # It would be redirected to plain `http` behind a proxy that has the certificate, token and all.
        redirect_slashes=False,
    )
    counts: Counter[tuple[str, int]] = Counter()
    app.state.parts = parts
    app.state.counts = counts
    app.state.connections = _connections(parts)
    app.state.guesses = Guesses()
    app.state.streams = Streams(parts)
    app.state.imports = Jobs(parts, app.state.streams.wake, kind="import")
    app.state.upkeep = Jobs(parts, app.state.streams.wake, kind="task")
    for router in _ROUTERS:
        _add(app, router)
    if parts.settings.webhook_address is None:
        _take_webhooks(app, parts)
    if parts.traces is not None and parts.logs is not None:
        _add(app, traces.router_for(parts.traces, parts.logs))
    _add(app, health.probes)
    _add(app, login.pages)
    _add(app, static.router_for(static.built()))
    app.add_api_route(
        f"{PREFIX}/openapi.json",
        _description,
        methods=["GET"],
        include_in_schema=False,
        dependencies=[reading],
    )
    problems.install(app)
    app.add_middleware(Gate, settings=parts.settings)
    app.add_middleware(health.Tally, counts=counts)
    return app


def create_webhook_app(parts: WebContext) -> FastAPI:
    """The paths of webhooks and nothing else, for an address that platforms can reach."""
    app = FastAPI(
        title="Sessionary", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    app.state.parts = parts
    app.state.connections = _connections(parts, knows_callers=False)
    _take_webhooks(app, parts)
    problems.install(app)
    app.add_middleware(Gate, settings=parts.settings)
    return app


def _connections(parts: WebContext, *, knows_callers: bool = True) -> Connections:
    settings = parts.settings
    return Connections(
        settings.limits,
        trusted=settings.trusted_proxies,
        knows_callers=knows_callers,
        addresses=1 if settings.webhook_address is None else 2,
    )


def _take_webhooks(app: FastAPI, parts: WebContext) -> None:
    for name, webhook in parts.webhooks.items():
        challenge = parts.challenges.get(name)
        _add(app, webhooks.router_for(name, webhook, challenge))


def _add(app: FastAPI, router: APIRouter) -> None:
    """Take the routes of a router as they are, with its own prefix.

    `include_router` would build each of them a second time, at the first request: 100 ms of CPU.
    """
    app.router.routes.extend(router.routes)


@asynccontextmanager
async def _life(app: FastAPI) -> AsyncIterator[None]:
    yield
    await app.state.upkeep.close()
    await app.state.imports.close()
    app.state.streams.close()
    app.state.streams.let_go()


async def _description(request: Request) -> Response:
    """What this interface takes and gives, in OpenAPI's words."""
    app: Any = request.app
    if not hasattr(app.state, "description"):
        app.state.description = described.describe(app)
    return json_response(app.state.description)
