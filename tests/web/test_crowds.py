"""Clients that say nothing, say it slowly, or are too many: they keep nobody else out."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_network
from typing import Any

import httpx2
import pytest

from sessionary.config.server import Limits
from sessionary.model.access import Scope
from sessionary.web import connections
from sessionary.web.connections import HEALTH_RESERVE
from tests.web.conftest import API, TIMEOUT_SECONDS, Client, Served, rest_of
from tests.web.test_events import listening

SLOW = Limits(connections=8, request_head_seconds=600, check_seconds=0.1)
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Crowd:
    """Raw connections to a server."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.pairs: list[Pair] = []

    async def join(self, text: str = "", *, address: str | None = None) -> Pair:
        """One more connection, which says this and no more."""
        local = None if address is None else (address, 0)
        pair = await asyncio.open_connection("127.0.0.1", self.port, local_addr=local)
        self.pairs.append(pair)
        pair[1].write(text.replace("\n", "\r\n").encode())
        return pair

    async def close(self) -> None:
        for _, writer in self.pairs:
            writer.close()
        for _, writer in self.pairs:
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)


@asynccontextmanager
async def crowd_at(port: int) -> AsyncIterator[Crowd]:
    crowd = Crowd(port)
    try:
        yield crowd
    finally:
        await crowd.close()


async def metric(client: Client, name: str) -> int:
    text = (await client.call("GET", "/metrics")).text
    found = re.search(rf"^{name} (\d+)$", text, re.MULTILINE)
    assert found is not None, text
    return int(found[1])


class Held:
    """A webhook that answers when it is let go; anyone may call it, like a platform."""

    def __init__(self) -> None:
        self.stop_listening = asyncio.Event()
        self.begun = 0
        self.more = asyncio.Condition()

    async def __call__(self, headers: Mapping[str, str], raw: bytes) -> int:
        async with self.more:
            self.begun += 1
            self.more.notify_all()
        await self.stop_listening.wait()
        return 200

    async def until_begun(self, count: int) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS), self.more:
            await self.more.wait_for(lambda: self.begun >= count)


POST = f"POST {API}/channels/held/webhook HTTP/1.1\nHost: localhost\nContent-Length: 0\n\n"


@pytest.mark.parametrize(
    "text",
    ["", "GET /healthz HT", f"POST {API}/login HTTP/1.1\nHost: localhost\nContent-Length: 9\n\n{{"],
    ids=["nothing", "half a head", "half a body"],
)
async def test_connections_that_wait_give_way_to_those_that_ask(servers: Any, text: str) -> None:
    server: Served = await servers(limits=SLOW)
    client = await server.client()
    async with crowd_at(server.port) as crowd:
        for _ in range(4):
            for _ in range(SLOW.connections):
                await crowd.join(text)

            stranger = await server.fresh()
            assert (await stranger.get("/healthz")).status_code == 200
            assert (await stranger.get("/login")).status_code == 200
            assert (await client.call("GET", "/me")).status_code == 200

        assert await metric(client, "sessionary_connections_open") <= SLOW.connections
        assert await metric(client, "sessionary_connections_refused_total") > 0


async def test_an_open_event_stream_does_not_give_way(
    servers: Any,
) -> None:
    server: Served = await servers(limits=SLOW)
    client = await server.client()
    async with crowd_at(server.port) as crowd, listening(client, "topics=list") as listener:
        for _ in range(3 * SLOW.connections):
            await crowd.join()
        await client.post("/sessions", {"text": "hello"}, status=201)

        assert (await listener.until("head"))[-1][1]["last_seq"] == 1


async def test_a_client_that_never_sends_its_request_is_hung_up_on(
    servers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The one that keeps sending has the answer when it stops, however busy the machine is.
    monkeypatch.setattr(connections, "LINGER_SECONDS", 30.0)
    # uvicorn closes an idle connection after five seconds, without an answer.
    monkeypatch.setattr(connections.LimitedConnection, "timeout_keep_alive_handler", lambda _: None)
    server: Served = await servers(limits=Limits(request_head_seconds=5.0))
    async with crowd_at(server.port) as crowd:
        silent, _ = await crowd.join()
        slow, writer = await crowd.join("GET /healthz HTTP/1.1\nHost: localhost\n")
        again, _ = await crowd.join("GET /healthz HTTP/1.1\nHost: localhost\n\nGET /hea")
        unread, _ = await crowd.join(
            "GET /healthz HTTP/1.1\nHost: localhost\nContent-Length: 99\n\nx"
        )

        async def drip() -> None:
            """Send a little again and again: each byte must not buy more time."""
            while not writer.is_closing() and not slow.at_eof():
                writer.write(b"x-more: 1\r\n")
                await asyncio.sleep(0.02)

        dripping = asyncio.ensure_future(drip())
        nothing, received, twice, answered = await asyncio.gather(
            *map(rest_of, (silent, slow, again, unread))
        )
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await dripping

    assert nothing == b""
    assert received.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert b"application/problem+json" in received
    assert twice.count(b"HTTP/1.1") == 2
    assert answered.startswith(b"HTTP/1.1 200")


async def test_a_body_that_comes_too_slowly_is_refused(servers: Any) -> None:
    server: Served = await servers(limits=Limits(body_seconds=0.2))
    async with crowd_at(server.port) as crowd:
        slow, _ = await crowd.join(
            f"POST {API}/login HTTP/1.1\nHost: localhost\nContent-Length: 99\n\n{{"
        )

        assert (await rest_of(slow)).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    ("header", "begin", "end"),
    [
        ("Content-Length: 5000000", b"", b"x" * 5_000_000),
        (
            "Transfer-Encoding: chunked",
            b"4c4b40\r\n" + b"x" * 100_000,
            b"x" * 4_900_000 + b"\r\n0\r\n\r\n",
        ),
    ],
    ids=["of a size it names", "in chunks"],
)
async def test_a_client_that_still_sends_a_body_keeps_the_answer_that_it_is_too_large(
    server: Served, monkeypatch: pytest.MonkeyPatch, header: str, begin: bytes, end: bytes
) -> None:
    monkeypatch.setattr(connections, "LINGER_SECONDS", 30.0)
    async with crowd_at(server.port) as crowd:
        reader, writer = await crowd.join(
            f"POST {API}/login HTTP/1.1\nHost: localhost\n{header}\n\n"
        )
        writer.write(begin)
        received = await reader.readuntil(b"}")
        writer.transport.set_write_buffer_limits(0)
        writer.write(end)
        await writer.drain()  # raises if the server has closed

        assert received.startswith(b"HTTP/1.1 413")
        assert await reader.read() == b""


async def test_when_strangers_are_all_busy_the_known_and_health_checks_have_room(
    servers: Any,
) -> None:
    held = Held()
    server: Served = await servers(limits=SLOW, webhooks={"held": held})
    client = await server.client()
    strangers = SLOW.connections - SLOW.connections // 4
    async with crowd_at(server.port) as crowd:
        for _ in range(strangers):
            await crowd.join(POST)
        await held.until_begun(strangers)

        refused, _ = await crowd.join(POST)
        received = (await rest_of(refused)).decode()
        fresh = await server.fresh()
        health = await fresh.get("/healthz")
        known = await Client(await server.fresh(), client.token).call("GET", "/me")
        unknown = await Client(await server.fresh(), "sessionary_wrong").call("GET", "/me")
        held.stop_listening.set()
        served = await crowd.pairs[0][0].readuntil(b"\r\n")

    assert received.startswith("HTTP/1.1 503 ")
    assert "retry-after: " in received
    assert '"committed":"no"' in received.replace(" ", "")
    assert (health.status_code, known.status_code, unknown.status_code) == (200, 200, 401)
    assert served.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("header", ["Cookie: a=b", "Authorization: Bearer x"])
async def test_a_header_that_nobody_checks_opens_no_room_for_the_known(
    servers: Any, header: str
) -> None:
    held = Held()
    server: Served = await servers(limits=SLOW, webhooks={"held": held})
    client = await server.client()
    strangers = SLOW.connections - SLOW.connections // 4
    post = POST.replace("\n\n", f"\n{header}\n\n")
    async with crowd_at(server.port) as crowd:
        for _ in range(strangers):
            await crowd.join(post)
        await held.until_begun(strangers)

        refused, _ = await crowd.join(post)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            received = await refused.readuntil(b"\r\n")
        known = await Client(await server.fresh(), client.token).call("GET", "/me")
        held.stop_listening.set()

    assert received.startswith(b"HTTP/1.1 503 ")
    assert (known.status_code, held.begun) == (200, strangers)


async def test_a_server_that_is_busy_everywhere_still_answers_health_checks(servers: Any) -> None:
    held = Held()
    limits = Limits(connections=8, streams_per_caller=2)
    server: Served = await servers(limits=limits, webhooks={"held": held})
    client = await server.client()
    strangers = limits.connections - limits.connections // 4
    async with AsyncExitStack() as ending:
        crowd = await ending.enter_async_context(crowd_at(server.port))
        for _ in range(strangers):
            await crowd.join(POST)
        await held.until_begun(strangers)
        for _ in range(limits.connections - strangers):
            own = Client(await server.fresh(), client.token)
            await ending.enter_async_context(listening(own, "topics=list"))

        health = await (await server.fresh()).get("/healthz")
        other = await Client(await server.fresh(), client.token).call("GET", "/me")
        # Beyond the reserve a connection is closed at once.
        last = [await crowd.join() for _ in range(HEALTH_RESERVE + 1)]
        done = [asyncio.ensure_future(rest_of(reader)) for reader, _ in last]
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await asyncio.wait(done, return_when=asyncio.FIRST_COMPLETED)
        held.stop_listening.set()
        for each in done:
            each.cancel()

    assert health.status_code == 200
    assert other.status_code == 503


async def test_one_token_never_has_more_than_half_of_all_connections(servers: Any) -> None:
    limits = Limits(connections=8, streams_per_caller=100, check_seconds=0.1)
    server: Served = await servers(limits=limits)
    client, other = await server.client(), await server.client()
    async with AsyncExitStack() as ending:
        for _ in range(limits.connections // 2):
            own = Client(await server.fresh(), client.token)
            await ending.enter_async_context(listening(own, "topics=list"))

        greedy = await Client(await server.fresh(), client.token).call("GET", "/me")
        modest = await Client(await server.fresh(), other.token).call("GET", "/me")

    assert (greedy.status_code, modest.status_code) == (429, 200)
    assert int(greedy.headers["retry-after"]) >= 1


async def test_connections_that_a_token_kept_open_are_not_beyond_its_share(
    servers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # uvicorn closes a connection that was idle for five seconds, which pass on a busy machine.
    monkeypatch.setattr(connections.LimitedConnection, "timeout_keep_alive_handler", lambda _: None)
    limits = Limits(connections=8, streams_per_caller=100, check_seconds=0.1)
    server: Served = await servers(limits=limits)
    client = await server.client()
    request = f"GET {API}/%s HTTP/1.1\nHost: localhost\nAuthorization: Bearer {client.token}\n\n"
    most = limits.connections // 2
    async with crowd_at(server.port) as crowd:
        for _ in range(most + 1):
            reader, _ = await crowd.join(request % "me")
            assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
        answers = []
        for reader, writer in crowd.pairs:
            writer.write((request % "events").replace("\n", "\r\n").encode())
            answers.append((await reader.readuntil(b"\r\n")).split()[1])

    assert answers == [b"200"] * most + [b"429"]


async def test_one_address_fills_only_its_share(
    servers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Loopback is not limited, because all programs of a machine share it.
    monkeypatch.setattr(connections, "classify_peer", lambda peer, trusted: (peer, False, False))
    held = Held()
    limits = Limits(connections=40, connections_per_address=3)
    server: Served = await servers(limits=limits, webhooks={"held": held})
    async with crowd_at(server.port) as crowd:
        for _ in range(3):
            await crowd.join(POST, address="127.0.0.2")
        await held.until_begun(3)
        over, _ = await crowd.join(POST, address="127.0.0.2")
        received = await rest_of(over)
        elsewhere, _ = await crowd.join(POST, address="127.0.0.3")
        await held.until_begun(4)
        held.stop_listening.set()
        served = await elsewhere.readuntil(b"\r\n")

    assert received.startswith(b"HTTP/1.1 503")
    assert served.startswith(b"HTTP/1.1 200")


async def test_the_port_for_webhooks_has_the_same_limits(servers: Any) -> None:
    held = Held()
    held.stop_listening.set()
    limits = Limits(connections=8, request_head_seconds=600)
    server: Served = await servers(limits=limits, webhooks={"held": held}, webhook_port=0)
    assert server.webhook_address is not None
    async with crowd_at(int(server.webhook_address.rpartition(":")[2])) as crowd:
        for _ in range(5 * limits.connections):
            await crowd.join()
        platform, _ = await crowd.join(POST)

        assert (await platform.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")


async def test_a_response_that_nobody_reads_is_dropped(servers: Any) -> None:
    server: Served = await servers(limits=Limits(response_stall_seconds=0.2))
    client = await server.client()
    id = (await client.post("/sessions", {"text": "x" * 20_000_000}, status=201))["id"]
    async with crowd_at(server.port) as crowd:
        reader, writer = await crowd.join(
            f"GET {API}/sessions/{id}/entries HTTP/1.1\nHost: localhost\n"
            f"Authorization: Bearer {client.token}\n\n"
        )
        await reader.readuntil(b"\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while await metric(client, "sessionary_connections_open") > 1:
                pass


async def test_a_token_has_so_many_streams_and_others_have_theirs(servers: Any) -> None:
    server: Served = await servers(limits=Limits(streams=3, streams_per_caller=2))
    client, other, third = [await server.client() for _ in range(3)]
    async with listening(client, "topics=list"), listening(client, "topics=list"):
        one_too_many = await client.call("GET", "/events")
        async with listening(other, "topics=list"):
            all_are_open = await third.call("GET", "/events")

    assert (one_too_many.status_code, all_are_open.status_code) == (429, 503)
    for refused in (one_too_many, all_are_open):
        assert refused.headers["content-type"] == "application/problem+json"
        assert int(refused.headers["retry-after"]) >= 1


BIG = b"x" * 700_000


async def send_webhook(server: Served, body: bytes = BIG) -> httpx2.Response:
    stranger = Client(await server.fresh(), None)
    return await stranger.call("POST", "/channels/held/webhook", content=body)


async def test_large_bodies_wait_until_there_is_room_for_them(servers: Any) -> None:
    held = Held()
    limits = Limits(bodies_bytes=1_000_000)
    server: Served = await servers(limits=limits, webhooks={"held": held})
    client = await server.client()
    first = asyncio.ensure_future(send_webhook(server))
    await held.until_begun(1)

    second = asyncio.ensure_future(send_webhook(server))
    small = asyncio.ensure_future(send_webhook(server, b"x"))
    await held.until_begun(2)
    uploaded = await client.call("POST", "/blobs", content=BIG)
    assert (uploaded.status_code, held.begun) == (201, 2), (
        "who has a token does not wait for others"
    )
    held.stop_listening.set()

    assert [(await each).status_code for each in (first, second, small)] == [200] * 3


async def test_a_large_body_for_which_no_room_comes_is_refused(servers: Any) -> None:
    held = Held()
    limits = Limits(bodies_bytes=1_000_000, bodies_wait_seconds=0.1)
    server: Served = await servers(limits=limits, webhooks={"held": held})
    first = asyncio.ensure_future(send_webhook(server))
    await held.until_begun(1)

    refused = await send_webhook(server)
    held.stop_listening.set()
    await first

    assert refused.status_code == 503
    assert refused.json()["committed"] == "no"
    assert int(refused.headers["retry-after"]) >= 1
    assert (await send_webhook(server)).status_code == 200


async def test_the_body_of_a_request_that_reads_none_takes_no_room(servers: Any) -> None:
    limits = Limits(bodies_bytes=1_000_000, bodies_wait_seconds=0.1, check_seconds=0.1)
    server: Served = await servers(limits=limits)
    client, reader = await server.client(), await server.client(Scope.READ)
    stream = (
        f"GET {API}/events HTTP/1.1\nHost: localhost\nAuthorization: Bearer {reader.token}\n"
        f"Content-Length: {len(BIG) + 1}\n\n"
    )
    async with crowd_at(server.port) as crowd:
        stream_reader, writer = await crowd.join(stream)
        await stream_reader.readuntil(b"event: hello")
        writer.write(BIG)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await writer.drain()
        await client.post("/sessions", {"text": "hello"}, status=201)
        await stream_reader.readuntil(b"event: head")

        uploaded = await client.call("POST", "/blobs", content=BIG)

    assert uploaded.status_code == 201


async def test_bodies_that_each_hold_a_part_do_not_wait_for_one_another(servers: Any) -> None:
    server: Served = await servers(limits=Limits(bodies_bytes=1_000_000))
    client = await server.client()

    clients = [Client(await server.fresh(), client.token) for _ in range(4)]

    answers = await asyncio.gather(
        *(
            each.call("POST", "/blobs", content=bytes([n]) * 5_000_000)
            for n, each in enumerate(clients)
        )
    )

    assert [each.status_code for each in answers] == [201] * 4


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("203.0.113.9", ("203.0.113.9", False, False)),
        ("10.1.2.3", ("10.1.2.3", True, False)),
        ("::ffff:10.1.2.3", ("10.1.2.3", True, False)),
        ("127.0.0.1", ("127.0.0.1", False, True)),
        ("::1", ("::1", False, True)),
        ("2001:db8:1:2:3:4:5:6", ("2001:db8:1:2::", False, False)),
        ("/run/socket", ("/run/socket", False, True)),
    ],
)
def test_what_counts_as_one_address(peer: str, expected: tuple[str, bool, bool]) -> None:
    assert connections.classify_peer(peer, (ip_network("10.0.0.0/8"),)) == expected


async def test_methods_that_nobody_knows_are_counted_as_one(server: Served) -> None:
    client = await server.client()

    for n in range(20):
        await client.call(f"X{n}", "/me")
    metrics = (await client.call("GET", "/metrics")).text

    assert re.findall(r'method="(X\d*|OTHER)"', metrics) == ["OTHER"]
