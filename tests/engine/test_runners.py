"""A runner that misbehaves ends its own turn with a visible reason, and nothing else (F17)."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from sessionary.config.engine import EngineSettings, WhileRunning
from sessionary.engine.ports import Delta, Event, Step, TurnRequest
from sessionary.engine.turn import run
from sessionary.errors import BadInput
from sessionary.model.message import Message, message
from sessionary.model.turn import Turn, TurnState
from sessionary.store.database import Store
from tests.support.engine_world import QUICK, TIMEOUT_SECONDS, EngineWorld
from tests.support.misbehaving_runner import MisbehavingRunner

AFTERWARDS = "Your message is kept. Send /retry to try again."


async def misbehaves(
    store: Store, script: Iterable[Any], *, is_late: bool = False, **settings: Any
) -> tuple[EngineWorld, Turn, list[str]]:
    """One turn that goes wrong in chat 1 beside a good one in chat 2, and a good one after it.

    If it `is_late`, its deadline passes once it hangs: for the event loop, in no time. A deadline
    short enough to wait for would pass for the good turns too on a busy machine.
    """
    world = EngineWorld(store, settings=replace(QUICK, **settings))
    good, misbehaving = world.runner, MisbehavingRunner(script)
    agents = {"1": turn_taker(world, misbehaving), "2": turn_taker(world, good)}
    world.use(agent_for=lambda source, _: agents[source.chat_id or "2"])
    engine = await world.started()
    # The clock by which the event loop keeps deadlines; never set back while an engine runs.
    loop, patch = asyncio.get_running_loop(), pytest.MonkeyPatch()
    try:
        await world.says(engine, "bad", chat="1")
        await world.says(engine, "good", chat="2")
        if is_late:
            await world.until(lambda: misbehaving.hanging == 1)
            await world.until(lambda: bool(world.adapter.texts("loopback:2")))
            patch.setattr(loop, "time", partial(_ahead, loop.time, world.settings.turn_seconds))
        await world.settle(engine)
        assert world.adapter.texts("loopback:2") == ["re: good"]
        ended = (await world.turns("1"))[0]
        agents["1"] = agents["2"]
        assert (await world.asks(engine, "next"))[-1] == "re: next"
    finally:
        misbehaving.release.set()
        await engine.stop()
        patch.undo()
    return world, ended, world.adapter.texts("loopback:1")


def _ahead(real: Callable[[], float], seconds: float) -> float:
    return real() + seconds


def turn_taker(world: EngineWorld, runner: Any) -> Any:
    return world.context(runner=runner).agent_for(world.source(), None)


async def bodies(world: EngineWorld) -> list[tuple[str, str | None]]:
    """The messages of chat 1 before the next turn, and how it ended."""
    head = await world.head("1")
    entries = await world.messages(head.id)
    return [(message.text, message.finish_reason) for message in entries[:-4]]


async def test_one_that_hangs_is_ended_at_its_deadline(store: Store) -> None:
    """F17: the words until then are kept and marked."""
    world, ended, sent = await misbehaves(
        store, ["some", " words", MisbehavingRunner.HANG], is_late=True, turn_seconds=600
    )

    assert (ended.state, ended.reason) == (TurnState.FAILED, "it took longer than 600 s")
    assert await bodies(world) == [("bad", None), ("some words", "failed")]
    assert sent[0] == f"Something went wrong: it took longer than 600 s. {AFTERWARDS}"


async def test_one_that_does_not_even_go_when_cancelled_is_left_behind(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F17: whatever it says later reaches nobody."""
    monkeypatch.setattr(run, "CANCEL_GRACE_SECONDS", 0.05)
    world, ended, _ = await misbehaves(
        store,
        ["words", MisbehavingRunner.HANG_UNCANCELLABLE, Step(message("assistant", "too late"))],
        is_late=True,
        turn_seconds=600,
    )

    assert ended.state is TurnState.FAILED
    assert await bodies(world) == [("bad", None), ("words", "failed")]


async def test_one_that_raises_after_some_words_leaves_them_marked(store: Store) -> None:
    """F17: the person is notified; a new message starts a new turn."""
    world, ended, sent = await misbehaves(store, ["half an ", "answer", ValueError("boom")])

    assert (ended.state, ended.reason) == (TurnState.FAILED, "ValueError: boom")
    assert await bodies(world) == [("bad", None), ("half an answer", "failed")]
    assert sent[0] == f"Something went wrong: ValueError: boom. {AFTERWARDS}"


async def test_a_finished_step_and_the_words_after_it_are_both_kept(store: Store) -> None:
    """F17."""
    world, _, _ = await misbehaves(
        store,
        ["first", Step(message("assistant", "first")), "second", RuntimeError("gone")],
    )

    assert await bodies(world) == [("bad", None), ("first", None), ("second", "failed")]


@pytest.mark.parametrize(
    "error", [TimeoutError("the model is slow"), KeyError("x"), RecursionError("deep")]
)
async def test_its_own_errors_are_not_taken_for_ours(store: Store, error: Exception) -> None:
    """F17: a TimeoutError of the runner is not the turn's deadline."""
    _, ended, _ = await misbehaves(store, [error])

    assert ended.reason == f"{type(error).__name__}: {error}"


async def test_one_that_cancels_itself_has_failed(store: Store) -> None:
    """F17: that is no stop of the server."""
    _, ended, _ = await misbehaves(store, ["words", asyncio.CancelledError()])

    assert (ended.state, ended.reason) == (TurnState.FAILED, "the agent cancelled its own run")


async def test_a_flood_of_words_is_cut_off(store: Store) -> None:
    """F17: the output has a limit, and others are served meanwhile."""
    world, ended, sent = await misbehaves(store, itertools.repeat("x" * 100), longest_output=10_000)

    assert (ended.state, ended.reason) == (
        TurnState.FAILED,
        "The agent said more than is allowed in one turn.",
    )
    assert await bodies(world) == [("bad", None), ("x" * 10_000, "failed")]
    assert sent[0].startswith("Something went wrong: The agent said more")


async def test_a_flood_of_nothing_is_cut_off_too(store: Store) -> None:
    """F17: events without words; one that never waits does not stop the others."""
    _, ended, _ = await misbehaves(store, itertools.repeat(Delta("")), longest_output=5_000)

    assert ended.state is TurnState.FAILED


async def test_an_answer_as_long_as_allowed_is_not_counted_twice(store: Store) -> None:
    """F17: once as it comes, and not again when it is finished."""
    _, ended, sent = await misbehaves(
        store, ["y" * 900, Step(message("assistant", "y" * 900))], longest_output=1_000
    )

    assert ended.state is TurnState.DONE
    assert sent[0] == "y" * 900


@pytest.mark.parametrize(
    "rubbish",
    [
        None,
        42,
        {"text": "hello"},
        Step("not a message"),  # type: ignore[arg-type]
        Step(message("user", "I am the person now")),
        Step(message("system", "obey")),
        Delta(None),  # type: ignore[arg-type]
        Step(
            message("assistant", [{"type": "tool_call", "id": "1", "name": "f", "arguments": 1j}])
        ),
    ],
    ids=repr,
)
async def test_rubbish_fails_the_turn_and_is_not_written_down(store: Store, rubbish: Any) -> None:
    """F17: nothing but an assistant's or a tool's message can come from an agent."""
    world, ended, sent = await misbehaves(store, ["ok so far", rubbish])

    assert ended.state is TurnState.FAILED
    assert await bodies(world) == [("bad", None), ("ok so far", "failed")]
    assert sent[0].startswith("Something went wrong: ")


async def test_words_without_a_step_are_the_answer(store: Store) -> None:
    """P7: a visible outcome."""
    world, ended, sent = await misbehaves(store, ["just ", "words"])

    assert ended.state is TurnState.DONE
    assert await bodies(world) == [("bad", None), ("just words", "stop")]
    assert sent[0] == "just words"


async def test_an_agent_without_output_leads_to_a_visible_notice(store: Store) -> None:
    """P7: a visible outcome."""
    _, ended, sent = await misbehaves(store, [])

    assert ended.state is TurnState.DONE
    assert sent[0] == "(The agent said nothing.)"


async def test_words_are_durable_within_a_second_also_while_the_agent_pauses(store: Store) -> None:
    """The last words before a pause too, and a finished step that waits for the end."""
    assert run.CHECKPOINT_SECONDS <= 1
    # Where it looks for messages rarely, and renews its lease rarely: neither makes it durable.
    rarely: EngineSettings = replace(QUICK, poll_seconds=600, lease_seconds=6000)
    world = EngineWorld(store, settings=rarely)
    misbehaving = MisbehavingRunner(
        [Step(message("assistant", "a step")), "and", " words", MisbehavingRunner.HANG]
    )
    engine = await world.started(runner=misbehaving)
    await world.says(engine, "hello")
    await world.until(lambda: misbehaving.hanging == 1)

    async def is_durable() -> bool:
        return [each.partial for each in await world.turns()] == ["and words"]

    await world.eventually(is_durable)
    assert await world.texts() == ["hello", "a step"]
    await engine.stop()


class CancelIgnoringRunner:
    """Gives rubbish, and ends as if all were well when it is stopped for that."""

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        yield Delta("ok so far")
        yield Step(Message(message("assistant", "x").role, ("no part",)))  # type: ignore[arg-type]
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    async def close(self) -> None:
        """Nothing is held."""


async def test_what_could_not_be_written_down_is_not_done(store: Store) -> None:
    """F17: nor is a turn that ends in the moment in which that is found out."""
    world = EngineWorld(store)
    engine = await world.started(runner=CancelIgnoringRunner())
    await world.says(engine, "hello")
    await world.settle(engine)
    await engine.stop()

    (ended,) = await world.turns()
    assert ended.state is TurnState.FAILED
    assert await world.texts() == ["hello", "ok so far"]


async def test_a_planned_stop_ends_turns_in_the_record(store: Store) -> None:
    """F2: the text is kept; the next process notifies the person."""
    world = EngineWorld(store)
    misbehaving = MisbehavingRunner(["some words", MisbehavingRunner.HANG])
    engine = await world.started(runner=misbehaving)
    await world.says(engine, "hello")
    await world.until(lambda: misbehaving.hanging == 1)
    await engine.stop()

    (ended,) = await world.turns()
    assert (ended.state, ended.reason) == (TurnState.INTERRUPTED, "the server stopped")
    after = await world.started()
    await world.settle(after)
    await after.stop()
    assert world.adapter.texts("loopback:1") == [f"Interrupted: the server stopped. {AFTERWARDS}"]
    assert await world.texts() == ["hello", "some words"]


async def test_a_newer_message_interrupts_if_configured(store: Store) -> None:
    """`interrupt`, in whatever process the turn runs; both messages are in the context."""
    interrupting: EngineSettings = replace(QUICK, while_running=WhileRunning.INTERRUPT)
    world = EngineWorld(store, settings=interrupting)
    misbehaving = MisbehavingRunner(["some words", MisbehavingRunner.HANG])
    one = await world.started(runner=misbehaving)
    await world.says(one, "first", number="1")
    await world.until(lambda: misbehaving.hanging == 1)
    misbehaving.script = ["answer"]
    two = await world.started(runner=misbehaving)

    await world.says(two, "second", number="2")
    await world.settle(one)
    await world.settle(two)
    await one.stop()
    await two.stop()

    assert [(each.state, each.reason) for each in await world.turns()] == [
        (TurnState.INTERRUPTED, "a newer message came"),
        (TurnState.DONE, None),
    ]
    assert await world.texts() == ["first", "some words", "second", "answer"]
    assert world.adapter.texts("loopback:1") == ["answer"]


async def test_a_newer_message_waits_by_default(store: Store) -> None:
    """`queue`."""
    world = EngineWorld(store)
    misbehaving = MisbehavingRunner(["some words", MisbehavingRunner.HANG, " and more"])
    engine = await world.started(runner=misbehaving)
    await world.says(engine, "first", number="1")
    await world.until(lambda: misbehaving.hanging == 1)
    await world.says(engine, "second", number="2")
    await asyncio.sleep(0.1)
    assert len(await world.turns()) == 1

    misbehaving.release.set()
    await world.settle(engine)
    await engine.stop()
    assert [each.state for each in await world.turns()] == [TurnState.DONE, TurnState.DONE]


async def test_a_clock_set_forward_kills_no_living_turn(store: Store) -> None:
    """F12: liveness is a lease that is renewed, not an age that is guessed."""
    # Longer than any pause of a busy machine: a living turn has renewed its lease by then.
    world = EngineWorld(store, settings=replace(QUICK, confirm_seconds=TIMEOUT_SECONDS))
    misbehaving = MisbehavingRunner(["words", MisbehavingRunner.HANG, " after"])
    engine = await world.started(runner=misbehaving)
    await world.says(engine, "hello")
    await world.until(lambda: misbehaving.hanging == 1)
    other = await world.started()

    async def is_renewed() -> bool:
        return (await world.turns())[0].lease_until > world.clock.now()

    for _ in range(3):
        world.clock.tick(days=3)
        await world.eventually(is_renewed)

    misbehaving.release.set()
    await world.settle(engine)
    await engine.stop()
    await other.stop()

    assert [each.state for each in await world.turns()] == [TurnState.DONE]
    assert world.adapter.texts("loopback:1") == ["words after"]


async def test_an_agent_that_cannot_be_made_is_an_answer_not_a_busy_loop(store: Store) -> None:
    """P7."""
    world = EngineWorld(store)
    tries: list[str] = []

    def missing(*_: object) -> Any:
        tries.append("again")
        raise BadInput("There is no agent 'x'.")

    world.use(agent_for=missing)
    engine = await world.started()
    sent = await world.asks(engine, "hello")
    await engine.stop()

    assert sent == ["Your message could not be answered: There is no agent 'x'."]
    assert len(tries) < 5
