"""Suites that every runner passes."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

from sessionary.engine.ports import Delta, Event, Runner, Step, TurnRequest
from sessionary.model.message import Role, ToolCall, ToolResult
from sessionary.model.session import Kind, SessionFolder, SessionHead
from sessionary.model.source import Source
from sessionary.model.transcript import Chat
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


async def _closed(events: AsyncIterator[Event]) -> None:
    close = getattr(events, "aclose", None)
    if close is not None:
        await close()
