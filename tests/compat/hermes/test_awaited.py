"""`AsyncSessionDB` and `AsyncSessionStore`: the same methods to await."""

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

from sessionary.compat.hermes.config import GatewayConfig, Platform
from sessionary.compat.hermes.session import AsyncSessionStore, SessionSource, SessionStore
from sessionary.compat.hermes.state import AsyncSessionDB, SessionDB
from tests.compat.hermes.conftest import Opener

ANN = SessionSource(Platform.TELEGRAM, "1", user_id="1")


@pytest.mark.parametrize(
    ("blocking", "awaiting"), [(SessionDB, AsyncSessionDB), (SessionStore, AsyncSessionStore)]
)
def test_every_public_method_can_be_awaited(blocking: type[Any], awaiting: type[Any]) -> None:
    for name, method in vars(blocking).items():
        if name.startswith("_") or not callable(getattr(blocking, name)):
            continue
        twin = getattr(awaiting, name)
        assert inspect.signature(twin) == inspect.signature(getattr(blocking, name)), name
        assert inspect.iscoroutinefunction(twin) or isinstance(method, staticmethod), name


async def test_a_program_works_by_awaiting(db: SessionDB) -> None:
    waiting = AsyncSessionDB(db)
    await waiting.create_session("s1", "cli", model="m")
    number = await waiting.append_message("s1", "user", "hello")
    store = AsyncSessionStore(None, GatewayConfig(), db=db)
    entry = await store.get_or_create_session(ANN)

    assert await waiting.get_messages("s1") == db.get_messages("s1")
    assert (await waiting.get_messages("s1"))[0]["id"] == number
    assert await store.has_any_sessions()
    assert (await store.list_sessions())[0].session_id == entry.session_id
    assert AsyncSessionDB.sanitize_title("  a ") == "a"


async def test_the_event_loop_goes_on_while_a_call_waits(tmp_path: Path) -> None:
    waiting = AsyncSessionDB(tmp_path / "state.db")
    await waiting.create_session("s1", "cli")
    is_slow, may_end = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(tx: Any) -> None:
        loop.call_soon_threadsafe(is_slow.set)
        asyncio.run_coroutine_threadsafe(may_end.wait(), loop).result()

    blocking = asyncio.create_task(asyncio.to_thread(waiting.sync._store.write, slow))
    await is_slow.wait()  # the one writer is busy from here on
    append = asyncio.create_task(waiting.append_message("s1", "user", "later"))
    await asyncio.sleep(0)
    assert not append.done()
    may_end.set()
    await asyncio.gather(blocking, append)

    assert await waiting.message_count("s1") == 1
    await waiting.close()


async def test_many_calls_at_once_are_all_recorded(open_db: Opener) -> None:
    waiting = AsyncSessionDB(open_db())
    await waiting.create_session("s1", "cli")

    await asyncio.gather(*(waiting.append_message("s1", "user", str(n)) for n in range(50)))

    found = await waiting.get_messages("s1")
    assert sorted(int(each["content"]) for each in found) == list(range(50))
