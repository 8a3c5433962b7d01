"""Taking spans in: each conversation's in one transaction, each span once."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from hansard import prices
from hansard.actions import facts, routing, usage
from hansard.actions.say import Saying
from hansard.clock import Clock, Ids, Occasion
from hansard.errors import BadInput, Conflict, HansardError
from hansard.model import transcript
from hansard.model.entry import Message
from hansard.model.key import SessionKey, key_for
from hansard.model.place import Source
from hansard.model.reset import ResetPolicy
from hansard.model.session import SessionHead
from hansard.store import entries, sessions
from hansard.store.database import Store, Tx
from hansard.telemetry import genai, merging, wire
from hansard.telemetry.genai import Told
from hansard.telemetry.merging import OUT, Line, New
from hansard.telemetry.span import Span

PLATFORM = "otel"
LONGEST_ID = 256
MOST_ANCESTORS = 100


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
class Taken:
    """How many spans were refused, and why the first of them was."""

    rejected: int = 0
    reason: str = ""

    def and_refused(self, thread: Thread, error: HansardError) -> "Taken":
        """The same with one conversation more that cannot be kept; the first is named."""
        name = thread.conversation or f"of trace {thread.trace_id}"
        reason = self.reason or f"Conversation {name[:LONGEST_ID]!r} was refused: {error}"
        return Taken(self.rejected + len(thread.spans), reason)


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
        # Much of it is work; the others who ask go on meanwhile.
        threads = await asyncio.to_thread(_read, raw, media, encoding)
        if threads is None:
            return None
        taken = Taken()
        for thread, heard in threads:
            if isinstance(heard, BadInput):
                taken = taken.and_refused(thread, heard)
            else:
                taken = await self._take(profile, thread, heard, taken)
        return wire.answer(media, rejected=taken.rejected, reason=taken.reason)

    async def _take(self, profile: str, thread: Thread, heard: list[Told], so_far: Taken) -> Taken:
        when = Occasion(self._clock.now(), self._ids)
        pending: Awaitable[None] = self._store.write(
            take, thread, heard, profile=profile, when=when
        )
        try:
            await pending
        except (BadInput, Conflict) as error:
            # One conversation that cannot be kept does not hold up the others.
            return so_far.and_refused(thread, error)
        return so_far


def _read(
    raw: bytes, media: str, encoding: str | None
) -> list[tuple[Thread, list[Told] | BadInput]] | None:
    """The conversations of a request with what their spans tell, or why one cannot be kept."""
    body = wire.unpacked(raw, encoding)
    if body is None:
        return None
    return [(thread, _told(thread)) for thread in threads_of(wire.spans_of(body, media))]


def _told(thread: Thread) -> list[Told] | BadInput:
    try:
        return [_priced(genai.tell(span)) for span in thread.spans]
    except BadInput as error:
        return error


def threads_of(spans: Sequence[Span]) -> list[Thread]:
    """The conversations of a request, each with its spans in order of time."""
    known = [span for span in spans if genai.concerns(span) and span.trace_id and span.span_id]
    names = _names(spans)
    grouped: dict[tuple[str, str | None], list[Span]] = {}
    for span in sorted(known, key=lambda each: (each.start_nanos, each.end_nanos)):
        grouped.setdefault((span.trace_id, names(span)), []).append(span)
    return [Thread(trace, name, tuple(each)) for (trace, name), each in grouped.items()]


def take(tx: Tx, thread: Thread, heard: Sequence[Told], *, profile: str, when: Occasion) -> None:
    """Add what a conversation's spans say and the log does not."""
    keys = [(key_for(source, profile=profile), source) for source in thread.sources()]
    for key, _ in sorted(keys, key=lambda pair: str(pair[0])):
        routing.lock(tx, key)
    found = [routing.current(tx, key) for key, _ in keys]
    head = found[0]
    if head is None and found[-1] is not None and not _is_named(tx, found[-1]):
        head = found[-1]  # the trace came before its conversation had told its name
    known = [] if head is None else _lines(tx, head)
    for each in heard:
        new = merging.new_of(each, known)
        if not new and each.usage is not None and not (each.inputs or each.outputs):
            new = [New(genai.placeholder(each), OUT)]
        if new and head is None:
            head = _open(tx, *keys[0], when=replace(when, now=_time(each.span.began_at, when)))
        if head is None:
            continue
        known += _add(tx, head, each, new, when=when)
        _note(tx, head, each, when=when)
    if head is not None:
        for (key, _), there in zip(keys, found, strict=True):
            if there is None:
                routing.bind(tx, key, head.no, when=when)


def _add(
    tx: Tx, head: SessionHead, heard: Told, new: Sequence[New], *, when: Occasion
) -> list[Line]:
    span = heard.span
    added = []
    for each in new:
        said = genai.marked(each.message, span, each.side)
        at = _time(span.ended_at if each.side == OUT else span.began_at, when)
        digest = merging.line_of(said).digest
        idem = f"otel/{span.trace_id}/{span.span_id}/{digest}" if each.side == OUT else None
        saying = Saying(said, at=at, idem=idem)
        facts.say_after(tx, head.id, saying, profile=head.profile, when=when)
        added.append(merging.line_of(said))
    return added


def _note(tx: Tx, head: SessionHead, heard: Told, *, when: Occasion) -> None:
    """What a span tells besides words: what it used, and what the model was told to be."""
    if heard.usage is not None:
        used = replace(heard.usage, at=_time(heard.span.ended_at, when))
        usage.record(tx, head.no, used, profile=head.profile, when=when)
    if heard.system and sessions.details(tx, head.no).prompt_hash is None:
        facts.set_system_prompt(tx, head.id, heard.system, profile=head.profile)


def _open(tx: Tx, key: SessionKey, source: Source, *, when: Occasion) -> SessionHead:
    route = routing.onward(tx, key, None, source, policy=ResetPolicy(), when=when)
    return sessions.get_by_no(tx, route.session_no)


def _is_named(tx: Tx, head: SessionHead) -> bool:
    """Whether a session is some conversation's already; a trace may have several."""
    keys = tx.all("keys_of_session", session_no=head.no)
    return any(SessionKey.parse(text).chat is not None for (text,) in keys)


def _lines(tx: Tx, head: SessionHead) -> list[Line]:
    segments = sessions.segments(tx, head.no)
    stretches = transcript.retracted(entries.marks(tx, segments))
    return [
        merging.line_of(entry.body)
        for entry in entries.walk(tx, segments)
        if isinstance(entry.body, Message) and not transcript.is_retracted(entry.seq, stretches)
    ]


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
    found = prices.priced(used, at=heard.span.ended_at)
    if found.cost_microusd is None and used.provider is not None:
        # The program may call its provider by a name that the table does not know.
        other = prices.priced(replace(used, provider=None), at=heard.span.ended_at)
        found = replace(other, provider=used.provider)
    return replace(heard, usage=found)


def _time(at: datetime, when: Occasion) -> datetime:
    """When something was said, by the span's clock; one that is not set or ahead of us is ours."""
    return min(at, when.now) if at.timestamp() > 0 else when.now
