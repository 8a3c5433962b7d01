"""A process with an engine: it takes arrivals from a list and answers all it finds, until killed."""

import asyncio
import json
import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from sessionary.agents.demo import EchoRunner
from sessionary.clock import RandomIds, ShiftedClock, SystemClock
from sessionary.config.engine import AccessPolicy, Budget, EngineSettings
from sessionary.engine.context import EngineContext
from sessionary.engine.engine import Engine
from sessionary.engine.ports import Event, Step, TurnRequest
from sessionary.errors import RetryLater, StoreUnavailable
from sessionary.model.message import message, text_of
from sessionary.model.source import Source
from sessionary.model.turn import Delivery
from sessionary.model.usage import Usage
from sessionary.store.open import open_store
from sessionary.testing.fakes import LoopbackAdapter, ScriptedRunner, scripted_agent
from tests.support.engine_world import render_context_only
from tests.walks.writing_child import nurse

SETTINGS = EngineSettings(
    lease_seconds=2,
    poll_seconds=0.1,
    sweep_seconds=0.2,
    confirm_seconds=0.3,
    send_seconds=3,
    access={"loopback": AccessPolicy(everyone=True)},
)


# What each turn of a child with a budget uses.
TOKENS_PER_TURN = 60


def source_of(arrival: str, person: str | None = None) -> Source:
    """`12.3` is the third message of chat 12."""
    chat, _, _ = arrival.partition(".")
    return Source("loopback", chat, user_id=person or f"u{chat}", platform_message_id=arrival)


class Wire(LoopbackAdapter):
    """A platform that writes down what it was given to send."""

    def __init__(self, report: str) -> None:
        super().__init__()
        self._file = Path(report).open("a", encoding="utf-8")  # noqa: SIM115 - until killed

    async def send(self, delivery: Delivery) -> Any:
        line = {"sent": text_of(delivery.parts), "to": delivery.channel.chat_id}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        return await super().send(delivery)

    def acknowledge(self, arrival: str) -> None:
        self._file.write(json.dumps({"ack": arrival}) + "\n")
        self._file.flush()


def child(order: dict[str, Any]) -> None:
    """Take in the arrivals of the order, each when it comes, and go on until killed."""
    asyncio.run(_live(order))


async def _live(order: dict[str, Any]) -> None:
    clock = ShiftedClock(SystemClock(), timedelta(days=order.get("clock_days", 0)))
    store = open_store(order["url"], create=False, clock=clock, ids=RandomIds())
    wire = Wire(order["report"])
    settings, person = SETTINGS, order.get("person")
    agent = scripted_agent(EchoRunner())
    if "budget_tokens" in order:
        # By the month: a budget of a day would begin again in a test that runs at midnight.
        budget = Budget(per="month", tokens=order["budget_tokens"], reserve_tokens=TOKENS_PER_TURN)
        lease_seconds = order["lease_seconds"]
        settings = replace(SETTINGS, budgets={"person": budget}, lease_seconds=lease_seconds)
        agent = scripted_agent(ScriptedRunner(_costly_reply))
    context = EngineContext(
        store=store,
        clock=clock,
        ids=RandomIds(),
        holder=order["name"],
        agent_for=lambda _, __: agent,
        system_prompt=render_context_only,
        priced=lambda used: used,
        adapters={"loopback": wire},
        deliverable=frozenset({"loopback"}),
        settings=settings,
        rng=random.Random(order["name"]),
    )
    engine = Engine(context)
    await engine.start()
    gate = asyncio.Semaphore(64)

    async def take(arrival: str) -> None:
        async with gate:
            await _received(engine, wire, arrival, person)

    await asyncio.gather(*(take(arrival) for arrival in order["arrivals"]))
    await asyncio.sleep(order["seconds"])


def _costly_reply(_: TurnRequest) -> list[Event]:
    """Two model calls, each half of what a turn uses."""
    call = {"type": "tool_call", "id": "c", "name": "look", "arguments": {}}
    found = {"type": "tool_result", "call_id": "c", "name": "look", "content": "42"}
    used = Usage(model="scripted", input_tokens=TOKENS_PER_TURN // 2)
    return [
        Step(message("assistant", [call]), used),
        Step(message("tool", [found])),
        Step(message("assistant", "done"), used),
    ]


async def _received(engine: Engine, wire: Wire, arrival: str, person: str | None) -> None:
    """As a platform does: again and again until it is taken."""
    while True:
        try:
            await engine.receive(source_of(arrival, person), message("user", arrival))
        except (RetryLater, StoreUnavailable):
            await asyncio.sleep(0.05)
        else:
            wire.acknowledge(arrival)
            return


if __name__ == "__main__":
    nurse(child)
