"""A request that comes twice, a client that goes away, and a session that is busy."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import openai
import pytest

from sessionary.actions import turns
from sessionary.actions.sessions import read
from sessionary.model.turn import TurnState
from sessionary.store.database import Store
from sessionary.store.tables import sessions
from tests.support.model_server import Ask, ModelServer, Reply
from tests.support.openai_world import OpenAIWorld, openai_world, session_of

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
LONG = Reply(" ".join(f"word{n}" for n in range(40)))
SECONDS = 20.0


class Gate:
    """Holds the model in the middle of its answers until it is opened."""

    def __init__(self, model: ModelServer) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()
        model.at_moment = self._hold

    async def _hold(self, _: Ask, moment: str) -> None:
        if moment == "streaming":
            self.reached.set()
            await self.open.wait()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(SECONDS):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def states(server: OpenAIWorld, session_id: str) -> list[TurnState]:
    head = await server.store.read(read.get_head, session_id, profile="main")
    return [each.state for each in await server.store.read(turns.list_turns, head.no)]


async def test_a_request_with_the_same_key_gets_the_same_answer_and_one_turn(
    server: OpenAIWorld,
) -> None:
    client = await server.client()
    server.model.will(Reply("once"))
    keyed: Any = {"extra_headers": {"Idempotency-Key": "key-1"}}

    first = await client.chat.completions.create(model="assistant", messages=HELLO, **keyed)
    server.world.clock.tick(100)
    second = await client.chat.completions.create(model="assistant", messages=HELLO, **keyed)

    assert first.choices == second.choices
    assert first == second
    assert len(server.model.requests) == 1
    with pytest.raises(openai.ConflictError) as error:
        await client.chat.completions.create(
            model="assistant", messages=[{"role": "user", "content": "other"}], **keyed
        )
    assert "belongs to another request" in str(error.value)
    other = await server.client()
    server.model.will(Reply("of another token"))
    assert (
        await other.chat.completions.create(model="assistant", messages=HELLO, **keyed)
    ).choices[0].message.content == "of another token"


async def test_a_retry_joins_the_turn_that_is_running_and_sees_all_of_its_text(
    server: OpenAIWorld,
) -> None:
    client = await server.client()
    gate = Gate(server.model)
    server.model.will(LONG)
    keyed: Any = {"extra_headers": {"Idempotency-Key": "key-2"}}

    async def stream() -> str:
        chunks = await client.chat.completions.create(
            model="assistant", messages=HELLO, stream=True, **keyed
        )
        return "".join([each.choices[0].delta.content or "" async for each in chunks])

    first = asyncio.create_task(stream())
    await gate.reached.wait()
    second = asyncio.create_task(stream())
    await until(lambda: is_equal(server.listeners, 2))
    gate.open.set()

    assert await first == await second == LONG.text
    assert len(server.model.requests) == 1


async def is_equal(found: int, wanted: int) -> bool:
    return found == wanted


async def test_the_clients_own_retry_without_a_key_joins_the_first_turn(
    server: OpenAIWorld,
) -> None:
    client = await server.client()
    server.model.will(Reply("once"))
    first = await client.chat.completions.create(model="assistant", messages=HELLO)

    again = await client.chat.completions.create(
        model="assistant", messages=HELLO, extra_headers={"X-Stainless-Retry-Count": "1"}
    )
    server.model.will(Reply("twice"))
    another = await client.chat.completions.create(model="assistant", messages=HELLO)

    assert again.id == first.id
    assert another.choices[0].message.content == "twice"


async def test_a_retry_in_another_session_is_another_request(server: OpenAIWorld) -> None:
    client = await server.client()
    server.model.otherwise = Reply("hi")
    sessions_of = []

    for name, more in (
        ("ann", {}),
        ("bob", {"X-Stainless-Retry-Count": "1"}),
        ("ann", {"Idempotency-Key": "key"}),
    ):
        answer = await client.chat.completions.create(
            model="assistant", messages=HELLO, extra_headers={"X-Session-Id": name} | more
        )
        sessions_of.append(session_of(answer))

    assert sessions_of == ["ann", "bob", "ann"]
    with pytest.raises(openai.ConflictError) as error:
        await client.chat.completions.create(
            model="assistant",
            messages=HELLO,
            extra_headers={"X-Session-Id": "bob", "Idempotency-Key": "key"},
        )
    assert "belongs to another request" in str(error.value)


async def test_a_repeated_request_gets_its_answer_when_no_other_turn_could_begin(
    store: Store, model: ModelServer
) -> None:
    async with openai_world(store, model, engine={"most_turns": 1}) as server:
        client = await server.client()
        gate = Gate(model)
        model.will(LONG)
        keyed: Any = {"extra_headers": {"Idempotency-Key": "key"}}
        first = asyncio.create_task(_ask_and_read(client, stream=True, **keyed))
        await gate.reached.wait()

        second = asyncio.create_task(_ask_and_read(client, stream=True, **keyed))
        await until(lambda: is_equal(server.listeners, 2))
        gate.open.set()

        assert await first == await second == LONG.text
        assert len(model.requests) == 1


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_a_client_that_goes_away_stops_its_turn(
    server: OpenAIWorld, *, is_streamed: bool
) -> None:
    client = await server.client()
    gate = Gate(server.model)
    server.model.will(LONG)
    asking = asyncio.create_task(_ask_and_read(client, stream=is_streamed))
    await gate.reached.wait()

    asking.cancel()

    [id] = await _session_ids(server)
    await until(lambda: _ended(server, id))
    gate.open.set()
    assert await states(server, id) == [TurnState.INTERRUPTED]
    assert server.listeners == 0
    # The client has seen a part of it, and goes on.
    server.model.will(Reply("better"))
    again = await client.chat.completions.create(
        model="assistant", messages=[*HELLO, {"role": "user", "content": "shorter"}]
    )
    assert session_of(again) == id
    assert await server.texts(id) == ["user: hello", "user: shorter", "assistant: better"]


async def _ended(server: OpenAIWorld, id: str) -> bool:
    return TurnState.RUNNING not in await states(server, id)


async def _ask_and_read(client: openai.AsyncOpenAI, **how: Any) -> str:
    answer = await client.chat.completions.create(model="assistant", messages=HELLO, **how)
    if not how["stream"]:
        return str(answer.choices[0].message.content)
    return "".join([each.choices[0].delta.content or "" async for each in answer])


async def _session_ids(server: OpenAIWorld) -> list[str]:
    found = await server.store.read(sessions.by_numbers, (1,))
    return [each.id for each in found.values()]


async def test_a_client_with_a_key_that_goes_away_finds_the_whole_answer_later(
    server: OpenAIWorld,
) -> None:
    client = await server.client()
    gate = Gate(server.model)
    server.model.will(LONG)
    keyed: Any = {"extra_headers": {"Idempotency-Key": "key-3"}}
    asking = asyncio.create_task(_ask_and_read(client, stream=True, **keyed))
    await gate.reached.wait()
    asking.cancel()
    await until(lambda: is_equal(server.listeners, 0))
    gate.open.set()

    assert await _ask_and_read(client, stream=True, **keyed) == LONG.text
    assert len(server.model.requests) == 1


async def test_a_named_session_answers_one_request_after_the_other(server: OpenAIWorld) -> None:
    client = await server.client()
    gate = Gate(server.model)
    server.model.will(LONG, Reply("second"))
    named: Any = {"extra_headers": {"X-Session-Id": "one"}}
    first = asyncio.create_task(_ask_and_read(client, stream=False, **named))
    await gate.reached.wait()
    second = asyncio.create_task(
        client.chat.completions.create(
            model="assistant", messages=[{"role": "user", "content": "next"}], **named
        )
    )
    await asyncio.wait({second}, timeout=0.3)
    assert not second.done()
    gate.open.set()

    assert await first == LONG.text
    assert (await second).choices[0].message.content == "second"
    assert await server.texts("one") == [
        "user: hello",
        f"assistant: {LONG.text}",
        "user: next",
        "assistant: second",
    ]


async def test_a_server_that_stops_says_so_in_the_stream_and_the_turn_goes_on_later(
    store: Store, model: ModelServer
) -> None:
    gate = Gate(model)
    model.will(LONG, LONG)
    async with openai_world(store, model) as server:
        token = await server.token()
        keyed: Any = {"stream": True, "extra_headers": {"Idempotency-Key": "k"}}
        client = openai.AsyncOpenAI(base_url=server.url, api_key=token, max_retries=0)
        asking = asyncio.create_task(_ask_and_read(client, **keyed))
        await gate.reached.wait()
        server.stop.set()
        with pytest.raises(openai.APIError) as error:
            await asking
        assert error.value.code == "server_stopping"
        await client.close()
    gate.open.set()
    async with openai_world(store, model) as server:
        client = openai.AsyncOpenAI(base_url=server.url, api_key=token, max_retries=0)
        answer = await _ask_and_read(client, **keyed)
        await client.close()
        assert answer == LONG.text


async def test_a_client_that_goes_away_while_it_waits_for_its_place_is_forgotten(
    server: OpenAIWorld, caplog: pytest.LogCaptureFixture
) -> None:
    client = await server.client()
    gate = Gate(server.model)
    server.model.will(LONG)
    named: Any = {"extra_headers": {"X-Session-Id": "one"}}
    first = asyncio.create_task(_ask_and_read(client, stream=False, **named))
    await gate.reached.wait()
    second = asyncio.create_task(_ask_and_read(client, stream=True, **named))
    await asyncio.wait({second}, timeout=0.3)

    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    gate.open.set()

    assert await first == LONG.text
    await server.world.settle(server.engine)
    assert await server.texts("one") == ["user: hello", f"assistant: {LONG.text}"]
    assert "failed" not in caplog.text
