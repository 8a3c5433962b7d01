"""Turns whose caller waits for the answer: where their conversation goes on, how they begin, and what came of them.

The message, its options, the history that the program has sent, and the turn are written in one transaction. So the
answer can be had again with the same idempotency key, from any process, also after a crash.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from sessionary.actions import files, inbox, question_arrivals, turns
from sessionary.actions import questions as question_actions
from sessionary.actions.sessions import choice, edit, log, prefixes, read, resent, routing
from sessionary.actions.sessions.append import NewMessage
from sessionary.actions.sessions.prefixes import KnownPrefix
from sessionary.actions.sessions.resent import ResumePoint
from sessionary.clock import Moment
from sessionary.engine import questions
from sessionary.engine.context import EngineContext
from sessionary.engine.turn.loop import TurnStart, begin
from sessionary.errors import BadInput, Conflict, NotAllowed, RetryLater
from sessionary.model.choice import Changes
from sessionary.model.message import Entry, Message, Part, Role, ToolCall, ToolResult
from sessionary.model.prefix import prefix_digests
from sessionary.model.question import Question
from sessionary.model.session import Opening, SessionFolder, SessionHead
from sessionary.model.source import SessionKey, Source, by_program, check_person
from sessionary.model.transcript import RECORD
from sessionary.model.turn import Arrival, Turn, TurnState
from sessionary.model.turn_options import AwaitedRequest, TurnOptions, awaited, awaited_by
from sessionary.model.usage import UsageTotal
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals, blobs, sessions
from sessionary.store.tables import turns as turn_rows
from sessionary.store.tables import usage as usage_rows

# An equal request that says that it is a retry gets the answer of a turn that began at most so long ago.
RETRIED_WITHIN = timedelta(hours=1)
# How many messages a request may have: as many as OpenAI's interface takes.
MOST_MESSAGES = 2048
# Among how many of a session's last entries the call is looked for whose result a program sends.
_RECENT = 200


class SessionBusy(Conflict):
    """Another turn is running in the session; try again when it has ended."""

    kind = "session-busy"

    def __init__(self, message: str, session_no: int) -> None:
        super().__init__(message)
        self.session_no = session_no


class ResponseInProgress(Conflict):
    """What the program wants to go on after is still being written; try again when it is complete."""

    kind = "response-in-progress"


class BudgetUsedUp(NotAllowed):
    """A budget is used up; try again in its next period."""

    kind = "budget-used-up"


class WaitsForPeople(Conflict):
    """The session's turn waits for people, and the message does not answer what it has asked."""

    kind = "waiting-for-people"

    def __init__(self, message: str, asked: Sequence[Question]) -> None:
        super().__init__(message)
        self.questions = tuple(asked)


class NamedSession(Struct, frozen=True):
    """The session that a program names, by its id or its exact title; one with this id is opened if there is none."""

    ref: str


class AfterEntry(Struct, frozen=True):
    """The entry that a program goes on after; in a fork, if the session has gone on since.

    With `is_running` its turn was still writing when the program asked to go on after it.
    """

    session_id: str
    seq: int
    is_running: bool = False


class NewExchange(Struct, frozen=True):
    """A request for an answer.

    `messages` are the conversation as the program has sent it, the newest last. Without a `place`, or with a named
    session, they may begin with what was sent before, which is recognised; after an entry, they are all new. `client`
    is whose conversations are compared. With `is_retry`, an equal request gets the answer of the first.
    """

    source: Source
    messages: tuple[NewMessage, ...]
    client: str
    fingerprint: str
    place: NamedSession | AfterEntry | None = None
    options: TurnOptions = field(default_factory=TurnOptions)
    # The agent and the model that are to answer; None: the default.
    chosen: Changes = {}
    idempotency_key: str | None = None
    is_retry: bool = False
    may_approve: bool = False
    # What its interface repeats when it is asked for the answer later.
    asked: Mapping[str, Any] = {}


class BegunExchange(Struct, frozen=True):
    """A turn whose answer is awaited: what it writes after the entry `after_seq`.

    `start` is to be run after the commit; it is None if an earlier request has begun the turn, or if the message has
    answered the turn's question.
    """

    arrival_id: str
    session_id: str
    session_no: int
    turn_id: str
    after_seq: int
    key: SessionKey
    start: TurnStart | None = None
    # The note under which the program's next request finds the session: of the messages that it has sent. No client if
    # they are not the beginning of its conversation: then there is no note.
    client: str = ""
    digest: str = ""
    began_at: datetime | None = None


def begin_exchange(
    tx: Tx, context: EngineContext, new: NewExchange, *, moment: Moment
) -> BegunExchange:
    """Store a request and begin its turn, or find the turn that an equal request has begun.

    Raises `SessionBusy` while another turn runs in the session, `WaitsForPeople`, `BudgetUsedUp`, `RetryLater` while
    running turns have reserved the rest of a budget, `ResponseInProgress`, and `Conflict` if the key belongs to another
    request.
    """
    messages = [each.message for each in new.messages]
    _check(messages)
    check_person(new.source.person)
    encoded = new.options.encode()
    options = None if encoded is None else blobs.hash_of_text(encoded)
    source = awaited(
        new.source if new.may_approve else by_program(new.source),
        AwaitedRequest(new.fingerprint, options, new.asked),
    )
    key = context.key(source)
    routing.lock_key(tx, key)
    name = _idempotency_name(new)
    earlier = _find_earlier(tx, new, name, key, moment=moment)
    if earlier is not None:
        return earlier
    point, client = _place(tx, new, messages, context=context, moment=moment)
    head = point.head
    digest = prefix_digests(messages)[-1]
    *history, prompt = _merged(new.messages[point.known :])
    for each in (*history, prompt):
        files.keep_files(tx, each.message, each.files, profile=context.profile, moment=moment)
    if head.waits_for_people and not history:
        begun = _answer(tx, context, head, source, prompt.message, name, moment=moment)
        if client:
            prefixes.note(tx, digest, head, seq=begun.after_seq, client=client)
        return replace(begun, client=client, digest=digest)
    _check_free(tx, head)
    _check_results(tx, head, messages)
    for each in history:
        log.append(tx, head.id, each.message, profile=head.profile, at=moment.now)
    if new.chosen:
        head = choice.choose(
            tx, head, new.chosen, by=source.person, moment=moment, catalog=context.catalog
        )
    routing.bind(tx, key, head.no, moment=moment)
    arrival, _ = inbox.receive(tx, key, source, prompt.message, moment=moment, idempotency_key=name)
    start = begin(tx, key, context=context, moment=moment)
    if start.refusal is not None:
        raise BudgetUsedUp(start.refusal)
    if start.is_held_back:
        raise RetryLater("Running turns have reserved the rest of a budget; nothing was stored.", 5)
    if start.begun is None:
        raise _busy(head)
    turns.keep_options(tx, new.options, head.no)
    seq = start.begun.prompts[-1].seq
    if client:
        prefixes.note(tx, digest, head, seq=seq, client=client)
    prefixes.note(tx, new.fingerprint, head, seq=seq, client=_retries_of(new))
    return BegunExchange(
        arrival.id,
        head.id,
        head.no,
        start.begun.lease.turn_id,
        seq,
        key,
        start,
        client,
        digest,
        moment.now,
    )


def find_begun(
    tx: Tx, context: EngineContext, new: NewExchange, *, moment: Moment
) -> BegunExchange | None:
    """Return the turn that an equal request has begun; None if this one is to begin its own."""
    return _find_earlier(tx, new, _idempotency_name(new), context.key(new.source), moment=moment)


def _idempotency_name(new: NewExchange) -> str | None:
    return None if new.idempotency_key is None else f"v1/{new.client}/{new.idempotency_key}"


def _check(messages: Sequence[Message]) -> None:
    if not messages:
        raise BadInput("There are no messages; nothing was stored.")
    if len(messages) > MOST_MESSAGES:
        raise BadInput(
            f"There are {len(messages):,} messages, and at most {MOST_MESSAGES:,} are taken; nothing was stored. "
            "Name the session, and send only what is new."
        )
    if messages[-1].role not in (Role.USER, Role.TOOL):
        raise BadInput(
            f"The last message is of role {messages[-1].role}: only one of a user or a tool can be answered. "
            "Nothing was stored."
        )


def _check_results(tx: Tx, head: SessionHead, messages: Sequence[Message]) -> None:
    """Refuse the result of a call that nobody has made: models are not shown it, and would answer something else."""
    last = len(messages)
    while last and messages[last - 1].role is Role.TOOL:
        last -= 1
    results = {
        part.call_id
        for each in messages[last:]
        for part in each.parts
        if isinstance(part, ToolResult)
    }
    missing = results - _call_ids(messages)
    if missing and head.message_count:
        recent = read.read_window(tx, head.id, profile=head.profile, limit=_RECENT).entries
        missing -= _call_ids(each.body for each in recent if isinstance(each.body, Message))
    if missing:
        raise BadInput(
            f"No tool call {min(missing)[:80]!a} is known whose result the last message could be; nothing was stored. "
            "Send the message that calls it, too."
        )


def _call_ids(messages: Iterable[Message]) -> set[str]:
    return {part.id for each in messages for part in each.parts if isinstance(part, ToolCall)}


def _check_free(tx: Tx, head: SessionHead) -> None:
    if head.waits_for_people:
        raise _waits(tx, head)
    if head.running:
        raise _busy(head)
    if head.read_only:
        raise log.read_only_error(head.id)
    if not head.is_open or head.folder is SessionFolder.TRASH:
        raise log.ended_error(head)


def _busy(head: SessionHead) -> SessionBusy:
    return SessionBusy(
        f"Another turn is running in session {head.id}; nothing was stored. Try again when it has ended.",
        head.no,
    )


def _waits(tx: Tx, head: SessionHead) -> WaitsForPeople:
    asked = [each for each in question_actions.of_turn(tx, head.running_turn or "") if each.is_open]
    what = ", ".join(question_actions.summary(each) for each in asked)
    return WaitsForPeople(
        f"Session {head.id} waits for people: {what}. Your message was not stored; send it again when that is "
        "answered.",
        asked,
    )


def is_busy(tx: Tx, session_no: int) -> bool:
    """Return whether a turn is running in a session."""
    return sessions.get_by_no(tx, session_no).running


def _retries_of(new: NewExchange) -> str:
    """Under whose name equal requests are noted."""
    return f"{new.client} retries"


def _find_earlier(
    tx: Tx, new: NewExchange, name: str | None, key: SessionKey, *, moment: Moment
) -> BegunExchange | None:
    """Return the turn that an equal request has begun, if this one repeats it."""
    if name is not None:
        arrival = arrivals.get_by_idempotency_key(tx, name, profile=key.profile)
        if arrival is None:
            return None
        request = awaited_by(arrival.source)
        if request is None or request.fingerprint != new.fingerprint:
            raise Conflict(
                "That idempotency key belongs to another request; nothing was stored. Choose a new one."
            )
        return _joined(tx, arrival, new, key)
    noted = _find_retried(tx, new, profile=key.profile, moment=moment)
    if noted is None or noted.turn.state in (TurnState.FAILED, TurnState.INTERRUPTED):
        return None
    arrival_id = arrivals.id_of_entry(tx, noted.head.no, noted.seq) or ""
    return _begun(tx, new, noted.head, noted.turn, noted.seq, key, arrival_id=arrival_id)


class _NotedTurn(Struct, frozen=True):
    """The turn that an equal request has begun, and the entry that it began with."""

    head: SessionHead
    turn: Turn
    seq: int


def _find_retried(tx: Tx, new: NewExchange, *, profile: str, moment: Moment) -> _NotedTurn | None:
    """Return the turn that this request asks for again, if the client says that it does."""
    if not new.is_retry:
        return None
    found = prefixes.find(tx, [new.fingerprint], profile=profile, client=_retries_of(new))
    if found is None:
        return None
    head = sessions.get_by_no(tx, found.session_no)
    noted = read.read_log(tx, head.id, profile=profile, after=found.seq - 1, limit=1)
    turn = turn_rows.get(tx, (noted[0].turn_id if noted else None) or "", profile=profile)
    if turn is None or turn[0].began_at < moment.now - RETRIED_WITHIN:
        return None
    return _NotedTurn(head, turn[0], found.seq)


def _joined(tx: Tx, arrival: Arrival, new: NewExchange, key: SessionKey) -> BegunExchange:
    found = find_turn(tx, arrival, profile=key.profile)
    if found is None:
        raise Conflict("The answer to that request was deleted; nothing was stored.")
    head = sessions.get_by_no(tx, found.session_no)
    return _begun(tx, new, head, found.turn, found.after_seq, key, arrival_id=arrival.id)


class FoundTurn(Struct, frozen=True):
    """The turn that a request has begun or let go on; its answer comes after the entry `after_seq`."""

    turn: Turn
    session_no: int
    after_seq: int


def find_turn(tx: Tx, arrival: Arrival, *, profile: str) -> FoundTurn | None:
    """Return the turn that answers an arrival; None if it was deleted, or the message still waits for one."""
    turn_id = question_arrivals.find_turn_id(tx, arrival, profile=profile)
    found = turn_rows.get(tx, turn_id or "", profile=profile)
    if found is None:
        return None
    turn, session_no = found
    seq = arrival.seq
    if seq is None:  # it has answered a question: what follows is the rest of a turn
        answered = question_arrivals.find_answered(tx, arrival, profile=profile)
        records = [
            each.seq
            for each in read_written(tx, turn, after=0, profile=profile)
            if answered is not None and _records(each, answered)
        ]
        seq = max(records, default=turn.first_seq)
    return FoundTurn(turn, session_no, seq)


def _begun(
    tx: Tx,
    new: NewExchange,
    head: SessionHead,
    turn: Turn,
    seq: int,
    key: SessionKey,
    *,
    arrival_id: str,
) -> BegunExchange:
    digest = prefix_digests(each.message for each in new.messages)[-1]
    client = _client_in(new, head) if isinstance(new.place, NamedSession) else new.client
    noted = prefixes.find(tx, [digest], profile=key.profile, client=client)
    if noted is None or (noted.session_no, noted.seq) != (head.no, seq):
        client = ""
    return BegunExchange(
        arrival_id,
        head.id,
        head.no,
        turn.id,
        seq,
        key,
        client=client,
        digest=digest,
        began_at=turn.began_at,
    )


def _records(entry: Entry, question: Question) -> bool:
    record = entry.body.extra.get(RECORD) if isinstance(entry.body, Message) else None
    return isinstance(record, dict) and record.get("question_id") == question.id


def _place(
    tx: Tx,
    new: NewExchange,
    messages: Sequence[Message],
    *,
    context: EngineContext,
    moment: Moment,
) -> tuple[ResumePoint, str]:
    """Return the session to go on in, locked, and under whose name its conversation is noted.

    The name is empty if what was sent is not the beginning of a conversation: another one may contain the same messages
    and must not be taken for it.
    """
    profile, place = context.profile, new.place
    opening = Opening(profile, new.source)
    if isinstance(place, AfterEntry):
        if place.is_running:
            raise ResponseInProgress(
                "The response to go on from is still being written; nothing was stored. Try again when it is complete."
            )
        head = log.lock_session(tx, place.session_id, profile=profile)
        known = KnownPrefix(head.no, place.seq, 0)
        point = resent.continue_after(tx, known, messages, profile=profile, moment=moment)
        if point is None:
            raise log.missing_error(tx, place.session_id, profile=profile)
        return point, ""
    if isinstance(place, NamedSession):
        head = _named(tx, place.ref, opening, moment=moment)
        client = _client_in(new, head)
        point = resent.find(
            tx, messages, profile=profile, client=client, moment=moment, may_fork=False
        )
        if point is None or point.head.no != head.no:
            # Its own log is the history; what a program has sent to begin it is stored.
            if not head.message_count:
                return ResumePoint(head, 0), client
            answered = _answered_before(messages)
            return ResumePoint(head, answered), client if answered else ""
        return point, client
    point = None
    noted = _find_retried(tx, new, profile=profile, moment=moment)
    if noted is not None and len(messages) == 1:  # it failed, and there is nothing before it
        known = KnownPrefix(noted.head.no, noted.seq - 1, 0)
        point = resent.continue_after(tx, known, messages, profile=profile, moment=moment)
    if point is None:
        point = resent.find(tx, messages, profile=profile, client=new.client, moment=moment)
    if point is None:
        id = edit.open_session(tx, opening, moment=moment)
        point = ResumePoint(log.lock_session(tx, id, profile=profile), 0)
    return point, new.client


def _client_in(new: NewExchange, head: SessionHead) -> str:
    return f"{new.client} in {head.id}"


def _named(tx: Tx, ref: str, opening: Opening, *, moment: Moment) -> SessionHead:
    """Return the session that a program names. The beginning of an id is none: it might mean another session later."""
    found = sessions.get(tx, ref, profile=opening.profile)
    if found is None:
        id = sessions.id_by_title(tx, ref, profile=opening.profile)
        found = None if id is None else sessions.get(tx, id, profile=opening.profile)
    if found is None and sessions.purged_at(tx, ref, profile=opening.profile) is not None:
        raise log.missing_error(tx, ref, profile=opening.profile)
    if found is None:
        found = edit.open_with_id(tx, ref, opening, moment=moment)
    return log.lock_session(tx, found.id, profile=opening.profile)


def _answered_before(messages: Sequence[Message]) -> int:
    """Return how many messages there are up to the last of the assistant."""
    return max((n + 1 for n, each in enumerate(messages) if each.role is Role.ASSISTANT), default=0)


def _merged(messages: Sequence[NewMessage]) -> list[NewMessage]:
    """Return messages with all results of tools at the end in one: together they are what the turn begins with."""
    last = len(messages)
    while last > 1 and all(each.message.role is Role.TOOL for each in messages[last - 2 : last]):
        last -= 1
    results = messages[last - 1 :]
    if len(results) == 1:
        return list(messages)
    parts: list[Part] = [part for each in results for part in each.message.parts]
    merged = replace(
        results[0],
        message=replace(results[0].message, parts=tuple(parts)),
        files=tuple(data for each in results for data in each.files),
    )
    return [*messages[: last - 1], merged]


def _answer(
    tx: Tx,
    context: EngineContext,
    head: SessionHead,
    source: Source,
    message: Message,
    name: str | None,
    *,
    moment: Moment,
) -> BegunExchange:
    """Take a message as the answer to the question that the session's turn waits with."""
    turn_id = head.running_turn
    assert turn_id is not None
    key = context.key(source)
    arrival, _ = inbox.receive(tx, key, source, message, moment=moment, idempotency_key=name)
    answered = questions.answer_by_text(
        tx,
        message,
        source=source,
        context=context,
        moment=moment,
        turn_id=turn_id,
        was_told=True,
    )
    if answered is None or answered.turn_id != turn_id:
        raise _waits(tx, head)
    arrivals.mark_answer(tx, arrival, question_id=answered.id)
    last = sessions.get_by_no(tx, head.no).last_seq
    return BegunExchange(arrival.id, head.id, head.no, turn_id, last, key)


class ExchangeProgress(Struct, frozen=True):
    """How far a turn is: its row, what it has written after an entry, what it has used, and its open questions."""

    turn: Turn
    written: tuple[Entry, ...]
    usage: UsageTotal = UsageTotal()
    questions: tuple[Question, ...] = ()


def read_progress(tx: Tx, turn_id: str, *, after: int, profile: str) -> ExchangeProgress | None:
    """Return how far a turn is; None if it was deleted. What it used is read once it has ended or waits for people."""
    found = turn_rows.get(tx, turn_id, profile=profile)
    if found is None:
        return None
    turn, session_no = found
    written = tuple(read_written(tx, turn, after=after, profile=profile))
    if turn.state is TurnState.RUNNING:
        return ExchangeProgress(turn, written)
    asked: tuple[Question, ...] = ()
    if turn.state is TurnState.WAITING:
        asked = tuple(each for each in question_actions.of_turn(tx, turn_id) if each.is_open)
    return ExchangeProgress(turn, written, usage_rows.total_of_turn(tx, session_no, turn_id), asked)


def read_written(tx: Tx, turn: Turn, *, after: int, profile: str) -> list[Entry]:
    """Return the messages of a turn after an entry of its session."""
    found: list[Entry] = []
    after = max(after, turn.first_seq - 1)
    while page := read.read_log(tx, turn.session_id, profile=profile, after=after):
        for each in page:
            if each.turn_id not in (None, turn.id):
                return found  # of a later turn: this one has ended before
            if each.turn_id is not None and isinstance(each.body, Message):
                found.append(each)
        after = page[-1].seq
    return found


def note_answer(tx: Tx, begun: BegunExchange, answer: Message, *, seq: int, profile: str) -> None:
    """Note that a program which sends this answer back goes on after it."""
    head = sessions.by_numbers(tx, (begun.session_no,)).get(begun.session_no)
    if head is not None and head.profile == profile and head.folder is not SessionFolder.GONE:
        [digest] = prefix_digests([answer], after=begun.digest)
        prefixes.note(tx, digest, head, seq=seq, client=begun.client)
