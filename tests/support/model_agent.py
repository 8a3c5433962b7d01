"""A real model agent, with tools, in an engine of a test; its model is a `ModelServer`."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sessionary.agents.model import ModelOptions, ModelRunner, ToolServer
from sessionary.agents.registry import ConfiguredAgent
from sessionary.agents.summaries import ModelSummarizer, ModelTitler
from sessionary.config.secret import Secret
from sessionary.engine.engine import Engine
from sessionary.testing.fakes import FakeClock
from tests.support.engine_world import EngineWorld
from tests.support.model_server import Ask, ModelServer

# `read_lines(count)` returns lines of 40 characters; see there for the others.
TOOLS = ToolServer(
    command=(sys.executable, str(Path(__file__).parent / "lines_server.py")), safe=("*",)
)
SUMMARY_REQUEST = "You shorten a conversation"


def is_summary(ask: Ask) -> bool:
    """Whether a request asks for a summary."""
    system = ask.body.get("system") or ask.body.get("instructions") or ask.messages[0]
    return SUMMARY_REQUEST in str(system)


def model_runner(
    server: ModelServer,
    *,
    wire: str = "openai",
    clock: FakeClock | None = None,
    **options: Any,
) -> ModelRunner:
    """A runner that asks the server in a wire format."""
    url = server.url if wire == "anthropic" else server.openai_url
    given: dict[str, Any] = {
        "model": "m",
        "provider": wire,
        "base_url": url,
        "key": Secret("k"),
        "first_wait_seconds": 0.0,
    }
    return ModelRunner(ModelOptions(**given | options), clock=clock)


@asynccontextmanager
async def model_engine(
    world: EngineWorld, server: ModelServer, **options: Any
) -> AsyncIterator[Engine]:
    """An engine whose agent asks the server's model; it is stopped at the end of the block."""
    runner = model_runner(server, clock=world.clock, **options)
    agent = ConfiguredAgent(
        "model", None, runner, ModelSummarizer(runner), ModelTitler(), resumes=True
    )
    world.use(agent_for=lambda _, __: agent)
    engine = await world.started()
    try:
        yield engine
    finally:
        await engine.stop()
        await runner.close()
