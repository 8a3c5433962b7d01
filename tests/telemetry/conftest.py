"""Spans at hand, and a store of each kind that takes them in."""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from sessionary.actions import verify
from sessionary.actions.sessions import read
from sessionary.clock import RandomIds, SystemClock
from sessionary.model.message import Message
from sessionary.model.session import SessionHead
from sessionary.model.transcript import Chat
from sessionary.store.database import Store, Tx
from sessionary.store.tables import sessions
from sessionary.telemetry.ingest import TelemetryIngest
from sessionary.telemetry.span import Span
from tests.store.conftest import emptied, opened  # noqa: F401

TRACE = "a" * 32
BEGAN = 1_770_000_000_000_000_000
_numbers = count(1)


def span(
    asked: list[Any] | None = None,
    answered: list[Any] | None = None,
    *,
    at: int = 0,
    trace: str = TRACE,
    parent: str = "",
    id: str | None = None,
    error: str | None = None,
    **attributes: Any,
) -> Span:
    """A call of a model in the newer style; double underscores in names stand for dots."""
    given = {
        "gen_ai.operation.name": "chat",
        **{name.replace("__", "."): value for name, value in attributes.items()},
    }
    if asked is not None:
        given["gen_ai.input.messages"] = json.dumps([_told(each, "user") for each in asked])
    if answered is not None:
        given["gen_ai.output.messages"] = json.dumps(
            [_told(each, "assistant") for each in answered]
        )
    began = BEGAN + at * 10**9
    return Span(
        trace,
        id or f"{next(_numbers):016x}",
        parent,
        "chat m",
        began,
        began + 10**9,
        given,
        error=error,
        service="shop",
    )


def _told(args: Any, role: str) -> Any:
    if isinstance(args, str):
        return {"role": role, "parts": [{"type": "text", "content": args}]}
    return args


def answer(text: str) -> dict[str, Any]:
    """The model's message, as the next call repeats it."""
    return {"role": "assistant", "parts": [{"type": "text", "content": text}]}


def call(id: str, name: str = "look", **arguments: Any) -> dict[str, Any]:
    part = {"type": "tool_call", "id": id, "name": name, "arguments": arguments}
    return {"role": "assistant", "parts": [part]}


def result(id: str, response: Any) -> dict[str, Any]:
    part = {"type": "tool_call_response", "id": id, "response": response}
    return {"role": "tool", "parts": [part]}


class IngestStore:
    """A store that takes spans in, and what has become of them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.ingest = TelemetryIngest(store, SystemClock(), RandomIds())

    def heads(self) -> list[SessionHead]:
        def all_of(tx: Tx) -> list[SessionHead]:
            rows = tx.all("page_of_sessions", profile="main", after=0, limit=1000)
            return [sessions.get_by_no(tx, row[0]) for row in rows]

        return self.store.read(all_of).result()

    def texts(self, head: SessionHead | None = None) -> list[str]:
        """The texts of the only session, or of this one, each after the first letter of its role."""
        [one] = [head] if head is not None else self.heads()
        entries = self.store.read(read.read_transcript, one.id, profile="main").result()
        messages = [entry.body for entry in entries if isinstance(entry.body, Message)]
        return [f"{each.role[0]}:{each.text}" for each in messages]

    def context(self) -> list[Chat]:
        [one] = self.heads()
        return self.store.read(read.read_context, one.id, profile="main").result()


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[IngestStore]:
    url = (
        f"sqlite:///{tmp_path}/sessionary.db"
        if request.param == "sqlite"
        else request.getfixturevalue("emptied")()
    )
    store = opened(url)
    yield IngestStore(store)
    assert verify.verify(store).broken == ()
    store.close()
