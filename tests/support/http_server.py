"""A small HTTP server on loopback for fakes: a function answers, faults can be ordered."""

import asyncio
import email
import email.policy
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from tests.support.tcp_server import TcpServer


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        """The fields of a form, or of a JSON object."""
        kind = self.headers.get("content-type", "")
        if kind.startswith("application/json"):
            return dict(json.loads(self.body or b"{}"))
        if kind.startswith("multipart/"):
            return {name: data.decode() for name, file, data in self._pieces() if file is None}
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))

    @property
    def files(self) -> list[tuple[str, bytes]]:
        """The files of a form: their names and bytes."""
        return [(file, data) for _, file, data in self._pieces() if file is not None]

    def _pieces(self) -> Iterator[tuple[str, str | None, bytes]]:
        kind = self.headers.get("content-type", "")
        if not kind.startswith("multipart/"):
            return
        head = f"content-type: {kind}\r\n\r\n".encode()
        parsed = email.message_from_bytes(head + self.body, policy=email.policy.HTTP)
        for piece in parsed.iter_parts():
            name = str(piece.get_param("name", header="content-disposition"))
            data = piece.get_payload(decode=True)
            yield name, piece.get_filename(), data if isinstance(data, bytes) else b""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer; status 0 breaks the connection instead."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


LOST = Response(0)
Answering = Callable[[Request], Awaitable[Response]]


def json_response(value: Any, status: int = 200, **headers: str) -> Response:
    """An answer in JSON."""
    given = {"content-type": "application/json", **headers}
    return Response(status, json.dumps(value).encode(), given)


class HttpServer(TcpServer):
    """Answers requests, one after the other on each connection."""

    def __init__(self, answer: Answering) -> None:
        super().__init__(self._converse)
        self._answer = answer

    @property
    def url(self) -> str:
        """Where it is found."""
        return f"http://127.0.0.1:{self.port}"

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await _read(reader)) is not None:
            response = await self._answer(request)
            if response.status == 0:
                writer.transport.abort()
                return
            _write(writer, response)
            await writer.drain()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    head = await reader.readline()
    if not head:
        return None
    method, target, _ = head.decode().split(" ", 2)
    path, _, query = target.partition("?")
    headers: dict[str, str] = {}
    while (line := (await reader.readline()).decode("latin-1").strip()) != "":
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, unquote(path), dict(parse_qsl(query)), headers, body)


def _write(writer: asyncio.StreamWriter, response: Response) -> None:
    lines = [f"HTTP/1.1 {response.status} Answer", f"content-length: {len(response.body)}"]
    lines += [f"{name}: {value}" for name, value in response.headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + response.body)
