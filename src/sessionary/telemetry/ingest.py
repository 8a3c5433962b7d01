"""Ingests spans and log records of other programs: one transaction for each conversation, each span once."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby

from msgspec import structs

from sessionary.actions import usage
from sessionary.actions.sessions import edit, revise, routing
from sessionary.actions.sessions import edit as session_actions
from sessionary.actions.sessions.append import NewMessage, append_after_end
from sessionary.clock import Clock, Ids, Moment
from sessionary.errors import BadInput, Conflict, SessionaryError
from sessionary.model import transcript
from sessionary.model.message import Message
from sessionary.model.prefix import message_digest
from sessionary.model.reset import ResetPolicy
from sessionary.model.session import SessionHead
from sessionary.model.source import SessionKey, Source, key_for
from sessionary.store.database import Store, Tx
from sessionary.store.tables import entries, sessions
from sessionary.telemetry import genai, merge, openinference, otlp
from sessionary.telemetry.genai import Operation, SpanContent
from sessionary.telemetry.merge import IN, OUT, KnownMessage, SpanMessage
from sessionary.telemetry.span import LogRecord, Span

PLATFORM = "otel"
MAX_ID_LENGTH = 256
MAX_ANCESTORS = 100
_MAX_NAME_LENGTH = 60
_MAX_KINDS = 10


@dataclass(frozen=True, slots=True)
class TraceConversation:
    """The spans of one conversation within one request, in order of time."""

    trace_id: str
    name: str | None
    spans: tuple[Span, ...]

    @property
    def service(self) -> str | None:
        """The program that sent them."""
        return next((span.service for span in self.spans if span.service), None)

    def sources(self) -> list[Source]:
        """The sources that lead to its session: its name, if it has one, and its trace."""
        by_trace = Source(PLATFORM, thread_id=self.trace_id, chat_name=self.service)
        if self.name is None:
            return [by_trace]
        return [Source(PLATFORM, self.name, chat_name=self.service), by_trace]

    def read(self) -> list[SpanContent] | BadInput:
        """Read the content of its spans, or return why it cannot be stored."""
        try:
            return [_priced(genai.read_span(span)) for span in self.spans]
        except BadInput as error:
            return error


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """The conversations of an export request, and what to tell the exporter about the rest."""

    conversations: list[tuple[TraceConversation, list[SpanContent] | BadInput]]
    rejected: int = 0
    reason: str = ""
    # Everything was accepted, but some spans held nothing to store.
    warning: str = ""


class TelemetryIngest:
    """Receives what the exporters of instrumented programs send."""

    def __init__(self, store: Store, clock: Clock, ids: Ids) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids

    async def ingest_spans(
        self, profile: str, raw: bytes, media_type: str, encoding: str | None
    ) -> bytes | None:
        """Store an OTLP request durably and return the response's body; None if it is too large."""
        return await self._ingest(profile, raw, media_type, encoding, otlp.SPANS)

    async def ingest_logs(
        self, profile: str, raw: bytes, media_type: str, encoding: str | None
    ) -> bytes | None:
        """The same for log records: some instrumentations log a span's messages as events."""
        return await self._ingest(profile, raw, media_type, encoding, otlp.LOGS)

    async def _ingest(
        self, profile: str, raw: bytes, media_type: str, encoding: str | None, signal: otlp.Signal
    ) -> bytes | None:
        # Parsing takes CPU: in a thread, other requests are answered meanwhile.
        request = await asyncio.to_thread(_read_request, raw, media_type, encoding, signal)
        if request is None:
            return None
        rejected, reason = request.rejected, request.reason
        for conversation, contents in request.conversations:
            error: SessionaryError | None = None
            if isinstance(contents, BadInput):
                error = contents
            else:
                moment = Moment(self._clock.now(), self._ids)
                try:
                    await self._store.write(
                        ingest_conversation, conversation, contents, profile=profile, moment=moment
                    )
                except (BadInput, Conflict) as refused:
                    # One conversation that cannot be stored does not hold up the others.
                    error = refused
            if error is not None:
                name = conversation.name or f"of trace {conversation.trace_id}"
                reason = reason or f"Conversation {name[:MAX_ID_LENGTH]!r} was refused: {error}"
                rejected += (
                    len(conversation.spans)
                    if signal is otlp.SPANS
                    else sum(len(span.events) for span in conversation.spans)
                )
        return otlp.encode_response(
            media_type, signal, rejected=rejected, reason=reason or request.warning
        )


def _read_request(
    raw: bytes, media_type: str, encoding: str | None, signal: otlp.Signal
) -> ExportRequest | None:
    body = otlp.unpack(raw, encoding)
    if body is None:
        return None
    return (_read_spans if signal is otlp.SPANS else _read_logs)(body, media_type)


def _read_spans(body: bytes, media_type: str) -> ExportRequest:
    spans = [openinference.translate(span) for span in otlp.read_spans(body, media_type)]
    conversations = [(each, each.read()) for each in group_conversations(spans)]
    empty = Counter(
        kind
        for span in spans
        if (kind := openinference.kind_of(span)) is not None
        and "gen_ai.operation.name" not in span.attributes
    )
    empty.update(
        openinference.kind_of(each.span) or str(each.span.name)[:_MAX_NAME_LENGTH]
        for _, contents in conversations
        for each in (() if isinstance(contents, BadInput) else contents)
        if each.operation is Operation.CALL and not (each.inputs or each.outputs or each.usage)
    )
    if not empty:
        return ExportRequest(conversations)
    kinds = ", ".join(f"{count} of {kind}" for kind, count in sorted(empty.items())[:_MAX_KINDS])
    return ExportRequest(
        conversations,
        warning=f"Some spans tell neither messages nor tokens, and left nothing: {kinds}.",
    )


def _read_logs(body: bytes, media_type: str) -> ExportRequest:
    records = otlp.read_log_records(body, media_type)
    events = [each for each in records if genai.is_message_event(each)]
    by_span: dict[tuple[str, str], list[LogRecord]] = {}
    for event in events:
        if event.trace_id and event.span_id:
            by_span.setdefault((event.trace_id, event.span_id), []).append(event)
    lost = len(events) - sum(map(len, by_span.values()))
    reason = f"{lost} events belong to no span: log within the span of the call." if lost else ""
    spans = [genai.event_span(each) for each in by_span.values()]
    conversations = [(each, each.read()) for each in _group_conversations(spans, spans)]
    return ExportRequest(conversations, lost, reason)


def group_conversations(spans: Sequence[Span]) -> list[TraceConversation]:
    """Group the spans about generative AI by conversation."""
    known = [span for span in spans if genai.is_genai(span) and span.trace_id and span.span_id]
    return _group_conversations(known, spans)


def _group_conversations(known: Sequence[Span], spans: Sequence[Span]) -> list[TraceConversation]:
    name_of = _conversation_finder(spans)
    grouped: dict[tuple[str, str | None], list[Span]] = {}
    for span in sorted(known, key=lambda each: (each.start_nanos, each.end_nanos)):
        grouped.setdefault((span.trace_id, name_of(span)), []).append(span)
    return [TraceConversation(trace, name, tuple(each)) for (trace, name), each in grouped.items()]


def _conversation_finder(spans: Sequence[Span]) -> Callable[[Span], str | None]:
    """Return a function that finds a span's conversation.

    It is the one that the span names, or its nearest ancestor, or the only one of its trace.
    """
    by_id = {(span.trace_id, span.span_id): span for span in spans}
    of_trace: dict[str, set[str]] = {}
    for span in spans:
        own = genai.conversation_id(span)
        if own is not None:
            of_trace.setdefault(span.trace_id, set()).add(own)

    def find(span: Span) -> str | None:
        current: Span | None = span
        for _ in range(MAX_ANCESTORS):
            if current is None:
                break
            own = genai.conversation_id(current)
            if own is not None:
                return _bounded_name(own)
            current = by_id.get((current.trace_id, current.parent_id))
        several = of_trace.get(span.trace_id, set())
        return _bounded_name(next(iter(several))) if len(several) == 1 else None

    return find


def _bounded_name(name: str) -> str:
    """A name that fits into a key: a longer one is replaced by its hash."""
    if len(name) <= MAX_ID_LENGTH:
        return name
    return hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()


def _priced(content: SpanContent) -> SpanContent:
    used = content.usage
    if used is None:
        return content
    # Loaded with the first priced span: the table and its library would add 50 ms of CPU to every start.
    from sessionary import prices

    found = prices.priced(used, at=content.span.ended_at)
    if found.cost_microusd is None and used.provider is not None:
        # The program may call its provider by a name that the table does not know.
        other = prices.priced(structs.replace(used, provider=None), at=content.span.ended_at)
        found = structs.replace(other, provider=used.provider)
    return replace(content, usage=found)


def ingest_conversation(
    tx: Tx,
    conversation: TraceConversation,
    contents: Sequence[SpanContent],
    *,
    profile: str,
    moment: Moment,
) -> None:
    """Append the messages of a conversation's spans that the log does not have yet."""
    keys = [(key_for(source, profile=profile), source) for source in conversation.sources()]
    for key, _ in sorted(keys, key=lambda pair: str(pair[0])):
        routing.lock_key(tx, key)
    bound = [routing.get_current(tx, key) for key, _ in keys]
    head, early = bound[0], None
    if bound[-1] is not None and not _is_named(tx, bound[-1]):
        if head is None:
            head = bound[-1]  # the trace came before the name of its conversation was known
        elif head.no != bound[-1].no and not bound[-1].usage.calls:
            early = bound[-1]  # the events of these spans came before the spans
            contents = [*_early_contents(tx, early), *contents]
    stored = [] if head is None else _stored_messages(tx, head)
    moved: list[KnownMessage] = []
    arrived = {each.span.span_id for each in contents if each.outputs}
    placeholders = [each for each in stored if each.is_placeholder and each.span in arrived]
    if head is not None and placeholders:
        # The log is append-only: what follows a placeholder moves behind what replaces it.
        first = placeholders[0].seq
        revise.retract(
            tx, head.id, profile=profile, after=first - 1, at=moment.now, reason="telemetry"
        )
        moved = [each for each in stored if each.seq >= first and each not in placeholders]
        stored = [each for each in stored if each.seq < first]
        contents = [_with_moved_inputs(each, moved) for each in contents]
    known = [*stored]
    retracted = {(each.span, each.digest) for each in moved}
    for content in contents:
        new = merge.new_messages(content, known)
        if not new and _needs_placeholder(content, known):
            new = [SpanMessage(genai.placeholder(content), OUT)]
        if new and head is None:
            began_at = _clamp_time(content.span.began_at, moment)
            head = _open(tx, *keys[0], moment=structs.replace(moment, now=began_at))
        if head is None:
            continue
        known += _append_new(tx, head, content, new, retracted, moment=moment)
        _record_details(tx, head, content, moment=moment)
    if head is None:
        return
    _append_moved(tx, head, moved, known[len(stored) :], moment=moment)
    for (key, _), previous in zip(keys, bound, strict=True):
        if previous is None or previous is early:
            routing.bind(tx, key, head.no, moment=moment)
    if early is not None:
        session_actions.trash(tx, early.id, profile=profile, moment=moment)


def _is_named(tx: Tx, head: SessionHead) -> bool:
    """Whether a session already belongs to a named conversation; a trace may have several."""
    keys = sessions.keys_of_session(tx, head.no)
    return any(SessionKey.parse(text).chat is not None for text in keys)


def _stored_messages(tx: Tx, head: SessionHead) -> list[KnownMessage]:
    """The messages of a session that were not retracted."""
    segments = sessions.segments(tx, head.no)
    retracted = transcript.retracted(entries.retractions(tx, segments))
    return [
        merge.known_message(entry.body, seq=entry.seq, at=entry.at)
        for entry in entries.walk(tx, segments)
        if isinstance(entry.body, Message) and not transcript.is_retracted(entry.seq, retracted)
    ]


def _early_contents(tx: Tx, head: SessionHead) -> list[SpanContent]:
    """The content of spans in a session that was opened before its conversation's name was known."""
    by_span: dict[str, SpanContent] = {}
    for stored in _stored_messages(tx, head):
        origin = stored.message.extra.get("otel")
        if not isinstance(origin, dict):
            continue
        nanos = 0 if stored.at is None else int(stored.at.timestamp() * 1e9)
        span = Span(origin["trace"], origin["span"], start_nanos=nanos, end_nanos=nanos)
        content = by_span.setdefault(span.span_id, SpanContent(span, Operation.CALL))
        extra = {name: value for name, value in stored.message.extra.items() if name != "otel"}
        message = structs.replace(stored.message, extra=extra)
        if origin["side"] == OUT:
            content = replace(content, outputs=(*content.outputs, message))
        else:
            content = replace(content, inputs=(*content.inputs, message))
        by_span[span.span_id] = content
    return list(by_span.values())


def _with_moved_inputs(content: SpanContent, moved: Sequence[KnownMessage]) -> SpanContent:
    """A call with the inputs that an earlier request brought, now that its output has come."""
    if content.operation is not Operation.CALL or not content.outputs:
        return content
    digests = {message_digest(each) for each in (*content.inputs, *content.outputs)}
    earlier = [
        each.message
        for each in moved
        if (each.span, each.side) == (content.span.span_id, IN) and each.digest not in digests
    ]
    return replace(content, inputs=(*earlier, *content.inputs))


def _needs_placeholder(content: SpanContent, known: Sequence[KnownMessage]) -> bool:
    """Whether a call has usage but no messages, neither in its span nor in events that came before."""
    if content.usage is None or content.inputs or content.outputs:
        return False
    return not any(each.span == content.span.span_id for each in known)


def _append_new(
    tx: Tx,
    head: SessionHead,
    content: SpanContent,
    new: Sequence[SpanMessage],
    retracted: Collection[tuple[str | None, str]],
    *,
    moment: Moment,
) -> list[KnownMessage]:
    span = content.span
    added = []
    for each in new:
        message = genai.mark_origin(each.message, span, each.side)
        known = merge.known_message(message)
        # The key of a retracted output is used up: with it, nothing would be appended.
        is_keyed = each.side == OUT and (span.span_id, known.digest) not in retracted
        key = f"otel/{head.id}/{span.trace_id}/{span.span_id}/{known.digest}" if is_keyed else None
        at = _clamp_time(span.ended_at if each.side == OUT else span.began_at, moment)
        new_message = NewMessage(message, at=at, idempotency_key=key)
        append_after_end(tx, head.id, new_message, profile=head.profile, moment=moment)
        added.append(known)
    return added


def _append_moved(
    tx: Tx,
    head: SessionHead,
    moved: Sequence[KnownMessage],
    added: Sequence[KnownMessage],
    *,
    moment: Moment,
) -> None:
    """Append retracted messages again, except for those that this request has added again.

    They are not compared with the rest of the log: that was done when they were first appended.
    """
    for span_id, group in groupby(moved, key=lambda each: each.span):
        again = list(group)
        if span_id is not None:
            content = SpanContent(
                Span("", span_id),
                Operation.CALL,
                inputs=tuple(each.message for each in again if each.side != OUT),
                outputs=tuple(each.message for each in again if each.side == OUT),
            )
            new = {id(each.message) for each in merge.new_messages(content, added)}
            again = [each for each in again if id(each.message) in new]
        for each in again:
            new_message = NewMessage(each.message, at=each.at)
            append_after_end(tx, head.id, new_message, profile=head.profile, moment=moment)


def _record_details(tx: Tx, head: SessionHead, content: SpanContent, *, moment: Moment) -> None:
    """Record a span's usage, and the system prompt if the session has none."""
    if content.usage is not None:
        used = structs.replace(content.usage, at=_clamp_time(content.span.ended_at, moment))
        usage.record(tx, head.no, used, profile=head.profile, moment=moment)
    if content.system and sessions.details(tx, head.no).prompt_hash is None:
        edit.set_system_prompt(tx, head.id, content.system, profile=head.profile)


def _open(tx: Tx, key: SessionKey, source: Source, *, moment: Moment) -> SessionHead:
    route = routing.resolve_route(tx, key, None, source, policy=ResetPolicy(), moment=moment)
    return sessions.get_by_no(tx, route.session_no)


def _clamp_time(at: datetime, moment: Moment) -> datetime:
    """A span's time, or ours if its clock is not set or is ahead of us."""
    return min(at, moment.now) if at.timestamp() > 0 else moment.now
