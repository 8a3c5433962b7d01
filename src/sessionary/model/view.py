"""The names of things in JSON: the same on the command line, over HTTP and in Python."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sessionary.model.message import (
    Compaction,
    Entry,
    Message,
    Retraction,
    body_to_json,
    kind_of,
    text_of,
)
from sessionary.model.message import to_json as part_to_json
from sessionary.model.reset import ResetMode, ResetPolicy
from sessionary.model.session import SessionHead
from sessionary.model.terminal import one_line
from sessionary.model.usage import TOKEN_FIELDS, UsageTotal

if TYPE_CHECKING:
    from sessionary.model.turn import Delivery, Turn

Json = dict[str, Any]
# How much of a delivery's text a list shows.
DELIVERY_TEXT = 200
HEAD_FIELDS = (
    "id", "profile", "key", "source", "kind", "title", "preview", "model", "project", "pinned",
    "archived", "trashed", "read_only", "labels", "began_at", "last_active_at", "ended_at",
    "end_reason", "last_seq", "message_count", "tool_call_count", *TOKEN_FIELDS, "cost_microusd",
    "cost_status", "running", "unread", "parent_id", "lineage",
)  # fmt: skip


def time_text(at: datetime | None) -> str | None:
    """A time as RFC 3339 in UTC."""
    return (
        None
        if at is None
        else at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    )


def head_json(head: SessionHead) -> Json:
    """A session head."""
    return {
        "id": head.id,
        "profile": head.profile,
        "key": head.key,
        "source": head.source.to_json(),
        "kind": head.kind,
        "title": head.title,
        "preview": head.preview,
        "model": head.model,
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
        **{name: getattr(head.usage, name) for name in TOKEN_FIELDS},
        "cost_microusd": head.usage.cost_microusd,
        "cost_status": head.usage.cost_status,
        "running": head.running,
        "unread": head.unread,
        "parent_id": head.parent_id,
        "lineage": head.lineage,
    }


def entry_json(entry: Entry) -> Json:
    """An entry of the log; for a message its parts and its text."""
    out: Json = {
        "id": entry.id,
        "session_id": entry.session_id,
        "seq": entry.seq,
        "kind": kind_of(entry.body),
        "at": time_text(entry.at),
        "turn_id": entry.turn_id,
    }
    match entry.body:
        case Message() as message:
            shown = {"role": message.role, "text": message.text, "person": None}
            return out | shown | body_to_json(message)
        case Compaction() | Retraction() as mark:
            return out | body_to_json(mark)


def usage_json(total: UsageTotal) -> Json:
    """A row of a usage report."""
    return {
        "group": total.group,
        "calls": total.calls,
        **{name: getattr(total, name) for name in TOKEN_FIELDS},
        "cost_microusd": total.cost_microusd,
        "cost_status": total.cost_status,
        "unknown_cost_calls": total.unknown_cost_calls,
    }


def policy_json(policy: ResetPolicy) -> Json:
    """A reset policy; limits that its mode does not use are null."""
    idle = policy.mode in (ResetMode.IDLE, ResetMode.BOTH)
    daily = policy.mode in (ResetMode.DAILY, ResetMode.BOTH)
    return {
        "mode": str(policy.mode),
        "idle_minutes": policy.idle.total_seconds() / 60 if idle else None,
        "daily_at": policy.daily_at.isoformat("minutes") if daily else None,
        "zone": str(policy.zone),
    }


def turn_json(turn: "Turn") -> Json:
    """A turn of a session."""
    return {
        "id": turn.id,
        "session_id": turn.session_id,
        "state": turn.state,
        "agent": turn.agent,
        "began_at": time_text(turn.began_at),
        "ended_at": time_text(turn.ended_at),
        "first_seq": turn.first_seq,
        "reason": turn.reason,
    }


def hold_json(reason: str, until: datetime | None) -> Json:
    """A reason not to reset a session; `until` is null for one that must be released."""
    return {"reason": reason, "until": time_text(until)}


def delivery_json(delivery: "Delivery", *, whole: bool = False) -> Json:
    """A delivery with the beginning of its text; `whole`: with its parts too."""
    made: Json = {
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
    if whole:
        made["parts"] = [part_to_json(each) for each in delivery.parts]
    return made
