"""A turn goes on in another process wherever its own is killed, stopped or frozen."""

import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sessionary.actions import schedules, verify
from sessionary.actions.schedules import ScheduleSpec
from sessionary.actions.sessions import read
from sessionary.actions.turns import CONTINUED_CHARACTERS
from sessionary.engine.turn.run import SERVER_STOPPED
from sessionary.model.schedule import RunState, Timing
from sessionary.model.turn import TurnState
from tests.faults.turn_world import (
    AFTER_END,
    LONG_ANSWER,
    LONG_CHAT,
    ONCE,
    POINTS,
    TurnCounts,
    TurnWorld,
    answer_of,
    judge,
)
from tests.support.fork_server import ForkServer

DIED = "its process died"
# How many points of a turn lie between two kills of it; there is a finished step among them.
SECOND_KILL = 16
# Enough for each kind of point, where all of them would only repeat what other tests show.
SOME_POINTS = POINTS[3::5]
Record = Callable[[str, object], None]


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
    """A world whose store is sound at the end, and whose processes have logged no error."""
    async with TurnWorld(url, tmp_path, forks).opened() as made:
        yield made
        assert verify.verify(made.store).broken == ()
        assert "ERROR" not in made.read_logs()


async def hold_turns(world: TurnWorld, process: str, points: Mapping[str, str]) -> None:
    """Begin a turn in each chat, in one process, and wait until each is held at its point."""
    world.forbid_take_over()
    for chat, point in points.items():
        world.holds[chat] = [point]
        await world.says(process, chat)
    await world.until_held(points)


async def judge_all(
    world: TurnWorld, points: Mapping[str, str], *, reason: str, resumed: Mapping[str, int]
) -> TurnCounts:
    """Check each turn; return what happened to them. `resumed`: how often each was continued."""
    counts = TurnCounts()
    for chat, point in points.items():
        found = await world.facts(chat)
        try:
            judge(found, counts, resumed=resumed[chat], reason=reason)
        except AssertionError as error:
            raise AssertionError(f"held at {point!r}: {error}") from error
    assert (counts.lost, counts.doubled, counts.twice) == (0, 0, 0)
    return counts


async def test_a_turn_goes_on_wherever_its_process_is_killed(
    world: TurnWorld, record_property: Record
) -> None:
    """F1: a turn at each point of its way, and most of them again in the process that continued them."""
    first, second = await world.start(), await world.start()
    points = {f"chat-{number}": point for number, point in enumerate(POINTS)}
    await hold_turns(world, first, points)

    later = {
        f"chat-{number}": POINTS[number + SECOND_KILL]
        for number in range(POINTS.index("end recorded") - SECOND_KILL)
    }
    for chat, point in later.items():
        world.holds[chat] = [point]
    world.kill(first)
    world.cut(points)
    await world.until_held(later)
    await world.until_settled([chat for chat in points if chat not in later])
    world.forbid_take_over()
    await world.start()
    world.kill(second)
    world.cut(later)
    await world.until_settled(list(points))

    resumed = {chat: (point not in AFTER_END) + (chat in later) for chat, point in points.items()}
    counts = await judge_all(world, points, reason=DIED, resumed=resumed)
    kills = len(points) + len(later)
    record_property("counts", f"SIGKILL at {len(POINTS)} points, {kills} turns cut off: {counts}")
    for tool in ONCE:
        for moment, runs in (("called", 0), ("ran", 1), ("unrecorded", 1)):
            found = await world.facts(_chat_at(points, f"{tool} {moment}"))
            assert found.is_unknown(tool)
            assert found.runs[tool] == runs


async def test_a_planned_stop_leaves_turns_to_the_other_process(
    world: TurnWorld, record_property: Record
) -> None:
    """F2: tools that end in time are recorded; the others are reported as unknown."""
    # No sender is killed: no delivery has to wait for this.
    world.send_seconds = 60.0
    first, second = await world.start(), await world.start()
    points = {f"chat-{number}": point for number, point in enumerate(POINTS)}
    await hold_turns(world, first, points)

    await stop_planned(world, [first], points)
    await world.until_settled(list(points))

    resumed = {
        chat: int(point not in (*AFTER_END, "end unrecorded")) for chat, point in points.items()
    }
    counts = await judge_all(world, points, reason=SERVER_STOPPED, resumed=resumed)
    record_property("counts", f"SIGTERM at {len(POINTS)} points: {counts}")
    assert second in world.alive
    assert counts.marked == 0
    # One for each tool that had been called, and was not finished after the time that it was given.
    assert counts.unknown == len(ONCE)


async def stop_planned(
    world: TurnWorld, processes: Sequence[str], points: Mapping[str, str]
) -> None:
    """Stop processes whose turns are held, and wait until they have ended.

    What waits for the store or the platform, and each tool that has run, goes on meanwhile.
    """
    for process in processes:
        world.ask_to_stop(process)
    cut_off = [
        chat for chat, point in points.items() if point.startswith("model") or "called" in point
    ]
    world.let_go(chat for chat in points if chat not in cut_off)
    for process in processes:
        await world.ended(process)
    world.cut(cut_off)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
async def test_turns_wait_for_the_next_process_if_all_have_ended(
    world: TurnWorld, how: signal.Signals, record_property: Record
) -> None:
    both = [await world.start(), await world.start()]
    points = {f"chat-{number}": point for number, point in enumerate(SOME_POINTS)}
    for process, rest in zip(both, (0, 1), strict=True):
        share = {chat: point for at, (chat, point) in enumerate(points.items()) if at % 2 == rest}
        await hold_turns(world, process, share)

    reason, ended = DIED, AFTER_END
    if how is signal.SIGTERM:
        reason, ended = SERVER_STOPPED, ("end unrecorded", *AFTER_END)
        await stop_planned(world, both, points)
    else:
        for process in both:
            world.kill(process)
        world.cut(points)
    await world.start()
    await world.until_settled(list(points))

    resumed = {chat: int(point not in ended) for chat, point in points.items()}
    counts = await judge_all(world, points, reason=reason, resumed=resumed)
    record_property("counts", f"both processes by {how.name}: {counts}")


async def test_a_process_that_was_frozen_changes_nothing_any_more(
    world: TurnWorld, record_property: Record
) -> None:
    """F1: its turns were taken over meanwhile, and their epochs fence it."""
    first, _ = await world.start(), await world.start()
    points = {f"chat-{number}": point for number, point in enumerate(POINTS)}
    await hold_turns(world, first, points)

    await world.freeze(first)
    world.allow_take_over()
    await world.until_settled(list(points))
    before = [await state_of(world, chat) for chat in points]
    world.let_go(points)
    await world.thaw(first)
    after = [await state_of(world, chat) for chat in points]

    assert after == before
    resumed = {chat: int(point not in AFTER_END) for chat, point in points.items()}
    counts = await judge_all(world, points, reason=DIED, resumed=resumed)
    record_property("counts", f"SIGSTOP at {len(POINTS)} points, then SIGCONT: {counts}")


async def test_a_turn_that_ends_its_process_again_and_again_is_given_up(
    world: TurnWorld, record_property: Record
) -> None:
    """Twice at the same step, or more often than `resume_attempts`; the person is told why."""
    # A safe tool is run again, and ends its process again; the other turn makes a step between two crashes.
    same, often = ["read_a called"] * 2, [f"model {stage} asked" for stage in (1, 2, 3, 4)]
    world.holds |= {"chat-same": list(same), "chat-often": list(often)}
    process = await world.start()
    await world.says(process, "chat-same")
    await world.says(process, "chat-often")
    for crash in range(len(often)):
        held = {"chat-often": often[crash]}
        if crash < len(same):
            held["chat-same"] = same[crash]
        await world.until_held(held)
        world.forbid_take_over()
        following = await world.start()
        world.kill(process)
        world.cut(held)
        process = following
    await world.until_settled(["chat-same", "chat-often"])

    for chat, times, reason in (
        ("chat-same", 1, "its process died twice at the same step, so it was given up"),
        ("chat-often", 3, "its process died 4 times, so it was given up"),
    ):
        found = await world.facts(chat)
        assert (found.turn.state, found.turn.reason) == (TurnState.INTERRUPTED, reason)
        assert found.turn.resumed == len(found.records) == times
        notice = f"Interrupted: {reason}. Your message is kept. Send /retry to try again."
        assert [post.text for post in found.posts] == [notice]
    record_property("counts", "SIGKILL: 2 turns given up, after 2 crashes at one step and after 4")


async def test_every_kind_of_turn_goes_on_or_says_why_not(world: TurnWorld) -> None:
    """A job, a long answer, two programs, and a turn that its person has stopped."""
    first = await world.start()
    task = ScheduleSpec(
        "report", Timing("every 1h", ZoneInfo("UTC")), "Begin with chat-job.", "wire:chat-job"
    )
    world.holds |= {"chat-job": ["send_b ran"], "chat-stop": ["model 2 asked"]}
    world.holds |= {LONG_CHAT: ["model 5 streaming"], "chat-plain": ["program"]}
    world.holds["chat-again"] = ["program", "program"]
    points = {chat: holds[0] for chat, holds in world.holds.items()}
    await world.schedule(task)
    for chat, platform in (
        ("chat-stop", "wire"),
        (LONG_CHAT, "wire"),
        ("chat-plain", "program"),
        ("chat-again", "resuming"),
    ):
        await world.says(first, chat, platform=platform)
    await world.until_held(points)

    async def is_long() -> bool:
        return len(await world.partial(LONG_CHAT)) >= CONTINUED_CHARACTERS

    await world.eventually(is_long, "long enough to be continued")
    world.forbid_take_over()
    second = await world.start()
    await world.freeze(first)
    await world.says(second, "chat-stop", "/stop")
    world.kill(first)
    world.cut(points)
    await world.until_held({"chat-again": "program"})
    again = world.held["chat-again"].facts["given"]
    world.let_go(["chat-again"])
    await world.until_settled(["chat-stop", LONG_CHAT])
    await world.until_settled(["chat-plain"], platform="program")
    await world.until_settled(["chat-again"], platform="resuming")

    await job_is_done(world)
    await long_answer_is_whole(world)
    stopped = await world.facts("chat-stop")
    assert (stopped.turn.state, stopped.turn.resumed) == (TurnState.INTERRUPTED, 0)
    assert stopped.turn.reason == "stopped by you"
    plain = await world.facts("chat-plain", platform="program")
    assert (plain.turn.state, plain.turn.resumed) == (TurnState.INTERRUPTED, 0)
    assert [post.text for post in plain.posts] == [
        "Interrupted: the agent stopped responding. Your message is kept. Send /retry to try again."
    ]
    call = {"id": "own-1", "name": "look", "arguments": {"chat": "chat-again"}}
    assert (again["resumed"], again["unfinished"]) == (1, [call])
    assert [step["role"] for step in again["steps"]] == ["assistant"]
    resumed = await world.facts("chat-again", platform="resuming")
    assert (resumed.turn.state, resumed.turn.resumed) == (TurnState.DONE, 1)
    assert [post.text for post in resumed.posts] == ["The program answers chat-again."]


async def job_is_done(world: TurnWorld) -> None:
    """The run of a scheduled task has ended as if nothing had happened."""

    async def is_over() -> bool:
        (run,) = await world.store.read(schedules.list_runs, "report", profile="main")
        return run.state is not RunState.RUNNING

    await world.eventually(is_over, "a run that is over")
    (run,) = await world.store.read(schedules.list_runs, "report", profile="main")
    assert (run.state, run.reason) == (RunState.DONE, None)
    assert run.session_id is not None
    head = await world.store.read(read.get_head, run.session_id, profile="main")
    answer = answer_of("chat-job")
    await world.until(lambda: any(post.text == answer for post in world.posts), "delivered")
    found = await world.facts_of(head, "chat-job")
    judge(found, TurnCounts(), resumed=1, reason=DIED)
    assert found.is_unknown("send_b")


async def long_answer_is_whole(world: TurnWorld) -> None:
    """The model has gone on writing where it had stopped; nobody notices in the chat."""
    found = await world.facts(LONG_CHAT)
    judge(found, TurnCounts(), resumed=1, reason=DIED)
    (record,) = found.records
    assert record["continues"] is True
    assert [post.text for post in found.posts] == [LONG_ANSWER]


async def state_of(world: TurnWorld, chat: str) -> Any:
    """Return what the store has of a chat."""
    found = await world.facts(chat)
    return found.turn, found.log, found.usage, found.head.message_count


def _chat_at(points: Mapping[str, str], wanted: str) -> str:
    return next(chat for chat, point in points.items() if point == wanted)
