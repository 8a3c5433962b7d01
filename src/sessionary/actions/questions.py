"""Questions to people: a turn is parked with them, each is decided once, and the last decision wakes the turn."""

import re
from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from sessionary.actions import outbox
from sessionary.actions.sessions import log
from sessionary.clock import Moment
from sessionary.errors import Ambiguous, NotFound
from sessionary.model import codec, transcript
from sessionary.model import question as rules
from sessionary.model.message import Message, Role, Text
from sessionary.model.policy import StandingApproval
from sessionary.model.push import PLATFORM as PUSH
from sessionary.model.question import (
    Always,
    Answer,
    Answered,
    Card,
    MessageEdit,
    Question,
    QuestionKind,
    QuestionState,
)
from sessionary.model.session import Cursor, SessionHead
from sessionary.model.source import Channel, Person
from sessionary.model.terminal import one_line
from sessionary.model.turn import ANSWERED, UNANSWERED, DeliveryState, Lease, TurnState
from sessionary.store.database import Tx
from sessionary.store.tables import deliveries, questions, sessions, turns

# An outcome is shown below its question in messages up to this length, and alone in longer ones.
LONGEST_EDIT = 3_000
_SHORTEST_REF = 4
_CANDIDATES = 6
_ID_LIKE = re.compile(r"[A-Za-z0-9]+")
get = questions.get
get_by_token = questions.get_by_token
open_of_message = questions.open_of_message
is_shown = questions.is_shown
open_by_code = questions.open_by_code
of_turn = questions.of_turn
start_call = questions.start_call
list_due = questions.due
put_off = questions.put_off
find_approval = questions.find_approval
cards = questions.cards
insert = questions.insert


class QuestionsChanged(Struct, frozen=True):
    """Published after a commit: questions were asked or decided, and perhaps a turn can go on."""

    profile: str
    session_id: str


class QuestionPage(Struct, frozen=True):
    """A page of questions, and the cursor of the next one."""

    items: tuple[Question, ...]
    next: str | None


class ApprovalPage(Struct, frozen=True):
    """A page of standing approvals, and the cursor of the next one."""

    items: tuple[StandingApproval, ...]
    next: str | None


def list_questions(
    tx: Tx,
    *,
    profile: str,
    limit: int,
    session_no: int | None = None,
    only_open: bool = False,
    cursor: str | None = None,
) -> QuestionPage:
    """A page of questions, newest first."""
    before = Cursor.first() if cursor is None else Cursor.parse(cursor)
    found = questions.list_page(
        tx,
        profile=profile,
        before=before.no,
        limit=limit + 1,
        session_no=session_no,
        only_open=only_open,
    )
    page = tuple(found[:limit])
    following = str(Cursor.after(page[-1].no, page[-1].no)) if len(found) > limit else None
    return QuestionPage(page, following)


def find(tx: Tx, ref: str, *, profile: str) -> Question:
    """A question by its id, by a beginning that only one id has, or by its code while it is open."""
    wanted = codec.storable_text(ref)
    found = questions.get(tx, wanted, profile=profile)
    if found is None and len(wanted) == rules.CODE_LENGTH:
        named = questions.open_by_code(tx, wanted.upper(), profile=profile)
        if len(named) > 1:
            ids = [each.id for each in named]
            raise Ambiguous(f"Two questions have the code {wanted}: {', '.join(ids)}.", ids)
        found = named[0] if named else None
    if found is None and len(wanted) >= _SHORTEST_REF and _ID_LIKE.fullmatch(wanted):
        ids = questions.ids_by_prefix(tx, wanted, profile=profile, limit=_CANDIDATES)
        if len(ids) > 1:
            raise Ambiguous(
                f"{wanted!r} is the beginning of several questions: {', '.join(ids)}.", ids
            )
        found = questions.get(tx, ids[0], profile=profile) if ids else None
    if found is None:
        raise NotFound(f"There is no question {wanted}.")
    return found


def list_approvals(tx: Tx, *, profile: str, limit: int, cursor: str | None = None) -> ApprovalPage:
    """A page of the rules that people made with their answers, newest first."""
    before = Cursor.first() if cursor is None else Cursor.parse(cursor)
    found = questions.list_approvals(tx, profile=profile, before=before.no, limit=limit + 1)
    page = tuple(found[:limit])
    following = str(Cursor.after(page[-1].no, page[-1].no)) if len(found) > limit else None
    return ApprovalPage(page, following)


def revoke_approval(tx: Tx, id: str, *, profile: str) -> None:
    """Delete a rule: from now on the tool needs an approval again."""
    if not questions.delete_approval(tx, id, profile=profile):
        raise NotFound(f"There is no standing approval {id}.")


def park(tx: Tx, lease: Lease, asked: Sequence[Question], *, moment: Moment) -> None:
    """Let a turn wait for the answers to its questions; raise `TurnLost` if its lease is lost.

    The questions are written already. If none is open, because all were decided before, the turn can go on at once. One
    that was asked to stop meanwhile is ended by whichever process goes on with it.
    """
    for question in asked:
        record(tx, lease, question, moment=moment)
    if not questions.park(tx, lease):
        raise log.turn_lost_error(lease)
    (stop,) = turns.get_stop(tx, lease) or (None,)
    if stop is not None or not questions.count_open(tx, lease.turn_id):
        _go_on(tx, lease.turn_id, asked, reason=stop or ANSWERED, moment=moment)
    head = sessions.get_by_no(tx, lease.session_no)
    log.notify(tx, head)
    tx.after_commit(QuestionsChanged(head.profile, head.id))


def ask_now(tx: Tx, lease: Lease, question: Question, *, moment: Moment) -> None:
    """Note that a turn has asked a question and keeps running; raise `TurnLost` if its lease is lost."""
    if not questions.note_asking(tx, lease):
        raise log.turn_lost_error(lease)
    record(tx, lease, question, moment=moment)
    tx.after_commit(QuestionsChanged(question.profile, question.session_id))


def wake(tx: Tx, head: SessionHead, *, reason: str) -> None:
    """Let any process go on with the turn of a session, or end it, although it waits for people.

    A turn that a program has parked is only woken to be ended: see `actions.turns.resume_in_program`.
    """
    if head.running_turn is not None and questions.wake(tx, head.running_turn, reason=reason):
        tx.after_commit(QuestionsChanged(head.profile, head.id))


def _go_on(tx: Tx, turn_id: str, asked: Sequence[Question], *, reason: str, moment: Moment) -> None:
    """Let any process go on with a turn whose questions are decided.

    One that a program has parked is left to the program, for as long as its last question could wait for people.
    """
    if not questions.wake(tx, turn_id, reason=reason):
        longest = max((each.expires_at - each.asked_at for each in asked), default=timedelta(0))
        questions.give_program_time(tx, turn_id, until=moment.now + longest)


def send_card(
    tx: Tx, question: Question, channel: Channel, text: str, card: Card, *, moment: Moment
) -> None:
    """Ask a question in a channel."""
    delivery_id = outbox.enqueue(
        tx,
        channel,
        (Text(text), card.part()),
        profile=question.profile,
        moment=moment,
        session_no=question.session_no,
    )
    questions.insert_card(tx, question.no, delivery_id=delivery_id, channel=str(channel))


def answer(
    tx: Tx,
    question: Question,
    given: Answer,
    *,
    by: Person | None,
    platform: str,
    moment: Moment,
    answered_in: Channel | None = None,
    is_owner: bool = True,
) -> Question:
    """Store the answer to an open question, and wake its turn if it was the last one. The session is locked already."""
    answered = Answered(answer=given, at=moment.now, by=by, platform=platform)
    decided = replace(question, state=QuestionState.ANSWERED, answered=answered)
    questions.decide(tx, question.no, state=decided.state, at=moment.now, answered=answered)
    if given.always is not None:
        _add_rule(tx, decided, given.always, by_owner=is_owner, moment=moment)
    _close(tx, decided, reason=ANSWERED, moment=moment, answered_in=answered_in)
    return decided


def expire(tx: Tx, question: Question, *, moment: Moment) -> Question:
    """Note that nobody has answered an open question in time, and wake its turn if it was the last one."""
    expired = replace(question, state=QuestionState.EXPIRED)
    questions.decide(tx, question.no, state=expired.state, at=moment.now)
    _close(tx, expired, reason=UNANSWERED, moment=moment)
    return expired


def withdraw(tx: Tx, turn_id: str, *, profile: str, moment: Moment) -> None:
    """Withdraw the open questions of a turn that has ended, and show that where they were asked."""
    for id in questions.withdraw(tx, turn_id, at=moment.now):
        found = questions.get(tx, id, profile=profile)
        if found is not None:
            _close_cards(tx, found, moment=moment)
            tx.after_commit(QuestionsChanged(profile, found.session_id))


def withdraw_one(tx: Tx, question: Question, *, moment: Moment) -> Question:
    """Withdraw an open question of a turn that goes on, or was continued, without an answer to it."""
    withdrawn = replace(question, state=QuestionState.WITHDRAWN)
    questions.decide(tx, question.no, state=withdrawn.state, at=moment.now)
    _close_cards(tx, withdrawn, moment=moment)
    tx.after_commit(QuestionsChanged(question.profile, question.session_id))
    return withdrawn


def _add_rule(
    tx: Tx, question: Question, always: Always, *, by_owner: bool, moment: Moment
) -> None:
    answered = question.answered
    rule = StandingApproval(
        no=0,
        id=moment.new_id(),
        tool=question.asked.tool or "",
        given_by="" if answered is None else answered.who,
        given_at=moment.now,
        by_owner=by_owner,
        agent=question.body.agent,
        person=question.body.person if always is Always.PERSON else None,
    )
    session_no = question.session_no if always is Always.SESSION else None
    questions.insert_approval(tx, rule, profile=question.profile, session_no=session_no)


def _close(
    tx: Tx,
    question: Question,
    *,
    reason: str,
    moment: Moment,
    answered_in: Channel | None = None,
) -> None:
    """Record what became of a question, wake its turn if no other is open, and show it where it was asked."""
    found = turns.get(tx, question.turn_id, profile=question.profile)
    turn = None if found is None else found[0]
    # A turn that runs meanwhile, because its tool waits for the answer, records it itself.
    if turn is not None and turn.state is TurnState.WAITING:
        lease = Lease(turn.id, question.session_no, turn.session_id, turn.epoch, turn.holder)
        record(tx, lease, question, moment=moment)
        if not questions.count_open(tx, question.turn_id):
            _go_on(tx, question.turn_id, (question,), reason=reason, moment=moment)
    log.notify(tx, sessions.get_by_no(tx, question.session_no))
    tx.after_commit(QuestionsChanged(question.profile, question.session_id))
    _close_cards(tx, question, moment=moment, answered_in=answered_in)


def record_message(question: Question) -> Message:
    """Return the record of the log that something was asked, or what became of it."""
    asked, what = question.asked, _what(question)
    record = {
        "kind": "question",
        "question_id": question.id,
        "state": str(question.state),
        "question": str(asked.kind),
        "text": what,
    }
    if asked.tool is not None:
        record["tool"] = asked.tool
    answered = question.answered
    if answered is not None:
        record |= {"decision": str(answered.answer.decision), "by": answered.who}
        if answered.answer.text:
            record["answer"] = answered.answer.text
    text = f"Asked: {what}" if question.is_open else f"{rules.outcome_text(question)} ({what})"
    return Message(Role.SYSTEM, (Text(text),), extra={transcript.RECORD: record})


def summary(question: Question) -> str:
    """Return a question on one line, with the code that says which one is meant."""
    return f"{question.code} ({one_line(_what(question), 120)})"


def _what(question: Question) -> str:
    asked = question.asked
    is_approval = asked.kind is QuestionKind.APPROVAL
    return f"may the tool {asked.tool} be called?" if is_approval else asked.text


def record(tx: Tx, lease: Lease, question: Question, *, moment: Moment) -> None:
    """Record in the log that something was asked, or what became of it."""
    log.append(
        tx,
        lease.session_id,
        record_message(question),
        profile=question.profile,
        at=moment.now,
        lease=lease,
    )


def _close_cards(
    tx: Tx, question: Question, *, moment: Moment, answered_in: Channel | None = None
) -> None:
    """Show in each message that asks a question what became of it; one that was not sent yet is not sent."""
    # Names and reasons are other people's words.
    outcome = rules.without_markup(rules.outcome_text(question))
    text = f"{rules.question_text(question)}\n\n{outcome}"
    browsers: set[str] = set()
    for delivery_id, name in questions.cards(tx, question.no):
        delivery = deliveries.get(tx, delivery_id, profile=question.profile)
        if delivery is None or deliveries.abandon_unsent(
            tx, delivery_id, reason="the question was decided before", now=moment.now
        ):
            continue
        if delivery.state is DeliveryState.ABANDONED:
            continue
        channel, shown = Channel.parse(name), text if len(text) <= LONGEST_EDIT else outcome
        if name in browsers:
            continue  # a reminder had the place of the first notification
        if channel.platform == PUSH:
            browsers.add(name)
            shown = outcome  # the adapter reads the question itself
        # Where a message cannot be edited, whoever has answered there needs no other one.
        edit = MessageEdit(delivery_id, "" if channel == answered_in else outcome)
        outbox.enqueue(
            tx,
            channel,
            (Text(shown), edit.part()),
            profile=question.profile,
            moment=moment,
            session_no=question.session_no,
        )
    questions.delete_cards(tx, question.no)
