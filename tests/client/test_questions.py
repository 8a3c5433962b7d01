"""Questions in Python: what a program is told when a turn waits for people, and how it answers."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sessionary import (
    AsyncSessionary,
    BadInput,
    Conflict,
    Delta,
    NotAllowed,
    NotFound,
    Person,
    Question,
    Reply,
    Sessionary,
    StoredMessage,
    TurnRequest,
)
from sessionary.app.engine import Agents, build_engine
from sessionary.config.engine import read_engine
from sessionary.testing.fakes import FakeClock

TIMEOUT_SECONDS = 120


class Mailer:
    """An agent that sends mail if it may, and counts how often it did."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    async def __call__(self, turn: TurnRequest) -> str:
        try:
            self.sent.append(await turn.approve("send", {"to": "Ann"}))
        except NotAllowed as refusal:
            return f"Not sent: {refusal}"
        return f"Sent to {self.sent[-1]['to']}."


async def painter(turn: TurnRequest) -> str:
    """An agent that asks for a colour and then for a number of coats."""
    colour = await turn.ask("Which colour?", options=["red", "blue"])
    form = await turn.ask(
        "How many coats?",
        schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    )
    return f"{form['n']} coats of {colour}"


def ask(s: Sessionary, agent: Any, text: str = "go", **how: Any) -> Reply:
    return s.ask(text, agent=agent, timeout=TIMEOUT_SECONDS, **how)


def test_a_turn_that_waits_is_answered_and_goes_on_with_the_same_key(s: Sessionary) -> None:
    mailer = Mailer()

    reply = ask(s, mailer, idempotency_key="m1")

    (question,) = reply.questions
    assert (reply.state, reply.text, mailer.sent) == ("waiting", "", [])
    assert (question.asked.tool, question.asked.arguments) == ("send", {"to": "Ann"})
    assert ask(s, mailer, idempotency_key="m1").state == "waiting"

    decided = s.questions.answer(question.id, approve=True, by=Person("7", name="Eva"))
    done = ask(s, mailer, idempotency_key="m1")

    assert decided.answered is not None
    assert (decided.answered.who, decided.answered.platform) == ("Eva", "api")
    assert (done.state, done.text, done.questions) == ("done", "Sent to Ann.", ())
    assert (done.turn_id, done.session_id) == (reply.turn_id, reply.session_id)
    assert mailer.sent == [{"to": "Ann"}]


def test_a_text_in_the_session_answers_the_question_and_gets_the_rest(s: Sessionary) -> None:
    first = ask(s, painter, session="alice")
    second = ask(s, painter, "blue", session="alice")
    events = list(s.ask_stream("3", agent=painter, session="alice", timeout=TIMEOUT_SECONDS))

    assert [each.asked.text for each in first.questions] == ["Which colour?"]
    assert [each.asked.text for each in second.questions] == ["How many coats?"]
    assert (second.state, second.turn_id) == ("waiting", first.turn_id)
    messages = [each for each in events if isinstance(each, StoredMessage)]
    assert [each.text for each in messages] == ["3 coats of blue"]
    last = events[-1]
    assert isinstance(last, Reply)
    assert (last.state, last.text, last.turn_id) == ("done", "3 coats of blue", first.turn_id)


def test_a_message_behind_a_waiting_turn_says_what_it_waits_for(s: Sessionary) -> None:
    first = ask(s, painter, session="alice")

    behind = ask(s, painter, "purple?", session="alice", idempotency_key="p1")

    assert (behind.state, behind.turn_id, behind.text) == ("waiting", None, "")
    assert behind.questions == first.questions
    assert [each.message.text for each in s.session("alice").waiting()] == ["purple?"]
    assert s.session("alice").stop() is True
    assert ask(s, painter, "purple?", session="alice", idempotency_key="p1").turn_id is not None


def test_a_stream_ends_with_the_reply_that_waits(s: Sessionary) -> None:
    async def talker(turn: TurnRequest) -> Any:
        yield Delta("Let me ask.")
        yield await turn.ask("What?")

    events = list(s.ask_stream("go", agent=talker, timeout=TIMEOUT_SECONDS))

    assert isinstance(events[0], Delta)
    last = events[-1]
    assert isinstance(last, Reply)
    assert (last.state, [each.asked.text for each in last.questions]) == ("waiting", ["What?"])


def test_questions_are_listed_and_found(s: Sessionary) -> None:
    chats = [ask(s, Mailer(), session=name) for name in ("alice", "bob", "carl")]
    newest, middle, oldest = [each.questions[0] for each in reversed(chats)]
    s.questions.answer(middle.id, approve=False)

    assert [each.id for each in s.questions.list(limit=1)] == [newest.id, oldest.id]
    everything = [each.id for each in s.questions.list(state="all")]
    assert everything == [newest.id, middle.id, oldest.id]
    bob, carl = s.session("bob"), chats[2].session_id
    assert [each.id for each in s.questions.list(session=bob)] == []
    assert [each.id for each in s.questions.list(session=bob, state="all")] == [middle.id]
    assert s.questions.list(session=carl).items == (newest,)
    assert s.questions.list(session=s.session("nobody")).items == ()
    for ref in (oldest.id, oldest.code, oldest.code.lower()):
        assert s.questions.get(ref) == oldest
    with pytest.raises(NotFound, match="There is no question nothing"):
        s.questions.get("nothing")
    with pytest.raises(NotFound):
        s.questions.list(session="nothing")
    with pytest.raises(BadInput, match="use open or all"):
        s.questions.list(state="closed")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"approve": False, "reason": "not today"}, "Not sent: Denied by {user}: not today."),
        ({"approve": False}, "Not sent: Denied by {user}."),
        ({"approve": True, "arguments": {"to": "Bob"}}, "Sent to Bob."),
        ({"approve": True, "always": "session"}, "Sent to Ann."),
    ],
)
def test_an_approval_can_be_answered_in_each_way(
    s: Sessionary, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], text: str
) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    question = ask(s, Mailer(), idempotency_key="m1").questions[0]

    s.questions.answer(question.id, **answer)

    assert ask(s, Mailer(), idempotency_key="m1").text == text.format(user="ada")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({}, "Say whether the tool may be called"),
        ({"text": "yes"}, "Say whether the tool may be called"),
        ({"approve": True, "reason": "fine"}, "A `reason` is for a denial"),
        ({"reason": "fine"}, "A `reason` is for a denial"),
        ({"approve": False, "reason": "a", "text": "b"}, "A `reason` is for a denial"),
        ({"approve": True, "always": "ever"}, "in a session or for a person, not 'ever'"),
        ({"approve": True, "values": {"n": 1}}, "may change its `arguments`"),
        ({"approve": True, "arguments": {"to": {1, 2}.__class__}}, "are JSON values"),
        ({"approve": False, "always": "session"}, "A denial has a reason"),
    ],
)
def test_what_is_no_answer_is_refused(s: Sessionary, answer: dict[str, Any], says: str) -> None:
    question = ask(s, Mailer()).questions[0]

    with pytest.raises(BadInput, match=says):
        s.questions.answer(question.id, **answer)

    assert s.questions.get(question.id).is_open


def test_a_question_is_answered_once(s: Sessionary) -> None:
    question = ask(s, Mailer()).questions[0]
    s.questions.answer(question.id, approve=True)

    with pytest.raises(Conflict, match=r"Approved by .* Nothing was changed\."):
        s.questions.answer(question.id, approve=False)
    with pytest.raises(NotFound):
        s.questions.answer("nothing", approve=True)


def test_a_late_answer_is_refused_and_the_question_has_expired(home: Path, url: str) -> None:
    (home / "sessionary.toml").write_text("[questions]\nexpire_seconds = 60\n")
    with Sessionary(url, home=home) as s:
        s.app.clock = clock = FakeClock()
        question = ask(s, Mailer(), idempotency_key="m1").questions[0]
        clock.tick(60)

        with pytest.raises(Conflict, match="Nobody answered in time"):
            s.questions.answer(question.id, approve=True)

        assert s.questions.get(question.id).state == "expired"
        reply = ask(s, Mailer(), idempotency_key="m1")
        assert reply.text == "Not sent: Nobody answered in time."


def test_rules_are_listed_and_revoked(s: Sessionary) -> None:
    mailer = Mailer()
    first = ask(s, mailer, session="alice", idempotency_key="m1")
    s.questions.answer(first.questions[0].id, approve=True, always="session")

    assert ask(s, mailer, session="alice", idempotency_key="m1").state == "done"
    assert ask(s, mailer, session="alice").state == "done"
    (rule,) = s.policy.approvals()
    assert (rule.tool, rule.session_id, rule.person) == ("send", first.session_id, None)
    s.policy.revoke(rule.id)
    with pytest.raises(NotFound, match="no standing approval"):
        s.policy.revoke(rule.id)
    assert list(s.policy.approvals()) == []
    assert ask(s, mailer, session="alice").state == "waiting"


def test_a_turn_that_waits_can_be_stopped(s: Sessionary) -> None:
    question = ask(s, Mailer(), session="alice").questions[0]
    chat = s.session("alice")
    waiting = chat.running_turn()

    assert waiting is not None
    assert (waiting.state, chat.head().waits_for_people) == ("waiting", True)
    with pytest.raises(Conflict), chat.turn("hello", wait=0.01):
        pass
    assert chat.stop() is True

    assert chat.running_turn() is None
    assert s.questions.get(question.id).state == "withdrawn"
    assert ask(s, Mailer(), session="alice").state == "waiting"


async def test_the_turn_goes_on_in_the_process_of_a_server(url: str) -> None:
    mailer = Mailer()
    async with AsyncSessionary(url) as s:
        arrival = await s.arrivals.send("alice", "go")
        async with AsyncSessionary(url) as server:
            agents = Agents(read_engine(server.app.config), default=_agent_of(mailer))
            engine = build_engine(server.app, agents=agents)
            await engine.start()
            waiting = await s.arrivals.reply(arrival.id, timeout=TIMEOUT_SECONDS)
            (question,) = [each async for each in s.questions.list()]
            found: Question = await s.questions.get(question.id)
            await s.questions.answer(found.id, approve=True)
            done = await s.arrivals.reply(arrival.id, timeout=TIMEOUT_SECONDS)
            await engine.stop()

        assert (waiting.state, waiting.questions) == ("waiting", (question,))
        assert (done.state, done.text, mailer.sent) == ("done", "Sent to Ann.", [{"to": "Ann"}])
        assert [each async for each in s.policy.approvals()] == []


def _agent_of(function: Any) -> Any:
    from sessionary.agents.python import PythonRunner
    from sessionary.agents.registry import agent_of

    return agent_of(PythonRunner(function, name="mailer"), name="mailer")


async def test_of_two_programs_that_answer_at_once_one_counts(url: str) -> None:
    async with AsyncSessionary(url) as s, AsyncSessionary(url) as other:
        reply = await s.ask("go", agent=Mailer(), timeout=TIMEOUT_SECONDS)
        id = reply.questions[0].id

        results = await asyncio.gather(
            *(client.questions.answer(id, approve=True) for client in (s, other)),
            return_exceptions=True,
        )

    assert sorted(type(each).__name__ for each in results) == ["Conflict", "Question"]
