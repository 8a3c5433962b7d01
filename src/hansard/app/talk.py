"""Talking in the terminal: one person, one engine in this process, one conversation at a time."""

import asyncio
import getpass
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from hansard.actions import listing, read, resolve, routing, turns
from hansard.app.engine import Agents, build_engine
from hansard.app.house import House
from hansard.config import engine as engine_config
from hansard.engine import asking, verbs
from hansard.engine.asking import Accepted, Asking
from hansard.engine.bus import Live
from hansard.engine.commands import FollowUp
from hansard.errors import RetryLater, TurnLost
from hansard.model.entry import Message, Role, message
from hansard.model.place import TERMINAL, Source
from hansard.model.session import SessionHead
from hansard.store.database import Tx

WAIT_SECONDS = 300.0
RETRY = "/retry"
COMMANDS = verbs.names()


class Talk:
    """A conversation of the person at this terminal; durable before it is answered."""

    def __init__(self, house: House, *, agent: str | None = None) -> None:
        self._house = house
        self._agents = Agents(engine_config.read(house.config), default=agent)
        self._engine = build_engine(house, agents=self._agents)
        self._parts = self._engine.parts
        self._session_id: str | None = None
        self.source = Source(platform=TERMINAL, user_id=getpass.getuser())

    async def __aenter__(self) -> Self:
        await self._engine.start()
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
        return await self._parts.store.write(_place, self._house, self.source, ref=ref, new=new)

    async def say(self, text: str) -> AsyncIterator[Live]:
        """Say something; what happens then, until the answer is there."""
        parts = self._parts
        with parts.bus.listen() as queue:
            accepted = await parts.store.write(
                asking.accept,
                parts,
                self.source,
                Asking(message("user", text)),
                when=parts.occasion(),
            )
            self._session_id = accepted.session_id
            if accepted.received.answer is not None:
                yield Live(accepted.session_id or "", "", "answer", accepted.received.answer)
            if accepted.received.follow_up is not None:
                yield await self._followed(accepted.received.follow_up)
                return
            self._engine.carry_on(accepted)
            if accepted.received.answer is None or text.strip().lower() == RETRY:
                async for live in self._heard(queue, accepted):
                    yield live

    def session_names(self) -> list[str]:
        """The titles of the latest sessions, for completion."""
        found = self._parts.store.read(
            listing.listing, listing.Filters(), profile=self._parts.profile
        )
        return [head.title for head in found.result().items if head.title is not None]

    def earlier_prompts(self) -> list[str]:
        """What the person at this terminal wrote before, oldest first."""
        return self._parts.store.read(_prompts, self._house, self.source).result()

    async def stop(self) -> None:
        """Stop the turn that runs."""
        if self._session_id is not None:
            await self._parts.store.write(_stop, self._session_id, profile=self._parts.profile)

    async def _followed(self, follow_up: FollowUp) -> Live:
        """What takes longer than a transaction, done while the person waits."""
        done = await self._engine.compactor.compact(follow_up.session_id, focus=follow_up.text)
        return Live(follow_up.session_id, "", "answer", done)

    async def _heard(
        self, queue: "asyncio.Queue[Live | None]", accepted: Accepted
    ) -> AsyncIterator[Live]:
        """The events of the turn that takes this message, in whatever process it runs."""
        if accepted.turn_id is None and accepted.received.answer is None:
            yield Live(accepted.session_id or "", "", "waiting")
        try:
            async with asyncio.timeout(WAIT_SECONDS + self._parts.settings.turn_seconds):
                while (live := await queue.get()) is None or live.kind not in ("ended", "lost"):
                    if live is not None and self._concerns(live, accepted):
                        yield live
        except TimeoutError as error:
            raise RetryLater("No answer came in time; your message is kept.") from error
        if live.kind == "lost":
            raise TurnLost("Another process took the turn over; its answer is in the session.")
        yield live

    def _concerns(self, live: Live, accepted: Accepted) -> bool:
        return accepted.turn_id is None or live.turn_id == accepted.turn_id


def _place(
    tx: Tx, house: House, source: Source, *, ref: str | None, new: bool
) -> SessionHead | None:
    key, when = house.key(source), house.occasion()
    if ref is not None:
        target = resolve.resolve(tx, ref, profile=house.profile)
        return routing.switch(tx, key, target, when=when)
    if new:
        routing.reset(tx, key, when=when)
        return None
    head = routing.current(tx, key)
    return head if head is not None and head.is_open else None


def _prompts(tx: Tx, house: House, source: Source) -> list[str]:
    head = routing.current(tx, house.key(source))
    if head is None:
        return []
    said = read.window(tx, head.id, profile=house.profile, limit=200).entries
    return [
        each.body.text
        for each in said
        if isinstance(each.body, Message) and each.body.role is Role.USER
    ]


def _stop(tx: Tx, session_id: str, *, profile: str) -> None:
    head = resolve.resolve(tx, session_id, profile=profile)
    turns.ask_to_stop(tx, head.no, reason="stopped by you")
