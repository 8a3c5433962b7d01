"""Talking in the terminal: one person, one engine in this process, one conversation at a time."""

import asyncio
import getpass
import os
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from sessionary.actions import turns
from sessionary.actions.sessions import lists, read, routing
from sessionary.app import following
from sessionary.app.engine import Agents, build_engine
from sessionary.app.following import Seen
from sessionary.client.client import Sessionary
from sessionary.clock import Moment
from sessionary.config import engine as engine_config
from sessionary.engine import commands, intake
from sessionary.engine.context import EngineContext, LiveEvent
from sessionary.engine.intake import Submission, SubmissionResult
from sessionary.engine.turn.compaction import CompactionRequest
from sessionary.errors import RetryLater
from sessionary.model.message import Message, Role, message
from sessionary.model.session import SessionHead
from sessionary.model.source import TERMINAL, Source
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals

WAIT_SECONDS = 300.0
STREAMED = ("delta", "thinking")
MISSED = "missed"
# A step that is told is one entry: the words of the next are told behind it.
MOST = {"step": 1, MISSED: None}
COMMANDS = commands.names()


class Talk:
    """A conversation of the person at this terminal; durable before it is answered."""

    def __init__(self, client: Sessionary, *, agent: str | None = None) -> None:
        self._client = client
        self._agents = Agents(
            engine_config.read(client.config), folder=client.config.home, default=agent
        )
        self._engine = build_engine(client, agents=self._agents)
        self._context = self._engine.context
        self._session_id: str | None = None
        self.source = Source(platform=TERMINAL, user_id=_user())

    async def __aenter__(self) -> Self:
        # We may be gone in a moment: what waits for others is for those who stay.
        await self._engine.start(only=self._context.key(self.source))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._engine.stop()
        await self._agents.close()

    async def begin(self, *, ref: str | None = None, new: bool = False) -> SessionHead | None:
        """Go to a session that is named, begin a new one, or stay where the terminal was."""
        return await self._context.store.write(_place, self._client, self.source, ref=ref, new=new)

    async def say(self, text: str) -> AsyncIterator[LiveEvent]:
        """Say something; what happens then, until the answer is there."""
        context = self._context
        with context.bus.listen() as queue:
            asked = Submission(message("user", text))
            write = context.store.write(
                _accept, context, self.source, asked, moment=context.moment()
            )
            accepted, followed = await write.handoff(self._carry_on)
            self._session_id = accepted.current_session_id
            received = accepted.received
            if received.answer is not None:
                yield LiveEvent(accepted.current_session_id or "", "", "answer", received.answer)
            if received.compaction is not None:
                yield await self._followed(received.compaction)
                return
            if followed is not None:
                async for live in self._heard(queue, accepted, followed):
                    yield live

    def _carry_on(self, found: tuple[SubmissionResult, str | None]) -> None:
        if found[0].received.compaction is None:
            self._engine.run_submitted(found[0])

    def session_names(self) -> list[str]:
        """The titles of the latest sessions, for completion."""
        found = self._context.store.read(
            lists.list_sessions, lists.SessionFilters(), profile=self._context.profile
        )
        return [head.title for head in found.result().items if head.title is not None]

    def earlier_prompts(self) -> list[str]:
        """What the person at this terminal wrote before, oldest first."""
        return self._context.store.read(_prompts, self._client, self.source).result()

    async def stop(self) -> None:
        """Stop the turn that runs."""
        if self._session_id is not None:
            await self._context.store.write(_stop, self._session_id, profile=self._context.profile)

    async def _followed(self, request: CompactionRequest) -> LiveEvent:
        """What takes longer than a transaction, done while the person waits."""
        done = await self._engine.compactor.compact(request.session_id, focus=request.focus)
        return LiveEvent(request.session_id, "", "answer", done)

    async def _heard(
        self, queue: "asyncio.Queue[LiveEvent | None]", accepted: SubmissionResult, arrival_id: str
    ) -> AsyncIterator[LiveEvent]:
        """What is said to an arrival: as it comes if its turn runs here, else as it is kept."""
        is_here = accepted.turn_id is not None
        seen = await self._look(arrival_id, after=0, most=0)
        if seen.turn_id is None and seen.state is None and accepted.received.answer is None:
            yield LiveEvent(accepted.current_session_id or "", "", "waiting")
        try:
            async with asyncio.timeout(WAIT_SECONDS + self._context.settings.turn_seconds):
                while True:
                    for each in seen.said:
                        kind = "said" if isinstance(each, str) else "tool"
                        yield LiveEvent(seen.session_id or "", seen.turn_id or "", kind, each)
                    if seen.state is not None:
                        break
                    while (live := await self._next(queue)).kind in STREAMED:
                        if live.turn_id == seen.turn_id:
                            yield live
                    is_here = is_here or live.kind == "began"
                    most = MOST.get(live.kind, 0) if is_here else None
                    seen = await self._look(arrival_id, after=seen.seq, most=most)
        except TimeoutError as error:
            raise RetryLater("No answer came in time; your message is kept.") from error
        data = {"state": seen.state, "reason": seen.reason}
        yield LiveEvent(seen.session_id or "", seen.turn_id or "", "ended", data)

    async def _look(self, arrival_id: str, *, after: int, most: int | None) -> Seen:
        seen = await self._context.store.read(
            following.look, arrival_id, profile=self._context.profile, after=after, most=most
        )
        # Whoever stops the turn means the one that answers.
        self._session_id = seen.session_id or self._session_id
        return seen

    async def _next(self, queue: "asyncio.Queue[LiveEvent | None]") -> LiveEvent:
        """What happens next in this process; or that some was missed, or that all is quiet."""
        try:
            async with asyncio.timeout(self._context.settings.poll_seconds):
                return await queue.get() or LiveEvent("", "", MISSED)
        except TimeoutError:
            return LiveEvent("", "", "quiet")


def _user() -> str:
    """Who sits at the terminal; a user without a name has a number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _accept(
    tx: Tx, context: EngineContext, source: Source, asked: Submission, *, moment: Moment
) -> tuple[SubmissionResult, str | None]:
    """Take a message in; with it, the arrival that the agent answers: perhaps one said again."""
    accepted = intake.submit(tx, context, source, asked, moment=moment)
    received, key = accepted.received, accepted.key
    if received.answer is None or received.arrival_id is None:
        return accepted, received.arrival_id
    command = arrivals.get(tx, received.arrival_id, profile=key.profile)
    waiting = arrivals.waiting(tx, str(key), profile=key.profile, limit=turns.MOST_ARRIVALS)
    again = [each.id for each in waiting if command is not None and each.no > command.no]
    return accepted, again[-1] if again else None


def _place(
    tx: Tx, client: Sessionary, source: Source, *, ref: str | None, new: bool
) -> SessionHead | None:
    key, moment = client.key(source), client.moment()
    if ref is not None:
        target = read.resolve(tx, ref, profile=client.profile)
        return routing.switch(tx, key, target, moment=moment)
    if new:
        routing.reset(tx, key, moment=moment)
        return None
    head = routing.current(tx, key)
    return head if head is not None and head.is_open else None


def _prompts(tx: Tx, client: Sessionary, source: Source) -> list[str]:
    head = routing.current(tx, client.key(source))
    if head is None:
        return []
    said = read.window(tx, head.id, profile=client.profile, limit=200).entries
    return [
        each.body.text
        for each in said
        if isinstance(each.body, Message) and each.body.role is Role.USER
    ]


def _stop(tx: Tx, session_id: str, *, profile: str) -> None:
    head = read.resolve(tx, session_id, profile=profile)
    turns.ask_to_stop(tx, head.no, reason="stopped by you")
