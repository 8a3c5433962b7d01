"""The application: routers, middleware and error handlers."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from sessionary.web import openapi, problems
from sessionary.web.auth import read_access
from sessionary.web.connections import OpenConnections
from sessionary.web.context import PREFIX, WebContext
from sessionary.web.jobs import BackgroundJobs
from sessionary.web.middleware import RequestGuard
from sessionary.web.openai import chat as openai_chat
from sessionary.web.openai import conversations as openai_conversations
from sessionary.web.openai import errors as openai_errors
from sessionary.web.openai import files as openai_files
from sessionary.web.openai import models as openai_models
from sessionary.web.openai import responses as openai_responses
from sessionary.web.openai.exchange import Exchanges
from sessionary.web.responses import json_response
from sessionary.web.routes import (
    access,
    arrivals,
    bindings,
    conversation,
    deliveries,
    events,
    exports,
    health,
    imports,
    login,
    projects,
    push,
    questions,
    schedules,
    search,
    sessions,
    static,
    traces,
    turns,
    upkeep,
    uploads,
    webhooks,
)
from sessionary.web.routes.login import LoginAttempts
from sessionary.web.routing import api_router
from sessionary.web.stream import EventStreams
from sessionary.web.waits import ArrivalWaits

VERSION = "1"
_ROUTERS = (
    arrivals.router,
    sessions.router,
    conversation.router,
    turns.router,
    questions.router,
    push.router,
    uploads.router,
    events.router,
    search.router,
    bindings.router,
    projects.router,
    schedules.router,
    access.router,
    deliveries.router,
    exports.router,
    imports.router,
    upkeep.router,
    login.router,
    health.router,
    health.public,
    openai_chat.router,
    openai_models.router,
    openai_conversations.router,
    openai_files.router,
    openai_responses.router,
)


class Application(FastAPI):
    """FastAPI with only the layers that our routes need around them.

    Its own are one more for telemetry, which instruments nothing here, and one for dependencies that have to be closed,
    of which we have none.
    """

    def build_middleware_stack(self) -> ASGIApp:
        """Errors outside, then our middleware, then errors that become responses, then the routes."""
        handlers = dict(self.exception_handlers)
        unexpected = handlers.pop(Exception)
        app: ASGIApp = ExceptionMiddleware(self.router, handlers=handlers)
        for cls, args, kwargs in reversed(self.user_middleware):
            app = cls(app, *args, **kwargs)
        return openai_errors.OpenAIErrors(ServerErrorMiddleware(app, handler=unexpected))


def create_app(context: WebContext) -> FastAPI:
    """Build the HTTP application, for `serve` or for a test."""
    app = Application(
        title="Sessionary",
        version=VERSION,
        description="The session layer for AI agents: sessions, messages, turns, search and usage over HTTP.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        # It would be redirected to plain `http` behind a proxy that has the certificate, token and all.
        redirect_slashes=False,
    )
    counts: Counter[tuple[str, int]] = Counter()
    app.state.context = context
    app.state.counts = counts
    app.state.connections = _connections(context)
    app.state.login_attempts = LoginAttempts()
    app.state.streams = EventStreams(context)
    app.state.waits = ArrivalWaits(context)
    app.state.exchanges = Exchanges()
    app.state.imports = BackgroundJobs(context, app.state.streams.wake, kind="import")
    app.state.upkeep = BackgroundJobs(context, app.state.streams.wake, kind="task")
    for router in _ROUTERS:
        _add_routes(app, router)
    if context.settings.webhook_address is None:
        _add_webhook_routes(app, context)
    if context.traces is not None and context.logs is not None:
        _add_routes(app, traces.router_for(context.traces, context.logs))
    _add_routes(app, health.probes)
    _add_routes(app, login.pages)
    _add_routes(app, static.router_for(static.built()))
    description = api_router(prefix=PREFIX, include_in_schema=False)
    description.add_api_route("/openapi.json", _openapi_document, dependencies=[read_access])
    _add_routes(app, description)
    problems.install(app)
    openai_errors.install(app)
    app.add_middleware(RequestGuard, settings=context.settings, webhook_bytes=context.webhook_bytes)
    app.add_middleware(health.AnswerCounter, counts=counts)
    return app


def create_webhook_app(context: WebContext) -> FastAPI:
    """The paths of webhooks and nothing else, for an address that platforms can reach."""
    app = Application(
        title="Sessionary", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    app.state.context = context
    app.state.connections = _connections(context, knows_callers=False)
    _add_webhook_routes(app, context)
    problems.install(app)
    app.add_middleware(RequestGuard, settings=context.settings, webhook_bytes=context.webhook_bytes)
    return app


def _connections(context: WebContext, *, knows_callers: bool = True) -> OpenConnections:
    settings = context.settings
    return OpenConnections(
        settings.limits,
        trusted=settings.trusted_proxies,
        knows_callers=knows_callers,
        addresses=1 if settings.webhook_address is None else 2,
    )


def _add_webhook_routes(app: FastAPI, context: WebContext) -> None:
    for name, webhook in context.webhooks.items():
        challenge = context.challenges.get(name)
        _add_routes(app, webhooks.router_for(name, webhook, challenge))


def _add_routes(app: FastAPI, router: APIRouter) -> None:
    """Take the routes of a router as they are, with its own prefix.

    `include_router` would build each of them a second time, at the first request: 100 ms of CPU.
    """
    app.router.routes.extend(router.routes)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    await app.state.upkeep.close()
    await app.state.imports.close()
    for each in (app.state.streams, app.state.waits):
        each.close()
        each.stop_listening()


async def _openapi_document(request: Request) -> Response:
    """The description of the interface, made when it is first asked for: that takes 0.3 s of CPU."""
    state: Any = request.app.state
    if not hasattr(state, "description"):
        state.description = asyncio.ensure_future(asyncio.to_thread(openapi.describe, request.app))
    return json_response(await asyncio.shield(state.description))
