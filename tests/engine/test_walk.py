"""The walk of one message, and of one process that dies at any step of it."""

import asyncio

from sessionary.actions import outbox, verify
from sessionary.engine.engine import Engine
from sessionary.errors import RetryLater, Unreachable
from sessionary.model.message import Text
from sessionary.model.turn import Delivery
from sessionary.testing.fakes import moment_of
from tests.support.crash import CrashPoint, ProcessCrashed
from tests.support.engine_world import TIMEOUT_SECONDS, EngineWorld

ANSWERED = ["hello", "", "", "re: hello"]


async def test_a_message_is_answered_and_the_answer_delivered(world: EngineWorld) -> None:
    engine = await world.started()

    await world.says(engine, "hello")
    await world.settle(engine)
    await engine.stop()

    assert await world.texts() == ANSWERED
    assert world.adapter.texts("loopback:1") == ["re: hello"]


async def test_a_message_that_comes_twice_is_answered_once(world: EngineWorld) -> None:
    engine = await world.started()

    await world.says(engine, "hello", number="77")
    await world.says(engine, "hello", number="77")
    await world.settle(engine)
    await world.says(engine, "hello", number="77")
    await world.settle(engine)
    await engine.stop()

    assert await world.texts() == ANSWERED


async def test_what_comes_while_a_turn_runs_waits_in_order(world: EngineWorld) -> None:
    engine = await world.started()

    for number in range(10):
        await world.says(engine, f"m{number}", number=str(number))
    await world.settle(engine)
    await engine.stop()

    texts = [text for text in await world.texts() if text.startswith("m")]
    assert texts == [f"m{number}" for number in range(10)]


async def test_a_process_that_dies_at_any_step_loses_and_doubles_nothing(
    world: EngineWorld,
) -> None:
    """Around each transaction and each sending, at each event of the agent."""
    step = 0
    while await _dies_at(world, step):
        step += 1
    assert step > 25, f"a walk has more steps than {step}"


async def _dies_at(world: EngineWorld, step: int) -> bool:
    """A message to a process that dies at a step, and another after it; whether it died."""
    chat = f"chat-{step}"
    crash = CrashPoint(step)
    # The agent's events and the platform's answers are moments too.
    world.runner.between = crash.step
    world.adapter.before = world.adapter.after = lambda _: crash.step()
    first = await world.started(crash)
    acknowledged = True
    try:
        await world.says(first, "hello", chat=chat, number=str(step))
    except ProcessCrashed:
        acknowledged = False
    await _until_dead_or_quiet(world, first, crash)
    died = crash.crashed
    crash.crashed = True
    await first.stop()

    world.clock.tick(300)
    world.runner.between = lambda: None
    world.adapter.before = world.adapter.after = lambda _: None
    second = await world.started()
    if not acknowledged:
        await world.says(second, "hello", chat=chat, number=str(step))
    await world.settle(second)
    await _retried_if_interrupted(world, second, chat)
    await second.stop()

    texts = await world.texts(chat)
    assert texts.count("hello") == 1, f"step {step}: the prompt once: {texts}"
    assert texts.count("re: hello") == 1, f"step {step}: one answer: {texts}"
    sent = world.adapter.texts(f"loopback:{chat}")
    assert "re: hello" in sent, f"step {step}: delivered at least once: {sent}"
    assert sent.count("re: hello") <= 2, f"step {step}: at most one copy more: {sent}"
    assert verify.verify(world.store).broken == ()
    return died


async def _until_dead_or_quiet(world: EngineWorld, engine: Engine, crash: CrashPoint) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not crash.crashed:
            try:
                if await world._is_quiet(engine):
                    return
            except ProcessCrashed:
                return
            await asyncio.sleep(0.005)


async def _retried_if_interrupted(world: EngineWorld, engine: Engine, chat: str) -> None:
    """A turn that was interrupted says so; the person asks for it again."""
    sent = world.adapter.texts(f"loopback:{chat}")
    if any(text.startswith("Interrupted") for text in sent):
        await world.says(engine, "/retry", chat=chat, number=f"retry-{chat}")
        await world.settle(engine)


async def test_retry_after_is_obeyed_and_the_delivery_comes_later(world: EngineWorld) -> None:
    tries = []

    def busy_once(delivery: Delivery) -> BaseException | None:
        if str(delivery.channel) != "loopback:1":
            return None
        tries.append(world.clock.now())
        return RetryLater("slow down", after=40) if len(tries) == 1 else None

    world.adapter.before = busy_once
    engine = await world.started()
    await world.says(engine, "hello")
    await world.until(lambda: bool(tries))
    await world.until_outbox_is_idle()
    world.clock.tick(39)
    await _outbox_looks(world)
    assert len(tries) == 1, "not before its time"

    world.clock.tick(2)
    await world.settle(engine)
    await engine.stop()

    assert world.adapter.texts("loopback:1") == ["re: hello"]
    assert (tries[1] - tries[0]).total_seconds() >= 40


async def test_an_answer_that_was_lost_is_sent_again_and_marked(world: EngineWorld) -> None:
    lost: list[str] = []

    def once(delivery: Delivery) -> BaseException | None:
        if lost:
            return None
        lost.append(delivery.id)
        return ConnectionResetError("the answer was lost")

    world.adapter.after = once
    engine = await world.started()
    await world.says(engine, "hello")
    await world.until(lambda: bool(lost))
    await world.until_outbox_is_idle()
    world.clock.tick(10)
    await world.settle(engine)
    await engine.stop()

    assert world.adapter.texts("loopback:1") == ["re: hello", "re: hello"]
    row = await world.store.read(lambda tx: tx.one("get_delivery", id=lost[0], profile="main"))
    assert row is not None
    assert row[11] == 1, "one attempt may have reached the person"


async def test_a_dead_target_is_abandoned_with_its_reason(world: EngineWorld) -> None:
    world.adapter.before = lambda delivery: Unreachable("blocked by the person")
    engine = await world.started()
    await world.says(engine, "hello")
    await world.settle(engine)
    await engine.stop()

    rows = await world.store.read(
        lambda tx: [row for (no,) in [(1,)] for row in tx.all("deliveries_of_session", no=no)]
    )
    assert [(row[9], row[15]) for row in rows] == [("abandoned", "blocked by the person")]


async def _outbox_looks(world: EngineWorld) -> None:
    """Until the outbox has looked for what is due, after everything that came before."""
    before = len(world.adapter.texts("loopback:witness"))
    channel = world.source("witness").channel
    assert channel is not None
    moment = moment_of(world.clock, world.ids)
    await world.store.write(outbox.enqueue, channel, (Text("look"),), profile="main", moment=moment)
    await world.until(lambda: len(world.adapter.texts("loopback:witness")) > before)
