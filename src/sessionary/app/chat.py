"""A conversation in the terminal: one person, with an engine in this process."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Self

from sessionary.actions import turns
from sessionary.actions.sessions import choice, lists, read, routing
from sessionary.app.context import AppContext, user_name
from sessionary.app.engine import Agents, build_engine
from sessionary.clock import Moment
from sessionary.config.engine import read_engine
from sessionary.engine import commands, intake
from sessionary.engine.context import EngineContext, LiveEvent
from sessionary.engine.intake import Submission, SubmissionResult
from sessionary.engine.turn import loop
from sessionary.engine.turn.compaction import CompactionRequest
from sessionary.errors import RetryLater
from sessionary.model import transcript
from sessionary.model.choice import Changes
from sessionary.model.message import (
    MAX_SEQ,
    Entry,
    Message,
    Role,
    ToolCall,
    ToolResult,
    message,
)
from sessionary.model.session import SessionHead
from sessionary.model.source import TERMINAL, Source
from sessionary.model.turn import ArrivalState, Turn, TurnState
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals
from sessionary.store.tables import turns as turn_rows

WAIT_SECONDS = 300.0
STREAMED = ("delta", "thinking")
MISSED = "missed"
# After a step, read one entry: the text of the next step is streamed.
MOST = {"step": 1, MISSED: None}
COMMANDS = commands.names()
PAGE_SIZE = 500


# One text of the agent, or a tool call or result.
AnswerPart = str | ToolCall | ToolResult


@dataclass(frozen=True, slots=True)
class _Answer:
    """How far the answer to an arrival has come since the last look."""

    session_id: str | None = None
    turn_id: str | None = None
    parts: tuple[AnswerPart, ...] = ()
    # The last entry that was read.
    seq: int = 0
    # How the turn ended, and why; None while it waits or runs.
    state: str | None = None
    reason: str | None = None


class TerminalChat:
    """The conversation of the person at this terminal; each message is stored before it is answered."""

    def __init__(self, app: AppContext) -> None:
        self._app = app
        self._agents = Agents(read_engine(app.config), folder=app.config.home)
        self._engine = build_engine(app, agents=self._agents)
        self._context = self._engine.context
        self._session_id: str | None = None
        self._has_started = False
        self.source = Source(platform=TERMINAL, user_id=user_name())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._engine.stop()
        await self._agents.close()

    async def begin(
        self, *, ref: str | None = None, new: bool = False, chosen: Changes | None = None
    ) -> SessionHead | None:
        """Switch to the named session, begin a new one, or continue the terminal's last one.

        `chosen` are its agent, model, persona and tools, if they change. A turn of the last session whose process has
        ended is given up if the person goes to another one.
        """
        return await self._context.store.write(
            _place, self._context, self._app, self.source, ref=ref, new=new, chosen=chosen or {}
        )

    async def continued(self) -> AsyncIterator[LiveEvent]:
        """Go on with the turn of this conversation whose process has ended, if there is one; yield what happens."""
        context = self._context
        turn = await context.store.read(_dead_turn, context, self.source)
        if turn is None:
            return
        look = partial(self._look, _look_at_turn, turn.id)
        seen = await look(after=0, most=None)
        with context.bus.listen() as queue:
            await self._start()
            yield LiveEvent(turn.session_id, turn.id, "resumed")
            async for live in self._answers(queue, look, seen):
                yield live

    async def send(self, text: str) -> AsyncIterator[LiveEvent]:
        """Send a message, and yield what happens until it is answered."""
        context = self._context
        await self._start()
        with context.bus.listen() as queue:
            asked = Submission(message("user", text))
            write = context.store.write(
                _accept, context, self.source, asked, moment=context.moment()
            )
            accepted, answered = await write.handoff(self._carry_on)
            self._session_id = accepted.current_session_id
            received = accepted.received
            if received.answer is not None:
                yield LiveEvent(accepted.current_session_id or "", "", "answer", received.answer)
            if received.compaction is not None:
                yield await self._compact(received.compaction)
                return
            if answered is not None:
                look = partial(self._look, _look_up, answered)
                seen = await look(after=0, most=0)
                if seen.turn_id is None and seen.state is None and received.answer is None:
                    yield LiveEvent(accepted.current_session_id or "", "", "waiting")
                is_here = accepted.turn_id is not None
                async for live in self._answers(queue, look, seen, is_here=is_here):
                    yield live

    async def _start(self) -> None:
        if not self._has_started:
            self._has_started = True
            # This process may end soon: it takes no work of other conversations.
            await self._engine.start(only=self._context.key(self.source))

    def _carry_on(self, found: tuple[SubmissionResult, str | None]) -> None:
        if found[0].received.compaction is None:
            self._engine.run_submitted(found[0])

    def session_names(self) -> list[str]:
        """Return the titles of the latest sessions, for completion."""
        found = self._context.store.read(
            lists.list_sessions, lists.SessionFilters(), profile=self._context.profile
        )
        return [head.title for head in found.result().items if head.title is not None]

    def earlier_prompts(self) -> list[str]:
        """Return what the person wrote in this session, oldest first."""
        return self._context.store.read(_prompts, self._app, self.source).result()

    async def stop(self) -> None:
        """Stop the running turn."""
        if self._session_id is not None:
            await self._context.store.write(_stop, self._session_id, profile=self._context.profile)

    async def _compact(self, request: CompactionRequest) -> LiveEvent:
        """Compact the session while the person waits."""
        done = await self._engine.compactor.compact(request.session_id, focus=request.focus)
        return LiveEvent(request.session_id, "", "answer", done)

    async def _answers(
        self,
        queue: "asyncio.Queue[LiveEvent | None]",
        look: "Callable[..., Awaitable[_Answer]]",
        seen: _Answer,
        *,
        is_here: bool = False,
    ) -> AsyncIterator[LiveEvent]:
        """Yield an answer: streamed if its turn runs here, else as it is stored."""
        try:
            async with asyncio.timeout(WAIT_SECONDS + self._context.settings.turn_seconds):
                while True:
                    for each in seen.parts:
                        kind = "text" if isinstance(each, str) else "tool"
                        yield LiveEvent(seen.session_id or "", seen.turn_id or "", kind, each)
                    if seen.state is not None:
                        break
                    while (live := await self._next(queue)).kind in STREAMED:
                        if live.turn_id == seen.turn_id:
                            yield live
                    is_here = is_here or live.kind == "began"
                    most = MOST.get(live.kind, 0) if is_here else None
                    is_beginning = live.kind == "began"
                    seen = await look(after=seen.seq, most=most, is_beginning=is_beginning)
        except TimeoutError as error:
            raise RetryLater("No answer came in time; your message is stored.") from error
        data = {"state": seen.state, "reason": seen.reason}
        yield LiveEvent(seen.session_id or "", seen.turn_id or "", "ended", data)

    async def _look(
        self,
        action: "Callable[..., _Answer]",
        id: str,
        *,
        after: int,
        most: int | None,
        is_beginning: bool = False,
    ) -> _Answer:
        seen = await self._context.store.read(
            action,
            id,
            profile=self._context.profile,
            after=after,
            most=most,
            is_beginning=is_beginning,
        )
        # `stop` means the session that answers.
        self._session_id = seen.session_id or self._session_id
        return seen

    async def _next(self, queue: "asyncio.Queue[LiveEvent | None]") -> LiveEvent:
        """Return the next event of this process, or that some were missed, or that there was none."""
        try:
            async with asyncio.timeout(self._context.settings.poll_seconds):
                return await queue.get() or LiveEvent("", "", MISSED)
        except TimeoutError:
            return LiveEvent("", "", "quiet")


def _accept(
    tx: Tx, context: EngineContext, source: Source, asked: Submission, *, moment: Moment
) -> tuple[SubmissionResult, str | None]:
    """Submit a message. Return with it the arrival that the agent answers: /retry asks an older one again."""
    accepted = intake.submit(tx, context, source, asked, moment=moment)
    received, key = accepted.received, accepted.key
    if received.answer is None or received.arrival_id is None:
        return accepted, received.arrival_id
    command = arrivals.get(tx, received.arrival_id, profile=key.profile)
    waiting = arrivals.waiting(tx, str(key), profile=key.profile, limit=turns.MOST_ARRIVALS)
    again = [each.id for each in waiting if command is not None and each.no > command.no]
    return accepted, again[-1] if again else None


def _dead_turn(tx: Tx, context: EngineContext, source: Source) -> Turn | None:
    """Return the turn of this terminal's conversation whose process has ended, if there is one."""
    key = context.key(source)
    head = routing.get_current(tx, key)
    if head is None or not turns.is_dead(tx, head.no, moment=context.moment()):
        return None
    assert head.running_turn is not None
    found = loop.find_dead_turn(tx, head.running_turn, only=key, context=context)
    return None if found is None else found.turn


def _place(
    tx: Tx,
    context: EngineContext,
    app: AppContext,
    source: Source,
    *,
    ref: str | None,
    new: bool,
    chosen: Changes,
) -> SessionHead | None:
    key, moment = app.key(source), app.moment()
    head: SessionHead | None = None
    target = None if ref is None else read.find(tx, ref, profile=app.profile)
    dead = _dead_turn(tx, context, source) if new or target is not None else None
    if dead is not None and (target is None or target.id != dead.session_id):
        no = read.get_head(tx, dead.session_id, profile=app.profile).no
        loop.stop_turn(tx, no, reason="stopped by you", context=context, moment=moment)
    if target is not None:
        head = routing.switch(tx, key, target, moment=moment)
    elif new:
        routing.reset(tx, key, moment=moment)
    else:
        current = routing.get_current(tx, key)
        head = current if current is not None and current.is_open else None
    by = source.person
    if chosen and head is not None:
        head = choice.choose(tx, head, chosen, by=by, moment=moment, catalog=app.catalog)
    elif chosen:
        routing.choose_next(tx, key, chosen, platform=source.platform, by=by, catalog=app.catalog)
    return head


def _prompts(tx: Tx, app: AppContext, source: Source) -> list[str]:
    head = routing.get_current(tx, app.key(source))
    if head is None:
        return []
    entries = read.read_window(tx, head.id, profile=app.profile, limit=200).entries
    return [
        each.body.text
        for each in entries
        if isinstance(each.body, Message) and each.body.role is Role.USER
    ]


def _stop(tx: Tx, session_id: str, *, profile: str) -> None:
    head = read.find(tx, session_id, profile=profile)
    turns.ask_to_stop(tx, head.no, reason="stopped by you")


def _look_up(
    tx: Tx,
    arrival_id: str,
    *,
    profile: str,
    after: int = 0,
    most: int | None = None,
    is_beginning: bool = False,
) -> _Answer:
    """Return what the turn of an arrival has answered: see `_look_at_turn`."""
    found = arrivals.get(tx, arrival_id, profile=profile)
    if found is None or found.state is ArrivalState.REFUSED:
        return _Answer(
            state=str(ArrivalState.REFUSED), reason=None if found is None else found.reason
        )
    if found.turn_id is None:
        return _Answer()
    return _look_at_turn(
        tx, found.turn_id, profile=profile, after=after, most=most, is_beginning=is_beginning
    )


def _look_at_turn(
    tx: Tx,
    turn_id: str,
    *,
    profile: str,
    after: int = 0,
    most: int | None = None,
    is_beginning: bool = False,
) -> _Answer:
    """Return what a turn has answered after an entry; while it runs, from at most `most` entries.

    `is_beginning`: only what it had answered before it was continued the last time.
    """
    known = turn_rows.get(tx, turn_id, profile=profile)
    if known is None:
        return _Answer()
    turn = known[0]
    is_over = turn.state is not TurnState.RUNNING
    begin = max(after, turn.first_seq - 1)
    if is_over:
        seq, parts = _parts_since(tx, turn, profile=profile, after=begin, most=None)
    elif is_beginning:
        last = _continued_at(tx, turn, profile=profile, after=begin)
        seq, parts = _parts_since(tx, turn, profile=profile, after=begin, most=None, last=last)
    else:
        seq, parts = _parts_since(tx, turn, profile=profile, after=begin, most=most)
    state = str(turn.state) if is_over else None
    return _Answer(turn.session_id, turn.id, parts, seq, state, turn.reason)


def _continued_at(tx: Tx, turn: Turn, *, profile: str, after: int) -> int:
    """Return the entry at which a turn was continued the last time, or `after`."""
    found = after
    for entry in _entries_of(tx, turn, profile=profile, after=after):
        record = (
            entry.body.extra.get(transcript.RECORD) if isinstance(entry.body, Message) else None
        )
        if isinstance(record, dict) and record.get("kind") == "resumed":
            found = entry.seq
    return found


def _entries_of(tx: Tx, turn: Turn, *, profile: str, after: int) -> Iterator[Entry]:
    """Yield the entries of the log after one of them, a page at a time; those of other turns included."""
    while page := read.read_log(tx, turn.session_id, profile=profile, after=after, limit=PAGE_SIZE):
        yield from page
        after = page[-1].seq


def _parts_since(
    tx: Tx, turn: Turn, *, profile: str, after: int, most: int | None, last: int = MAX_SEQ
) -> tuple[int, tuple[AnswerPart, ...]]:
    """Return the last entry that was read, and what the agent wrote and did up to it."""
    seq, left = after, most
    parts: list[AnswerPart] = []
    if left == 0:
        return seq, ()
    for entry in _entries_of(tx, turn, profile=profile, after=after):
        if entry.seq > last:
            break
        seq = entry.seq
        if entry.turn_id != turn.id or not isinstance(entry.body, Message):
            continue
        if entry.body.role is Role.ASSISTANT and entry.body.text:
            parts.append(entry.body.text)
        parts += [part for part in entry.body.parts if isinstance(part, ToolCall | ToolResult)]
        if left is not None and entry.body.role in (Role.ASSISTANT, Role.TOOL):
            left -= 1
            if left == 0:
                break
    return seq, tuple(parts)
