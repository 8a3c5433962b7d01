"""A process with an engine whose agent speaks ACP: it takes one message, and goes on until it is killed."""

import asyncio
import json
import random
import sys
from dataclasses import replace
from typing import Any

from sessionary.agents.acp import AcpOptions
from sessionary.agents.acp.runner import AcpRunner
from sessionary.clock import RandomIds, SystemClock
from sessionary.config.engine import AccessPolicy, EngineSettings
from sessionary.engine.context import EngineContext
from sessionary.engine.engine import Engine
from sessionary.model.message import message
from sessionary.model.source import Source
from sessionary.processes import process_name
from sessionary.store.database import Store
from sessionary.store.open import open_store
from sessionary.testing.fakes import LoopbackAdapter, scripted_agent
from tests.support.engine_world import render_context_only

SETTINGS = EngineSettings(
    lease_seconds=3600,
    poll_seconds=0.05,
    sweep_seconds=0.05,
    confirm_seconds=0.3,
    access={"loopback": AccessPolicy(everyone=True, owners=frozenset({"u"}))},
)


def context_of(store: Store, options: dict[str, Any], adapter: LoopbackAdapter) -> EngineContext:
    """The context of an engine whose agent is the program that the options name."""
    runner = AcpRunner(AcpOptions(**options | {"command": tuple(options["command"])}))
    agent = replace(scripted_agent(runner), resumes=True)
    return EngineContext(
        store=store,
        clock=SystemClock(),
        ids=RandomIds(),
        holder=process_name(),
        agent_for=lambda _, __: agent,
        system_prompt=render_context_only,
        priced=lambda used: used,
        adapters={"loopback": adapter},
        deliverable=frozenset({"loopback"}),
        settings=SETTINGS,
        rng=random.Random(),
    )


def source_of(chat: str, number: str = "1") -> Source:
    """Where the owner writes."""
    return Source("loopback", chat, user_id="u", user_name="Ada", platform_message_id=number)


async def live(order: dict[str, Any]) -> None:
    """Take each message, and go on until killed."""
    store = open_store(order["url"], create=False, clock=SystemClock(), ids=RandomIds())
    engine = Engine(context_of(store, order["options"], LoopbackAdapter()))
    await engine.start()
    for chat, text in order["says"].items():
        await engine.receive(source_of(chat), message("user", text))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(live(json.loads(sys.argv[1])))
