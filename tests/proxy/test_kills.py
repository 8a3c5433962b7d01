"""Killed at any instant, a proxy loses no exchange that a client saw complete, and records none twice."""

import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sessionary.actions import verify
from sessionary.clock import RandomIds, SystemClock
from sessionary.model.message import Message
from sessionary.processes import process_name
from sessionary.proxy.recorder import Recorder
from sessionary.store.database import Store, Tx
from sessionary.store.open import open_store
from sessionary.store.tables import entries, exchanges, sessions
from tests.proxy.conftest import chat, chat_events, said
from tests.support.fork_server import ForkedProcess, ForkServer
from tests.support.raw_upstream import RawRequest, RawUpstream, Script, streamed

KILLS = 100
AT_ONCE = 6
LONGEST_LIFE = 0.25


@dataclass
class Seen:
    """What the clients saw of all exchanges."""

    complete: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.timeout(600)
async def test_100_kills_lose_and_double_nothing(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = str(tmp_path / "s.db") if kind == "sqlite" else request.getfixturevalue("migrated_url")
    open_store(url, create=True, clock=SystemClock(), ids=RandomIds()).close()
    rng, seen = random.Random(20261119), Seen()
    async with RawUpstream() as upstream:
        upstream.answer = answer
        with ForkServer(tmp_path, module="tests.proxy.proxy_child") as forks:
            for number in range(KILLS):
                child = forks.fork(url, upstream=upstream.url)
                port = await port_of(child)
                async with Clients(port, number, seen) as asked:
                    # From before the first answer to after many: most instants of an exchange are hit.
                    await until(asked, rng.randrange(3 * AT_ONCE), seconds=LONGEST_LIFE)
                    await asyncio.to_thread(forks.kill, child)
    store = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
    found = await recorded(store)
    left = store.read(exchanges.count).result()
    broken = verify.verify(store).broken
    store.close()

    lost = [text for text in seen.complete if not found[text] or not found[f"re {text}"]]
    doubled = [text for text, times in found.items() if times > 1]
    print(
        f"{kind}: kills={KILLS} complete={len(seen.complete)} broken={len(seen.broken)} "
        f"lost={len(lost)} doubled={len(doubled)} left={left}"
    )
    assert (lost, doubled, left, broken) == ([], [], {}, ())
    assert seen.complete
    assert seen.broken


def answer(request: RawRequest) -> Script:
    """Repeat the question: whole, or streamed."""
    text = request.json["messages"][0]["content"]
    if request.json.get("stream"):
        return streamed(chat_events(f"re {text}"))
    return chat(f"re {text}")


async def port_of(child: ForkedProcess) -> int:
    """The port of a proxy that has started."""
    async with asyncio.timeout(60):
        while not child.lines():  # noqa: ASYNC110 - it writes a file
            await asyncio.sleep(0.002)
    return int(child.lines()[0]["port"])


class Clients:
    """Clients that ask one thing after the other until their proxy is gone."""

    def __init__(self, port: int, number: int, seen: Seen) -> None:
        self._asked: list[str] = []
        self._port, self._number, self._seen = port, number, seen
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> list[str]:
        self._tasks = [asyncio.create_task(self._run(each)) for each in range(AT_ONCE)]
        return self._asked

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*self._tasks)

    async def _run(self, client: int) -> None:
        asked = 0
        while True:
            asked += 1
            text = f"{self._number}-{client}-{asked}"
            self._asked.append(text)
            try:
                is_complete = await ask(self._port, text, is_stream=asked % 2 == 0)
            except (OSError, asyncio.IncompleteReadError):
                is_complete = False
            (self._seen.complete if is_complete else self._seen.broken).add(text)
            if not is_complete:
                return


async def ask(port: int, text: str, *, is_stream: bool) -> bool:
    """Ask, and say whether the answer was complete."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        body = json.dumps({"model": "m", "stream": is_stream, "messages": [said(text)]}).encode()
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer sk-key-of-%b\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (text.encode(), len(body), body)
        )
        head = await reader.readuntil(b"\r\n\r\n")
        if is_stream:
            return b"[DONE]\n\n" in await reader.readuntil(b"[DONE]\n\n")
        length = int(head.lower().split(b"content-length:")[1].split()[0])
        return len(await reader.readexactly(length)) == length
    finally:
        writer.close()


async def until(asked: list[str], count: int, *, seconds: float) -> None:
    """Wait until this many requests were sent, but not long."""
    end = asyncio.get_running_loop().time() + seconds
    while len(asked) < count + AT_ONCE and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def recorded(store: Store) -> Counter[str]:
    """Record what the killed proxies left; return how often each text is in the log."""
    recorder = Recorder(
        store,
        budgets={},
        profile="main",
        clock=SystemClock(),
        ids=RandomIds(),
        holder=process_name(),
        give_way=at_once,
    )
    await recorder.sweep()
    await recorder.drain()
    return Counter(await store.read(texts))


async def at_once(_: float) -> None:
    """Nothing waits for this process."""


def texts(tx: Tx) -> list[str]:
    """The texts of all messages, but for answers that broke off."""
    found, after = [], 0
    while page := tx.all("page_of_all_sessions", after=after, limit=200):
        for no, _, _ in page:
            after = no
            for entry in entries.walk(tx, sessions.segments(tx, no)):
                body = entry.body
                if isinstance(body, Message) and body.finish_reason in (None, "stop"):
                    found.append(body.text)
    return found
