"""Exchanges are recorded several at a time, in their order, and one that cannot be keeps no other from it."""

import asyncio
import json
import random
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from sessionary.clock import RandomIds, SystemClock
from sessionary.proxy.copy import KEPT_BYTES, pack, unpack
from sessionary.proxy.recorder import Recorder
from sessionary.store.database import Store, Tx
from sessionary.store.tables import exchanges, sessions
from sessionary.store.tables.exchanges import StoredExchange
from tests.proxy.conftest import running, said

BEGAN = datetime(2026, 11, 19, tzinfo=UTC)
FACTS = {
    "interface": "chat",
    "upstream": "openai",
    "client": "c",
    "path": "/v1/chat/completions",
    "address": "https://api.openai.com",
    "status": 200,
    "is_stream": False,
    "is_whole": True,
}


def exchange(number: int, **facts: object) -> StoredExchange:
    """An exchange that is done; they were done in the order of their numbers."""
    asked = {"model": "gpt-5", "messages": [said(f"question {number}")]}
    message = {"role": "assistant", "content": f"answer {number}"}
    answer = {"model": "gpt-5", "choices": [{"message": message, "finish_reason": "stop"}]}
    return StoredExchange(
        id=f"exchange-{number}",
        profile="main",
        state=exchanges.DONE,
        holder="a proxy",
        began_at=BEGAN,
        done_at=BEGAN + timedelta(seconds=number),
        facts={**FACTS, **facts},
        request=pack(json.dumps(asked).encode()),
        response=pack(json.dumps(answer).encode()),
    )


async def put(store: Store, *found: StoredExchange) -> None:
    for each in found:
        await store.write(exchanges.put, each, expires_at=BEGAN)


async def record(store: Store) -> Recorder:
    """Record everything; nothing passes meanwhile."""

    async def at_once(_: float) -> None:
        pass

    recorder = Recorder(
        store,
        budgets={},
        profile="main",
        clock=SystemClock(),
        ids=RandomIds(),
        holder="the recorder",
        give_way=at_once,
    )
    await recorder.drain()
    return recorder


def previews(tx: Tx) -> list[str | None]:
    """What lists show of the sessions, in the order in which they were opened."""
    found = sessions.by_numbers(tx, range(1, 6))
    return [found[number].preview for number in range(1, 6)]


async def test_what_cannot_be_recorded_stays_and_the_others_are_recorded(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    await put(store, *(exchange(number) for number in (1, 2)))
    await put(store, exchange(3, client=None, interface="unheard of"))
    await put(store, *(exchange(number) for number in (4, 5, 6)))

    recorder = await record(store)

    assert (recorder.status.recorded, recorder.status.failed) == (5, 1)
    assert await store.read(exchanges.count) == {exchanges.FAILED: 1}
    assert await store.read(previews) == [f"question {number}" for number in (1, 2, 4, 5, 6)]
    assert "exchange-3" in caplog.text


async def test_a_start_of_the_proxy_tries_again_what_could_not_be_recorded(store: Store) -> None:
    await put(store, replace(exchange(1), state=exchanges.FAILED))

    async with running(store) as world:
        async with asyncio.timeout(30):
            while await store.read(exchanges.count):  # noqa: ASYNC110 - nothing tells when it is done
                await asyncio.sleep(0.005)

        [head] = world.heads()
        assert world.texts(head) == ["question 1", "answer 1"]


async def test_few_large_exchanges_are_read_at_a_time(store: Store) -> None:
    await put(store, *(exchange(number) for number in range(1, 7)))
    together = await store.read(exchanges.next_done)
    # Random bytes do not become less when they are compressed.
    body = pack(random.Random(1).randbytes(700_000))
    await put(store, *(replace(exchange(number), request=body) for number in (-2, -1)))

    alone = await store.read(exchanges.next_done)

    assert [each.id for each in together] == [f"exchange-{number}" for number in (1, 2, 3, 4)]
    assert [each.id for each in alone] == ["exchange--2"]


@pytest.mark.parametrize("body", [b"", b"{}", b"\0", b"x\x9c", b"{" * KEPT_BYTES, b"\0" * 200_000])
def test_what_was_packed_is_unpacked(body: bytes) -> None:
    assert unpack(pack(body)) == body
