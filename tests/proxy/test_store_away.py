"""When the store is slow, locked, full or away, traffic goes on, and the record says from when to when."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sessionary.actions import credentials
from sessionary.clock import Moment, RandomIds, SystemClock
from sessionary.errors import BadInput, StoreUnavailable
from sessionary.model.access import Scope
from sessionary.proxy.server import ServerOptions
from sessionary.store.database import Store
from sessionary.store.postgres.store import PostgresStore
from tests.proxy.conftest import ProxyWorld, chat, running, said
from tests.store.conftest import opened, short_waits
from tests.support.postgres import PostgresServer

HOLD_SECONDS = 0.3
CHAT = "/openai/v1/chat/completions"


_LOCKING = """
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Within the block another process holds the lock of writers. In this one it would share our locks."""
    command = [sys.executable, "-c", _LOCKING, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        yield
        process.stdin.close()


async def until_recording(world: ProxyWorld) -> None:
    """Wait until nothing waits to be durable."""
    async with asyncio.timeout(60):
        while world.proxy.service.status()["gap"] is not None:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


async def told_status(world: ProxyWorld) -> dict[str, object]:
    """What the proxy says of itself over HTTP."""
    answer = await world.send(world.request("/-/status", method="GET"))
    found: dict[str, object] = json.loads(answer.partition(b"\r\n\r\n")[2])
    return found


async def test_traffic_goes_on_while_the_file_is_locked_and_the_gap_is_in_the_record(
    file_store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []
    async with running(file_store, hold_seconds=HOLD_SECONDS, told=told) as world:
        world.upstream.answer = lambda request: chat(f"re {request.json['messages'][0]['content']}")
        await world.ask(said("before"))
        await world.settle()

        with locked(tmp_path / "s.db"):
            began = time.monotonic()
            for number in range(5):
                await world.ask(said(f"during {number}"))
            took = time.monotonic() - began
            status = await told_status(world)
        await until_recording(world)
        await world.ask(said("after"))
        await world.settle()

        # Only the first waits for the store: the others know that it does not answer.
        assert took < 10 * HOLD_SECONDS
        assert status["is_recording"] is False
        everything = [text for head in world.heads() for text in world.texts(head)]
        for text in ("before", *(f"during {number}" for number in range(5)), "after"):
            assert everything.count(text) == everything.count(f"re {text}") == 1
        [gap] = [head for head in world.heads() if head.source.chat_id == "gaps"]
        [note] = world.texts(gap)
        assert "0 exchanges were not in the record; 5 exchanges were recorded afterwards" in note
        assert "did not answer within 0.3 s" in note
    assert "cannot record at the moment, traffic goes on" in caplog.text
    assert told[0].startswith("Not recording since")
    assert told[1].startswith("Recording again.")


async def test_a_store_that_is_away_loses_only_what_does_not_fit_into_memory(
    file_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessionary.proxy.journal.MOST_WAITING", 3)
    async with running(file_store, hold_seconds=HOLD_SECONDS) as world:
        world.upstream.answer = lambda _: chat("hi")
        with locked(tmp_path / "s.db"):
            for number in range(8):
                await world.ask(said(f"number {number}"))
        await until_recording(world)
        await world.settle()

        status = world.proxy.service.status()
        [gap] = [head for head in world.heads() if head.source.chat_id == "gaps"]

        assert (status["passed"], status["late"], status["lost"]) == (8, 3, 5)
        assert (
            "5 exchanges were not in the record; 3 exchanges were recorded" in world.texts(gap)[0]
        )
        assert len(world.heads()) == 4


@pytest.mark.parametrize("error", [MemoryError("no room"), BadInput("larger than a store takes")])
async def test_what_cannot_be_stored_at_all_is_a_gap_in_the_record(
    file_store: Store, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    async with running(file_store) as world:
        world.upstream.answer = lambda _: chat("hi")
        with monkeypatch.context() as patch:
            patch.setattr("sessionary.store.tables.exchanges.put", fails)
            await world.ask(said("lost"))
        await world.ask(said("kept"))
        await world.settle()

        [gap] = [head for head in world.heads() if head.source.chat_id == "gaps"]
        [note] = world.texts(gap)
        assert "what passed could not be stored" in note
        assert "1 exchange was not in the record" in note
        assert world.proxy.service.status()["gap"] is None


async def test_a_gap_that_has_not_ended_when_the_proxy_is_stopped_is_in_the_record(
    file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("gone")

    async with running(file_store, hold_seconds=HOLD_SECONDS) as world:
        world.upstream.answer = lambda _: chat("hi")
        monkeypatch.setattr("sessionary.store.tables.exchanges.put", away)
        for number in range(2):
            await world.ask(said(f"number {number}"))

    [gap] = world.heads()
    assert "(gone). 2 exchanges were not in the record" in world.texts(gap)[0]


async def test_a_token_that_was_good_stays_good_while_the_database_is_away(
    file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise StoreUnavailable("gone")

    good = "sessionary_" + "a" * 64
    moment = Moment(SystemClock().now(), RandomIds())
    file_store.write(
        credentials.add_token, good, profile="main", scope=Scope.WRITE, moment=moment
    ).result()
    monkeypatch.setattr("sessionary.proxy.service._TOKEN_SECONDS", 0.0)
    async with running(file_store, server=ServerOptions(needs_token=True)) as world:
        world.upstream.answer = lambda _: chat("hi")
        await world.ask(said("before"), headers={"X-Sessionary-Token": good})
        monkeypatch.setattr(credentials, "find_token", away)
        await world.ask(said("meanwhile"), headers={"X-Sessionary-Token": good})
        status, body = await world.post(
            CHAT, {"messages": []}, headers={"X-Sessionary-Token": "sessionary_" + "b" * 64}
        )
        await world.settle()

        assert (status, b"cannot be checked at the moment" in body) == (503, True)
        assert len(world.heads()) == 2


async def test_a_body_that_is_cut_counts_only_with_what_is_kept_of_it(
    file_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessionary.proxy.journal.MOST_WAITING_BYTES", 1_000_000)
    async with running(file_store, hold_seconds=HOLD_SECONDS, copy_bytes=100_000) as world:
        world.upstream.answer = lambda _: chat("hi")
        with locked(tmp_path / "s.db"):
            await world.ask(said("many words " * 200_000))
            await world.ask(said("few"))
        await until_recording(world)
        await world.settle()

        status = world.proxy.service.status()
        assert (status["late"], status["lost"]) == (2, 0)


@pytest.mark.timeout(120)
async def test_traffic_goes_on_while_the_database_server_is_down(
    postgres_to_break: PostgresServer,
) -> None:
    store = opened(postgres_to_break.create_database())
    assert isinstance(store, PostgresStore)
    with short_waits(store, 0.5):
        async with running(store, hold_seconds=HOLD_SECONDS) as world:
            world.upstream.answer = lambda _: chat("hi")
            await world.ask(said("before"))
            await world.settle()
            await asyncio.to_thread(postgres_to_break.kill)
            for number in range(4):
                await world.ask(said(f"during {number}"))
            assert (await told_status(world))["is_recording"] is False
            await asyncio.to_thread(postgres_to_break.restart)
            await until_recording(world)
            await world.settle()

            texts = [text for head in world.heads() for text in world.texts(head)]
            assert [texts.count(f"during {number}") for number in range(4)] == [1] * 4
            assert sum(head.source.chat_id == "gaps" for head in world.heads()) == 1
    store.close()
