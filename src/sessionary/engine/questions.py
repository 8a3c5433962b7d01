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
from sessionary.config.engine import AccessPolicy, Approvers, OnExpiry, ToolDecision
from sessionary.engine import notices
from sessionary.engine.context import TRUSTED, EngineContext
from sessionary.engine.ports import PressResult
from sessionary.errors import Conflict, NotAllowed, NotFound
from sessionary.model import policy
from sessionary.model import question as rules
from sessionary.model.message import Message, Part, Text
from sessionary.model.policy import PolicyVerdict, StandingApproval, ToolUse
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
from sessionary.model.source import WEB, Channel, Person, Source
from sessionary.model.terminal import one_line
from sessionary.model.transcript import is_note
from sessionary.model.turn import Lease
from sessionary.store.database import Tx
from sessionary.store.tables import sessions

# More than this is not shown in a chat: nobody approves there what they could not read whole.
LONGEST_CARD = 8_000
# In how many questions of one channel a reply is looked for.
_MOST_OPEN = 20
_NOBODY = AccessPolicy()
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


def is_owner(context: EngineContext, source: Source) -> bool:
    """Whether a message comes from an owner: at the terminal, in the workbench, or by the settings of the platform."""
    if source.platform in TRUSTED:
        return True
    person = source.person
    if person is None:
        return False
    known = context.settings.access.get(source.platform, _NOBODY)
    return known.is_owner(frozenset({person.id, person.stable_id}))


def answerer_of(context: EngineContext, source: Source) -> Answerer:
    """Return who answers with a message or a button of a platform."""
    return Answerer(source.platform, source.person, is_owner(context, source), source.channel)


def may_answer(question: Question, who: Answerer) -> bool:
    """Whether somebody may answer a question: an owner, or one of its people."""
    if who.is_owner:
        return True
    if who.person is None:
        return False
    return rules.person_key(who.platform, who.person) in question.body.people


# What a policy decides.


def decide(
    tx: Tx, uses: Sequence[ToolUse], *, context: EngineContext, session_no: int
) -> list[PolicyVerdict]:
    """Return what happens to tool calls: what the settings say, and what people have approved once and for all."""
    return [_decide(tx, use, context=context, session_no=session_no) for use in uses]


def _decide(
    tx: Tx, use: ToolUse, *, context: EngineContext, session_no: int | None
) -> PolicyVerdict:
    verdict = policy.decide(context.settings.policy, use)
    if verdict.decision is not ToolDecision.ASK:
        return verdict
    found = questions.find_approval(
        tx,
        use.tool,
        profile=context.profile,
        session_no=session_no,
        person=_person_of(use.source),
        only_by_owner=not _may_asker_approve(use, context),
    )
    return verdict if found is None else PolicyVerdict(ToolDecision.ALLOW, describe(found))


def describe(approval: StandingApproval) -> str:
    """Return a rule that somebody made with an answer, on one line."""
    scope = "in this session" if approval.person is None else f"for {approval.person}"
    by, day = one_line(approval.given_by, 60), f"{approval.given_at:%Y-%m-%d}"
    return f"{by} approved {one_line(approval.tool, 120)} {scope} on {day}"


def _person_of(source: Source) -> str | None:
    person = source.person
    if person is None or source.platform in TRUSTED:
        return None
    return rules.person_key(source.platform, person)


# Asking.


class Asking(Struct, frozen=True):
    """For whom a turn asks, and which agent runs it."""

    source: Source
    agent: str


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
    use = _use(asked, asking, context)
    verdict = _decide(tx, use, context=context, session_no=question.session_no)
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
    person = _person_of(asking.source)
    may_asker = asked.kind is not QuestionKind.APPROVAL or _may_asker_approve(
        _use(asked, asking, context), context
    )
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
            people=(person,) if person is not None and may_asker else (),
            person=person,
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


def _may_asker_approve(use: ToolUse, context: EngineContext) -> bool:
    """Whether the rule that a tool call needs an approval lets the person approve it who asked for the turn."""
    found = next((rule for rule in context.settings.policy if policy.matches(rule, use)), None)
    return found is not None and found.by is Approvers.ASKER


def _use(asked: NewQuestion, asking: Asking, context: EngineContext) -> ToolUse:
    """Return the call that an approval is about."""
    return ToolUse(
        tool=asked.tool or "",
        arguments=asked.arguments or {},
        is_safe=False,
        agent=asking.agent,
        source=asking.source,
        is_owner=is_owner(context, asking.source),
        needs_approval=True,
    )


def _where(source: Source) -> str:
    """Return where a turn was asked for, in words."""
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
    source = asking.source
    own = source.channel if notices.can_reach(context, source) else None
    if own is not None and may_answer(question, answerer_of(context, source)):
        _send_card(tx, question, own, moment=moment)
        return
    for home in access.list_homes(tx, profile=context.profile):
        channel = Channel(home.platform, home.chat_id, home.thread_id)
        if home.platform in context.deliverable and channel != own:
            _send_card(tx, question, channel, moment=moment, where=question.body.where)
    if own is not None:
        notices.send(tx, context, source, notices.waits_for_owner(question), moment=moment)


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
    session_no: int | None,
) -> Question | None:
    """Take a message as the answer to an open question, if it can be nothing else; return the question then.

    It is one if it begins with the code of a question, or if exactly one question is open that its session waits for or
    that was asked in its channel; of the latter only one that is answered by a number, a yes or a no. Only what the
    person has typed counts: a quote, a forwarded text or a file answers nothing.
    """
    text = typed_text(message)
    if text is None or (session_no is None and not rules.may_be_reply(text)):
        return None
    who = answerer_of(context, source)
    code, _, rest = text.partition(" ")
    if len(code) == rules.CODE_LENGTH and rest.strip():
        named = questions.open_by_code(tx, code.upper(), profile=context.profile)
        found = [each for each in named if may_answer(each, who)]
        if len(found) == 1:
            return _answer_with(tx, found[0], rest, who=who, context=context, moment=moment)
    here = _open_here(tx, source, session_no=session_no, context=context)
    found = [each for each in here if may_answer(each, who)]
    if len(found) != 1:
        return None
    return _answer_with(tx, found[0], text, who=who, context=context, moment=moment)


def typed_text(message: Message) -> str | None:
    """Return what a person has typed; None if there is something else in the message.

    A quote, and the lines of a group that come along, are other people's words.
    """
    if message.extra.get("forwarded"):
        return None
    words = [part for part in message.parts if not _is_quoted(part)]
    if len(words) != 1 or not isinstance(words[0], Text) or words[0].extra:
        return None
    return words[0].text.strip()


def _is_quoted(part: Part) -> bool:
    return isinstance(part, Text) and (part.extra.get("quote") is True or is_note(part))


def _open_here(
    tx: Tx, source: Source, *, session_no: int | None, context: EngineContext
) -> list[Question]:
    """Return the open questions that were asked in a channel, or that its session waits for."""
    found: dict[int, Question] = {}
    if source.channel is not None:
        asked = questions.open_in_channel(
            tx, str(source.channel), profile=context.profile, limit=_MOST_OPEN
        )
        found |= {each.no: each for each in asked if rules.button_answers(each)}
    if session_no is not None:
        turn_id = sessions.get_by_no(tx, session_no).running_turn
        own = [] if turn_id is None else questions.of_turn(tx, turn_id)
        found |= {each.no: each for each in own if each.is_open}
    return list(found.values())


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
