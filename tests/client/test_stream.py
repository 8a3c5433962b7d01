"""What an agent writes is seen while it writes: `ask_stream`, agents that are functions, and the deltas of a turn."""

import asyncio
import functools
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path

import httpx2
import pytest

from sessionary import (
    AgentFailed,
    AgentFunction,
    AsyncSession,
    AsyncSessionary,
    BadInput,
    Delta,
    Message,
    Ready,
    Reply,
    RetryLater,
    Role,
    Sessionary,
    Step,
    StoredMessage,
    Text,
    ToolCall,
    ToolResult,
    TurnRequest,
    TurnState,
    Usage,
)

TIMEOUT_SECONDS = 120.0


def asked(request: TurnRequest) -> str:
    """The last question."""
    return str(request.context[-1]["content"])


def returns(request: TurnRequest) -> str:
    return f"You said {asked(request)}"


async def returns_later(request: TurnRequest) -> Message:
    await asyncio.sleep(0)
    return Message(Role.ASSISTANT, (Text(returns(request)),))


def yields(request: TurnRequest) -> Iterator[str]:
    yield "You said "
    yield asked(request)


async def yields_steps(request: TurnRequest) -> AsyncIterator[Delta | Step | str]:
    yield Delta("hm", thinking=True)
    yield Step(Message(Role.ASSISTANT, (ToolCall("c1", "look", {}),)))
    yield Step(Message(Role.TOOL, (ToolResult("c1", "seen"),)))
    yield "You said "
    yield Delta(asked(request))
    text = returns(request)
    yield Step(Message(Role.ASSISTANT, (Text(text),)), usage=Usage(model="f", output_tokens=3))


class CallableAgent:
    async def __call__(self, request: TurnRequest) -> str:
        return await asyncio.to_thread(returns, request)


class MethodAgent:
    async def answer(self, request: TurnRequest) -> AsyncIterator[Delta | Step | str]:
        async for each in yields_steps(request):
            yield each


def fails(request: TurnRequest) -> Iterator[str]:
    yield "so "
    raise LookupError("no tea")


FUNCTIONS: list[AgentFunction] = [
    returns,
    returns_later,
    yields,
    yields_steps,
    CallableAgent(),
    functools.partial(returns_later),
    MethodAgent().answer,
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=range(len(FUNCTIONS)))
def test_an_agent_may_be_any_kind_of_function(home: Path, function: AgentFunction) -> None:
    with Sessionary() as s:
        reply = s.ask("hello", session="alice", agent=function, timeout=TIMEOUT_SECONDS)

        assert reply.text == "You said hello"
        assert next(iter(s.session("alice").messages())).text == "hello"


def test_a_function_is_an_agent_like_every_other(s: Sessionary) -> None:
    reply = s.ask("hello", session="alice", agent=yields_steps, timeout=TIMEOUT_SECONDS)

    assert [each.role for each in reply.messages][-3:] == ["assistant", "tool", "assistant"]
    assert (reply.usage.calls, reply.usage.output_tokens) == (1, 3)
    with pytest.raises(AgentFailed, match="no tea"):
        s.ask("more", session="alice", agent=fails, timeout=TIMEOUT_SECONDS)
    assert [each.text for each in s.session("alice").messages()][-2:] == ["more", "so "]
    with pytest.raises(BadInput, match="a function, not 7"):
        s.ask("hello", agent=7)  # type: ignore[arg-type]


def told(events: list[Delta | StoredMessage | Reply]) -> list[str]:
    """The events in short."""
    return [
        f"{'thinks' if each.thinking else 'writes'} {each.text}"
        if isinstance(each, Delta)
        else f"{type(each).__name__} {each.text}".rstrip()
        for each in events
    ]


STREAMED = [
    "thinks hm",
    "StoredMessage",
    "StoredMessage",
    "writes You said ",
    "writes hello",
    "StoredMessage You said hello",
    "Reply You said hello",
]


def test_a_stream_yields_text_then_messages_then_the_reply(s: Sessionary) -> None:
    chat = s.session("alice")

    events = list(s.ask_stream("hello", session=chat, agent=yields_steps, timeout=TIMEOUT_SECONDS))

    assert told(events) == STREAMED
    *_, last = events
    assert isinstance(last, Reply)
    assert last.usage.output_tokens == 3
    assert chat.id == last.session_id
    stored = [each for each in events if isinstance(each, StoredMessage)]
    assert [each.seq for each in stored] == [2, 3, 4]


async def test_the_asynchronous_stream_yields_the_same(url: str) -> None:
    async with AsyncSessionary(url) as s:
        events = [
            event
            async for event in s.ask_stream("hello", agent=yields_steps, timeout=TIMEOUT_SECONDS)
        ]

    assert told(events)[-2:] == STREAMED[-2:]
    assert len(events) == len(STREAMED)


def test_the_text_is_there_before_the_agent_has_ended(home: Path) -> None:
    may_end = threading.Event()

    def waits(request: TurnRequest) -> Iterator[str]:
        yield "first"
        assert may_end.wait(TIMEOUT_SECONDS)
        yield " second"

    with Sessionary() as s:
        events = s.ask_stream("hello", agent=waits, timeout=TIMEOUT_SECONDS)
        assert next(events) == Delta("first")
        may_end.set()
        assert told(list(events)) == [
            "writes  second",
            "StoredMessage first second",
            "Reply first second",
        ]


def test_closing_a_stream_stops_the_turn(s: Sessionary) -> None:
    async def endless(request: TurnRequest) -> AsyncIterator[str]:
        yield "for ever"
        await asyncio.Event().wait()

    chat = s.session("alice")
    with closing(s.ask_stream("hello", session=chat, agent=endless)) as events:
        assert next(events) == Delta("for ever")
        assert chat.running_turn() is not None

    assert chat.running_turn() is None
    assert [each.text for each in chat.messages()] == ["hello", "for ever"]


async def test_closing_the_asynchronous_stream_stops_the_turn(url: str) -> None:
    async def endless(request: TurnRequest) -> AsyncIterator[str]:
        yield "for ever"
        await asyncio.Event().wait()

    async with AsyncSessionary(url) as s:
        chat = s.session("alice")
        async with aclosing(s.ask_stream("hello", session=chat, agent=endless)) as events:
            assert await anext(events) == Delta("for ever")

        assert await chat.running_turn() is None
        assert [each.text async for each in chat.messages()] == ["hello", "for ever"]


def test_a_stream_that_fails_or_is_late_raises(home: Path) -> None:
    def waits(request: TurnRequest) -> str:
        never.wait(TIMEOUT_SECONDS)
        return "late"

    never = threading.Event()
    with Sessionary() as s:
        with pytest.raises(AgentFailed, match="no tea"):
            list(s.ask_stream("hello", session="alice", agent=fails))
        with pytest.raises(BadInput, match="There is no agent 'nobody'"):
            list(s.ask_stream("hello", agent="nobody"))
        try:
            with pytest.raises(RetryLater, match="the message is stored"):
                list(s.ask_stream("hello", session="bob", agent=waits, timeout=0.05))
        finally:
            never.set()
        assert [each.text for each in s.session("bob").messages()] == ["hello"]


@asynccontextmanager
async def serving(s: AsyncSessionary) -> AsyncIterator[str]:
    """Run the server of a client; give the address of its HTTP interface."""
    ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(s.serve(port=0, channels=False, on_ready=ready.set_result))
    try:
        is_ready = asyncio.ensure_future(asyncio.shield(ready))
        await asyncio.wait((task, is_ready), return_when=asyncio.FIRST_COMPLETED)
        yield f"{ready.result().address}/api/v1"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def watching(
    s: AsyncSessionary, chat: AsyncSession
) -> AsyncIterator[AsyncIterator[tuple[str, str]]]:
    """Follow the live events of a session over HTTP: their kinds and data."""

    async def events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, str]]:
        kind = ""
        async for line in lines:
            name, _, value = line.partition(": ")
            if name == "event":
                kind = value
            elif name == "data" and kind not in ("head", "entry"):
                yield kind, json.dumps(json.loads(value).get("data"))

    _, secret = await s.tokens.add(scope="read")
    headers = {"Authorization": f"Bearer {secret}"}
    async with serving(s) as api, httpx2.AsyncClient(timeout=TIMEOUT_SECONDS) as http:
        address = f"{api}/events?topics=session:{chat.id}"
        async with http.stream("GET", address, headers=headers) as response:
            found = events(response.aiter_lines())
            assert (await anext(found))[0] == "hello"
            yield found


async def until_ended(events: AsyncIterator[tuple[str, str]]) -> list[tuple[str, str]]:
    found = []
    async with asyncio.timeout(TIMEOUT_SECONDS):
        async for event in events:
            found.append(event)
            if event[0] in ("ended", "lost"):
                break
    return found


async def test_viewers_see_the_deltas_of_a_program_s_turn(url: str) -> None:
    async with AsyncSessionary(url) as s:
        chat = s.session("alice")
        await chat.append("user", "hello")
        async with watching(s, chat) as events:
            async with chat.turn() as turn:
                turn.delta("hm", thinking=True)
                turn.delta("one ")
                turn.delta("two")
                await turn.append("assistant", "one two")
            seen = await until_ended(events)

    assert seen == [
        ("began", "null"),
        ("thinking", '"hm"'),
        ("delta", '"one "'),
        ("delta", '"two"'),
        ("step", "null"),
        ("ended", '{"state": "done", "reason": null}'),
    ]


async def test_viewers_see_the_turn_of_a_thread_and_its_failure(url: str) -> None:
    async with AsyncSessionary(url) as s:
        chat = s.session("alice")
        await chat.append("user", "hello")

        def work() -> None:
            with Sessionary._over(s.app).session("alice").turn() as turn:
                turn.delta("one ")
                raise ValueError("no plums")

        async with watching(s, chat) as events:
            with pytest.raises(ValueError, match="no plums"):
                await asyncio.to_thread(work)
            seen = await until_ended(events)

    assert [kind for kind, _ in seen] == ["began", "delta", "ended"]
    assert json.loads(seen[-1][1]) == {"state": "failed", "reason": "ValueError: no plums"}


async def test_viewers_see_what_ask_streams(url: str) -> None:
    async with AsyncSessionary(url) as s:
        chat = s.session("alice")
        await chat.append("user", "hello")
        async with watching(s, chat) as events:
            reply = await s.ask("again", session=chat, agent=yields, timeout=TIMEOUT_SECONDS)
            seen = await until_ended(events)

    assert reply.text == "You said again"
    assert [kind for kind, _ in seen] == ["began", "delta", "delta", "ended"]


def test_without_a_server_a_delta_does_nothing(s: Sessionary) -> None:
    chat = s.session("alice")
    turn = chat.turn("hello")
    with pytest.raises(BadInput, match="has not begun"):
        turn.delta("too early")
    with turn:
        turn.delta("one ")
        running = chat.running_turn()
        assert running is not None
        assert (running.state, running.partial) == (TurnState.RUNNING, None)
        turn.append("assistant", "one two")

    assert [each.text for each in chat.messages()] == ["hello", "one two"]
