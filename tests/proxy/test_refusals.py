"""Who may use the proxy, and for what: no web page, no stranger, no other upstream, no request with two readings."""

import asyncio
import contextlib
import json
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionary.actions import credentials
from sessionary.clock import Moment, RandomIds, SystemClock
from sessionary.model.access import Scope
from sessionary.proxy.reading import SECRET_NAME
from sessionary.proxy.server import ServerOptions
from sessionary.proxy.wire import Body, Framing, Malformed, chunk, parse_request
from sessionary.store.database import Store
from tests.proxy.conftest import KEY, ProxyWorld, chat, running, said
from tests.support.raw_upstream import whole

CHAT = "/openai/v1/chat/completions"
HEAD = b"POST /openai/v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


HOSTILE = {
    "both framings": HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "a list of lengths": HEAD + b"Content-Length: 5, 5\r\n\r\nhello",
    "a signed length": HEAD + b"Content-Length: +5\r\n\r\nhello",
    "a huge length": HEAD + b"Content-Length: 99999999999999999999\r\n\r\n",
    "another coding": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": HEAD
    + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a hidden coding": HEAD + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "a length for this connection only": HEAD
    + b"Connection: close, Content-Length\r\nContent-Length: 5\r\n\r\nhello",
    "an empty coding": HEAD + b"Transfer-Encoding: \r\nContent-Length: 0\r\n\r\n",
    "a space before the colon": HEAD + b"Content-Length : 5\r\n\r\nhello",
    "a folded header": HEAD + b"X-A: b\r\n  c\r\nContent-Length: 0\r\n\r\n",
    "a bare line feed": b"POST / HTTP/1.1\nHost: localhost\n\n\r\n\r\n",
    "a null in a header": HEAD + b"X: a\x00b\r\n\r\n",
    "an absolute address": b"GET http://example.org/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a tunnel": b"CONNECT example.org:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an asterisk": b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a path of another host": b"GET //example.org/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "dots in the path": b"GET /openai/v1/../../x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "hidden dots in the path": b"GET /openai/%2e%2E/x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a hidden slash in the path": b"GET /openai/..%2fx HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "dots between hidden slashes": b"GET /openai/v1%2f..%5Cx HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a backslash in the path": b"GET /openai/v1\\..\\x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a fragment": b"GET /openai/v1#x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "two spaces": b"GET  /openai/v1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "not HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n",
    "no host": b"GET /openai/v1/models HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /openai/v1/models HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_request_is_refused_and_passed_to_nobody(
    fast_world: ProxyWorld, name: str
) -> None:
    answer = await fast_world.send(HOSTILE[name])

    assert status_of(answer) == 400
    assert answer.count(b"HTTP/1.1 ") == 1
    assert fast_world.upstream.requests == []


async def test_too_much_is_refused(fast_world: ProxyWorld) -> None:
    huge = await fast_world.send(HEAD + b"X: " + b"y" * 200_000 + b"\r\n\r\n")
    many = await fast_world.send(HEAD + b"X: y\r\n" * 300 + b"\r\n")
    future = await fast_world.send(b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n")

    assert [status_of(each) for each in (huge, many, future)] == [431, 431, 505]


@pytest.mark.parametrize(
    "body", [b"x\r\n", b"5\r\nhelloX\r\n", b"-1\r\n", b"5;" + b"a" * 1000 + b"\r\n", b"5\n"]
)
async def test_chunks_that_are_malformed_never_become_a_request(
    fast_world: ProxyWorld, body: bytes
) -> None:
    fast_world.upstream.will(chat("no"))

    answer = await fast_world.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + body)

    assert status_of(answer) in (0, 400, 502)
    assert fast_world.upstream.requests == []


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    st.integers(min_value=1, max_value=9),
    st.binary(max_size=20),
)
def test_a_body_ends_where_its_last_chunk_ends(
    pieces: list[bytes], step: int, behind: bytes
) -> None:
    wire = b"".join(map(chunk, pieces)) + b"0\r\nX-T: y\r\n\r\n"
    data, body, found, used = wire + behind, Body(Framing.CHUNKED), b"", 0

    for at in range(0, len(data), step):
        found += body.feed(data[at : at + step])
        used += body.consumed

    assert (body.done, found, used) == (True, b"".join(pieces), len(wire))


@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_refused(data: bytes) -> None:
    found = None
    with contextlib.suppress(Malformed):
        found = parse_request(data + b"\r\n\r\n")

    assert found is None or found.target.startswith(b"/")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "localhost.evil.example:8750"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "LOCALHOST:8750", "Sec-Fetch-Site": "none"}, 200),
        ({"Host": "[::1]:8750", "Sec-Fetch-Mode": "cors"}, 200),
    ],
)
async def test_web_pages_and_other_names_are_refused(
    fast_world: ProxyWorld, headers: dict[str, str], status: int
) -> None:
    fast_world.upstream.will(chat("hi"))

    answered, _ = await fast_world.post(CHAT, {"messages": []}, headers=headers)

    assert answered == status


async def test_redirects_are_passed_back_and_not_followed(fast_world: ProxyWorld) -> None:
    moved = whole(b"", status="307 Moved", more="Location: http://127.0.0.1:1/\r\n")
    fast_world.upstream.will(moved)

    answer = await fast_world.send(fast_world.request("/openai/v1/models", method="GET"))

    assert status_of(answer) == 307
    assert b"Location: http://127.0.0.1:1/" in answer


async def test_a_path_of_no_upstream_says_which_there_are(file_store: Store) -> None:
    async with running(file_store, has_default=False) as world:
        status, body = await world.post("/v1/chat/completions", {})

    assert status == 404
    assert "/anthropic/, /openai/" in json.loads(body)["error"]["message"]


async def test_where_a_token_is_needed_it_stands_in_a_header_or_in_the_path(
    store: Store,
) -> None:
    good, reading = "sessionary_" + "a" * 64, "sessionary_" + "b" * 64
    for token, scope in ((good, Scope.WRITE), (reading, Scope.READ)):
        moment = Moment(SystemClock().now(), RandomIds())
        store.write(
            credentials.add_token, token, profile="main", scope=scope, moment=moment
        ).result()
    async with running(store, server=ServerOptions(needs_token=True)) as world:
        world.upstream.answer = lambda _: chat("hi")
        body = {"model": "gpt-5", "messages": [said("hello")]}

        found = [
            await world.post(CHAT, body),
            await world.post(CHAT, body, headers={"X-Sessionary-Token": "sessionary_" + "c" * 64}),
            await world.post(CHAT, body, headers={"X-Sessionary-Token": reading}),
            await world.post(f"/{good}/../openai/v1/chat/completions", body),
            await world.post(CHAT, body, headers={"X-Sessionary-Token": good}),
            await world.post(f"/{good}{CHAT}", body),
        ]
        await world.settle()

        assert [status for status, _ in found] == [401, 401, 401, 400, 200, 200]
        assert [request.target for request in world.upstream.requests] == [
            "/v1/chat/completions"
        ] * 2
        assert not any(good in str(request) for request in world.upstream.requests)
        assert len(world.heads()) == 2


def written_in(folder: Path) -> bytes:
    """All bytes of all files."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_keys_are_passed_on_and_are_nowhere_else(
    file_store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = {
        "Authorization": f"Bearer {KEY}",
        "X-Api-Key": "sk-ant-0123456789-abc",
        "Api-Key": "azure-0123456789-def",
        "Cookie": "session=cookie-0123456789; theme=dark",
        "Proxy-Authorization": "Basic cHJveHk6cHJveHk=",
    }
    told: list[str] = []
    async with running(file_store, told=told) as world:
        # An upstream that repeats the key in its error, and one that cannot be reached.
        echo = json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}"}}).encode()
        in_php = b'{"error": {"message": "no: tool\\/0123456789"}}'
        world.upstream.will(
            whole(echo, status="401 Unauthorized"), whole(in_php), chat(f"Your key is {KEY}")
        )
        asked = {
            "model": "m",
            "messages": [said(f"my key is {KEY}, sk-ant-0123456789-abc")],
            "user": KEY,
            "mcp_servers": [{"url": "https://a.example", "authorization_token": "mcp-0123456789"}],
            "tools": [
                {"type": "mcp", "authorization": "tool/0123456789"},
                {"type": "mcp", "headers": {"X-Auth": "head/0123456789", "X-Own": "harmless"}},
            ],
        }
        for _ in range(3):
            await world.post(f"{CHAT}?key=query-0123456789&api-version=1", asked, headers=secrets)
        await world.upstream.go_offline()
        _, refused = await world.post(f"{CHAT}?key=query-0123456789", asked, headers=secrets)
        await world.settle()
        status = json.dumps(world.proxy.service.status(), default=str)

        sent = world.upstream.requests[0]
        assert (sent.headers["authorization"], sent.headers["x-api-key"]) == (
            f"Bearer {KEY}",
            "sk-ant-0123456789-abc",
        )
        assert (sent.headers["cookie"], sent.headers["api-key"]) == (
            secrets["Cookie"],
            secrets["Api-Key"],
        )
        assert "proxy-authorization" not in sent.headers
        assert sent.target.endswith("?key=query-0123456789&api-version=1")
        assert len(world.heads()) == 1
    file_store.scrub()
    everything = written_in(tmp_path) + "".join((caplog.text, status, *told)).encode() + refused
    values = (
        KEY,
        "sk-ant-0123456789-abc",
        "azure-0123456789",
        "cookie-0123456789",
        "query-0123456789",
        "mcp-0123456789",
        "0123456789",
    )
    assert [value for value in values if value.encode() in everything] == []
    assert b"my key is [key], [key]" in everything


async def test_what_codex_says_of_its_turn_in_headers_and_body_is_no_key(
    fast_world: ProxyWorld,
) -> None:
    """Its body repeats a header of JSON: a key that consists of pieces of it would leave no JSON behind."""
    turn = json.dumps({"session_id": "01a1f636-969f-7823", "thread_source": "user", "mode": "x"})
    window = "01a1f636-969f-7823:0"
    told = {"x-codex-turn-metadata": turn, "x-codex-window-id": window}
    asked = {
        "model": "gpt-5",
        "prompt_cache_key": "01a1f636-969f-7823",
        "input": "what is in the notes?",
        "client_metadata": told,
    }
    answered = {"id": "resp_1", "model": "gpt-5", "status": "completed", "output": []}
    fast_world.upstream.will(whole(json.dumps(answered).encode()))

    await fast_world.post(
        "/openai/v1/responses", asked, headers={**told, "X-Access-Token": turn, "Cookie": turn}
    )
    await fast_world.settle()

    [head] = fast_world.heads()
    assert fast_world.texts(head)[0] == "what is in the notes?"


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        *((name, True) for name in ("Authorization", "X-Auth", "x-api-key", "apikey", "api_key")),
        *((name, True) for name in ("X-Amz-Security-Token", "access_token", "Set-Cookie", "sig")),
        *((name, True) for name in ("password", "X-Client-Secret", "code", "X-Goog-Api-Key")),
        *((name, False) for name in ("x-codex-window-id", "X-Claude-Code-Session-Id", "author")),
        *((name, False) for name in ("Idempotency-Key", "Content-Encoding", "keyboard", "signal")),
    ],
)
def test_the_name_of_a_header_tells_whether_it_holds_a_key(name: str, is_secret: bool) -> None:
    assert bool(SECRET_NAME.search(name.encode())) is is_secret


async def test_many_connections_and_slow_heads_do_not_stop_the_others(file_store: Store) -> None:
    async with running(file_store, server=ServerOptions(connections=20)) as world:
        world.upstream.answer = lambda _: chat("hi")
        idle = []
        for _ in range(19):
            reader, writer = await asyncio.open_connection("127.0.0.1", world.proxy.port)
            writer.write(b"POST /openai/v1/chat")
            idle.append((reader, writer))

        status, _ = await world.post(CHAT, {"messages": [said("hello")]})
        idle.append(await asyncio.open_connection("127.0.0.1", world.proxy.port))
        refused = await world.send(world.request(CHAT, {"messages": []}))

        assert (status, status_of(refused)) == (200, 503)
        for _, writer in idle:
            writer.close()


async def test_the_status_says_how_recording_is_doing(fast_world: ProxyWorld) -> None:
    fast_world.upstream.will(chat("hi"))
    await fast_world.ask(said("hello"))
    await fast_world.settle()

    answer = await fast_world.send(fast_world.request("/-/status", method="GET"))

    told = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert (told["is_recording"], told["recorded"], told["lost"]) == (True, 1, 0)
