"""How messages enter the engine: who may write, which messages are commands, and which turns begin.

Adapters pass their messages to `Intake`. Callers that have authenticated the sender, such as the web API, use `submit`,
`submit_to_session` or `submit_to_new_session`. These join the caller's transaction, so that the caller can store its
response together with the message. After the commit the caller passes the result to `Engine.run_submitted`.
"""

import logging
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from sessionary.actions import access, inbox, turns
from sessionary.actions.sessions import edit, log, routing
from sessionary.clock import Moment
from sessionary.config.engine import AccessPolicy, Strangers, WhileRunning
from sessionary.engine import commands, notices, questions
from sessionary.engine.context import TRUSTED, EngineContext
from sessionary.engine.ports import PressResult
from sessionary.engine.turn.compaction import CompactionRequest, Compactor
from sessionary.engine.turn.loop import (
    TurnLoop,
    TurnStart,
    begin,
    begin_with_message,
    stop_turn,
)
from sessionary.errors import NotAllowed, RetryLater, SessionaryError, StoreUnavailable
from sessionary.model import choice
from sessionary.model.choice import ChoiceChange
from sessionary.model.message import Message
from sessionary.model.session import Opening, SessionFolder, SessionHead
from sessionary.model.source import (
    ChatType,
    SessionKey,
    Source,
    at_session,
    by_program,
    check_person,
)
from sessionary.model.turn import Arrival
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals, blobs
from sessionary.store.tables import questions as question_rows
from sessionary.store.tables import turns as turn_rows

logger = logging.getLogger(__name__)

# Among how many waiting messages an earlier one of the same person is looked for.
_MOST_EARLIER = 100
# The policy of a platform that is not configured.
NOBODY = AccessPolicy()


class Received(Struct, frozen=True):
    """What happened to a message.

    `arrival_id` is None if its sender may not write here. `new` is False if it was stored before, or not at all.
    """

    arrival_id: str | None
    new: bool
    compaction: CompactionRequest | None = None
    # The reply to a command.
    answer: str | None = None
    # Whether it has answered a question: no turn begins with it.
    is_answer: bool = False


class InboundMessage(Struct, frozen=True):
    """A message from a platform, with the bytes of its attachments."""

    source: Source
    message: Message
    idempotency_key: str | None = None
    files: Sequence[bytes] = ()


class Submission(Struct, frozen=True):
    """A message from an authenticated caller, with the caller's idempotency key.

    With `begin` a turn begins at once, if none is running in the session. `by_program`: the caller may write but not
    approve, so that the message has no owner's rights, whoever it says that it comes from.
    """

    message: Message
    idempotency_key: str | None = None
    begin: bool = True
    by_program: bool = False


class SubmissionResult(Struct, frozen=True):
    """The stored arrival, and the turn that began with it.

    `session_id` is the session whose log contains the message. It is None while the message waits for a turn: until
    then the conversation may be reset or switched to another session, and the message goes to that one.
    `current_session_id` is the open session of the conversation now.
    """

    key: SessionKey
    received: Received
    start: TurnStart
    session_id: str | None
    turn_id: str | None = None
    seq: int | None = None
    current_session_id: str | None = None


class Intake:
    """Stores messages from adapters; implements the `Receive` port."""

    def __init__(self, context: EngineContext, turn_loop: TurnLoop, compactor: Compactor) -> None:
        self._context = context
        self._turns = turn_loop
        self._compactor = compactor

    async def __call__(
        self, source: Source, message: Message, /, *, files: Sequence[bytes] = ()
    ) -> str:
        """Store a message; return the id of its arrival, or "" if its sender may not write here."""
        return (await self.receive(source, message, files=files)).arrival_id or ""

    async def admits(self, source: Source, /) -> bool:
        """Return whether this person may write to the agent."""
        return await self._context.store.read(is_allowed, self._context, source)

    async def press(self, source: Source, data: str, /) -> PressResult:
        """Answer a question with a button; return what to tell whoever pressed it."""
        context = self._context
        return await context.store.write(
            press, data, source=source, context=context, moment=context.moment()
        )

    async def receive(
        self,
        source: Source,
        message: Message,
        *,
        idempotency_key: str | None = None,
        files: Sequence[bytes] = (),
    ) -> Received:
        """Store a message, run it if it is a command, or refuse its sender; the outcome is durable on return.

        Its turn begins in the same transaction, if none is running in its session and this process has a free slot.
        """
        context = self._context
        key = context.key(source)
        inbound = InboundMessage(source, message, idempotency_key, files)
        with self._turns.reserve_slot(key) as may_begin:
            if may_begin:
                write = context.store.write(
                    admit_and_begin, context, inbound, moment=context.moment()
                )
                try:
                    received, _ = await write.handoff(
                        lambda done: self._turns.run_started(key, done[1])
                    )
                except (RetryLater, StoreUnavailable):
                    raise
                except SessionaryError as error:
                    # Store only the message. The turn loop tries again, and tells the sender if no turn can begin.
                    received = await context.store.write(
                        admit, context, inbound, moment=context.moment()
                    )
                    logger.warning("could not begin a turn for %s: %s", key, error)
            else:
                received = await context.store.write(
                    admit, context, inbound, moment=context.moment()
                )
        if received.compaction is not None:
            self._compactor.start(received.compaction)
        return received


def admit_and_begin(
    tx: Tx, context: EngineContext, inbound: InboundMessage, *, moment: Moment
) -> tuple[Received, TurnStart]:
    """Admit a message and begin its turn, unless one is running in its session."""
    source, message = inbound.source, inbound.message
    check_person(source.person)
    if not is_allowed(tx, context, source):
        return _refuse_sender(tx, context, source, moment=moment), TurnStart(None)
    is_plain = not inbound.files and commands.find(message.text) is None
    may_answer = questions.may_answer_elsewhere(message) and question_rows.has_open(
        tx, profile=context.profile
    )
    if is_plain and not may_answer:
        begun = begin_with_message(
            tx,
            source,
            message,
            context=context,
            moment=moment,
            idempotency_key=inbound.idempotency_key,
        )
        if begun is not None:
            arrival_id, start = begun
            return Received(arrival_id, True), start
    received = admit(tx, context, inbound, moment=moment, is_authenticated=True)
    if not received.new or received.answer is not None or received.is_answer:
        return received, TurnStart(None)
    return received, begin(tx, context.key(inbound.source), context=context, moment=moment)


def admit(
    tx: Tx,
    context: EngineContext,
    inbound: InboundMessage,
    *,
    moment: Moment,
    is_authenticated: bool = False,
) -> Received:
    """Check the sender, store the arrival, and run it if it is a command.

    The message of a sender who is not allowed is not stored. With `is_authenticated` the sender is not checked here.
    """
    source, message = inbound.source, inbound.message
    check_person(source.person)
    if not is_authenticated and not is_allowed(tx, context, source):
        return _refuse_sender(tx, context, source, moment=moment)
    for data in inbound.files:
        blobs.add(tx, data)
    key = context.key(source)
    arrival, new = inbox.receive(
        tx, key, source, message, moment=moment, idempotency_key=inbound.idempotency_key
    )
    call = commands.find(message.text)
    if call is None:
        if new and _answers_question(tx, context, arrival, moment=moment):
            return Received(arrival.id, new, is_answer=True)
        if new and context.settings.while_running is WhileRunning.INTERRUPT:
            # Ask the running turn, in whichever process it is, to stop because there is a newer message.
            head = routing.get_current(tx, key)
            if head is not None and head.running and not head.waits_for_people:
                turns.ask_to_stop(tx, head.no, reason=notices.NEWER_MESSAGE)
        return Received(arrival.id, new)
    if not new:
        return Received(arrival.id, new=False)
    result = commands.run(tx, context, call, key, source, moment=moment)
    arrivals.mark_answered(tx, arrival, command=call.name)
    notices.send(tx, context, source, result.text, moment=moment)
    return Received(arrival.id, True, result.compaction, result.text)


def press(
    tx: Tx, data: str, *, source: Source, context: EngineContext, moment: Moment
) -> PressResult:
    """Answer a question with a button, if whoever pressed it may write to the agent."""
    check_person(source.person)
    if not is_allowed(tx, context, source):
        return PressResult(questions.NOT_YOURS)
    return questions.press(tx, data, source=source, context=context, moment=moment)


def _answers_question(tx: Tx, context: EngineContext, arrival: Arrival, *, moment: Moment) -> bool:
    """Take a message as the answer to an open question, if it is one; if it waits for one, tell its sender so."""
    key = SessionKey.parse(arrival.key)
    head = routing.get_current(tx, key)
    waits = head is not None and head.waits_for_people
    answered = questions.answer_by_text(
        tx,
        arrival.message,
        source=arrival.source,
        context=context,
        moment=moment,
        # A turn that keeps running may have asked something, too.
        turn_id=None if head is None else head.running_turn,
    )
    if answered is not None:
        arrivals.mark_answer(tx, arrival, question_id=answered.id)
        return True
    if waits and not _has_been_told(tx, arrival, turn_id=head.running_turn if head else None):
        notices.send(tx, context, arrival.source, notices.wait_for_answer(), moment=moment)
    return False


def _has_been_told(tx: Tx, arrival: Arrival, *, turn_id: str | None) -> bool:
    """Whether a person was told that their messages wait: then one of theirs has come since the turn asks."""
    asked = [] if turn_id is None else question_rows.of_turn(tx, turn_id)
    since = max((each.asked_at for each in asked), default=arrival.received_at)
    profile = SessionKey.parse(arrival.key).profile
    earlier = arrivals.waiting(tx, arrival.key, profile=profile, limit=_MOST_EARLIER)
    return len(earlier) == _MOST_EARLIER or any(
        each.no < arrival.no
        and each.received_at >= since
        and each.source.person == arrival.source.person
        for each in earlier
    )


def is_allowed(tx: Tx, context: EngineContext, source: Source) -> bool:
    """Return whether the sender may write to the agent; a platform without a policy admits nobody."""
    if source.platform in TRUSTED:
        return True
    policy = context.settings.access.get(source.platform, NOBODY)
    if policy.everyone:
        return True
    person = source.person
    if person is None:
        return False
    if {person.id, person.stable_id} & policy.allow:
        return True
    return access.is_permitted(tx, source.platform, person, profile=context.profile)


def submit(
    tx: Tx, context: EngineContext, source: Source, submission: Submission, *, moment: Moment
) -> SubmissionResult:
    """Store a message in the conversation of its source; begin a turn with it if none is running."""
    if submission.by_program:
        source = by_program(source)
    key = context.key(source)
    inbound = InboundMessage(source, submission.message, submission.idempotency_key)
    received = admit(tx, context, inbound, moment=moment, is_authenticated=True)
    start = TurnStart(None)
    if submission.begin and received.new and received.answer is None and not received.is_answer:
        start = begin(tx, key, context=context, moment=moment)
    if received.new and start.begun is None:
        # Tell the listeners of the session that a message is waiting.
        head = routing.get_current(tx, key)
        if head is not None and head.running:
            log.notify(tx, head)
    return _submission_result(tx, key, received, start)


def submit_to_session(
    tx: Tx, context: EngineContext, session_id: str, submission: Submission, *, moment: Moment
) -> SubmissionResult:
    """Store a message for the session with this id; it waits while a turn is running there."""
    head = log.lock_session(tx, session_id, profile=context.profile)
    if head.read_only:
        raise log.read_only_error(head.id)
    if not head.is_open or head.folder is SessionFolder.TRASH:
        raise log.ended_error(head)
    source = at_session(head.id)
    routing.bind(tx, context.key(source), head.no, moment=moment)
    return submit(tx, context, source, submission, moment=moment)


def submit_to_new_session(
    tx: Tx,
    context: EngineContext,
    opening: Opening,
    submission: Submission,
    *,
    moment: Moment,
    id: str | None = None,
) -> SubmissionResult:
    """Open a session with its first message; a repeated request returns the earlier arrival.

    The session gets the `id` that the caller has promised for it, if there is one.
    """
    if submission.idempotency_key is not None:
        earlier = arrivals.get_by_idempotency_key(
            tx, submission.idempotency_key, profile=context.profile
        )
        if earlier is not None:
            received = Received(earlier.id, new=False)
            return _submission_result(tx, SessionKey.parse(earlier.key), received, TurnStart(None))
    made = edit.open_session(tx, _check_opening(context, opening), moment=moment, id=id)
    result = submit_to_session(tx, context, made, submission, moment=moment)
    if result.start.begun is None:
        # The exception rolls back the new session: none may exist without its first message.
        why = (
            result.received.answer
            or result.start.refusal
            or (
                "this answers an open question: answer it there."
                if result.received.is_answer
                else ""
            )
            or "running turns have reserved the rest of a budget."
        )
        raise NotAllowed(f"No session was opened: {why}")
    return result


def end_stopped(
    tx: Tx, context: EngineContext, before: SessionHead | None, *, reason: str, moment: Moment
) -> str | None:
    """End a turn that waited for people `before` a command was run, if the command was to stop it: no process runs it.

    Return its id, or None if there is none.
    """
    if before is None or not before.waits_for_people or before.running_turn is None:
        return None
    found = turn_rows.get(tx, before.running_turn, profile=before.profile)
    if found is None or found[0].stop is None:
        return None
    stop_turn(tx, before.no, reason=reason, context=context, moment=moment)
    return before.running_turn


def asked_again(tx: Tx, command: Arrival) -> str | None:
    """Return the message that a command has asked again, as /retry does; it waits for its turn."""
    key = SessionKey.parse(command.key)
    waiting = arrivals.waiting(tx, command.key, profile=key.profile, limit=turns.MOST_ARRIVALS)
    return next((each.id for each in reversed(waiting) if each.no > command.no), None)


def _check_opening(context: EngineContext, opening: Opening) -> Opening:
    """Return an opening whose model is a choice too; raise `BadInput` for what there is not."""
    given = opening.chosen or ChoiceChange({})
    named = (opening.settings or {}).get("model")
    changed = choice.clean({**({} if named is None else {"model": named}), **given.changed})
    platform = opening.source.platform
    offer = context.catalog.offer(changed, platform=platform)
    # An agent whose models are not known is given any name.
    model = changed.pop("model", None) if offer is None or not offer.models else None
    changed = context.catalog.check({}, changed, platform=platform)
    if model is not None:
        changed["model"] = model
    changed = choice.difference({}, changed)
    return replace(opening, chosen=ChoiceChange(changed, given.by) if changed else None)


def _submission_result(
    tx: Tx, key: SessionKey, received: Received, start: TurnStart
) -> SubmissionResult:
    arrival = (
        None
        if received.arrival_id is None
        else arrivals.get(tx, received.arrival_id, profile=key.profile)
    )
    head = routing.get_current(tx, key)
    current = head.id if head is not None and head.is_open else None
    if arrival is None:
        return SubmissionResult(key, received, start, None, current_session_id=current)
    return SubmissionResult(
        key, received, start, arrival.session_id, arrival.turn_id, arrival.seq, current
    )


def _refuse_sender(tx: Tx, context: EngineContext, source: Source, *, moment: Moment) -> Received:
    """Reply with a pairing code to a direct message, if pairing is on; otherwise send nothing."""
    person = source.person
    code = access.make_code(context.rng.getrandbits(64))
    policy = context.settings.access.get(source.platform, NOBODY)
    may_pair = policy.strangers is Strangers.PAIR and source.chat_type == ChatType.DM
    if (
        person is not None
        and may_pair
        and access.request_pairing(
            tx, source.platform, person, profile=context.profile, code=code, moment=moment
        )
    ):
        notices.send(tx, context, source, notices.pairing(code), moment=moment)
    return Received(None, False)
