"""Live events inside one process: what is being said right now. Nothing durable passes here."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

DEPTH = 1000


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """Something about a session that happens now."""

    session_id: str
    turn_id: str
    kind: str
    data: Any = None


class EventBus:
    """Hands live events to whoever listens.

    A slow listener loses events and is told so; a turn never waits for one.
    """

    def __init__(self) -> None:
        self._queues: dict[asyncio.Queue[LiveEvent | None], str | None] = {}
        self._saying: dict[str, tuple[str, list[str]]] = {}

    def publish(self, live: LiveEvent) -> None:
        """Give an event to the listeners of its session, and to those of all."""
        self._note(live)
        for queue, session_id in tuple(self._queues.items()):
            if session_id is not None and session_id != live.session_id:
                continue
            try:
                queue.put_nowait(live)
            except asyncio.QueueFull:
                self._overflow(queue)

    @contextmanager
    def listen(self, session_id: str | None = None) -> Iterator["asyncio.Queue[LiveEvent | None]"]:
        """A queue of one session's events, or of all; None in it means that some were lost."""
        queue: asyncio.Queue[LiveEvent | None] = asyncio.Queue(DEPTH)
        self._queues[queue] = session_id
        try:
            yield queue
        finally:
            del self._queues[queue]

    def partial_text(self, session_id: str) -> LiveEvent | None:
        """What the running turn has said of its unfinished step, for who comes late."""
        found = self._saying.get(session_id)
        return (
            None if found is None else LiveEvent(session_id, found[0], "so_far", "".join(found[1]))
        )

    def _note(self, live: LiveEvent) -> None:
        match live.kind:
            case "began" | "step":
                self._saying[live.session_id] = (live.turn_id, [])
            case "delta" if live.session_id in self._saying:
                self._saying[live.session_id][1].append(str(live.data))
            case "ended" | "lost":
                self._saying.pop(live.session_id, None)

    def _overflow(self, queue: "asyncio.Queue[LiveEvent | None]") -> None:
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)
