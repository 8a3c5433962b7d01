"""A server as OpenAI's clients see it: a real model agent, whose model answers as the test says."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from openai import AsyncOpenAI

from sessionary.agents.registry import ConfiguredAgent
from sessionary.agents.summaries import ExtractiveSummarizer, ModelTitler
from sessionary.model.choice import AgentOffer, ChoiceCatalog
from sessionary.store.database import Store
from tests.support.model_agent import model_runner
from tests.support.model_server import ModelServer
from tests.web.conftest import Client, Served, served

AGENT = "helper"


@dataclass
class OpenAIWorld:
    """The server, and the model behind its agent."""

    server: Served
    model: ModelServer

    @property
    def url(self) -> str:
        """The address that OpenAI's clients are given."""
        return f"{self.server.address}/v1"

    async def connected(self, *, max_retries: int = 0, **who: Any) -> AsyncOpenAI:
        """OpenAI's client, with a token of ours."""
        secret, _ = await self.server.token(**who)
        client = AsyncOpenAI(base_url=self.url, api_key=secret, max_retries=max_retries)
        return await self.server.ending.enter_async_context(client)

    async def ours(self, **who: Any) -> Client:
        """A client of our own interface."""
        return await self.server.client(**who)


@asynccontextmanager
async def openai_world(
    store: Store, *, options: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[OpenAIWorld]:
    """Serve a store with one model agent; `options` are those of its runner."""
    async with ModelServer() as model:
        runner = model_runner(model, **(options or {}))
        agent = ConfiguredAgent(
            AGENT,
            None,
            runner,
            ExtractiveSummarizer(),
            ModelTitler(),
            resumes=True,
            model="m",
            takes_turn_options=True,
        )
        catalog = ChoiceCatalog(
            agents={AGENT: AgentOffer(AGENT, "model", "m", ("m", "openai:other"))}, default=AGENT
        )
        async with served(store, agent=agent, catalog=catalog, **settings) as server:
            yield OpenAIWorld(server, model)
