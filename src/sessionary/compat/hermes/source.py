"""SessionSource and SessionEntry: where a message came from, and what a gateway knows of its session."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Self

from sessionary.compat.hermes.config import Platform, platform_of
from sessionary.compat.hermes.rows import Json
from sessionary.model.session import SessionHead
from sessionary.model.source import ChatType, Isolation, SessionKey, Source, is_shared, key_for

_ALWAYS = (
    "chat_id",
    "chat_name",
    "chat_type",
    "user_id",
    "user_name",
    "thread_id",
    "chat_topic",
)
_WHEN_SET = (
    "user_id_alt",
    "chat_id_alt",
    "is_bot",
    "guild_id",
    "parent_chat_id",
    "message_id",
)
# What our own source has no field for.
_EXTRA = ("is_bot", "guild_id", "parent_chat_id")
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
class SessionSource:
    """Where one message came from."""

    platform: Platform
    chat_id: str
    chat_name: str | None = None
    chat_type: str = "dm"
    user_id: str | None = None
    user_name: str | None = None
    thread_id: str | None = None
    chat_topic: str | None = None
    user_id_alt: str | None = None
    chat_id_alt: str | None = None
    is_bot: bool = False
    guild_id: str | None = None
    parent_chat_id: str | None = None
    message_id: str | None = None

    @property
    def description(self) -> str:
        if self.platform is Platform.LOCAL:
            return "CLI terminal"
        return to_source(self).description

    def to_dict(self) -> Json:
        """Eight fields always, the others when they are set."""
        shown: Json = {"platform": self.platform.value}
        shown |= {name: getattr(self, name) for name in _ALWAYS}
        return shown | {name: value for name in _WHEN_SET if (value := getattr(self, name))}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` gave; numbers as ids become texts."""
        given = {name: data[name] for name in (*_ALWAYS, *_WHEN_SET) if data.get(name) is not None}
        for name in ("chat_id", "user_id", "thread_id", "user_id_alt", "chat_id_alt"):
            if name in given:
                given[name] = str(given[name])
        given.setdefault("chat_id", "")
        return cls(platform=Platform(data["platform"]), **given)

    @classmethod
    def local_cli(cls) -> Self:
        return cls(Platform.LOCAL, "cli", chat_name="CLI terminal", chat_type="dm")


def to_source(given: SessionSource) -> Source:
    """Convert to our source."""
    return Source(
        given.platform.value,
        given.chat_id or None,
        chat_name=given.chat_name,
        chat_type=given.chat_type or ChatType.DM,
        user_id=given.user_id,
        user_name=given.user_name,
        thread_id=given.thread_id,
        chat_topic=given.chat_topic,
        user_id_alt=given.user_id_alt,
        chat_id_alt=given.chat_id_alt,
        platform_message_id=given.message_id,
        extra={name: value for name in _EXTRA if (value := getattr(given, name))},
    )


def from_source(source: Source) -> SessionSource | None:
    """Convert from our source; None for a platform that Hermes does not know."""
    data = source.to_json()
    data["message_id"] = data.pop("platform_message_id", None)
    try:
        return SessionSource.from_dict(data)
    except ValueError:
        return None


def build_session_key(
    source: SessionSource,
    group_sessions_per_user: bool = True,
    thread_sessions_per_user: bool = False,
) -> str:
    """Which conversation a source belongs to, joined by colons as Hermes prints it."""
    isolation = Isolation(group_sessions_per_user, thread_sessions_per_user)
    return print_key(key_for(to_source(source), isolation=isolation))


def print_key(key: SessionKey) -> str:
    """Print a key in Hermes' form. It is never parsed: two keys may print alike."""
    shown = [part for part in (key.chat, key.thread, key.person) if part is not None]
    return ":".join(["agent", "main", key.platform, key.chat_type, *shown])


def is_shared_multi_user_session(
    source: SessionSource,
    *,
    group_sessions_per_user: bool = True,
    thread_sessions_per_user: bool = False,
) -> bool:
    """Whether several people may be behind the source's key."""
    if source.chat_type == ChatType.DM:
        return False
    isolation = Isolation(group_sessions_per_user, thread_sessions_per_user)
    return is_shared(to_source(source), isolation)


@dataclass
class SessionEntry:
    """A key, its current session, and that session's status."""

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
        """The fields as JSON; `origin` only if it is known."""
        shown = {each.name: getattr(self, each.name) for each in fields(self)}
        shown |= {name: _time_text(shown[name]) for name in _TIMES}
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
    touched = _parse_time(known.get("touched_at"))
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
        last_resume_marked_at=_parse_time(marked),
        **{"display_name": head.source.chat_name}
        | {name: known[name] for name in KEPT_OF_ENTRY if known.get(name) is not None},
    )


def _origin(data: Any) -> SessionSource | None:
    if not isinstance(data, dict) or platform_of(data.get("platform")) is None:
        return None
    return SessionSource.from_dict(data)


def _time_text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _parse_time(seconds: Any) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(float(seconds), UTC)
