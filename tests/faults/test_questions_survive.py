"""A turn that waits for an approval survives a kill at any moment: the tool runs once after it, and never without."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from sessionary.actions import questions, verify
from sessionary.clock import SystemClock
from sessionary.model.message import Role
from sessionary.model.question import Question, QuestionState
from sessionary.model.turn import TurnState
from sessionary.store.database import Tx
from tests.faults.turn_world import ONCE, TurnWorld, answer_of
from tests.support.fork_server import ForkServer

Record = Callable[[str, object], None]
# The moments of an approved call at which a process is killed: one chat for each.
AT_THE_QUESTION = ("asked unrecorded", "asked recorded")
AFTER_THE_ANSWER = (
    "started unrecorded",
    "started recorded",
    "called",
    "ran",
    "unrecorded",
    "recorded",
)
# Here the call was started and has no result: nobody can tell whether it ran, and it is not started again.
UNKNOWN = ("started recorded", "called", "ran", "unrecorded")
FIRST, SECOND = ONCE


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    with ForkServer(tmp_path_factory.mktemp("forks"), "tests.faults.turn_child") as started:
        yield started


@pytest.fixture(params=("sqlite", "postgres"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    found: str = request.getfixturevalue("migrated_url")
    return found


@pytest.fixture
async def world(url: str, tmp_path: Path, forks: ForkServer) -> AsyncIterator[TurnWorld]:
    """A world in which `send_*` must be approved, and whose store is sound at the end."""
    async with TurnWorld(url, tmp_path, forks).opened() as made:
        made.asks_first = True
        yield made
        assert verify.verify(made.store).broken == ()
        assert "ERROR" not in made.read_logs()


async def test_a_tool_runs_once_after_its_approval_wherever_its_process_is_killed(
    world: TurnWorld, record_property: Record
) -> None:
    """Kills at the question, while it waits, at the answer, and after it, for two calls of one turn."""
    chats = {
        **{f"chat-a{number}": f"{FIRST} {at}" for number, at in enumerate(AT_THE_QUESTION)},
        "chat-b": "reply unrecorded",
        **{f"chat-c{number}": f"{FIRST} {at}" for number, at in enumerate(AFTER_THE_ANSWER)},
        **{f"chat-d{number}": f"{SECOND} {at}" for number, at in enumerate(AT_THE_QUESTION)},
        "chat-e": "reply recorded",
        **{f"chat-f{number}": f"{SECOND} {at}" for number, at in enumerate(AFTER_THE_ANSWER)},
    }
    denied, silent = "chat-denied", "chat-silent"
    first = await world.start()
    at_question = named(chats, "chat-a")
    for chat in (*chats, denied, silent):
        world.holds[chat] = [at_question[chat]] if chat in at_question else []
        await world.says(first, chat)
    await world.until_held(at_question)
    await until_asked(world, FIRST, {*chats, denied, silent} - {"chat-a0"})
    world.kill(first)  # all the others wait
    world.cut(at_question)

    second = await world.start()
    await until_asked(world, FIRST, {*chats, denied, silent})
    later = named(chats, "chat-c") | named(chats, "chat-d")
    await reply(world, second, [*(chat for chat in chats if chat != "chat-b"), denied], later)
    asked = asyncio.create_task(say_in_vain(world, second, "chat-b", "reply unrecorded"))
    at_reply = {"chat-b": "reply unrecorded"}
    await world.until_held(later | at_reply)
    others = {*chats, denied} - set(later) - {"chat-b"} | {"chat-d1"}
    await until_asked(world, SECOND, others)
    world.kill(second)
    world.cut(later | at_reply)
    await asked

    third = await world.start()
    await world.says(third, "chat-b", "1", id="reply-chat-b-1")  # the platform delivers it again
    await until_asked(world, SECOND, {*chats, denied})
    last = named(chats, "chat-f")
    await reply(world, third, [*(chat for chat in chats if chat != "chat-e"), denied], last)
    asked = asyncio.create_task(say_in_vain(world, third, "chat-e", "reply recorded"))
    at_reply = {"chat-e": "reply recorded"}
    await world.until_held(last | at_reply)
    world.kill(third)
    world.cut(last | at_reply)
    await asked

    fourth = await world.start()
    await world.says(fourth, "chat-e", "1", id="reply-chat-e-2")
    await world.eventually(lambda: are_over(world, [*chats, denied]), "all turns over")

    counts = Counter[str]()
    for chat, point in chats.items():
        found = await world.facts(chat)
        assert found.turn.state is TurnState.DONE, f"{point}: {found.turn}"
        # A process may die between the last step and the end of the turn; then the next has nothing but to say so.
        said = [each for each in found.messages if each.role is not Role.SYSTEM]
        assert said[-1].text == answer_of(chat), point
        for tool in ONCE:
            is_unknown = point in [f"{tool} {at}" for at in UNKNOWN]
            assert found.is_unknown(tool) == is_unknown, f"{point}: {found.results[tool]}"
            assert found.runs[tool] == 1 or (is_unknown and found.runs[tool] == 0), point
            counts["unknown" if is_unknown else "ran once"] += 1
    refused = await world.facts(denied)
    assert (refused.turn.state, [refused.runs[tool] for tool in ONCE]) == (TurnState.DONE, [0, 0])
    assert "Denied by u" in str(refused.results[FIRST].content)
    waiting = await world.facts(silent)
    assert (waiting.turn.state, waiting.runs[FIRST]) == (TurnState.WAITING, 0)
    assert (await open_questions(world))[silent].state is QuestionState.OPEN
    record_property(
        "counts",
        f"SIGKILL at {len(chats)} points of {len(chats)} turns with two approvals each, and while all "
        f"others waited: {counts['ran once']} approved calls ran once, {counts['unknown']} unknown, "
        "0 twice, 0 without approval",
    )


def named(chats: Mapping[str, str], beginning: str) -> dict[str, str]:
    return {chat: point for chat, point in chats.items() if chat.startswith(beginning)}


async def reply(
    world: TurnWorld, process: str, chats: Sequence[str], holds: Mapping[str, str]
) -> None:
    """Answer the open question of each chat; some are held later at a point."""
    for chat in chats:
        world.holds[chat] = [holds[chat]] if chat in holds else []
        await world.says(process, chat, "2" if chat == "chat-denied" else "1")


async def say_in_vain(world: TurnWorld, process: str, chat: str, point: str) -> None:
    """Answer, and be held at it until the process is killed."""
    world.holds[chat] = [point]
    number = "1" if point == "reply unrecorded" else "2"
    with suppress(ConnectionError, ValueError):
        await world.says(process, chat, "1", id=f"reply-{chat}-{number}")


async def until_asked(world: TurnWorld, tool: str, chats: Collection[str]) -> None:
    """Wait until each of these chats was sent an open question about a tool: before that, no reply answers it."""

    async def are_asked() -> bool:
        found = await open_questions(world)
        if not all(chat in found and found[chat].asked.tool == tool for chat in chats):
            return False
        now = SystemClock().now()

        def are_shown(tx: Tx) -> bool:
            numbers = {chat: found[chat].no for chat in chats}
            return all(
                questions.is_shown(tx, no, f"wire:{chat}", before=now)
                for chat, no in numbers.items()
            )

        return await world.store.read(are_shown)

    await world.eventually(are_asked, f"all asked about {tool}")


async def are_over(world: TurnWorld, chats: Sequence[str]) -> bool:
    return all([(await world.facts(chat)).turn.is_over for chat in chats])


async def open_questions(world: TurnWorld) -> dict[str, Question]:
    """Return the open question of each chat that has one."""
    page = await world.store.read(
        questions.list_questions, profile="main", limit=500, only_open=True
    )
    return {str((each.asked.arguments or {})["chat"]): each for each in page.items}
