"""A response outlives the process that writes it: killed, started again, polled, and continued."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.faults.server import Served
from tests.support.model_server import Ask, ModelServer, Reply

CONFIGURATION = """
[agents.helper]
kind = "model"
model = "m"
base_url = "{url}"

[engine]
lease_seconds = 2
"""


@pytest.fixture(params=["sqlite", "postgres"])
async def server(
    request: pytest.FixtureRequest, tmp_path: Path, model: ModelServer
) -> AsyncIterator[Served]:
    url = f"sqlite:///{tmp_path}/sessionary.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
    made = await asyncio.to_thread(Served, tmp_path / "home", url)
    settings = CONFIGURATION.format(url=model.openai_url)
    (tmp_path / "home" / "sessionary.toml").write_text(settings)
    await asyncio.to_thread(made.start)
    yield made
    await asyncio.to_thread(made.close)


async def finished(client: AsyncOpenAI, id: str) -> Any:
    """The response, once nothing more becomes of it."""
    async with asyncio.timeout(60):
        while True:
            found = await client.responses.retrieve(id)
            if found.status not in ("queued", "in_progress"):
                return found
            await asyncio.sleep(0.05)


async def test_a_response_whose_process_is_killed_is_finished_by_the_next(
    server: Served, model: ModelServer
) -> None:
    base_url = f"http://127.0.0.1:{server.port}/v1"
    streaming, gate = asyncio.Event(), asyncio.Event()

    async def hold(_: Any, moment: str) -> None:
        if moment == "streaming":
            streaming.set()
            await gate.wait()

    model.at_moment = hold
    model.will(Reply("a beginning that nobody will see the end of"))
    async with AsyncOpenAI(base_url=base_url, api_key=server.token, max_retries=0) as client:
        made = await client.responses.create(model="helper", input="write", background=True)
        followed = asyncio.create_task(_text_of(client, made.id))
        await streaming.wait()

        await asyncio.to_thread(server.kill)
        model.at_moment = None
        gate.set()
        await asyncio.wait({followed})
        assert followed.exception() is not None
        model.otherwise = answer
        await asyncio.to_thread(server.start)
        done = await finished(client, made.id)

        assert done.id == made.id
        assert done.status == "completed"
        assert done.output_text.endswith("the whole answer")
        again = [each async for each in await client.responses.retrieve(made.id, stream=True)]
        assert again[-1].response == done  # type: ignore[union-attr]
        items = [each async for each in client.conversations.items.list(done.conversation.id)]
        assert [each.role for each in items if each.type == "message"].count("user") == 1
        assert {each.id for each in done.output} <= {each.id for each in items}
        next_one = await client.responses.create(
            model="helper", input="go on", previous_response_id=made.id
        )
        assert next_one.output_text == "more"
        assert next_one.conversation == done.conversation


def answer(asked: Ask) -> Reply:
    """What the model answers; it is asked for a title, too."""
    last = str(asked.messages[-1]["content"])
    return Reply({"write": "the whole answer", "go on": "more"}.get(last, "a title"))


async def _text_of(client: AsyncOpenAI, id: str) -> str:
    stream = await client.responses.retrieve(id, stream=True)
    return "".join(
        [each.delta async for each in stream if each.type == "response.output_text.delta"]
    )
