"""One question to an agent, answered in this process: a turn like every other, durable at each step."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sessionary.actions import files as file_actions
from sessionary.actions.sessions import read
from sessionary.app.context import AppContext
from sessionary.app.engine import Agents, build_engine
from sessionary.config.engine import read_engine
from sessionary.engine import intake
from sessionary.engine.context import EngineContext
from sessionary.engine.engine import Engine
from sessionary.engine.intake import Submission, SubmissionResult
from sessionary.errors import AgentFailed, NotAllowed, RetryLater
from sessionary.model.message import Entry, Message, Role
from sessionary.model.session import Opening, SessionHead
from sessionary.model.source import Source
from sessionary.model.turn import Arrival, ArrivalState, Turn, TurnState
from sessionary.model.usage import UsageTotal
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals
from sessionary.store.tables import turns as turn_rows
from sessionary.store.tables import usage as usage_rows


@dataclass(frozen=True, slots=True)
class Question:
    """A person's message to an agent, and where: in a source's conversation, a session, or a new one."""

    message: Message
    files: tuple[bytes, ...] = ()
    idempotency_key: str | None = None
    source: Source | None = None
    session_id: str | None = None
    opening: Opening | None = None


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """How a question was answered. `turn` is None for a command, whose answer is only a text."""

    session_id: str
    turn: Turn | None
    entries: tuple[Entry, ...]
    usage: UsageTotal
    text: str


def question_for(
    message: Message,
    files: tuple[bytes, ...],
    *,
    source: Source | None,
    session_id: str | None,
    opening: Opening,
    idempotency_key: str | None,
) -> Question:
    """Return a question in the conversation of a source, else in a session, else in a new one."""
    if source is not None:
        return Question(message, files, idempotency_key, source=source)
    if session_id is not None:
        return Question(message, files, idempotency_key, session_id=session_id)
    return Question(message, files, idempotency_key, opening=opening)


def submit(tx: Tx, context: EngineContext, question: Question, *, begin: bool) -> SubmissionResult:
    """Store a question; with `begin` its turn begins at once, if none is running."""
    moment = context.moment()
    file_actions.keep_files(
        tx, question.message, question.files, profile=context.profile, moment=moment
    )
    submission = Submission(question.message, question.idempotency_key, begin=begin)
    if question.session_id is not None:
        return intake.submit_to_session(tx, context, question.session_id, submission, moment=moment)
    if question.source is not None:
        return intake.submit(tx, context, question.source, submission, moment=moment)
    assert question.opening is not None
    return intake.submit_to_new_session(tx, context, question.opening, submission, moment=moment)


async def leave(app: AppContext, question: Question) -> Arrival:
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
    app: AppContext, question: Question, *, agent: str | None, seconds: float | None
) -> AgentAnswer:
    """Ask an agent and wait for the end of its turn; raise `AgentFailed` if it fails.

    If a turn is running in the session, this one begins after it. Cancelling stops the turn.
    """
    async with _agents(app, agent) as agents:
        engine = build_engine(app, agents=agents)
        context = engine.context
        write = context.store.write(submit, context, question, begin=True)
        accepted = await write.handoff(engine.run_submitted)
        # This process may end soon: it takes no work of other conversations.
        await engine.start(only=accepted.key)
        try:
            async with asyncio.timeout(seconds):
                return await _wait(app, engine, accepted)
        except TimeoutError as error:
            raise RetryLater("The agent did not answer in time; the message is stored.") from error
        finally:
            await engine.stop()


async def summarize(
    app: AppContext, head: SessionHead, *, agent: str | None, focus: str | None
) -> str:
    """Let an agent summarize what the model reads of a session."""
    async with _agents(app, agent) as agents:
        chats = await app.store.read(read.read_context, head.id, profile=app.profile)
        summarizer = agents.choose(head.source, agent).summarizer
        text, _ = await summarizer.summarize(chats, focus=focus)
        return text


@asynccontextmanager
async def _agents(app: AppContext, name: str | None) -> AsyncIterator[Agents]:
    agents = Agents(read_engine(app.config), folder=app.config.home, default=name)
    try:
        yield agents
    finally:
        await agents.close()


async def _wait(app: AppContext, engine: Engine, accepted: SubmissionResult) -> AgentAnswer:
    """Wait until the turn that took the message has ended."""
    received = accepted.received
    if received.answer is not None or received.arrival_id is None:
        session_id = accepted.current_session_id or ""
        return AgentAnswer(session_id, None, (), UsageTotal(), received.answer or "")
    with engine.context.bus.listen() as events:
        while True:
            answer = await app.store.read(look_up, received.arrival_id, profile=app.profile)
            if answer is not None:
                return answer
            # An event of this process, or the next look: another process may run the turn.
            try:
                async with asyncio.timeout(engine.context.settings.poll_seconds):
                    await events.get()
            except TimeoutError:
                continue


def look_up(tx: Tx, arrival_id: str, *, profile: str) -> AgentAnswer | None:
    """Return the answer to an arrival; None while its turn waits or runs."""
    arrival = arrivals.get(tx, arrival_id, profile=profile)
    if arrival is None or arrival.state is ArrivalState.REFUSED:
        why = None if arrival is None else arrival.reason
        raise NotAllowed(f"The message was refused: {why or 'its sender may not write here'}.")
    found = None if arrival.turn_id is None else turn_rows.get(tx, arrival.turn_id, profile=profile)
    if found is None or found[0].state is TurnState.RUNNING:
        return None
    turn, session_no = found
    if turn.state is not TurnState.DONE:
        raise AgentFailed(
            f"The turn {turn.state}: {turn.reason or 'no reason was given'}. What it wrote is in session "
            f"{turn.session_id}; ask again to retry."
        )
    entries = tuple(_entries(tx, turn, profile=profile))
    texts = [
        entry.body.text
        for entry in entries
        if isinstance(entry.body, Message) and entry.body.role is Role.ASSISTANT and entry.body.text
    ]
    return AgentAnswer(
        turn.session_id, turn, entries, _usage(tx, session_no, turn.id), texts[-1] if texts else ""
    )


def _entries(tx: Tx, turn: Turn, *, profile: str) -> Sequence[Entry]:
    found: list[Entry] = []
    after = turn.first_seq - 1
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
