"""Which tool calls of a turn run, who may approve them, and where people are asked."""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from typing_extensions import TypedDict

from sessionary.actions import access, questions
from sessionary.actions.sessions import routing
from sessionary.config.engine import AccessPolicy, Approvers, ToolDecision
from sessionary.engine import notices
from sessionary.engine.context import TRUSTED, EngineContext
from sessionary.engine.ports import ProposedCall
from sessionary.model import policy as rules
from sessionary.model.policy import PolicyVerdict, StandingApproval, ToolUse
from sessionary.model.question import person_key
from sessionary.model.session import SessionHead
from sessionary.model.source import Channel, Source, is_by_program
from sessionary.model.terminal import one_line
from sessionary.store.database import Tx

_NOBODY = AccessPolicy()


def is_owner(context: EngineContext, source: Source) -> bool:
    """Whether a message comes from an owner: at the terminal, in the workbench, or by the settings of the platform.

    What a program sends in somebody's name, without a right to approve, comes from no owner.
    """
    if is_by_program(source):
        return False
    if source.platform in TRUSTED:
        return True
    person = source.person
    if person is None:
        return False
    known = context.settings.access.get(source.platform, _NOBODY)
    return known.is_owner(frozenset({person.id, person.stable_id}))


class Asking(Struct, frozen=True):
    """For whom a turn asks, and which agent runs it.

    The sources are those of all messages of the turn; the answer goes to the first.
    """

    sources: tuple[Source, ...]
    agent: str

    @property
    def source(self) -> Source:
        """Where the answer of the turn goes."""
        return self.sources[0]

    @property
    def people(self) -> tuple[str, ...]:
        """Whose messages the turn has, as far as there can be rules for them."""
        return tuple(dict.fromkeys(filter(None, map(person_of, self.sources))))

    @property
    def person(self) -> str | None:
        """Whose messages the turn has, if it is one person for whom there can be a rule.

        There is none for whom a program names: nobody vouches for that.
        """
        known = {None if is_by_program(each) else person_of(each) for each in self.sources}
        return known.pop() if len(known) == 1 else None

    def uses(self, call: ProposedCall, context: EngineContext) -> list[ToolUse]:
        """Return what the policy is asked about a call: once for each message of the turn."""
        return [
            ToolUse(
                tool=call.tool,
                arguments=call.arguments,
                is_safe=call.is_safe,
                agent=self.agent,
                source=source,
                is_owner=is_owner(context, source),
                needs_approval=call.needs_approval,
            )
            for source in self.sources
        ]


def asking_for(sources: Iterable[Source], agent: str) -> Asking:
    """Return for whom a turn asks that has messages from these sources: each person once in each chat."""
    distinct: dict[object, Source] = {}
    for source in sources:
        place = (source.platform, source.channel, source.chat_type)
        who = (*place, source.person, is_by_program(source))
        distinct.setdefault(who, source)
    return Asking(tuple(distinct.values()), agent)


def decide_by_settings(
    calls: Sequence[ProposedCall], *, asking: Asking, context: EngineContext
) -> list[PolicyVerdict]:
    """Return what the settings say about tool calls; nothing is read for it."""
    return [
        _strictest(rules.decide(context.settings.policy, use) for use in asking.uses(call, context))
        for call in calls
    ]


def decide(
    tx: Tx,
    calls: Sequence[ProposedCall],
    *,
    asking: Asking,
    context: EngineContext,
    session_no: int | None,
) -> list[PolicyVerdict]:
    """Return what happens to tool calls: what the settings say, and what people have approved once and for all.

    A turn may have messages of several people: each must be allowed the call.
    """
    return [
        _strictest(
            explain(tx, use, context=context, session_no=session_no).verdict
            for use in asking.uses(call, context)
        )
        for call in calls
    ]


def _strictest(verdicts: Iterable[PolicyVerdict]) -> PolicyVerdict:
    return max(verdicts, key=lambda verdict: verdict.strictness)


class Explanation(Struct, frozen=True):
    """What happens to a tool call that one person asks for, and which standing approval decides, if one does."""

    verdict: PolicyVerdict
    approval: StandingApproval | None = None


def explain(tx: Tx, use: ToolUse, *, context: EngineContext, session_no: int | None) -> Explanation:
    """Return what happens to a tool call and why; `session_no` is the session in which it is made."""
    verdict = rules.decide(context.settings.policy, use)
    if verdict.decision is not ToolDecision.ASK:
        return Explanation(verdict)
    found = questions.find_approval(
        tx,
        use.tool,
        agent=use.agent,
        profile=context.profile,
        session_no=session_no,
        # Nobody vouches for whom a program names.
        person=None if is_by_program(use.source) else person_of(use.source),
        only_by_owner=verdict.by is Approvers.OWNER,
    )
    if found is None:
        return Explanation(verdict)
    return Explanation(PolicyVerdict(ToolDecision.ALLOW, describe(found)), found)


def describe(approval: StandingApproval) -> str:
    """Return a rule that somebody made with an answer, on one line."""
    scope = "in this session" if approval.person is None else f"for {approval.person}"
    if approval.agent:
        scope = f"of the agent {one_line(approval.agent, 60)} {scope}"
    by, day = one_line(approval.given_by, 60), f"{approval.given_at:%Y-%m-%d}"
    return f"{by} approved {one_line(approval.tool, 120)} {scope} on {day}"


def person_of(source: Source) -> str | None:
    """Return how rules and questions name a person: `platform:id`; None at the terminal and in the workbench."""
    person = source.person
    if person is None or source.platform in TRUSTED:
        return None
    return person_key(source.platform, person)


def approvers(call: ProposedCall, *, asking: Asking, context: EngineContext) -> tuple[str, ...]:
    """Return who besides the owners may approve a call: nobody if for one of its people only an owner may."""
    found = []
    for use in asking.uses(call, context):
        verdict = rules.decide(context.settings.policy, use)
        if verdict.decision is ToolDecision.ALLOW:
            continue
        person = person_of(use.source)
        if verdict.by is Approvers.OWNER or person is None or is_by_program(use.source):
            return ()
        found.append(person)
    return tuple(dict.fromkeys(found))


def asked_channels(
    tx: Tx, people: Sequence[str], *, asking: Asking, context: EngineContext
) -> list[Channel]:
    """Return where those are asked who may answer: where they wrote, else in the home channels."""
    own = [
        source.channel
        for source in asking.sources
        if source.channel is not None
        and notices.can_reach(context, source)
        and (is_owner(context, source) or person_of(source) in people)
    ]
    homes = (
        Channel(home.platform, home.chat_id, home.thread_id)
        for home in access.list_homes(tx, profile=context.profile)
        if home.platform in context.deliverable
    )
    return list(dict.fromkeys(own or homes))


class CallExplanation(TypedDict):
    """What happens to a tool call, why, and who is asked."""

    decision: ToolDecision
    """`allow`, `ask` or `deny`."""
    rule: str
    """The rule that decides, in one line."""
    rule_number: int | None
    """Its number in `[[policy]]`; null if none of these decides."""
    approval_id: str | None
    """The standing approval that decides, if one does."""
    tool: str
    agent: str
    is_owner: bool
    """Whether an owner asks for the call."""
    session_id: str | None
    """The session in which the call would be made; null if there is none yet."""
    may_answer: list[str]
    """Who may approve the call besides the owners, as `platform:id`, if it must be approved."""
    asked_in: list[str]
    """The channels in which people are asked."""


def explain_call(
    tx: Tx,
    call: ProposedCall,
    source: Source,
    *,
    context: EngineContext,
    agent: str | None = None,
    head: SessionHead | None = None,
) -> CallExplanation:
    """Explain what happens to a tool call that somebody asks for; by default in the current session there."""
    if head is None:
        current = routing.get_current(tx, context.key(source))
        head = current if current is not None and current.is_open else None
    settings = {} if head is None else head.settings
    chosen = context.catalog.settle(settings, platform=source.platform).agent
    name = agent or chosen or context.catalog.default_agent(source.platform) or ""
    asking = Asking((source,), name)
    (use,) = asking.uses(call, context)
    found = explain(tx, use, context=context, session_no=None if head is None else head.no)
    people: tuple[str, ...] = ()
    channels: list[Channel] = []
    if found.verdict.decision is ToolDecision.ASK:
        people = approvers(call, asking=asking, context=context)
        channels = asked_channels(tx, people, asking=asking, context=context)
    return {
        "decision": found.verdict.decision,
        "rule": found.verdict.rule,
        "rule_number": found.verdict.rule_number,
        "approval_id": None if found.approval is None else found.approval.id,
        "tool": call.tool,
        "agent": name,
        "is_owner": use.is_owner,
        "session_id": None if head is None else head.id,
        "may_answer": list(people),
        "asked_in": [str(channel) for channel in channels],
    }
