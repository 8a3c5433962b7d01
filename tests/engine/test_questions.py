"""Turns that ask people something: who is asked, who may answer, and what an answer does."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from sessionary.actions import access as homes
from sessionary.actions import questions as actions
from sessionary.actions import turns
from sessionary.config.engine import (
    AccessPolicy,
    Approvers,
    OnExpiry,
    PolicyRule,
    QuestionSettings,
    ToolDecision,
    WhileRunning,
)
from sessionary.engine import policy, questions
from sessionary.engine.policy import Asking
from sessionary.engine.ports import Ask, Event, PressResult, ProposedCall, Step, TurnRequest
from sessionary.engine.questions import Answerer
from sessionary.errors import BadInput, Conflict, NotAllowed
from sessionary.model.message import Message, Role, Text, message
from sessionary.model.prompt import HomeAddress
from sessionary.model.question import (
    Always,
    Answer,
    Decision,
    NewQuestion,
    Question,
    QuestionKind,
    QuestionState,
    card_for,
    outcome_text,
)
from sessionary.model.source import Person
from sessionary.model.turn import TurnState
from sessionary.store.database import Store, Tx
from sessionary.store.tables import upkeep
from tests.support.engine_world import QUICK, EngineWorld

OWNER = Answerer("web", Person("owner", name="The owner"), is_owner=True)
APPROVE, DENY = Answer(decision=Decision.APPROVE), Answer(decision=Decision.DENY)
SEND = NewQuestion(
    name="1", kind=QuestionKind.APPROVAL, text="", tool="send", arguments={"to": "Ann"}
)


class AskingRunner:
    """Calls a tool that must be approved, and says what became of it."""

    model = "big-1"

    def __init__(self, *asked: NewQuestion) -> None:
        self.asked = asked or (SEND,)
        self.requests: list[TurnRequest] = []
        self.ran: list[Any] = []

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        self.requests.append(request)
        if not request.questions:
            calls = [
                {"type": "tool_call", "id": f"c{each.name}", "name": "send", "arguments": {}}
                for each in self.asked
            ]
            yield Step(message("assistant", calls))
            yield Ask(self.asked)
            return
        content = ""
        for each in self.asked:
            question = request.question(each.name)
            assert question is not None
            content = outcome_text(question)
            if question.is_approved and await request.services.start_approved(each.name):
                self.ran.append(question.answered)
                content = "sent"
            result = {"type": "tool_result", "call_id": f"c{each.name}", "content": content}
            yield Step(message("tool", [result]))
        yield Step(message("assistant", f"Result: {content}"))

    async def close(self) -> None:
        """Nothing is held."""


def make_world(store: Store, **settings: Any) -> EngineWorld:
    """A world in which `u` is the owner, and everybody may write."""
    access = {"loopback": AccessPolicy(everyone=True, owners=frozenset({"u"}))}
    return EngineWorld(store, settings=replace(QUICK, access=access, **settings))


async def open_questions(world: EngineWorld) -> list[Question]:
    page = await world.store.read(actions.list_questions, profile="main", limit=50, only_open=True)
    return list(reversed(page.items))


async def all_questions(world: EngineWorld) -> list[Question]:
    page = await world.store.read(actions.list_questions, profile="main", limit=50)
    return list(reversed(page.items))


async def answer(
    world: EngineWorld, question: Question, given: Answer = APPROVE, *, who: Answerer = OWNER
) -> Question:
    context = world.context()
    return await world.store.write(
        questions.answer,
        question.id,
        given,
        who=who,
        context=context,
        moment=context.moment(),
    )


async def press(world: EngineWorld, question: Question, number: int, **fields: Any) -> str:
    context = world.context()
    result = await world.store.write(
        questions.press,
        card_for(question).button(number),
        source=world.source(**fields),
        context=context,
        moment=context.moment(),
    )
    assert result.is_changed == ("othing was changed" not in result.text)
    return result.text


async def set_home(world: EngineWorld, chat: str = "owner") -> None:
    context = world.context()
    home = HomeAddress("loopback", chat)
    await world.store.write(homes.set_home, home, profile="main", moment=context.moment())


async def test_a_turn_waits_for_its_answer_and_is_held_by_nobody(store: Store) -> None:
    world, runner = make_world(store), AskingRunner()
    engine = await world.started(runner=runner)
    (card,) = await world.asks(engine, "go")

    (turn,) = await world.turns()
    assert (turn.state, turn.holder, runner.ran) == (TurnState.WAITING, "", [])
    assert (await world.head()).waits_for_people
    assert (await store.read(upkeep.backlog)).running_turns == 0
    assert "**send**" in card
    assert "to: Ann" in card

    (question,) = await open_questions(world)
    await answer(world, question)
    await world.settle(engine)
    await engine.stop()

    (turn,) = await world.turns()
    assert (turn.state, turn.resumed, len(runner.ran)) == (TurnState.DONE, 1, 1)
    assert world.adapter.texts("loopback:1")[-1] == "Result: sent"
    assert await world.texts() == [
        "go",
        "",
        "Asked: may the tool send be called?",
        "Approved by The owner. (may the tool send be called?)",
        "",
        "Result: sent",
    ]


async def test_another_process_goes_on_with_the_answer(store: Store) -> None:
    world, runner = make_world(store), AskingRunner()
    first = await world.started(runner=runner)
    await world.asks(first, "go")
    await first.stop()
    (question,) = await open_questions(world)
    await answer(world, question)
    assert runner.ran == []

    second = await world.started(runner=runner)
    await world.settle(second)
    await second.stop()

    assert len(runner.ran) == 1
    assert world.adapter.texts("loopback:1")[-1] == "Result: sent"


@pytest.mark.parametrize(
    ("typed", "result"),
    [
        ("1", "sent"),
        ("yes", "sent"),
        ("Approve!", "sent"),
        ("2", "Denied by Ada."),
        ("no.", "Denied by Ada."),
        ("deny: not today", "Denied by Ada: not today."),
    ],
)
async def test_a_typed_reply_answers_the_only_open_question(
    store: Store, typed: str, result: str
) -> None:
    world, runner = make_world(store), AskingRunner()
    engine = await world.started(runner=runner)
    await world.asks(engine, "go")
    await world.asks(engine, typed)
    await engine.stop()

    assert world.adapter.texts("loopback:1")[-1] == f"Result: {result}"
    assert len(await world.turns()) == 1


@pytest.mark.parametrize(
    "typed", ["maybe", "yes, but why?", "no worries", "11", "0", "I approve of nothing", "3.5"]
)
async def test_anything_else_waits_and_its_sender_is_told_once(store: Store, typed: str) -> None:
    world, runner = make_world(store), AskingRunner()
    engine = await world.started(runner=runner)
    await world.asks(engine, "go")
    await world.says(engine, typed, number="x1")
    await world.says(engine, typed, number="x2")
    await world.until_outbox_is_idle()

    waiting = [text for text in world.adapter.texts("loopback:1") if "Your message waits" in text]
    assert (len(waiting), runner.ran, len(await open_questions(world))) == (1, [], 1)

    await answer(world, (await open_questions(world))[0])
    await world.until(lambda: len(runner.requests) == 3)
    await engine.stop()
    assert [chat["content"] for chat in runner.requests[2].context[-2:]] == [typed, typed]


async def test_a_quoted_or_forwarded_text_approves_nothing(store: Store) -> None:
    world, runner = make_world(store), AskingRunner()
    engine = await world.started(runner=runner)
    await world.asks(engine, "go")
    source = world.source(number="f1")
    await engine.receive(source, message("user", "yes", extra={"forwarded": True}))
    quote = Text("yes", extra={"quote": True})
    await engine.receive(world.source(number="f2"), Message(Role.USER, (quote,)))
    await world.until_outbox_is_idle()
    await engine.stop()

    assert len(await open_questions(world)) == 1
    assert runner.ran == []


async def test_the_owner_is_asked_in_the_home_channel_about_somebody_elses_turn(
    store: Store,
) -> None:
    world, runner = make_world(store), AskingRunner()
    await set_home(world)
    engine = await world.started(runner=runner)
    (told,) = await world.asks(engine, "go", chat="7", user_id="eva", user_name="Eva")
    (question,) = await open_questions(world)
    (card,) = world.adapter.texts("loopback:owner")

    assert told == (
        "An owner must approve the tool send first. You get the answer when they have decided."
    )
    assert card.startswith("DM with Eva asks:")
    assert question.body.person == "loopback:eva"

    await world.asks(engine, f"{question.code.lower()} 1", chat="elsewhere")
    await engine.stop()
    assert world.adapter.texts("loopback:7")[-1] == "Result: sent"
    assert runner.ran[0].who == "Ada"


async def test_a_stranger_cannot_answer(store: Store) -> None:
    world, runner = make_world(store), AskingRunner()
    engine = await world.started(runner=runner)
    await world.asks(engine, "go", chat="7", user_id="eva", user_name="Eva")
    (question,) = await open_questions(world)
    eva = {"chat": "7", "user_id": "eva", "user_name": "Eva"}

    said = await press(world, question, 1, **eva)
    await world.says(engine, "yes", number="y1", **eva)
    await world.says(engine, f"{question.code} 1", number="y2", **eva)
    with pytest.raises(NotAllowed):
        await answer(world, question, who=Answerer("loopback", Person("eva"), is_owner=False))
    await world.until_outbox_is_idle()
    await engine.stop()

    assert said == "Somebody else must answer this question; nothing was changed."
    assert (runner.ran, len(await open_questions(world))) == ([], 1)


async def test_a_rule_may_let_the_person_approve_who_asked(store: Store) -> None:
    rule = PolicyRule(decision=ToolDecision.ASK, tool="send", by=Approvers.ASKER)
    world, runner = make_world(store, policy=(rule,)), AskingRunner()
    engine = await world.started(runner=runner)
    eva = {"chat": "7", "user_id": "eva", "user_name": "Eva"}
    await world.asks(engine, "go", **eva)
    await world.asks(engine, "1", **eva)
    await engine.stop()

    assert world.adapter.texts("loopback:7")[-1] == "Result: sent"


async def test_what_a_person_allows_for_themselves_bypasses_no_owner(store: Store) -> None:
    """«Always» of somebody who is not an owner counts only where they may approve."""
    to_ann = PolicyRule(
        decision=ToolDecision.ASK, tool="send", arguments={"to": "Ann"}, by=Approvers.ASKER
    )
    world, runner = make_world(store, policy=(to_ann,)), AskingRunner()
    engine = await world.started(runner=runner)
    eva = {"chat": "7", "user_id": "eva", "user_name": "Eva"}
    await world.asks(engine, "go", **eva)
    (question,) = await open_questions(world)
    her = Answerer("loopback", Person("eva"), is_owner=False)
    for always, arguments in ((Always.SESSION, None), (None, {"to": "Bob"})):
        given = Answer(decision=Decision.APPROVE, always=always, arguments=arguments)
        with pytest.raises(NotAllowed, match="Only an owner"):
            await answer(world, question, given, who=her)
    always_me = Answer(decision=Decision.APPROVE, always=Always.PERSON)
    await answer(world, question, always_me, who=her)
    await world.settle(engine)
    await engine.stop()

    verdicts = await store.read(
        policy.decide,
        [ProposedCall("send", {"to": to}, is_safe=False) for to in ("Ann", "Bob")],
        asking=Asking((world.source(**eva),), question.body.agent or ""),
        context=world.context(),
        session_no=question.session_no,
    )
    assert [each.decision for each in verdicts] == [ToolDecision.ALLOW, ToolDecision.ASK]


async def test_a_button_works_once_and_a_replay_changes_nothing(store: Store) -> None:
    world, runner = make_world(store), AskingRunner()
    engine = await world.started(runner=runner)
    await world.asks(engine, "go")
    (question,) = await open_questions(world)

    first = await press(world, question, 2)
    again = [await press(world, question, number) for number in (1, 2, 1)]
    forged = await store.write(
        questions.press,
        "q.0000.1",
        source=world.source(),
        context=world.context(),
        moment=world.context().moment(),
    )
    await world.settle(engine)
    await engine.stop()

    assert first == "Denied by Ada."
    assert again == ["Denied by Ada. Nothing was changed."] * 3
    assert forged == PressResult("This button is out of date; nothing was changed.")
    assert runner.ran == []
    assert world.adapter.texts("loopback:1")[-1] == "Result: Denied by Ada."


async def test_the_arguments_can_be_changed(store: Store) -> None:
    world, runner = make_world(store), AskingRunner()
    engine = await world.started(runner=runner)
    await world.asks(engine, "go")
    (question,) = await open_questions(world)
    await answer(world, question, replace_arguments({"to": "Bob"}))
    await world.settle(engine)
    await engine.stop()

    assert runner.ran[0].answer.arguments == {"to": "Bob"}


def replace_arguments(arguments: dict[str, Any]) -> Answer:
    return Answer(decision=Decision.APPROVE, arguments=arguments)


async def test_nothing_written_to_a_session_ends_a_turn_that_was_answered(store: Store) -> None:
    """Until a process goes on with it, it has no holder, as a dead turn of an agent that cannot be continued."""
    world, runner = make_world(store), AskingRunner()
    engine = await world.started(runner=runner)
    await world.asks(engine, "go")
    await engine.stop()
    (question,) = await open_questions(world)
    await store.write(set_resumable, question.turn_id, 2)
    await answer(world, question)

    head, moment = await world.head(), world.context().moment()
    assert not await store.write(turns.interrupt_if_dead, head.no, moment=moment)
    assert (await world.turns())[0].is_woken


def set_resumable(tx: Tx, turn_id: str, bits: int) -> None:
    text = "UPDATE turns SET resumable = {} WHERE id = '{}'"
    tx.script(text.format(bits, turn_id))


@pytest.mark.parametrize(
    ("text", "may_be"),
    [
        ("what is the weather", False),
        ("Send it now", False),
        ("yes", False),
        ("1", False),
        ("K7QF 1", True),
    ],
)
def test_most_messages_are_seen_at_once_to_answer_nothing_elsewhere(
    text: str, may_be: bool
) -> None:
    assert questions.may_answer_elsewhere(message("user", text)) is may_be
    assert questions.may_answer_elsewhere(message("user", text, extra={"replies_to": "7"}))


async def test_all_questions_of_a_turn_must_be_answered_before_it_goes_on(store: Store) -> None:
    world = make_world(store)
    other = NewQuestion(name="2", kind=QuestionKind.APPROVAL, text="", tool="pay", arguments={})
    runner = AskingRunner(SEND, other)
    engine = await world.started(runner=runner)
    await world.asks(engine, "go")
    # Two are open: a number alone may mean either.
    await world.says(engine, "1", number="n1")
    await world.until_outbox_is_idle()
    first, second = await open_questions(world)

    await answer(world, first)
    await world.until_outbox_is_idle()
    assert (runner.ran, (await world.turns())[0].state) == ([], TurnState.WAITING)
    await answer(world, second, DENY)
    await world.until(lambda: len(runner.ran) == 1)
    await engine.stop()


async def test_of_two_answers_at_once_one_counts(store: Store) -> None:
    world, runner = make_world(store), AskingRunner()
    engine = await world.started(runner=runner)
    await world.asks(engine, "go")
    (question,) = await open_questions(world)
    context = world.context()
    writes = [
        store.write(
            questions.answer,
            question.id,
            given,
            who=OWNER,
            context=context,
            moment=context.moment(),
        )
        for given in (APPROVE, DENY) * 4
    ]
    outcomes = []
    for write in writes:
        try:
            outcomes.append((await write).answered)
        except Conflict:
            outcomes.append(None)
    await world.settle(engine)
    await engine.stop()

    (counted,) = [each for each in outcomes if each is not None]
    assert len(runner.ran) == (counted.answer.decision is Decision.APPROVE)
    assert len((await world.turns())[0:]) == 1


async def test_a_question_expires_and_counts_as_denied(store: Store) -> None:
    settings = QuestionSettings(expire_seconds=60, remind_seconds=0)
    world, runner = make_world(store, questions=settings), AskingRunner()
    engine = await world.started(runner=runner)
    await world.asks(engine, "go")
    (question,) = await open_questions(world)
    world.clock.tick(61)
    await world.until(lambda: len(runner.requests) == 2)
    await world.settle(engine)
    await engine.stop()

    assert runner.ran == []
    assert world.adapter.texts("loopback:1")[-1] == "Result: Nobody answered in time."
    with pytest.raises(Conflict, match="Nobody answered in time"):
        await answer(world, question)


async def test_a_late_answer_finds_the_question_expired_before_any_sweep(store: Store) -> None:
    settings = QuestionSettings(expire_seconds=60, remind_seconds=0)
    world = make_world(store, questions=settings, sweep_seconds=300)
    runner = AskingRunner()
    engine = await world.started(runner=runner)
    await world.asks(engine, "go")
    (question,) = await open_questions(world)
    world.clock.tick(60)
    decided = await answer(world, question)
    await world.settle(engine)
    await engine.stop()

    assert (decided.state, runner.ran) == (QuestionState.EXPIRED, [])


async def test_a_turn_may_end_when_its_question_expires(store: Store) -> None:
    settings = QuestionSettings(expire_seconds=60, remind_seconds=0, on_expiry=OnExpiry.END)
    world, runner = make_world(store, questions=settings), AskingRunner()
    engine = await world.started(runner=runner)
    await world.asks(engine, "go")
    world.clock.tick(61)
    await world.eventually(lambda: is_over(world))
    await world.settle(engine)
    await engine.stop()

    (turn,) = await world.turns()
    assert (turn.state, turn.reason) == (
        TurnState.INTERRUPTED,
        "nobody answered its question in time",
    )
    assert len(runner.requests) == 1
    assert "Interrupted: nobody answered" in world.adapter.texts("loopback:1")[-1]


async def is_over(world: EngineWorld) -> bool:
    return (await world.turns())[0].is_over


async def test_people_are_reminded_once(store: Store) -> None:
    settings = QuestionSettings(expire_seconds=600, remind_seconds=60)
    world, runner = make_world(store, questions=settings), AskingRunner()
    engine = await world.started(runner=runner)
    await world.asks(engine, "go")
    world.clock.tick(61)
    await world.until(lambda: len(world.adapter.texts("loopback:1")) == 2)
    world.clock.tick(61)
    await engine.sweeper.sweep()
    await world.until_outbox_is_idle()
    await engine.stop()

    assert world.adapter.texts("loopback:1")[1].startswith("This still waits for an answer:")
    assert len(world.adapter.texts("loopback:1")) == 2


async def test_stop_gives_up_a_turn_that_waits(store: Store) -> None:
    world, runner = make_world(store), AskingRunner()
    engine = await world.started(runner=runner)
    await world.asks(engine, "go")
    await world.asks(engine, "/stop")
    await engine.stop()

    (turn,) = await world.turns()
    (question,) = await all_questions(world)
    assert (turn.state, question.state) == (TurnState.INTERRUPTED, QuestionState.WITHDRAWN)
    with pytest.raises(Conflict, match="No answer is needed"):
        await answer(world, question)
    assert runner.ran == []


@pytest.mark.parametrize("while_running", list(WhileRunning))
async def test_a_new_message_does_not_stop_a_turn_that_waits(
    store: Store, while_running: WhileRunning
) -> None:
    world, runner = make_world(store, while_running=while_running), AskingRunner()
    engine = await world.started(runner=runner)
    await world.asks(engine, "go")
    await world.says(engine, "something else", number="n2")
    await world.until_outbox_is_idle()
    await engine.sweeper.sweep()
    (turn,) = await world.turns()
    await engine.stop()

    assert turn.state is TurnState.WAITING


@pytest.mark.parametrize("always", list(Always))
async def test_an_answer_can_become_a_rule(store: Store, always: Always) -> None:
    world, runner = make_world(store), AskingRunner()
    engine = await world.started(runner=runner)
    eva = {"chat": "7", "user_id": "eva", "user_name": "Eva"}
    await world.asks(engine, "go", **eva)
    (question,) = await open_questions(world)
    await answer(world, question, Answer(decision=Decision.APPROVE, always=always))
    await world.settle(engine)
    await engine.stop()

    page = await store.read(actions.list_approvals, profile="main", limit=10)
    (rule,) = page.items
    here = always is Always.SESSION
    assert (rule.tool, rule.given_by) == ("send", "The owner")
    assert (rule.session_id, rule.person) == (
        question.session_id if here else None,
        None if here else "loopback:eva",
    )
    await store.write(actions.revoke_approval, rule.id, profile="main")
    assert not (await store.read(actions.list_approvals, profile="main", limit=10)).items


async def test_a_question_that_nobody_could_answer_fails_the_turn(store: Store) -> None:
    world = make_world(store)
    runner = AskingRunner(NewQuestion(name="1", kind=QuestionKind.CHOICE, text="Which?"))
    engine = await world.started(runner=runner)
    await world.asks(engine, "go")
    await engine.stop()

    (turn,) = await world.turns()
    assert turn.state is TurnState.FAILED
    assert "its question cannot be asked" in (turn.reason or "")


async def test_an_answer_that_is_none_is_refused(store: Store) -> None:
    world, runner = make_world(store), AskingRunner()
    engine = await world.started(runner=runner)
    await world.asks(engine, "go")
    (question,) = await open_questions(world)
    with pytest.raises(BadInput):
        await answer(world, question, Answer(decision=Decision.APPROVE, values={"a": 1}))
    await engine.stop()
    assert len(await open_questions(world)) == 1
