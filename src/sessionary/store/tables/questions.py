"""The tables of questions and standing approvals."""

from datetime import datetime

import msgspec

from sessionary.clock import from_micros, to_micros
from sessionary.model import codec
from sessionary.model.policy import StandingApproval
from sessionary.model.question import Answered, Question, QuestionBody, QuestionState
from sessionary.model.turn import Lease
from sessionary.store.database import Row, Tx
from sessionary.store.tables.sessions import column


def insert(tx: Tx, question: Question, *, due_at: datetime) -> int:
    """Write an open question; return its number."""
    row = tx.one(
        "insert_question",
        id=question.id,
        profile=question.profile,
        session_no=question.session_no,
        turn_id=question.turn_id,
        name=column(question.body.asked.name),
        code=question.code,
        token=question.token,
        body=codec.encode(question.body),
        at=to_micros(question.asked_at),
        expires_at=to_micros(question.expires_at),
        due_at=to_micros(due_at),
    )
    assert row is not None
    return int(row[0])


def get(tx: Tx, id: str, *, profile: str) -> Question | None:
    """A question of this profile."""
    return _of_profile(tx.one("get_question", id=id), profile)


def get_by_token(tx: Tx, token: str, *, profile: str) -> Question | None:
    """The question that a button belongs to."""
    return _of_profile(tx.one("get_question_by_token", token=column(token)), profile)


def _of_profile(row: Row | None, profile: str) -> Question | None:
    found = None if row is None else _question(row)
    return found if found is not None and found.profile == profile else None


def ids_by_prefix(tx: Tx, beginning: str, *, profile: str, limit: int) -> list[str]:
    """Return the ids of a profile's questions that begin so."""
    beyond = beginning + "\U0010ffff"
    rows = tx.all(
        "question_ids_by_prefix", first=beginning, beyond=beyond, profile=profile, limit=limit
    )
    return [id for (id,) in rows]


def of_turn(tx: Tx, turn_id: str) -> list[Question]:
    """The questions of a turn, in the order in which they were asked."""
    return [_question(row) for row in tx.all("questions_of_turn", turn_id=turn_id)]


def list_page(
    tx: Tx,
    *,
    profile: str,
    before: int,
    limit: int,
    session_no: int | None = None,
    only_open: bool = False,
) -> list[Question]:
    """Questions with a lower number than `before`, newest first."""
    page = {"before": before, "limit": limit}
    if session_no is not None:
        rows = tx.all(
            "page_of_session_questions", session_no=session_no, only_open=int(only_open), **page
        )
    else:
        name = "page_of_open_questions" if only_open else "page_of_questions"
        rows = tx.all(name, profile=profile, **page)
    return [_question(row) for row in rows]


def open_of_message(
    tx: Tx, places: tuple[str, str], message_id: str, *, profile: str
) -> Question | None:
    """The open question that a message in one of two channels asks, by the platform's id of the message."""
    channel, chat = places
    row = tx.one(
        "open_question_of_message",
        channel=channel,
        chat=chat,
        message_id=column(message_id),
        profile=profile,
    )
    return None if row is None else _question(row)


def has_open(tx: Tx, *, profile: str) -> bool:
    """Whether a question of a profile waits for an answer."""
    return tx.one("has_open_questions", profile=profile) is not None


def is_shown(tx: Tx, no: int, channel: str, *, before: datetime) -> bool:
    """Whether a question was sent to a channel before a time."""
    row = tx.one("is_question_shown", no=no, channel=channel, before=to_micros(before))
    return row is not None


def open_by_code(tx: Tx, code: str, *, profile: str) -> list[Question]:
    """The open questions with this code: one, unless two got the same by chance."""
    rows = tx.all("open_questions_by_code", code=column(code), profile=profile)
    return [_question(row) for row in rows]


def decide(
    tx: Tx, no: int, *, state: QuestionState, at: datetime, answered: Answered | None = None
) -> bool:
    """Write what became of an open question; say whether it was open."""
    text = None if answered is None else codec.encode(answered)
    return bool(tx.run("decide_question", no=no, state=str(state), at=to_micros(at), answered=text))


def withdraw(tx: Tx, turn_id: str, *, at: datetime) -> list[str]:
    """Withdraw the open questions of a turn; return their ids."""
    rows = tx.all("withdraw_questions", turn_id=turn_id, at=to_micros(at))
    return [id for (id,) in rows]


def count_open(tx: Tx, turn_id: str) -> int:
    """How many questions of a turn wait for an answer."""
    row = tx.one("count_open_questions", turn_id=turn_id)
    return 0 if row is None else int(row[0])


def start_call(tx: Tx, turn_id: str, name: str) -> bool:
    """Note that an approved call is started; say whether it was not before."""
    return bool(tx.run("start_approved_call", turn_id=turn_id, name=name))


def due(tx: Tx, *, profile: str, now: datetime, limit: int) -> list[str]:
    """Return the ids of open questions to remind of, or that have expired."""
    rows = tx.all("due_questions", profile=profile, now=to_micros(now), limit=limit)
    return [id for (id,) in rows]


def put_off(tx: Tx, no: int) -> bool:
    """Note that people were reminded of a question; say whether they were not before."""
    return bool(tx.run("put_question_off", no=no))


def insert_card(tx: Tx, question_no: int, *, delivery_id: str, channel: str) -> None:
    """Note that a delivery asks a question."""
    tx.run(
        "insert_question_card", question_no=question_no, delivery_id=delivery_id, channel=channel
    )


def cards(tx: Tx, question_no: int) -> list[tuple[str, str]]:
    """Return the deliveries that ask a question, each with its channel."""
    return [(id, channel) for id, channel in tx.all("cards_of_question", no=question_no)]


def delete_cards(tx: Tx, question_no: int) -> None:
    """Forget which deliveries ask a question."""
    tx.run("delete_cards_of_question", no=question_no)


def move_cards(tx: Tx, old: str, new: str) -> None:
    """Note that the questions of a channel, and of its threads, are in another one now."""
    tx.run("move_question_cards", old=old, new=new)


def delete_of_session(tx: Tx, session_no: int) -> None:
    """Delete a session's questions and the rules for it."""
    for name in ("delete_question_cards", "delete_questions", "delete_session_approvals"):
        tx.run(name, no=session_no)


def park(tx: Tx, lease: Lease) -> bool:
    """Let a turn wait for people, held by no process; say whether the lease still held."""
    is_parked = bool(tx.run("park_turn", id=lease.turn_id, epoch=lease.epoch))
    if is_parked:
        # It may wait for days: what it had reserved of a budget is for others until then.
        tx.run("release_reservations", turn_id=lease.turn_id)
        tx.run("park_run", session_no=lease.session_no)
    return is_parked


def note_asking(tx: Tx, lease: Lease) -> bool:
    """Note that a turn asks people something and keeps running; say whether the lease still held."""
    return bool(tx.run("note_asking", id=lease.turn_id, epoch=lease.epoch))


def wake(tx: Tx, turn_id: str, *, reason: str) -> bool:
    """Let any process continue a turn that waits for people; say whether that may be.

    A turn that a program has parked is left to it, unless it was asked to stop.
    """
    is_woken = bool(tx.run("wake_turn", id=turn_id, reason=column(reason)))
    if is_woken:
        tx.run("wake_run", turn_id=turn_id)
    return is_woken


def give_program_time(tx: Tx, turn_id: str, *, until: datetime) -> None:
    """Let the turn that a program has parked end at a time, unless the program goes on with it before."""
    tx.run("give_program_time", id=turn_id, until=to_micros(until))


def insert_approval(
    tx: Tx, approval: StandingApproval, *, profile: str, session_no: int | None
) -> None:
    """Write a rule, unless there is the same already."""
    tx.run(
        "insert_standing_approval",
        id=approval.id,
        profile=profile,
        tool=column(approval.tool),
        session_no=session_no,
        person=column(approval.person),
        given_by=column(approval.given_by),
        by_owner=int(approval.by_owner),
        at=to_micros(approval.given_at),
        agent=column(approval.agent),
    )


def find_approval(
    tx: Tx,
    tool: str,
    *,
    agent: str,
    profile: str,
    session_no: int | None,
    person: str | None,
    only_by_owner: bool = False,
) -> StandingApproval | None:
    """Return the rule by which an agent's tool needs no approval in a session, or for a person."""
    wanted = {"tool": column(tool), "agent": column(agent), "by_owner": int(only_by_owner)}
    row = None
    if session_no is not None:
        row = tx.one("find_session_approval", session_no=session_no, **wanted)
    if row is None and person is not None:
        row = tx.one("find_person_approval", profile=profile, person=column(person), **wanted)
    return None if row is None else _approval(row)


def list_approvals(tx: Tx, *, profile: str, before: int, limit: int) -> list[StandingApproval]:
    """Rules with a lower number than `before`, newest first."""
    rows = tx.all("list_standing_approvals", profile=profile, before=before, limit=limit)
    return [_approval(row) for row in rows]


def delete_approval(tx: Tx, id: str, *, profile: str) -> bool:
    """Delete a rule; say whether there was one."""
    return bool(tx.run("delete_standing_approval", profile=profile, id=column(id)))


def delete_approvals_of(tx: Tx, person: str, *, profile: str) -> None:
    """Delete the rules for a person."""
    tx.run("delete_person_approvals", profile=profile, person=column(person))


def _question(row: Row) -> Question:
    no, id, profile, session_no, session_id, turn_id, _, code, token, body, *rest = row
    state, asked_at, expires_at, answered, started = rest
    return Question(
        no=no,
        id=id,
        profile=profile,
        session_no=session_no,
        session_id=session_id,
        turn_id=turn_id,
        code=code,
        token=token,
        body=msgspec.convert(codec.decode(body), QuestionBody),
        state=QuestionState(state),
        asked_at=from_micros(asked_at),
        expires_at=from_micros(expires_at),
        answered=None if answered is None else msgspec.convert(codec.decode(answered), Answered),
        is_started=started == 1,
    )


def _approval(row: Row) -> StandingApproval:
    no, id, tool, session_id, person, given_by, by_owner, given_at, agent = row
    return StandingApproval(
        no=no,
        id=id,
        tool=tool,
        session_id=session_id,
        person=person,
        given_by=given_by,
        by_owner=by_owner == 1,
        given_at=from_micros(given_at),
        agent=agent,
    )
