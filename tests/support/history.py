"""A checker for any history of requests and answers: compares what was promised with what is stored.

Each writer to a store records its attempts: what was asked, when, and what the answer was. Each
attempt carries a token that no other text has. Afterwards everything is read back through a public
interface, and `judge` names every invariant that broke. The names are those of the list in
docs/internals/faults.md.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """What the caller knows: done, surely not done, or neither."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Attempt:
    """One request. Without an answer its outcome is unknown."""

    token: str
    place: str
    began: int
    ended: int = 0
    outcome: Outcome = Outcome.UNKNOWN
    session: str | None = None
    seq: int | None = None

    def answered(self, session: str | None, seq: int | None = None) -> None:
        """The store confirmed it, and returned its place as far as it was known by then."""
        self.outcome, self.session, self.seq = Outcome.OK, session, seq

    def refused(self) -> None:
        """The store said that it was certainly not written."""
        self.outcome = Outcome.FAIL


class History:
    """Attempts of any number of threads, in the order in which they began."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self._lock = threading.Lock()

    @contextmanager
    def attempt(self, token: str, place: str) -> Iterator[Attempt]:
        """Note an attempt to write a token to a place: a chat, a session, whatever has one order."""
        made = Attempt(token, place, time.monotonic_ns())
        with self._lock:
            self.attempts.append(made)
        try:
            yield made
        finally:
            made.ended = time.monotonic_ns()

    def unknown(self) -> list[Attempt]:
        """The last attempt for each token whose outcome its caller does not know."""
        last = {each.token: each for each in self.attempts}
        settled = {each.token for each in self.attempts if each.outcome is Outcome.OK}
        return [
            each
            for token, each in last.items()
            if each.outcome is Outcome.UNKNOWN and token not in settled
        ]

    def count(self, outcome: Outcome) -> int:
        """How many attempts ended so."""
        return sum(each.outcome is outcome for each in self.attempts)


@dataclass(frozen=True, slots=True)
class Line:
    """One message as it is read back."""

    seq: int
    role: str
    text: str

    @property
    def token(self) -> str:
        """The first word, which names the attempt."""
        return self.text.split(" ", 1)[0]


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything that is there, as a public interface shows it."""

    lines: Mapping[str, Sequence[Line]]
    # What the heads say: the number of messages, and the key while the session is open.
    counts: Mapping[str, int] = field(default_factory=dict)
    open_keys: Sequence[str] = ()
    # What a search for a token found: sessions and numbers.
    found: Mapping[str, frozenset[tuple[str, int]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Broken:
    """An invariant that does not hold, and where."""

    invariant: str
    what: str


def judge(history: Iterable[Attempt], reading: Reading) -> list[Broken]:
    """Return every invariant that is violated."""
    attempts: dict[str, list[Attempt]] = defaultdict(list)
    for each in history:
        attempts[each.token].append(each)
    stored = _stored(attempts, reading)
    return [
        *_lost(attempts, stored),
        *_doubled(stored),
        *_phantoms(attempts, stored, reading),
        *_disorder(attempts, stored),
        *_gaps(reading),
        *_miscounted(reading),
        *_unfound(stored, reading),
        *_mixed(attempts, stored),
        *(
            Broken("one open", key)
            for key, count in Counter(reading.open_keys).items()
            if count > 1
        ),
    ]


_Stored = dict[str, list[tuple[str, int]]]


def _stored(attempts: Mapping[str, list[Attempt]], reading: Reading) -> _Stored:
    """Where each token is stored as a user's message."""
    found: _Stored = defaultdict(list)
    for session, lines in reading.lines.items():
        for line in lines:
            if line.role == "user" and line.token in attempts:
                found[line.token].append((session, line.seq))
    return found


def _lost(attempts: Mapping[str, list[Attempt]], stored: _Stored) -> Iterator[Broken]:
    for token, tries in attempts.items():
        for each in tries:
            if each.outcome is not Outcome.OK:
                continue
            places = stored.get(token, [])
            if not places:
                yield Broken("no loss", token)
            elif each.session not in {None, *(session for session, _ in places)}:
                yield Broken("no loss", f"{token} is not in the session of its answer")
            elif each.seq is not None and (each.session, each.seq) not in places:
                yield Broken("no loss", f"{token} is not where its answer said")


def _doubled(stored: _Stored) -> Iterator[Broken]:
    for token, places in stored.items():
        if len(places) > 1:
            yield Broken("no duplicate", f"{token} stands in {len(places)} places")


def _phantoms(
    attempts: Mapping[str, list[Attempt]], stored: _Stored, reading: Reading
) -> Iterator[Broken]:
    for token, tries in attempts.items():
        if stored.get(token) and all(each.outcome is Outcome.FAIL for each in tries):
            yield Broken("no phantom", f"{token} was refused and is there")
    for session, lines in reading.lines.items():
        for line in lines:
            if line.role == "user" and line.token not in attempts:
                yield Broken("no phantom", f"{line.text[:40]!r} in {session} was never sent")


def _disorder(attempts: Mapping[str, list[Attempt]], stored: _Stored) -> Iterator[Broken]:
    """What was answered before another was asked stands before it."""
    by_session: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for token, places in stored.items():
        answered = [each for each in attempts[token] if each.outcome is Outcome.OK]
        if answered and len(places) == 1:
            session, seq = places[0]
            first = attempts[token][0].began
            by_session[session].append((seq, first, min(each.ended for each in answered)))
    for session, placed in by_session.items():
        earliest: int | None = None
        for seq, began, ended in sorted(placed, reverse=True):
            if earliest is not None and earliest < began:
                yield Broken("order", f"{session} at {seq}")
            earliest = ended if earliest is None else min(ended, earliest)


def _gaps(reading: Reading) -> Iterator[Broken]:
    for session, lines in reading.lines.items():
        numbers = [line.seq for line in lines]
        if numbers != list(range(1, len(numbers) + 1)):
            yield Broken("sequence", f"{session} has {numbers[:10]}…")


def _miscounted(reading: Reading) -> Iterator[Broken]:
    for session, count in reading.counts.items():
        there = len(reading.lines.get(session, ()))
        if session not in reading.lines:
            yield Broken("readable", f"{session} is listed and cannot be read")
        elif count != there:
            yield Broken("counters", f"{session} says {count}, the log {there}")


def _unfound(stored: _Stored, reading: Reading) -> Iterator[Broken]:
    for token, found in reading.found.items():
        if found != set(stored.get(token, ())):
            yield Broken("search", f"{token} is found in {sorted(found)}")


def _mixed(attempts: Mapping[str, list[Attempt]], stored: _Stored) -> Iterator[Broken]:
    """Messages of two places are never in one session."""
    places: dict[str, set[str]] = defaultdict(set)
    for token, found in stored.items():
        for session, _ in found:
            places[session].add(attempts[token][0].place)
    for session, names in places.items():
        if len(names) > 1:
            yield Broken("isolation", f"{session} has messages of {sorted(names)[:3]}")
