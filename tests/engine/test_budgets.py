"""Budgets inside a turn: every scope, the end between two steps, and warnings."""

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sessionary.actions import access as homes
from sessionary.actions import budgets, schedules
from sessionary.actions.budgets import Account
from sessionary.actions.retention import erase
from sessionary.actions.sessions import read
from sessionary.clock import RandomIds, SystemClock
from sessionary.config.engine import Budget, WhileRunning
from sessionary.engine.intake import Submission, submit_to_new_session, submit_to_session
from sessionary.engine.ports import Delta, Event, Step, TurnRequest
from sessionary.engine.turn.budgets import scopes_of
from sessionary.errors import NotAllowed
from sessionary.model.access import BudgetStatus, BudgetUse
from sessionary.model.message import Role, ToolCall, message
from sessionary.model.prompt import HomeAddress
from sessionary.model.schedule import RunState, Timing
from sessionary.model.session import Opening
from sessionary.model.source import Source
from sessionary.model.turn import TurnState
from sessionary.model.usage import Usage
from sessionary.store.database import Store, Tx
from sessionary.store.open import open_store
from sessionary.store.tables import access
from sessionary.testing.fakes import moment_of, scripted_agent
from tests.support.engine_world import QUICK, EngineWorld

BEGINS = "It begins again on 2026-03-03 at 00:00 UTC."
# What `ScriptedRunner` uses: 4 tokens for its tool call, 7 for its answer.
TOKENS = 11


class ManySteps:
    """Calls a tool again and again; each model call uses `tokens`, the last one answers."""

    model = "big-1"

    def __init__(self, calls: int = 5, *, tokens: int = 10, called: str = "big-1") -> None:
        self.calls = calls
        self.tokens = tokens
        self.called = called
        self.made = 0
        self.tools = 0

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        for number in range(self.calls):
            self.made += 1
            used = Usage(model=self.called, input_tokens=self.tokens)
            if number == self.calls - 1:
                yield Delta("all ")
                yield Step(message("assistant", "all done"), used)
                return
            id = f"{request.turn_id}-{number}"
            call = {"type": "tool_call", "id": id, "name": "look", "arguments": {}}
            yield Step(message("assistant", [call]), used)
            self.tools += 1
            found = {"type": "tool_result", "call_id": id, "name": "look", "content": "42"}
            yield Step(message("tool", [found]))

    async def close(self) -> None:
        """Nothing is held."""


def limited(store: Store, limits: dict[str, Budget]) -> EngineWorld:
    return EngineWorld(store, settings=replace(QUICK, budgets=limits))


async def status(world: EngineWorld) -> dict[str, BudgetStatus]:
    found = await world.store.read(
        budgets.list_status, world.settings.budgets, profile="main", now=world.clock.now()
    )
    return {each.scope: each for each in found}


async def set_home(world: EngineWorld, chat: str = "owner") -> None:
    moment = moment_of(world.clock, world.ids)
    await world.store.write(
        homes.set_home, HomeAddress("loopback", chat), profile="main", moment=moment
    )


# --- scopes


@pytest.mark.parametrize(
    ("limits", "whose"),
    [
        ({"session": Budget(tokens=TOKENS)}, "this session"),
        ({"agent": Budget(tokens=TOKENS)}, "the agent scripted"),
        ({"agent:scripted": Budget(tokens=TOKENS)}, "the agent scripted"),
        ({"model": Budget(tokens=TOKENS)}, "the model scripted"),
        ({"model:scripted": Budget(tokens=TOKENS)}, "the model scripted"),
        ({"profile": Budget(tokens=TOKENS)}, "the whole profile"),
        ({"profile:main": Budget(tokens=TOKENS)}, "the whole profile"),
    ],
)
async def test_each_scope_is_counted_and_refuses(
    store: Store, limits: dict[str, Budget], whose: str
) -> None:
    world = limited(store, limits)
    engine = await world.started()
    first = await world.asks(engine, "one")
    second = await world.asks(engine, "two")
    world.clock.tick(days=1)
    third = await world.asks(engine, "three")
    await engine.stop()

    assert "re: one" in first
    assert second == [
        f"The budget of {whose} for the day is used up; your message was not answered. {BEGINS}"
    ]
    assert "re: three" in third


async def test_the_budget_of_one_session_agent_or_model_leaves_others_alone(store: Store) -> None:
    limits = {
        "session": Budget(tokens=TOKENS),
        "session:elsewhere": Budget(tokens=1),
        "agent:other": Budget(tokens=1),
        "model:other": Budget(tokens=1),
        "profile:other": Budget(tokens=1),
    }
    world = limited(store, limits)
    engine = await world.started()
    await world.asks(engine, "one", chat="1")
    other = await world.asks(engine, "two", chat="2")
    await world.asks(engine, "/new", chat="1")
    again = await world.asks(engine, "three", chat="1")
    await engine.stop()

    assert "re: two" in other
    assert "re: three" in again, "a new session has a budget of its own"
    assert {scope for scope, found in (await status(world)).items() if found.used_tokens} == {
        f"session:{head.id}" for head in await world.sessions()
    }


@pytest.mark.parametrize(
    ("limit", "scope"),
    [
        ("model", "model:big-1"),
        ("model:big-1", "model:big-1"),
        ("model:big-1-2026-01-31", "model:big-1-2026-01-31"),
    ],
)
async def test_a_model_is_counted_by_the_name_it_answered_with(
    store: Store, limit: str, scope: str
) -> None:
    """A version at the end of the name is left out, unless there is a budget for it."""
    world = limited(store, {limit: Budget(tokens=100)})
    runner = ManySteps(1, called="big-1-2026-01-31")
    engine = await world.started(runner=runner)
    await world.asks(engine, "one")
    await engine.stop()

    assert (await status(world))[scope].used_tokens == 10


async def test_a_used_up_model_is_refused_in_a_new_session(store: Store) -> None:
    """The agent names its model before the turn."""
    world = limited(store, {"model": Budget(tokens=10)})
    runner = ManySteps(1)
    agent = replace(scripted_agent(runner), model="big-1")
    world.use(agent_for=lambda _, __: agent)
    engine = await world.started()
    await world.asks(engine, "one", chat="1")
    second = await world.asks(engine, "two", chat="2")
    await engine.stop()

    assert second[0].startswith("The budget of the model big-1 for the day is used up")
    assert runner.made == 1


@pytest.mark.parametrize("scope", ["agent:scripted", "profile", "model", "session", "schedule"])
async def test_a_schedule_counts_against_every_scope(store: Store, scope: str) -> None:
    """Its second run is refused; each run has a session of its own, so a session's budget ends only a run."""
    world = limited(store, {scope: Budget(tokens=TOKENS)})
    agent = replace(scripted_agent(world.runner), model="scripted")
    world.use(agent_for=lambda _, __: agent)
    engine = await world.started()
    spec = schedules.ScheduleSpec(
        "tick", Timing("every 1h", ZoneInfo("UTC")), origin=world.source("home"), prompt="tock"
    )
    moment = moment_of(world.clock, world.ids)
    await store.write(schedules.add, spec, profile="main", moment=moment)
    for count in (1, 2):
        world.clock.tick(3600)

        async def is_over(count: int = count) -> bool:
            found = await store.read(schedules.list_runs, "tick", profile="main")
            return len(found) == count and found[0].state is not RunState.RUNNING

        await world.eventually(is_over)
        await world.settle(engine)
    await engine.stop()

    found = await store.read(schedules.list_runs, "tick", profile="main")
    assert found[1].state is RunState.DONE
    if scope == "session":
        assert found[0].state is RunState.DONE
    else:
        assert found[0].state is RunState.FAILED
        assert "budget" in str(found[0].reason)
        assert str(found[0].reason).endswith(BEGINS)


async def test_a_session_that_cannot_begin_says_which_budget_is_used_up(store: Store) -> None:
    world = limited(store, {"profile": Budget(tokens=TOKENS)})
    engine = await world.started()
    await world.asks(engine, "one")
    context = engine.context
    with pytest.raises(NotAllowed, match="whole profile for the day is used up"):
        await store.write(
            submit_to_new_session,
            context,
            Opening("main", Source(platform="web")),
            Submission(message("user", "two")),
            moment=context.moment(),
        )
    await engine.stop()


async def test_a_message_that_waits_and_is_then_refused_is_recorded_in_its_session(
    store: Store,
) -> None:
    """A person in the workbench has no channel to which a notice could be sent."""
    world = limited(store, {"session": Budget(tokens=50)})
    gate = asyncio.Event()

    class Gated(ManySteps):
        async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
            await gate.wait()
            async for event in super().run(request):
                yield event

    engine = await world.started(runner=Gated(2, tokens=30))
    context = engine.context
    first, second = (
        Submission(message("user", text)) for text in ("count the plums", "and the pears")
    )
    opening = Opening("main", Source(platform="web"))
    opened = await store.write(
        submit_to_new_session, context, opening, first, moment=context.moment()
    )
    engine.turns.run_started(opened.key, opened.start)
    id = opened.session_id
    assert id is not None
    await store.write(submit_to_session, context, id, second, moment=context.moment())
    gate.set()
    await world.settle(engine)
    await engine.stop()

    *_, answer, refused = await world.messages(id)
    assert (answer.role, answer.text) == (Role.ASSISTANT, "all done")
    why = f"The budget of this session for the day is used up; your message was not answered. {BEGINS}"
    assert (refused.role, refused.text) == (Role.SYSTEM, f"{why}\n\nand the pears")
    assert refused.extra == {
        "record": {
            "kind": "refused",
            "reason": why,
            "budget": {
                "scope": f"session:{id}",
                "per": "day",
                "resets_at": "2026-03-03T00:00:00.000000Z",
            },
        }
    }
    chats = await store.read(read.read_context, id, profile="main")
    assert all("pears" not in str(chat) for chat in chats), "the model does not read it"


class GatedSteps:
    """Waits for its gate, asks for new messages, and answers; the answer uses 10 tokens."""

    def __init__(self) -> None:
        self.is_running = asyncio.Event()
        self.gate = asyncio.Event()
        self.read: list[str] = []

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        self.is_running.set()
        await self.gate.wait()
        self.read += [str(chat["content"]) for chat in await request.services.new_messages()]
        yield Step(message("assistant", "done"), Usage(model="big-1", input_tokens=10))

    async def close(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize("limit", [5, 100])
async def test_a_turn_counts_against_those_who_steer_it_unless_their_budget_is_used_up(
    store: Store, limit: int
) -> None:
    world = limited(store, {"person:loopback:v": Budget(tokens=limit)})
    engine = await world.started()
    await world.asks(engine, "one", chat="2", user_id="v", user_name="Eva")
    await engine.stop()
    runner = GatedSteps()
    world.settings = replace(world.settings, while_running=WhileRunning.STEER)
    engine = await world.started(runner=runner)
    thread = {"chat_type": "group", "thread_id": "t"}

    await world.says(engine, "count", number="1", **thread)
    await runner.is_running.wait()
    await world.says(engine, "faster", number="2", user_id="v", user_name="Eva", **thread)
    runner.gate.set()
    await world.settle(engine)
    await engine.stop()

    used = (await status(world))["person:loopback:v"].used_tokens
    if limit == 5:
        assert (runner.read, used) == ([], TOKENS)
        refused = "The budget of this person for the day is used up; your message was not answered."
        assert any(text.startswith(refused) for _, text in world.adapter.sent)
    else:
        assert (runner.read, used) == (["[Eva] faster"], TOKENS + 10)


async def test_without_budgets_nothing_more_is_counted(store: Store) -> None:
    world = limited(store, {})
    engine = await world.started()
    await world.asks(engine, "one")
    await engine.stop()

    day = budgets.periods(world.clock.now())[0]
    for kind in ("session", "agent", "model", "profile"):
        assert not await store.read(
            access.list_spending,
            kind,
            day,
            profile="main",
            token_limit=1,
            microusd_limit=1,
            limit=9,
        )


# --- between steps


async def test_a_turn_ends_at_the_step_that_uses_up_its_budget(store: Store) -> None:
    """Five model calls of 10 tokens, a budget of 25: the third is the last."""
    world = limited(store, {"session": Budget(tokens=25)})
    runner = ManySteps(5)
    engine = await world.started(runner=runner)
    sent = await world.asks(engine, "go")
    (turn,) = await world.turns()
    messages = await world.messages((await world.head()).id)
    left = await store.read(
        access.get_budget_use, f"session:{(await world.head()).id}", "2026-03-02", profile="main"
    )
    await engine.stop()

    why = f"The budget of this session for the day is used up; the steps so far are kept. {BEGINS}"
    assert (runner.made, runner.tools) == (3, 2)
    assert (turn.state, turn.reason) == (TurnState.FAILED, why)
    assert [each.role for each in messages] == [
        Role.USER,
        *[Role.ASSISTANT, Role.TOOL] * 2,
        "assistant",
    ]
    assert isinstance(messages[-1].parts[0], ToolCall)
    assert sent[-1] == why
    assert not [text for text in sent if text.startswith("100 %")], "the end says it"
    assert left == BudgetUse(30, 0, 0, 0)


async def test_an_answer_that_is_paid_for_is_delivered(store: Store) -> None:
    world = limited(store, {"session": Budget(tokens=25)})
    engine = await world.started(runner=ManySteps(3))
    sent = await world.asks(engine, "go")
    (turn,) = await world.turns()
    await engine.stop()

    assert turn.state is TurnState.DONE
    assert "all done" in sent
    assert any(text.startswith("100 % of the budget of this session") for text in sent)


async def test_a_turn_stops_before_another_call_that_follows_an_answer(store: Store) -> None:
    """An answer may be stored before it is known to be the last; what follows it is a new model call."""
    world = limited(store, {"session": Budget(tokens=10)})

    class TwoAnswers(ManySteps):
        async def run(self, _: TurnRequest) -> AsyncIterator[Event]:
            used = Usage(model="m", input_tokens=10)
            with engine.context.bus.listen() as events:
                yield Step(message("assistant", "first"), used)
                # The turn knows that it is stored.
                while (event := await events.get()) is None or event.kind != "step":
                    pass
            self.made += 1
            yield Delta("sec")
            self.made += 1
            yield Step(message("assistant", "second"), used)

    runner = TwoAnswers()
    engine = await world.started(runner=runner)
    sent = await world.asks(engine, "go")
    (turn,) = await world.turns()
    await engine.stop()

    assert (turn.state, runner.made) == (TurnState.FAILED, 1)
    assert "steps so far are kept" in sent[-1]


async def test_a_turn_ends_when_another_turn_used_up_the_budget(store: Store) -> None:
    world = limited(store, {"profile": Budget(tokens=100, reserve_tokens=10)})
    runner = ManySteps(5)

    async def spend() -> None:
        amounts = {"profile:main": BudgetUse(95)}
        await store.write(
            budgets.count, amounts, world.settings.budgets, profile="main", now=world.clock.now()
        )

    class Elsewhere(ManySteps):
        async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
            async for event in runner.run(request):
                if runner.made == 2 and isinstance(event, Step) and event.usage:
                    await spend()
                yield event

    engine = await world.started(runner=Elsewhere())
    sent = await world.asks(engine, "go")
    await engine.stop()

    assert runner.made == 2
    assert sent[-1].startswith("The budget of the whole profile for the day is used up")


# --- warnings


async def test_the_person_and_the_owner_are_warned_once_at_each_threshold(store: Store) -> None:
    world = limited(store, {"person": Budget(tokens=100)})
    await set_home(world)
    engine = await world.started(runner=ManySteps(1, tokens=15))
    sent = [await world.asks(engine, str(number)) for number in range(8)]
    await engine.stop()

    warnings = [[text for text in texts if "% of the budget" in text] for texts in sent]
    mine = "of the budget of this person for the day is used"
    assert warnings == [
        *[[]] * 3,
        [f"50 % {mine}: 60 of 100 tokens. {BEGINS}"],
        [],
        [f"80 % {mine}: 90 of 100 tokens. {BEGINS}"],
        [f"100 % {mine}: 105 of 100 tokens. {BEGINS}"],
        [],
    ]
    theirs = "of the budget of the person loopback:u for the day is used"
    assert world.adapter.texts("loopback:owner") == [
        f"50 % {theirs}: 60 of 100 tokens. {BEGINS}",
        f"80 % {theirs}: 90 of 100 tokens. {BEGINS}",
        f"100 % {theirs}: 105 of 100 tokens. {BEGINS}",
    ]
    assert (await status(world))["person:loopback:u"].warned == (50, 80, 100)


async def test_a_step_that_passes_two_thresholds_gives_one_warning(store: Store) -> None:
    world = limited(store, {"channel": Budget(microusd=1_000_000)})
    world.use(priced=lambda used: Usage(model=used.model, cost_microusd=850_000))
    engine = await world.started(runner=ManySteps(1))
    sent = await world.asks(engine, "go")
    await engine.stop()

    # On a slow machine the answer is stored, and the warning enqueued, before the turn ends.
    assert sorted(sent) == [
        f"80 % of the budget of this channel for the day is used: $0.85 of $1.00. {BEGINS}",
        "all done",
    ]
    assert (await status(world))["channel:loopback:1"].warned == (50, 80)


@pytest.mark.parametrize("kind", ["agent", "model", "profile"])
async def test_only_the_owner_is_warned_about_what_concerns_everyone(
    store: Store, kind: str
) -> None:
    world = limited(store, {kind: Budget(tokens=15)})
    await set_home(world)
    engine = await world.started(runner=ManySteps(1))
    sent = await world.asks(engine, "go")
    await engine.stop()

    assert sent == ["all done"]
    (warning,) = world.adapter.texts("loopback:owner")
    assert warning.startswith("50 % of the budget of the ")


async def test_the_owner_who_asks_in_the_home_channel_is_warned_once(store: Store) -> None:
    world = limited(store, {"session": Budget(tokens=15)})
    await set_home(world, "1")
    engine = await world.started(runner=ManySteps(1))
    sent = await world.asks(engine, "go")
    await engine.stop()

    # On a slow machine the answer is stored, and the warning enqueued, before the turn ends.
    warning, answer = sorted(sent)
    assert (warning[:4], answer) == ("50 %", "all done")
    assert (await world.head()).id in warning


async def test_a_new_day_warns_again(store: Store) -> None:
    world = limited(store, {"person": Budget(tokens=15)})
    engine = await world.started(runner=ManySteps(1))
    first = await world.asks(engine, "one")
    world.clock.tick(days=1)
    second = await world.asks(engine, "two")
    await engine.stop()

    assert [len(first), len(second)] == [2, 2]


async def test_usage_in_chat_says_what_is_left(store: Store) -> None:
    limits = {"person": Budget(tokens=40), "session": Budget(per="month", microusd=2_000_000)}
    world = limited(store, limits)
    engine = await world.started(runner=ManySteps(1))
    await world.asks(engine, "one")
    (said,) = await world.asks(engine, "/usage")
    await engine.stop()

    assert said.splitlines()[1:] == [
        f"Budget of this person for the day: 10 of 40 tokens used (25 %). {BEGINS}",
        (
            "Budget of this session for the month: $0.00 of $2.00 used (0 %). "
            "It begins again on 2026-04-01 at 00:00 UTC."
        ),
    ]


async def test_an_erased_person_leaves_no_account_and_no_warning(store: Store) -> None:
    world = limited(store, {"person": Budget(tokens=15)})
    engine = await world.started(runner=ManySteps(1))
    await world.asks(engine, "one")
    await engine.stop()
    assert "person:loopback:u" in await status(world)

    subject = erase.ErasureSubject("loopback", "u")
    erase.erase(store, subject, profile="main", moment=moment_of(world.clock, world.ids))

    assert list(await status(world)) == ["person"]


# --- lists


async def test_budgets_are_listed_with_what_was_used(store: Store) -> None:
    """A kind once for each scope that has used something; those nearest to their limit first."""
    limits = {
        "person": Budget(tokens=100),
        "person:loopback:u": Budget(per="month", tokens=20, microusd=5_000_000),
        "agent": Budget(tokens=1000),
        "schedule": Budget(tokens=7),
        "profile:elsewhere": Budget(tokens=7),
    }
    world = limited(store, limits)
    engine = await world.started(runner=ManySteps(1))
    await world.asks(engine, "one", chat="1")
    await world.asks(engine, "two", chat="2", user_id="v")
    await world.asks(engine, "three", chat="2", user_id="v")
    await engine.stop()
    found = await store.read(budgets.list_status, limits, profile="main", now=world.clock.now())

    assert [(each.scope, each.used_tokens, each.percent) for each in found] == [
        ("person:loopback:u", 10, 50.0),
        ("person:loopback:v", 20, 20.0),
        ("agent:scripted", 30, 3.0),
        ("schedule", 0, 0.0),
    ]
    assert (found[0].period, found[1].period) == ("2026-03", "2026-03-02")
    assert (found[0].warned, found[0].limit_microusd, found[0].is_used_up) == (
        (50,),
        5_000_000,
        False,
    )


@pytest.mark.parametrize(
    ("per", "now", "begins"),
    [
        ("day", datetime(2026, 12, 31, 23, 59, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)),
        ("month", datetime(2026, 1, 31, 12, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)),
        ("month", datetime(2026, 12, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_budget_begins_again_with_the_next_day_or_month(
    per: Any, now: datetime, begins: datetime
) -> None:
    assert Account("person:a:b", Budget(per=per, tokens=1), BudgetUse(), now).resets_at == begins


# --- at once


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    found: str = request.getfixturevalue("migrated_url")
    return found


def test_two_stores_that_pass_a_threshold_at_once_warn_once(url: str) -> None:
    limits = {"person": Budget(tokens=1000)}
    scope, now = scopes_of(Source("loopback", "1", user_id="u"))[0], SystemClock().now()
    noted: list[int] = []

    def spend(tx: Tx) -> int | None:
        (account,) = budgets.count(tx, {scope: BudgetUse(10)}, limits, profile="main", now=now)
        return budgets.note_threshold(tx, account, profile="main")

    def work(store: Store) -> None:
        for _ in range(60):
            threshold = store.write(spend).result()
            if threshold is not None:
                noted.append(threshold)

    _at_once(url, work, work)

    assert sorted(noted) == [50, 80, 100]


def test_two_turns_with_the_same_scopes_in_another_order_do_not_deadlock(url: str) -> None:
    """A transaction that is lost to a deadlock is run again: none may be run twice."""
    names = [f"{kind}:{number}" for kind in ("session", "agent", "model") for number in range(4)]
    limits = dict.fromkeys(("session", "agent", "model"), Budget(tokens=10**9))
    now = SystemClock().now()
    runs = []

    def spend(tx: Tx, scopes: list[str]) -> None:
        runs.append(1)
        accounts = budgets.count(
            tx, dict.fromkeys(scopes, BudgetUse(1)), limits, profile="main", now=now
        )
        for account in accounts:
            budgets.note_threshold(tx, account, profile="main")

    def begin(tx: Tx, scopes: list[str]) -> None:
        runs.append(1)
        budgets.lock_accounts(tx, scopes, limits, profile="main", now=now)

    def work(store: Store, scopes: list[str]) -> None:
        for _ in range(50):
            store.write(begin, scopes).result()
            store.write(spend, scopes).result()

    _at_once(
        url, lambda store: work(store, names), lambda store: work(store, list(reversed(names)))
    )

    assert len(runs) == 200


def _at_once(url: str, *works: Any) -> None:
    """Run each of these with a store of its own on one database, at the same time."""
    stores = [open_store(url, create=True, clock=SystemClock(), ids=RandomIds()) for _ in works]
    failed: list[BaseException] = []

    def run(work: Any, store: Store) -> None:
        try:
            work(store)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=run, args=each) for each in zip(works, stores, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert not failed
