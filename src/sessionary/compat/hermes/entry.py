"""What a gateway knows of a key's current session."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Self

from sessionary.compat.hermes.config import Platform, platform_of
from sessionary.compat.hermes.messages import Json
from sessionary.compat.hermes.source import SessionSource, from_source
from sessionary.model.session import SessionHead

_TIMES = ("created_at", "updated_at", "last_resume_marked_at")
# What a session keeps of its entry, because no column of ours says it.
KEPT_OF_ENTRY = (
    "display_name",
    "last_prompt_tokens",
    "is_fresh_reset",
    "expiry_finalized",
    "suspended",
    "resume_pending",
    "resume_reason",
)


@dataclass
class SessionEntry:
    """A key, the session it is on, and how that session stands."""

    session_key: str
    session_id: str
    created_at: datetime
    updated_at: datetime
    origin: SessionSource | None = None
    display_name: str | None = None
    platform: Platform | None = None
    chat_type: str = "dm"
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    total_tokens: int = 0
    estimated_cost_usd: float = 0.0
    cost_status: str = "unknown"
    last_prompt_tokens: int = 0
    was_auto_reset: bool = False
    auto_reset_reason: str | None = None
    reset_had_activity: bool = False
    is_fresh_reset: bool = False
    expiry_finalized: bool = False
    suspended: bool = False
    resume_pending: bool = False
    resume_reason: str | None = None
    last_resume_marked_at: datetime | None = None

    def to_dict(self) -> Json:
        """The fields as JSON has them; where it began only when that is known."""
        shown = {each.name: getattr(self, each.name) for each in fields(self)}
        shown |= {name: _text(shown[name]) for name in _TIMES}
        shown["platform"] = None if self.platform is None else self.platform.value
        origin = shown.pop("origin")
        return shown if origin is None else shown | {"origin": origin.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` gave; a platform that is not known reads as None."""
        names = {each.name for each in fields(cls)}
        given = {name: value for name, value in data.items() if name in names and value is not None}
        given |= {name: datetime.fromisoformat(given[name]) for name in _TIMES if name in given}
        given["platform"] = platform_of(data.get("platform"))
        given["origin"] = _origin(data.get("origin"))
        return cls(**given)


def entry_of(head: SessionHead, key: str, kept: Mapping[str, Any]) -> SessionEntry:
    """The entry of a key that is on this session."""
    facts = kept.get("entry")
    known = facts if isinstance(facts, dict) else {}
    origin = from_source(head.source)
    marked = known.get("last_resume_marked_at")
    touched = _moment(known.get("touched_at"))
    active = head.last_active_at
    return SessionEntry(
        key,
        head.id,
        created_at=head.began_at,
        updated_at=active if touched is None else max(active, touched),
        origin=origin,
        platform=platform_of(head.source.platform),
        chat_type=head.source.chat_type,
        input_tokens=head.usage.input_tokens,
        output_tokens=head.usage.output_tokens,
        cache_read_tokens=head.usage.cache_read_tokens,
        cache_write_tokens=head.usage.cache_write_tokens,
        total_tokens=head.usage.input_tokens + head.usage.output_tokens,
        estimated_cost_usd=float(kept.get("estimated_cost_usd") or 0.0),
        cost_status=kept.get("cost_status") or "unknown",
        last_resume_marked_at=_moment(marked),
        **{"display_name": head.source.chat_name}
        | {name: known[name] for name in KEPT_OF_ENTRY if known.get(name) is not None},
    )


def _origin(data: Any) -> SessionSource | None:
    if not isinstance(data, dict) or platform_of(data.get("platform")) is None:
        return None
    return SessionSource.from_dict(data)


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _moment(seconds: Any) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(float(seconds), UTC)
