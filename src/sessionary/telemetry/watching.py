"""Spans and metrics of turns, deliveries and transactions, put around the ports of the engine.

Nothing in the engine knows of it: what is watched is handed in instead of the thing itself, and
only when telemetry is on.
"""

import functools
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Concatenate, ParamSpec, TypeVar

from opentelemetry.metrics import Meter
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context

from sessionary.actions.turns import Ending
from sessionary.engine.ports import (
    Adapter,
    Agent,
    Event,
    Runner,
    Sent,
    Step,
    StreamingAdapter,
    TurnRequest,
)
from sessionary.errors import SessionaryError
from sessionary.model.message import Message
from sessionary.model.source import Channel, Source
from sessionary.model.turn import Delivery, Lease, TurnState
from sessionary.model.usage import Usage
from sessionary.store.database import Pending, RaceLost, Store, Tx
from sessionary.telemetry import telling

P = ParamSpec("P")
T = TypeVar("T")
MOST_OPEN_TURNS = 10_000
_SYSTEMS = {"postgres": "postgresql"}


@dataclass(slots=True)
class _Turn:
    """A turn that runs: its span, and what is known of it so far."""

    span: Span
    agent: str
    began: float
    used: list[Usage] = field(default_factory=list)
    said: list[Message] = field(default_factory=list)


class Watch:
    """Makes watched things of things, and tells what it saw."""

    def __init__(self, tracer: Tracer, meter: Meter, *, content: bool) -> None:
        self._tracer = tracer
        self._content = content
        self._open: dict[str, _Turn] = {}
        self._turns = meter.create_histogram(
            "sessionary.turn.duration", "s", "How long turns took."
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage", "{token}", "Tokens that calls of models used."
        )
        self._deliveries = meter.create_histogram(
            "sessionary.delivery.duration", "s", "How long platforms took to take deliveries."
        )
        self._transactions = meter.create_histogram(
            "sessionary.store.duration", "s", "How long functions of a transaction took."
        )
        self._waits = meter.create_histogram(
            "sessionary.store.wait", "s", "How long they waited for their turn."
        )

    def store(self, store: Store) -> Store:
        """The store with its transactions watched."""
        return WatchedStore(self, store)

    def agents(
        self, choose: Callable[[Source, str | None], Agent]
    ) -> Callable[[Source, str | None], Agent]:
        """The choice of agents, with their turns watched."""

        def chosen(source: Source, name: str | None) -> Agent:
            agent: Any = choose(source, name)
            watched: Agent = replace(agent, runner=WatchedRunner(self, agent.name, agent.runner))
            return watched

        return chosen

    def adapter(self, adapter: Adapter) -> Adapter:
        """A platform's adapter with its deliveries watched."""
        kind = WatchedShowing if isinstance(adapter, StreamingAdapter) else WatchedAdapter
        return kind(self, adapter)

    def turn_began(self, agent: str, request: TurnRequest) -> _Turn:
        """Open the span of a turn."""
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": agent,
            "gen_ai.conversation.id": request.session.id,
            "sessionary.turn.id": request.turn_id,
            "sessionary.platform": request.source.platform,
        }
        if self._content:
            attributes["gen_ai.input.messages"] = telling.context_text(request.context)
        span = self._tracer.start_span(
            f"invoke_agent {agent}", kind=SpanKind.INTERNAL, attributes=attributes
        )
        turn = _Turn(span, agent, time.perf_counter())
        if len(self._open) >= MOST_OPEN_TURNS:  # turns that ended where we did not see it
            self._open.pop(next(iter(self._open))).span.end()
        self._open[request.turn_id] = turn
        return turn

    def turn_ended(self, turn_id: str, ending: Ending) -> None:
        """Close the span of a turn: how it ended, what it used."""
        turn = self._open.pop(turn_id, None)
        if turn is None:
            return
        state = str(ending.state)
        turn.span.set_attributes(
            {"sessionary.turn.state": state, **telling.usage_attributes(turn.used)}
        )
        if self._content:
            turn.span.set_attribute("gen_ai.output.messages", telling.messages_text(turn.said))
        if ending.state is TurnState.FAILED:
            turn.span.set_status(StatusCode.ERROR, ending.reason)
        turn.span.end()
        facts = {"gen_ai.agent.name": turn.agent, "sessionary.turn.state": state}
        self._turns.record(time.perf_counter() - turn.began, facts)
        for used in turn.used:
            self._count(used)

    async def deliver(self, adapter: Adapter, delivery: Delivery) -> Sent:
        """Send a delivery, and tell how that went."""
        attributes: dict[str, Any] = {
            "messaging.system": adapter.platform,
            "messaging.operation.type": "send",
            "sessionary.delivery.id": delivery.id,
            "sessionary.delivery.attempt": delivery.attempts,
        }
        began = time.perf_counter()
        outcome = "sent"
        with self._tracer.start_as_current_span(
            f"send {adapter.platform}", kind=SpanKind.CLIENT, attributes=attributes
        ) as span:
            try:
                return await adapter.send(delivery)
            except BaseException as error:
                outcome = error.kind if isinstance(error, SessionaryError) else type(error).__name__
                span.set_attribute("error.type", outcome)
                raise
            finally:
                facts = {"messaging.system": adapter.platform, "sessionary.outcome": outcome}
                self._deliveries.record(time.perf_counter() - began, facts)

    def transact(self, system: str, mode: str, action: Callable[..., T]) -> Callable[..., T]:
        """The function of a transaction, watched."""
        name = f"{action.__module__.rpartition('.')[2]}.{getattr(action, '__name__', 'action')}"
        asked = time.perf_counter()

        @functools.wraps(action)
        def watched(tx: Tx, *args: Any, **kwargs: Any) -> T:
            began = time.perf_counter()
            facts = {"db.system.name": system, "db.operation.name": name, "sessionary.mode": mode}
            self._waits.record(began - asked, facts)
            span = self._transaction_span(name, facts, args)
            try:
                answer = action(tx, *args, **kwargs)
            except BaseException as error:
                facts["error.type"] = type(error).__name__
                if span is not None:
                    span.set_attribute("error.type", facts["error.type"])
                if not isinstance(error, RaceLost):
                    self._note_end(args)
                raise
            finally:
                self._transactions.record(time.perf_counter() - began, facts)
                if span is not None:
                    span.end()
            self._note_end(args)
            return answer

        return watched

    def _transaction_span(
        self, name: str, facts: dict[str, str], args: tuple[Any, ...]
    ) -> Span | None:
        """A span for what a turn does; polls and the like are counted only."""
        lease = next((each for each in args if isinstance(each, Lease)), None)
        turn = None if lease is None else self._open.get(lease.turn_id)
        if turn is None:
            return None
        context = set_span_in_context(turn.span)
        return self._tracer.start_span(
            f"store {name}", context=context, kind=SpanKind.CLIENT, attributes=dict(facts)
        )

    def _note_end(self, args: tuple[Any, ...]) -> None:
        match args:
            case (Lease() as lease, Ending() as ending, *_):
                self.turn_ended(lease.turn_id, ending)

    def _count(self, used: Usage) -> None:
        facts = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": used.model or "unknown",
            "gen_ai.provider.name": used.provider or "unknown",
        }
        sent = used.input_tokens + used.cache_read_tokens + used.cache_write_tokens
        self._tokens.record(sent, facts | {"gen_ai.token.type": "input"})
        self._tokens.record(used.output_tokens, facts | {"gen_ai.token.type": "output"})


class WatchedRunner:
    """A runner whose turns are watched."""

    def __init__(self, watch: Watch, agent: str, runner: Runner) -> None:
        self._watch = watch
        self._agent = agent
        self._runner = runner

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        """Answer, and note what was said and used."""
        turn = self._watch.turn_began(self._agent, request)
        stream = self._runner.run(request)
        try:
            async for event in stream:
                if isinstance(event, Step):
                    turn.said.append(event.message)
                    if event.usage is not None:
                        turn.used.append(event.usage)
                yield event
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    async def close(self) -> None:
        """Let go of connections and processes."""
        await self._runner.close()


class WatchedAdapter:
    """An adapter whose deliveries are watched; everything else is its own."""

    def __init__(self, watch: Watch, adapter: Adapter) -> None:
        self._watch = watch
        self._adapter: Any = adapter

    async def send(self, delivery: Delivery) -> Sent:
        """Send one delivery."""
        return await self._watch.deliver(self._adapter, delivery)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)


class WatchedShowing(WatchedAdapter):
    """The same for one that can show an answer while it grows."""

    async def show(self, channel: Channel, turn_id: str, text: str) -> None:
        """Show what a turn has said so far."""
        await self._adapter.show(channel, turn_id, text)


class WatchedStore:
    """A store whose transactions are watched; everything else is its own."""

    def __init__(self, watch: Watch, store: Store) -> None:
        self._watch = watch
        self._store: Any = store
        dialect = getattr(store, "dialect", "sqlite")
        self._system = _SYSTEMS.get(dialect, dialect)

    def write(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        """Run an action in a transaction."""
        watched = self._watch.transact(self._system, "write", action)
        pending: Pending[T] = self._store.write(watched, *args, **kwargs)
        return pending

    def read(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        """Run an action that only reads."""
        watched = self._watch.transact(self._system, "read", action)
        pending: Pending[T] = self._store.read(watched, *args, **kwargs)
        return pending

    def search(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        """Run an action that reads log and index."""
        watched = self._watch.transact(self._system, "search", action)
        pending: Pending[T] = self._store.search(watched, *args, **kwargs)
        return pending

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
