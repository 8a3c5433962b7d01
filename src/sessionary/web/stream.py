"""Server-sent events: a reader of the feed, one stream for each browser, and the set of open streams."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from typing import Any

from starlette.types import Receive, Scope, Send
from typing_extensions import TypedDict

from sessionary.actions.credentials import AccessEnded
from sessionary.actions.feed import FeedProgress
from sessionary.actions.sessions import read
from sessionary.actions.sessions.log import SessionChanged
from sessionary.engine.context import LiveEvent
from sessionary.errors import Damaged, NotFound, RetryLater, StoreUnavailable
from sessionary.model import codec
from sessionary.model.session import Segment
from sessionary.model.turn import TurnState
from sessionary.model.view import entry_json
from sessionary.store.database import Store, Tx
from sessionary.store.tables import entries
from sessionary.store.tables.entries import FeedChange
from sessionary.web import session_heads
from sessionary.web.auth import is_still_valid
from sessionary.web.context import Caller, WebContext
from sessionary.web.problems import RequestRefused, refusal_response
from sessionary.web.routing import Streamed

FAR_BEHIND = 5000
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_KEEP_ALIVE = b": here\n\n"
MAX_CHARACTERS = 1_000_000
# The jobs that changed since a version, and the current version.
ChangedJobs = Callable[[int], tuple[list[Any], int]]
log = logging.getLogger(__name__)


class NoData(TypedDict):
    """An empty object."""


class GoneSession(TypedDict):
    """A session that was purged."""

    id: str


class DamagedEntry(TypedDict):
    """An entry that cannot be read."""

    session_id: str
    seq: int | None
    detail: str


class TurnOutcome(TypedDict):
    """How a turn ended; `waiting`: it has not, but waits for people, and goes on later with another `began`."""

    state: TurnState
    reason: str | None


class TurnProgress(TypedDict):
    """What happened in a running turn."""

    session_id: str
    turn_id: str
    data: str | TurnOutcome | None
    """The new text of `delta` and `thinking`, all text of `so_far`, the outcome of `ended`; null otherwise."""


class ClosedStream(TypedDict):
    """Why the server closed the stream."""

    reason: str


class FeedReader:
    """Gives each change until it is marked as sent; `position` is what a client may resume from."""

    def __init__(
        self, store: Store, position: int, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._progress = FeedProgress(position, monotonic=monotonic)

    @property
    def position(self) -> int:
        """Up to here everything was sent."""
        return self._progress.position

    async def is_out_of_range(self) -> bool:
        """Whether the position is not of this feed, or so far back that starting over is cheaper."""
        last, here = await self._store.read(entries.last_position), self._progress.last
        return here > last or last - here > FAR_BEHIND

    async def jump(self) -> None:
        """Go to the end of the feed."""
        self._progress.jump(await self._store.read(entries.last_position))

    async def unsent(self) -> list[FeedChange]:
        """The changes that were not sent yet, in order; the feed is read on when all were sent."""
        if not self._progress.pending:
            self._progress.add(await self._store.read(self._progress.read))
        return self._progress.pending

    def mark_sent(self, changes: Iterable[FeedChange]) -> None:
        """Mark changes as done: they were sent, or nobody here wants them."""
        self._progress.mark_handled(changes)


class EventStreams:
    """The open streams of the application: commits wake them, and all can be closed."""

    def __init__(self, context: WebContext) -> None:
        self._open: set[EventStream] = set()
        self._limits = context.settings.limits
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = context.store.listen(self._on_commit)
        self.closed = False

    def __len__(self) -> int:
        return len(self._open)

    def add(self, stream: "EventStream") -> None:
        """Add a stream; refuse it if its caller, or all callers together, have too many."""
        of_caller = sum(each.caller.id == stream.caller.id for each in self._open)
        if of_caller >= self._limits.streams_per_caller:
            raise RequestRefused(
                429,
                f"This token or login has {of_caller} event streams open, which is the most it may "
                "have; close one first.",
                after=5,
            )
        if len(self._open) >= self._limits.streams:
            raise RequestRefused(503, "Too many event streams are open.", after=5)
        self._loop = asyncio.get_running_loop()
        self._open.add(stream)

    def discard(self, stream: "EventStream") -> None:
        self._open.discard(stream)

    def close(self) -> None:
        """End every stream: the server stops. Browsers come back by themselves."""
        self.closed = True
        self.wake()

    def stop_listening(self) -> None:
        self._stop()

    def _on_commit(self, events: Sequence[Any]) -> None:
        # This runs in the thread that committed; the loop may be gone already.
        loop = self._loop if self._open else None
        if loop is not None and any(
            isinstance(event, SessionChanged | AccessEnded) for event in events
        ):
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self.wake)

    def wake(self) -> None:
        """Let every stream check for changes."""
        for stream in self._open:
            stream.wake.set()


class EventStream(Streamed[Any]):
    """Sends changes until the client disconnects, loses access or reads too slowly, or the server stops."""

    def __init__(
        self,
        context: WebContext,
        caller: Caller,
        streams: EventStreams,
        *,
        shows_list: bool,
        sessions: frozenset[str],
        after: int | None,
        imports: ChangedJobs | None = None,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.wake = asyncio.Event()
        self._context = context
        self.caller = caller
        self._streams = streams
        self._shows_list = shows_list
        self._sessions = sessions
        self._after = after
        self._imports = imports
        self._imports_seen = 0
        self._reader = FeedReader(context.store, after or 0)
        self._live: asyncio.Queue[LiveEvent | None] | None = None
        self._next: asyncio.Future[LiveEvent | None] | None = None
        self._sent_at = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._streams.add(self)
        except RequestRefused as error:
            await refusal_response(error)(scope, receive, send)
            return
        gone = asyncio.ensure_future(until_gone(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            with ExitStack() as ending:
                await self._run(send, gone, ending)
            with suppress(TimeoutError, OSError):
                await self._send(send, b"", more=False)
        except (TimeoutError, OSError):
            pass  # too slow, or disconnected: it resumes from its last id
        finally:
            self._streams.discard(self)
            gone.cancel()
            if self._next is not None:
                self._next.cancel()

    async def _run(self, send: Send, gone: "asyncio.Future[None]", ending: ExitStack) -> None:
        limits = self._context.settings.limits
        await self._begin(send, ending)
        while not gone.done() and not self._streams.closed:
            self.wake.clear()
            is_allowed: bool | None = None
            with suppress(RetryLater, StoreUnavailable):  # the next round asks again
                is_allowed = await is_still_valid(self._context, self.caller)
            if is_allowed is False:
                closed = ClosedStream(reason="no longer allowed")
                await self._send(send, event("closed", closed))
                return
            if is_allowed:
                with suppress(RetryLater, StoreUnavailable):  # the next round tries again
                    await self._send_changes(send)
                await self._send_live(send)
                await self._send_imports(send)
            if time.monotonic() - self._sent_at > limits.keep_alive_seconds:
                await self._send(send, _KEEP_ALIVE)
            if is_allowed:
                await self._pause(gone)
            else:  # unsent changes must not start the next round at once
                await asyncio.wait({gone}, timeout=limits.check_seconds)

    async def _begin(self, send: Send, ending: ExitStack) -> None:
        engine = self._context.engine
        if self._after is None:
            await self._reader.jump()
        elif await self._reader.is_out_of_range():
            await self._resync(send)
        await self._send(send, event("hello", {}, id=self._reader.position))
        if self._after is not None:
            # An entry and the head that follows it have the same id: a client that disconnected
            # between them has the entry, and not the head.
            events = await self._context.store.read(
                _heads,
                sorted(self._sessions),
                profile=self.caller.profile,
                now=self._context.clock.now(),
            )
            if events:
                position = self._reader.position
                await self._send(send, b"".join(frame(*each, id=position) for each in events))
        if engine is None or not self._sessions or engine.context.profile != self.caller.profile:
            return
        # No await between listening and reading: no event is missed in between.
        self._live = ending.enter_context(engine.context.bus.listen())
        partials = [engine.context.bus.partial_text(each) for each in sorted(self._sessions)]
        for each in partials:
            if each is not None:
                await self._send(send, _live_event(each))

    async def _send_changes(self, send: Send) -> None:
        while changes := await self._reader.unsent():
            mine = [each for each in changes if self._concerns(each)]
            others = [each for each in changes if not self._concerns(each)]
            shown = await self._context.store.read(
                _shown,
                mine,
                sessions=self._sessions,
                shows_list=self._shows_list,
                now=self._context.clock.now(),
            )
            self._reader.mark_sent(others)
            for change, events in shown:
                self._reader.mark_sent([change])
                if events:
                    position = self._reader.position
                    await self._send(send, b"".join(frame(*each, id=position) for each in events))

    async def _send_live(self, send: Send) -> None:
        while self._live is not None:
            if self._next is not None and self._next.done():
                live, self._next = self._next.result(), None
            elif self._next is None and not self._live.empty():
                live = self._live.get_nowait()
            else:
                return
            if live is None:
                await self._resync(send)
            elif live.session_id in self._sessions:
                await self._send(send, _live_event(live))

    async def _send_imports(self, send: Send) -> None:
        if self._imports is not None:
            changed, self._imports_seen = self._imports(self._imports_seen)
            for each in changed:
                await self._send(send, event("import", each))

    async def _pause(self, gone: "asyncio.Future[None]") -> None:
        """Wait for a commit, a live event, a disconnect, or the next check."""
        woken = asyncio.ensure_future(self.wake.wait())
        waits: set[asyncio.Future[Any]] = {gone, woken}
        if self._live is not None:
            self._next = self._next or asyncio.ensure_future(self._live.get())
            waits.add(self._next)
        seconds = self._context.settings.limits.check_seconds
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        woken.cancel()

    async def _resync(self, send: Send) -> None:
        await self._reader.jump()
        await self._send(send, event("resync", {}, id=self._reader.position))

    async def _send(self, send: Send, data: bytes, *, more: bool = True) -> None:
        stall = self._context.settings.limits.stream_stall_seconds
        message = {"type": "http.response.body", "body": data, "more_body": more}
        await asyncio.wait_for(send(message), stall)
        self._sent_at = time.monotonic()

    def _concerns(self, change: FeedChange) -> bool:
        if change.profile != self.caller.profile:
            return False
        return self._shows_list or change.session_id in self._sessions


def event(kind: str, data: Any, *, id: int | None = None) -> bytes:
    """An event as the wire has it."""
    return frame(kind, codec.encode(data), id=id)


def frame(kind: str, text: str, *, id: int | None = None) -> bytes:
    """An event whose data is JSON already, as the wire has it."""
    position = "" if id is None else f"id: {id}\n"
    return f"{position}event: {kind}\ndata: {text}\n\n".encode()


def _live_event(live: LiveEvent) -> bytes:
    progress = TurnProgress(session_id=live.session_id, turn_id=live.turn_id, data=live.data)
    return event(live.kind, progress)


def _shown(
    tx: Tx,
    changes: Sequence[FeedChange],
    *,
    sessions: frozenset[str],
    shows_list: bool,
    now: datetime,
) -> list[tuple[FeedChange, list[tuple[str, str]]]]:
    """Each change with its events (kind, data as JSON), up to about `MAX_CHARACTERS` at a time.

    Every entry of a watched session is one event. A head is sent once, as it is now, with the last
    change of its session.
    """
    latest = {each.session_id: each for each in changes}
    found: list[tuple[FeedChange, list[tuple[str, str]]]] = []
    size = 0
    for change in changes:
        events: list[tuple[str, str]] = []
        id = change.session_id or ""
        if change.what == "entry" and id in sessions:
            events += _entries(tx, change, id)
        if latest[change.session_id] is change and (shows_list or id in sessions):
            events += _heads(tx, [id], profile=change.profile or "", now=now)
        found.append((change, events))
        size += sum(len(text) for _, text in events)
        if size > MAX_CHARACTERS:
            break
    return found


def _entries(tx: Tx, change: FeedChange, id: str) -> list[tuple[str, str]]:
    segment = Segment(change.session_no, id, change.seq, change.seq)
    try:
        found = entries.read(tx, segment)
    except NotFound:
        return []  # purged meanwhile: the head's event says so
    except Damaged as error:
        # One unreadable entry must not hold up those after it.
        log.warning("The event stream skips an entry: %s", error)
        damaged = DamagedEntry(session_id=id, seq=change.seq, detail=str(error))
        return [("damaged", codec.encode(damaged))]
    return [("entry", codec.encode(entry_json(entry))) for entry in found]


def _heads(tx: Tx, ids: Iterable[str], *, profile: str, now: datetime) -> list[tuple[str, str]]:
    events: list[tuple[str, str]] = []
    for id in ids:
        try:
            head = read.get_head(tx, id, profile=profile)
            listed = session_heads.heads_json(tx, [head], now=now)
            events += [("head", codec.encode(each)) for each in listed]
        except NotFound:
            events.append(("gone", codec.encode(GoneSession(id=id))))
    return events


async def until_gone(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
