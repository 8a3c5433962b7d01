"""One request for an answer, whatever interface it comes through: the turn that it begins, and what it writes.

`begin_exchange` returns once the turn is durable. `Exchange.events` yields what the agent writes as it comes, and in
the end the result, which is read from the store. The turn may run in another process, it may have been begun by an
earlier request, and it may have ended long ago: the events are the same.
"""

import asyncio
import hashlib
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from fastapi import Request
from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sessionary.actions.questions import summary
from sessionary.actions.sessions.append import NewMessage
from sessionary.clock import Moment
from sessionary.engine import exchange as engine_exchange
from sessionary.engine.context import EngineContext, LiveEvent
from sessionary.engine.engine import Engine
from sessionary.engine.exchange import (
    AfterEntry,
    BegunExchange,
    ExchangeProgress,
    NamedSession,
    NewExchange,
    SessionBusy,
    WaitsForPeople,
)
from sessionary.engine.turn import loop
from sessionary.errors import RetryLater, SessionaryError, StoreUnavailable
from sessionary.formats.message_input import MessageInput
from sessionary.model import codec
from sessionary.model.message import Entry, Message, Role
from sessionary.model.question import Question
from sessionary.model.source import Source
from sessionary.model.turn import Turn, TurnState
from sessionary.model.turn_answer import SEPARATOR, TurnAnswer, answer_of
from sessionary.model.turn_options import TurnOptions
from sessionary.model.usage import UsageTotal
from sessionary.model.view import question_json
from sessionary.store.database import Tx
from sessionary.store.tables import sessions
from sessionary.web.auth import has_access, idempotency_key
from sessionary.web.context import Caller, WebContext
from sessionary.web.openai.errors import ApiError, ClientGone, api_error
from sessionary.web.openai.models import PLATFORM, choose_model, engine_of
from sessionary.web.problems import RequestRefused
from sessionary.web.stream import until_gone

SESSION_HEADER = "X-Session-Id"
TURN_HEADER = "X-Turn-Id"
RETRY_HEADER = "X-Stainless-Retry-Count"
# How long a request waits for another turn of its session, or for a free place, before it is refused.
BUSY_SECONDS = 20.0
# How often a turn that runs here is looked for in the store: its events say when it has ended.
_LOOK_SECONDS = 5.0
_QUEUE_LENGTH = 1000
log = logging.getLogger(__name__)
CLIENT_GONE = "the program that waited for the answer has gone away"
_BUDGET = "The budget of"
# What of a session's name stands in a header as it is; anything else is written as `%XX`.
_IN_A_HEADER = "!\"#$&'()*+,/:;<=>?@[\\]^`{|}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeRequest:
    """What a program asks: the conversation as it has sent it, the newest message last, and how to answer.

    `model` is the name that `models.find_model` understands. `place` names the session, or the entry to go on after;
    without it the session is found by the messages that were sent before. `person` is the program's own name for its
    user. Make one with `facts_of` for what is in the headers of the request.
    """

    caller: Caller
    model: str
    messages: tuple[MessageInput, ...]
    place: NamedSession | AfterEntry | None = None
    options: TurnOptions = field(default_factory=TurnOptions)
    person: str | None = None
    idempotency_key: str | None = None
    fingerprint: str = ""
    is_retry: bool = False
    # What the interface repeats when it is asked for the answer later.
    asked: Mapping[str, Any] = field(default_factory=dict)
    # The turn goes on when nobody waits for its answer.
    is_background: bool = False
    # What the interface calls the form of the answer.
    output_param: str = "response_format"


class RequestFacts(Struct, frozen=True):
    """What the headers of a request say, and a hash of its body: by it a repeated request is recognised."""

    idempotency_key: str | None
    fingerprint: str
    is_retry: bool
    session: str | None


def facts_of(request: Request) -> RequestFacts:
    """Read the headers that every route of this interface understands; the body was read before."""
    raw: bytes = getattr(request.state, "raw", b"")
    session = _session_header(request)
    # The same words in another session are another request.
    said = codec.encode([request.url.path, session]).encode() + b"\n" + raw
    return RequestFacts(
        idempotency_key(request),
        hashlib.sha256(said).hexdigest(),
        request.headers.get(RETRY_HEADER, "0").strip() not in ("", "0"),
        session,
    )


def _session_header(request: Request) -> str | None:
    """The session that a header names, written as in our answers (`%XX`), or as it is."""
    given = request.headers.get(SESSION_HEADER, "")
    try:
        return unquote_to_bytes(given.encode("latin-1")).decode() or None
    except UnicodeDecodeError:
        return given


def source_of(caller: Caller, person: str | None) -> Source:
    """Where a program's message comes from: its token is the chat, and the user that it names is the person."""
    own = caller.person
    named = codec.storable_text(person) if person else None
    return Source(
        PLATFORM,
        caller.id,
        chat_name=caller.name or None,
        user_id=named or own.id,
        user_name=None if named else own.name,
    )


class TextDelta(Struct, frozen=True):
    """More text of the answer."""

    text: str


class ReasoningDelta(Struct, frozen=True):
    """More of what the model thinks."""

    text: str


class StepWritten(Struct, frozen=True):
    """A finished message of the turn: the agent's, or the result of one of its tools."""

    entry: Entry


class ExchangeResult(Struct, frozen=True):
    """How a turn has ended, or that it waits for people: then `questions` are what it asks.

    `answer` has all text, the calls of the program's own tools, and why the model stopped. `entries` are the messages
    behind it. `last_seq` is the entry after which the conversation goes on.
    """

    turn: Turn
    answer: TurnAnswer
    entries: tuple[Entry, ...]
    usage: UsageTotal
    questions: tuple[Question, ...] = ()

    @property
    def last_seq(self) -> int:
        """The last entry of the turn."""
        return self.entries[-1].seq if self.entries else self.turn.first_seq

    def check(self) -> None:
        """Raise `ApiError` if the turn has no answer: it failed, or was stopped."""
        turn = self.turn
        if turn.state in (TurnState.DONE, TurnState.WAITING):
            return
        reason = (turn.reason or "no reason was given").rstrip(".")
        if reason.startswith(_BUDGET):
            raise ApiError(429, reason, code="insufficient_quota", retry=False)
        raise ApiError(
            502,
            f"The agent did not answer: {reason}. What it wrote is kept in session {turn.session_id}; ask again to "
            "retry.",
            code="agent_failed" if turn.state is TurnState.FAILED else "agent_interrupted",
        )


ExchangeEvent = TextDelta | ReasoningDelta | StepWritten | ExchangeResult


class Exchanges:
    """The requests that wait for answers in this process, and whether it stops."""

    def __init__(self) -> None:
        self._followers: Counter[str] = Counter()
        self.stopping = asyncio.Event()

    def __len__(self) -> int:
        return self._followers.total()

    def follow(self, turn_id: str) -> Callable[[], bool]:
        """Count a request that waits for a turn; return what ends that, and says whether it was the last one."""
        self._followers[turn_id] += 1

        def leave() -> bool:
            self._followers[turn_id] -= 1
            is_last = self._followers[turn_id] <= 0
            if is_last:
                del self._followers[turn_id]
            return is_last

        return leave

    def close(self) -> None:
        """Let every request answer now: the server stops."""
        self.stopping.set()


async def begin_exchange(request: Request, wanted: ExchangeRequest) -> "Exchange":
    """Store a request and begin its turn, or find the turn that an equal request began; durable on return.

    While another turn runs in the session, or the server has no free place, it waits up to BUSY_SECONDS. Raises
    `ApiError`, or one of our own errors, which the server turns into one.
    """
    context: WebContext = request.app.state.context
    engine = engine_of(context, wanted.caller)
    new = _new_exchange(engine.context, wanted)
    exchanges: Exchanges = request.app.state.exchanges
    until = time.monotonic() + BUSY_SECONDS
    wait = 0.1
    busy: int | None = None
    refused = ApiError(503, "The server is busy; nothing was stored.", code="server_busy")
    gone = asyncio.ensure_future(until_gone(request.receive))
    try:
        while True:
            try:
                # While it is, nothing is gained by writing.
                if busy is None or not await context.store.read(engine_exchange.is_busy, busy):
                    return await _begin(request, engine, wanted, new, gone)
            except SessionBusy as error:
                refused = ApiError(409, str(error), code="conversation_locked")
                busy = error.session_no
            except _NoPlace:
                busy = None
                refused = ApiError(
                    503,
                    "The server runs as many turns as it may; nothing was stored.",
                    code="server_busy",
                    after=5,
                )
            except WaitsForPeople as error:
                raise waiting_error(str(error), error.questions) from error
            except RetryLater as error:
                raise api_error(error) from error
            except SessionaryError as error:
                raise api_error(error) from error
            if time.monotonic() + wait > until or exchanges.stopping.is_set():
                raise refused
            await asyncio.wait({gone}, timeout=wait)
            if gone.done():
                raise ClientGone
            wait = min(2 * wait, 1.0)
    except BaseException:
        gone.cancel()
        raise


class _NoPlace(Exception):
    """The process runs as many turns as it may."""


def waiting_error(message: str, asked: tuple[Question, ...]) -> ApiError:
    """The error for a message that cannot be answered before people have answered these questions."""
    told = [dict(question_json(each)) for each in asked]
    return ApiError(409, message, code="waiting_for_people", retry=False, more={"questions": told})


def _new_exchange(context: EngineContext, wanted: ExchangeRequest) -> NewExchange:
    caller, options = wanted.caller, wanted.options
    choice = choose_model(context, wanted.model)
    source = source_of(caller, wanted.person)
    try:
        agent = context.agent_for(source, choice.agent or None)
    except SessionaryError as error:
        raise ApiError(503, str(error), code="agent_unavailable", retry=False) from error
    if not agent.takes_turn_options:
        _refuse_options(choice.agent, options, wanted.output_param)
    catalog = context.catalog
    is_default = choice.agent == catalog.default and not catalog.default_by_platform
    chosen = {"agent": None if is_default else choice.agent, "model": choice.model}
    person = source.person
    messages = tuple(
        NewMessage(
            each.message
            if each.message.role is not Role.USER or each.message.person is not None
            else _by(each.message, source),
            files=each.files,
        )
        for each in wanted.messages
    )
    assert person is not None
    client = caller.id
    if wanted.person:
        # A hash: so no user can choose a name under which others are noted, and an erasure leaves no name behind.
        client += "/" + hashlib.sha256(person.id.encode()).hexdigest()[:32]
    return NewExchange(
        source,
        messages,
        client=client,
        fingerprint=wanted.fingerprint,
        place=wanted.place,
        options=options,
        chosen={} if catalog.only is not None or not catalog.agents else chosen,
        idempotency_key=wanted.idempotency_key,
        is_retry=wanted.is_retry,
        may_approve=caller.may_approve,
        asked=wanted.asked,
    )


def _by(message: Message, source: Source) -> Message:
    return replace(message, person=source.person)


def _refuse_options(agent: str, options: TurnOptions, output_param: str) -> None:
    refused = {
        "tools": options.tools,
        output_param: options.output,
        "stop": options.settings.get("stop_sequences"),
    }
    for param, value in refused.items():
        if value:
            raise ApiError(
                400,
                f"The agent {agent} is a program of its own and cannot be given `{param}`; nothing was stored. Choose "
                "an agent that asks a model, or leave it out.",
                code="unsupported_parameter",
                param=param,
            )


async def _begin(
    request: Request,
    engine: Engine,
    wanted: ExchangeRequest,
    new: NewExchange,
    gone: "asyncio.Future[None]",
) -> "Exchange":
    context: WebContext = request.app.state.context
    if not engine.turns.has_free_slot:
        begun = await context.store.read(
            engine_exchange.find_begun, engine.context, new, moment=context.moment()
        )
        if begun is None:
            raise _NoPlace
        return Exchange(request, engine, wanted, begun, gone)
    made: list[Exchange] = []

    def take(begun: BegunExchange) -> None:
        # Before the turn runs: none of its events is missed.
        made.append(Exchange(request, engine, wanted, begun, gone))
        if begun.start is not None:
            engine.turns.run_started(begun.key, begun.start)
            engine.turns.wake()

    write = context.store.write(
        engine_exchange.begin_exchange, engine.context, new, moment=context.moment()
    )
    await write.handoff(take)
    return made[0]


class Exchange:
    """A turn whose answer a request waits for. Use `events` or `result` once, then `close`, whatever happens."""

    def __init__(
        self,
        request: Request,
        engine: Engine,
        wanted: ExchangeRequest,
        begun: BegunExchange,
        gone: "asyncio.Future[None]",
    ) -> None:
        self._context: WebContext = request.app.state.context
        self._exchanges: Exchanges = request.app.state.exchanges
        self._engine = engine
        self.wanted = wanted
        self.begun = begun
        self.gone = gone
        self.created = int((begun.began_at or self._context.clock.now()).timestamp())
        self._ending = ExitStack()
        bus = engine.context.bus
        self._live = self._ending.enter_context(bus.listen(begun.session_id, length=_QUEUE_LENGTH))
        self._leave = self._exchanges.follow(begun.turn_id)
        self._is_over = False
        self._is_closed = False
        # What was given out, the text of finished steps, and that of the step that is not finished.
        self._emitted = ""
        self._finished = ""
        self._current = ""
        self._separator = SEPARATOR
        # What was given out of steps that were stored with another text than was streamed, and how much that replaces.
        self._replaced = ""
        self._skipped = 0
        self._is_resumed = False
        self._is_whole = False
        self._seen = begun.after_seq
        # The entry of a step that was read before it was announced: the text that comes until then is a part of it.
        self._announced_by: int | None = None
        self._entries: list[Entry] = []

    @property
    def session_id(self) -> str:
        return self.begun.session_id

    @property
    def turn_id(self) -> str:
        return self.begun.turn_id

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the response, which name the session and the turn."""
        return {
            SESSION_HEADER: quote(codec.storable_text(self.session_id), safe=_IN_A_HEADER),
            TURN_HEADER: self.turn_id,
            "X-Request-Id": self.turn_id,
            "Cache-Control": "no-store",
        }

    async def result(self) -> ExchangeResult:
        """Wait for the end of the turn, and return how it has ended."""
        self._is_whole = True
        async with aclosing(self.events()) as events:
            async for event in events:
                if isinstance(event, ExchangeResult):
                    return event
        raise AssertionError("the events end with the result")

    async def events(self) -> AsyncGenerator[ExchangeEvent]:
        """Yield what the agent writes, and in the end the result.

        Raises `ClientGone` when the client disconnects, and `ApiError` if the server stops, or the client loses access.
        """
        is_new = self.begun.start is not None
        is_here = is_new
        if not is_new:
            async for event in self._resync():
                yield event
                if isinstance(event, ExchangeResult):
                    return
            is_here = self._runs_here
        while True:
            live = await self._next(_LOOK_SECONDS if is_here else self._check_seconds)
            if live is not None and live.turn_id != self.turn_id:
                continue
            match live:
                case LiveEvent(kind="delta", data=str(text)):
                    if self._announced_by is None:
                        self._current += text
                        for event in self._emit():
                            yield event
                case LiveEvent(kind="thinking", data=str(text)):
                    yield ReasoningDelta(text)
                case LiveEvent(kind="step", seq=int(seq)):
                    async for event in self._read_step(seq):
                        yield event
                case LiveEvent(kind="step" | "began"):
                    self._current = ""
                case _:  # it has ended or was lost, some events were, or it is time to look
                    async for event in self._resync():
                        yield event
                        if isinstance(event, ExchangeResult):
                            return
                    is_here = self._runs_here

    @property
    def _runs_here(self) -> bool:
        return self.turn_id in self._engine.context.running

    @property
    def _check_seconds(self) -> float:
        return self._context.settings.limits.check_seconds

    async def _next(self, seconds: float) -> LiveEvent | None:
        """Return the next live event, or None when it is time to look at the store."""
        if not self._live.empty():
            return self._live.get_nowait()
        event = asyncio.ensure_future(self._live.get())
        stopping = asyncio.ensure_future(self._exchanges.stopping.wait())
        waits: set[asyncio.Future[Any]] = {event, stopping, self.gone}
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if self.gone.done():
                raise ClientGone
            if event.done():
                return event.result()
            if stopping.done():
                raise ApiError(
                    503,
                    "The server stops; the turn goes on in another process, or when the server is there again. Ask "
                    "again with the same Idempotency-Key for its answer.",
                    code="server_stopping",
                    after=1,
                )
            return None
        finally:
            event.cancel()
            stopping.cancel()

    async def _read_step(self, seq: int) -> AsyncIterator[ExchangeEvent]:
        """Read what was written up to a step, whose text was streamed."""
        if self._announced_by is not None and seq >= self._announced_by:
            self._announced_by = None
        if seq <= self._seen:
            return
        progress = await self._read()
        self._current = ""
        for entry in progress.written:
            if entry.seq > seq:
                break
            for event in self._take(entry):
                yield event

    async def _resync(self) -> AsyncIterator[ExchangeEvent]:
        """Read what was written, and the text that is being written; yield the result if the turn has ended."""
        while True:
            progress = await self._read()
            while not self._live.empty():  # what these events tell was read, or is in the bus
                self._live.get_nowait()
            partial = self._engine.context.bus.partial_text(self.session_id)
            if partial is not None and partial.turn_id != self.turn_id:
                partial = None
            written = (*self._entries, *progress.written)
            last = max((each.seq for each in written if _is_of_agent(each)), default=0)
            if partial is None or (partial.seq or 0) <= last:
                break
        for entry in progress.written:
            for event in self._take(entry):
                yield event
        turn = progress.turn
        if turn.state is TurnState.RUNNING:
            self._announced_by = None
            if partial is None:
                self._current = turn.partial or ""
            elif (partial.seq or 0) >= last:
                self._current = str(partial.data)
            else:
                self._current, self._announced_by = "", last
            for event in self._emit():
                yield event
            return
        self._current = ""
        result = self._result(progress)
        self._finished = result.answer.text
        rest = self._emit()
        if not rest and not self._shown.startswith(self._emitted) and self._is_resumed:
            self._is_over = True
            raise ApiError(
                502,
                "The process that wrote this answer has ended, and another one has written a different one: what was "
                "sent so far is not its beginning. Ask again with the same Idempotency-Key for all of it.",
                code="answer_restarted",
            )
        for event in rest:
            yield event
        self._is_over = True
        if turn.state in (TurnState.DONE, TurnState.WAITING):
            await self._note(result)
        yield result

    def _result(self, progress: ExchangeProgress) -> ExchangeResult:
        written = [each.body for each in self._entries if isinstance(each.body, Message)]
        answer = answer_of(written, client_tools=self.wanted.options.tool_names)
        if progress.questions:
            notice = waiting_text(progress.questions)
            text = SEPARATOR.join(filter(None, (answer.text, notice)))
            answer = replace(answer, text=text, calls=())
        return ExchangeResult(
            progress.turn, answer, tuple(self._entries), progress.usage, progress.questions
        )

    def _take(self, entry: Entry) -> list[ExchangeEvent]:
        """Add a message of the turn to what is known."""
        if entry.seq <= self._seen:
            return []
        self._seen = entry.seq
        if not _is_of_agent(entry):
            return []
        self._entries.append(entry)
        self._current = ""
        answer = answer_of(each.body for each in self._entries if isinstance(each.body, Message))
        self._finished = answer.text
        self._separator = "" if answer.is_cut or not answer.text else SEPARATOR
        if not self._shown.startswith(self._emitted) and not self._is_resumed:
            # The agent has streamed something else than it has finished: what was given out stays.
            self._replaced, self._skipped = self._emitted + SEPARATOR, len(self._finished)
        return [*self._emit(), StepWritten(entry)]

    @property
    def _shown(self) -> str:
        """All text so far, as it is given out."""
        text = self._finished
        if self._current:
            text += (self._separator if text else "") + self._current
        if not self._replaced:
            return text
        rest = text[self._skipped :].removeprefix(SEPARATOR)
        return self._replaced + rest if rest else self._replaced.removesuffix(SEPARATOR)

    def _emit(self) -> list[ExchangeEvent]:
        """Return the text that is new."""
        text = self._shown
        if not text.startswith(self._emitted) or len(text) == len(self._emitted):
            return []
        new, self._emitted = text[len(self._emitted) :], text
        return [TextDelta(new)]

    async def _read(self) -> ExchangeProgress:
        context, caller = self._context, self.wanted.caller

        def read(tx: Tx) -> tuple[bool, ExchangeProgress | None]:
            return has_access(tx, caller, now=context.clock.now()), engine_exchange.read_progress(
                tx, self.turn_id, after=self._seen, profile=caller.profile
            )

        while True:
            with suppress(RetryLater, StoreUnavailable):  # the next look tries again
                is_allowed, progress = await context.store.read(read)
                if not is_allowed:
                    raise RequestRefused(401, "The token is no longer valid.")
                if progress is None:
                    raise ApiError(404, "The session was deleted.", code="session_deleted")
                self._is_resumed = progress.turn.resumed > 0
                return progress
            await asyncio.sleep(self._check_seconds)

    async def _note(self, result: ExchangeResult) -> None:
        """Note the answer, so that the program's next request goes on after it."""
        if not self.begun.client:
            return
        answer = result.answer
        if self._replaced and not self._is_whole:
            answer = replace(answer, text=self._emitted)
        with suppress(RetryLater, StoreUnavailable):  # then the answer is compared with the log
            await self._context.store.write(
                engine_exchange.note_answer,
                self.begun,
                answer.message,
                seq=result.last_seq,
                profile=self.wanted.caller.profile,
            )

    async def close(self) -> None:
        """Stop listening. If the client has gone, and has no key to come back with, stop the turn."""
        if self._is_closed:
            return
        self._is_closed = True
        self._ending.close()
        is_last = self._leave()
        is_gone = self.gone.done()
        self.gone.cancel()
        keeps_running = self.wanted.idempotency_key is not None or self.wanted.is_background
        if not is_gone or not is_last or keeps_running or self._is_over:
            return
        context = self._context
        try:
            await context.store.write(
                _stop, self.begun, context=self._engine.context, moment=context.moment()
            )
        except SessionaryError as error:
            log.warning("turn %s was not stopped, it goes on: %s", self.turn_id, error)


def _stop(tx: Tx, begun: BegunExchange, *, context: EngineContext, moment: Moment) -> None:
    head = sessions.by_numbers(tx, (begun.session_no,)).get(begun.session_no)
    if head is not None and head.running_turn == begun.turn_id:
        loop.stop_turn(tx, head.no, reason=CLIENT_GONE, context=context, moment=moment)


def _is_of_agent(entry: Entry) -> bool:
    return isinstance(entry.body, Message) and entry.body.role in (Role.ASSISTANT, Role.TOOL)


def waiting_text(asked: tuple[Question, ...]) -> str:
    """Return what a program is told instead of an answer while its turn waits for people."""
    what = "\n".join(f"- {summary(each)}" for each in asked)
    return f"[Waiting for an answer of people:\n{what}\nThe conversation goes on when that is answered.]"


class StreamedAnswer(Response):
    """Sends an exchange as server-sent events; an error after the beginning is an event, too.

    `frames` turns the events of the exchange into frames. A client that reads too slowly, or goes away, ends it.
    """

    def __init__(
        self,
        exchange: Exchange,
        frames: Callable[[AsyncIterator[ExchangeEvent]], AsyncIterator[bytes]],
        failure: Callable[[ApiError], bytes],
    ) -> None:
        self.status_code = 200
        self.background = None
        self._exchange = exchange
        self._frames = frames
        self._failure = failure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = self._exchange
        limits = exchange._context.settings.limits
        headers = [
            (name.lower().encode(), value.encode()) for name, value in exchange.headers.items()
        ]
        headers += [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"x-accel-buffering", b"no"),
        ]

        async def write(data: bytes, *, more: bool = True) -> None:
            message = {"type": "http.response.body", "body": data, "more_body": more}
            async with asyncio.timeout(limits.stream_stall_seconds):
                await send(message)

        events = exchange.events()
        frames = self._frames(events)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            waiting: asyncio.Future[bytes] | None = None
            try:
                while True:
                    waiting = waiting or asyncio.ensure_future(anext(frames))
                    done, _ = await asyncio.wait({waiting}, timeout=limits.keep_alive_seconds)
                    if not done:
                        await write(b": here\n\n")
                        continue
                    frame, waiting = waiting.result(), None
                    await write(frame)
            except StopAsyncIteration:
                pass
            except ApiError as error:
                await write(self._failure(error))
            except RequestRefused as error:
                await write(self._failure(ApiError(error.status, error.detail)))
            except SessionaryError as error:
                await write(self._failure(api_error(error)))
            finally:
                if waiting is not None:
                    waiting.cancel()
                    await asyncio.gather(waiting, return_exceptions=True)
                close = getattr(frames, "aclose", None)
                if close is not None:
                    await close()
                await events.aclose()
            await write(b"", more=False)
        except (TimeoutError, OSError, ClientGone):
            pass  # too slow, or gone
        finally:
            await exchange.close()
