"""A message that comes during a turn: it waits, interrupts, or steers."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from sessionary.config.engine import WhileRunning
from sessionary.engine.intake import Submission, submit_to_session
from sessionary.engine.ports import Event, Step, TurnRequest
from sessionary.model.message import message
from sessionary.model.transcript import chat_text
from tests.support.engine_world import QUICK, EngineWorld


class StepwiseRunner:
    """Asks for new messages between two steps, once the test has opened the gate."""

    def __init__(self) -> None:
        self.is_running = asyncio.Event()
        self.gate = asyncio.Event()
        self.read: list[list[str]] = []

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        call = {"type": "tool_call", "id": "c", "name": "look", "arguments": {}}
        found = {"type": "tool_result", "call_id": "c", "name": "look", "content": "42"}
        yield Step(message("assistant", [call]))
        self.is_running.set()
        await self.gate.wait()
        yield Step(message("tool", [found]))
        new = [chat_text(chat["content"]) for chat in await request.services.new_messages()]
        self.read.append(new)
        yield Step(message("assistant", f"done, after {new}"))

    async def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def runner() -> StepwiseRunner:
    return StepwiseRunner()


async def test_a_message_steers_the_running_turn_if_the_settings_say_so(
    world: EngineWorld, runner: StepwiseRunner
) -> None:
    world.settings = replace(QUICK, while_running=WhileRunning.STEER)
    engine = await world.started(runner=runner)
    await world.says(engine, "count the boxes", number="1")
    await runner.is_running.wait()
    await world.says(engine, "only the red ones", number="2")
    await world.says(engine, "/queue and then go home", number="3")
    runner.gate.set()

    await world.settle(engine)

    assert runner.read == [["only the red ones"], []]
    assert [text for text in await world.texts() if text] == [
        "count the boxes",
        "only the red ones",
        "done, after ['only the red ones']",
        "and then go home",
        "done, after []",
    ]
    first, second = await world.turns()
    assert (first.state, second.state) == ("done", "done")
    await engine.stop()


async def test_steer_gives_one_message_to_the_running_turn_while_others_wait(
    world: EngineWorld, runner: StepwiseRunner
) -> None:
    engine = await world.started(runner=runner)
    await world.says(engine, "count the boxes", number="1")
    await runner.is_running.wait()
    await world.says(engine, "and the bags", number="2")
    await world.says(engine, "/steer only the red ones", number="3")
    await world.says(engine, "/queue", number="4")
    runner.gate.set()

    await world.settle(engine)

    assert runner.read == [["only the red ones"], []]
    sent = world.adapter.texts("loopback:1")
    assert "The agent reads it at its next step, or else in the next turn." in sent
    assert "Waiting:\n1. and the bags\n2. only the red ones (steers the running turn)" in sent
    await engine.stop()


async def test_a_turn_is_steered_from_the_workbench_and_answers_where_it_was_asked(
    world: EngineWorld, runner: StepwiseRunner
) -> None:
    """The message has another key than the turn: that of the session's name."""
    engine = await world.started(runner=runner)
    await world.says(engine, "count the boxes", number="1")
    await runner.is_running.wait()
    head, context = await world.head(), engine.context
    steering = Submission(message("user", "/steer only the red ones"))
    await world.store.write(submit_to_session, context, head.id, steering, moment=context.moment())
    runner.gate.set()

    await world.settle(engine)
    await engine.stop()

    assert runner.read == [["only the red ones"]]
    assert world.adapter.texts("loopback:1") == ["done, after ['only the red ones']"]


async def test_queue_marks_what_steers_because_the_settings_say_so(
    world: EngineWorld, runner: StepwiseRunner
) -> None:
    world.settings = replace(QUICK, while_running=WhileRunning.STEER)
    engine = await world.started(runner=runner)
    await world.says(engine, "count the boxes", number="1")
    await runner.is_running.wait()
    await world.says(engine, "only the red ones", number="2")
    await world.says(engine, "/queue and then go home", number="3")

    listed = await world.says(engine, "/queue", number="4")
    runner.gate.set()
    await world.settle(engine)
    await engine.stop()

    assert listed.answer == (
        "Waiting:\n1. only the red ones (steers the running turn)\n2. and then go home"
    )


async def test_queue_without_a_running_turn_says_that_the_message_is_answered(
    world: EngineWorld,
) -> None:
    engine = await world.started()

    sent = await world.asks(engine, "/queue hello")

    assert sent == ["No turn is running: it is answered now.", "re: hello"]
    await engine.stop()


async def test_steer_without_a_running_turn_is_a_new_message(world: EngineWorld) -> None:
    engine = await world.started()

    sent = await world.asks(engine, "/steer hello")

    assert sent == ["No turn is running: this is a new message.", "re: hello"]
    await engine.stop()
