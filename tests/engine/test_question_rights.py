"""Who has which rights in a turn that several people write to, and which message answers which question."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from zoneinfo import ZoneInfo

import pytest

from sessionary.actions import inbox, schedules, turns
from sessionary.actions.schedules import ClaimedRun, ScheduleSpec
from sessionary.config.engine import Approvers, PolicyRule, ToolDecision, WhileRunning
from sessionary.engine import intake, policy, questions, scheduler
from sessionary.engine.context import EngineContext
from sessionary.engine.intake import Submission
from sessionary.engine.policy import Asking, asking_for
from sessionary.engine.ports import Agent, Event, ProposedCall, Step, TurnRequest
from sessionary.engine.turn import loop
from sessionary.errors import NotAllowed, NotFound
from sessionary.model.message import REPLIES_TO, message
from sessionary.model.policy import PolicyVerdict
from sessionary.model.question import Always, Answer, Decision
from sessionary.model.reset import ResetPolicy
from sessionary.model.schedule import Timing
from sessionary.model.source import Source, at_session, by_program, is_by_program
from sessionary.store.database import Store, Tx
from sessionary.store.tables import arrivals, deliveries
from sessionary.store.tables import questions as question_rows
from tests.engine.test_questions import (
    SEND,
    AskingRunner,
    answer,
    make_world,
    open_questions,
    set_home,
)
from tests.support.engine_world import EngineWorld

CALL = ProposedCall("send", {"to": "Ann"}, is_safe=False)
OWNERS_CHAT = Source("loopback", "1", user_id="u", user_name="Ada")
EVAS_CHAT = Source("loopback", "1", user_id="eva", user_name="Eva")
ASKER = PolicyRule(decision=ToolDecision.ASK, tool="send", by=Approvers.ASKER)


def with_rules(world: EngineWorld, *rules: PolicyRule) -> EngineContext:
    context = world.context()
    return replace(context, settings=replace(context.settings, policy=rules))


def verdict_for(
    world: EngineWorld, *sources: Source, rules: tuple[PolicyRule, ...] = ()
) -> PolicyVerdict:
    """What the settings say about a call of a turn with messages from these sources."""
    asking, context = asking_for(sources, "a"), with_rules(world, *rules)
    (found,) = policy.decide_by_settings([CALL], asking=asking, context=context)
    return found


@pytest.mark.parametrize("order", [(OWNERS_CHAT, EVAS_CHAT), (EVAS_CHAT, OWNERS_CHAT)])
def test_a_guest_in_an_owners_turn_has_no_owners_rights(
    store: Store, order: tuple[Source, Source]
) -> None:
    world = make_world(store)

    assert verdict_for(world, OWNERS_CHAT).decision is ToolDecision.ALLOW
    assert verdict_for(world, *order).decision is ToolDecision.ASK


def test_of_the_rules_for_the_people_of_a_turn_the_strictest_holds(store: Store) -> None:
    world = make_world(store)
    forbidden = PolicyRule(decision=ToolDecision.DENY, tool="send", person="eva")

    rules = (forbidden, PolicyRule(decision=ToolDecision.ALLOW, tool="send"))
    assert verdict_for(world, OWNERS_CHAT, rules=rules).decision is ToolDecision.ALLOW
    assert verdict_for(world, OWNERS_CHAT, EVAS_CHAT, rules=rules).decision is ToolDecision.DENY


@pytest.mark.parametrize("order", [1, -1])
def test_two_sources_without_a_chat_are_told_apart_by_their_platform(
    store: Store, order: int
) -> None:
    rule = PolicyRule(decision=ToolDecision.DENY, platform="web")
    sources = (Source("terminal"), Source("web"))[::order]

    assert verdict_for(make_world(store), *sources, rules=(rule,)).decision is ToolDecision.DENY


def test_only_if_each_may_approve_their_own_call_may_one_of_them(store: Store) -> None:
    world = make_world(store)
    bob = Source("loopback", "1", user_id="bob")
    only_eva = PolicyRule(decision=ToolDecision.ASK, tool="send", by=Approvers.ASKER, person="eva")

    def people(*sources: Source, rule: PolicyRule) -> tuple[str, ...]:
        context = with_rules(world, rule)
        return policy.approvers(CALL, asking=Asking(sources, "a"), context=context)

    assert people(EVAS_CHAT, bob, rule=ASKER) == ("loopback:eva", "loopback:bob")
    assert people(EVAS_CHAT, bob, rule=only_eva) == ()
    assert people(EVAS_CHAT, rule=only_eva) == ("loopback:eva",)


class SteeredRunner:
    """Asks the policy about a call before and after it has read a message that steers the turn."""

    model = "big-1"

    def __init__(self) -> None:
        self.has_decided = asyncio.Event()
        self.may_read = asyncio.Event()
        self.decisions: list[ToolDecision] = []

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        await self._decide(request)
        self.has_decided.set()
        await self.may_read.wait()
        assert await request.services.new_messages()
        await self._decide(request)
        yield Step(message("assistant", "done"))

    async def _decide(self, request: TurnRequest) -> None:
        (verdict,) = await request.services.decide([CALL])
        self.decisions.append(verdict.decision)

    async def close(self) -> None:
        """Nothing is held."""


async def test_whoever_steers_a_turn_counts_for_its_calls_from_then_on(store: Store) -> None:
    rules = (
        PolicyRule(decision=ToolDecision.ALLOW, person="u"),
        PolicyRule(decision=ToolDecision.DENY, person="eva"),
    )
    world = make_world(store, while_running=WhileRunning.STEER, policy=rules)
    runner = SteeredRunner()
    engine = await world.started(runner=runner)
    thread = {"chat": "7", "chat_type": "thread", "thread_id": "t"}
    await world.says(engine, "go", number="1", **thread)
    await runner.has_decided.wait()
    await world.says(engine, "this too", number="2", **{**thread, "user_id": "eva"})
    runner.may_read.set()
    await world.settle(engine)
    await engine.stop()

    assert runner.decisions == [ToolDecision.ALLOW, ToolDecision.DENY]


async def test_two_people_whose_messages_waited_together_are_both_asked_about(store: Store) -> None:
    """Also by a process that continues their turn."""
    world = make_world(store, policy=(ASKER,))
    for number, person in enumerate(("eva", "bob")):
        context = world.context()
        source = world.source("7", str(number), chat_type="thread", thread_id="t", user_id=person)
        inbound = intake.InboundMessage(source, message("user", "go"))
        await store.write(intake.admit, context, inbound, moment=context.moment())
    engine = await world.started(runner=AskingRunner())
    await world.until_outbox_is_idle()
    await world.settle(engine)
    await engine.stop()

    (question,) = await open_questions(world)
    assert set(question.body.people) == {"loopback:eva", "loopback:bob"}
    assert question.body.person is None, "there is no rule for two people at once"


# Programs with a token that may write but not approve.


async def test_what_a_program_sends_in_the_name_of_an_owner_has_no_owners_rights(
    store: Store,
) -> None:
    world = make_world(store)
    assert verdict_for(world, OWNERS_CHAT).decision is ToolDecision.ALLOW
    for source in (OWNERS_CHAT, at_session("x"), Source("terminal", user_id="root")):
        assert verdict_for(world, source).decision is ToolDecision.ALLOW
        assert verdict_for(world, by_program(source)).decision is ToolDecision.ASK


async def test_a_program_approves_nothing_in_the_name_of_whoever_may(store: Store) -> None:
    world = make_world(store, policy=(ASKER,))
    named = by_program(EVAS_CHAT)
    assert Asking((EVAS_CHAT,), "a").person == "loopback:eva"
    assert Asking((named,), "a").person is None, "there is no rule for whom a program names"
    context = world.context()
    assert policy.approvers(CALL, asking=Asking((named,), "a"), context=context) == ()

    runner = AskingRunner()
    engine = await world.started(runner=runner)
    await world.asks(engine, "go", chat="7", user_id="eva")
    await world.until_outbox_is_idle()
    (question,) = await open_questions(world)
    for key, text in (("k1", "yes"), ("k2", f"{question.code} 1")):
        source = world.source("7", key, user_id="eva")
        submission = Submission(message("user", text), key, by_program=True)
        await store.write(intake.submit, context, source, submission, moment=context.moment())
    assert (await open_questions(world))[0].is_open
    await world.asks(engine, "yes", chat="7", user_id="eva")
    await engine.stop()

    assert len(runner.ran) >= 1, "the person herself may"


async def test_the_mark_of_a_program_stays_with_its_message(store: Store) -> None:
    world, runner = make_world(store), AskingRunner()
    context = world.context(runner=runner)
    submission = Submission(message("user", "go"), "k1", begin=False, by_program=True)
    done = await store.write(
        intake.submit, context, world.source(), submission, moment=context.moment()
    )
    found = await store.read(arrivals.get, done.received.arrival_id or "", profile="main")

    assert found is not None
    assert is_by_program(found.source)
    assert found.key == str(context.key(world.source())), "it is the same conversation"


async def test_a_program_changes_no_waiting_message_of_a_person(store: Store) -> None:
    world = make_world(store)
    context = world.context()
    begun = await world.started(runner=AskingRunner())
    await world.asks(begun, "go")
    await begun.stop()
    session_id = (await world.head()).id
    ids = []
    for key, is_program in (("k1", False), ("k2", True)):
        submission = Submission(message("user", "wait"), key, by_program=is_program)
        done = await store.write(
            intake.submit_to_session, context, session_id, submission, moment=context.moment()
        )
        ids.append(done.received.arrival_id or "")

    def rewrite(tx: Tx, id: str) -> str:
        moment, new = context.moment(), message("user", "rm")
        return inbox.rewrite(
            tx, id, new, profile="main", moment=moment, by_program=True
        ).message.text

    with pytest.raises(NotAllowed, match="A person wrote that message"):
        await store.write(rewrite, ids[0])
    assert await store.write(rewrite, ids[1]) == "rm"


@pytest.mark.parametrize("is_program", [False, True])
async def test_the_runs_of_a_programs_schedule_have_no_owners_rights(
    store: Store, is_program: bool
) -> None:
    world = make_world(store)
    context = world.context()
    plan = ScheduleSpec(
        name="daily",
        timing=Timing("@daily", ZoneInfo("UTC")),
        prompt="go",
        deliver_to="local",
        by_program=is_program,
    )
    made = await store.write(schedules.add, plan, profile="main", moment=context.moment())
    source = scheduler.source_of(ClaimedRun(made, context.clock.now()))

    assert made.by_program is is_program
    expected = ToolDecision.ASK if is_program else ToolDecision.ALLOW
    assert verdict_for(world, source).decision is expected


# Which message answers which question.


async def test_a_bare_yes_in_the_home_chat_answers_no_question_of_another_session(
    store: Store,
) -> None:
    world, runner = make_world(store), AskingRunner()
    await set_home(world)
    engine = await world.started(runner=runner)
    await world.asks(engine, "go", chat="7", user_id="eva")
    for typed in ("yes", "1", "approve"):
        await world.says(engine, typed, chat="owner", number=typed)
    await world.until_outbox_is_idle()
    await engine.stop()

    # The owner's chat is a session of its own: what was typed there began a turn, which has asked something itself.
    assert {each.body.person for each in await open_questions(world)} >= {"loopback:eva"}
    assert runner.ran == []


async def test_a_reply_to_the_card_in_the_home_chat_answers_it(store: Store) -> None:
    world, runner = make_world(store), AskingRunner()
    await set_home(world)
    engine = await world.started(runner=runner)
    await world.asks(engine, "go", chat="7", user_id="eva")
    await world.until_outbox_is_idle()
    card = await card_id(world)
    reply = message("user", "yes", extra={REPLIES_TO: card})
    await engine.receive(world.source("owner", "r1"), reply)
    await world.settle(engine)
    await engine.stop()

    assert len(runner.ran) == 1


@pytest.mark.parametrize("replies_to", ["loopback-99", "another"])
async def test_a_yes_to_another_message_answers_nothing(store: Store, replies_to: str) -> None:
    world, runner = make_world(store), AskingRunner()
    engine = await world.started(runner=runner)
    await world.asks(engine, "go")
    reply = message("user", "yes", extra={REPLIES_TO: replies_to})
    await engine.receive(world.source(number="r1"), reply)
    await world.until_outbox_is_idle()
    await engine.stop()

    assert len(await open_questions(world)) == 1
    assert runner.ran == []


async def test_a_yes_that_came_before_the_question_was_sent_answers_nothing(store: Store) -> None:
    world, runner = make_world(store), AskingRunner()
    world.use(adapters={})  # nothing is sent from here
    engine = await world.started(runner=runner)
    await world.says(engine, "go", number="1")
    await world.eventually(lambda: has_asked(world))
    await world.says(engine, "yes", number="2")
    assert len(await open_questions(world)) == 1
    await engine.stop()

    assert runner.ran == []


async def has_asked(world: EngineWorld) -> bool:
    return bool(await open_questions(world))


async def card_id(world: EngineWorld) -> str:
    """The platform's id of the message that asks the only open question."""
    (question,) = await open_questions(world)

    def look(tx: Tx) -> str | None:
        ((delivery_id, _),) = question_rows.cards(tx, question.no)
        found = deliveries.get(tx, delivery_id, profile="main")
        return None if found is None else found.platform_message_id

    return await world.store.read(look) or ""


async def test_each_person_is_told_once_that_their_messages_wait(store: Store) -> None:
    world, runner = make_world(store), AskingRunner()
    engine = await world.started(runner=runner)
    thread = {"chat": "7", "chat_type": "thread", "thread_id": "t"}
    await world.asks(engine, "go", **thread)
    for number, person in enumerate(("u", "eva", "u", "eva")):
        at = {"number": f"n{number}", "user_id": person, **thread}
        await world.says(engine, "and then?", **at)
    await world.until_outbox_is_idle()
    await engine.stop()

    told = [each for each in world.adapter.texts("loopback:7:t") if "message waits" in each]
    assert len(told) == 2


async def test_an_owner_is_asked_in_the_home_chat_although_the_question_came_up_there(
    store: Store,
) -> None:
    world, runner = make_world(store), AskingRunner()
    await set_home(world, "7")
    engine = await world.started(runner=runner)
    texts = await world.asks(engine, "go", chat="7", chat_type="group", user_id="eva")
    assert len(texts) == 1
    assert "**send**" in texts[0]
    question = (await open_questions(world))[0]
    await answer(world, question)
    await world.settle(engine)
    await engine.stop()

    assert len(runner.ran) == 1


async def test_a_person_is_told_if_no_owner_can_be_asked_in_a_chat(store: Store) -> None:
    world = make_world(store)
    engine = await world.started(runner=AskingRunner())
    (told,) = await world.asks(engine, "go", chat="7", user_id="eva")
    await engine.stop()

    assert "no owner can be asked in a chat" in told


async def test_a_standing_approval_is_for_the_agent_whose_call_was_approved(store: Store) -> None:
    world = make_world(store, policy=(ASKER,))
    engine = await world.started(runner=AskingRunner())
    await world.asks(engine, "go", chat="7", user_id="eva")
    (question,) = await open_questions(world)
    always = Answer(decision=Decision.APPROVE, always=Always.SESSION)
    await answer(world, question, always)
    await world.settle(engine)
    await engine.stop()

    eva = world.source("7", user_id="eva")
    found = []
    for agent in (question.body.agent or "", "another"):
        (verdict,) = await store.read(
            policy.decide,
            [CALL],
            asking=Asking((eva,), agent),
            context=world.context(),
            session_no=question.session_no,
        )
        found.append(verdict.decision)
    assert found == [ToolDecision.ALLOW, ToolDecision.ASK]


async def test_a_server_ends_the_turn_of_a_program_that_does_not_come_back(store: Store) -> None:
    """It does not run its own agent in the place of the program."""
    world, runner = make_world(store), AskingRunner()
    engine = await world.started(runner=runner)
    context, source = world.context(), world.source()

    def park(tx: Tx) -> None:
        moment = context.moment()
        begun = turns.begin_for_source(
            tx,
            context.key(source),
            source,
            message("user", "go"),
            policy=ResetPolicy(),
            claim=turns.Claim("p", 30),
            moment=moment,
        )
        kept = turns.leave_to_program(tx, begun.lease, "{}")
        asking = Asking((source,), "")
        questions.park(tx, kept, [SEND], asking=asking, context=context, moment=moment)

    await store.write(park)
    (question,) = await open_questions(world)
    await answer(world, question)
    await world.until_outbox_is_idle()
    assert not (await world.turns())[0].is_over
    world.clock.tick(2 * context.settings.questions.expire_seconds)
    await world.eventually(lambda: has_ended(world))
    await engine.stop()

    assert runner.requests == []
    assert (await world.turns())[0].reason == turns.PROGRAM_GONE


async def has_ended(world: EngineWorld) -> bool:
    return (await world.turns())[0].is_over


async def test_a_turn_whose_agent_is_elsewhere_is_left_to_that_process_for_a_minute(
    store: Store,
) -> None:
    world = make_world(store)
    engine = await world.started(runner=AskingRunner())
    await world.asks(engine, "go")
    await engine.stop()
    (question,) = await open_questions(world)
    await answer(world, question)

    def has_no_agents(source: Source, name: str | None) -> Agent:
        raise NotFound(f"There is no agent {name}.")

    context = replace(world.context(), agent_for=has_no_agents)
    ended = []
    for _ in range(2):
        await store.write(
            loop.take_over, question.turn_id, only=None, context=context, moment=context.moment()
        )
        ended.append((await world.turns())[0].is_over)
        world.clock.tick(61)
    assert ended == [False, True]
