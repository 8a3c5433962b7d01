"""Our own spans and metrics, of turns, deliveries and transactions, and their export over OTLP.

It wraps the ports of the engine, which knows nothing of it. Loaded only when telemetry is on.
"""

import functools
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Concatenate, ParamSpec, TypeVar

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context

from sessionary.actions.turns import Ending
from sessionary.engine.ports import (
    Adapter,
    Agent,
    Event,
    Runner,
    Sent,
    Step,
    TurnRequest,
)
from sessionary.errors import SessionaryError
from sessionary.model.message import Message
from sessionary.model.source import Source
from sessionary.model.turn import Delivery, Lease, TurnState
from sessionary.model.usage import Usage
from sessionary.store.database import Pending, RaceLost, Store, Tx
from sessionary.telemetry import messages

P = ParamSpec("P")
T = TypeVar("T")
MAX_OPEN_TURNS = 10_000
_SYSTEMS = {"postgres": "postgresql"}
SERVICE_NAME = "sessionary"


@dataclass(slots=True)
class _OpenTurn:
    """A running turn: its span, and its messages and usage so far."""

    span: Span
    agent: str
    began: float
    used: list[Usage] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)


class Instrumentation:
    """Wraps a store, agents and adapters, and records spans and metrics of what they do."""

    def __init__(self, tracer: Tracer, meter: Meter, *, content: bool) -> None:
        self._tracer = tracer
        self._content = content
        self._open: dict[str, _OpenTurn] = {}
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
        """Wrap a store: its transactions are recorded."""
        return InstrumentedStore(self, store)

    def agents(
        self, choose: Callable[[Source, str | None], Agent]
    ) -> Callable[[Source, str | None], Agent]:
        """Wrap the function that chooses an agent: the turns of its runner are recorded."""

        def chosen(source: Source, name: str | None) -> Agent:
            agent: Any = choose(source, name)
            wrapped: Agent = replace(
                agent, runner=InstrumentedRunner(self, agent.name, agent.runner)
            )
            return wrapped

        return chosen

    def adapter(self, adapter: Adapter) -> Adapter:
        """Wrap an adapter: its deliveries are recorded."""
        return InstrumentedAdapter(self, adapter)

    def turn_began(self, agent: str, request: TurnRequest) -> _OpenTurn:
        """Open the span of a turn."""
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": agent,
            "gen_ai.conversation.id": request.session.id,
            "sessionary.turn.id": request.turn_id,
            "sessionary.platform": request.source.platform,
        }
        if self._content:
            attributes["gen_ai.input.messages"] = messages.encode_context(request.context)
        span = self._tracer.start_span(
            f"invoke_agent {agent}", kind=SpanKind.INTERNAL, attributes=attributes
        )
        turn = _OpenTurn(span, agent, time.perf_counter())
        if len(self._open) >= MAX_OPEN_TURNS:  # turns that another process ended
            self._open.pop(next(iter(self._open))).span.end()
        self._open[request.turn_id] = turn
        return turn

    def turn_ended(self, turn_id: str, ending: Ending) -> None:
        """Close the span of a turn with its outcome and usage."""
        turn = self._open.pop(turn_id, None)
        if turn is None:
            return
        state = str(ending.state)
        turn.span.set_attributes(
            {"sessionary.turn.state": state, **messages.encode_usage(turn.used)}
        )
        if self._content:
            turn.span.set_attribute(
                "gen_ai.output.messages", messages.encode_messages(turn.messages)
            )
        if ending.state is TurnState.FAILED:
            turn.span.set_status(StatusCode.ERROR, ending.reason)
        turn.span.end()
        facts = {"gen_ai.agent.name": turn.agent, "sessionary.turn.state": state}
        self._turns.record(time.perf_counter() - turn.began, facts)
        for used in turn.used:
            self._count(used)

    async def deliver(self, adapter: Adapter, delivery: Delivery) -> Sent:
        """Send a delivery, and record how long it took and how it ended."""
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
        """Wrap the function of a transaction."""
        name = f"{action.__module__.rpartition('.')[2]}.{getattr(action, '__name__', 'action')}"
        asked = time.perf_counter()

        @functools.wraps(action)
        def recorded(tx: Tx, *args: Any, **kwargs: Any) -> T:
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
                    self._end_turn(args)
                raise
            finally:
                self._transactions.record(time.perf_counter() - began, facts)
                if span is not None:
                    span.end()
            self._end_turn(args)
            return answer

        return recorded

    def _transaction_span(
        self, name: str, facts: dict[str, str], args: tuple[Any, ...]
    ) -> Span | None:
        """Open a span if the transaction belongs to a turn; polls and the like only count in metrics."""
        lease = next((each for each in args if isinstance(each, Lease)), None)
        turn = None if lease is None else self._open.get(lease.turn_id)
        if turn is None:
            return None
        context = set_span_in_context(turn.span)
        return self._tracer.start_span(
            f"store {name}", context=context, kind=SpanKind.CLIENT, attributes=dict(facts)
        )

    def _end_turn(self, args: tuple[Any, ...]) -> None:
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


class InstrumentedRunner:
    """A runner whose turns are recorded."""

    def __init__(self, instrumentation: Instrumentation, agent: str, runner: Runner) -> None:
        self._instrumentation = instrumentation
        self._agent = agent
        self._runner = runner

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        """Run the agent, and note its messages and usage."""
        turn = self._instrumentation.turn_began(self._agent, request)
        stream = self._runner.run(request)
        try:
            async for event in stream:
                if isinstance(event, Step):
                    turn.messages.append(event.message)
                    if event.usage is not None:
                        turn.used.append(event.usage)
                yield event
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    async def close(self) -> None:
        await self._runner.close()


class InstrumentedAdapter:
    """An adapter whose deliveries are recorded; everything else is the adapter's own."""

    def __init__(self, instrumentation: Instrumentation, adapter: Adapter) -> None:
        self._instrumentation = instrumentation
        self._adapter = adapter
        self.platform, self.capabilities = adapter.platform, adapter.capabilities
        self.webhook, self.challenge = adapter.webhook, adapter.challenge
        self.webhook_bytes = adapter.webhook_bytes
        self.attach, self.run, self.close = adapter.attach, adapter.run, adapter.close
        self.typing, self.show, self.check = adapter.typing, adapter.show, adapter.check

    async def send(self, delivery: Delivery) -> Sent:
        return await self._instrumentation.deliver(self._adapter, delivery)


class InstrumentedStore:
    """A store whose transactions are recorded; everything else is passed through."""

    def __init__(self, instrumentation: Instrumentation, store: Store) -> None:
        self._instrumentation = instrumentation
        self._store: Any = store
        dialect = getattr(store, "dialect", "sqlite")
        self._system = _SYSTEMS.get(dialect, dialect)

    def write(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        recorded = self._instrumentation.transact(self._system, "write", action)
        pending: Pending[T] = self._store.write(recorded, *args, **kwargs)
        return pending

    def read(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        recorded = self._instrumentation.transact(self._system, "read", action)
        pending: Pending[T] = self._store.read(recorded, *args, **kwargs)
        return pending

    def search(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        recorded = self._instrumentation.transact(self._system, "search", action)
        pending: Pending[T] = self._store.search(recorded, *args, **kwargs)
        return pending

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class TelemetryExporter:
    """Sends spans and metrics, with providers of its own: the global ones belong to the embedding program."""

    def __init__(self, *, endpoint: str | None, content: bool, version: str) -> None:
        # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win over these.
        resource = Resource.create({"service.name": SERVICE_NAME, "service.version": version})
        named = Resource.create({})
        if not str(named.attributes.get("service.name", "")).startswith("unknown_service"):
            resource = resource.merge(named)
        base = None if endpoint is None else endpoint.rstrip("/")
        self._traces = TracerProvider(resource=resource)
        self._traces.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(endpoint=base and f"{base}/v1/traces"))
        )
        reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(endpoint=base and f"{base}/v1/metrics")
        )
        self._metrics = MeterProvider(resource=resource, metric_readers=[reader])
        self.instrumentation = Instrumentation(
            self._traces.get_tracer(SERVICE_NAME, version),
            self._metrics.get_meter(SERVICE_NAME, version),
            content=content,
        )

    def close(self) -> None:
        """Send what is buffered, then close."""
        self._traces.shutdown()
        self._metrics.shutdown()
