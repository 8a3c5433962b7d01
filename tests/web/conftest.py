"""A real server on loopback: a real store, a scripted agent, and a client for it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from sessionary.actions import credentials
from sessionary.clock import RandomIds, SystemClock
from sessionary.compat.hermes.state_file import export_state
from sessionary.config.server import Limits, WebSettings
from sessionary.engine.engine import Engine
from sessionary.model.access import Scope, Token
from sessionary.model.choice import ChoiceCatalog
from sessionary.model.reset import Policies
from sessionary.store.database import Store
from sessionary.store.open import open_store
from sessionary.web.context import WebContext
from sessionary.web.server import Ready, serve
from tests.support.api_schema import api_schema
from tests.support.engine_world import QUICK as QUICK_ENGINE
from tests.support.engine_world import EngineWorld

API = "/api/v1"
TIMEOUT_SECONDS = 60.0
QUICK = Limits(check_seconds=0.1, keep_alive_seconds=0.3, stream_stall_seconds=0.5)


class Client:
    """A program that speaks with the server."""

    def __init__(self, http: httpx2.AsyncClient, token: str | None) -> None:
        self.http = http
        self.token = token

    async def call(self, method: str, path: str, **how: Any) -> httpx2.Response:
        headers = dict(how.pop("headers", {}))
        if self.token is not None:
            headers.setdefault("Authorization", f"Bearer {self.token}")
        is_plain = path.startswith("http") or path in ("/login", "/healthz", "/readyz")
        where = path if is_plain else API + path
        return await self.http.request(method, where, headers=headers, **how)

    async def get(self, path: str, **how: Any) -> Any:
        response = await self.call("GET", path, **how)
        assert response.status_code == 200, response.text
        return response.json()

    async def post(self, path: str, body: Any = None, *, status: int = 200, **how: Any) -> Any:
        response = await self.call("POST", path, json={} if body is None else body, **how)
        assert response.status_code == status, response.text
        return response.json()


class Served:
    """A server that runs, with everything a test wants to reach."""

    def __init__(
        self, store: Store, ready: Ready, world: EngineWorld, engine: Engine | None
    ) -> None:
        self.store = store
        self.address = ready.address
        self.port = ready.port
        self.login_link = ready.login_link or ""
        self.webhook_address = ready.webhook_address
        self.parts: WebContext
        self.stopped = asyncio.Event()
        self.world = world
        self.engine = engine
        self.http: httpx2.AsyncClient
        self.stopping = asyncio.Event()
        self.ending = AsyncExitStack()
        self._chance = 0

    async def token(
        self, scope: Scope = Scope.ADMIN, profile: str = "main", name: str = ""
    ) -> tuple[str, Token]:
        self._chance += 1
        secret = credentials.make_secret(
            (self.port << 32 | self._chance).to_bytes(credentials.SECRET_BYTES)
        )
        made = await self.store.write(
            credentials.add_token,
            secret,
            profile=profile,
            scope=scope,
            moment=self.world.context().moment(),
            name=name,
        )
        return secret, made

    async def client(
        self, scope: Scope = Scope.ADMIN, profile: str = "main", name: str = ""
    ) -> Client:
        return Client(self.http, (await self.token(scope, profile, name))[0])

    async def fresh(self) -> httpx2.AsyncClient:
        """Another browser, which knows nothing yet."""
        made = checked_client(self.address, self.parts)
        return await self.ending.enter_async_context(made)

    async def stop(self) -> None:
        self.stopping.set()

    async def settle(self) -> None:
        await self.world.settle(self.engine)


Server = Callable[..., Any]


def checked_client(address: str, context: WebContext) -> httpx2.AsyncClient:
    """A client that checks each answer against the description of the interface."""

    async def check(response: httpx2.Response) -> None:
        request = response.request
        media_type = response.headers.get("content-type", "")
        if media_type.startswith("text/event-stream"):
            return
        schema = api_schema(context)
        body = await response.aread()
        schema.check(request.method, request.url.path, response.status_code, media_type, body)

    return httpx2.AsyncClient(base_url=address, timeout=60, event_hooks={"response": [check]})


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """What still comes until the server closes, with what came before a reset.

    Call it before anything can come: a reader forgets what nobody has read when it is reset.
    """
    received = b""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        with contextlib.suppress(ConnectionResetError):
            while chunk := await reader.read(65536):
                received += chunk
    return received


@asynccontextmanager
async def served(
    store: Store, *, with_engine: bool = True, limits: Limits = QUICK, **settings: Any
) -> AsyncIterator[Served]:
    policies = settings.pop("policies", Policies())
    budgets = settings.pop("budgets", {})
    engine_settings = replace(QUICK_ENGINE, budgets=budgets, **settings.pop("engine", {}))
    catalog = settings.pop("catalog", ChoiceCatalog())
    push = settings.pop("push", None)
    world = EngineWorld(
        store, settings=engine_settings, policies=policies, catalog=catalog, push=push
    )
    runner, agent = settings.pop("runner", None), settings.pop("agent", None)
    if agent is not None:
        world.use(agent_for=lambda _, __: agent)
    engine = await world.started(runner=runner) if with_engine else None
    webhooks = settings.pop("webhooks", {})
    webhook_bytes = settings.pop("webhook_bytes", {})
    traces, logs = settings.pop("traces", None), settings.pop("logs", None)
    imports = settings.pop("imports", None)
    upkeep = settings.pop("upkeep", None)
    parts = WebContext(
        store,
        engine=engine,
        settings=WebSettings(limits=limits, **settings),
        policies=policies,
        clock=world.clock,
        ids=world.ids,
        webhooks=webhooks,
        webhook_bytes=webhook_bytes,
        traces=traces,
        logs=logs,
        imports=imports,
        upkeep=upkeep,
        push=push,
        export_state=export_state,
    )
    stop = asyncio.Event()
    ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(parts, port=0, on_ready=ready.set_result, stop=stop))
    either: set[asyncio.Future[Any]] = {task, ready}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task
    made = Served(store, ready.result(), world, engine)
    made.stopping, made.parts = stop, parts
    task.add_done_callback(lambda _: made.stopped.set())
    async with checked_client(made.address, parts) as http:
        made.http = http
        try:
            yield made
        finally:
            await made.ending.aclose()
            stop.set()
            await task
            if engine is not None:
                await engine.stop()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = open_store(
        f"sqlite:///{tmp_path}/sessionary.db", create=True, clock=SystemClock(), ids=RandomIds()
    )
    yield opened
    opened.close()


@pytest.fixture
async def server(store: Store) -> AsyncIterator[Served]:
    async with served(store) as made:
        yield made


@pytest.fixture
async def client(server: Served) -> Client:
    return await server.client()


@pytest.fixture
async def servers(store: Store) -> AsyncIterator[Server]:
    """Starts servers with settings of their own."""
    async with AsyncExitStack() as ending:

        async def start(**settings: Any) -> Served:
            return await ending.enter_async_context(served(store, **settings))

        yield start
