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

from sessionary.store.database import Store
from sessionary.store.postgres.store import PostgresStore
from tests.proxy.conftest import ProxyWorld, chat, running, said
from tests.store.conftest import opened, short_waits
from tests.support.postgres import PostgresServer

HOLD_SECONDS = 0.3


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
