"""A gateway written for Hermes is killed at any instant; whatever a call returned stays true."""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sessionary.actions import verify
from sessionary.compat.hermes.state import SessionDB
from tests.compat.hermes.conftest import KINDS
from tests.support.fork_server import ForkedProcess, ForkServer
from tests.support.postgres import Server

SEED = 20261117
AT_ONCE = 2
KILLS = 30
ANSWERS = 12
TIMEOUT_SECONDS = 60
# What a call leaves behind: the texts of its messages, by the call's token.
TEXTS: Mapping[str, Callable[[str], list[str]]] = {
    "say": lambda token: [token],
    "append": lambda token: [token],
    "batch": lambda token: [f"{token}.a", f"{token}.b"],
    "summary": lambda token: [token],
}


@dataclass
class Call:
    """A call of a killed gateway: what it wanted, when, and whether it returned."""

    token: str
    op: str
    chat: str
    began: int
    session: str = ""
    number: int | None = None
    returned: int | None = None


@dataclass
class Reports:
    """The calls of all gateways, in the order in which they began."""

    calls: list[Call]
    crashes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, lines: list[dict[str, Any]]) -> "Reports":
        calls: dict[str, Call] = {}
        crashes = [f"{line['token']}: {line['error']}" for line in lines if line["what"] == "crash"]
        for line in sorted(lines, key=lambda line: int(line["at"])):
            if line["what"] == "try":
                calls[line["token"]] = Call(line["token"], line["op"], line["chat"], line["at"])
            if line["what"] in ("try", "ok"):
                call = calls[line["token"]]
                call.session = line.get("session", call.session)
                call.number = line.get("number")
            if line["what"] == "ok":
                calls[line["token"]].returned = line["at"]
        return cls(list(calls.values()), crashes)

    def of_op(self, *ops: str) -> Iterator[Call]:
        return (call for call in self.calls if call.op in ops)


def complaints(db: SessionDB, reports: Reports) -> list[str]:
    """Everything that is not as a returned call left it."""
    return [
        *reports.crashes,
        *_messages(db, reports),
        *_counts(db, reports),
        *_latest(db, reports),
        *_entries(reports),
        *_ends(db, reports),
    ]


def _messages(db: SessionDB, reports: Reports) -> Iterator[str]:
    calls = list(reports.of_op(*TEXTS))
    stored: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for session in {call.session for call in calls}:
        for row in db.get_messages(session):
            stored[row["content"]].append((session, row["id"]))
    for call in calls:
        found = [stored.pop(text, []) for text in TEXTS[call.op](call.token)]
        if call.returned is not None and not all(found):
            yield f"lost: {call}"
        if any(found) and not all(found):
            yield f"half done: {call}"
        for places in found:
            if len(places) > 1:
                yield f"doubled: {call}"
            if any(session != call.session for session, _ in places):
                yield f"in another session: {call} {places}"
            if call.number is not None and (call.session, call.number) not in places:
                yield f"not under its number: {call} {places}"
    for text in stored:
        yield f"never written: {text}"


def _counts(db: SessionDB, reports: Reports) -> Iterator[str]:
    tried = Counter(call.session for call in reports.of_op("count"))
    returned = Counter(call.session for call in reports.of_op("count") if call.returned)
    for session, most in tried.items():
        row = db.get_session(session)
        if row is None or not returned[session] <= row["input_tokens"] <= most:
            yield f"counted {returned[session]} to {most}: {row}"
        elif row["message_count"] != len(db.get_messages(session)):
            yield f"miscounted: {row}"


def _latest(db: SessionDB, reports: Reports) -> Iterator[str]:
    """What overwrites: the last value that returned is there, or one that was tried after it."""
    readers: dict[str, Callable[[Call], str | None]] = {
        "title": lambda call: db.get_session_title(call.session),
        "note": lambda call: db.get_meta(f"note-{call.chat}"),
        "rewrite": lambda call: _rewritten(db.get_messages(call.session)),
    }
    for op, read in readers.items():
        calls: dict[str, list[Call]] = defaultdict(list)
        for call in reports.of_op(op):
            calls[call.session or call.chat].append(call)
        for each in calls.values():
            answered = [place for place, call in enumerate(each) if call.returned]
            allowed: set[str | None] = {call.token for call in each[(answered or [0])[-1] :]}
            if not answered:
                allowed.add(None)
            if read(each[0]) not in allowed:
                yield f"{op} is {read(each[0])!r} and not one of {allowed}"


def _rewritten(rows: list[dict[str, Any]]) -> str | None:
    """The token of a rewritten transcript if it is whole."""
    if not rows:
        return None
    token = str(rows[0]["content"]).rpartition(".")[0]
    is_whole = [row["content"] for row in rows] == [f"{token}.{n}" for n in range(3)]
    return token if is_whole else f"torn: {rows}"


def _entries(reports: Reports) -> Iterator[str]:
    """A chat stays on its session until that is ended, reset or switched."""
    calls: dict[str, list[Call]] = defaultdict(list)
    for call in reports.of_op("entry", "end", "reset", "switch"):
        calls[call.chat].append(call)
    for each in calls.values():
        known: str | None = None
        for call in each:
            if call.op == "end" or (call.returned is None and call.op != "entry"):
                known = None
            elif call.returned is None:
                continue
            elif call.op == "entry" and known not in (None, call.session):
                yield f"{call} came after {known}"
            else:
                known = call.session


def _ends(db: SessionDB, reports: Reports) -> Iterator[str]:
    for call in reports.of_op("end", "create"):
        row = db.get_session(call.session)
        if call.returned and (row is None or (call.op == "end" and row["ended_at"] is None)):
            yield f"lost: {call} {row}"


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "state.db")
    else:
        postgres: Server = request.getfixturevalue("postgres")
        made = postgres.create_database()
        yield made
        postgres.drop_database(made)


def wait_for_answers(child: ForkedProcess) -> None:
    until = time.monotonic() + TIMEOUT_SECONDS
    while len(child.lines()) < ANSWERS:
        assert time.monotonic() < until
        time.sleep(0.002)


@pytest.mark.timeout(300)
def test_a_hermes_gateway_that_is_killed_loses_nothing_that_had_returned(
    url: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    rng = random.Random(SEED)
    children: list[ForkedProcess] = []
    with ForkServer(tmp_path, module="tests.compat.hermes.gateway_child") as forks:
        running: dict[int, ForkedProcess] = {}
        for _ in range(KILLS):
            for slot in range(AT_ONCE):
                if slot not in running:
                    running[slot] = forks.fork(url, slot=slot, seed=rng.randrange(2**30))
                    children.append(running[slot])
            slot = rng.randrange(AT_ONCE)
            if rng.random() < 0.9:
                wait_for_answers(running[slot])  # the others die while they open the database
            forks.let_run(rng.random() * 0.1)
            forks.kill(running.pop(slot))
        for child in running.values():
            forks.kill(child)

    reports = Reports.of([line for child in children for line in child.lines()])
    db = SessionDB(url)
    broken = complaints(db, reports)
    checked = verify.verify(db._store.store)
    db.close()

    returned = sum(call.returned is not None for call in reports.calls)
    named = Counter(each.partition(":")[0] for each in broken)
    record_property(
        "counts",
        f"kills={len(children)} calls={len(reports.calls)} returned={returned} "
        f"unanswered={len(reports.calls) - returned} lost={named['lost']} "
        f"doubled={named['doubled']} half-done={named['half done']} broken={len(broken)}",
    )
    assert broken == []
    assert checked.broken == ()
    assert returned < len(reports.calls), "no call was cut off: the kills came at the wrong time"
