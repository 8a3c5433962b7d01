"""Which tool calls run, which need an approval, and which are refused."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from sessionary.config.engine import Approvers, PolicyRule, ToolDecision
from sessionary.model.source import ChatType, Source, session_named_by


class ToolUse(Struct, frozen=True, kw_only=True):
    """A tool call that a policy decides about: what is called, by which agent, for whom and where."""

    tool: str
    arguments: Mapping[str, Any]
    # Whether the call may be repeated without harm: the class `safe`.
    is_safe: bool
    agent: str
    source: Source
    is_owner: bool
    # Whether the tool or the agent wants an approval unless a rule decides.
    needs_approval: bool = False


class StandingApproval(Struct, frozen=True, kw_only=True):
    """A rule that somebody made with an answer: a tool needs no approval in a session, or for a person."""

    no: int
    id: str
    tool: str
    given_by: str
    given_at: datetime
    # Otherwise the person gave it who asked: it counts only where a rule lets that person approve.
    by_owner: bool = True
    session_id: str | None = None
    # As `platform:id`.
    person: str | None = None
    # The agent that may call the tool; None: every agent.
    agent: str | None = None


class PolicyVerdict(Struct, frozen=True):
    """What a policy says about a call, which rule says so, and who may approve it if it must be."""

    decision: ToolDecision
    rule: str
    by: Approvers = Approvers.OWNER
    # The number of the rule in the settings, counted from 1.
    rule_number: int | None = None

    @property
    def strictness(self) -> int:
        """A number that is larger the less a verdict allows."""
        match self.decision:
            case ToolDecision.ALLOW:
                return 0
            case ToolDecision.ASK:
                return 2 if self.by is Approvers.OWNER else 1
            case ToolDecision.DENY:
                return 3


def decide(rules: Sequence[PolicyRule], use: ToolUse) -> PolicyVerdict:
    """Return what the first rule says that matches; else what the class of the tool says."""
    for number, rule in enumerate(rules, 1):
        if matches(rule, use):
            text = f"rule {number} of [[policy]]: {describe(rule)}"
            return PolicyVerdict(rule.decision, text, rule.by, number)
    if use.needs_approval:
        return PolicyVerdict(ToolDecision.ASK, "the agent asks for an approval of this call")
    if use.is_safe:
        return PolicyVerdict(ToolDecision.ALLOW, "the tool is safe: it changes nothing")
    if use.source.chat_type != ChatType.DM:
        return PolicyVerdict(ToolDecision.ASK, "the tool may change something, and this is a group")
    if not use.is_owner:
        return PolicyVerdict(
            ToolDecision.ASK, "the tool may change something, and this person is not an owner"
        )
    return PolicyVerdict(ToolDecision.ALLOW, "an owner asked for it in a direct chat")


def matches(rule: PolicyRule, use: ToolUse) -> bool:
    """Whether a rule is about this call: each of its patterns must match."""
    source, person = use.source, use.source.person
    ids = () if person is None else (person.id, person.stable_id)
    chat = session_named_by(source) or source.chat_id or ""
    return (
        _fits(rule.tool, use.tool)
        and _fits(rule.agent, use.agent)
        and _fits(rule.platform, source.platform)
        and _fits(rule.chat_type, source.chat_type)
        and _fits(rule.chat, chat)
        and (rule.person is None or any(_fits(rule.person, id) for id in ids))
        and all(
            name in use.arguments and _fits(pattern, _as_text(use.arguments[name]))
            for name, pattern in rule.arguments.items()
        )
    )


def _fits(pattern: str | None, value: str) -> bool:
    """Whether a value fits a pattern, in which only `*` has a meaning: any text."""
    if pattern is None or pattern == "*":
        return True
    first, *rest = pattern.split("*")
    if not rest:
        return value == pattern
    *middle, last = rest
    if not value.startswith(first):
        return False
    end = len(first)
    for each in middle:
        start = value.find(each, end)
        if start < 0:
            return False
        end = start + len(each)
    return len(value) - end >= len(last) and value.endswith(last)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def describe(rule: PolicyRule) -> str:
    """Return a rule on one line, as it is in the file."""
    named = {
        "agent": rule.agent,
        "platform": rule.platform,
        "chat_type": rule.chat_type,
        "chat": rule.chat,
        "person": rule.person,
    }
    facts = [f"tool = {rule.tool!r}"]
    facts += [f"{name} = {value!r}" for name, value in named.items() if value is not None]
    facts += [f"arguments.{name} = {value!r}" for name, value in rule.arguments.items()]
    return f"{rule.decision} if {', '.join(facts)}"
