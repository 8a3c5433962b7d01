"""An engine in a test: a real store, a fake clock, a scripted agent, a loopback channel."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from sessionary.actions import turns
from sessionary.actions.sessions import lists, read, routing
from sessionary.config.engine import AccessPolicy, EngineSettings
from sessionary.engine.context import EngineContext
from sessionary.engine.engine import Engine
from sessionary.engine.intake import Received
from sessionary.engine.ports import Runner
from sessionary.model.message import Message, message
from sessionary.model.prompt import PromptContext, render
from sessionary.model.session import SessionFolder, SessionHead
from sessionary.model.source import Source, key_for
from sessionary.model.turn import Delivery, DeliveryState, Turn
from sessionary.store.database import Store
from sessionary.store.tables import deliveries, upkeep
from sessionary.testing.fakes import (
    FakeClock,
    LoopbackAdapter,
    ScriptedRunner,
    SequentialIds,
    scripted_agent,
)
from tests.support.crash import CrashingStore, CrashPoint

QUICK = EngineSettings(
    lease_seconds=30,
    poll_seconds=0.02,
    sweep_seconds=0.02,
    confirm_seconds=0.03,
    access={"loopback": AccessPolicy(everyone=True)},
)
# Far more than any test needs; a machine under load may need it.
TIMEOUT_SECONDS = 200.0
_BEYOND_LAST = 2**62


class EngineWorld:
    """One store, on which engines are started one after the other or several at once."""

    def __init__(self, store: Store, *, settings: EngineSettings = QUICK, **context: Any) -> None:
        self.store = store
        self.clock = FakeClock()
        self.ids = SequentialIds()
        self.adapter = LoopbackAdapter()
        self.runner = ScriptedRunner()
        self.settings = settings
        self._context = context
        self._engines = 0
        self._asked = 0

    def context(
        self, crash: CrashPoint | None = None, *, runner: Runner | None = None
    ) -> EngineContext:
        """The engine context of another process on the same store."""
        self._engines += 1
        agent = scripted_agent(runner or self.runner)
        made = EngineContext(
            store=self.store if crash is None else CrashingStore(self.store, crash),
            clock=self.clock,
            ids=self.ids,
            holder=f"engine-{self._engines}",
            agent_for=lambda _, __: agent,
            system_prompt=render_context_only,
            priced=lambda used: used,
            adapters={self.adapter.platform: self.adapter},
            deliverable=frozenset({self.adapter.platform}),
            settings=self.settings,
            rng=random.Random(self._engines),
        )
        return replace(made, **self._context)

    def use(self, **context: Any) -> None:
        """Replace these parts of the context of every engine from now on."""
        self._context |= context

    async def started(
        self, crash: CrashPoint | None = None, *, runner: Runner | None = None
    ) -> Engine:
        """Start an engine. One with a crash point polls rarely, so that its steps are only those of the test."""
        context = self.context(crash, runner=runner)
        if crash is not None:
            rarely = replace(self.settings, poll_seconds=30, sweep_seconds=300)
            context = replace(context, settings=rarely)
        engine = Engine(context)
        await engine.start()
        return engine

    def source(self, chat: str = "1", number: str = "1", **fields: Any) -> Source:
        """The source of a test's message."""
        given = {"platform": "loopback", "user_id": "u", "user_name": "Ada", **fields}
        return Source(chat_id=chat, platform_message_id=number, **given)

    async def says(
        self, engine: Engine, text: str, *, chat: str = "1", number: str = "1", **fields: Any
    ) -> Received:
        """A person writes."""
        return await engine.receive(self.source(chat, number, **fields), message("user", text))

    async def asks(self, engine: Engine, text: str, *, chat: str = "1", **fields: Any) -> list[str]:
        """A person writes something new; wait until all is done and return what the chat was sent."""
        self._asked += 1
        before = len(self.adapter.texts(f"loopback:{chat}"))
        await self.says(engine, text, chat=chat, number=f"asked-{self._asked}", **fields)
        await self.settle(engine)
        return self.adapter.texts(f"loopback:{chat}")[before:]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not condition():  # noqa: ASYNC110 - there is no event for every condition
                await asyncio.sleep(0.003)

    async def eventually(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait until a condition holds that must be awaited, such as a read from the store."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not await condition():  # noqa: ASYNC110 - there is no event for every condition
                await asyncio.sleep(0.003)

    async def until_outbox_is_idle(self) -> None:
        """Wait until no delivery is being sent or due: from then on only a later time changes that.

        A test that moves the clock sooner competes with the outbox, which reads the clock when it
        records the outcome of an attempt.
        """
        await self.eventually(self._outbox_is_idle)

    async def settle(self, engine: Engine | None = None) -> None:
        """Wait until no arrival, delivery or turn is waiting or running."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not await self._is_quiet(engine):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def head(self, chat: str = "1", **fields: Any) -> SessionHead:
        """The current session of a chat."""
        head = await self.store.read(routing.get_current, key_for(self.source(chat, **fields)))
        assert head is not None, f"no session for chat {chat}"
        return head

    async def texts(self, chat: str = "1", **fields: Any) -> list[str]:
        """What people read in a chat's current session."""
        return await self.texts_of((await self.head(chat, **fields)).id)

    async def messages(self, session_id: str) -> list[Message]:
        """The messages that people see in a session."""
        entries = await self.store.read(read.read_transcript, session_id, profile="main")
        return [entry.body for entry in entries if isinstance(entry.body, Message)]

    async def texts_of(self, session_id: str) -> list[str]:
        """What people read in a session."""
        return [message.text for message in await self.messages(session_id)]

    async def turns(self, chat: str = "1") -> list[Turn]:
        """The turns of a chat's current session."""
        return list(await self.store.read(turns.list_turns, (await self.head(chat)).no))

    async def sessions(self, folder: SessionFolder = SessionFolder.CHATS) -> list[SessionHead]:
        """All sessions of a folder, the most recent first."""
        page = await self.store.read(
            lists.list_sessions, lists.SessionFilters(folder=folder), profile="main"
        )
        return list(page.items)

    async def deliveries(self) -> list[Delivery]:
        """The rows of the outbox: what was sent, waits or was given up."""
        return list(
            await self.store.read(
                deliveries.list_page, profile="main", before=_BEYOND_LAST, limit=100
            )
        )

    async def _outbox_is_idle(self) -> bool:
        found = await self.deliveries()
        return not any(
            each.state is DeliveryState.SENDING
            or (each.state is DeliveryState.WAITING and each.not_before <= self.clock.now())
            for each in found
        )

    async def _is_quiet(self, engine: Engine | None) -> bool:
        found = await self.store.read(upkeep.backlog)
        idle = engine is None or engine.turns.turns + engine.scheduler.runs == 0
        return idle and not (found.waiting_arrivals or found.open_deliveries or found.running_turns)


def render_context_only(_: str | None, context: PromptContext) -> str:
    """A system prompt that consists of the context section alone."""
    return render(context)
