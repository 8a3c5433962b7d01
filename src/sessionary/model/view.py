"""Values as JSON: the same fields on the command line, over HTTP and in MCP; `json_types` declares them."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast, overload

from sessionary.model.choice import chosen_in
from sessionary.model.message import Compaction, Entry, Message, text_of
from sessionary.model.message import to_json as part_to_json
from sessionary.model.reset import ResetMode, ResetPolicy
from sessionary.model.session import Project, SessionHead
from sessionary.model.terminal import one_line
from sessionary.model.usage import UsageTotal

if TYPE_CHECKING:
    from sessionary.model.access import BudgetStatus, Permit, Token
    from sessionary.model.json_types import (
        AnswerInfo,
        BudgetInfo,
        CompactionEntry,
        DeliveryDetail,
        DeliverySummary,
        EntryJson,
        HoldInfo,
        MessageEntry,
        PermitInfo,
        PersonInfo,
        PinInfo,
        PolicyInfo,
        ProjectInfo,
        QuestionInfo,
        RunInfo,
        ScheduleInfo,
        SessionSummary,
        SourceInfo,
        StandingApprovalInfo,
        TokenInfo,
        TurnInfo,
        UsageTotals,
    )
    from sessionary.model.policy import StandingApproval
    from sessionary.model.question import Answered, Question
    from sessionary.model.schedule import Run, Schedule
    from sessionary.model.turn import Delivery, Turn

Json = dict[str, Any]
# How much of a delivery's text a list shows.
DELIVERY_TEXT = 200
# How much of a pinned message a list shows.
PINNED_TEXT = 200


@overload
def time_text(at: datetime) -> str: ...
@overload
def time_text(at: datetime | None) -> str | None: ...
def time_text(at: datetime | None) -> str | None:
    """A time as RFC 3339 in UTC."""
    return (
        None
        if at is None
        else at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    )


def head_json(head: SessionHead, *, now: datetime) -> "SessionSummary":
    """A session head, and whether its turn waits now to be continued."""
    usage, chosen = head.usage, chosen_in(head.settings)
    made: SessionSummary = {
        "id": head.id,
        "profile": head.profile,
        "key": head.key,
        # A source gives its fields in a loop, with those that only the platform knows beside them.
        "source": cast("SourceInfo", head.source.to_json()),
        "kind": head.kind,
        "title": head.title,
        "preview": head.preview,
        "model": head.model,
        "agent": chosen["agent"],
        "persona": chosen["persona"],
        "project": head.project,
        "pinned": head.pinned,
        "archived": head.archived,
        "trashed": head.trashed_at is not None,
        "read_only": head.read_only,
        "labels": list(head.labels),
        "began_at": time_text(head.began_at),
        "last_active_at": time_text(head.last_active_at),
        "ended_at": time_text(head.ended_at),
        "end_reason": head.end_reason,
        "last_seq": head.last_seq,
        "message_count": head.message_count,
        "tool_call_count": head.tool_call_count,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cost_microusd": usage.cost_microusd,
        "cost_status": usage.cost_status,
        "running": head.running,
        "unread": head.unread,
        "parent_id": head.parent_id,
        "lineage": head.lineage,
    }
    if head.is_orphaned(now):
        made["waiting"] = True
    if head.waits_for_people:
        made["waits_for_people"] = True
    if chosen["tools"] is not None:
        made["tools"] = chosen["tools"]
    return made


def entry_json(entry: Entry) -> "EntryJson":
    """An entry of the log; for a message its parts and its text."""
    body = entry.body
    if isinstance(body, Message):
        return _message_json(entry, body)
    if isinstance(body, Compaction):
        compaction: CompactionEntry = {
            "id": entry.id,
            "session_id": entry.session_id,
            "seq": entry.seq,
            "kind": "compaction",
            "at": time_text(entry.at),
            "turn_id": entry.turn_id,
            "summary": body.summary,
            "through": body.through,
        }
        if body.names_speakers:
            compaction["names_speakers"] = True
        if body.kept:
            compaction["kept"] = list(body.kept)
        if body.shortened:
            compaction["shortened"] = body.shortened
            compaction["longest_output"] = body.longest_output
        return compaction
    return {
        "id": entry.id,
        "session_id": entry.session_id,
        "seq": entry.seq,
        "kind": "retraction",
        "at": time_text(entry.at),
        "turn_id": entry.turn_id,
        "after": body.after,
        "reason": body.reason,
    }


def _message_json(entry: Entry, message: Message) -> "MessageEntry":
    made: MessageEntry = {
        "id": entry.id,
        "session_id": entry.session_id,
        "seq": entry.seq,
        "kind": "message",
        "at": time_text(entry.at),
        "turn_id": entry.turn_id,
        "role": message.role,
        "text": message.text,
        "person": None if message.person is None else cast("PersonInfo", message.person.to_json()),
        "parts": [part_to_json(part) for part in message.parts],
    }
    if message.model is not None:
        made["model"] = message.model
    if message.finish_reason is not None:
        made["finish_reason"] = message.finish_reason
    if message.token_count is not None:
        made["token_count"] = message.token_count
    if message.platform_message_id is not None:
        made["platform_message_id"] = message.platform_message_id
    if message.extra:
        made["extra"] = dict(message.extra)
    return made


def usage_json(total: UsageTotal) -> "UsageTotals":
    """A row of a usage report."""
    return {
        "group": total.group,
        "calls": total.calls,
        "input_tokens": total.input_tokens,
        "output_tokens": total.output_tokens,
        "cache_read_tokens": total.cache_read_tokens,
        "cache_write_tokens": total.cache_write_tokens,
        "reasoning_tokens": total.reasoning_tokens,
        "cost_microusd": total.cost_microusd,
        "cost_status": total.cost_status,
        "unknown_cost_calls": total.unknown_cost_calls,
    }


def budget_json(status: "BudgetStatus") -> "BudgetInfo":
    """A budget and what was used of it."""
    return {
        "scope": status.scope,
        "per": status.per,
        "period": status.period,
        "resets_at": time_text(status.resets_at),
        "limit_tokens": status.limit_tokens,
        "limit_microusd": status.limit_microusd,
        "used_tokens": status.used_tokens,
        "used_microusd": status.used_microusd,
        "reserved_tokens": status.reserved_tokens,
        "reserved_microusd": status.reserved_microusd,
        "percent": round(status.percent, 1),
        "is_used_up": status.is_used_up,
        "warned": list(status.warned),
    }


def policy_json(policy: ResetPolicy) -> "PolicyInfo":
    """A reset policy; limits that its mode does not use are null."""
    idle = policy.mode in (ResetMode.IDLE, ResetMode.BOTH)
    daily = policy.mode in (ResetMode.DAILY, ResetMode.BOTH)
    return {
        "mode": policy.mode,
        "idle_minutes": policy.idle.total_seconds() / 60 if idle else None,
        "daily_at": policy.daily_at.isoformat("minutes") if daily else None,
        "zone": str(policy.zone),
    }


def turn_json(turn: "Turn", *, now: datetime) -> "TurnInfo":
    """A turn of a session, and whether it waits now to be continued."""
    return {
        "id": turn.id,
        "session_id": turn.session_id,
        "state": turn.state,
        "agent": turn.agent,
        "began_at": time_text(turn.began_at),
        "ended_at": time_text(turn.ended_at),
        "first_seq": turn.first_seq,
        "reason": turn.reason,
        "holder": turn.holder or None,
        "resumed": turn.resumed,
        "resume_reason": turn.resume_reason,
        "waiting": turn.is_orphaned(now),
    }


def question_json(question: "Question") -> "QuestionInfo":
    """A question, with what it asks and the answer."""
    from sessionary.model import question as rules  # most commands show no question

    asked, body, answered = question.asked, question.body, question.answered
    return {
        "id": question.id,
        "session_id": question.session_id,
        "turn_id": question.turn_id,
        "kind": asked.kind,
        "text": asked.text,
        "tool": asked.tool,
        "arguments": None if asked.arguments is None else dict(asked.arguments),
        "arguments_text": rules.arguments_text(asked.arguments),
        "diff": rules.diff_of(asked.arguments),
        "options": list(asked.options),
        "form": None if asked.schema is None else dict(asked.schema),
        "rule": asked.rule,
        "agent": body.agent,
        "where": body.where,
        "person": body.person,
        "state": question.state,
        "outcome": rules.outcome_text(question),
        "code": question.code,
        "asked_at": time_text(question.asked_at),
        "expires_at": time_text(question.expires_at),
        "on_expiry": body.on_expiry,
        "answer": None if answered is None else answer_json(answered),
    }


def answer_json(answered: "Answered") -> "AnswerInfo":
    """The answer to a question."""
    answer = answered.answer
    return {
        "decision": answer.decision,
        "text": answer.text,
        "arguments": None if answer.arguments is None else dict(answer.arguments),
        "values": None if answer.values is None else dict(answer.values),
        "always": answer.always,
        "by": None if answered.by is None else answered.by.label,
        "platform": answered.platform,
        "at": time_text(answered.at),
    }


def approval_json(approval: "StandingApproval") -> "StandingApprovalInfo":
    """A rule that somebody made with an answer."""
    return {
        "id": approval.id,
        "tool": approval.tool,
        "session_id": approval.session_id,
        "person": approval.person,
        "agent": approval.agent,
        "given_by": approval.given_by,
        "given_at": time_text(approval.given_at),
    }


def hold_json(reason: str, until: datetime | None) -> "HoldInfo":
    """A reason not to reset a session; `until` is null for one that must be released."""
    return {"reason": reason, "until": time_text(until)}


def pin_json(entry: Entry) -> "PinInfo":
    """A pinned message, with the beginning of its text."""
    message = entry.body
    assert isinstance(message, Message)
    return {
        "seq": entry.seq,
        "role": message.role,
        "text": one_line(message.text, PINNED_TEXT),
        "at": time_text(entry.at),
    }


def delivery_json(delivery: "Delivery") -> "DeliverySummary":
    """A delivery with the beginning of its text."""
    return {
        "id": delivery.id,
        "channel": str(delivery.channel),
        "platform": delivery.channel.platform,
        "chat_id": delivery.channel.chat_id,
        "thread_id": delivery.channel.thread_id,
        "state": delivery.state,
        "reason": delivery.reason,
        "text": one_line(text_of(delivery.parts), DELIVERY_TEXT),
        "session_id": delivery.session_id,
        "turn_id": delivery.turn_id,
        "attempts": delivery.attempts,
        "maybe_twice": delivery.maybe_twice,
        "created_at": time_text(delivery.created_at),
        "not_before": time_text(delivery.not_before),
        "sent_at": time_text(delivery.sent_at),
        "platform_message_id": delivery.platform_message_id,
        "redirected_to": delivery.redirected_to,
    }


def delivery_detail_json(delivery: "Delivery") -> "DeliveryDetail":
    """A delivery with all of its parts."""
    parts = [part_to_json(each) for each in delivery.parts]
    return {**delivery_json(delivery), "parts": [*parts]}


def project_json(project: Project) -> "ProjectInfo":
    """A project with the number of its sessions."""
    return {
        "id": project.id,
        "name": project.name,
        "colour": project.colour,
        "created_at": time_text(project.created_at),
        "sessions": project.sessions,
    }


def schedule_json(schedule: "Schedule") -> "ScheduleInfo":
    """A scheduled task."""
    return {
        "id": schedule.id,
        "name": schedule.name,
        "timing": schedule.timing.text,
        "zone": schedule.timing.zone.key,
        "prompt": schedule.prompt,
        "agent": schedule.agent,
        "deliver_to": schedule.deliver_to,
        "grace_minutes": int(schedule.grace.total_seconds() // 60),
        "paused": schedule.paused,
        "created_at": time_text(schedule.created_at),
        "next_at": time_text(schedule.next_at),
        "by_program": schedule.by_program,
    }


def run_json(run: "Run") -> "RunInfo":
    """One run of a scheduled task."""
    return {
        "due_at": time_text(run.due_at),
        "state": run.state,
        "began_at": time_text(run.began_at),
        "ended_at": time_text(run.ended_at),
        "session_id": run.session_id,
        "reason": run.reason,
    }


def permit_json(permit: "Permit") -> "PermitInfo":
    """A person who may write to the agent."""
    return {
        "platform": permit.platform,
        "person_id": permit.person_id,
        "name": permit.name,
        "given_at": time_text(permit.given_at),
        "given_by": permit.given_by,
    }


def token_json(token: "Token") -> "TokenInfo":
    """A token, without its secret."""
    return {
        "id": token.id,
        "profile": token.profile,
        "name": token.name,
        "scope": token.scope,
        "created_at": time_text(token.created_at),
        "revoked_at": time_text(token.revoked_at),
    }
