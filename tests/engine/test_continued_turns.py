"""Turns that another process continues, and those that it must leave alone."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from sessionary.actions import budgets, inbox, outbox, turns
from sessionary.config.engine import Budget
from sessionary.engine.context import EngineContext
from sessionary.engine.ports import Agent
from sessionary.engine.turn import loop
from sessionary.model.access import BudgetUse
from sessionary.model.message import message
from sessionary.model.source import Source
from sessionary.model.turn import DeliveryState, TurnState
from sessionary.store.database import Store
from sessionary.store.tables import access
from sessionary.testing.fakes import scripted_agent
from tests.support.engine_world import QUICK, EngineWorld
from tests.support.misbehaving_runner import MisbehavingRunner


async def test_a_process_does_not_take_over_its_own_turn(store: Store) -> None:
    """It is only late: a busy process may renew a lease after it has run out, if nobody else takes the turn."""
    # The heartbeat looks once a second, so that the lease is over when the process looks for dead turns.
    settings = replace(QUICK, poll_seconds=30, sweep_seconds=300)
    world = EngineWorld(store, settings=settings)
    runner = MisbehavingRunner(["words", MisbehavingRunner.HANG, " after"])
    engine = await world.started(runner=runner)
    await world.says(engine, "hello")
    await world.until(lambda: runner.hanging == 1)
    (turn,) = await world.turns()

    world.clock.tick(100)
    await engine.turns.take_over([turn.id])
    runner.release.set()
    await world.settle(engine)
    await engine.stop()

    (ended,) = await world.turns()
    assert (ended.state, ended.epoch, ended.resumed) == (TurnState.DONE, turn.epoch, 0)
    assert world.adapter.texts("loopback:1") == ["words after"]


async def test_a_turn_goes_on_at_once_if_its_process_was_on_this_machine(store: Store) -> None:
    """Nobody waits for the lease, which the killed process had renewed for an hour."""
    world = hour_long_leases(store)
    dead = replace(world.context(), holder=await ended_process())
    await receive_and_begin(world, dead)

    engine = await world.started()
    await world.settle(engine)
    await engine.stop()

    (turn,) = await world.turns()
    assert (turn.state, turn.resumed, turn.crashes) == (TurnState.DONE, 1, 1)
    assert world.adapter.texts("loopback:1") == ["re: hello"]


async def test_a_turn_of_a_process_elsewhere_waits_for_its_lease(store: Store) -> None:
    world = hour_long_leases(store)
    host, pid, mark = (await ended_process()).rsplit("/", 2)
    await receive_and_begin(world, replace(world.context(), holder=f"not-{host}/{pid}/{mark}"))

    engine = await world.started()
    await engine.sweeper.sweep()
    (turn,) = await world.turns()
    assert (turn.state, turn.resumed) == (TurnState.RUNNING, 0)
    world.clock.tick(3601)
    await world.settle(engine)
    await engine.stop()

    (turn,) = await world.turns()
    assert (turn.state, turn.resumed) == (TurnState.DONE, 1)


async def test_a_reply_that_a_killed_process_was_sending_is_sent_at_the_next_start(
    store: Store,
) -> None:
    """It may have been sent already, so it is marked."""
    world = EngineWorld(store)
    context = world.context()
    channel = world.source().channel
    assert channel is not None
    await store.write(
        outbox.enqueue,
        channel,
        message("user", "hi").parts,
        profile="main",
        moment=context.moment(),
    )
    claimed = await store.write(
        outbox.claim,
        holder=await ended_process(),
        now=context.clock.now(),
        seconds=3600,
        limit=10,
    )
    assert len(claimed) == 1

    engine = await world.started()
    await world.settle(engine)
    await engine.stop()

    (delivery,) = await world.deliveries()
    assert (delivery.state, delivery.unclear_attempts) == (DeliveryState.SENT, 1)
    assert len(world.adapter.texts("loopback:1")) == 1


async def test_a_turn_that_is_not_continued_is_interrupted_at_once(store: Store) -> None:
    world = hour_long_leases(store, resumes=False)
    await receive_and_begin(world, replace(world.context(), holder=await ended_process()))

    engine = await world.started()
    await world.settle(engine)
    await engine.stop()

    (turn,) = await world.turns()
    assert turn.state is TurnState.INTERRUPTED
    (text,) = world.adapter.texts("loopback:1")
    assert text.startswith("Interrupted")


async def test_what_a_turn_wrote_before_it_was_continued_counts_as_its_output(
    store: Store,
) -> None:
    """Otherwise an agent that kills its process could write the limit again and again."""
    world = EngineWorld(store, settings=replace(QUICK, lease_seconds=3600, longest_output=1_000))
    world.use(agent_for=resuming(MisbehavingRunner(["y" * 500])))
    dead = replace(world.context(), holder=await ended_process())
    begun = await receive_and_begin(world, dead)
    await store.write(
        turns.add_step,
        begun.lease,
        message("assistant", "x" * 600),
        None,
        profile="main",
        moment=dead.moment(),
    )

    engine = await world.started()
    await world.settle(engine)
    await engine.stop()

    (turn,) = await world.turns()
    assert (turn.state, turn.reason) == (
        TurnState.FAILED,
        "The agent said more than is allowed in one turn.",
    )


async def test_a_continued_turn_counts_against_everyone_whom_it_answers(store: Store) -> None:
    world = hour_long_leases(store)
    dead = replace(world.context(), holder=await ended_process())
    thread = {"chat_type": "group", "thread_id": "t"}
    eva = world.source(number="2", user_id="v", user_name="Eva", **thread)
    await receive_and_begin(world, dead, world.source(**thread), eva)

    engine = await world.started()
    await world.settle(engine)
    await engine.stop()

    day = budgets.periods(world.clock.now())[0]
    spent = [
        await store.read(access.get_budget_use, f"person:loopback:{name}", day, profile="main")
        for name in ("u", "v")
    ]
    assert spent[0].tokens == spent[1].tokens > 0


@pytest.mark.parametrize("is_answered", [False, True])
async def test_a_continued_turn_calls_no_model_if_a_budget_was_used_up_meanwhile(
    store: Store, *, is_answered: bool
) -> None:
    """An answer that was stored already is delivered: it has been paid for."""
    world = hour_long_leases(store)
    world.settings = replace(world.settings, budgets={"profile": Budget(tokens=50)})
    dead = replace(world.context(), holder=await ended_process())
    begun = await receive_and_begin(world, dead)
    if is_answered:
        answer = message("assistant", "paid for", finish_reason="stop")
        await store.write(
            turns.add_step, begun.lease, answer, None, profile="main", moment=dead.moment()
        )
        world.use(agent_for=resuming(MisbehavingRunner([])))
    use = {"profile:main": BudgetUse(60, 0)}
    await store.write(
        budgets.count, use, world.settings.budgets, profile="main", now=world.clock.now()
    )

    engine = await world.started()
    await world.settle(engine)
    await engine.stop()

    (turn,) = await world.turns()
    (sent,) = world.adapter.texts("loopback:1")
    if is_answered:
        assert (turn.state, sent) == (TurnState.DONE, "paid for")
    else:
        assert turn.state is TurnState.FAILED
        assert turn.reason is not None
        assert turn.reason.startswith("The budget of the whole profile for the day is used up")
        assert turn.reason in sent
        assert world.runner.requests == []


async def test_the_reply_has_every_piece_of_an_answer_that_was_interrupted_twice(
    store: Store,
) -> None:
    world = EngineWorld(store, settings=QUICK)
    pieces = ["a" * 1_100, "b" * 1_100, "c" * 1_100]
    for number, piece in enumerate(pieces):
        is_last = number == len(pieces) - 1
        runner = MisbehavingRunner([piece] if is_last else [piece, MisbehavingRunner.HANG])
        world.use(agent_for=resuming(runner))
        engine = await world.started()
        if number == 0:
            await world.says(engine, "hello")
        if not is_last:
            await world.until(lambda runner=runner: runner.hanging == 1)  # type: ignore[misc]
        else:
            await world.settle(engine)
        await engine.stop()

    (turn,) = await world.turns()
    assert (turn.state, turn.resumed) == (TurnState.DONE, 2)
    assert world.adapter.texts("loopback:1") == ["".join(pieces)]


async def test_the_reply_of_a_turn_that_lacked_only_its_end_has_every_piece(store: Store) -> None:
    """The process died after the last step was stored."""
    world = EngineWorld(store, settings=replace(QUICK, lease_seconds=3600))
    world.use(agent_for=resuming(MisbehavingRunner([])))
    dead = replace(world.context(), holder=await ended_process())
    begun = await receive_and_begin(world, dead)
    for text, why in (("one ", "interrupted"), ("two ", "interrupted"), ("three", "stop")):
        step = message("assistant", text, finish_reason=why)
        await store.write(
            turns.add_step, begun.lease, step, None, profile="main", moment=dead.moment()
        )

    engine = await world.started()
    await world.settle(engine)
    await engine.stop()

    assert world.adapter.texts("loopback:1") == ["one two three"]


def resuming(runner: MisbehavingRunner) -> Callable[[Source, str | None], Agent]:
    """An agent with this runner whose turns are continued."""
    agent = replace(scripted_agent(runner), resumes=True)
    return lambda _, __: agent


def hour_long_leases(store: Store, *, resumes: bool = True) -> EngineWorld:
    """Engines whose leases last for an hour."""
    world = EngineWorld(store, settings=replace(QUICK, lease_seconds=3600))
    agent = replace(scripted_agent(world.runner), resumes=resumes)
    world.use(agent_for=lambda _, __: agent)
    return world


async def ended_process() -> str:
    """The name of a process on this machine that has ended."""
    program = "from sessionary.processes import process_name; print(process_name())"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    return printed.decode().strip()


async def receive_and_begin(
    world: EngineWorld, context: EngineContext, *sources: Source
) -> turns.Begun:
    """Let a process begin a turn with a message from each source, and do nothing more; return the turn."""
    asked = sources or (world.source(),)
    key = context.key(asked[0])
    for source in asked:
        await world.store.write(
            inbox.receive, key, source, message("user", "hello"), moment=context.moment()
        )
    begun = await world.store.write(loop.begin, key, context=context, moment=context.moment())
    assert begun.begun is not None
    return begun.begun
