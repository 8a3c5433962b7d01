"""signal-cli's daemon on loopback, over a socket and over HTTP at one port.

Like the real one in manual mode, it fetches messages only while a client listens, and a message
that was sent to one is gone. Over HTTP its events are numbered: a client resumes after the last it had.
"""

import asyncio
import base64
import itertools
import json
from collections import deque
from typing import Any, Self

from sessionary.channels.signal import daemon_at
from sessionary.channels.signal.adapter import SignalAdapter
from sessionary.channels.signal.inbound import SignalOptions
from sessionary.model.source import Channel
from tests.support.tcp_server import TcpServer

ACCOUNT, ACCOUNT_UUID = "+15550783881", "aaaaaaaa-0000-4000-8000-00000000b070"
KNOWN, KNOWN_UUID = "+16505551234", "bbbbbbbb-0000-4000-8000-000000000ada"
GROUP = {"groupId": "Pmpi+EfPWmsxiomLe9Nx2XF9HOE483p6iKiFj65iMwI=", "groupName": "Lunch"}
OUR_MENTION = {"start": 0, "length": 1, "uuid": ACCOUNT_UUID, "number": None, "name": "Bot"}
LARGEST_FILE = 64 * 1024
_BEGAN = 1_700_000_000_000
_LINE_LIMIT = 1024 * 1024

Json = dict[str, Any]


class FakeSignal:
    """A `sessionary.testing.channel_world.PlatformDriver`."""

    name = "signal"
    chat = Channel("signal", KNOWN_UUID)
    known = KNOWN
    acknowledges = False
    largest_file: int | None = LARGEST_FILE
    largest_sent = LARGEST_FILE

    def __init__(self, scheme: str = "tcp") -> None:
        self.sent: list[Json] = []
        self.typing: list[Json] = []
        self.files: dict[str, bytes] = {}
        self.options = SignalOptions(
            largest_file=LARGEST_FILE, largest_sent=LARGEST_FILE, pause_seconds=0.01
        )
        self.downloads = 0
        self.listeners = 0
        self.last_event_ids: list[str | None] = []
        self._scheme = scheme
        self._events: list[Json] = []
        self._sent_events = 0
        self._came = asyncio.Event()
        self._faults: deque[Json] = deque()
        self._lost = 0
        self._revoked = False
        self._ids = itertools.count(1)
        self._server = TcpServer(self._talk, line_limit=_LINE_LIMIT)
        self.go_online = self._server.go_online
        self.go_offline = self._server.go_offline
        self.cut = self._server.cut

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self._server.__aexit__(*failure)

    @property
    def address(self) -> str:
        """What `address` is set to."""
        return f"{self._scheme}://127.0.0.1:{self._server.port}"

    def adapter(self) -> SignalAdapter:
        """A fresh adapter, not yet connected."""
        daemon = daemon_at(self.address, ACCOUNT, self.options.largest_file)
        return SignalAdapter(daemon, ACCOUNT, self.options)

    async def says(
        self, text: str, *, number: int, person: str | None = None, file: bytes | None = None
    ) -> None:
        """A person writes in their direct chat."""
        data = data_message(text, number=number)
        if file is not None:
            data["attachments"] = [self.keep(file, "application/pdf", "a.pdf")]
        self.tell(envelope(person, dataMessage=data))

    def keep(self, data: bytes, media_type: str, name: str) -> Json:
        """Store a file that someone sent; return what a message says about it."""
        id = f"file-{next(self._ids)}"
        self.files[id] = data
        return {"id": id, "contentType": media_type, "filename": name, "size": len(data)}

    def tell(self, given: Json) -> None:
        """An event comes from Signal; it waits until a client listens."""
        self._events.append({"envelope": given, "account": ACCOUNT})
        self._came.set()

    def acknowledged(self, number: int) -> bool:
        """Always false: the daemon gets no acknowledgements."""
        return False

    def seen(self) -> list[str]:
        """What the known person reads."""
        return [each["message"] for each in self._to_known() if each["message"]]

    def given(self) -> list[tuple[str, bytes]]:
        """The files that the known person got."""
        found = []
        for uri in (uri for each in self._to_known() for uri in each.get("attachments", ())):
            about, _, data = uri.partition(";base64,")
            found.append((about.partition(";filename=")[2], base64.b64decode(data)))
        return found

    def fetched(self) -> int:
        """How many files the bot has asked for."""
        return self.downloads

    def _to_known(self) -> list[Json]:
        mine = ([KNOWN_UUID], [KNOWN])
        return [each for each in self.sent if each.get("recipient") in mine]

    def refuse(self, status: int, *, retry_after: float | None = None, times: int = 1) -> None:
        """Answer the next sendings as signal-cli does when Signal takes no more, or is ill."""
        result = {"type": "RATE_LIMIT_FAILURE", "retryAfterSeconds": retry_after}
        if status == 429:
            self.refuse_with(-5, "Failed to send message due to rate limiting", result, times)
        else:
            self.refuse_with(-3, f"Failed to send message: [{status}] Bad response", None, times)

    def refuse_with(
        self, code: int, message: str, result: Json | None = None, times: int = 1
    ) -> None:
        """Answer the next sendings with an error."""
        response = None if result is None else {"response": {"timestamp": 1, "results": [result]}}
        self._faults.extend([{"code": code, "message": message, "data": response}] * times)

    def lose_answers(self, times: int = 1) -> None:
        """Send the next messages, and break the connection."""
        self._lost += times

    def revoke(self) -> None:
        """Signal has forgotten the account."""
        self._revoked = True

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while first := await reader.readline():
            if first.startswith(b"{"):
                await self._line(first, writer)
            else:
                await self._request(first, reader, writer)

    async def _line(self, line: bytes, writer: asyncio.StreamWriter) -> None:
        asked = json.loads(line)
        if asked["method"] == "subscribeReceive":
            _write_line(writer, {"jsonrpc": "2.0", "result": 0, "id": asked["id"]})
            await self._send_events(writer, self._sent_events, is_http=False)
            return
        answer = self._answer(asked)
        if answer is None:
            writer.transport.abort()
            raise ConnectionError
        _write_line(writer, answer)

    async def _request(
        self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        headers: dict[str, str] = {}
        while (line := (await reader.readline()).decode("latin-1").strip()) != "":
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        if first.startswith(b"GET"):
            last = headers.get("last-event-id")
            self.last_event_ids.append(last)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n:\n\n")
            await self._send_events(
                writer, self._sent_events if last is None else int(last), is_http=True
            )
            return
        answer = self._answer(json.loads(body))
        if answer is None:
            writer.transport.abort()
            raise ConnectionError
        data = json.dumps(answer).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(data) + data)
        await writer.drain()

    async def _send_events(
        self, writer: asyncio.StreamWriter, position: int, *, is_http: bool
    ) -> None:
        """Send what waits and what comes, until the connection is cut."""
        self.listeners += 1
        try:
            while True:
                # Before looking: an event that comes while we write below sets it again.
                self._came.clear()
                for event in self._events[position:]:
                    position += 1
                    if is_http:
                        writer.write(
                            f"event:receive\nid:{position}\ndata:{json.dumps(event)}\n\n".encode()
                        )
                    else:
                        params = {"subscription": 0, "result": event}
                        _write_line(
                            writer, {"jsonrpc": "2.0", "method": "receive", "params": params}
                        )
                    self._sent_events = max(self._sent_events, position)
                await writer.drain()
                await self._came.wait()
        finally:
            self.listeners -= 1

    def _answer(self, asked: Json) -> Json | None:
        """The answer to a call, or None to break the connection."""
        base = {"jsonrpc": "2.0", "id": asked["id"]}
        result = self._result(asked["method"], asked["params"])
        if result is None:
            return None
        return {**base, **result}

    def _result(self, method: str, params: Json) -> Json | None:
        if self._revoked:
            return _error(-1, f"User {ACCOUNT} is not registered.")
        if params.pop("account", None) != ACCOUNT:
            return _error(-1, "Specified account does not exist")
        match method:
            case "version":
                return {"result": {"version": "0.13.24"}}
            case "getUserStatus":
                status = {"number": ACCOUNT, "uuid": ACCOUNT_UUID, "isRegistered": True}
                return {"result": [{"recipient": ACCOUNT, **status}]}
            case "getAttachment":
                self.downloads += 1
                data = self.files.get(params["id"])
                if data is None:
                    return _error(-1, "Could not find attachment with ID: " + params["id"])
                return {"result": {"data": base64.b64encode(data).decode()}}
            case "sendTyping":
                self.typing.append(params)
                return {"result": {"timestamp": 1}}
            case "send":
                return self._take(params)
            case _:
                return _error(-32601, "Method not implemented")

    def _take(self, params: Json) -> Json | None:
        if self._faults:
            return {"error": self._faults.popleft()}
        if not params["message"] and not params.get("attachments"):
            return _error(-1, "No message specified")
        self.sent.append(params)
        if self._lost:
            self._lost -= 1
            return None
        return {"result": {"timestamp": self.last_sent_at, "results": [{"type": "SUCCESS"}]}}

    @property
    def last_sent_at(self) -> int:
        """The time of the bot's last message: Signal names a message by it."""
        return _BEGAN + len(self.sent)


def data_message(text: str | None, *, number: int, **more: Any) -> Json:
    """What someone wrote, as signal-cli puts it."""
    sent = _BEGAN + number
    return {"timestamp": sent, "message": text, "expiresInSeconds": 0, "viewOnce": False, **more}


def envelope(person: str | None = None, **content: Any) -> Json:
    """What signal-cli tells of a message of the known person, or of another."""
    uuid = KNOWN_UUID if person is None else f"cccccccc-0000-4000-8000-{person:0>12}"
    return {
        "source": person or KNOWN,
        "sourceNumber": person or KNOWN,
        "sourceUuid": uuid,
        "sourceName": "Ada",
        "sourceDevice": 1,
        "timestamp": _BEGAN,
        **content,
    }


def _error(code: int, message: str) -> Json:
    return {"error": {"code": code, "message": message, "data": None}}


def _write_line(writer: asyncio.StreamWriter, value: Json) -> None:
    writer.write(json.dumps(value).encode() + b"\n")
