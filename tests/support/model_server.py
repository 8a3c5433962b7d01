"""A fake model server on loopback that speaks OpenAI's (chat completions and responses), Anthropic's
and Gemini's wire formats, streamed or whole.

    async with ModelServer() as server:
        server.will(Reply("Hello"), Refusal(429, retry_after=1), Reply(calls=(Call("look"),)))

Each request takes the next answer, then `otherwise` if that is set; `requests` keeps them all. Requests to
count tokens are answered by themselves.

A server with a `window` refuses longer requests with the provider's own error, without using up an answer, and reports
in its answers what it counted (`Ask.tokens`) instead of what their script says.
"""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Self

from tests.support.model_gemini import (
    gemini_error,
    gemini_messages,
    gemini_stream,
    gemini_too_long,
    gemini_whole,
)
from tests.support.model_responses import (
    responses_messages,
    responses_stream,
    responses_too_long,
    responses_whole,
)
from tests.support.model_script import (
    Answer,
    Call,
    Piece,
    Refusal,
    Reply,
    Tokens,
    anthropic_error,
    anthropic_stream,
    anthropic_too_long,
    anthropic_whole,
    count_tokens,
    counted,
    openai_error,
    openai_stream,
    openai_too_long,
    openai_whole,
)
from tests.support.tcp_server import TcpServer

__all__ = ["Answer", "Ask", "Call", "ModelServer", "Refusal", "Reply", "Tokens"]

_GEMINI_STREAM = ":streamGenerateContent"
_GEMINI = (":generateContent", _GEMINI_STREAM)
_COUNTS = {"/count_tokens": "input_tokens", ":countTokens": "totalTokens"}
_ANY_COUNT = 10
_REASONS = {200: "OK", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}


@dataclass(frozen=True, slots=True)
class Ask:
    """A request as it came."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    method: str = "POST"
    # The body, byte for byte.
    raw: bytes = b""

    @property
    def tokens(self) -> int:
        """How many tokens were sent, by the rule of `count_tokens`."""
        return count_tokens(self.body)

    @property
    def is_streamed(self) -> bool:
        """Whether the answer is to come in pieces."""
        return bool(self.body.get("stream")) or self.path.endswith(_GEMINI_STREAM)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What the model was to read."""
        if self.path.endswith(_GEMINI):
            return gemini_messages(self.body)
        if self.path.endswith("/responses"):
            return responses_messages(self.body)
        found: list[dict[str, Any]] = self.body.get("messages", [])
        return found


class ModelServer:
    """Gives the answers that a test has set; it stops at the end of its `async with` block."""

    def __init__(self, window: int | None = None) -> None:
        # How many tokens a request may have; None: any number.
        self.window = window
        self.requests: list[Ask] = []
        self.otherwise: Answer | Callable[[Ask], Answer] | None = None
        # Awaited with "asked" before each answer, and with "streaming" when half of its text is sent. A ConnectionError
        # breaks the connection off.
        self.at_moment: Callable[[Ask, str], Awaitable[None]] | None = None
        # Set once a client has gone away in the middle of an answer.
        self.broken_off = asyncio.Event()
        self._answers: deque[Answer] = deque()
        self._ids = count(1)
        self._server = TcpServer(self._talk)

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self._server.__aexit__(*failure)

    @property
    def url(self) -> str:
        """Where Anthropic's clients look for it."""
        return f"http://127.0.0.1:{self._server.port}"

    @property
    def openai_url(self) -> str:
        """Where OpenAI's clients look for it."""
        return f"{self.url}/v1"

    def will(self, *answers: Answer) -> None:
        """Give these answers to the next requests."""
        self._answers.extend(answers)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (ask := await _read(reader)) is not None:
                if not await self._answer(ask, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            self.broken_off.set()

    async def _answer(self, ask: Ask, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether the connection may go on."""
        if field := next((_COUNTS[end] for end in _COUNTS if ask.path.endswith(end)), None):
            tokens = _ANY_COUNT if self.window is None else ask.tokens
            _write_whole(writer, 200, {field: tokens}, {})
            await writer.drain()
            return True
        self.requests.append(ask)
        if self.window is not None and ask.tokens > self.window and _is_for_model(ask):
            _write_whole(writer, 400, _too_long(ask)(ask.tokens, self.window), {})
            await writer.drain()
            return True
        answer = self._next(ask)
        if self.at_moment is not None:
            await self.at_moment(ask, "asked")
        if isinstance(answer, Refusal):
            if answer.status == 0:
                return False
            body = _error(ask)(answer)
            wait = {} if answer.retry_after is None else {"retry-after": f"{answer.retry_after:g}"}
            _write_whole(
                writer,
                answer.status,
                body,
                wait | dict(answer.headers),
                is_head=ask.method == "HEAD",
            )
            await writer.drain()
            return True
        model = answer.model or str(ask.body.get("model") or _model_in(ask.path))
        named = {"model": model, "response_id": f"fake-{next(self._ids)}"}
        if self.window is not None:
            answer = counted(answer, ask.tokens)
        if not ask.is_streamed:
            _write_whole(writer, 200, _whole(ask)(answer, **named), {})
            await writer.drain()
            return True
        pieces = list(_stream(ask)(answer, **named))
        if self.at_moment is None:
            return await _write_stream(writer, pieces, answer)
        return await _write_stream(
            writer, pieces, answer, partial(self.at_moment, ask, "streaming")
        )

    def _next(self, ask: Ask) -> Answer:
        if not _is_for_model(ask):
            return Refusal(404, f"there is no {ask.path} here")
        if self._answers:
            return self._answers.popleft()
        if self.otherwise is None:
            return Refusal(400, "the script of this server has no further answer")
        return self.otherwise(ask) if callable(self.otherwise) else self.otherwise


def _is_for_model(ask: Ask) -> bool:
    return ask.path.endswith(("/chat/completions", "/responses", "/messages", *_GEMINI))


def _stream(ask: Ask) -> Callable[..., Iterator[Piece]]:
    if ask.path.endswith(_GEMINI):
        return gemini_stream
    if ask.path.endswith("/responses"):
        return responses_stream
    return anthropic_stream if ask.path.endswith("/messages") else openai_stream


def _whole(ask: Ask) -> Callable[..., dict[str, Any]]:
    if ask.path.endswith(_GEMINI):
        return gemini_whole
    if ask.path.endswith("/responses"):
        return responses_whole
    return anthropic_whole if ask.path.endswith("/messages") else openai_whole


def _error(ask: Ask) -> Callable[[Refusal], dict[str, Any]]:
    if ask.path.endswith(_GEMINI):
        return gemini_error
    return anthropic_error if ask.path.endswith("/messages") else openai_error


def _too_long(ask: Ask) -> Callable[[int, int], dict[str, Any]]:
    if ask.path.endswith(_GEMINI):
        return gemini_too_long
    if ask.path.endswith("/responses"):
        return responses_too_long
    return anthropic_too_long if ask.path.endswith("/messages") else openai_too_long


def _model_in(path: str) -> str:
    """Gemini's clients name the model in the path."""
    return path.rpartition("/")[2].partition(":")[0] if path.endswith(_GEMINI) else "fake"


async def _read(reader: asyncio.StreamReader) -> Ask | None:
    head = await reader.readline()
    if not head:
        return None
    method, target, *_ = head.decode().split(" ")
    headers: dict[str, str] = {}
    while (line := (await reader.readline()).decode().strip()) != "":
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("transfer-encoding") == "chunked":
        raw = await _read_chunks(reader)
    else:
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
    return Ask(target.partition("?")[0], headers, _object(raw), method, raw)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    chunks = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        chunks.append(await reader.readexactly(size))
        await reader.readline()
    while (await reader.readline()).strip():
        pass
    return b"".join(chunks)


def _object(raw: bytes) -> dict[str, Any]:
    """What a request says; tools also send what is no JSON, to places that are not here."""
    try:
        found = json.loads(raw) if raw else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _write_head(writer: asyncio.StreamWriter, status: int, headers: Mapping[str, str]) -> None:
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Answer')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode())


def _write_whole(
    writer: asyncio.StreamWriter,
    status: int,
    body: dict[str, Any],
    headers: Mapping[str, str],
    *,
    is_head: bool = False,
) -> None:
    data = json.dumps(body).encode()
    known = {"content-type": "application/json", "content-length": str(len(data))}
    _write_head(writer, status, known | dict(headers))
    if not is_head:
        writer.write(data)


async def _write_stream(
    writer: asyncio.StreamWriter,
    body: list[Piece],
    reply: Reply,
    at_half: Callable[[], Awaitable[None]] | None = None,
) -> bool:
    if reply.close_after is not None:
        return await _write_closed_stream(writer, body, reply.close_after)
    _write_head(writer, 200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
    sent, half = 0, sum(piece.has_text for piece in body) // 2
    for piece in body:
        if reply.cut_after is not None and sent >= reply.cut_after:
            writer.transport.abort() if reply.cut_after == 0 else writer.close()
            return False
        if piece.has_text:
            sent += 1
            if reply.pause:
                await asyncio.sleep(reply.pause)
        data = piece.data.encode()
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await writer.drain()
        if piece.has_text and sent == half and at_half is not None:
            await at_half()
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


async def _write_closed_stream(writer: asyncio.StreamWriter, body: list[Piece], last: int) -> bool:
    """A stream that ends with the connection, closed after this number of text pieces."""
    _write_head(writer, 200, {"content-type": "text/event-stream", "connection": "close"})
    sent = 0
    for piece in body:
        if piece.has_text and sent == last:
            break
        sent += piece.has_text
        # Nothing behind the words: no end of the block, no finish reason.
        if not piece.has_text and sent:
            break
        writer.write(piece.data.encode())
        await writer.drain()
    return False
