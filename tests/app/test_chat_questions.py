"""A chat in the terminal shows what its turn asks, takes the reply as the answer, and goes on."""

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sessionary import Sessionary
from sessionary.actions import questions as actions
from sessionary.app.chat import TerminalChat
from sessionary.app.engine import build_engine
from sessionary.engine import questions
from sessionary.engine.context import LiveEvent
from sessionary.engine.ports import Event, Step, TurnRequest
from sessionary.engine.questions import Answerer
from sessionary.errors import Conflict
from sessionary.model.message import message
from sessionary.model.question import Answer, Decision, Question, QuestionBody, QuestionState
from sessionary.model.source import Person, Source
from tests.support import asking_agent
from tests.support.asking_agent import MAY_GO_ON, QUESTIONS, SETTINGS

# Nothing waits for so long.
TIMEOUT_SECONDS = 60
OWNER = Answerer("web", Person("owner", name="The owner"), is_owner=True)
APPROVE = Answer(decision=Decision.APPROVE)
ELSEWHERE = Source(platform="webhook", chat_id="7", user_id="7", platform_message_id="1")
CHANNEL = """
[agents.patient]
kind = "python"
function = "tests.app.test_chat_questions:wait_for_tool"

[channels.webhook]
url = "http://127.0.0.1:9/never"
secret_env = "NO_SECRET"
[access.webhook]
everyone = true
"""


@pytest.fixture(params=["sqlite", "postgres"])
def client(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Sessionary]:
    asking_agent.install(tmp_path / "site", monkeypatch)
    monkeypatch.setenv("LOGNAME", "ada")
    (tmp_path / "sessionary.toml").write_text(f'agent = "send"\n{SETTINGS}{CHANNEL}')
    url = None if request.param == "sqlite" else request.getfixturevalue("migrated_url")
    with Sessionary(url, home=str(tmp_path)) as opened:
        yield opened


TOOL_IS_DONE = threading.Event()


def wait_for_tool(_: TurnRequest) -> Iterator[Event]:
    """An agent whose tool asks something while the turn runs."""
    yield Step(message("assistant", "Let me look."))
    TOOL_IS_DONE.wait(TIMEOUT_SECONDS)
    yield Step(message("assistant", "It is done."))


async def send(talk: TerminalChat, text: str) -> list[LiveEvent]:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return [live async for live in talk.send(text)]


async def come_back(talk: TerminalChat) -> list[LiveEvent]:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await talk.begin()
        return [live async for live in talk.continued()]


def kinds(events: list[LiveEvent]) -> list[str]:
    """What happened, each kind once in a row, without the streamed text."""
    found = [live.kind for live in events if live.kind != "delta"]
    return [kind for at, kind in enumerate(found) if at == 0 or found[at - 1] != kind]


def words(events: list[LiveEvent]) -> list[str]:
    return [str(live.data) for live in events if live.kind in ("text", "answer", "decided")]


def state(events: list[LiveEvent]) -> str:
    return str(events[-1].data["state"])


def asked(client: Sessionary) -> list[Question]:
    page = client.store.read(actions.list_questions, profile="main", limit=50).result()
    return list(reversed(page.items))


async def answer_elsewhere(client: Sessionary, question: Question, **given: Any) -> Question:
    context = build_engine(client.app).context
    return await client.store.write(
        questions.answer,
        question.id,
        Answer(**{"decision": Decision.APPROVE} | given),
        who=OWNER,
        context=context,
        moment=context.moment(),
    )


async def test_the_question_is_shown_and_the_reply_answers_it(client: Sessionary) -> None:
    async with TerminalChat(client.app) as talk:
        first = await send(talk, "go")
        shown = talk.questions
        second = await send(talk, "1")

    assert kinds(first) == ["text", "question", "ended"]
    assert (state(first), state(second)) == ("waiting", "done")
    assert shown == (first[-2].data,)
    assert kinds(second) == ["decided", "text", "ended"]
    assert words(second) == ["Approved by ada.", "Done: Approved by ada."]
    assert {live.turn_id for live in (*first, *second)} == {first[-1].turn_id}
    assert talk.questions == ()


async def test_the_answer_is_streamed_after_the_reply(client: Sessionary) -> None:
    MAY_GO_ON.clear()
    streamed = ""
    async with TerminalChat(client.app) as talk, asyncio.timeout(TIMEOUT_SECONDS):
        await talk.begin(chosen={"agent": "slow"})
        await send(talk, "go")
        async for live in talk.send("1"):
            if live.kind == "delta":
                streamed += live.data
                MAY_GO_ON.set()

    assert streamed == "Done: Approved by ada. "


@pytest.mark.parametrize(
    ("agent", "typed", "outcome"),
    [
        ("send", "deny: not today", "Denied by ada: not today."),
        ("choice", "blue", "Answered by ada: Blue."),
        ("choice", "2", "Answered by ada: Green."),
        ("text", "at nine", "Answered by ada: at nine."),
    ],
)
async def test_each_kind_of_question_is_answered_with_a_line(
    client: Sessionary, agent: str, typed: str, outcome: str
) -> None:
    async with TerminalChat(client.app) as talk:
        await talk.begin(chosen={"agent": agent})
        await send(talk, "go")
        events = await send(talk, typed)

    assert words(events) == [outcome, f"Done: {outcome}"]


async def test_of_two_questions_a_reply_answers_the_first_then_the_second(
    client: Sessionary,
) -> None:
    async with TerminalChat(client.app) as talk:
        await talk.begin(chosen={"agent": "two"})
        first = await send(talk, "go")
        second = await send(talk, "2")
        third = await send(talk, "1")

    tools = [
        [live.data.asked.tool for live in each if live.kind == "question"]
        for each in (first, second)
    ]
    assert tools == [["send", "pay"], ["pay"]]
    assert (state(second), state(third)) == ("waiting", "done")
    assert words(third)[-1] == "Done: Denied by ada. Approved by ada."


async def test_a_reply_may_name_the_second_question_by_its_code(client: Sessionary) -> None:
    async with TerminalChat(client.app) as talk:
        await talk.begin(chosen={"agent": "two"})
        await send(talk, "go")
        await send(talk, f"{talk.questions[1].code.lower()} 1")

    states = [each.state for each in asked(client)]
    assert states == [QuestionState.OPEN, QuestionState.ANSWERED]


async def test_another_message_waits_and_is_answered_after_the_question(client: Sessionary) -> None:
    async with TerminalChat(client.app) as talk:
        await send(talk, "go")
        held = await send(talk, "and something plain")
        events = await send(talk, "1")

    assert (kinds(held), state(held)) == (["held", "question", "ended"], "waiting")
    assert words(events) == ["Approved by ada.", "Done: Approved by ada.", "Nothing to ask."]
    assert len({live.turn_id for live in events if live.kind == "ended"}) == 2


async def test_the_question_is_still_there_for_whoever_comes_back(client: Sessionary) -> None:
    async with TerminalChat(client.app) as talk:
        await send(talk, "go")
    async with TerminalChat(client.app) as talk:
        back = await come_back(talk)
        events = await send(talk, "yes")

    assert (kinds(back), state(back)) == (["text", "question", "ended"], "waiting")
    assert words(events)[-1] == "Done: Approved by ada."


async def test_a_turn_that_was_answered_meanwhile_goes_on_for_whoever_comes_back(
    client: Sessionary,
) -> None:
    async with TerminalChat(client.app) as talk:
        await send(talk, "go")
        await send(talk, "something plain")
    await answer_elsewhere(client, asked(client)[0])
    async with TerminalChat(client.app) as talk:
        events = await come_back(talk)

    assert events[0].kind == "resumed"
    assert events[0].data == "its questions were answered"
    assert words(events) == ["I must ask first.", "Done: Approved by The owner.", "Nothing to ask."]


async def test_what_somebody_else_decides_is_shown_while_the_person_waits(
    client: Sessionary,
) -> None:
    async with TerminalChat(client.app) as talk, asyncio.timeout(TIMEOUT_SECONDS):
        await send(talk, "go")
        following = asyncio.ensure_future(_all(talk))
        await asyncio.sleep(0)
        await answer_elsewhere(client, asked(client)[0], decision=Decision.DENY, text="no")
        events = await following

    assert words(events) == ["Denied by The owner: no.", "Done: Denied by The owner: no."]
    assert state(events) == "done"


async def _all(talk: TerminalChat) -> list[LiveEvent]:
    return [live async for live in talk.decided()]


async def test_a_reply_that_comes_too_late_is_no_message_to_the_agent(client: Sessionary) -> None:
    async with TerminalChat(client.app) as talk:
        await send(talk, "go")
        await answer_elsewhere(client, asked(client)[0], decision=Decision.DENY)
        events = await send(talk, "1")

    assert words(events) == [
        "Denied by The owner. Nothing was changed.",
        "Done: Denied by The owner.",
    ]
    (session,) = client.sessions().items
    texts = [each.text for each in client.find(session.id).messages() if each.role == "user"]
    assert texts == ["go"]


async def test_stop_gives_the_turn_up_at_once(client: Sessionary) -> None:
    async with TerminalChat(client.app) as talk:
        await send(talk, "go")
        events = await send(talk, "/stop")
        assert talk.questions == ()

    (question,) = asked(client)
    assert words(events) == ["Stopping."]
    assert events[-1].data == {"state": "interrupted", "reason": "stopped by you"}
    assert question.state is QuestionState.WITHDRAWN


@pytest.mark.parametrize("to_other", [False, True])
async def test_nobody_leaves_a_session_that_waits_by_mistake(
    client: Sessionary, *, to_other: bool
) -> None:
    other = client.session("other")
    other.append("user", "hello")
    async with TerminalChat(client.app) as talk:
        await send(talk, "go")
        with pytest.raises(Conflict, match=rf"questions answer {talk.questions[0].code} approve"):
            await talk.begin(ref=other.id if to_other else None, new=not to_other)

    assert asked(client)[0].is_open


async def test_a_question_of_another_conversation_is_answered_by_its_code(
    client: Sessionary,
) -> None:
    engine = build_engine(client.app)
    await engine.start()
    await engine.receive(ELSEWHERE, message("user", "go"))
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not asked(client):  # noqa: ASYNC110 - the record is what is looked at
            await asyncio.sleep(0.01)
    await engine.stop()
    (question,) = asked(client)
    async with TerminalChat(client.app) as talk:
        await send(talk, "something plain")
        events = await send(talk, f"{question.code} 1")

    assert words(events) == ["Approved by ada. (DM with 7)"]


async def test_a_tool_that_waits_for_an_answer_is_answered_while_its_turn_runs(
    client: Sessionary,
) -> None:
    TOOL_IS_DONE.clear()
    async with TerminalChat(client.app) as talk:
        await talk.begin(chosen={"agent": "patient"})
        asking = asyncio.ensure_future(send(talk, "go"))
        question = await _ask_in_running_turn(client)
        first = await asking
        keeps = talk.keeps_questions
        answering = asyncio.ensure_future(send(talk, "yes"))
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while asked(client)[0].is_open:  # noqa: ASYNC110 - the record is what is looked at
                await asyncio.sleep(0.01)
        TOOL_IS_DONE.set()
        second = await answering

    assert (state(first), keeps) == ("waiting", False)
    assert [live.data.id for live in first if live.kind == "question"] == [question.id]
    # A step without a tool call is stored when the next one comes, or before it.
    said = [text for text in (*words(first), *words(second)) if text != "Let me look."]
    assert said == ["Approved by ada.", "It is done."]
    assert state(second) == "done"


async def _ask_in_running_turn(client: Sessionary) -> Question:
    """Let a tool of the turn that runs ask something."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not (running := [each for each in client.sessions().items if each.running]):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    head, moment = running[0], client.moment()
    assert head.running_turn is not None
    question = Question(
        no=0,
        id=moment.new_id(),
        profile="main",
        session_no=head.no,
        session_id=head.id,
        turn_id=head.running_turn,
        body=QuestionBody(asked=QUESTIONS["send"][0]),
        state=QuestionState.OPEN,
        asked_at=moment.now,
        expires_at=moment.now + timedelta(days=1),
        code="K7QM",
        token=moment.new_id(),
    )
    await client.store.write(actions.insert, question, due_at=question.expires_at)
    return question
