"""Requests and responses pass byte for byte, in the pieces in which they come."""

import asyncio
import gzip
import itertools
import json
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from sessionary.model.turn import TurnState
from sessionary.proxy.server import ServerOptions
from sessionary.proxy.upstream import Upstream
from sessionary.store.database import Store
from tests.proxy.conftest import ProxyWorld, chat, chat_events, events, running, said
from tests.support.raw_upstream import CUT, RawRequest, Script, chunk, streamed, whole
from tests.support.tcp_server import TcpServer

EXCHANGES = 200
TEXTS = ("hello", "Zürich ✨ 東京 🏔️", "line\none\ttwo", '"quoted" \\ {json}', "data: [DONE]", "")
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"


@dataclass(frozen=True, slots=True)
class Recorded:
    """An exchange: what a client sends, and what the upstream answers, piece by piece."""

    target: str
    body: bytes
    script: Script
    headers: dict[str, str]


def recorded(rng: random.Random) -> Iterator[Recorded]:
    """Exchanges of all interfaces: whole and streamed, plain and compressed, with tools, thinking and errors."""
    for number in range(EXCHANGES):
        path = rng.choice((CHAT, RESPONSES, MESSAGES))
        text = rng.choice(TEXTS) + f" {number}"
        is_stream = rng.random() < 0.6
        asked: dict[str, Any] = {"model": "m", "stream": is_stream, "max_tokens": 7}
        asked["input" if path == RESPONSES else "messages"] = [said(text)]
        if rng.random() < 0.3:
            asked["tools"] = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
        body = json.dumps(asked, ensure_ascii=rng.random() < 0.5).encode()
        query = rng.choice(("", "?beta=true", "?api-version=2024-10-21&x=%20%C3%BC"))
        more = "X-Request-Id: req_1\r\nx-RateLimit-Remaining: 7\r\nSet-Cookie: a=b\r\nset-cookie: c=d\r\n"
        yield Recorded(
            path + query,
            body,
            _script(rng, path, text, is_stream, more),
            {"X-Own-Header": "Ünïcode"[:1] + "n"},
        )


def _script(rng: random.Random, path: str, text: str, is_stream: bool, more: str) -> Script:
    if rng.random() < 0.1:
        status = rng.choice(("400 Bad Request", "401 Unauthorized", "429 Slow down", "500 Oops"))
        return whole(b'{"error": {"message": "no", "type": "x"}}', status=status, more=more)
    content = b"".join(_events(path, text)) if is_stream else _body(path, text)
    coding = rng.choice(("", "", "gzip", "deflate"))
    if coding:
        content = gzip.compress(content) if coding == "gzip" else zlib.compress(content)
        more += f"Content-Encoding: {coding}\r\n"
    if not is_stream:
        return whole(content, more=more) if rng.random() < 0.7 else _until_close(content, more)
    # Chunks end anywhere: within characters, within events.
    cuts = sorted(rng.randrange(len(content) + 1) for _ in range(rng.randrange(1, 12)))
    ends = [0, *cuts, len(content)]
    pieces = [content[a:b] for a, b in itertools.pairwise(ends) if b > a]
    return streamed(pieces, more=more)


def _until_close(content: bytes, more: str) -> Script:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n{more}\r\n"
    return [head.encode(), content]


def _events(path: str, text: str) -> list[bytes]:
    if path == CHAT:
        return chat_events(text)
    if path == RESPONSES:
        response = json.loads(_body(path, text))
        piece = {"type": "response.output_text.delta", "output_index": 0, "delta": text}
        last = {"type": "response.completed", "response": response}
        return events((str(piece["type"]), piece), (last["type"], last))
    start = {
        "id": "msg",
        "role": "assistant",
        "model": "m",
        "content": [],
        "usage": {"input_tokens": 3},
    }
    block = {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "text", "text": ""},
    }
    delta = {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": text},
    }
    end = {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"output_tokens": 3},
    }
    found = (
        {"type": "message_start", "message": start},
        block,
        delta,
        end,
        {"type": "message_stop"},
    )
    return events(*((str(each["type"]), each) for each in found))


def _body(path: str, text: str) -> bytes:
    if path == CHAT:
        script = chat(text)[0]
        assert isinstance(script, bytes)
        return script.partition(b"\r\n\r\n")[2]
    if path == RESPONSES:
        part = {"type": "output_text", "text": text}
        item = {"type": "message", "role": "assistant", "content": [part]}
        return json.dumps(
            {"id": "r", "status": "completed", "model": "m", "output": [item]}
        ).encode()
    content = [{"type": "text", "text": text}]
    return json.dumps(
        {"id": "m", "model": "m", "content": content, "stop_reason": "end_turn"}
    ).encode()


async def exchange(port: int, prefix: str, one: Recorded) -> tuple[bytes, bytes]:
    """Send a request; return the head of the answer and its body as it was on the wire."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    headers = {"Host": "127.0.0.1", "Accept-Encoding": "gzip, deflate", **one.headers}
    lines = [f"POST {prefix}{one.target} HTTP/1.1", *(f"{a}: {b}" for a, b in headers.items())]
    head = "\r\n".join([*lines, f"Content-Length: {len(one.body)}", "", ""]).encode("latin-1")
    writer.write(head + one.body)
    answer = await reader.readuntil(b"\r\n\r\n")
    lower = answer.lower()
    if b"transfer-encoding: chunked" in lower:
        found = b""
        while size := int(await reader.readline(), 16):
            found += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    elif b"content-length" in lower:
        found = await reader.readexactly(int(lower.split(b"content-length:")[1].split()[0]))
    else:
        found = await reader.read()
    writer.close()
    return answer, found


def end_to_end(head: bytes) -> list[bytes]:
    """The status and the headers that are not about one connection."""
    dropped = (b"connection:", b"transfer-encoding:")
    return [line for line in head.split(b"\r\n") if not line.lower().startswith(dropped)]


async def test_200_exchanges_are_the_same_with_and_without_the_proxy(
    fast_world: ProxyWorld,
) -> None:
    world, rng = fast_world, random.Random(7)
    upstream = int(world.upstream.url.rpartition(":")[2])
    different = 0

    for one in recorded(rng):
        world.upstream.will(one.script, one.script)
        direct = await exchange(upstream, "", one)
        passed = await exchange(world.proxy.port, "/openai", one)
        first, second = world.upstream.requests[-2:]
        different += (
            (end_to_end(direct[0]), direct[1]) != (end_to_end(passed[0]), passed[1])
            or first.body != second.body
            or first.target != second.target
            or first.headers["x-own-header"] != second.headers["x-own-header"]
        )
    await world.settle()

    recorder = world.proxy.service.recorder.status
    print(f"exchanges={EXCHANGES} different={different} recorded={recorder.recorded}")
    assert (different, recorder.recorded, recorder.failed) == (0, EXCHANGES, 0)
    texts = [text for head in world.heads() for text in world.texts(head)]
    assert any("Zürich ✨ 東京 🏔️" in text for text in texts)
    unread = [
        part
        for head in world.heads()
        for message in world.messages(head)
        for part in world.unknown(message)
        if part["type"].startswith("proxy_")
    ]
    assert unread == []


async def test_the_pieces_of_a_stream_come_when_the_upstream_sends_them(
    fast_world: ProxyWorld,
) -> None:
    world, more = fast_world, asyncio.Event()
    first, *rest = chat_events("one two")
    script = streamed([first])[:-1]
    world.upstream.will([*script, more, *map(chunk, rest), chunk(b"")])
    reader, writer = await asyncio.open_connection("127.0.0.1", world.proxy.port)
    body = {"model": "gpt-5", "stream": True, "messages": [said("go")]}

    writer.write(world.request("/openai" + CHAT, body))
    # The upstream sends the rest only after the client has the first piece.
    assert first in await reader.readuntil(first)
    more.set()

    assert (await reader.read()).endswith(b"0\r\n\r\n")
    writer.close()


async def test_what_is_not_asked_of_a_model_passes_unrecorded(fast_world: ProxyWorld) -> None:
    world = fast_world
    models = b'{"object": "list", "data": []}'
    world.upstream.will(whole(models), whole(b'{"input_tokens": 7}'), *[whole(b"[1.0]")] * 2)

    listed = await world.send(world.request("/openai/v1/models", method="GET"))
    counted = await world.post("/anthropic/v1/messages/count_tokens", {"messages": []})
    vectors = await world.post("/openai/v1/embeddings", {"input": "x"})
    await world.post("/openai/v1/threads/t_1/messages", {"role": "user", "content": "x"})
    await world.settle()

    assert listed.endswith(models)
    assert (counted, vectors) == ((200, b'{"input_tokens": 7}'), (200, b"[1.0]"))
    assert world.heads() == []


async def test_paths_without_a_name_go_to_the_upstream_without_a_name(
    fast_world: ProxyWorld,
) -> None:
    fast_world.upstream.will(chat("hi"))

    await fast_world.post("/v1/chat/completions?a=%2e%2E%C3%BC&b", {"model": "m", "messages": []})

    assert fast_world.upstream.requests[0].target == "/base/v1/chat/completions?a=%2e%2E%C3%BC&b"


async def test_the_name_of_a_model_may_have_a_slash_in_it(fast_world: ProxyWorld) -> None:
    fast_world.upstream.will(whole(b"{}"))

    await fast_world.send(fast_world.request("/openai/v1/models/meta%2Fllama-3", method="GET"))

    assert fast_world.upstream.requests[0].target == "/v1/models/meta%2Fllama-3"


async def test_an_answer_that_begins_within_the_request_is_recorded_with_all_of_the_request(
    file_store: Store,
) -> None:
    question = "many words " * 20_000
    first, *rest = chat_events("fine")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        writer.write(b"".join(p for p in streamed([first])[:-1] if isinstance(p, bytes)))
        await reader.readexactly(length)
        writer.write(b"".join(map(chunk, (*rest, b""))))
        await writer.drain()
        await reader.read()

    async with (
        TcpServer(serve) as early,
        running(file_store, more={None: Upstream(None, f"http://127.0.0.1:{early.port}")}) as world,
    ):
        body = {"model": "gpt-5", "stream": True, "messages": [said(question)]}
        request = world.request(CHAT, body)
        reader, writer = await asyncio.open_connection("127.0.0.1", world.proxy.port)
        half = len(request) // 2
        writer.write(request[:half])
        await reader.readuntil(first)
        writer.write(request[half:])
        assert b"[DONE]" in await reader.read()
        writer.close()
        await world.settle()

        [head] = world.heads()
        assert world.texts(head) == [question, "fine"]
        status = world.proxy.service.journal.status
        assert (status.passing, status.passed) == (0, 1)


async def test_what_comes_behind_the_last_event_of_a_stream_takes_no_memory(
    file_store: Store,
) -> None:
    async with running(file_store, memory_bytes=200_000) as world:
        for number in range(12):
            goes_on = asyncio.Event()
            *head, last = streamed(chat_events("hi"))
            world.upstream.will([*head, goes_on, chunk(b": nothing\n\n" * 900), last])
            reader, writer = await asyncio.open_connection("127.0.0.1", world.proxy.port)
            body = {"stream": True, "messages": [said(f"question {number}")]}
            writer.write(world.request("/openai" + CHAT, body))
            await reader.readuntil(b"[DONE]")
            goes_on.set()
            assert (await reader.read()).endswith(chunk(b""))
            writer.close()
        world.upstream.will(chat("words " * 20_000))
        await world.ask(said("a long answer?"))
        await world.settle()

        assert world.texts(world.heads()[-1])[-1] == "words " * 20_000


async def test_a_client_of_http_1_0_is_not_told_to_go_on(fast_world: ProxyWorld) -> None:
    fast_world.upstream.will(whole(b"{}"))

    answer = await fast_world.send(
        b"POST /openai/v1/embeddings HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}"
    )

    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_bodies_in_chunks_pass_in_chunks_and_a_client_that_asks_is_told_to_go_on(
    fast_world: ProxyWorld,
) -> None:
    world = fast_world
    world.upstream.will(chat("hi"))
    body = json.dumps({"model": "gpt-5", "messages": [said("hello")]}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", world.proxy.port)

    writer.write(
        b"POST /openai/v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    for at in range(0, len(body), 7):
        writer.write(chunk(body[at : at + 7]))
        await writer.drain()
    writer.write(b"0\r\nX-Trailer: yes\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    await world.settle()

    assert head.startswith(b"HTTP/1.1 200")
    assert world.upstream.requests[0].body == body
    assert "expect" not in world.upstream.requests[0].headers
    assert world.texts(world.heads()[0]) == ["hello", "hi"]


async def test_connections_are_used_again(fast_world: ProxyWorld) -> None:
    world = fast_world
    reader, writer = await asyncio.open_connection("127.0.0.1", world.proxy.port)
    for number in range(3):
        world.upstream.will(chat(f"answer {number}"))
        body = json.dumps({"model": "gpt-5", "messages": [said(f"question {number}")]}).encode()
        writer.write(
            b"POST /openai/v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"
            % (len(body), body)
        )
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split()[0])
        assert f"answer {number}".encode() in await reader.readexactly(length)
    writer.close()


async def test_a_large_body_passes_whole_and_is_recorded_as_far_as_it_may_be(
    file_store: Store,
) -> None:
    words = "many words " * 60_000
    async with running(file_store, copy_bytes=100_000) as world:
        world.upstream.answer = lambda request: whole(
            json.dumps({"echo": request.json["messages"][0]}).encode()
        )

        status, answer = await world.post("/openai" + CHAT, {"messages": [said(words)]})
        await world.settle()

    assert status == 200
    assert json.loads(answer)["echo"]["content"] == words
    [head] = world.heads()
    kinds = [each["type"] for m in world.messages(head) for each in world.unknown(m)]
    assert kinds == ["proxy_request", "proxy_response", "proxy_incomplete"]
    told = world.unknown(world.messages(head)[1])[1]
    assert told["request_bytes"] > len(words)


@pytest.mark.parametrize("coding", ["br", "br, gzip;q=0.5", "zstd, deflate"])
async def test_only_codings_that_can_be_recorded_are_asked_for(
    fast_world: ProxyWorld, coding: str
) -> None:
    fast_world.upstream.will(chat("hi"), whole(b"{}"))

    await fast_world.ask(said("x"), headers={"Accept-Encoding": coding})
    await fast_world.send(
        fast_world.request("/openai/v1/models", method="GET", headers={"Accept-Encoding": coding})
    )

    recorded_one, other = fast_world.upstream.requests
    kept = [each for each in coding.split(", ") if each.startswith(("gzip", "deflate"))]
    assert recorded_one.headers["accept-encoding"] == (", ".join(kept) or "identity")
    assert other.headers["accept-encoding"] == coding


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ([CUT], 502),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", CUT], 502),
        ([b"not http at all\r\n\r\n", CUT], 502),
        ([b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000 + b"\r\n\r\n", CUT], 502),
    ],
    ids=["closed", "two lengths", "not http", "huge head"],
)
async def test_an_upstream_that_gives_no_answer_is_an_error_in_the_clients_shape(
    fast_world: ProxyWorld, answer: Script, status: int
) -> None:
    fast_world.upstream.answer = lambda _: answer

    theirs = await fast_world.post("/anthropic" + MESSAGES, {"messages": [said("hello")]})
    ours = await fast_world.post("/openai" + CHAT, {"messages": [said("hello")]})
    await fast_world.settle()

    assert (theirs[0], json.loads(theirs[1])["type"]) == (status, "error")
    assert (ours[0], json.loads(ours[1])["error"]["type"]) == (status, "server_error")
    assert [fast_world.texts(head)[0] for head in fast_world.heads()] == ["hello", "hello"]


async def test_an_upstream_that_cannot_be_reached_is_a_bad_gateway(fast_world: ProxyWorld) -> None:
    await fast_world.upstream.go_offline()

    status, body = await fast_world.post("/openai" + CHAT, {"messages": [said("hello")]})

    assert status == 502
    assert "cannot be reached" in json.loads(body)["error"]["message"]


async def test_an_upstream_that_hangs_up_within_a_request_is_a_bad_gateway(
    file_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    async with (
        TcpServer(hang_up) as rude,
        running(file_store, more={None: Upstream(None, f"http://127.0.0.1:{rude.port}")}) as world,
    ):
        status, _ = await world.post(CHAT, {"messages": [said("many words " * 500_000)]})

    assert status == 502
    assert caplog.text == ""  # nothing was written to a connection that is closed


async def test_a_body_that_breaks_off_is_not_made_to_look_whole(fast_world: ProxyWorld) -> None:
    fast_world.upstream.will([b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", CUT])

    answer = await fast_world.send(fast_world.request("/openai" + CHAT, {"messages": []}))

    assert b"Content-Length: 100" in answer or answer == b""
    assert len(answer.partition(b"\r\n\r\n")[2]) < 100


async def test_a_body_without_a_length_that_stops_coming_is_not_made_to_look_whole(
    file_store: Store,
) -> None:
    async with running(file_store, server=ServerOptions(idle_seconds=0.3)) as world:
        world.upstream.will([b"HTTP/1.1 200 OK\r\n\r\nhalf", asyncio.Event()])

        answer = await world.send(world.request("/openai" + CHAT, {"messages": [said("hello")]}))
        await world.settle()

        assert not answer.endswith(chunk(b""))
        [turn] = world.turns(world.heads()[0])
        assert turn.state is TurnState.INTERRUPTED


def test_a_raw_request_tells_its_target() -> None:
    assert RawRequest(b"GET /a?b HTTP/1.1\r\nX: y", b"").target == "/a?b"
