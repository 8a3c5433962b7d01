"""Questions to people: which tool calls need one, who may answer, where they are asked, and what a reply means.

A turn that asks is parked in the transaction that writes its questions: no process holds it. The answer to its last
open question wakes it, and any process continues it.
"""

from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from sessionary.actions import access, push, questions, turns
from sessionary.actions.sessions import routing
from sessionary.clock import Moment
from sessionary.config.engine import OnExpiry, ToolDecision
from sessionary.engine import notices, policy
from sessionary.engine.context import TRUSTED, EngineContext
from sessionary.engine.policy import Asking
from sessionary.engine.ports import PressResult, ProposedCall
from sessionary.errors import Conflict, NotAllowed, NotFound
from sessionary.model import question as rules
from sessionary.model.message import FORWARDED, QUOTE, REPLIES_TO, Message, Part, Text
from sessionary.model.push import PLATFORM as PUSH
from sessionary.model.question import (
    Always,
    Answer,
    Decision,
    NewQuestion,
    Question,
    QuestionBody,
    QuestionKind,
    QuestionState,
)
from sessionary.model.source import WEB, Channel, Person, Source, is_by_program
from sessionary.model.terminal import one_line
from sessionary.model.transcript import is_note
from sessionary.model.turn import Lease
from sessionary.store.database import Tx

# More than this is not shown in a chat: nobody approves there what they could not read whole.
LONGEST_CARD = 8_000
# Who has answered what the settings or a standing approval decide.
_RULE = Person("rule", name="a rule")
NOT_YOURS = "Somebody else must answer this question; nothing was changed."
_ONLY_OWNERS = "Only an owner may change the arguments, or allow the tool for the whole session; nothing was changed."
_OUT_OF_DATE = "This button is out of date; nothing was changed."


class Answerer(Struct, frozen=True):
    """Somebody who answers a question, and where."""

    platform: str
    person: Person | None
    is_owner: bool
    channel: Channel | None = None
    # Whether only a program says who it is, which may write but not approve.
    is_program: bool = False


def answerer_of(context: EngineContext, source: Source) -> Answerer:
    """Return who answers with a message or a button of a platform."""
    return Answerer(
        source.platform,
        source.person,
        policy.is_owner(context, source),
        source.channel,
        is_by_program(source),
    )


def may_answer(question: Question, who: Answerer) -> bool:
    """Whether somebody may answer a question: an owner, or one of its people.

    What is no approval may be answered by whoever may write at the terminal or in the workbench, a program too.
    """
    is_approval = question.asked.kind is QuestionKind.APPROVAL
    if who.is_owner or (who.platform in TRUSTED and not is_approval):
        return True
    if who.person is None or (who.is_program and is_approval):
        return False
    return rules.person_key(who.platform, who.person) in question.body.people


# Asking.


def park(
    tx: Tx,
    lease: Lease,
    asked: Sequence[NewQuestion],
    *,
    asking: Asking,
    context: EngineContext,
    moment: Moment,
) -> None:
    """Write the questions of a turn, ask them, and let the turn wait; raise `TurnLost` if its lease is lost.

    A question that the turn has asked before is not asked again. An approval that an agent asks for by itself is
    answered at once if a rule decides; if nothing else is open, the turn goes on.
    """
    # As everywhere, the session is locked before its questions: an answer to another one may wake the turn now.
    routing.lock_and_reload(tx, lease.session_no)
    known = {each.asked.name for each in questions.of_turn(tx, lease.turn_id)}
    made = []
    for each in asked:
        if each.name not in known:
            new = rules.check_new(each)
            question = _insert(tx, lease, new, asking=asking, context=context, moment=moment)
            made.append(_apply_rules(tx, question, asking=asking, context=context, moment=moment))
    questions.park(tx, lease, made, moment=moment)
    for question in made:
        if question.is_open:
            _ask(tx, question, asking=asking, context=context, moment=moment)


def ask_now(
    tx: Tx,
    lease: Lease,
    asked: NewQuestion,
    *,
    seconds: float,
    asking: Asking,
    context: EngineContext,
    moment: Moment,
) -> Question:
    """Write a question of a turn that keeps running, and ask it; raise `TurnLost` if its lease is lost.

    It expires after `seconds`. Its name gets a number if the turn has a question of this name.
    """
    routing.lock_and_reload(tx, lease.session_no)
    known = {each.asked.name for each in questions.of_turn(tx, lease.turn_id)}
    named, number = asked, 1
    while named.name in known:
        number += 1
        named = replace(asked, name=f"{asked.name}.{number}")
    new = rules.check_new(named)
    question = _insert(
        tx, lease, new, asking=asking, context=context, moment=moment, seconds=seconds
    )
    questions.ask_now(tx, lease, question, moment=moment)
    _ask(tx, question, asking=asking, context=context, moment=moment)
    return question


def give_up(tx: Tx, question_id: str, *, context: EngineContext, moment: Moment) -> Question:
    """Withdraw a question for whose answer nobody waits any more, if it is open; one whose time is over expires."""
    found = questions.get(tx, question_id, profile=context.profile)
    if found is None:
        raise NotFound(f"There is no question {question_id}.")
    routing.lock_and_reload(tx, found.session_no)
    question = questions.get(tx, question_id, profile=context.profile) or found
    if not question.is_open:
        return question
    if moment.now >= question.expires_at:
        return turns.expire_question(tx, question, moment=moment)
    return questions.withdraw_one(tx, question, moment=moment)


def _apply_rules(
    tx: Tx, question: Question, *, asking: Asking, context: EngineContext, moment: Moment
) -> Question:
    """Answer an approval that an agent asks for by itself, if a rule decides; one with a `rule` was decided before."""
    asked = question.asked
    if asked.kind is not QuestionKind.APPROVAL or asked.rule:
        return question
    (verdict,) = policy.decide(
        tx, [_call(asked)], asking=asking, context=context, session_no=question.session_no
    )
    if verdict.decision is ToolDecision.ASK:
        return question
    is_allowed = verdict.decision is ToolDecision.ALLOW
    given = Answer(decision=Decision.APPROVE if is_allowed else Decision.DENY, text=verdict.rule)
    return questions.answer(tx, question, given, by=_RULE, platform="", moment=moment)


def _insert(
    tx: Tx,
    lease: Lease,
    asked: NewQuestion,
    *,
    asking: Asking,
    context: EngineContext,
    moment: Moment,
    seconds: float | None = None,
) -> Question:
    """Write a question; one that a running turn asks has `seconds` for its answer, and goes on without it."""
    settings = context.settings.questions
    expire_seconds = settings.expire_seconds if seconds is None else seconds
    expires_at = moment.now + timedelta(seconds=expire_seconds)
    remind_at = moment.now + timedelta(seconds=settings.remind_seconds)
    is_reminded = settings.remind_seconds > 0 and remind_at < expires_at
    question = Question(
        no=0,
        id=moment.new_id(),
        profile=context.profile,
        session_no=lease.session_no,
        session_id=lease.session_id,
        turn_id=lease.turn_id,
        body=QuestionBody(
            asked=asked,
            on_expiry=settings.on_expiry if seconds is None else OnExpiry.DENY,
            people=policy.approvers(_call(asked), asking=asking, context=context)
            if asked.kind is QuestionKind.APPROVAL
            else asking.people,
            person=asking.person,
            agent=asking.agent,
            where=_where(asking.source),
        ),
        state=QuestionState.OPEN,
        asked_at=moment.now,
        expires_at=expires_at,
        code=_new_code(context),
        token=f"{context.rng.getrandbits(128):032x}",
    )
    no = questions.insert(tx, question, due_at=remind_at if is_reminded else expires_at)
    return replace(question, no=no)


def _new_code(context: EngineContext) -> str:
    """Return a code with a digit in it, so that no word of a message is taken for one."""
    while True:
        code = access.make_code(context.rng.getrandbits(64))[: rules.CODE_LENGTH]
        if not code.isalpha():
            return code


def _call(asked: NewQuestion) -> ProposedCall:
    """Return the call that an approval is about."""
    return ProposedCall(asked.tool or "", asked.arguments or {}, is_safe=False, needs_approval=True)


def _where(source: Source) -> str:
    """Return where a turn was asked for, in words; whoever approves must know if only a program says so."""
    if is_by_program(source):
        named = "" if source.platform == WEB else f", as {one_line(source.description, 200)}"
        return f"a program{named}"
    if source.platform == WEB:
        return "the workbench"
    if source.platform == "schedule":
        return f"schedule {one_line(source.chat_name or '', 100)}"
    return one_line(source.description, 200)


def _ask(
    tx: Tx, question: Question, *, asking: Asking, context: EngineContext, moment: Moment
) -> None:
    """Send a question to those who may answer it, and tell the person who waits for it."""
    push.notify(tx, question, moment=moment)
    people = question.body.people
    channels = policy.asked_channels(tx, people, asking=asking, context=context)
    own = {source.channel: source for source in reversed(asking.sources)}
    for channel in channels:
        where = None if channel in own else question.body.where
        _send_card(tx, question, channel, moment=moment, where=where)
    for source in own.values():
        if source.channel not in channels and notices.can_reach(context, source):
            text = notices.waits_for_owner(question, is_anybody_asked=bool(channels))
            notices.send(tx, context, source, text, moment=moment)


def _send_card(
    tx: Tx,
    question: Question,
    channel: Channel,
    *,
    moment: Moment,
    where: str | None = None,
    is_reminder: bool = False,
) -> None:
    text, card = rules.question_text(question, where=where), rules.card_for(question)
    if is_too_long(question):
        text = notices.too_long_to_approve(question, len(text))
        card = replace(card, options=(), code="")
    if is_reminder:
        text = f"{notices.REMINDER}\n\n{text}"
    questions.send_card(tx, question, channel, text, card, moment=moment)


def is_too_long(question: Question) -> bool:
    """Whether a call has more arguments than are shown in a chat: then nobody can approve it there."""
    is_approval = question.asked.kind is QuestionKind.APPROVAL
    return is_approval and len(rules.question_text(question)) > LONGEST_CARD


# Answering.


def answer(
    tx: Tx,
    question_id: str,
    given: Answer,
    *,
    who: Answerer,
    context: EngineContext,
    moment: Moment,
) -> Question:
    """Store the answer to a question, once, and wake its turn if no other question of it is open.

    Raise `NotFound`; `NotAllowed` if somebody else must answer; `BadInput` if it is no answer to this question;
    `Conflict` if the question is decided already. One whose time is over expires now, so the caller must let the
    transaction commit: the question is returned as it is then.
    """
    found = questions.get(tx, question_id, profile=context.profile)
    if found is None:
        raise NotFound(f"There is no question {question_id}.")
    # The session is locked before the question, as everywhere: of two answers, the second finds the first.
    routing.lock_and_reload(tx, found.session_no)
    question = questions.get(tx, question_id, profile=context.profile) or found
    if not may_answer(question, who):
        raise NotAllowed(NOT_YOURS)
    if not question.is_open:
        raise Conflict(f"{rules.outcome_text(question)} Nothing was changed.")
    if moment.now >= question.expires_at:
        return turns.expire_question(tx, question, moment=moment)
    if not who.is_owner and (given.always is Always.SESSION or given.arguments is not None):
        # Other people, and other arguments, may need an owner's approval.
        raise NotAllowed(_ONLY_OWNERS)
    return questions.answer(
        tx,
        question,
        rules.check_answer(question, given),
        is_owner=who.is_owner,
        by=who.person,
        platform=who.platform,
        moment=moment,
        answered_in=who.channel,
    )


def press(
    tx: Tx, data: str, *, source: Source, context: EngineContext, moment: Moment
) -> PressResult:
    """Answer a question with one of its buttons; return what to tell whoever pressed it."""
    button = rules.read_button(data)
    if button is None:
        return PressResult(_OUT_OF_DATE)
    token, number = button
    question = questions.get_by_token(tx, token, profile=context.profile)
    options = () if question is None else rules.button_answers(question)
    if question is None or number > len(options):
        return PressResult(_OUT_OF_DATE)
    given = options[number - 1][1]
    who = answerer_of(context, source)
    try:
        decided = answer(tx, question.id, given, who=who, context=context, moment=moment)
    except (Conflict, NotAllowed) as error:
        return PressResult(str(error))
    return PressResult(rules.outcome_text(decided), is_changed=True)


def answer_by_text(
    tx: Tx,
    message: Message,
    *,
    source: Source,
    context: EngineContext,
    moment: Moment,
    turn_id: str | None,
    was_told: bool = False,
) -> Question | None:
    """Take a message as the answer to an open question, if it can be nothing else; return the question then.

    It is one if it begins with the code of a question, if it replies to the message that asks one, or if it comes after
    the only open question of `turn_id`, the turn of its own session, was sent there. Only what the person has typed
    counts: a quote, a forwarded text or a file answers nothing. `was_told`: the question was in the answer to the last
    request of the person who writes.
    """
    text = typed_text(message)
    if text is None:
        return None
    who = answerer_of(context, source)
    coded = rules.split_code(text)
    if coded is not None:
        code, rest = coded
        named = questions.open_by_code(tx, code, profile=context.profile)
        found = [each for each in named if may_answer(each, who)]
        if len(found) == 1:
            return _answer_with(tx, found[0], rest, who=who, context=context, moment=moment)
    question = _question_here(
        tx, message, who, turn_id=turn_id, was_told=was_told, context=context, moment=moment
    )
    if question is None or not may_answer(question, who):
        return None
    return _answer_with(tx, question, text, who=who, context=context, moment=moment)


def may_answer_elsewhere(message: Message) -> bool:
    """Whether a message may answer a question of another session: for most, nothing needs to be read."""
    if message.extra.get(REPLIES_TO) is not None:
        return True
    text = typed_text(message)
    return text is not None and rules.split_code(text) is not None


def typed_text(message: Message) -> str | None:
    """Return what a person has typed; None if there is something else in the message.

    A quote, and the lines of a group that come along, are other people's words.
    """
    if message.extra.get(FORWARDED):
        return None
    words = [part for part in message.parts if not _is_quoted(part)]
    if len(words) != 1 or not isinstance(words[0], Text) or words[0].extra:
        return None
    return words[0].text.strip()


def _is_quoted(part: Part) -> bool:
    return isinstance(part, Text) and (part.extra.get(QUOTE) is True or is_note(part))


def _question_here(
    tx: Tx,
    message: Message,
    who: Answerer,
    *,
    turn_id: str | None,
    was_told: bool,
    context: EngineContext,
    moment: Moment,
) -> Question | None:
    """Return the open question that a message without a code answers: the one that it replies to, else its session's.

    The latter only if this person must have seen it: at the terminal and in the workbench they do, elsewhere once it
    was sent. Whoever replies to another message does not answer it.
    """
    replies_to = message.extra.get(REPLIES_TO)
    if replies_to is not None and who.channel is not None:
        # A reply may begin a thread of its own: in a mail program it does.
        chat = Channel(who.channel.platform, who.channel.chat_id)
        places = (str(who.channel), str(chat))
        return questions.open_of_message(tx, places, str(replies_to), profile=context.profile)
    is_reply = any(isinstance(part, Text) and part.extra.get(QUOTE) for part in message.parts)
    if turn_id is None or is_reply:
        return None
    found = [
        each for each in questions.of_turn(tx, turn_id) if each.is_open and may_answer(each, who)
    ]
    if len(found) != 1:
        return None
    (question,) = found
    if who.platform in TRUSTED or was_told:
        return question
    is_shown = who.channel is not None and questions.is_shown(
        tx, question.no, str(who.channel), before=moment.now
    )
    return question if is_shown else None


def _answer_with(
    tx: Tx, question: Question, text: str, *, who: Answerer, context: EngineContext, moment: Moment
) -> Question | None:
    given = rules.read_reply(question, text)
    if given is None or (
        # At the terminal and in the workbench it is shown whole.
        given.decision is Decision.APPROVE and is_too_long(question) and who.platform not in TRUSTED
    ):
        return None
    try:
        return answer(tx, question.id, given, who=who, context=context, moment=moment)
    except Conflict:  # somebody else was faster
        return None


# What happens without an answer.


def list_due(tx: Tx, *, context: EngineContext, limit: int) -> list[str]:
    """Return the ids of questions to remind people of, or that have expired."""
    return questions.list_due(tx, profile=context.profile, now=context.clock.now(), limit=limit)


def handle_due(tx: Tx, question_id: str, *, context: EngineContext, moment: Moment) -> None:
    """Remind people of a question, or let it expire."""
    found = questions.get(tx, question_id, profile=context.profile)
    if found is None:
        return
    routing.lock_and_reload(tx, found.session_no)
    question = questions.get(tx, question_id, profile=context.profile)
    if question is None or not question.is_open:
        return
    if moment.now >= question.expires_at:
        turns.expire_question(tx, question, moment=moment)
    elif questions.put_off(tx, question.no):
        asked_in = dict.fromkeys(name for _, name in questions.cards(tx, question.no))
        push.notify(tx, question, moment=moment, is_reminder=True)
        for channel in map(Channel.parse, asked_in):
            if channel.platform != PUSH:
                where = question.body.where
                _send_card(tx, question, channel, moment=moment, where=where, is_reminder=True)
