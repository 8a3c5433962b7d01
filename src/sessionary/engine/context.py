"""What all loops of an engine share: settings, events, and the context that holds them."""

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from sessionary.actions.turns import RequestRecord
from sessionary.clock import Clock, Ids, Moment
from sessionary.config.engine import EngineSettings
from sessionary.engine.context_cache import ContextCache
from sessionary.engine.ports import Adapter, Agent, Sender
from sessionary.model import codec
from sessionary.model.choice import ChoiceCatalog
from sessionary.model.prompt import PromptContext
from sessionary.model.reset import Policies
from sessionary.model.session import SessionHead
from sessionary.model.source import Isolation, SessionKey, Source, key_for
from sessionary.model.turn import Lease
from sessionary.model.usage import Usage
from sessionary.store.database import Store
from sessionary.store.tables.blobs import hash_of_text

# Platforms whose senders were authenticated by the operating system or by the web server.
TRUSTED = frozenset({"terminal", "web", "schedule"})


QUEUE_LENGTH = 1000


class LiveEvent(Struct, frozen=True):
    """Something that happens in a running turn.

    `kind` is "began", "delta", "thinking", "step", "ended" or "lost". `seq` is the entry of a step of the agent.
    """

    session_id: str
    turn_id: str
    kind: str
    data: Any = None
    seq: int | None = None


class EventBus:
    """Passes live events to listeners.

    A slow listener loses events and gets None in their place; a turn never waits for one.
    """

    def __init__(self, forward: Callable[[LiveEvent], None] | None = None) -> None:
        """`forward` is called with every event too."""
        self._forward = forward
        self._queues: dict[asyncio.Queue[LiveEvent | None], str | None] = {}
        # By session: the running turn, its text since its last step, and the entry of that step.
        self._partial: dict[str, tuple[str, list[str], int | None]] = {}

    def publish(self, live: LiveEvent) -> None:
        """Pass an event to the listeners of its session, and to those of all sessions."""
        self._note(live)
        if self._forward is not None:
            self._forward(live)
        for queue, session_id in tuple(self._queues.items()):
            if session_id is not None and session_id != live.session_id:
                continue
            try:
                queue.put_nowait(live)
            except asyncio.QueueFull:
                self._overflow(queue)

    @contextmanager
    def listen(
        self, session_id: str | None = None, *, length: int = QUEUE_LENGTH
    ) -> Iterator["asyncio.Queue[LiveEvent | None]"]:
        """Yield a queue of one session's events, or of all; None in it means that some were lost.

        A queue of length 0 has no limit.
        """
        queue: asyncio.Queue[LiveEvent | None] = asyncio.Queue(length)
        self._queues[queue] = session_id
        try:
            yield queue
        finally:
            del self._queues[queue]

    def partial_text(self, session_id: str) -> LiveEvent | None:
        """Return the text of the running turn's unfinished step, for listeners who come late.

        Its `seq` is the entry of the step before, if this process has written one.
        """
        partial = self._partial.get(session_id)
        if partial is None:
            return None
        turn_id, texts, seq = partial
        return LiveEvent(session_id, turn_id, "so_far", "".join(texts), seq)

    def _note(self, live: LiveEvent) -> None:
        match live.kind:
            case "began":
                self._partial[live.session_id] = (live.turn_id, [], None)
            case "step":
                _, _, before = self._partial.get(live.session_id, (None, None, None))
                seq = before if live.seq is None else live.seq
                self._partial[live.session_id] = (live.turn_id, [], seq)
            case "delta" if live.session_id in self._partial:
                self._partial[live.session_id][1].append(str(live.data))
            case "ended" | "lost":
                self._partial.pop(live.session_id, None)

    def _overflow(self, queue: "asyncio.Queue[LiveEvent | None]") -> None:
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)


class WakeSignal:
    """Wakes a loop after a commit that concerns it, and after `seconds` in any case."""

    def __init__(self, store: Store, concerns: Callable[[Any], bool], *, seconds: float) -> None:
        self._seconds = seconds
        self._concerns = concerns
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._stop = store.listen(self._on_commit)

    def wake(self) -> None:
        """Wake the loop now."""
        self._event.set()

    async def wait(self) -> None:
        """Sleep until something concerns the loop, or until it is time to poll."""
        # Not wait_for: under 3.11 it can swallow a cancellation that comes with the event.
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                await self._event.wait()
        self._event.clear()

    def close(self) -> None:
        """Stop listening to commits."""
        self._stop()

    def _on_commit(self, events: Sequence[Any]) -> None:
        # This runs in the thread that committed; the loop may be gone already.
        if any(self._concerns(event) for event in events):
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._event.set)


class RequestCache:
    """Which texts of what models are sent besides the messages are stored already, by session; the latest of each.

    A session's epoch grows with each turn, and with each erasure, which deletes these texts: only what the turn right
    before has stored is known to be there.
    """

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._hashes: dict[int, tuple[int, str]] = {}

    def record(self, lease: Lease, sent: Mapping[str, Any]) -> RequestRecord:
        """Return the record of a request, with its text unless the session's turn before had the same."""
        text = codec.encode(sent)
        name = hash_of_text(text)
        epoch, known = self._hashes.get(lease.session_no, (0, ""))
        is_stored = known == name and lease.epoch - epoch <= 1
        return RequestRecord(name, None if is_stored else text)

    def mark_stored(self, lease: Lease, request: RequestRecord) -> None:
        """Note that a request's text is committed."""
        self._hashes.pop(lease.session_no, None)
        if len(self._hashes) >= self._limit:
            del self._hashes[next(iter(self._hashes))]
        self._hashes[lease.session_no] = lease.epoch, request.hash


@dataclass(frozen=True, slots=True)
class EngineContext:
    """The store, clock, agents, adapters and settings that all loops of an engine share."""

    store: Store
    clock: Clock
    ids: Ids
    holder: str
    agent_for: Callable[[Source, str | None], Agent]
    system_prompt: Callable[[str | None, PromptContext], str]
    priced: Callable[[Usage], Usage]
    adapters: Mapping[str, Adapter] = field(default_factory=dict)
    deliverable: frozenset[str] = frozenset()
    # What notifies browsers of questions. It is no adapter of a platform: nobody writes from it, and agents are not
    # told of it.
    push: Sender | None = None
    policies: Policies = field(default_factory=Policies)
    isolation: Isolation = field(default_factory=Isolation)
    settings: EngineSettings = field(default_factory=EngineSettings)
    profile: str = "main"
    redact_people: bool = False
    # What sessions may choose for themselves.
    catalog: ChoiceCatalog = field(default_factory=ChoiceCatalog)
    bus: EventBus = field(default_factory=EventBus)
    contexts: ContextCache = field(default_factory=ContextCache)
    requests: RequestCache = field(default_factory=RequestCache)
    # The ids of the turns that run in this process.
    running: set[str] = field(default_factory=set)
    rng: random.Random = field(default_factory=random.SystemRandom)

    def moment(self) -> Moment:
        """Return the current time, with the source of new ids."""
        return Moment(self.clock.now(), self.ids)

    def agent_of(self, head: SessionHead) -> Agent:
        """Return the agent of a session: the one that it has chosen, or the default of its source."""
        platform = head.source.platform
        return self.agent_for(
            head.source, self.catalog.settle(head.settings, platform=platform).agent
        )

    def key(self, source: Source) -> SessionKey:
        """Return the key of the conversation that a source belongs to."""
        return key_for(source, profile=self.profile, isolation=self.isolation)
