"""What became of an arrival, and the requests that wait for it: one task looks for all of them."""

import asyncio
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from typing_extensions import TypedDict

from sessionary.actions import question_arrivals
from sessionary.actions.sessions.log import SessionChanged
from sessionary.errors import NotFound, RetryLater, SessionaryError, StoreUnavailable
from sessionary.model import message
from sessionary.model.json_types import PartJson, QuestionInfo
from sessionary.model.message import Message
from sessionary.model.session import Segment
from sessionary.model.turn import ArrivalState, TurnState
from sessionary.model.view import question_json, time_text
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals, entries, sessions, turns
from sessionary.web.auth import has_access
from sessionary.web.context import Caller, WebContext
from sessionary.web.problems import RequestRefused

MAX_SECONDS = 60.0
# Commits that follow a look this closely share the next one; looks take at most a fifth of the time.
_PAUSE_SECONDS = 0.02
_PAUSE_FACTOR = 4
# The most sessions whose changes are remembered; any other counts as changed.
MAX_CHANGES = 1024


class ReplyInfo(TypedDict):
    """The reply to a message."""

    id: str
    """The entry's id."""
    seq: int
    text: str
    at: str


class ArrivalDetail(TypedDict):
    """A message that arrived, and what became of it."""

    id: str
    state: ArrivalState
    """`waiting` for a turn, `taken` by a turn or as a command, or `refused`."""
    reason: str | None
    """Why it was refused, or why its turn failed."""
    text: str
    parts: list[PartJson]
    received_at: str
    session_id: str | None
    """The session that contains it, once a turn has taken it."""
    seq: int | None
    """The number of its entry."""
    turn_id: str | None
    """The turn that took it, or that it let go on because it has answered its question."""
    turn_state: TurnState | None
    """How far that turn is; `waiting`: it has asked people something."""
    questions: list[QuestionInfo]
    """The open questions of its turn, or of the turn that it waits for: see `POST /questions/{question_id}/answer`."""
    reply: ReplyInfo | None
    """The reply, as soon as it is there."""


def read_arrival(tx: Tx, id: str, *, profile: str) -> ArrivalDetail:
    """What is known of an arrival."""
    found = arrivals.get(tx, id, profile=profile)
    if found is None:
        raise NotFound(f"There is no arrival {id}.")
    turn_id = question_arrivals.find_turn_id(tx, found, profile=profile)
    turn = None if turn_id is None else turns.get(tx, turn_id, profile=profile)
    reply = None if turn is None else _reply(tx, turn[0].id, session_no=turn[1])
    blocking = question_arrivals.list_blocking(tx, found, None if turn is None else turn[0])
    return {
        "id": found.id,
        "state": found.state,
        "reason": found.reason if turn is None else turn[0].reason or found.reason,
        "text": found.message.text,
        "parts": [message.to_json(each) for each in found.message.parts],
        "received_at": time_text(found.received_at),
        "session_id": found.session_id,
        "seq": found.seq,
        "turn_id": turn_id,
        "turn_state": None if turn is None else turn[0].state,
        "questions": [question_json(each) for each in blocking],
        "reply": reply,
    }


def is_over(found: ArrivalDetail) -> bool:
    """Whether nothing more will become of an arrival, or only after people have answered a question."""
    if found["questions"]:
        return True
    return (
        found["state"] is not ArrivalState.WAITING and found["turn_state"] is not TurnState.RUNNING
    )


class WaitKey(NamedTuple):
    """Who waits, for which arrival, and the session that contains it if a turn had taken it already."""

    caller: Caller
    id: str
    session_id: str | None


Outcome = ArrivalDetail | RequestRefused | SessionaryError


class RecentChanges:
    """Which sessions this process has changed, and since when: a request must not wait for what has happened."""

    def __init__(self) -> None:
        self.count = 0
        self._numbers: dict[str, int] = {}
        self._forgotten = 0
        self._guard = threading.Lock()

    def add(self, session_ids: Iterable[str]) -> None:
        """Note that a commit has changed sessions; in the thread that committed."""
        with self._guard:
            self.count += 1
            for each in session_ids:
                self._numbers.pop(each, None)
                self._numbers[each] = self.count
            while len(self._numbers) > MAX_CHANGES:
                self._forgotten = self._numbers.pop(next(iter(self._numbers)))

    def is_changed(self, session_id: str | None, *, since: int) -> bool:
        """Whether a session has changed since a count, or may have; without a session, whether any has."""
        if session_id is None:
            return self.count > since
        return self._numbers.get(session_id, self._forgotten) > since


class ArrivalWaits:
    """Answers a request when its arrival was answered, refused, or its turn ended otherwise or waits for people.

    A commit of this process that changes a session causes a look for all that wait for it, however many; besides there
    is one for all every second, because the turn may run in another process. A request that waits holds a future and a
    timer: no thread and no connection of the database.
    """

    def __init__(self, context: WebContext) -> None:
        self._context = context
        self.changes = RecentChanges()
        self._waiting: dict[WaitKey, set[asyncio.Future[ArrivalDetail]]] = {}
        self._due: set[WaitKey] = set()
        self._look: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = context.store.listen(self._on_commit)
        self._is_closed = False

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    async def wait(
        self, found: ArrivalDetail, *, caller: Caller, seconds: float, since: int, gone: Any
    ) -> ArrivalDetail | None:
        """Return what became of an arrival that was not over; None when the time is over, or `gone` is done.

        `since` is `changes.count` from before the arrival was read.
        """
        if self._is_closed:
            return None
        self._loop = asyncio.get_running_loop()
        key = WaitKey(caller, found["id"], found["session_id"])
        over: asyncio.Future[ArrivalDetail] = self._loop.create_future()
        self._waiting.setdefault(key, set()).add(over)
        # In this order: a commit that is not among the changes yet finds the request waiting.
        if self.changes.is_changed(key.session_id, since=since):
            self._look_soon((key,))
        if self._timer is None:
            self._look_later()
        try:
            await asyncio.wait({over, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return over.result() if over.done() and not over.cancelled() else None
        finally:
            over.cancel()
            of_key = self._waiting.get(key, set())
            of_key.discard(over)
            if not of_key:
                self._waiting.pop(key, None)

    def close(self) -> None:
        """Let every request answer now: the server stops."""
        self._is_closed = True
        for waiting in self._waiting.values():
            for over in waiting:
                over.cancel()

    def stop_listening(self) -> None:
        self._stop()
        if self._timer is not None:
            self._timer.cancel()
        if self._look is not None:
            self._look.cancel()

    def _on_commit(self, events: Sequence[Any]) -> None:
        # This runs in the thread that committed; the loop may be gone already.
        changed = {each.session_id for each in events if isinstance(each, SessionChanged)}
        if not changed:
            return
        self.changes.add(changed)
        loop = self._loop if self._waiting else None
        if loop is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._on_changed, changed)

    def _on_changed(self, session_ids: set[str]) -> None:
        # A message that no turn had taken may be in any of them by now.
        self._look_soon(
            key for key in self._waiting if key.session_id is None or key.session_id in session_ids
        )

    def _look_later(self) -> None:
        assert self._loop is not None
        self._timer = self._loop.call_later(
            self._context.settings.limits.check_seconds, self._look_regularly
        )

    def _look_regularly(self) -> None:
        self._timer = None
        if self._waiting:
            self._look_soon(self._waiting)
            self._look_later()

    def _look_soon(self, keys: Iterable[WaitKey]) -> None:
        self._due.update(keys)
        if self._due and (self._look is None or self._look.done()):
            self._look = asyncio.create_task(self._look_while_due())

    async def _look_while_due(self) -> None:
        context = self._context
        while self._due:
            keys, self._due = [each for each in self._due if each in self._waiting], set()
            began = time.monotonic()
            with suppress(RetryLater, StoreUnavailable):  # the next look tries again
                now = context.clock.now()
                self._release(await context.store.read(find_outcomes, keys, now=now))
            if self._due:
                took = time.monotonic() - began
                await asyncio.sleep(max(_PAUSE_SECONDS, took * _PAUSE_FACTOR))

    def _release(self, outcomes: Iterable[tuple[WaitKey, Outcome]]) -> None:
        for key, outcome in outcomes:
            for over in self._waiting.get(key, ()):
                if over.done():
                    continue
                if isinstance(outcome, Exception):
                    over.set_exception(outcome)
                else:
                    over.set_result(outcome)


def find_outcomes(
    tx: Tx, keys: Sequence[WaitKey], *, now: datetime
) -> list[tuple[WaitKey, Outcome]]:
    """What became of those arrivals that are over; a refusal for a caller who has lost access meanwhile."""
    found: list[tuple[WaitKey, Outcome]] = []
    valid: dict[Caller, bool] = {}
    for key in keys:
        caller = key.caller
        if caller not in valid:
            valid[caller] = has_access(tx, caller, now=now)
        if not valid[caller]:
            found.append((key, RequestRefused(401, "The token or the login is no longer valid.")))
            continue
        try:
            detail = read_arrival(tx, key.id, profile=caller.profile)
        except NotFound as error:  # purged meanwhile
            found.append((key, error))
            continue
        if is_over(detail):
            found.append((key, detail))
    return found


def _reply(tx: Tx, turn_id: str, *, session_no: int) -> ReplyInfo | None:
    seq = entries.reply_of_turn(tx, session_no, turn_id)
    if seq is None:
        return None
    head = sessions.get_by_no(tx, session_no)
    (entry,) = entries.read(tx, Segment(session_no, head.id, seq, seq), limit=1)
    message_body = entry.body
    assert isinstance(message_body, Message)
    return {"id": entry.id, "seq": seq, "text": message_body.text, "at": time_text(entry.at)}
