"""A server is killed in the middle of an answer to OpenAI's client; the request that comes again gets all of it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai import AsyncOpenAI

from tests.faults.server import Served
from tests.support.model_server import Ask, ModelServer, Reply
from tests.support.openai_world import session_of
from tests.support.postgres import Server

SETTINGS = """
[agents.assistant]
kind = "model"
model = "m"
provider = "openai"
base_url = "{url}"

[engine]
lease_seconds = 2
"""
LONG = Reply(" ".join(f"word{n}" for n in range(40)))
HELLO: list[Any] = [{"role": "user", "content": "hello"}]
KEYED: Any = {"extra_headers": {"Idempotency-Key": "the-key"}}
Start = Callable[[str], Served]


@pytest.fixture(params=("sqlite", "postgres"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'one' / 'sessionary.db'}"
    else:
        postgres: Server = request.getfixturevalue("postgres")
        made = postgres.create_database()
        yield made
        postgres.drop_database(made)


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as made:
        yield made


@pytest.fixture
def servers(url: str, model: ModelServer, tmp_path: Path) -> Iterator[Start]:
    made: list[Served] = []

    def start(name: str) -> Served:
        server = Served(tmp_path / name, url)
        made.append(server)
        settings = SETTINGS.format(url=model.openai_url)
        (tmp_path / name / "sessionary.toml").write_text(settings)
        server.start()
        return server

    yield start
    for server in made:
        server.close()


def client_of(server: Served, token: str) -> AsyncOpenAI:
    url = f"http://127.0.0.1:{server.port}/v1"
    return AsyncOpenAI(base_url=url, api_key=token, max_retries=0)


async def read(client: AsyncOpenAI, texts: list[str] | None = None) -> str:
    """Ask for a streamed answer, and return all of it."""
    found = [] if texts is None else texts
    stream = await client.chat.completions.create(
        model="assistant", messages=HELLO, stream=True, **KEYED
    )
    async for chunk in stream:
        found.extend(filter(None, [chunk.choices[0].delta.content]))
    return "".join(found)


@pytest.mark.timeout(300)
async def test_a_killed_server_answers_the_repeated_request_in_the_same_turn(
    servers: Start, model: ModelServer
) -> None:
    server = await asyncio.to_thread(servers, "one")
    reached = asyncio.Event()
    never = asyncio.Event()

    async def hold(_: Ask, moment: str) -> None:
        if moment == "streaming":
            reached.set()
            await never.wait()

    model.at_moment = hold
    model.will(LONG, LONG)
    model.otherwise = Reply("bye")
    async with client_of(server, server.token) as client:
        seen: list[str] = []
        asking = asyncio.create_task(read(client, seen))
        await reached.wait()
        while not seen:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        model.at_moment = None
        server.kill()
        with pytest.raises((openai.APIError, httpx2.TransportError)):
            await asking
        never.set()
        await asyncio.to_thread(server.start)

        text = await read(client)
        again = await client.chat.completions.create(
            model="assistant",
            messages=[
                *HELLO,
                {"role": "assistant", "content": text},
                {"role": "user", "content": "and now?"},
            ],
        )

    assert text == LONG.text
    assert text.startswith("".join(seen))
    heads = server._heads()
    assert [each["id"] for each in heads] == [session_of(again)]
    lines = [(line.role, line.text) for line in server._lines(session_of(again))]
    assert [line for line in lines if line[0] != "system"] == [
        ("user", "hello"),
        ("assistant", LONG.text),
        ("user", "and now?"),
        ("assistant", "bye"),
    ]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_another_server_streams_the_answer_of_the_one_that_was_killed(
    servers: Start, model: ModelServer
) -> None:
    one, two = await asyncio.gather(
        asyncio.to_thread(servers, "one"), asyncio.to_thread(servers, "two")
    )
    reached = asyncio.Event()
    never = asyncio.Event()

    async def hold(_: Ask, moment: str) -> None:
        if moment == "streaming":
            reached.set()
            await never.wait()

    model.at_moment = hold
    model.will(LONG, LONG)
    model.otherwise = Reply("a title")
    async with client_of(one, one.token) as first, client_of(two, one.token) as second:
        asking = asyncio.create_task(read(first))
        await reached.wait()
        seen: list[str] = []
        joining = asyncio.create_task(read(second, seen))
        while not seen:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        assert LONG.text.startswith("".join(seen))
        model.at_moment = None
        one.kill()
        with pytest.raises((openai.APIError, httpx2.TransportError)):
            await asking
        never.set()

        assert await joining == LONG.text
    assert len([each for each in model.requests if each.messages[-1]["content"] == "hello"]) == 2
