"""A platform seen from its own side, and an engine with one adapter for it."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from sessionary.actions import outbox
from sessionary.actions.sessions import lists, read
from sessionary.agents.demo import EchoRunner
from sessionary.agents.registry import ConfiguredAgent
from sessionary.agents.summaries import ExtractiveSummarizer, ModelTitler
from sessionary.clock import Moment
from sessionary.config.engine import AccessPolicy, EngineSettings
from sessionary.engine.context import EngineContext
from sessionary.engine.engine import Engine
from sessionary.engine.ports import Adapter, PressResult, Receive
from sessionary.model.message import Message, Part, Role, Text
from sessionary.model.prompt import render
from sessionary.model.source import Channel, Source
from sessionary.model.turn import Delivery, DeliveryState
from sessionary.store.database import Store
from sessionary.store.tables import upkeep
from sessionary.testing.fakes import START, FakeClock, LoopbackAdapter, SequentialIds

# Much longer than anything takes on an idle machine, and shorter than the time limit of a test.
TIMEOUT_SECONDS = 200.0
# While a test waits, its clock runs 200 times as fast as real time. A lease that is short on that clock would run out
# during one slow write, and its work would be done twice: in the longest wait the clock moves by eleven hours.
_LEASE_SECONDS = 24 * 3600.0

# One clock and one sequence of ids per store: a second world on it is a restarted process, which must not go back in
# time or use an id again.
_times: WeakKeyDictionary[Store, tuple[FakeClock, SequentialIds]] = WeakKeyDictionary()


def quick_settings(**more: Any) -> EngineSettings:
    """Return settings for an engine that polls often, on a clock that runs fast."""
    given: dict[str, Any] = {
        "poll_seconds": 0.02,
        "sweep_seconds": 0.02,
        "lease_seconds": _LEASE_SECONDS,
        "send_seconds": _LEASE_SECONDS,
        **more,
    }
    return EngineSettings(**given)


class PlatformDriver(Protocol):
    """Drives a platform, fake or real: makes people write, reads what the bot wrote, makes the platform fail.

    `chat` is the direct chat of `known`, who may write to the agent. `acknowledges` is false where a platform cannot
    be told that a message was received. `largest_file` is None where no files come in; `largest_sent` is how large a
    file of the agent may be.
    """

    name: str
    chat: Channel
    known: str
    acknowledges: bool
    largest_file: int | None
    largest_sent: int

    def adapter(self) -> Adapter:
        """Return a new adapter for this platform, as `build` would make it; not running yet."""

    async def says(
        self, text: str, *, number: int, person: str | None = None, file: bytes | None = None
    ) -> None:
        """Let a person write in their direct chat with the bot: `known`, unless another is named.

        The platform offers it until it is acknowledged; this returns without waiting for that.
        The same number again is the same message, delivered once more.
        """

    def acknowledged(self, number: int) -> bool:
        """Return whether the adapter has acknowledged a message."""

    def seen(self) -> list[str]:
        """Return what the bot has written in `chat` as people read it, in order."""

    def given(self) -> list[tuple[str, bytes]]:
        """Return the files that the bot has sent to `chat`, in order: their names and bytes."""

    def fetched(self) -> int:
        """Return how many files of people the bot has fetched."""

    def refuse(self, status: int, *, retry_after: float | None = None, times: int = 1) -> None:
        """Answer the next requests that send a message with an error."""

    def lose_answers(self, times: int = 1) -> None:
        """Accept the next requests that send a message, and break the connection instead of answering."""

    def revoke(self) -> None:
        """Refuse the bot's token or key from now on."""

    async def go_offline(self) -> None:
        """Be unreachable; what people write is kept."""

    async def go_online(self) -> None:
        """Be reachable again."""


class SigningPlatform(PlatformDriver, Protocol):
    """A platform that posts messages with a signature."""

    async def forges(self, text: str, *, number: int) -> int:
        """Post a message of `known` with a forged signature; return the status of the answer."""

    async def replays_late(self, text: str, *, number: int) -> int | None:
        """Post a signed message much later; return the status, or None where the time is not signed."""


class ChannelWorld:
    """An engine with an echo agent, the platform's channel, and another channel beside it."""

    def __init__(self, store: Store, platform: PlatformDriver, **context: Any) -> None:
        self.store = store
        self.platform = platform
        self.adapter = platform.adapter()
        self.other = LoopbackAdapter()
        self.clock, self.ids = _times.setdefault(store, (FakeClock(), SequentialIds()))
        self._context = context

    def context(self) -> EngineContext:
        """Return the engine's context."""
        agent = ConfiguredAgent("echo", None, EchoRunner(), ExtractiveSummarizer(), ModelTitler())
        adapters: dict[str, Adapter] = {self.platform.name: self.adapter, "loopback": self.other}
        access = {
            self.platform.name: AccessPolicy(allow=frozenset({self.platform.known})),
            "loopback": AccessPolicy(everyone=True),
        }
        made = EngineContext(
            store=self.store,
            clock=self.clock,
            ids=self.ids,
            holder="engine",
            agent_for=lambda _, __: agent,
            system_prompt=lambda _, surroundings: render(surroundings),
            priced=lambda used: used,
            adapters=adapters,
            deliverable=frozenset(adapters),
            settings=quick_settings(access=access),
            rng=random.Random(1),
        )
        return replace(made, **self._context)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Engine]:
        """Run the engine inside the block."""
        engine = Engine(self.context())
        await engine.start()
        try:
            yield engine
        finally:
            await engine.stop()

    async def until(self, is_so: Callable[[], bool], what: str = "") -> None:
        """Wait until a condition holds; the fake clock runs, so that retries happen."""
        await until(is_so, what, meanwhile=lambda: self.clock.tick(1))

    async def until_seen(self, *texts: str) -> None:
        """Wait until the chat shows exactly these texts of the bot."""
        wanted = list(texts)
        await self.until(lambda: self.platform.seen() == wanted, f"{wanted} was not seen")

    async def settle(self, engine: Engine) -> None:
        """Wait until nothing is waiting or running."""
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while not await self._is_quiet(engine):
                    self.clock.tick(1)
                    await asyncio.sleep(0.005)
        except TimeoutError:
            found = await self.store.read(upkeep.backlog)
            raise AssertionError(f"it never became quiet: {found}") from None

    async def post(self, text: str) -> str:
        """Put a text for the chat into the outbox; return its id."""
        moment = Moment(self.clock.now(), self.ids)
        channel, parts = self.platform.chat, (Text(text),)
        return await self.store.write(outbox.enqueue, channel, parts, profile="main", moment=moment)

    async def transcripts(self, role: Role | None = None) -> list[list[str]]:
        """Return the texts of each session, the latest first; perhaps of one role only."""
        found = await self._messages()
        return [
            [message.text for message in each if role in (None, message.role)] for each in found
        ]

    async def heard(self) -> list[str]:
        """Return what people have written, in all sessions."""
        found = await self._messages()
        return [message.text for each in found for message in each if message.role is Role.USER]

    async def until_heard(self, count: int) -> list[str]:
        """Wait until this many messages of people are stored; return them."""
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while len(found := await self.heard()) < count:
                    self.clock.tick(1)
                    await asyncio.sleep(0.005)
        except TimeoutError:
            raise AssertionError(f"{count} messages; {await self.heard()} came") from None
        return found

    async def _messages(self) -> list[list[Message]]:
        page = await self.store.read(lists.list_sessions, lists.SessionFilters(), profile="main")
        found = []
        for head in page.items:
            entries = await self.store.read(read.read_transcript, head.id, profile="main")
            found.append([each.body for each in entries if isinstance(each.body, Message)])
        return found

    async def _is_quiet(self, engine: Engine) -> bool:
        found = await self.store.read(upkeep.backlog)
        waiting = found.waiting_arrivals or found.open_deliveries or found.running_turns
        return not waiting and engine.turns.turns == 0


class RecordingIntake:
    """A `Receive` without an engine: records what came, and can be slow or refuse."""

    def __init__(self, keep: Callable[[int], Awaitable[object]] | None = None) -> None:
        self.sources: list[Source] = []
        self.messages: list[Message] = []
        self.files: list[Sequence[bytes]] = []
        self.asked: list[Source] = []
        self.pressed: list[tuple[Source, str]] = []
        self.is_open = True
        self.kept = 0
        self._keep = keep

    @property
    def texts(self) -> list[str]:
        """The texts of what came."""
        return [message.text for message in self.messages]

    async def __call__(
        self, source: Source, message: Message, /, *, files: Sequence[bytes] = ()
    ) -> str:
        """Record a message; then await `keep` with the number of messages so far."""
        self.sources.append(source)
        self.messages.append(message)
        self.files.append(files)
        if self._keep is not None:
            await self._keep(len(self.messages))
        self.kept += 1
        return f"arrival-{len(self.messages)}"

    async def admits(self, source: Source, /) -> bool:
        """Admit everyone while `is_open`."""
        self.asked.append(source)
        return self.is_open

    async def press(self, source: Source, data: str, /) -> PressResult:
        """Record a press of a button; return what the person is told."""
        self.pressed.append((source, data))
        return PressResult(f"Noted {len(self.pressed)}.", is_changed=True)


async def until(
    is_so: Callable[[], bool], what: str, *, meanwhile: Callable[[], object] = bool
) -> None:
    """Wait until a condition holds; `what` is the error if it never does."""
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not is_so():
                meanwhile()
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(what) from None


@contextlib.asynccontextmanager
async def run_adapter(adapter: Adapter, receive: Receive) -> AsyncIterator["asyncio.Task[None]"]:
    """Run an adapter inside the block, without an engine."""
    task = asyncio.ensure_future(adapter.run(receive))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await adapter.close()


def delivery_to(
    channel: Channel, *message: str | Part, id: str = "delivery-1", attempts: int = 1
) -> Delivery:
    """Return a delivery as the outbox hands it to an adapter."""
    return Delivery(
        no=1,
        id=id,
        profile="main",
        channel=channel,
        session_id=None,
        turn_id=None,
        parts=tuple(Text(each) if isinstance(each, str) else each for each in message),
        state=DeliveryState.SENDING,
        attempts=attempts,
        unclear_attempts=0,
        not_before=START,
        created_at=START,
    )
