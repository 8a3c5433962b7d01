"""Two processes with engines on one database, one of them killed again and again."""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from sessionary.actions import verify
from sessionary.actions.inbox import platform_idempotency_key
from sessionary.actions.sessions import lists, read
from sessionary.clock import RandomIds, SystemClock
from sessionary.model.message import Message, Role
from sessionary.model.session import SessionFolder, SessionHead
from sessionary.store.database import Store, Tx
from sessionary.store.open import open_store
from sessionary.store.tables import arrivals as inbox
from sessionary.store.tables import upkeep
from tests.engine.engine_child import source_of
from tests.support.fork_server import ForkedProcess, ForkServer

CHATS = 200
ARRIVALS = 2000
KILLS = 5
TIMEOUT_SECONDS = 500.0


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    found: str = request.getfixturevalue("migrated_url")
    return found


@pytest.mark.timeout(600)
def test_every_arrival_is_answered_once_although_processes_are_killed(
    url: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """P1, P2, P4, P7, P8: 200 sessions, 2,000 arrivals, each sent twice and out of order."""
    store = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
    arrivals = [f"{number % CHATS}.{number // CHATS}" for number in range(ARRIVALS)]
    rng = random.Random(7)
    began = time.monotonic()
    with ForkServer(tmp_path, "tests.engine.engine_child") as forks:
        twice = [rng.sample(arrivals, ARRIVALS) for _ in range(2)]
        steady = forks.fork(url, arrivals=twice[0])
        killed: list[ForkedProcess] = []
        for kill in range(KILLS):
            share = twice[1][kill :: KILLS + 1]
            killed.append(forks.fork(url, arrivals=share))
            forks.let_run(rng.uniform(0.3, 1.2))
            forks.kill(killed[-1])
        # What the dead did not acknowledge is sent again, as a platform would.
        acknowledged = {line["ack"] for each in killed for line in each.lines() if "ack" in line}
        killed.append(
            forks.fork(url, arrivals=[each for each in twice[1] if each not in acknowledged])
        )
        _until_quiet(store, [steady, killed[-1]])
        reports = [line for each in (steady, *killed) for line in each.lines()]
    seconds = time.monotonic() - began

    heads = _sessions(store)
    checked = verify.verify(store)
    transcripts = {head.source.chat_id: _said(store, head.id) for head in heads}
    came = store.read(_places, arrivals).result()
    store.close()

    assert len(heads) == CHATS
    for places in came.values():
        assert [seq for _, seq in sorted(places)] == sorted(seq for _, seq in places), "in order"
    prompts = Counter(
        text for log in transcripts.values() for role, text in log if role is Role.USER
    )
    assert prompts == Counter(arrivals), "every arrival in the log, once"
    assert all(text.split(".")[0] == chat for chat, log in transcripts.items() for _, text in log)
    _all_answered(transcripts, reports)
    assert checked.broken == ()
    copies = Counter(line["sent"] for line in reports if "sent" in line)
    print(f"\n{ARRIVALS} arrivals, {KILLS} kills, {seconds:.0f} s, {copies.total()} sendings")
    record_property("seconds", round(seconds))


def _all_answered(
    transcripts: dict[str | None, list[tuple[Role, str]]], reports: list[dict[str, str]]
) -> None:
    """After each prompt comes a reply or a notice of interruption, and it was sent.

    A reply that took long is kept before its turn ends; a process that dies in between leaves the
    reply in the log, and the chat gets a notice of the interruption instead.
    """
    sent = {(line["to"], line["sent"]) for line in reports if "sent" in line}
    interruptions = Counter(
        line["to"] for line in reports if line.get("sent", "").startswith("Interrupted")
    )
    for chat, log in transcripts.items():
        assert chat is not None
        unanswered = 0
        for (role, text), (following, reply) in zip(log, [*log[1:], (Role.USER, "")], strict=True):
            if role is Role.ASSISTANT:
                unanswered += (chat, text) not in sent
            elif following is Role.ASSISTANT:
                # Several that waited together are answered together, by the last.
                assert reply == text, f"{text} is answered by {reply}"
            elif text == log[-1][1]:
                unanswered += 1
        assert unanswered <= interruptions[chat], f"chat {chat} waits for an answer"


def _until_quiet(store: Store, living: list[ForkedProcess]) -> None:
    """Until all is taken in, answered and sent."""
    until = time.monotonic() + TIMEOUT_SECONDS
    while True:
        assert all(child.is_alive() for child in living), [child.lines()[-1:] for child in living]
        found = store.read(upkeep.backlog).result()
        came = {line["ack"] for child in living for line in child.lines() if "ack" in line}
        is_busy = found.waiting_arrivals or found.running_turns or found.open_deliveries
        if len(came) == ARRIVALS and not is_busy:
            return
        assert time.monotonic() < until, f"not quiet: {found}, {len(came)} arrivals came"
        time.sleep(0.2)


def _places(tx: Tx, names: list[str]) -> dict[str, list[tuple[int, int]]]:
    """For each chat the number of every arrival in the inbox and in the log."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for name in names:
        arrival = inbox.get_by_idempotency_key(
            tx, platform_idempotency_key(source_of(name)) or "", profile="main"
        )
        assert arrival is not None
        assert arrival.seq is not None
        found[name.partition(".")[0]].append((arrival.no, arrival.seq))
    return found


def _sessions(store: Store) -> list[SessionHead]:
    wanted = lists.SessionFilters(folder=SessionFolder.CHATS)
    return list(store.read(lists.list_sessions, wanted, profile="main", limit=500).result().items)


def _said(store: Store, id: str) -> list[tuple[Role, str]]:
    entries = store.read(read.read_log, id, profile="main").result()
    return [(e.body.role, e.body.text) for e in entries if isinstance(e.body, Message)]
