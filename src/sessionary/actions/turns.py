"""Turns: begin one, add its steps, renew its lease, end or interrupt it.

A turn begins in one transaction and ends in another. Between them its lease keeps everyone else from writing to the
session.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from msgspec import Struct, field
from msgspec.structs import replace

from sessionary.actions import questions, usage
from sessionary.actions.outbox import DeliveryAdded
from sessionary.actions.sessions import choice, log, routing
from sessionary.actions.sessions.log import Appended, SessionChanged
from sessionary.clock import Moment
from sessionary.config.engine import OnExpiry
from sessionary.errors import Conflict, NotFound
from sessionary.model import transcript
from sessionary.model.choice import ChoiceCatalog
from sessionary.model.message import Message, Part, Role, Text, ToolCall
from sessionary.model.question import Question, QuestionState
from sessionary.model.reset import ResetPolicy
from sessionary.model.session import Segment, SessionFolder, SessionHead
from sessionary.model.source import Channel, SessionKey, Source
from sessionary.model.turn import ANSWERED, UNANSWERED, Arrival, Lease, Turn, TurnState
from sessionary.model.turn_options import TurnOptions, decode_options
from sessionary.model.usage import Usage
from sessionary.processes import has_ended
from sessionary.store.database import RaceLost, Tx
from sessionary.store.tables import (
    arrivals,
    blobs,
    deliveries,
    entries,
    sessions,
    turns,
)

# How many waiting messages one turn takes.
MOST_ARRIVALS = 100
STOPPED_RESPONDING = "the agent stopped responding"
PROCESS_DIED = "its process died"
# How long a turn whose questions are decided waits for a process that has its agent.
AGENT_WAIT = timedelta(minutes=1)
PROGRAM_GONE = "its program did not go on after the answers"
# Streamed text of at least this many characters is kept when its turn is continued, and the model goes on writing from
# its end; of less than that, the model writes the answer again.
CONTINUED_CHARACTERS = 1_000
# What /steer and /queue put into the `extra` of a message.
WHILE_RUNNING = "while_running"
list_turns = turns.of_session
list_released = turns.released


def _never(_: str) -> bool:
    return False


class Claim(Struct, frozen=True):
    """Who asks for a lease, for how long, and whether another process may continue the turn if this one ends.

    `agent` runs the turn, unless the session has chosen one of the catalog; `platform` says which is the default.
    """

    holder: str
    seconds: float
    agent: str | None = None
    resumable: bool = False
    catalog: ChoiceCatalog = ChoiceCatalog()
    platform: str = ""
    # Whether the turns of an agent that a session has chosen may be continued.
    is_resumable: Callable[[str], bool] = _never

    def allows_resuming(self, chosen: str | None) -> bool:
        """Whether another process may continue the turn of the agent that a session has chosen, or of the default."""
        return self.resumable if chosen is None else self.is_resumable(chosen)


class Resumption(Struct, frozen=True):
    """What a turn that is continued has done so far."""

    turn: Turn
    # Its messages after the prompt, and the calls among them that have no result.
    steps: tuple[Message, ...]
    unfinished: tuple[ToolCall, ...] = ()
    # What it has asked people, with their answers.
    questions: tuple[Question, ...] = ()
    # The entries of the messages that people have sent in it.
    prompts: tuple[int, ...] = ()
    # What the program has kept with the turn whose loop it is.
    program_state: str | None = None


class Waiting(Struct, frozen=True):
    """A key, the session that it is bound to, and the messages that wait for a turn."""

    key: SessionKey
    head: SessionHead | None
    arrivals: tuple[Arrival, ...]


class Begun(Struct, frozen=True):
    """A turn that has begun: its lease, its session, and the messages it began with.

    `agent` is the one that the session has chosen; None means the default of the source.
    """

    lease: Lease
    route: routing.Route
    prompts: tuple[Appended, ...] = ()
    resumption: Resumption | None = None
    agent: str | None = None


class TurnReply(Struct, frozen=True):
    """A message to deliver when a turn ends."""

    channel: Channel
    parts: tuple[Part, ...]


class RequestRecord(Struct, frozen=True):
    """What a model is sent besides the messages: the hash of a text, and the text unless it is stored already."""

    hash: str
    text: str | None = None


class Ending(Struct, frozen=True):
    """How a turn ends, and the last of its output; written in one transaction."""

    state: TurnState = TurnState.DONE
    reason: str | None = None
    messages: tuple[Message, ...] = ()
    usage: tuple[Usage, ...] = ()
    replies: tuple[TurnReply, ...] = field(default=())
    files: tuple[bytes, ...] = ()
    request: RequestRecord | None = None


def lock_waiting(tx: Tx, key: SessionKey) -> Waiting:
    """Lock a key until the transaction ends, and return the messages that wait for it."""
    head = routing.lock_and_get_current(tx, key)
    found = arrivals.waiting(tx, str(key), profile=key.profile, limit=MOST_ARRIVALS)
    return Waiting(key, head, tuple(found))


def begin(
    tx: Tx, key: SessionKey, *, policy: ResetPolicy, claim: Claim, moment: Moment
) -> Begun | None:
    """Begin a turn with the waiting messages of a key; return None if there are none, or a turn is running."""
    return begin_with(tx, lock_waiting(tx, key), policy=policy, claim=claim, moment=moment)


def begin_with(
    tx: Tx, waiting: Waiting, *, policy: ResetPolicy, claim: Claim, moment: Moment
) -> Begun | None:
    """Begin a turn with these messages; return None if there are none, or a turn is running."""
    key, head = waiting.key, waiting.head
    if not waiting.arrivals or (head is not None and head.running):
        return None
    last = waiting.arrivals[-1]
    route = routing.resolve_route(tx, key, head, last.source, policy=policy, moment=moment)
    lease, agent = _take_lease(tx, route.session_no, route.session_id, claim=claim, moment=moment)
    prompts = []
    for arrival in waiting.arrivals:
        message = with_author(arrival.message, arrival.source, key)
        appended = log.append(
            tx, route.session_id, message, profile=key.profile, at=arrival.received_at, lease=lease
        )
        arrivals.take(
            tx, arrival, session_no=route.session_no, turn_id=lease.turn_id, seq=appended.seq
        )
        prompts.append(appended)
    return Begun(lease, route, tuple(prompts), agent=agent)


def begin_in_session(
    tx: Tx,
    session_id: str,
    message: Message | None,
    *,
    profile: str,
    claim: Claim,
    moment: Moment,
    idempotency_key: str | None = None,
    files: tuple[bytes, ...] = (),
) -> Begun:
    """Begin a turn in the session with this id, with a message or without; a repeated message raises `Conflict`."""
    _refuse_repeat(tx, idempotency_key, message, profile=profile)
    head = sessions.get(tx, session_id, profile=profile)
    if head is None:
        raise NotFound(f"There is no session {session_id}.")
    if head.read_only:
        raise log.read_only_error(session_id)
    lease = take_lease(tx, head.no, session_id, claim=claim, moment=moment)
    prompts: tuple[Appended, ...] = ()
    if message is not None:
        for data in files:
            blobs.add(tx, data)
        prompts = (
            log.append(
                tx,
                session_id,
                message,
                profile=profile,
                at=moment.now,
                idempotency_key=idempotency_key,
                lease=lease,
            ),
        )
    return Begun(lease, routing.Route(session_id, head.no), prompts)


def begin_for_source(
    tx: Tx,
    key: SessionKey,
    source: Source,
    message: Message,
    *,
    policy: ResetPolicy,
    claim: Claim,
    moment: Moment,
    idempotency_key: str | None = None,
    files: tuple[bytes, ...] = (),
) -> Begun:
    """Begin a turn with a message in the session of its source; a repeated message raises `Conflict`."""
    _refuse_repeat(tx, idempotency_key, message, profile=key.profile)
    route = routing.route(tx, key, source, policy=policy, moment=moment)
    lease = take_lease(tx, route.session_no, route.session_id, claim=claim, moment=moment)
    if key.is_shared:
        message = transcript.mark_shared(message)
    for data in files:
        blobs.add(tx, data)
    prompt = log.append(
        tx,
        route.session_id,
        message,
        profile=key.profile,
        at=moment.now,
        idempotency_key=idempotency_key,
        lease=lease,
    )
    return Begun(lease, route, (prompt,))


def take_lease(tx: Tx, session_no: int, session_id: str, *, claim: Claim, moment: Moment) -> Lease:
    """Take the lease of a session in which no turn is running; a turn whose lease ran out is interrupted first."""
    return _take_lease(tx, session_no, session_id, claim=claim, moment=moment)[0]


def _take_lease(
    tx: Tx, session_no: int, session_id: str, *, claim: Claim, moment: Moment
) -> tuple[Lease, str | None]:
    """Take the lease, and apply what was chosen meanwhile; return with it the agent that the session has chosen."""
    turn_id = moment.new_id()
    row = turns.take_session(tx, session_no, turn_id)
    if row is None and interrupt_if_dead(tx, session_no, moment=moment):
        row = turns.take_session(tx, session_no, turn_id)
    if row is None:
        head = sessions.get_by_no(tx, session_no)
        if head.running:
            raise log.running_error(session_id)
        if not head.is_open:
            raise log.ended_error(head)
        raise RaceLost
    epoch, last_seq, settings = row
    settled = claim.catalog.settle(settings, platform=claim.platform)
    lease = Lease(turn_id, session_no, session_id, epoch, claim.holder)
    until = moment.now + timedelta(seconds=claim.seconds)
    agent = settled.agent or claim.agent
    turns.insert(
        tx,
        lease,
        first_seq=last_seq + 1,
        agent=agent,
        at=moment.now,
        until=until,
        resumable=claim.allows_resuming(settled.agent),
    )
    if settled.changes:
        choice.settle(tx, lease, settings, settled, moment=moment)
    return lease, settled.agent


def take_over(
    tx: Tx,
    turn_id: str,
    *,
    claim: Claim,
    attempts: int,
    moment: Moment,
    refusal: str | None = None,
) -> Begun | Turn | None:
    """Continue a turn whose process has died or has released it, from its last finished step.

    Return the turn, begun again under a new lease. A turn that cannot be continued, that was continued `attempts` times
    already, or whose process died twice at the same step, is interrupted and returned. `refusal` is why no model may be
    called any more: a turn that has no answer yet fails with it, and is returned. Return None if the turn is alive or
    has ended.
    """
    session_no = turns.session_no_of(tx, turn_id)
    if session_no is None:
        return None
    head = routing.lock_and_reload(tx, session_no)
    if not turns.lock_expired(tx, turn_id, now=moment.now):
        return None
    found = turns.get(tx, turn_id, profile=head.profile)
    if found is None:
        return None
    turn = found[0]
    if turn.is_woken and claim.agent is None and _was_just_decided(tx, turn, now=moment.now):
        return None  # its agent may be in another process
    crashes = turn.crashes + (not turn.is_released)
    why_not = _why_not_continued(turn, head, claim, crashes=crashes, attempts=attempts)
    if why_not is not None:
        return interrupt(tx, turn_id, profile=head.profile, moment=moment, reason=why_not)
    if refusal is not None and not transcript.has_answer(_steps(_own_messages(tx, head, turn))):
        return interrupt(
            tx,
            turn_id,
            profile=head.profile,
            moment=moment,
            reason=refusal,
            state=TurnState.FAILED,
        )
    reason = (turn.resume_reason if turn.is_released else None) or PROCESS_DIED
    lease = Lease(turn_id, head.no, head.id, sessions.raise_epoch(tx, head.no), claim.holder)
    until = moment.now + timedelta(seconds=claim.seconds)
    turns.take_over(tx, lease, until=until, crashes=crashes, reason=reason)
    beginning = _beginning(turn)
    if beginning:
        message = Message(Role.ASSISTANT, (Text(beginning),), finish_reason=transcript.INTERRUPTED)
        log.append(tx, head.id, message, profile=head.profile, at=moment.now, lease=lease)
    own = _own_messages(tx, head, turn)
    steps = _steps(own)
    prompts = tuple(seq for seq, each in own.items() if each.role is Role.USER)
    if turn.is_woken:  # the log has the answers already
        appended = Appended(head.id, head.no, head.last_seq)
    else:
        appended = _record_resumption(tx, turn, lease, reason, beginning, moment=moment)
    if not turn.is_released:
        turns.set_crash_seq(tx, turn_id, appended.seq)
    continued = replace(
        turn,
        epoch=lease.epoch,
        holder=claim.holder,
        resumed=turn.resumed + 1,
        resume_reason=reason,
    )
    unfinished = tuple(transcript.unfinished_calls(steps).values())
    asked = tuple(questions.of_turn(tx, turn_id)) if turn.has_asked else ()
    resumption = Resumption(continued, steps, unfinished, asked, prompts)
    # The agent that began the turn goes on with it.
    agent = turn.agent if turn.agent in claim.catalog.agents and not claim.catalog.only else None
    return Begun(lease, routing.Route(head.id, head.no), (appended,), resumption, agent)


def _was_just_decided(tx: Tx, turn: Turn, *, now: datetime) -> bool:
    """Whether the last question of a turn was decided within AGENT_WAIT."""
    decided = [
        each.expires_at if each.answered is None else each.answered.at
        for each in questions.of_turn(tx, turn.id)
        if each.state is not QuestionState.WITHDRAWN
    ]
    return turn.stop is None and any(now - at < AGENT_WAIT for at in decided)


def leave_to_program(tx: Tx, lease: Lease, state: str | None) -> Lease:
    """Keep the state of a program's loop with its turn; from now on only a program goes on with the turn.

    It is to be parked with its questions in the same transaction, under the lease that is returned. Raise `TurnLost` if
    the lease is lost.
    """
    epoch = sessions.raise_epoch(tx, lease.session_no)
    kept = turns.keep_program_state(tx, lease, state, epoch=epoch)
    if kept is None:
        raise log.turn_lost_error(lease)
    return kept


def get_agent(tx: Tx, lease: Lease, *, profile: str) -> str | None:
    """Return the agent that runs a turn."""
    found = turns.get(tx, lease.turn_id, profile=profile)
    return None if found is None else found[0].agent


def resume_in_program(
    tx: Tx, session_id: str, *, profile: str, claim: Claim, moment: Moment
) -> Begun | Turn:
    """Go on with the turn that a program has parked, under a new lease.

    Raise `NotFound` if there is none in the session, and `Conflict` while one of its questions is open, or if another
    process goes on with it. A turn that was asked to stop, or whose program has died since, is ended and returned.
    """
    head = log.lock_session(tx, session_id, profile=profile)
    found = None if head.running_turn is None else turns.get(tx, head.running_turn, profile=profile)
    kept = None if found is None else turns.get_program_state(tx, found[0].id)
    if found is None or kept is None:
        raise NotFound(f"No turn of a program waits in session {session_id}.")
    turn = found[0]
    if turn.holder:
        if not interrupt_if_dead(tx, head.no, moment=moment):
            raise log.running_error(session_id)
        return _reload(tx, turn, profile=profile)
    for question in questions.of_turn(tx, turn.id):
        if question.is_open and moment.now >= question.expires_at:
            expire_question(tx, question, moment=moment)
    turn = _reload(tx, turn, profile=profile)
    if turn.stop is not None:
        interrupt(tx, turn.id, profile=profile, moment=moment, reason=turn.stop)
        return _reload(tx, turn, profile=profile)
    asked = tuple(questions.of_turn(tx, turn.id))
    if any(each.is_open for each in asked):
        waiting = ", ".join(questions.summary(each) for each in asked if each.is_open)
        raise Conflict(f"The turn still waits for an answer: {waiting}. Nothing was changed.")
    lease = Lease(turn.id, head.no, head.id, sessions.raise_epoch(tx, head.no), claim.holder)
    until = moment.now + timedelta(seconds=claim.seconds)
    turns.take_over(tx, lease, until=until, crashes=turn.crashes, reason=ANSWERED)
    log.notify(tx, head)
    own = _own_messages(tx, head, turn)
    steps = _steps(own)
    resumption = Resumption(
        _reload(tx, turn, profile=profile),
        steps,
        tuple(transcript.unfinished_calls(steps).values()),
        asked,
        tuple(seq for seq, each in own.items() if each.role is Role.USER),
        kept[0],
    )
    return Begun(lease, routing.Route(head.id, head.no), resumption=resumption)


def expire_question(tx: Tx, question: Question, *, moment: Moment) -> Question:
    """Let a question expire: its turn goes on as after a denial, or is asked to stop."""
    expired = questions.expire(tx, question, moment=moment)
    if question.body.on_expiry is OnExpiry.END:
        # Whichever process goes on with the turn ends it, and tells its people.
        ask_to_stop(tx, question.session_no, reason=UNANSWERED)
    return expired


def _reload(tx: Tx, turn: Turn, *, profile: str) -> Turn:
    found = turns.get(tx, turn.id, profile=profile)
    return turn if found is None else found[0]


def _record_resumption(
    tx: Tx, turn: Turn, lease: Lease, reason: str, beginning: str, *, moment: Moment
) -> Appended:
    """Record in the log that a turn goes on in another process."""
    record = {
        "kind": "resumed",
        "turn_id": turn.id,
        "attempt": turn.resumed + 1,
        "reason": reason,
        "holder": lease.holder,
    }
    if beginning:
        record["continues"] = True
    elif turn.partial:
        record["discarded_characters"] = len(turn.partial)
    if turn.request_hash is not None:
        record["request_hash"] = turn.request_hash
    mark = Message(
        Role.SYSTEM,
        (Text(f"The turn goes on after an interruption: {reason}."),),
        extra={transcript.RECORD: record},
    )
    head = sessions.get_by_no(tx, lease.session_no)
    return log.append(tx, head.id, mark, profile=head.profile, at=moment.now, lease=lease)


def _why_not_continued(
    turn: Turn, head: SessionHead, claim: Claim, *, crashes: int, attempts: int
) -> str | None:
    """Return why a turn whose process has ended is not continued, or None."""
    if turn.stop is not None:
        return turn.stop
    if _is_left_by_program(turn):
        return PROGRAM_GONE
    if turn.is_woken and claim.agent is None:
        return "its agent is not there any more"
    # Whoever asks people something goes on with their answers, also if it could not go on after a crash.
    is_resumable = (turn.resumable and claim.resumable) or turn.is_woken
    if not is_resumable or not head.is_open or head.folder is SessionFolder.TRASH:
        return STOPPED_RESPONDING
    if not turn.is_released and turn.crash_seq == head.last_seq:
        return "its process died twice at the same step, so it was given up"
    if crashes > attempts:
        return f"its process died {crashes} times, so it was given up"
    return None


def _is_left_by_program(turn: Turn) -> bool:
    """Whether a program has parked a turn, and no process holds it."""
    return turn.is_of_program and not turn.holder


def _beginning(turn: Turn) -> str:
    """Return the streamed text of the unfinished step, if it is long enough to be continued."""
    partial = turn.partial or ""
    return partial if len(partial) >= CONTINUED_CHARACTERS else ""


def _own_messages(tx: Tx, head: SessionHead, turn: Turn) -> dict[int, Message]:
    """Return the messages of a turn, by their entries."""
    own = Segment(head.no, head.id, turn.first_seq, sessions.get_by_no(tx, head.no).last_seq)
    return {
        entry.seq: entry.body
        for entry in entries.walk(tx, [own])
        if entry.turn_id == turn.id and isinstance(entry.body, Message)
    }


def _steps(own: Mapping[int, Message]) -> tuple[Message, ...]:
    return tuple(each for each in own.values() if each.role in (Role.ASSISTANT, Role.TOOL))


def append_step(
    tx: Tx,
    lease: Lease,
    message: Message,
    *,
    profile: str,
    at: datetime,
    idempotency_key: str | None = None,
) -> Appended:
    """Add a finished step and delete its checkpoint; raise `TurnLost` if the lease is lost."""
    appended = log.append(
        tx,
        lease.session_id,
        message,
        profile=profile,
        at=at,
        idempotency_key=idempotency_key,
        lease=lease,
    )
    turns.checkpoint(tx, lease, None)
    return appended


def add_step(
    tx: Tx,
    lease: Lease,
    message: Message,
    used: Usage | None,
    *,
    profile: str,
    moment: Moment,
    files: tuple[bytes, ...] = (),
    request: RequestRecord | None = None,
) -> Appended:
    """Add a finished step with its files, its usage and what the model was sent."""
    for data in files:
        blobs.add(tx, data)
    appended = append_step(tx, lease, message, profile=profile, at=moment.now)
    store_request(tx, lease, request)
    if used is not None:
        usage.record(
            tx, lease.session_no, used, profile=profile, moment=moment, turn_id=lease.turn_id
        )
    return appended


def store_request(tx: Tx, lease: Lease, request: RequestRecord | None) -> None:
    """Store what the model is sent besides the messages."""
    if request is None:
        return
    if request.text is not None:
        blobs.keep_text(tx, request.text, entry_no=sessions.first_entry_no(lease.session_no))
    turns.set_request(tx, lease, request.hash)


def has_steering(tx: Tx, key: SessionKey, session_no: int, *, by_default: bool) -> bool:
    """Return whether messages wait that steer the running turn of a session."""
    return any(
        steers(arrival.message, by_default=by_default)
        for each in _keys_of(tx, key, session_no)
        for arrival in arrivals.waiting(tx, str(each), profile=key.profile, limit=MOST_ARRIVALS)
    )


def take_steering(
    tx: Tx,
    key: SessionKey,
    lease: Lease,
    *,
    by_default: bool,
    may_steer: Callable[[Source], bool],
) -> list[Source]:
    """Append the waiting messages that steer the running turn to the log; return where they came from.

    They are those that were sent with /steer; `by_default` all but those that were sent with /queue. They may have been
    sent under another key than the turn's: in the workbench, to a session of Telegram. What `may_steer` refuses waits
    for the next turn.
    """
    keys = _keys_of(tx, key, lease.session_no)
    for each in keys:
        routing.lock_key(tx, each)
    waiting = [
        (arrival, each)
        for each in keys
        for arrival in arrivals.waiting(tx, str(each), profile=key.profile, limit=MOST_ARRIVALS)
        if steers(arrival.message, by_default=by_default) and may_steer(arrival.source)
    ]
    for arrival, own in sorted(waiting, key=lambda found: found[0].no):
        message = with_author(arrival.message, arrival.source, own)
        appended = log.append(
            tx,
            lease.session_id,
            message,
            profile=key.profile,
            at=arrival.received_at,
            lease=lease,
        )
        arrivals.take(
            tx, arrival, session_no=lease.session_no, turn_id=lease.turn_id, seq=appended.seq
        )
    return [arrival.source for arrival, _ in waiting]


def _keys_of(tx: Tx, key: SessionKey, session_no: int) -> list[SessionKey]:
    """Return the keys under which messages reach a session, in one order, so that two turns do not deadlock."""
    names = {str(key), *sessions.keys_of_session(tx, session_no)}
    return [SessionKey.parse(name) for name in sorted(names)]


def steers(message: Message, *, by_default: bool) -> bool:
    """Return whether a waiting message is for the running turn, not for the next one."""
    wish = message.extra.get(WHILE_RUNNING)
    return wish == "steer" or (by_default and wish != "queue")


def renew(tx: Tx, lease: Lease, *, seconds: float, now: datetime) -> None:
    """Extend a turn's lease; raise `TurnLost` if it is lost."""
    if not turns.renew(tx, lease, until=now + timedelta(seconds=seconds)):
        raise log.turn_lost_error(lease)


def release(tx: Tx, lease: Lease, *, reason: str) -> bool:
    """Let another process take the turn over at once; return whether the lease still held."""
    if not turns.release(tx, lease, reason=reason):
        return False
    log.notify(tx, sessions.get_by_no(tx, lease.session_no))
    return True


def keep_options(tx: Tx, options: TurnOptions, session_no: int) -> str | None:
    """Store what a program asks of a turn in a session; return the hash, or None if it asks nothing."""
    text = options.encode()
    if text is None:
        return None
    return blobs.keep_text(tx, text, entry_no=sessions.first_entry_no(session_no))


def read_options(tx: Tx, name: str, *, session_no: int) -> TurnOptions:
    """Return what `keep_options` has stored in a session; nothing if that was erased."""
    if not blobs.session_has(tx, name, session_no=session_no):
        return TurnOptions()
    return decode_options(blobs.get_text(tx, name))


def checkpoint(tx: Tx, lease: Lease, text: str) -> None:
    """Store the text that has been streamed so far of the unfinished step; raise `TurnLost` if the lease is lost."""
    if not turns.checkpoint(tx, lease, text):
        raise log.turn_lost_error(lease)


def end(tx: Tx, lease: Lease, ending: Ending, *, profile: str, moment: Moment) -> list[Appended]:
    """End a turn: write its last entries, usage, deliveries and state."""
    for data in ending.files:
        blobs.add(tx, data)
    appended = [
        log.append(tx, lease.session_id, message, profile=profile, at=moment.now, lease=lease)
        for message in ending.messages
    ]
    for used in ending.usage:
        usage.record(
            tx, lease.session_no, used, profile=profile, moment=moment, turn_id=lease.turn_id
        )
    for reply in ending.replies:
        deliveries.insert(
            tx,
            moment.new_id(),
            profile=profile,
            channel=reply.channel,
            parts=reply.parts,
            at=moment.now,
            session_no=lease.session_no,
            turn_id=lease.turn_id,
        )
        tx.after_commit(DeliveryAdded(profile, str(reply.channel)))
    store_request(tx, lease, ending.request)
    ended = turns.end(tx, lease, state=ending.state, at=moment.now, reason=ending.reason)
    if ended is None:
        raise log.turn_lost_error(lease)
    if ended.has_asked:
        questions.withdraw(tx, lease.turn_id, profile=profile, moment=moment)
    if not appended:  # an appended entry has added its own row to the feed
        entries.insert_feed(tx, lease.session_no, "turn")
    tx.after_commit(SessionChanged(profile, lease.session_id))
    return appended


def end_failed(
    tx: Tx, lease: Lease, *, state: TurnState, reason: str, profile: str, moment: Moment
) -> Turn | None:
    """End the caller's own turn after a failure; its entries stay. Return None if the turn has ended already."""
    return interrupt(tx, lease.turn_id, profile=profile, moment=moment, reason=reason, state=state)


def interrupt(
    tx: Tx,
    turn_id: str,
    *,
    profile: str,
    moment: Moment,
    reason: str,
    state: TurnState = TurnState.INTERRUPTED,
) -> Turn | None:
    """End a turn that was stopped or whose process died; its entries stay. Return None if it was not running."""
    found = turns.get(tx, turn_id, profile=profile)
    if found is None:
        raise NotFound(f"There is no turn {turn_id}.")
    # Lock the session before the turn, as everywhere; then read the turn again, which may have ended meanwhile.
    routing.lock_and_reload(tx, found[1])
    turn, session_no = turns.get(tx, turn_id, profile=profile) or found
    if turn.is_over:
        return None
    lease = Lease(turn_id, session_no, turn.session_id, turn.epoch, turn.holder)
    if turn.partial:
        partial = Message(
            Role.ASSISTANT, (Text(turn.partial),), finish_reason=transcript.INTERRUPTED
        )
        log.append(tx, turn.session_id, partial, profile=profile, at=turn.began_at, lease=lease)
    if turns.end(tx, lease, state=state, at=moment.now, reason=reason) is None:
        return None
    if turn.has_asked:
        questions.withdraw(tx, turn_id, profile=profile, moment=moment)
    entries.insert_feed(tx, session_no, "turn")
    tx.after_commit(SessionChanged(profile, turn.session_id))
    ended = turns.get(tx, turn_id, profile=profile)
    return None if ended is None else ended[0]


def interrupt_dead(tx: Tx, turn_id: str, *, session_no: int, moment: Moment) -> Turn | None:
    """Interrupt a turn whose lease ran out; return None if it has been renewed or has ended meanwhile."""
    head = routing.lock_and_reload(tx, session_no)
    found = turns.get(tx, turn_id, profile=head.profile)
    if found is None or not turns.lock_expired(tx, turn_id, now=moment.now):
        return None
    reason = PROGRAM_GONE if _is_left_by_program(found[0]) else STOPPED_RESPONDING
    return interrupt(tx, turn_id, profile=head.profile, moment=moment, reason=reason)


def interrupt_if_dead(tx: Tx, session_no: int, *, moment: Moment) -> bool:
    """Interrupt the running turn of a session if its process has ended; return whether that happened.

    A turn that a server continues is left alone: the person who asked gets an answer.
    """
    turn = _dead_turn(tx, session_no, moment=moment)
    if turn is None or turn.resumable or turn.is_woken:
        return False
    _expire_if_ended(tx, turn)
    return interrupt_dead(tx, turn.id, session_no=session_no, moment=moment) is not None


def ask_to_stop(tx: Tx, session_no: int, *, reason: str) -> bool:
    """Ask the turn of a session to stop, in whatever process it runs; return whether there is one.

    One that waits for people, or for its program, is in no process: it is woken, so that one ends it.
    """
    if not turns.ask_to_stop(tx, session_no, reason=reason):
        return False
    head = sessions.get_by_no(tx, session_no)
    questions.wake(tx, head, reason=reason)
    return True


def stop(tx: Tx, session_no: int, *, reason: str, moment: Moment) -> tuple[bool, bool]:
    """Ask the running turn of a session to stop; return whether one is running, and whether its process has ended.

    If it has, an engine must end the turn: see `engine.turn.loop.stop_turn`.
    """
    is_running = ask_to_stop(tx, session_no, reason=reason)
    dead = _dead_turn(tx, session_no, moment=moment) if is_running else None
    if dead is not None:
        _expire_if_ended(tx, dead)
    return is_running, dead is not None


def is_dead(tx: Tx, session_no: int, *, moment: Moment) -> bool:
    """Return whether the process of a session's running turn has ended."""
    return _dead_turn(tx, session_no, moment=moment) is not None


def _dead_turn(tx: Tx, session_no: int, *, moment: Moment) -> Turn | None:
    """Return the running turn of a session if its lease ran out, or its process has ended on this machine."""
    head = sessions.get_by_no(tx, session_no)
    found = None
    if head.running_turn is not None:
        found = turns.get(tx, head.running_turn, profile=head.profile)
    if found is None:
        return None
    turn = found[0]
    return turn if turn.is_overdue(moment.now) or has_ended(turn.holder) else None


def _expire_if_ended(tx: Tx, turn: Turn) -> None:
    """End the lease of a turn whose process has certainly ended. One whose lease ran out may still renew it."""
    if has_ended(turn.holder):
        turns.expire(tx, turn)


def get_stop_reason(tx: Tx, lease: Lease) -> str | None:
    """Return why this turn was asked to stop, or None; raise `TurnLost` if the lease is lost."""
    stop = turns.get_stop(tx, lease)
    if stop is None:
        raise log.turn_lost_error(lease)
    return stop[0]


def _refuse_repeat(
    tx: Tx, idempotency_key: str | None, message: Message | None, *, profile: str
) -> None:
    if idempotency_key is None:
        return
    earlier = log.find_repeat(tx, idempotency_key, profile=profile, message=message)
    if earlier is not None:
        raise Conflict(
            f"That message is in session {earlier.session_id} already, as entry {earlier.seq}."
        )


def with_author(message: Message, source: Source, key: SessionKey) -> Message:
    """Return an arrival's message with its author and its id on the platform."""
    complete = replace(
        message,
        person=message.person or source.person,
        platform_message_id=message.platform_message_id or source.platform_message_id,
    )
    return transcript.mark_shared(complete) if key.is_shared else complete
