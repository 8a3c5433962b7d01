"""Questions to people: which tool calls need one, who may answer, where they are asked, and what a reply means.

A turn that asks is parked in the transaction that writes its questions: no process holds it. The answer to its last
open question wakes it, and any process continues it.
"""

from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from sessionary.actions import access, questions, turns
from sessionary.actions.sessions import routing
from sessionary.clock import Moment
from sessionary.config.engine import AccessPolicy, Approvers, OnExpiry, ToolDecision
from sessionary.engine import notices
from sessionary.engine.context import TRUSTED, EngineContext
from sessionary.errors import Conflict, NotAllowed, NotFound
from sessionary.model import policy
from sessionary.model import question as rules
from sessionary.model.message import Message, Text
from sessionary.model.policy import PolicyVerdict, StandingApproval, ToolUse
from sessionary.model.question import (
    Answer,
    NewQuestion,
    Question,
    QuestionBody,
    QuestionKind,
    QuestionState,
)
from sessionary.model.source import Channel, Person, Source
from sessionary.model.terminal import one_line
from sessionary.model.turn import UNANSWERED, Lease
from sessionary.store.database import Tx
from sessionary.store.tables import sessions

# More than this is not shown in a chat: nobody approves there what they could not read whole.
LONGEST_CARD = 8_000
# In how many questions of one channel a reply is looked for.
_MOST_OPEN = 20
_NOBODY = AccessPolicy()
NOT_YOURS = "Somebody else must answer this question; nothing was changed."
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

    A question that the turn has asked before is not asked again.
    """
    known = {each.asked.name for each in questions.of_turn(tx, lease.turn_id)}
    made = [
        _insert(tx, lease, rules.check_new(each), asking=asking, context=context, moment=moment)
        for each in asked
        if each.name not in known
    ]
    questions.park(tx, lease, made, moment=moment)
    for question in made:
        _ask(tx, question, asking=asking, context=context, moment=moment)


def _insert(
    tx: Tx,
    lease: Lease,
    asked: NewQuestion,
    *,
    asking: Asking,
    context: EngineContext,
    moment: Moment,
) -> Question:
    settings = context.settings.questions
    expires_at = moment.now + timedelta(seconds=settings.expire_seconds)
    remind_at = moment.now + timedelta(seconds=settings.remind_seconds)
    is_reminded = settings.remind_seconds > 0 and remind_at < expires_at
    person = _person_of(asking.source)
    may_asker = asked.kind is not QuestionKind.APPROVAL or _may_asker_approve(
        asked, asking, context
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
            on_expiry=settings.on_expiry,
            people=(person,) if person is not None and may_asker else (),
            person=person,
            agent=asking.agent,
            where=one_line(asking.source.description, 200),
        ),
        state=QuestionState.OPEN,
        asked_at=moment.now,
        expires_at=expires_at,
        code=access.make_code(context.rng.getrandbits(64))[: rules.CODE_LENGTH],
        token=f"{context.rng.getrandbits(128):032x}",
    )
    no = questions.insert(tx, question, due_at=remind_at if is_reminded else expires_at)
    return replace(question, no=no)


def _may_asker_approve(asked: NewQuestion, asking: Asking, context: EngineContext) -> bool:
    """Whether the rule that a tool call needs an approval lets the person approve it who asked for the turn."""
    use = ToolUse(
        tool=asked.tool or "",
        arguments=asked.arguments or {},
        is_safe=False,
        agent=asking.agent,
        source=asking.source,
        is_owner=is_owner(context, asking.source),
    )
    found = next((rule for rule in context.settings.policy if policy.matches(rule, use)), None)
    return found is not None and found.by is Approvers.ASKER


def _ask(
    tx: Tx, question: Question, *, asking: Asking, context: EngineContext, moment: Moment
) -> None:
    """Send a question to those who may answer it, and tell the person who waits for it."""
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
    if len(text) > LONGEST_CARD and question.asked.kind is QuestionKind.APPROVAL:
        text = notices.too_long_to_approve(question, len(text))
        card = replace(card, options=())
    if is_reminder:
        text = f"{notices.REMINDER}\n\n{text}"
    questions.send_card(tx, question, channel, text, card, moment=moment)


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
        return _expire(tx, question, moment=moment)
    return questions.answer(
        tx,
        question,
        rules.check_answer(question, given),
        by=who.person,
        platform=who.platform,
        moment=moment,
        answered_in=who.channel,
    )


def press(tx: Tx, data: str, *, source: Source, context: EngineContext, moment: Moment) -> str:
    """Answer a question with one of its buttons; return what to tell whoever pressed it."""
    button = rules.read_button(data)
    if button is None:
        return _OUT_OF_DATE
    token, number = button
    question = questions.get_by_token(tx, token, profile=context.profile)
    options = () if question is None else rules.button_answers(question)
    if question is None or number > len(options):
        return _OUT_OF_DATE
    given = options[number - 1][1]
    who = answerer_of(context, source)
    try:
        decided = answer(tx, question.id, given, who=who, context=context, moment=moment)
    except (Conflict, NotAllowed) as error:
        return str(error)
    return rules.outcome_text(decided)


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
    text = _typed(message)
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


def _typed(message: Message) -> str | None:
    """Return what a person has typed; None if there is something else in the message."""
    if message.extra.get("forwarded"):
        return None
    own = [part for part in message.parts if isinstance(part, Text) and not part.extra]
    others = [part for part in message.parts if part not in own and not _is_quote(part)]
    return own[0].text.strip() if len(own) == 1 and not others else None


def _is_quote(part: object) -> bool:
    return isinstance(part, Text) and part.extra.get("quote") is True


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
    if given is None:
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
        _expire(tx, question, moment=moment)
    elif questions.put_off(tx, question.no):
        for name in dict.fromkeys(name for _, name in questions.cards(tx, question.no)):
            channel, where = Channel.parse(name), question.body.where
            _send_card(tx, question, channel, moment=moment, where=where, is_reminder=True)


def _expire(tx: Tx, question: Question, *, moment: Moment) -> Question:
    """Let a question expire: the turn goes on with a denial, or ends."""
    expired = questions.expire(tx, question, moment=moment)
    if question.body.on_expiry is OnExpiry.END:
        # Whichever process goes on with the turn ends it, and tells its people.
        turns.ask_to_stop(tx, question.session_no, reason=UNANSWERED)
    return expired
