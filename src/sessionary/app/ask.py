"""One question to an agent, answered in this process: a turn like every other, durable at each step."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

from sessionary.actions import files as file_actions
from sessionary.actions import question_arrivals, questions
from sessionary.actions.question_arrivals import find_turn_id, list_blocking
from sessionary.actions.sessions import read, routing
from sessionary.agents.registry import ConfiguredAgent, agent_of
from sessionary.app.context import AppContext
from sessionary.app.engine import Agents, build_engine
from sessionary.config.engine import read_engine
from sessionary.engine import intake
from sessionary.engine import questions as engine_questions
from sessionary.engine.context import EngineContext, EventBus, LiveEvent
from sessionary.engine.intake import Submission, SubmissionResult
from sessionary.engine.ports import AgentFunction, Delta
from sessionary.engine.questions import Answerer
from sessionary.engine.turn import compaction, loop
from sessionary.errors import AgentFailed, BadInput, Conflict, NotAllowed, RetryLater
from sessionary.model.choice import Changes
from sessionary.model.message import Entry, Message, Role
from sessionary.model.question import Answer, Question, QuestionState, outcome_text
from sessionary.model.session import Opening, SessionHead
from sessionary.model.source import Person, Source
from sessionary.model.transcript import RECORD, join_answer
from sessionary.model.turn import Arrival, ArrivalState, Turn, TurnState
from sessionary.model.usage import UsageTotal
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals
from sessionary.store.tables import turns as turn_rows
from sessionary.store.tables import usage as usage_rows

# Where a program is that answers a question.
API = "api"


@dataclass(frozen=True, slots=True)
class AskRequest:
    """A person's message to an agent, and where: in a source's conversation, a session, or a new one."""

    message: Message
    files: tuple[bytes, ...] = ()
    idempotency_key: str | None = None
    source: Source | None = None
    session_id: str | None = None
    opening: Opening | None = None
    # The agent, model, persona and tools of the session that the message opens, if it opens one for its source.
    chosen: Changes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """What an agent answered. `turn` is None for a command, whose answer is only a text.

    If the turn waits for people, `questions` are the open ones, and the rest is what it has written so far. If the
    message waits for the end of a turn that does, `questions` are those of that turn, and `turn` is None.
    """

    session_id: str
    turn: Turn | None
    entries: tuple[Entry, ...]
    usage: UsageTotal
    text: str
    questions: tuple[Question, ...] = ()


def submit(
    tx: Tx, context: EngineContext, question: AskRequest, *, begin: bool
) -> SubmissionResult:
    """Store a question; with `begin` its turn begins at once, if none is running."""
    moment = context.moment()
    file_actions.keep_files(
        tx, question.message, question.files, profile=context.profile, moment=moment
    )
    submission = Submission(question.message, question.idempotency_key, begin=begin)
    if question.session_id is not None:
        return intake.submit_to_session(tx, context, question.session_id, submission, moment=moment)
    if question.source is not None:
        if question.chosen:
            routing.choose_if_opened(
                tx,
                context.key(question.source),
                question.source,
                question.chosen,
                policy=context.policies.choose(question.source),
                catalog=None,  # the client has checked them
                moment=moment,
            )
        return intake.submit(tx, context, question.source, submission, moment=moment)
    assert question.opening is not None
    return intake.submit_to_new_session(tx, context, question.opening, submission, moment=moment)


async def leave(app: AppContext, question: AskRequest) -> Arrival:
    """Store a question for the agent of a running server; return its arrival."""
    context = build_engine(app).context

    def act(tx: Tx) -> Arrival:
        done = submit(tx, context, question, begin=False)
        found = None
        if done.received.arrival_id is not None:
            found = arrivals.get(tx, done.received.arrival_id, profile=app.profile)
        if found is None:
            raise NotAllowed("The message was not stored: its sender may not write here.")
        return found

    return await app.store.write(act)


async def ask(
    app: AppContext,
    question: AskRequest,
    *,
    agent: str | AgentFunction | None,
    seconds: float | None,
) -> AgentAnswer:
    """Ask an agent and wait until its turn ends, or waits for people; raise `AgentFailed` if it fails.

    If a turn is running in the session, this one begins after it. Cancelling stops the turn. A turn that waits for
    people is in no process: with the same idempotency key again, this waits for its end, and continues it here if its
    questions are answered.
    """
    async with aclosing(stream(app, question, agent=agent, seconds=seconds)) as events:
        async for event in events:
            if isinstance(event, AgentAnswer):
                return event
    raise AssertionError("a stream ends with the answer")


async def stream(
    app: AppContext,
    question: AskRequest,
    *,
    agent: str | AgentFunction | None,
    seconds: float | None,
) -> AsyncGenerator[Delta | Entry | AgentAnswer]:
    """Ask an agent; yield its text as it comes, its messages as they are stored, and in the end the answer.

    Closing the generator before its end stops the turn.
    """
    async with _agents(app, agent) as agents:
        engine = build_engine(app, agents=agents, bus=EventBus(app.live))
        context = engine.context
        with context.bus.listen(length=0) as events:
            write = context.store.write(submit, context, question, begin=True)
            accepted = await write.handoff(engine.run_submitted)
            # This process may end soon: it takes no work of other conversations.
            await engine.start(only={accepted.key})
            try:
                waiting = _EventQueue(
                    events,
                    poll_seconds=context.settings.poll_seconds,
                    until=None if seconds is None else time.monotonic() + seconds,
                )
                async for event in _follow(app, accepted, waiting):
                    yield event
            finally:
                await engine.stop()


class _EventQueue:
    """The live events of an engine, up to a deadline."""

    def __init__(
        self,
        events: "asyncio.Queue[LiveEvent | None]",
        *,
        poll_seconds: float,
        until: float | None,
    ) -> None:
        self._events = events
        self._poll_seconds = poll_seconds
        self._until = until

    async def next(self) -> LiveEvent | None:
        """Return the next event, or None when it is time to look at the store: another process may run the turn."""
        wait = self._poll_seconds
        if self._until is not None:
            wait = min(wait, self._until - time.monotonic())
        if wait <= 0:
            raise RetryLater("The agent did not answer in time; the message is stored.")
        try:
            async with asyncio.timeout(wait):
                return await self._events.get()
        except TimeoutError:
            return None

    def rest(self) -> Iterator[LiveEvent | None]:
        """Return the events that are there already."""
        while not self._events.empty():
            yield self._events.get_nowait()


async def _follow(
    app: AppContext, accepted: SubmissionResult, events: _EventQueue
) -> AsyncIterator[Delta | Entry | AgentAnswer]:
    """Yield what the agent writes in the turn that takes the message, and then the answer."""
    received = accepted.received
    if received.answer is not None or received.arrival_id is None:
        session_id = accepted.current_session_id or ""
        yield AgentAnswer(session_id, None, (), UsageTotal(), received.answer or "")
        return
    begun, last_seq = accepted.start.begun, 0
    turn_id = None if begun is None else begun.lease.turn_id
    answer: AgentAnswer | None = None
    if received.is_answer:  # it has answered a question: what follows is the rest of a turn
        turn_id, last_seq = await app.store.read(
            _answered_turn, received.arrival_id, profile=app.profile
        )
    if begun is None:  # it was answered before, it waits, or another process runs its turn
        answer = await app.store.read(look_up, received.arrival_id, profile=app.profile)
    while answer is None:
        while (live := await events.next()) is not None and live.kind not in ("ended", "lost"):
            if live.kind == "began" and turn_id is None:
                turn_id = await app.store.read(
                    _turn_of_arrival, received.arrival_id, profile=app.profile
                )
            elif live.turn_id == turn_id and live.kind == "step":
                # Only the one that the event is about: text that is streamed for later ones comes before them.
                step = await app.store.read(_next_step, turn_id, last_seq, profile=app.profile)
                if step is not None:
                    yield step
                    last_seq = step.seq
            elif live.turn_id == turn_id and (delta := _delta(live)) is not None:
                yield delta
        answer = await app.store.read(look_up, received.arrival_id, profile=app.profile)
    written = [each for each in answer.entries if each.seq > last_seq and _is_by_agent(each)]
    for live in events.rest():  # the turn may have ended while the store was read
        if live is None or answer.turn is None or live.turn_id != answer.turn.id:
            continue
        if live.kind == "step" and written:
            yield written.pop(0)
        elif (delta := _delta(live)) is not None:
            yield delta
    for entry in written:
        yield entry
    yield answer


def _delta(live: LiveEvent) -> Delta | None:
    if live.kind not in ("delta", "thinking"):
        return None
    return Delta(str(live.data), thinking=live.kind == "thinking")


def _is_by_agent(entry: Entry) -> bool:
    return isinstance(entry.body, Message) and entry.body.role in (Role.ASSISTANT, Role.TOOL)


def _turn_of_arrival(tx: Tx, arrival_id: str, *, profile: str) -> str | None:
    arrival = arrivals.get(tx, arrival_id, profile=profile)
    return None if arrival is None else find_turn_id(tx, arrival, profile=profile)


def _answered_turn(tx: Tx, arrival_id: str, *, profile: str) -> tuple[str | None, int]:
    """Return the turn whose question a message has answered, and the entry that records the answer."""
    question = question_arrivals.get_answered(tx, arrival_id, profile=profile)
    found = None if question is None else turn_rows.get(tx, question.turn_id, profile=profile)
    if question is None or found is None:
        return None, 0
    turn = found[0]
    records = [
        each.seq
        for each in _entries(tx, turn, profile=profile)
        if isinstance(each.body, Message) and _records(each.body, question)
    ]
    return turn.id, max(records, default=0)


def _records(message: Message, question: Question) -> bool:
    record = message.extra.get(RECORD)
    return isinstance(record, Mapping) and record.get("question_id") == question.id


def _next_step(tx: Tx, turn_id: str, after: int, *, profile: str) -> Entry | None:
    """Return the first entry that the agent has written in a turn after an entry."""
    found = turn_rows.get(tx, turn_id, profile=profile)
    if found is None:
        return None
    written = _entries(tx, found[0], profile=profile, after=after)
    return next((entry for entry in written if _is_by_agent(entry)), None)


async def stop_turn(app: AppContext, head: SessionHead, *, reason: str) -> tuple[bool, bool]:
    """Stop a session's turn; return whether one was running, and whether it has ended now.

    One that runs in another process ends a moment later; one whose process has ended, at once.
    """
    context = build_engine(app).context
    return await app.store.write(
        loop.stop_turn, head.no, reason=reason, context=context, moment=app.moment()
    )


async def answer_question(
    app: AppContext, ref: str, read_answer: Callable[[Question], Answer], *, by: Person
) -> Question:
    """Answer a question as an owner, once; whichever process takes turns of its conversation goes on with the turn.

    Raises `NotFound`; `BadInput` if it is no answer to this question; `Conflict` if the question was decided before or
    its time is over.
    """
    context, moment = build_engine(app).context, app.moment()

    def act(tx: Tx) -> Question:
        question = questions.find(tx, ref, profile=app.profile)
        return engine_questions.answer(
            tx,
            question.id,
            read_answer(question),
            who=Answerer(API, by, is_owner=True),
            context=context,
            moment=moment,
        )

    decided = await app.store.write(act)
    if decided.state is QuestionState.EXPIRED:  # which is stored
        raise Conflict(f"{outcome_text(decided)} Nothing was changed.")
    return decided


async def compact(
    app: AppContext, head: SessionHead, *, agent: str | None, focus: str | None
) -> SessionHead:
    """Replace a session, for the model, by a summary that an agent writes; what that used is recorded."""
    async with _agents(app, agent) as agents:
        found = await app.store.read(compaction.read_session_context, head.id, profile=app.profile)
        own = agents.catalog.settle(head.settings, platform=head.source.platform).agent
        chosen = agents.choose(head.source, agent or own)
        done = await compaction.summarize_as_asked(chosen, found, focus=focus)
    moment = app.moment()
    stored = await app.store.write(
        compaction.store_compaction,
        head.id,
        compaction.with_price(done, app.priced),
        profile=app.profile,
        moment=moment,
        spending=compaction.spending_of(
            head.source,
            chosen,
            head.id,
            known=read_engine(app.config).engine.budgets,
            profile=app.profile,
            now=moment.now,
        ),
    )
    return stored.head


@asynccontextmanager
async def _agents(app: AppContext, agent: str | AgentFunction | None) -> AsyncIterator[Agents]:
    default = agent if agent is None or isinstance(agent, str) else _agent_of_function(agent)
    agents = Agents(read_engine(app.config), folder=app.config.home, default=default)
    try:
        yield agents
    finally:
        await agents.close()


def _agent_of_function(function: AgentFunction) -> ConfiguredAgent:
    if not callable(function):
        raise BadInput(
            f"An agent is the name of a configured one, or a function, not {function!r}."
        )
    from sessionary.agents.python import PythonRunner  # only such an agent needs it

    name = getattr(function, "__name__", type(function).__name__)
    return agent_of(PythonRunner(function, name=name), name=name)


def look_up(tx: Tx, arrival_id: str, *, profile: str) -> AgentAnswer | None:
    """Return the answer to an arrival, or what its turn asks people; None while its turn runs, or has not begun."""
    arrival = arrivals.get(tx, arrival_id, profile=profile)
    if arrival is None or arrival.state is ArrivalState.REFUSED:
        why = None if arrival is None else arrival.reason
        raise NotAllowed(f"The message was refused: {why or 'its sender may not write here'}.")
    turn_id = find_turn_id(tx, arrival, profile=profile)
    found = None if turn_id is None else turn_rows.get(tx, turn_id, profile=profile)
    asked = tuple(list_blocking(tx, arrival, None if found is None else found[0]))
    if found is None and asked:  # it is answered after a turn that waits for people
        return AgentAnswer(asked[0].session_id, None, (), UsageTotal(), "", asked)
    if found is None or found[0].state is TurnState.RUNNING:
        return None
    turn, session_no = found
    if turn.state not in (TurnState.DONE, TurnState.WAITING):
        raise AgentFailed(
            f"The turn {turn.state}: {turn.reason or 'no reason was given'}. What it wrote is in session "
            f"{turn.session_id}; ask again to retry."
        )
    entries = tuple(_entries(tx, turn, profile=profile))
    text, _ = join_answer(entry.body for entry in entries if isinstance(entry.body, Message))
    return AgentAnswer(turn.session_id, turn, entries, _usage(tx, session_no, turn.id), text, asked)


def _entries(tx: Tx, turn: Turn, *, profile: str, after: int = 0) -> Sequence[Entry]:
    found: list[Entry] = []
    after = max(after, turn.first_seq - 1)
    while page := read.read_log(tx, turn.session_id, profile=profile, after=after):
        found += [entry for entry in page if entry.turn_id == turn.id]
        after = page[-1].seq
    return found


def _usage(tx: Tx, session_no: int, turn_id: str) -> UsageTotal:
    """Return the sum of the calls of a turn."""
    calls = [used for turn, used in usage_rows.of_session(tx, session_no) if turn == turn_id]
    return UsageTotal(
        None,
        len(calls),
        len([call for call in calls if call.cost_microusd is None]),
        len([call for call in calls if call.cost_status == "estimated"]),
        sum(call.input_tokens for call in calls),
        sum(call.output_tokens for call in calls),
        sum(call.cache_read_tokens for call in calls),
        sum(call.cache_write_tokens for call in calls),
        sum(call.reasoning_tokens for call in calls),
        sum(call.cost_microusd or 0 for call in calls),
    )
