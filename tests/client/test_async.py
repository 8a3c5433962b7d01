"""The asynchronous client, on both databases: the same calls, awaited."""

import asyncio
import gc
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from sessionary import (
    AsyncSessionary,
    BadInput,
    Conflict,
    InputMessage,
    NotFound,
    Sessionary,
    StoreUnavailable,
    Usage,
)


async def test_the_same_calls_are_awaited(url: str) -> None:
    async with AsyncSessionary(url) as s:
        chat = s.session("alice")
        await chat.append("user", "hello", idempotency_key="m1")
        async with chat.turn("again") as turn:
            await turn.checkpoint("h")
            await turn.append("assistant", "hi", usage=Usage(model="gpt-5-mini", output_tokens=3))

        assert [each["content"] for each in await chat.context()] == ["hello", "again", "hi"]
        assert [message.text async for message in chat.messages(limit=2)] == [
            "hello",
            "again",
            "hi",
        ]
        page = await s.search("again", limit=1)
        assert [hit.seq for hit in page.items] == [2]
        assert page.total == 1
        assert [hit.seq async for hit in s.search("again OR hello", all_hits=True, limit=1)]
        assert (await s.usage("model"))[0].output_tokens == 3
        assert [each.name for each in await s.projects.list()] == []
        first = await chat.messages(limit=2)
        following = await first.next_page()
        assert following is not None
        assert [message.text for message in following.items] == ["hi"]


async def test_a_client_is_opened_and_closed_without_a_block(url: str) -> None:
    s = await AsyncSessionary.connect(url)
    await s.session("alice").append("user", "hello")
    await s.aclose()
    await s.aclose()

    with pytest.raises(StoreUnavailable, match="closed; open a new one"):
        s.session("alice")
    with pytest.raises(StoreUnavailable, match="closed"):
        await s.__aenter__()


async def test_before_it_is_open_one_clear_line(home: Path) -> None:
    s = AsyncSessionary()

    with pytest.raises(BadInput, match="not open: use `async with") as refused:
        s.session("alice")

    assert "\n" not in str(refused.value)
    assert not (home / "sessionary.db").exists()
    assert repr(s) == "<AsyncSessionary, not open>"


async def test_opening_and_closing_do_not_block_the_loop(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the store is opened and closed in a thread, the loop runs other tasks."""
    loop = asyncio.get_running_loop()
    real_open = AsyncSessionary._open

    def turn_the_loop() -> None:
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(timeout=60)

    def open_slowly(self: AsyncSessionary) -> object:
        turn_the_loop()
        app = real_open(self)
        close = app.close

        def close_slowly() -> None:
            turn_the_loop()
            close()

        monkeypatch.setattr(app, "close", close_slowly)
        return app

    monkeypatch.setattr(AsyncSessionary, "_open", open_slowly)
    async with AsyncSessionary(url) as s:
        await s.session("alice").append("user", "hello")


async def test_cancelling_while_it_opens_leaves_nothing_open(home: Path) -> None:
    task = asyncio.create_task(AsyncSessionary.connect())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    async with AsyncSessionary() as s:
        await s.session("alice").append("user", "hello")


async def test_a_forgotten_await_is_not_silent(home: Path) -> None:
    async with AsyncSessionary() as s:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            s.session("alice").append("user", "hello")  # type: ignore[unused-coroutine]
            gc.collect()

        assert any("was never awaited" in str(each.message) for each in caught)
        assert await s.session("alice").context() == []


async def test_many_appends_at_once_and_a_transaction(url: str) -> None:
    async with AsyncSessionary(url) as s:
        chat = s.session("alice")
        await asyncio.gather(*(chat.append("user", f"plum {n}") for n in range(20)))
        async with s.transaction() as t:
            done = t.append(chat, "assistant", "twenty")
            t.rename(chat, "Plums")
        await chat.append_many([InputMessage("user", "more"), InputMessage("user", "and more")])

        assert done.result().seq == 21
        assert (await s.head("Plums")).message_count == 23


async def test_a_turn_waits_and_renews(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncSessionary(url) as s:
        chat = s.session("alice")
        await chat.append("user", "hello")
        entered, may_end = asyncio.Event(), asyncio.Event()

        async def first() -> None:
            async with chat.turn() as turn:
                entered.set()
                await may_end.wait()
                await turn.append("assistant", "one")

        task = asyncio.create_task(first())
        await entered.wait()
        with pytest.raises(Conflict):
            await chat.turn().__aenter__()
        waiting = asyncio.create_task(chat.turn(wait=60).__aenter__())
        asyncio.get_running_loop().call_later(0.1, may_end.set)
        turn = await waiting
        await turn.append("assistant", "two")
        await turn.__aexit__(None, None, None)
        await task

        assert [message.text async for message in chat.messages()] == ["hello", "one", "two"]


async def test_a_cancelled_turn_lets_its_session_go(url: str) -> None:
    async with AsyncSessionary(url) as s:
        chat = s.session("alice")
        begun = asyncio.Event()

        async def work() -> None:
            async with chat.turn("hello"):
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert not (await chat.head()).running
        await chat.append("user", "go on")


async def test_a_turn_that_is_cancelled_while_it_begins_keeps_no_lease(url: str) -> None:
    async with AsyncSessionary(url) as s:
        chat = s.session("alice")
        task = asyncio.create_task(chat.turn("hello").__aenter__())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert not (await chat.head()).running


async def test_a_subscription_is_iterated(url: str) -> None:
    async with AsyncSessionary(url) as s:
        chat = s.session("alice")
        seen: list[str] = []

        async def tail() -> None:
            async with s.subscribe(after=0) as changes:
                async for change in changes:
                    if change.message is not None:
                        seen.append(change.message.text)
                    if len(seen) == 2:
                        return

        task = asyncio.create_task(tail())
        await chat.append("user", "one")
        await chat.append("assistant", "two")
        await task

        assert seen == ["one", "two"]
        kinds = [each.kind async for each in s.subscribe(after=0, timeout=0)]
        assert "entry" in kinds


async def test_an_export_is_streamed_and_an_agent_asked(url: str) -> None:
    async with AsyncSessionary(url) as s:
        reply = await s.ask("hello", session="alice", timeout=120)
        pieces = [piece async for piece in s.export([reply.session_id], format="md")]

        assert reply.text
        assert "hello" in "".join(pieces)
        with pytest.raises(NotFound):
            await s.find("nothing of that name")


async def test_the_server_runs_from_python(home: Path) -> None:
    import httpx2

    ready = asyncio.Event()
    addresses: list[str] = []

    async with AsyncSessionary() as s:

        def on_ready(found: object) -> None:
            addresses.append(str(getattr(found, "address", "")))
            ready.set()

        task = asyncio.create_task(s.serve(port=0, channels=False, on_ready=on_ready))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        async with httpx2.AsyncClient(timeout=60) as http:
            answer = await http.get(f"{addresses[0]}/api/v1/healthz")
        assert answer.status_code == 200
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_unreachable_database_is_one_clear_line() -> None:
    with pytest.raises(StoreUnavailable) as refused:
        await AsyncSessionary.connect("postgresql://nobody:secret@127.0.0.1:1/none")

    assert "secret" not in str(refused.value)


FIRST_USAGE = """
import asyncio, sys, threading
from sessionary import AsyncSessionary, InputMessage, Usage

threads = []

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "sessionary.prices":
            threads.append(threading.current_thread() is threading.main_thread())

sys.meta_path.insert(0, Watch())
used = Usage(model="gpt-5-mini", output_tokens=3)

async def main():
    async with AsyncSessionary("sqlite::memory:") as s:
        chat = s.session("alice")
        await chat.append("user", "hello")
        assert threads == []
        {append}
        (total,) = await s.usage("model")
        assert total.cost_microusd is not None

asyncio.run(main())
print(threads)
"""


@pytest.mark.parametrize(
    "append",
    [
        'await chat.append("assistant", "hi", usage=used)',
        'await chat.append_many([InputMessage("assistant", "hi", usage=used)])',
        'async with chat.turn() as turn: await turn.append("assistant", "hi", usage=used)',
    ],
)
def test_the_table_of_prices_is_loaded_beside_the_event_loop(append: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FIRST_USAGE.replace("{append}", append)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("[False]\n", "")


async def test_budgets_are_listed_by_both_clients(url: str, home: Path) -> None:
    (home / "sessionary.toml").write_text(
        "[budget.person]\ntokens = 10\n[budget.profile]\nusd = 2\n"
    )
    async with AsyncSessionary(url) as s:
        found = await s.budgets()
    with Sessionary(url) as blocking:
        same = blocking.budgets()

    assert [(each.scope, each.percent, each.is_used_up) for each in found] == [
        ("person", 0.0, False),
        ("profile:main", 0.0, False),
    ]
    assert [each.limit_microusd for each in same] == [None, 2_000_000]
