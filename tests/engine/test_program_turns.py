"""A turn that a program has parked, beside a server on the same store: the server asks for it, and never runs it."""

from dataclasses import replace
from pathlib import Path

import pytest

from sessionary import config as configuration
from sessionary.app.context import AppContext
from sessionary.client.async_client import AsyncSessionary
from sessionary.config.engine import AccessPolicy
from sessionary.errors import NotFound
from sessionary.model.question_data import QuestionData
from sessionary.model.turn import TurnState
from sessionary.store.database import Store
from tests.support.engine_world import QUICK, EngineWorld

SEND: QuestionData = {"tool": "send", "arguments": {"to": "Ann"}}
SETTINGS = """
[channels.loopback]
[access.loopback]
everyone = true
owners = ["u"]
[questions]
expire_seconds = 600
remind_seconds = 60
on_expiry = "{on_expiry}"
"""


def make_world(store: Store) -> EngineWorld:
    access = AccessPolicy(everyone=True, owners=frozenset({"u"}))
    return EngineWorld(store, settings=replace(QUICK, access={"loopback": access}))


def make_program(world: EngineWorld, home: Path, *, on_expiry: str = "deny") -> AsyncSessionary:
    """A program on the same store, with the settings of the server."""
    (home / "sessionary.toml").write_text(SETTINGS.format(on_expiry=on_expiry))
    config = configuration.load(home=str(home))
    return AsyncSessionary._over(AppContext(world.store, config, clock=world.clock, ids=world.ids))


async def park(program: AsyncSessionary, world: EngineWorld) -> None:
    async with program.session(world.source()).turn("Write to Ann.") as turn:
        await turn.append("assistant", "May I?")
        await turn.wait_for([SEND], state="kept")


async def test_the_person_answers_in_the_chat_and_only_the_program_goes_on(
    store: Store, tmp_path: Path
) -> None:
    world = make_world(store)
    program = make_program(world, tmp_path)
    await park(program, world)
    engine = await world.started()
    await world.until_outbox_is_idle()
    (card,) = world.adapter.texts("loopback:1")
    assert "**send**" in card

    await world.says(engine, "1", number="answer")
    await world.until_outbox_is_idle()
    for _ in range(3):
        await engine.sweeper.sweep()
    (turn,) = await world.turns()
    assert (turn.state, turn.resumed, world.runner.requests) == (TurnState.RUNNING, 0, [])
    assert turn.holder == "", "it is left to the program"

    async with program.session(world.source()).resume_turn() as resumed:
        (question,) = resumed.questions
        assert question.answered is not None
        assert (question.answered.who, resumed.state) == ("Ada", "kept")
        world.clock.tick(1)
        await engine.sweeper.sweep()
        await resumed.append("assistant", "Sent.")
    await world.settle(engine)
    await engine.stop()

    (turn,) = await world.turns()
    assert (turn.state, world.runner.requests) == (TurnState.DONE, [])
    assert await world.texts() == [
        "Write to Ann.",
        "May I?",
        "Asked: may the tool send be called?",
        "Approved by Ada. (may the tool send be called?)",
        "Sent.",
    ]


async def test_a_message_meanwhile_waits_until_the_program_has_ended_its_turn(
    store: Store, tmp_path: Path
) -> None:
    world = make_world(store)
    program = make_program(world, tmp_path)
    await park(program, world)
    engine = await world.started()
    await world.until_outbox_is_idle()
    await world.says(engine, "What is new?", number="n1")
    await world.says(engine, "yes", number="n2")
    await world.until_outbox_is_idle()
    await engine.sweeper.sweep()
    assert world.runner.requests == []

    async with program.session(world.source()).resume_turn():
        pass
    await world.settle(engine)
    await engine.stop()

    (request,) = world.runner.requests
    assert request.context[-1]["content"] == "What is new?"


async def test_stop_ends_it(store: Store, tmp_path: Path) -> None:
    world = make_world(store)
    program = make_program(world, tmp_path)
    await park(program, world)
    engine = await world.started()
    await world.asks(engine, "/stop")
    await engine.stop()

    (turn,) = await world.turns()
    assert turn.state is TurnState.INTERRUPTED
    with pytest.raises(NotFound):
        await program.session(world.source()).resume_turn().__aenter__()


@pytest.mark.parametrize(
    ("on_expiry", "state"), [("deny", TurnState.RUNNING), ("end", TurnState.INTERRUPTED)]
)
async def test_its_question_expires(
    store: Store, tmp_path: Path, on_expiry: str, state: TurnState
) -> None:
    world = make_world(store)
    program = make_program(world, tmp_path, on_expiry=on_expiry)
    await park(program, world)
    engine = await world.started()
    await world.until_outbox_is_idle()
    world.clock.tick(601)
    session = program.session(world.source())

    async def has_expired() -> bool:
        questions = program.questions.list(state="all", session=await id_of(program, world))
        return all([not each.is_open async for each in questions])

    async def is_as_expected() -> bool:
        return (await world.turns())[0].state is state

    await world.eventually(has_expired)
    await world.eventually(is_as_expected)
    await world.until_outbox_is_idle()
    if on_expiry == "deny":
        async with session.resume_turn() as turn:
            assert not turn.questions[0].is_approved
    await engine.stop()

    assert world.runner.requests == []


async def id_of(program: AsyncSessionary, world: EngineWorld) -> str:
    return (await program.session(world.source()).head()).id


async def test_a_program_that_dies_after_going_on_is_interrupted_by_the_server(
    store: Store, tmp_path: Path
) -> None:
    world = make_world(store)
    program = make_program(world, tmp_path)
    await park(program, world)
    (question,) = [each async for each in program.questions.list()]
    await program.questions.answer(question.id, approve=True)
    resumed = program.session(world.source()).resume_turn()
    await resumed.__aenter__()
    await resumed._heartbeat.stop()  # nobody renews the lease any more
    engine = await world.started()
    world.clock.tick(61)

    async def is_over() -> bool:
        return (await world.turns())[0].is_over

    await world.eventually(is_over)
    await engine.stop()

    (turn,) = await world.turns()
    assert (turn.state, world.runner.requests) == (TurnState.INTERRUPTED, [])
