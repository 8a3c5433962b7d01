"""Sessions and messages as rows of Hermes' tables: exactly its columns."""

import json
from collections.abc import Iterator
from typing import Any

from sessionary.actions.sessions import read
from sessionary.compat.hermes import messages
from sessionary.compat.hermes.messages import Json
from sessionary.model import transcript
from sessionary.model.message import Entry, Message, Role
from sessionary.model.session import Lineage, SessionHead
from sessionary.store.database import Tx
from sessionary.store.tables import entries, sessions

PREVIEW = 60
# Where a session keeps what has no column of its own with us.
KEPT = "hermes"
BILLING = ("billing_provider", "billing_base_url", "billing_mode")
COSTS = ("estimated_cost_usd", "actual_cost_usd")
PRICING = ("cost_status", "cost_source", "pricing_version")
TOKENS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)


def find(tx: Tx, id: str, *, profile: str) -> SessionHead | None:
    """The head of a session, or None."""
    return sessions.get(tx, id, profile=profile)


def kept_of(tx: Tx, head: SessionHead) -> Json:
    """What the session keeps for Hermes programs alone."""
    found = sessions.details(tx, head.no).extra.get(KEPT)
    return found if isinstance(found, dict) else {}


def session_row(tx: Tx, head: SessionHead) -> Json:
    """A session with exactly the columns of Hermes' table."""
    details = sessions.details(tx, head.no)
    found = details.extra.get(KEPT)
    kept = found if isinstance(found, dict) else {}
    return {
        "id": head.id,
        "source": head.source.platform,
        "user_id": head.source.user_id,
        "model": head.model,
        "model_config": _config_text(details.settings),
        "system_prompt": read.system_prompt(tx, head),
        "parent_session_id": parent_id(tx, head),
        "started_at": head.began_at.timestamp(),
        "ended_at": None if head.ended_at is None else head.ended_at.timestamp(),
        "end_reason": head.end_reason,
        "message_count": head.message_count,
        "tool_call_count": head.tool_call_count,
        **{name: getattr(head.usage, name) for name in TOKENS},
        **{name: kept.get(name) for name in (*BILLING, *COSTS, *PRICING)},
        "title": head.title,
        "api_call_count": kept.get("api_call_count", 0),
    }


def parent_id(tx: Tx, head: SessionHead) -> str | None:
    """The session it came from, while that is there. A reset begins anew: it has no parent."""
    if head.parent_id is None or head.lineage is Lineage.RESET:
        return None
    parent = sessions.get(tx, head.parent_id, profile=head.profile)
    return None if parent is None else parent.id


def said(tx: Tx, head: SessionHead) -> Iterator[tuple[int, Entry]]:
    """The messages that were not taken back, each with its number."""
    segments = sessions.segments(tx, head.no)
    stretches = transcript.retracted(entries.marks(tx, segments))
    for segment in segments:
        for entry in entries.walk(tx, [segment]):
            if isinstance(entry.body, Message) and not transcript.is_retracted(
                entry.seq, stretches
            ):
                yield entries.entry_no(segment.no, entry.seq), entry


def message_rows(tx: Tx, head: SessionHead) -> list[Json]:
    """A session's messages in order."""
    return [messages.to_row(number, head.id, entry) for number, entry in said(tx, head)]


def preview(tx: Tx, head: SessionHead) -> str:
    """The first words that a person said, on one line; empty when nobody did."""
    if head.preview is None:
        return ""
    for _, entry in said(tx, head):
        spoken = entry.body
        if isinstance(spoken, Message) and spoken.role is Role.USER and spoken.text.strip():
            line = spoken.text.replace("\r", " ").replace("\n", " ").strip()
            return line[:PREVIEW] + ("..." if len(line) > PREVIEW else "")
    return ""


def _config_text(settings: Any) -> str | None:
    if settings is None or isinstance(settings, str):
        return settings
    return json.dumps(settings)
