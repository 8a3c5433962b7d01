"""Taking spans in: each conversation's in one transaction, each span once."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby

from sessionary.actions import usage
from sessionary.actions.sessions import append, edit, revise, routing
from sessionary.actions.sessions import edit as session_actions
from sessionary.actions.sessions.append import NewMessage
from sessionary.clock import Clock, Ids, Moment
from sessionary.errors import BadInput, Conflict, SessionaryError
from sessionary.model import transcript
from sessionary.model.key import SessionKey, key_for
from sessionary.model.message import Entry, Message
from sessionary.model.reset import ResetPolicy
from sessionary.model.session import SessionHead
from sessionary.model.source import Source
from sessionary.store.database import Store, Tx
from sessionary.store.tables import entries, sessions
from sessionary.telemetry import genai, merging, openinference, wire
from sessionary.telemetry.genai import Told, Work
from sessionary.telemetry.merging import IN, OUT, Line, New
from sessionary.telemetry.span import LogRecord, Span

PLATFORM = "otel"
LONGEST_ID = 256
MOST_ANCESTORS = 100
# How the two kinds of answers call what was refused.
SPANS, LOG_RECORDS = "rejectedSpans", "rejectedLogRecords"
_LONGEST_NAME = 60
_MOST_KINDS = 10


@dataclass(frozen=True, slots=True)
class Thread:
    """The spans of one conversation within one request."""

    trace_id: str
    conversation: str | None
    spans: tuple[Span, ...]

    @property
    def service(self) -> str | None:
        """The program that they come from."""
        return next((span.service for span in self.spans if span.service), None)

    def sources(self) -> list[Source]:
        """Where the conversation is to be found: under its name, and under its trace."""
        by_trace = Source(PLATFORM, thread_id=self.trace_id, chat_name=self.service)
        if self.conversation is None:
            return [by_trace]
        return [Source(PLATFORM, self.conversation, chat_name=self.service), by_trace]


@dataclass(frozen=True, slots=True)
class Request:
    """What an export request tells: conversations, and what of it tells nothing."""

    threads: list[tuple[Thread, list[Told] | BadInput]]
    # How many records cannot be kept, and why; what was taken and holds nothing to keep.
    rejected: int = 0
    reason: str = ""
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Taken:
    """How many spans were refused, and why the first of them was."""

    rejected: int = 0
    reason: str = ""

    def and_refused(self, thread: Thread, error: SessionaryError, count: int) -> "Taken":
        """The same with one conversation more that cannot be kept; the first is named."""
        name = thread.conversation or f"of trace {thread.trace_id}"
        reason = self.reason or f"Conversation {name[:LONGEST_ID]!r} was refused: {error}"
        return Taken(self.rejected + count, reason)


class SpanIntake:
    """The door for an instrumented program's exporter."""

    def __init__(self, store: Store, clock: Clock, ids: Ids) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids

    async def take(
        self, profile: str, raw: bytes, media: str, encoding: str | None
    ) -> bytes | None:
        """Take a request of OTLP in; durable when this returns: the answer, or None if too large."""
        return await self._take_request(profile, raw, media, encoding, _spans, SPANS)

    async def take_logs(
        self, profile: str, raw: bytes, media: str, encoding: str | None
    ) -> bytes | None:
        """The same for log records: some instrumentations tell there what is said in a span."""
        return await self._take_request(profile, raw, media, encoding, _logs, LOG_RECORDS)

    async def _take_request(
        self,
        profile: str,
        raw: bytes,
        media: str,
        encoding: str | None,
        read: Callable[[bytes, str], Request],
        counted: str,
    ) -> bytes | None:
        # Much of it is work; the others who ask go on meanwhile.
        request = await asyncio.to_thread(_read, raw, media, encoding, read)
        if request is None:
            return None
        taken = Taken(request.rejected, request.reason)
        for thread, heard in request.threads:
            count = len(thread.spans)
            if counted == LOG_RECORDS:
                count = sum(len(span.events) for span in thread.spans)
            if isinstance(heard, BadInput):
                taken = taken.and_refused(thread, heard, count)
            else:
                taken = await self._take(profile, thread, heard, taken, count)
        reason = taken.reason or request.warning
        return wire.answer(media, rejected=taken.rejected, reason=reason, counted=counted)

    async def _take(
        self, profile: str, thread: Thread, heard: list[Told], so_far: Taken, count: int
    ) -> Taken:
        moment = Moment(self._clock.now(), self._ids)
        pending: Awaitable[None] = self._store.write(
            take, thread, heard, profile=profile, moment=moment
        )
        try:
            await pending
        except (BadInput, Conflict) as error:
            # One conversation that cannot be kept does not hold up the others.
            return so_far.and_refused(thread, error, count)
        return so_far


def _read(
    raw: bytes, media: str, encoding: str | None, read: Callable[[bytes, str], Request]
) -> Request | None:
    body = wire.unpacked(raw, encoding)
    return None if body is None else read(body, media)


def _spans(body: bytes, media: str) -> Request:
    spans = [openinference.translated(span) for span in wire.spans_of(body, media)]
    threads = [(thread, _told(thread)) for thread in threads_of(spans)]
    silent = Counter(
        kind
        for span in spans
        if (kind := openinference.kind_of(span)) is not None
        and "gen_ai.operation.name" not in span.attributes
    )
    silent.update(
        openinference.kind_of(each.span) or str(each.span.name)[:_LONGEST_NAME]
        for _, heard in threads
        for each in (() if isinstance(heard, BadInput) else heard)
        if each.work is Work.CALL and not (each.inputs or each.outputs or each.usage)
    )
    if not silent:
        return Request(threads)
    kinds = ", ".join(f"{count} of {kind}" for kind, count in sorted(silent.items())[:_MOST_KINDS])
    return Request(
        threads, warning=f"Some spans tell neither messages nor tokens, and left nothing: {kinds}."
    )


def _logs(body: bytes, media: str) -> Request:
    told = [each for each in wire.log_records_of(body, media) if genai.tells_a_message(each)]
    by_span: dict[tuple[str, str], list[LogRecord]] = {}
    for record in told:
        if record.trace_id and record.span_id:
            by_span.setdefault((record.trace_id, record.span_id), []).append(record)
    lost = len(told) - sum(map(len, by_span.values()))
    reason = f"{lost} events belong to no span: log within the span of the call." if lost else ""
    spans = [genai.event_span(each) for each in by_span.values()]
    threads = [(thread, _told(thread)) for thread in _threads(spans, spans)]
    return Request(threads, lost, reason)


def _told(thread: Thread) -> list[Told] | BadInput:
    """What the spans of a conversation tell, or why it cannot be kept."""
    try:
        return [_priced(genai.tell(span)) for span in thread.spans]
    except BadInput as error:
        return error


def threads_of(spans: Sequence[Span]) -> list[Thread]:
    """The conversations of a request, each with its spans in order of time."""
    known = [span for span in spans if genai.concerns(span) and span.trace_id and span.span_id]
    return _threads(known, spans)


def _threads(known: Sequence[Span], spans: Sequence[Span]) -> list[Thread]:
    names = _names(spans)
    grouped: dict[tuple[str, str | None], list[Span]] = {}
    for span in sorted(known, key=lambda each: (each.start_nanos, each.end_nanos)):
        grouped.setdefault((span.trace_id, names(span)), []).append(span)
    return [Thread(trace, name, tuple(each)) for (trace, name), each in grouped.items()]


def take(tx: Tx, thread: Thread, heard: Sequence[Told], *, profile: str, moment: Moment) -> None:
    """Add what a conversation's spans say and the log does not."""
    keys = [(key_for(source, profile=profile), source) for source in thread.sources()]
    for key, _ in sorted(keys, key=lambda pair: str(pair[0])):
        routing.lock(tx, key)
    found = [routing.current(tx, key) for key, _ in keys]
    head, early = found[0], None
    if found[-1] is not None and not _is_named(tx, found[-1]):
        if head is None:
            head = found[-1]  # the trace came before its conversation had told its name
        elif head.no != found[-1].no and not found[-1].usage.calls:
            early = found[-1]  # the events of these spans came before the spans
            heard = [*_told_early(tx, early), *heard]
    known = [] if head is None else _lines(tx, head)
    later: list[tuple[Entry, Line]] = []
    if head is not None and (first := _first_placeholder(tx, head, heard, known)) is not None:
        later = _take_out(tx, head, first, heard, moment=moment)
        heard = [_with_own_inputs(each, later) for each in heard]
        known = _lines(tx, head)
    standing, taken_back = len(known), {(line.span, line.digest) for _, line in later}
    for each in heard:
        new = merging.new_of(each, known)
        if not new and _wants_placeholder(each, known):
            new = [New(genai.placeholder(each), OUT)]
        if new and head is None:
            head = _open(
                tx, *keys[0], moment=replace(moment, now=_time(each.span.began_at, moment))
            )
        if head is None:
            continue
        known += _add(tx, head, each, new, taken_back, moment=moment)
        _note(tx, head, each, moment=moment)
    if head is None:
        return
    _say_again(tx, head, later, known[standing:], moment=moment)
    for (key, _), there in zip(keys, found, strict=True):
        if there is None or there is early:
            routing.bind(tx, key, head.no, moment=moment)
    if early is not None:
        session_actions.trash(tx, early.id, profile=profile, moment=moment)


def _wants_placeholder(heard: Told, known: Sequence[Line]) -> bool:
    """Whether a call is to be seen though it tells no words, and its events have not come either."""
    if heard.usage is None or heard.inputs or heard.outputs:
        return False
    return not any(line.span == heard.span.span_id for line in known)


def _first_placeholder(
    tx: Tx, head: SessionHead, heard: Sequence[Told], known: Sequence[Line]
) -> int | None:
    """The first entry that stands for a call whose words have come now."""
    telling = {each.span.span_id for each in heard if each.outputs}
    if not any(line.is_placeholder and line.span in telling for line in known):
        return None
    for entry in _visible(tx, head):
        line = merging.line_of(entry.body) if isinstance(entry.body, Message) else None
        if line is not None and line.is_placeholder and line.span in telling:
            return entry.seq
    return None


def _take_out(
    tx: Tx, head: SessionHead, first: int, heard: Sequence[Told], *, moment: Moment
) -> list[tuple[Entry, Line]]:
    """Take back everything from an entry on; the messages that are to be said again afterwards.

    The log is only ever added to, so what stands between a placeholder and the end moves behind
    the words that replace it.
    """
    telling = {each.span.span_id for each in heard if each.outputs}
    behind = [
        entry
        for entry in _visible(tx, head)
        if entry.seq >= first and isinstance(entry.body, Message)
    ]
    revise.retract(
        tx, head.id, profile=head.profile, after=first - 1, at=moment.now, reason="telemetry"
    )
    lines = [
        (entry, merging.line_of(entry.body)) for entry in behind if isinstance(entry.body, Message)
    ]
    return [each for each in lines if not (each[1].is_placeholder and each[1].span in telling)]


def _with_own_inputs(heard: Told, later: Sequence[tuple[Entry, Line]]) -> Told:
    """The same call with what an earlier request told of its inputs, now that its answer has come."""
    if heard.work is not Work.CALL or not heard.outputs:
        return heard
    told = {merging.line_of(said).digest for said in (*heard.inputs, *heard.outputs)}
    own = [
        entry.body
        for entry, line in later
        if isinstance(entry.body, Message)
        and (line.span, line.side) == (heard.span.span_id, IN)
        and line.digest not in told
    ]
    return replace(heard, inputs=(*own, *heard.inputs))


def _say_again(
    tx: Tx,
    head: SessionHead,
    later: Sequence[tuple[Entry, Line]],
    told: Sequence[Line],
    *,
    moment: Moment,
) -> None:
    """Say what was taken back, except for what the spans of this request have `told` again.

    It is not compared with the rest of the log: that was done when it was first said.
    """
    for span_id, group in groupby(later, key=lambda each: each[1].span):
        again = [
            (each.body, line, each.at) for each, line in group if isinstance(each.body, Message)
        ]
        if span_id is not None:
            heard = Told(
                Span("", span_id),
                Work.CALL,
                inputs=tuple(body for body, line, _ in again if line.side != OUT),
                outputs=tuple(body for body, line, _ in again if line.side == OUT),
            )
            new = {id(each.message) for each in merging.new_of(heard, told)}
            again = [each for each in again if id(each[0]) in new]
        for body, _, at in again:
            append.append_after_end(
                tx, head.id, NewMessage(body, at=at), profile=head.profile, moment=moment
            )


def _told_early(tx: Tx, head: SessionHead) -> list[Told]:
    """What a session holds whose trace had not told its conversation's name, by span."""
    by_span: dict[str, Told] = {}
    for entry in _visible(tx, head):
        origin = entry.body.extra.get("otel") if isinstance(entry.body, Message) else None
        if not isinstance(origin, dict) or not isinstance(entry.body, Message):
            continue
        span = Span(
            origin["trace"],
            origin["span"],
            start_nanos=int(entry.at.timestamp() * 1e9),
            end_nanos=int(entry.at.timestamp() * 1e9),
        )
        told = by_span.setdefault(span.span_id, Told(span, Work.CALL))
        said = replace(entry.body, extra={k: v for k, v in entry.body.extra.items() if k != "otel"})
        if origin["side"] == OUT:
            told = replace(told, outputs=(*told.outputs, said))
        else:
            told = replace(told, inputs=(*told.inputs, said))
        by_span[span.span_id] = told
    return list(by_span.values())


def _add(
    tx: Tx,
    head: SessionHead,
    heard: Told,
    new: Sequence[New],
    taken_back: Collection[tuple[str | None, str]],
    *,
    moment: Moment,
) -> list[Line]:
    span = heard.span
    added = []
    for each in new:
        said = genai.marked(each.message, span, each.side)
        at = _time(span.ended_at if each.side == OUT else span.began_at, moment)
        digest = merging.line_of(said).digest
        idempotency_key = f"otel/{head.id}/{span.trace_id}/{span.span_id}/{digest}"
        # The key of an answer that was taken back is used up: with it, nothing would be added.
        is_keyed = each.side == OUT and (span.span_id, digest) not in taken_back
        saying = NewMessage(said, at=at, idempotency_key=idempotency_key if is_keyed else None)
        append.append_after_end(tx, head.id, saying, profile=head.profile, moment=moment)
        added.append(merging.line_of(said))
    return added


def _note(tx: Tx, head: SessionHead, heard: Told, *, moment: Moment) -> None:
    """What a span tells besides words: what it used, and what the model was told to be."""
    if heard.usage is not None:
        used = replace(heard.usage, at=_time(heard.span.ended_at, moment))
        usage.record(tx, head.no, used, profile=head.profile, moment=moment)
    if heard.system and sessions.details(tx, head.no).prompt_hash is None:
        edit.set_system_prompt(tx, head.id, heard.system, profile=head.profile)


def _open(tx: Tx, key: SessionKey, source: Source, *, moment: Moment) -> SessionHead:
    route = routing.resolve_route(tx, key, None, source, policy=ResetPolicy(), moment=moment)
    return sessions.get_by_no(tx, route.session_no)


def _is_named(tx: Tx, head: SessionHead) -> bool:
    """Whether a session is some conversation's already; a trace may have several."""
    keys = tx.all("keys_of_session", session_no=head.no)
    return any(SessionKey.parse(text).chat is not None for (text,) in keys)


def _lines(tx: Tx, head: SessionHead) -> list[Line]:
    return [
        merging.line_of(entry.body)
        for entry in _visible(tx, head)
        if isinstance(entry.body, Message)
    ]


def _visible(tx: Tx, head: SessionHead) -> Iterator[Entry]:
    """The entries of a session that were not taken back."""
    segments = sessions.segments(tx, head.no)
    stretches = transcript.retracted(entries.marks(tx, segments))
    for entry in entries.walk(tx, segments):
        if not transcript.is_retracted(entry.seq, stretches):
            yield entry


def _names(spans: Sequence[Span]) -> Callable[[Span], str | None]:
    """Which conversation a span belongs to: its own word, an ancestor's, the only one of its trace."""
    by_id = {(span.trace_id, span.span_id): span for span in spans}
    of_trace: dict[str, set[str]] = {}
    for span in spans:
        own = genai.conversation_of(span)
        if own is not None:
            of_trace.setdefault(span.trace_id, set()).add(own)

    def name(span: Span) -> str | None:
        current: Span | None = span
        for _ in range(MOST_ANCESTORS):
            if current is None:
                break
            own = genai.conversation_of(current)
            if own is not None:
                return _bounded(own)
            current = by_id.get((current.trace_id, current.parent_id))
        several = of_trace.get(span.trace_id, set())
        return _bounded(next(iter(several))) if len(several) == 1 else None

    return name


def _bounded(name: str) -> str:
    """A name that a key can hold: what is longer is told by its hash."""
    if len(name) <= LONGEST_ID:
        return name
    return hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()


def _priced(heard: Told) -> Told:
    used = heard.usage
    if used is None:
        return heard
    # Loaded with the first priced span: the table and its library would add 50 ms of CPU to every start.
    from sessionary import prices

    found = prices.priced(used, at=heard.span.ended_at)
    if found.cost_microusd is None and used.provider is not None:
        # The program may call its provider by a name that the table does not know.
        other = prices.priced(replace(used, provider=None), at=heard.span.ended_at)
        found = replace(other, provider=used.provider)
    return replace(heard, usage=found)


def _time(at: datetime, moment: Moment) -> datetime:
    """When something was said, by the span's clock; one that is not set or ahead of us is ours."""
    return min(at, moment.now) if at.timestamp() > 0 else moment.now
