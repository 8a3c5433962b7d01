"""Answers to programs: kept until the program asks, or called back with a signature."""

import hashlib
import hmac
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from sessionary.channels import registry
from sessionary.channels.api import ApiAdapter
from sessionary.errors import BadInput, RetryLater, Unreachable
from sessionary.model.message import Text
from sessionary.model.source import Channel
from sessionary.model.turn import Delivery, DeliveryState
from sessionary.testing.fakes import START, FakeClock

SECRET = b"a secret of some length"


class Program:
    """A program that is called back."""

    def __init__(self) -> None:
        self.calls: list[tuple[dict[str, str], bytes]] = []
        self.status = 200
        self.headers: dict[str, str] = {}
        program = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                program.calls.append((dict(self.headers), raw))
                self.send_response(program.status)
                for name, value in program.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/answers?for=me"


@pytest.fixture
def program() -> Iterator[Program]:
    made = Program()
    thread = Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def delivery(text: str = "the answer") -> Delivery:
    at = datetime(2026, 3, 2, tzinfo=UTC)
    channel = Channel("api", "ada")
    state = DeliveryState.SENDING
    return Delivery(1, "d1", "main", channel, "s1", "t1", (Text(text),), state, 1, 0, at, at)


async def test_without_a_call_back_address_the_answer_is_only_kept() -> None:
    sent = await ApiAdapter(FakeClock()).send(delivery())

    assert sent.platform_message_id is None


async def test_a_call_back_carries_the_answer_and_proves_who_sent_it(program: Program) -> None:
    adapter = ApiAdapter(FakeClock(), callback_url=program.url, secret=SECRET)

    await adapter.send(delivery())

    ((headers, raw),) = program.calls
    at = str(int(START.timestamp()))
    wanted = hmac.new(SECRET, at.encode() + b"." + raw, hashlib.sha256).hexdigest()
    assert headers["X-Sessionary-Signature"] == f"sha256={wanted}"
    assert headers["X-Sessionary-Timestamp"] == at
    body = json.loads(raw)
    assert (body["text"], body["session_id"], body["delivery_id"]) == ("the answer", "s1", "d1")


@pytest.mark.parametrize(
    ("status", "error"),
    [(500, RetryLater), (429, RetryLater), (302, RetryLater), (410, Unreachable)],
)
async def test_an_error_status_becomes_the_error_that_says_what_can_be_done(
    program: Program, status: int, error: type[Exception]
) -> None:
    program.status = status
    program.headers = {"Retry-After": "7", "Location": "http://127.0.0.1:9/elsewhere"}
    adapter = ApiAdapter(FakeClock(), callback_url=program.url, secret=SECRET)

    with pytest.raises(error) as caught:
        await adapter.send(delivery())

    assert len(program.calls) == 1
    assert getattr(caught.value, "after", 7) == 7


async def test_a_program_that_does_not_listen_is_tried_again(program: Program) -> None:
    gone = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    url = f"http://127.0.0.1:{gone.server_port}/"
    gone.server_close()

    with pytest.raises(RetryLater):
        await ApiAdapter(FakeClock(), callback_url=url, secret=SECRET).send(delivery())


@pytest.mark.parametrize(
    "url", ["ftp://host/x", "file:///etc/passwd", "https://", "http://u:p@host/", "http://host:x/"]
)
def test_an_address_that_cannot_be_called_is_refused_at_once(url: str) -> None:
    with pytest.raises(BadInput):
        ApiAdapter(FakeClock(), callback_url=url, secret=SECRET)


def test_an_address_without_a_secret_is_refused() -> None:
    with pytest.raises(BadInput, match="secret"):
        ApiAdapter(FakeClock(), callback_url="https://host/", secret=b"")


async def test_the_configuration_says_where_answers_go() -> None:
    kept = registry.build("api", {}, {})
    values = {"callback_url": "https://host.example/answers", "secret_env": "API_SECRET"}
    called = registry.build("api", values, {"API_SECRET": SECRET.decode()})

    assert "kept for GET" in await kept.check()
    assert "host.example" in await called.check()
