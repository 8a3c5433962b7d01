"""Suites that every runner passes."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from sessionary.engine.ports import Ask, Delta, Event, Runner, Step, TurnRequest
from sessionary.errors import SessionaryError
from sessionary.model.message import Role, ToolCall, ToolResult
from sessionary.model.question import (
    Answer,
    Answered,
    Decision,
    NewQuestion,
    Question,
    QuestionBody,
    QuestionKind,
    QuestionState,
    check_answer,
    check_new,
)
from sessionary.model.session import Kind, SessionFolder, SessionHead
from sessionary.model.source import Source
from sessionary.model.transcript import Chat, chats_of, unfinished_calls
from sessionary.model.usage import UsageTotal

# Far less than a runner that is not stopped would take; far more than a busy machine needs.
PROMPT_SECONDS = 20.0
SOURCE = Source("terminal", "here", user_id="ann", user_name="Ann")

_AT = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


async def no_blob(_: str) -> bytes:
    """For conversations without attachments."""
    raise AssertionError("this conversation has no attachments")


def turn_request(
    *message: str | Chat, system_prompt: str = "", turn_id: str = "turn-1", **more: Any
) -> TurnRequest:
    """Return the request for a turn that answers these texts of a person; other messages are used as they are."""
    context: Sequence[Chat] = [
        {"role": "user", "content": each} if isinstance(each, str) else each for each in message
    ]
    return TurnRequest(
        turn_id=turn_id,
        session=session_head(),
        source=SOURCE,
        system_prompt=system_prompt,
        context=context,
        blob=more.pop("blob", no_blob),
        **more,
    )


def session_head() -> SessionHead:
    """Return a session in which the first turn runs."""
    return SessionHead(
        no=1,
        id="00000000000000000000000001",
        profile="main",
        key="main/terminal/dm/chat=here",
        source=SOURCE,
        kind=Kind.CHAT,
        folder=SessionFolder.CHATS,
        title=None,
        title_by=None,
        preview="hello",
        model=None,
        project=None,
        pinned=False,
        archived=False,
        read_only=False,
        labels=(),
        began_at=_AT,
        last_active_at=_AT,
        ended_at=None,
        end_reason=None,
        trashed_at=None,
        last_seq=1,
        base_seq=0,
        read_through=0,
        last_reply_seq=0,
        message_count=1,
        tool_call_count=0,
        usage=UsageTotal(),
        running_turn="turn-1",
        parent_id=None,
        lineage=None,
    )


async def events_of(runner: Runner, request: TurnRequest) -> list[Event]:
    """Return all events of a turn."""
    return [event async for event in runner.run(request)]


def steps_of(events: Sequence[Event]) -> list[Step]:
    """Return the finished steps."""
    return [event for event in events if isinstance(event, Step)]


def streamed(events: Sequence[Event], *, thinking: bool = False) -> str:
    """Return the streamed text."""
    pieces = [event for event in events if isinstance(event, Delta)]
    return "".join(piece.text for piece in pieces if piece.thinking is thinking)


def asked_in(events: Sequence[Event]) -> tuple[NewQuestion, ...]:
    """Return what a turn asks people."""
    return tuple(
        question for each in events if isinstance(each, Ask) for question in each.questions
    )


def decided_question(asked: NewQuestion, answer: Answer | None = None) -> Question:
    """Return a question that somebody has answered so; without an answer, one that has expired."""
    question = Question(
        no=1,
        id="00000000000000000000000002",
        profile="main",
        session_no=1,
        session_id="00000000000000000000000001",
        turn_id="turn-1",
        body=QuestionBody(asked=asked),
        state=QuestionState.EXPIRED,
        asked_at=_AT,
        expires_at=_AT,
        code="ABCD",
        token="0",
    )
    if answer is None:
        return question
    answered = Answered(answer=check_answer(question, answer), at=_AT, by=SOURCE.person)
    return structs.replace(question, state=QuestionState.ANSWERED, answered=answered)


def continued(request: TurnRequest, events: Sequence[Event], *questions: Question) -> TurnRequest:
    """Return the request of a turn that goes on after these events, because its questions were decided."""
    steps = (*request.steps, *(step.message for step in steps_of(events)))
    return structs.replace(
        request,
        context=[
            *request.context,
            *(chat for step in steps_of(events) for chat in chats_of(step.message)),
        ],
        resumed=request.resumed + 1,
        steps=steps,
        unfinished=tuple(unfinished_calls(steps).values()),
        questions=(*request.questions, *questions),
    )


class RunnerSuite:
    """For every runner; a subclass has the fixture `runner`, which answers at once."""

    async def test_a_turn_has_a_step_and_ends(self, runner: Runner) -> None:
        assert steps_of(await events_of(runner, turn_request("hello")))

    async def test_the_last_step_is_the_agent_speaking(self, runner: Runner) -> None:
        last = (await events_of(runner, turn_request("hello")))[-1]

        assert isinstance(last, Step)
        assert last.message.role is Role.ASSISTANT
        assert last.message.text

    async def test_only_messages_of_the_agent_and_its_tools_are_accepted(
        self, runner: Runner
    ) -> None:
        for step in steps_of(await events_of(runner, turn_request("hello"))):
            assert step.message.role in (Role.ASSISTANT, Role.TOOL)
            assert step.message.person is None

    async def test_every_tool_call_has_its_result_before_the_next_assistant_message(
        self, runner: Runner
    ) -> None:
        open_calls: list[str] = []
        for step in steps_of(await events_of(runner, turn_request("please list the files"))):
            if step.message.role is Role.ASSISTANT:
                assert open_calls == []
            for part in step.message.parts:
                if isinstance(part, ToolCall):
                    open_calls.append(part.id)
                elif isinstance(part, ToolResult):
                    open_calls.remove(part.call_id)
        assert open_calls == []

    async def test_no_two_model_calls_have_the_same_id(self, runner: Runner) -> None:
        first = await events_of(runner, turn_request("hello", turn_id="a"))
        second = await events_of(runner, turn_request("hello", turn_id="b"))

        used = [step.usage for step in steps_of([*first, *second]) if step.usage is not None]
        ids = [usage.call_id for usage in used]
        assert all(ids)
        assert len(set(ids)) == len(ids)

    async def test_a_runner_takes_several_turns_at_once(self, runner: Runner) -> None:
        requests = [turn_request("hello", turn_id=f"turn-{no}") for no in range(3)]

        turns = await asyncio.gather(*(events_of(runner, request) for request in requests))

        assert all(steps_of(events) for events in turns)

    async def test_leaving_the_iteration_stops_the_runner(self, runner: Runner) -> None:
        events = runner.run(turn_request("hello"))
        await anext(events)

        began = time.monotonic()
        await _closed(events)

        assert time.monotonic() - began < PROMPT_SECONDS

    async def test_closing_twice_is_closing(self, runner: Runner) -> None:
        await runner.close()
        await runner.close()


class SlowRunnerSuite:
    """A subclass has the fixture `slow_runner`, which would take far longer than a test."""

    async def test_cancelling_stops_the_runner_promptly(self, slow_runner: Runner) -> None:
        task = asyncio.create_task(events_of(slow_runner, turn_request("hello")))
        done, _ = await asyncio.wait({task}, timeout=0.05)
        assert not done

        began = time.monotonic()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

        assert task.cancelled()
        assert time.monotonic() - began < PROMPT_SECONDS


class AskingRunnerSuite:
    """A subclass has the fixture `asking_runner`, which asks people something before it answers."""

    async def test_questions_are_the_last_event(self, asking_runner: Runner) -> None:
        events = await events_of(asking_runner, turn_request("hello"))

        assert [isinstance(event, Ask) for event in events].count(True) == 1
        assert isinstance(events[-1], Ask)

    async def test_each_question_can_be_answered_and_has_a_name_of_its_own(
        self, asking_runner: Runner
    ) -> None:
        asked = asked_in(await events_of(asking_runner, turn_request("hello")))

        assert asked
        assert all(check_new(each) is each for each in asked)
        assert len({each.name for each in asked}) == len(asked)

    async def test_the_same_questions_are_asked_if_the_process_died_before_they_were_recorded(
        self, asking_runner: Runner
    ) -> None:
        first = await events_of(asking_runner, turn_request("hello"))
        again = await events_of(asking_runner, turn_request("hello"))

        assert asked_in(first) == asked_in(again)

    async def test_with_the_answers_the_runner_goes_on(self, asking_runner: Runner) -> None:
        request = turn_request("hello")
        known: set[str] = set()
        events = await events_of(asking_runner, request)
        while asked := asked_in(events):
            assert known.isdisjoint(each.name for each in asked), "a question was asked twice"
            known |= {each.name for each in asked}
            decided = [decided_question(each, some_answer(each)) for each in asked]
            request = continued(request, events, *decided)
            events = await events_of(asking_runner, request)

        assert steps_of(events)[-1].message.role is Role.ASSISTANT

    async def test_without_an_answer_the_runner_does_not_ask_again(
        self, asking_runner: Runner
    ) -> None:
        request = turn_request("hello")
        events = await events_of(asking_runner, request)
        asked = asked_in(events)
        expired = continued(request, events, *map(decided_question, asked))

        try:
            after = await events_of(asking_runner, expired)
        except (SessionaryError, ExceptionGroup):
            return  # it cannot go on without the answer, and says so

        names = {each.name for each in asked}
        assert names.isdisjoint(each.name for each in asked_in(after))


def some_answer(asked: NewQuestion) -> Answer:
    """Return an answer to a question: the first option, some text, or some values."""
    match asked.kind:
        case QuestionKind.CHOICE:
            return Answer(decision=Decision.APPROVE, text=asked.options[0])
        case QuestionKind.TEXT:
            return Answer(decision=Decision.APPROVE, text="something")
        case QuestionKind.FORM:
            kinds = {"string": "something", "integer": 1, "number": 1.5, "boolean": True}
            properties = (asked.schema or {}).get("properties", {})
            values = {
                name: each["enum"][0] if each.get("enum") else kinds[each["type"]]
                for name, each in properties.items()
            }
            return Answer(decision=Decision.APPROVE, values=values)
        case QuestionKind.APPROVAL:
            return Answer(decision=Decision.APPROVE)


async def _closed(events: AsyncIterator[Event]) -> None:
    close = getattr(events, "aclose", None)
    if close is not None:
        await close()
