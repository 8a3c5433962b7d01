"""One stream for each browser: it resumes, closes in time, and harms nobody when it is slow."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sessionary.actions.feed import HOLE_SECONDS
from sessionary.clock import RandomIds, SystemClock
from sessionary.config.server import Limits
from sessionary.engine.context import LiveEvent
from sessionary.engine.ports import Delta, Event, Step, TurnRequest
from sessionary.errors import Damaged, RetryLater, StoreUnavailable
from sessionary.model.access import Scope
from sessionary.model.message import message
from sessionary.store.open import open_store
from sessionary.store.tables import entries
from sessionary.web import auth, stream
from sessionary.web.stream import FeedReader
from tests.web.conftest import API, Client, Served, served
from tests.web.test_login import logged_in

TIMEOUT_SECONDS = 60.0


class Listener:
    """Reads events as a browser does."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines
        self.last_id: str | None = None

    async def next(self) -> tuple[str, Any]:
        kind, data = "", None
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async for line in self._lines:
                if line.startswith("id: "):
                    self.last_id = line[4:]
                elif line.startswith("event: "):
                    kind = line[7:]
                elif line.startswith("data: "):
                    data = json.loads(line[6:])
                elif not line and kind:
                    return kind, data
        raise EOFError

    async def until(self, wanted: str) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = []
        while not found or found[-1][0] != wanted:
            found.append(await self.next())
        return found


@asynccontextmanager
async def listening(client: Client, query: str, **headers: str) -> AsyncIterator[Listener]:
    if client.token is not None:
        headers = {"Authorization": f"Bearer {client.token}", **headers}
    async with client.http.stream("GET", f"{API}/events?{query}", headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        listener = Listener(response.aiter_lines())
        assert (await listener.next())[0] == "hello"
        yield listener


async def opened(client: Client, text: str = "hello") -> str:
    return str((await client.post("/sessions", {"text": text}, status=201))["id"])


async def test_the_list_gets_events_for_new_and_changed_sessions(client: Client) -> None:
    async with listening(client, "topics=list") as listener:
        id = await opened(client)
        assert (await listener.until("head"))[-1][1]["id"] == id

        await client.call("PATCH", f"/sessions/{id}", json={"title": "named"})
        assert (await listener.until("head"))[-1][1]["title"] == "named"


async def test_a_turn_is_streamed_as_it_happens_and_its_entries_are_the_record(
    server: Served, client: Client
) -> None:
    id = await opened(client)

    async with listening(client, f"topics=session:{id}") as listener:
        await client.post(f"/sessions/{id}/turns", {"text": "go"}, status=202)
        events = await listener.until("ended")
        while len([kind for kind, _ in events if kind == "entry"]) < 4:
            events.append(await listener.next())

    text = "".join(data["data"] for kind, data in events if kind == "delta")
    seqs = [data["seq"] for kind, data in events if kind == "entry"]
    assert text == "lookingre: go"
    assert seqs == [2, 3, 4, 5]
    await server.settle()


async def test_who_comes_back_gets_what_came_since(client: Client) -> None:
    id = await opened(client)
    async with listening(client, f"topics=session:{id}") as listener:
        await client.post(f"/sessions/{id}/messages", {"role": "user", "text": "2"}, status=201)
        await listener.until("entry")
        seen = listener.last_id or ""
    for n in (3, 4, 5):
        await client.post(f"/sessions/{id}/messages", {"role": "user", "text": str(n)}, status=201)

    headers = {"Last-Event-ID": seen}
    async with listening(client, f"topics=session:{id}", **headers) as listener:
        found = [(await listener.until("entry"))[-1][1]["seq"] for _ in range(3)]

    assert found == [3, 4, 5]


async def test_a_late_listener_gets_the_text_so_far(server: Served, client: Client) -> None:
    id = await opened(client)
    assert server.engine is not None
    bus = server.engine.context.bus
    for kind, data in (("began", None), ("delta", "half "), ("delta", "a sentence")):
        bus.publish(LiveEvent(id, "t", kind, data))

    async with listening(client, f"topics=session:{id}") as listener:
        kind, event = await listener.next()
        bus.publish(LiveEvent(id, "t", "delta", " more"))

        assert (kind, event["data"]) == ("so_far", "half a sentence")
        assert (await listener.next())[1]["data"] == " more"


@pytest.mark.parametrize("position", ["999999", "0"])
async def test_a_gap_is_answered_with_resync(
    client: Client, position: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessionary.web.stream.FAR_BEHIND", 0)
    await opened(client)
    headers = {"Authorization": f"Bearer {client.token}"}

    path = f"{API}/events?topics=list&after={position}"
    async with client.http.stream("GET", path, headers=headers) as response:
        listener = Listener(response.aiter_lines())
        assert (await listener.next())[0] == "resync"


async def test_revoking_a_token_closes_its_streams_at_once(server: Served, client: Client) -> None:
    secret, token = await server.token(Scope.READ)
    reader = Client(server.http, secret)

    async with listening(reader, "topics=list") as listener:
        await client.call("DELETE", f"/tokens/{token.id}")
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert (await listener.next())[0] == "closed"
            with pytest.raises(EOFError):
                await listener.next()


async def test_a_quiet_stream_is_kept_alive(client: Client) -> None:
    headers = {"Authorization": f"Bearer {client.token}"}
    async with client.http.stream("GET", f"{API}/events", headers=headers) as response:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async for line in response.aiter_lines():
                if line == ": here":
                    return
    pytest.fail("the stream ended")


async def deaf(
    server: Served, client: Client, id: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that listens to a session and then reads no more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    request = (
        f"GET {API}/events?topics=session:{id} HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {client.token}\r\n\r\n"
    )
    writer.write(request.encode())
    await reader.readuntil(b"event: hello")
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    return reader, writer


async def test_a_slow_client_is_dropped_and_slows_nobody(server: Served, client: Client) -> None:
    id = await opened(client)
    _, writer = await deaf(server, client, id)

    def flood(request: TurnRequest) -> list[Event]:
        return [*(Delta("x" * 10_000) for _ in range(190)), Step(message("assistant", "done"))]

    server.world.runner.answer = flood
    for _ in range(6):
        await client.post(f"/sessions/{id}/turns", {"text": "flood"}, status=202)
        await server.settle()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while "sessionary_streams_open 0" not in (await client.call("GET", "/metrics")).text:
            pass

    window = await client.get(f"/sessions/{id}/entries?limit=1")
    assert window["items"][0]["text"] == "done"
    writer.close()
    await writer.wait_closed()


async def test_a_client_that_does_not_read_holds_no_turn_up(servers: Any) -> None:
    # So patient that a turn which waited for the client would not end within this test.
    server: Served = await servers(limits=Limits(stream_stall_seconds=600))
    client = await server.client()
    id = await opened(client)
    _, writer = await deaf(server, client, id)
    server.world.runner.answer = lambda request: [
        *(Delta("x" * 10_000) for _ in range(1000)),
        Step(message("assistant", "done")),
    ]

    async with asyncio.timeout(TIMEOUT_SECONDS):
        await client.post(f"/sessions/{id}/turns", {"text": "flood"}, status=202)
        await server.settle()
        async with listening(client, f"topics=session:{id}") as listener:
            await client.post(f"/sessions/{id}/messages", {"role": "user", "text": "x"}, status=201)
            assert (await listener.until("entry"))[-1][1]["text"] == "x"

    # The stream that was read is closed as soon as the server notices; the other one is still open.
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while "sessionary_streams_open 1" not in (await client.call("GET", "/metrics")).text:
            pass
    writer.close()
    await writer.wait_closed()


async def test_several_tabs_receive_the_same_events_in_the_same_order(client: Client) -> None:
    id = await opened(client)
    topics = f"topics=list,session:{id}"
    async with listening(client, topics) as one, listening(client, topics) as two:
        for n in range(20):
            body = {"role": "user", "text": f"{n}"}
            await client.post(f"/sessions/{id}/messages", body, status=201)
        events = []
        for tab in (one, two):
            entries: list[int] = []
            while len(entries) < 20:
                entries.append((await tab.until("entry"))[-1][1]["seq"])
            events.append((entries, tab.last_id))

    assert events[0][0] == events[1][0] == list(range(2, 22))


async def test_a_tab_that_comes_back_has_what_the_other_has(client: Client) -> None:
    id = await opened(client)
    topics = f"topics=session:{id}"
    async with listening(client, topics) as stayed:
        async with listening(client, topics) as left:
            await client.post(f"/sessions/{id}/messages", {"role": "user", "text": "2"}, status=201)
            await left.until("entry")
            seen = left.last_id or ""
        for n in (3, 4):
            body = {"role": "user", "text": f"{n}"}
            await client.post(f"/sessions/{id}/messages", body, status=201)
        all_of_it = [(await stayed.until("entry"))[-1][1]["seq"] for _ in range(3)]
    async with listening(client, topics, **{"Last-Event-ID": seen}) as again:
        rest = [(await again.until("entry"))[-1][1]["seq"] for _ in range(2)]

    assert [2, *rest] == all_of_it == [2, 3, 4]


@pytest.mark.parametrize("how", ["logout", "ended by another", "new password"])
async def test_a_browser_that_is_logged_out_gets_no_more_events(
    server: Served, client: Client, how: str
) -> None:
    browser = await logged_in(server)
    tab = Client(browser.http, None)
    async with listening(tab, "topics=list") as listener:
        if how == "logout":
            await browser.call("POST", "/logout")
        elif how == "ended by another":
            (login,) = (await client.get("/logins"))["items"]
            await client.call("DELETE", f"/logins/{login['id']}")
        else:
            await client.call("PUT", "/password", json={"new": "correct horse battery"})
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert (await listener.next())[0] == "closed"
            with pytest.raises(EOFError):
                await listener.next()


async def test_a_stopping_server_ends_its_streams(servers: Any) -> None:
    server: Served = await servers()
    client = await server.client()
    async with listening(client, "topics=list") as listener:
        await server.stop()
        with pytest.raises(EOFError):
            await listener.next()


async def test_topics_that_are_not_there_are_refused(client: Client) -> None:
    for topics, status in (("nothing", 422), ("session:zzz", 404), (",", 422)):
        refused = await client.call("GET", f"/events?topics={topics}")
        assert refused.status_code == status


@pytest.fixture(params=["sqlite", "postgres"])
async def either_client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a server on either database."""
    url = f"sqlite:///{tmp_path}/either.db"
    if request.param == "postgres":
        url = request.getfixturevalue("migrated_url")
    store = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
    async with served(store, with_engine=False) as server:
        yield await server.client()
    store.close()


async def test_a_stream_cut_after_any_event_of_a_batch_resumes_with_the_next(
    either_client: Client,
) -> None:
    client = either_client
    one, two = await opened(client, "one 1"), await opened(client, "two 1")
    for n in range(2, 8):
        for id in (one, two):
            body = {"role": "user", "text": f"{n}"}
            await client.post(f"/sessions/{id}/messages", body, status=201)
    everything = [(id, seq) for seq in range(1, 8) for id in (one, two)]
    topics = f"topics=list,session:{one},session:{two}"

    def entries_of(events: list[tuple[str, Any]]) -> list[tuple[str, int]]:
        return [(data["session_id"], data["seq"]) for kind, data in events if kind == "entry"]

    async with listening(client, f"{topics}&after=0") as listener:
        whole: list[tuple[str, Any]] = []
        while entries_of(whole) != everything or whole[-1][0] != "head":
            whole.append(await listener.next())
    for cut in range(1, len(whole) + 1):
        async with listening(client, f"{topics}&after=0") as listener:
            seen = [await listener.next() for _ in range(cut)]
            position = listener.last_id or ""
        # One more is the sign that all there was has come.
        async with listening(client, topics, **{"Last-Event-ID": position}) as listener:
            one_more = {"role": "user", "text": f"after cut {cut}"}
            await client.post(f"/sessions/{one}/messages", one_more, status=201)
            while not entries_of(seen) or entries_of(seen)[-1] != (one, 7 + cut):
                seen.append(await listener.next())

        assert entries_of(seen)[: len(everything)] == everything
        assert entries_of(seen)[-1] == (one, 7 + cut)
        assert len(set(entries_of(seen))) == len(entries_of(seen))
        heads = {data["id"]: data["last_seq"] for kind, data in seen if kind == "head"}
        assert heads[two] == 7


async def test_a_client_cut_between_an_entry_and_its_head_gets_the_head(client: Client) -> None:
    id = await opened(client)
    async with listening(client, f"topics=session:{id}&after=0") as listener:
        await listener.until("entry")
        position = listener.last_id or ""

    async with listening(client, f"topics=session:{id}&after={position}") as listener:
        kind, data = await listener.next()

    assert (kind, data["id"], data["last_seq"]) == ("head", id, 1)


async def test_what_the_store_could_not_give_is_sent_when_it_can(
    server: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await opened(client)
    refusals = iter([RetryLater("Busy."), StoreUnavailable("Away.")])
    render = stream._shown

    def busy_at_first(*args: Any, **more: Any) -> Any:
        for error in refusals:
            raise error
        return render(*args, **more)

    monkeypatch.setattr(stream, "_shown", busy_at_first)
    async with listening(client, f"topics=session:{id}&after=0") as listener:
        kind, data = (await listener.until("entry"))[-1]

    assert (kind, data["seq"]) == ("entry", 1)
    assert next(refusals, None) is None


async def test_a_stream_goes_on_when_the_store_cannot_say_for_a_moment_who_listens(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await opened(client)
    refusals = iter([RetryLater("Busy."), StoreUnavailable("Away.")])
    check = auth.is_still_valid

    async def busy_at_first(*args: Any) -> bool:
        for error in refusals:
            raise error
        return await check(*args)

    monkeypatch.setattr(stream, "is_still_valid", busy_at_first)
    async with listening(client, f"topics=session:{id}&after=0") as listener:
        kind, data = (await listener.until("entry"))[-1]

    assert (kind, data["seq"]) == ("entry", 1)
    assert next(refusals, None) is None


async def test_an_entry_that_cannot_be_read_does_not_keep_back_the_next(
    server: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await opened(client)
    for n in (2, 3):
        await client.post(f"/sessions/{id}/messages", {"role": "user", "text": f"{n}"}, status=201)
    reading = entries.read

    def with_a_damaged_one(tx: Any, segment: Any, **more: Any) -> Any:
        if segment.first == segment.last == 2:
            raise Damaged("Entry 2 cannot be read.")
        return reading(tx, segment, **more)

    monkeypatch.setattr(entries, "read", with_a_damaged_one)
    async with listening(client, f"topics=session:{id}&after=0") as listener:
        assert (await listener.next())[0] == "head"
        events = [await listener.next() for _ in range(3)]

    assert [(kind, data["seq"]) for kind, data in events] == [
        ("entry", 1),
        ("damaged", 2),
        ("entry", 3),
    ]


class FakeFeed:
    """A feed whose numbers become visible out of order, as PostgreSQL's do."""

    def __init__(self) -> None:
        self.visible: set[int] = set()

    async def read(self, action: Any, *args: Any) -> Any:
        return action(self, *args)

    def all(self, query: str, *, after: int, limit: int) -> list[tuple[Any, ...]]:
        assert query == "read_feed"
        found = sorted(position for position in self.visible if position > after)
        return [(position, 1, 1, "entry", "s", "main") for position in found[:limit]]


async def test_a_change_that_becomes_visible_late_is_not_passed_over() -> None:
    fake: Any = FakeFeed()
    now = 0.0
    reader = FeedReader(fake, 0, monotonic=lambda: now)

    async def sent() -> list[int]:
        changes = await reader.unsent()
        reader.mark_sent(changes)
        return [each.position for each in changes]

    fake.visible |= {1, 3}
    first = await sent()
    kept_back = reader.position
    fake.visible |= {2, 5}
    second = await sent()
    now = HOLE_SECONDS + 1
    third = await sent()

    assert (first, second, third) == ([1, 3], [2, 5], [])
    assert kept_back == 1
    assert reader.position == 5


async def test_a_number_that_never_comes_holds_back_no_change_after_it() -> None:
    fake: Any = FakeFeed()
    now = 0.0
    reader = FeedReader(fake, 0, monotonic=lambda: now)
    late = entries.FEED_PAGE + 10
    last = 3 * entries.FEED_PAGE
    # 1 was rolled back, and the transaction of another number is not committed yet.
    fake.visible |= set(range(2, last + 1)) - {late}

    async def sent() -> list[int]:
        found: list[int] = []
        while changes := await reader.unsent():
            reader.mark_sent(changes)
            found += [each.position for each in changes]
        return found

    first = await sent()
    fake.visible |= {late}
    now = HOLE_SECONDS + 1
    second = await sent()

    assert first == sorted(set(range(2, last + 1)) - {late})
    assert second == [late]
    assert reader.position == last


async def test_a_position_never_passes_a_change_that_was_not_sent() -> None:
    fake: Any = FakeFeed()
    reader = FeedReader(fake, 0)
    fake.visible |= {1, 2, 3}

    changes = await reader.unsent()
    before = reader.position
    reader.mark_sent(changes[:1])
    fake.visible |= {4}

    assert (before, reader.position) == (0, 1)
    assert [each.position for each in await reader.unsent()] == [2, 3]
