"""A server of ours that speaks OpenAI's interface, with a model agent whose model is a `ModelServer`."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

from openai import AsyncOpenAI

from sessionary.actions import credentials
from sessionary.actions.sessions import read
from sessionary.agents.registry import ConfiguredAgent, agent_of
from sessionary.agents.summaries import ModelSummarizer, ModelTitler
from sessionary.config.server import Limits, WebSettings
from sessionary.engine.engine import Engine
from sessionary.engine.ports import Runner
from sessionary.model.access import Scope
from sessionary.model.choice import AgentOffer, ChoiceCatalog
from sessionary.model.message import Message, Role
from sessionary.model.source import Source
from sessionary.store.database import Store
from sessionary.store.tables import sessions
from sessionary.testing.fakes import ScriptedRunner
from sessionary.web.context import WebContext
from sessionary.web.server import Ready, serve
from tests.support.engine_world import QUICK, EngineWorld
from tests.support.model_agent import model_runner
from tests.support.model_server import ModelServer

LIMITS = Limits(check_seconds=0.1, keep_alive_seconds=0.3, stream_stall_seconds=5.0)
OFFERS = {
    "assistant": AgentOffer("assistant", "model", "openai:m", ("openai:m", "openai:big")),
    "plain": AgentOffer("plain", "script"),
}
CATALOG = ChoiceCatalog(agents=OFFERS, default="assistant")


class OpenAIWorld:
    """A server that runs, and what a test wants to reach."""

    def __init__(self, store: Store, model: ModelServer, world: EngineWorld) -> None:
        self.store = store
        self.model = model
        self.world = world
        self.engine: Engine
        self.address = ""
        self.port = 0
        self.stop = asyncio.Event()
        self.stopped = asyncio.Event()
        self.ending = AsyncExitStack()
        self._tokens = 0

    @property
    def url(self) -> str:
        """What OpenAI's clients take as their base URL."""
        return f"{self.address}/v1"

    @property
    def listeners(self) -> int:
        """How many requests listen to turns."""
        return len(self.engine.context.bus._queues)

    async def token(self, scope: Scope = Scope.WRITE, *, profile: str = "main") -> str:
        """Make a token."""
        self._tokens += 1
        number = (id(self) & 0xFFFFFFFF) << 32 | self._tokens
        secret = credentials.make_secret(number.to_bytes(credentials.SECRET_BYTES))
        await self.store.write(
            credentials.add_token,
            secret,
            profile=profile,
            scope=scope,
            moment=self.world.context().moment(),
            name="tests",
        )
        return secret

    async def client(self, scope: Scope = Scope.WRITE, **options: Any) -> AsyncOpenAI:
        """The official client, with a token of its own; it repeats nothing by itself."""
        given: dict[str, Any] = {
            "base_url": self.url,
            "api_key": await self.token(scope),
            "max_retries": 0,
        }
        return await self.ending.enter_async_context(AsyncOpenAI(**given | options))

    async def texts(self, session_id: str) -> list[str]:
        """What the transcript of a session says, with the roles."""
        entries = await self.store.read(_shown, session_id)
        return [f"{each.role}: {each.text}" for each in entries if each.role is not Role.SYSTEM]

    async def forget(self, digest: str) -> None:
        """Delete the note of a conversation."""
        text = f"DELETE FROM conversation_prefixes WHERE digest = '{digest}'"
        await self.store.write(lambda tx: tx.script(text))

    async def count(self) -> int:
        """How many sessions there are."""
        return await self.store.read(sessions.count, profile="main")


def session_of(answer: Any) -> str:
    """The session that an answer names."""
    found: str = answer.model_extra["sessionary"]["session_id"]
    return found


def _shown(tx: Any, session_id: str) -> list[Message]:
    found = read.read_window(tx, session_id, profile="main", limit=1000)
    return [each.body for each in found.entries if isinstance(each.body, Message)]


@asynccontextmanager
async def openai_world(
    store: Store,
    model: ModelServer,
    *,
    runners: Mapping[str, Runner] | None = None,
    limits: Limits = LIMITS,
    engine: Mapping[str, Any] | None = None,
    catalog: ChoiceCatalog = CATALOG,
    **options: Any,
) -> AsyncIterator[OpenAIWorld]:
    """Start a server and its engine; further `options` are those of the model agent."""
    settings = replace(QUICK, **(engine or {}))
    runner = model_runner(model, **options)
    agents = {
        "assistant": ConfiguredAgent(
            "assistant",
            "Be brief.",
            runner,
            ModelSummarizer(runner),
            ModelTitler(),
            resumes=True,
            model="m",
            takes_turn_options=True,
        )
    }
    for name, each in ({"plain": ScriptedRunner()} | dict(runners or {})).items():
        agents[name] = agent_of(each, name=name)

    def agent_for(_: Source, name: str | None) -> ConfiguredAgent:
        return agents[name or "assistant"]

    world = EngineWorld(store, settings=settings, agent_for=agent_for, catalog=catalog)
    made = OpenAIWorld(store, model, world)
    made.engine = await world.started()
    parts = WebContext(
        store,
        engine=made.engine,
        settings=WebSettings(limits=limits),
        clock=world.clock,
        ids=world.ids,
    )
    ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(parts, port=0, on_ready=ready.set_result, stop=made.stop))
    serving.add_done_callback(lambda _: made.stopped.set())
    done = await ready
    made.address, made.port = done.address, done.port
    try:
        yield made
    finally:
        await made.ending.aclose()
        made.stop.set()
        await serving
        await made.engine.stop()
        await runner.close()
