"""What children report against what the store holds: the invariants of a history, as one check.

A write that was answered is there exactly once and where the answer put it; one that was refused is
not there; one that was never answered is there at most once, and whole or not at all.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sessionary.model.message import Message, Text
from sessionary.model.session import SessionFolder
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals, deliveries, entries, sessions, turns, usage

PROFILE = "main"
Line = dict[str, Any]


@dataclass(frozen=True)
class Found:
    """One token in the log."""

    session: str
    seq: int
    turn: str | None


@dataclass
class Stored:
    """Everything a store holds, in one snapshot."""

    log: dict[str, list[Found]] = field(default_factory=lambda: defaultdict(list))
    turns: dict[str, str] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    inbox: dict[str, Any] = field(default_factory=dict)
    gaps: list[str] = field(default_factory=list)


def read_all(tx: Tx, received: Iterable[str]) -> Stored:
    """Read every session, turn, call and delivery, and the arrivals with these keys."""
    stored = Stored()
    after = 0
    while page := tx.all("page_of_all_sessions", after=after, limit=200):
        for no, session, folder in page:
            after = no
            if folder != SessionFolder.GONE:
                _read_session(tx, stored, no, session)
    for idempotency_key in received:
        found = arrivals.get_by_idempotency_key(tx, idempotency_key, profile=PROFILE)
        if found is not None:
            stored.inbox[idempotency_key] = found
    return stored


def _read_session(tx: Tx, stored: Stored, no: int, session: str) -> None:
    expected = 1
    for entry in entries.walk(tx, sessions.segments(tx, no)):
        if entry.seq != expected:
            stored.gaps.append(f"{session} has {entry.seq} where {expected} should be")
        expected = entry.seq + 1
        if isinstance(entry.body, Message):
            stored.log[entry.body.text].append(Found(session, entry.seq, entry.turn_id))
    for turn in turns.of_session(tx, no):
        stored.turns[turn.id] = turn.state
    stored.calls.update(str(used.call_id) for _, used in usage.of_session(tx, no))
    for delivery in deliveries.of_session(tx, no):
        stored.sent.update(part.text for part in delivery.parts if isinstance(part, Text))


@dataclass
class History:
    """The reports of one or more children, in the words of the check."""

    tried: dict[str, Line] = field(default_factory=dict)
    answered: dict[str, Line] = field(default_factory=dict)
    refused: dict[str, Line] = field(default_factory=dict)
    crashes: list[Line] = field(default_factory=list)

    @classmethod
    def of(cls, lines: Iterable[Line]) -> "History":
        history = cls()
        books = {"try": history.tried, "ok": history.answered, "no": history.refused}
        for line in lines:
            if line["what"] == "crash":
                history.crashes.append(line)
            else:
                books[line["what"]][line["token"]] = line
        return history

    def received(self) -> list[str]:
        return [token for token, line in self.tried.items() if line["op"] == "receive"]

    def unanswered_appends(self) -> list[dict[str, str]]:
        """Direct appends whose fate their caller does not know."""
        return [
            {"token": token, "session": line["session"]}
            for token, line in self.tried.items()
            if line["op"] == "append" and token not in self.answered and token not in self.refused
        ]


@dataclass
class Verdict:
    """What is wrong, and how much was looked at."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    misplaced: list[str] = field(default_factory=list)
    phantoms: list[str] = field(default_factory=list)
    halves: list[str] = field(default_factory=list)
    disorder: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    acknowledged: int = 0

    def complaints(self) -> dict[str, list[str]]:
        found = {name: value for name, value in vars(self).items() if isinstance(value, list)}
        return {name: value[:5] for name, value in found.items() if value}


def judge(before: History, stored: Stored, after: History) -> Verdict:
    """Compare. `before` was reported before the snapshot, `after` contains all that was tried."""
    verdict = Verdict(gaps=stored.gaps)
    written = ("open", "append", "step")
    for token, line in before.answered.items():
        verdict.acknowledged += 1
        if line["op"] in written:
            _judge_append(verdict, token, line, stored)
        elif line["op"] == "receive":
            _judge_arrival(verdict, token, stored)
    for token, line in after.tried.items():
        if line["op"] == "end":
            _judge_end(verdict, token, line, stored, token in before.answered)
    _judge_tokens(verdict, stored, before, after)
    _judge_order(verdict, stored, before)
    return verdict


def _judge_append(verdict: Verdict, token: str, line: Line, stored: Stored) -> None:
    found = stored.log.get(token, [])
    if not found:
        verdict.lost.append(token)
    elif (found[0].session, found[0].seq) != (line["session"], line["seq"]):
        verdict.misplaced.append(token)


def _judge_arrival(verdict: Verdict, token: str, stored: Stored) -> None:
    arrival = stored.inbox.get(token)
    if arrival is None:
        verdict.lost.append(token)
        return
    found = stored.log.get(token, [])
    taken = [] if arrival.seq is None else [(arrival.session_id, arrival.seq)]
    if [(each.session, each.seq) for each in found] != taken:
        verdict.misplaced.append(token)


def _judge_end(
    verdict: Verdict, token: str, line: Line, stored: Stored, acknowledged: bool
) -> None:
    signs = [
        len(stored.log.get(f"{token}.a", [])),
        len(stored.log.get(f"{token}.b", [])),
        stored.calls[token],
        stored.sent[token],
        int(stored.turns.get(line["turn"]) == "done"),
    ]
    if signs not in ([0] * 5, [1] * 5):
        verdict.halves.append(f"{token}: {signs}")
    if acknowledged and signs[0] == 0:
        verdict.lost.append(token)


def _judge_tokens(verdict: Verdict, stored: Stored, before: History, after: History) -> None:
    for token, found in stored.log.items():
        root = token.removesuffix(".a").removesuffix(".b")
        if len(found) > 1:
            verdict.doubled.append(token)
        if root not in after.tried or root in before.refused:
            verdict.phantoms.append(token)


def _judge_order(verdict: Verdict, stored: Stored, before: History) -> None:
    """If a was answered before b was tried, a stands before b in their session."""
    by_session: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for token, line in before.answered.items():
        for found in stored.log.get(token, ()):
            if line["op"] in ("open", "append", "step") and token in before.tried:
                times = (before.tried[token]["at"], line["at"])
                by_session[found.session].append((found.seq, *times))
    for session, placed in by_session.items():
        earliest_answer = None
        for seq, tried_at, answered_at in sorted(placed, reverse=True):
            if earliest_answer is not None and earliest_answer < tried_at:
                verdict.disorder.append(f"{session} at {seq}")
            earliest_answer = min(answered_at, earliest_answer or answered_at)
