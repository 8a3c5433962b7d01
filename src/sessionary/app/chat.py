"""A conversation in the terminal: one person, with an engine in this process."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from sessionary.actions import questions, turns
from sessionary.actions.question_arrivals import find_answered
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
from sessionary.errors import Conflict, RetryLater, StoreUnavailable
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
from sessionary.model.question import (
    CODE_LENGTH,
    Question,
    button_answers,
    outcome_text,
    read_reply,
)
from sessionary.model.session import SessionHead
from sessionary.model.source import TERMINAL, SessionKey, Source
from sessionary.model.turn import ArrivalState, Turn, TurnState
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals, sessions
from sessionary.store.tables import turns as turn_rows

WAIT_SECONDS = 300.0
STREAMED = ("delta", "thinking")
MISSED = "missed"
# After a step, read one entry: the text of the next step is streamed.
MOST = {"step": 1, MISSED: None}
COMMANDS = commands.names()
PAGE_SIZE = 500
STOPPED = "stopped by you"
log = logging.getLogger(__name__)


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
    # How the turn ended, or that it waits for people, and why; None while it waits for its turn, or runs.
    state: str | None = None
    reason: str | None = None
    # What the turn has asked people.
    questions: tuple[Question, ...] = ()
    # Whether the arrival waits until the questions of another turn are answered.
    is_held: bool = False
    # Whether the turn waits although it runs, because a tool waits for the answer: it ends with its process.
    is_running: bool = False

    @property
    def open_questions(self) -> tuple[Question, ...]:
        """What the turn waits for."""
        return tuple(each for each in self.questions if each.is_open)


@dataclass(frozen=True, slots=True)
class _Accepted:
    """What became of a message: the agent answers it, or the turn goes on that has asked people something."""

    submitted: SubmissionResult | None
    # The arrival that the agent answers.
    arrival_id: str | None = None
    # The turn whose question was decided, or that was given up, and the last entry of it that was shown.
    turn_id: str | None = None
    seq: int = 0
    # What became of the question.
    outcome: str | None = None
    # The arrivals that wait for the end of the turn.
    queued: tuple[str, ...] = ()


class TerminalChat:
    """The conversation of the person at this terminal; each message is stored before it is answered."""

    def __init__(self, app: AppContext) -> None:
        self._app = app
        self._agents = Agents(read_engine(app.config), folder=app.config.home)
        self._engine = build_engine(app, agents=self._agents)
        self._context = self._engine.context
        self._session_id: str | None = None
        self._has_started = False
        # How far the turn has come that waits for people.
        self._waiting: _Answer | None = None
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

    @property
    def questions(self) -> tuple[Question, ...]:
        """What the turn of this conversation asks; a reply answers the first one."""
        return () if self._waiting is None else self._waiting.open_questions

    @property
    def keeps_questions(self) -> bool:
        """Whether the questions stay open when the person leaves."""
        return self._waiting is not None and not self._waiting.is_running

    async def continued(self) -> AsyncIterator[LiveEvent]:
        """Go on with the turn of this conversation whose process has ended, if there is one; yield what happens.

        Of a turn that waits for people, that is what it has written so far, and its questions.
        """
        context = self._context
        turn = await context.store.read(_unfinished_turn, context, self.source)
        if turn is None:
            return
        look = partial(self._look, _look_at_turn, turn.id)
        seen = await look(after=0, most=None)
        queued = await context.store.read(_queued, context.key(self.source))
        with context.bus.listen() as queue:
            await self._start()
            if turn.state is not TurnState.WAITING:
                data = turn.resume_reason if turn.is_woken else None
                yield LiveEvent(turn.session_id, turn.id, "resumed", data)
            async for live in self._answers(queue, look, seen):
                yield live
            async for live in self._answers_to_queued(queue, queued, after=turn.id):
                yield live

    async def decided(self) -> AsyncIterator[LiveEvent]:
        """Wait until an open question is decided elsewhere, or its time is over; then yield what happens."""
        context, before = self._context, self._waiting
        if before is None or before.turn_id is None:
            return
        turn_id, was_open = before.turn_id, {each.id for each in before.open_questions}
        look = partial(self._look, _look_at_turn, turn_id)
        with context.bus.listen() as queue:
            seen, is_here = before, False
            while seen.state == TurnState.WAITING and seen.open_questions == before.open_questions:
                is_here = (await self._next(queue)).kind == "began"
                try:
                    seen = await look(after=before.seq, most=0)
                except (RetryLater, StoreUnavailable) as error:
                    log.warning("the open question cannot be read: %s", error)
            queued = await context.store.read(_queued, context.key(self.source))
            for each in seen.questions:
                if each.id in was_open and not each.is_open:
                    yield LiveEvent(each.session_id, each.turn_id, "decided", outcome_text(each))
            async for live in self._answers(queue, look, seen, is_here=is_here):
                yield live
            async for live in self._answers_to_queued(queue, queued, after=turn_id):
                yield live

    async def send(self, text: str) -> AsyncIterator[LiveEvent]:
        """Send a message, or the answer to the open question; yield what happens until it is answered."""
        context = self._context
        await self._start()
        with context.bus.listen() as queue:
            write = context.store.write(
                _accept, context, self.source, text, shown=self._waiting, moment=context.moment()
            )
            accepted = await write.handoff(self._carry_on)
            submitted = accepted.submitted
            if submitted is not None:
                self._session_id = submitted.current_session_id
            session_id = self._session_id or ""
            received = None if submitted is None else submitted.received
            if accepted.outcome is not None:
                yield LiveEvent(session_id, accepted.turn_id or "", "decided", accepted.outcome)
            if received is not None and received.answer is not None:
                yield LiveEvent(session_id, "", "answer", received.answer)
            if received is not None and received.compaction is not None:
                yield await self._compact(received.compaction)
                return
            if accepted.turn_id is not None:
                look = partial(self._look, _look_at_turn, accepted.turn_id)
                seen = await look(after=accepted.seq, most=0)
                async for live in self._answers(queue, look, seen):
                    yield live
                waiting = self._answers_to_queued(queue, accepted.queued, after=accepted.turn_id)
                async for live in waiting:
                    yield live
            elif accepted.arrival_id is not None and submitted is not None:
                look = partial(self._look, _look_up, accepted.arrival_id)
                seen = await look(after=0, most=0)
                is_plain = received is None or received.answer is None
                if seen.turn_id is None and seen.state is None and is_plain:
                    yield LiveEvent(session_id, "", "waiting")
                is_here = submitted.turn_id is not None
                async for live in self._answers(queue, look, seen, is_here=is_here):
                    yield live

    async def _answers_to_queued(
        self,
        queue: "asyncio.Queue[LiveEvent | None]",
        arrival_ids: Sequence[str],
        *,
        after: str,
    ) -> AsyncIterator[LiveEvent]:
        """Yield the answers to messages that have waited for the end of a turn; not if it waits for people again."""
        shown = {after}
        for arrival_id in arrival_ids:
            if self._waiting is not None:
                return
            look = partial(self._look, _look_up, arrival_id)
            seen = await look(after=0, most=0)
            if seen.turn_id is not None and seen.turn_id in shown:
                continue
            async for live in self._answers(queue, look, seen):
                shown.add(live.turn_id)
                yield live

    async def _start(self) -> None:
        if not self._has_started:
            self._has_started = True
            # This process may end soon: it takes no work of other conversations.
            await self._engine.start(only={self._context.key(self.source)})

    def _carry_on(self, found: _Accepted) -> None:
        if found.submitted is not None and found.submitted.received.compaction is None:
            self._engine.run_submitted(found.submitted)

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
        if seen.is_held:
            yield LiveEvent(seen.session_id or "", seen.turn_id or "", "held")
        for question in seen.open_questions:
            yield LiveEvent(question.session_id, question.turn_id, "question", question)
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
        self._waiting = seen if seen.state == TurnState.WAITING else None
        return seen

    async def _next(self, queue: "asyncio.Queue[LiveEvent | None]") -> LiveEvent:
        """Return the next event of this process, or that some were missed, or that there was none."""
        try:
            async with asyncio.timeout(self._context.settings.poll_seconds):
                return await queue.get() or LiveEvent("", "", MISSED)
        except TimeoutError:
            return LiveEvent("", "", "quiet")


def _accept(
    tx: Tx,
    context: EngineContext,
    source: Source,
    text: str,
    *,
    shown: _Answer | None,
    moment: Moment,
) -> _Accepted:
    """Submit what the person has typed. `shown` is the turn that waits for people, if they were shown its question."""
    key = context.key(source)
    follow = partial(_follow, tx, key, shown=shown)
    current = None
    if shown is not None and shown.open_questions:
        id = shown.open_questions[0].id
        current = questions.get(tx, id, profile=context.profile)
    if current is not None and not current.is_open and _is_choice(current, text):
        # Somebody else was faster: what was typed is no message to the agent.
        return follow(current.turn_id, outcome=f"{outcome_text(current)} Nothing was changed.")
    if current is not None and _needs_code(tx, current, text):
        text = f"{current.code} {text}"
    head = routing.get_current(tx, key)
    accepted = intake.submit(tx, context, source, Submission(message("user", text)), moment=moment)
    received = accepted.received
    arrival = None
    if received.arrival_id is not None:
        arrival = arrivals.get(tx, received.arrival_id, profile=key.profile)
    decided = None if arrival is None else find_answered(tx, arrival, profile=key.profile)
    if decided is not None:
        if head is not None and decided.session_no == head.no:
            return follow(decided.turn_id, outcome=outcome_text(decided), submitted=accepted)
        # It was a question of another conversation, whose turn another process continues.
        return _Accepted(accepted, outcome=f"{outcome_text(decided)} ({decided.body.where})")
    if received.answer is None or arrival is None:
        return _Accepted(accepted, received.arrival_id)
    stopped = intake.end_stopped(tx, context, head, reason=STOPPED, moment=moment)
    if stopped is not None:  # the command was /stop
        return follow(stopped, submitted=accepted)
    return _Accepted(accepted, intake.asked_again(tx, arrival))


def _follow(
    tx: Tx,
    key: SessionKey,
    turn_id: str,
    *,
    shown: _Answer | None,
    outcome: str | None = None,
    submitted: SubmissionResult | None = None,
) -> _Accepted:
    """Return that the person goes on with a turn that has waited for people: it runs, or has ended."""
    if shown is not None and shown.turn_id == turn_id:
        seq = shown.seq
    else:
        session_no = turn_rows.session_no_of(tx, turn_id)
        seq = 0 if session_no is None else sessions.get_by_no(tx, session_no).last_seq
    return _Accepted(submitted, None, turn_id, seq, outcome, _queued(tx, key))


def _is_choice(question: Question, text: str) -> bool:
    """Whether a text can only have been meant as the answer to a question that was shown."""
    return bool(button_answers(question)) and read_reply(question, text) is not None


def _needs_code(tx: Tx, question: Question, text: str) -> bool:
    """Whether a reply must name its question: the turn asks several, or it runs and a tool waits for the answer."""
    asked = [each for each in questions.of_turn(tx, question.turn_id) if each.is_open]
    waits = sessions.get_by_no(tx, question.session_no).waits_for_people
    codes = {each.code for each in asked}
    is_named = text[:CODE_LENGTH].upper() in codes and text[CODE_LENGTH:].startswith(" ")
    is_reply = commands.find(text) is None and read_reply(question, text) is not None
    return question.is_open and (len(asked) > 1 or not waits) and is_reply and not is_named


def _queued(tx: Tx, key: SessionKey) -> tuple[str, ...]:
    """Return the arrivals that wait for a turn of a conversation."""
    found = arrivals.waiting(tx, str(key), profile=key.profile, limit=turns.MOST_ARRIVALS)
    return tuple(each.id for each in found)


def _unfinished_turn(tx: Tx, context: EngineContext, source: Source) -> Turn | None:
    """Return the turn of this terminal's conversation whose process has ended, or that waits for people."""
    head = routing.get_current(tx, context.key(source))
    if head is not None and head.waits_for_people and head.running_turn is not None:
        found = turn_rows.get(tx, head.running_turn, profile=context.profile)
        return None if found is None else found[0]
    return _dead_turn(tx, context, source)


def _dead_turn(tx: Tx, context: EngineContext, source: Source) -> Turn | None:
    """Return the turn of this terminal's conversation whose process has ended, if there is one."""
    key = context.key(source)
    head = routing.get_current(tx, key)
    if head is None or not turns.is_dead(tx, head.no, moment=context.moment()):
        return None
    assert head.running_turn is not None
    found = loop.find_dead_turn(tx, head.running_turn, only={key}, context=context)
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
        loop.stop_turn(tx, no, reason=STOPPED, context=context, moment=moment)
    _refuse_to_leave(tx, key, target, new=new)
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


def _refuse_to_leave(tx: Tx, key: SessionKey, target: SessionHead | None, *, new: bool) -> None:
    """Raise `Conflict` if the person goes to another session while theirs waits for an answer."""
    head = routing.get_current(tx, key)
    is_leaving = new or (target is not None and head is not None and target.no != head.no)
    if head is None or not head.waits_for_people or head.running_turn is None or not is_leaving:
        return
    codes = [each.code for each in questions.of_turn(tx, head.running_turn) if each.is_open]
    raise Conflict(
        f"Session {head.id} waits for an answer; nothing was changed. Answer it: sessionary questions answer "
        f"{codes[0] if codes else 'ID'} approve; or give it up: sessionary sessions stop {head.id}."
    )


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
    turns.ask_to_stop(tx, head.no, reason=STOPPED)


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
        return _look_at_queue(tx, SessionKey.parse(found.key))
    return _look_at_turn(
        tx, found.turn_id, profile=profile, after=after, most=most, is_beginning=is_beginning
    )


def _look_at_queue(tx: Tx, key: SessionKey) -> _Answer:
    """Return why an arrival waits: for a turn that runs, or for the answers to the questions of one."""
    head = routing.get_current(tx, key)
    turn_id = None if head is None else head.running_turn
    asked = () if turn_id is None else tuple(questions.of_turn(tx, turn_id))
    if head is None or not any(each.is_open for each in asked):
        return _Answer()
    return _Answer(
        head.id,
        turn_id,
        seq=head.last_seq,
        state=str(TurnState.WAITING),
        questions=asked,
        is_held=True,
        is_running=not head.waits_for_people,
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
    asked = tuple(questions.of_turn(tx, turn.id))
    is_running = turn.state is TurnState.RUNNING
    # A tool may wait for an answer while its turn runs.
    waits = any(each.is_open for each in asked)
    is_over = waits or not is_running
    begin = max(after, turn.first_seq - 1)
    if is_over:
        seq, parts = _parts_since(tx, turn, profile=profile, after=begin, most=None)
    elif is_beginning:
        last = _continued_at(tx, turn, profile=profile, after=begin)
        seq, parts = _parts_since(tx, turn, profile=profile, after=begin, most=None, last=last)
    else:
        seq, parts = _parts_since(tx, turn, profile=profile, after=begin, most=most)
    state = str(TurnState.WAITING if waits else turn.state) if is_over else None
    return _Answer(
        turn.session_id,
        turn.id,
        parts,
        seq,
        state,
        turn.reason,
        asked,
        is_running=waits and is_running,
    )


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
