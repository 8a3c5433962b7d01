"""The session named in an answer is the one that contains the message, whatever resets meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sessionary.clock import RandomIds, SystemClock
from sessionary.store.open import open_store
from tests.web.conftest import Client, Served, served

CHATS = 8
MESSAGES = 8


@pytest.fixture(params=["sqlite", "postgres"])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    is_file = request.param == "sqlite"
    url = str(tmp_path / "sessionary.db") if is_file else request.getfixturevalue("migrated_url")
    store = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
    async with served(store) as made:
        yield made
    store.close()


def source(chat: int) -> dict[str, Any]:
    return {"platform": "api", "chat_id": str(chat), "user_id": "u"}


@contextmanager
def only_room_for(server: Served, turns: int) -> Iterator[None]:
    """Limit the number of turns that run at once; further messages wait."""
    engine = server.engine
    assert engine is not None
    nobody = engine.context.key(server.world.source("nobody"))
    with ExitStack() as places:
        for _ in range(engine.context.settings.most_turns - turns):
            assert places.enter_context(engine.turns.reserve_slot(nobody))
        yield
    engine.turns.wake()


async def texts_by_session(client: Client) -> dict[str, list[str]]:
    """The user's messages of every session."""
    heads = await client.get("/sessions", params={"limit": 200})
    assert heads["next"] is None
    found = {}
    for head in heads["items"]:
        window = await client.get(f"/sessions/{head['id']}/entries", params={"limit": 1000})
        found[head["id"]] = [each["text"] for each in window["items"] if each["role"] == "user"]
    return found


async def test_the_answer_names_the_session_of_the_message_while_chats_are_reset(
    server: Served, client: Client
) -> None:
    """Messages and resets race in every chat, and there is room for two turns only: many a message waits."""

    async def talk(chat: int) -> list[dict[str, Any]]:
        accepted: list[dict[str, Any]] = []
        for number in range(MESSAGES):
            texts = [f"{chat}.{number}.{each}" for each in range(3)]
            bodies = [{"source": source(chat), "text": text} for text in texts]
            posts = [client.post("/arrivals", body, status=202) for body in bodies]
            answers = await asyncio.gather(*posts)
            accepted += [each | {"text": text} for each, text in zip(answers, texts, strict=True)]
        return accepted

    async def reset(chat: int, talking: "asyncio.Task[list[dict[str, Any]]]") -> None:
        while not talking.done():
            body = {"source": source(chat), "text": "/new"}
            await client.post("/arrivals", body, status=202)

    with only_room_for(server, 2):
        talks = [asyncio.create_task(talk(chat)) for chat in range(CHATS)]
        resets = [reset(chat, talking) for chat, talking in enumerate(talks)]
        await asyncio.gather(*talks, *resets)
        accepted = [each for talked in talks for each in talked.result()]
    await server.settle()
    contained = await texts_by_session(client)
    wrong = [
        each for each in accepted if each["session_id"] not in (None, *_holders(contained, each))
    ]

    assert wrong == []
    for each in accepted:
        later = await client.get(f"/arrivals/{each['arrival_id']}")
        assert _holders(contained, each) == [later["session_id"]]


def _holders(contained: dict[str, list[str]], answer: dict[str, Any]) -> list[str]:
    return [id for id, texts in contained.items() if answer["text"] in texts]


async def test_a_message_that_waits_has_no_session_until_a_turn_takes_it(
    server: Served, client: Client
) -> None:
    """A reset while it waits decides where it goes; the answer promised nothing else."""
    first = await client.post("/arrivals", {"source": source(1), "text": "one"}, status=202)
    await server.settle()
    with only_room_for(server, 0):
        waiting = await client.post("/arrivals", {"source": source(1), "text": "two"}, status=202)
        named = await client.post(
            f"/sessions/{first['session_id']}/turns", {"text": "three"}, status=202
        )
        keys = [each["key"] for each in (await client.get("/bindings"))["items"]]
        await client.post("/bindings", {"key": next(key for key in keys if "chat=1" in key)})
    await server.settle()
    contained = await texts_by_session(client)

    assert waiting["session_id"] is None
    assert (named["session_id"], named["queued"]) == (None, True)
    for answer, text in ((waiting, "two"), (named, "three")):
        later = await client.get(f"/arrivals/{answer['arrival_id']}")
        assert later["session_id"] != first["session_id"]
        assert text in contained[later["session_id"]]
