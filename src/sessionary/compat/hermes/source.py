"""SessionSource and SessionEntry: where a message came from, and what a gateway knows of its session."""

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from sessionary.compat.hermes.config import Platform, platform_of, platform_value
from sessionary.compat.hermes.rows import Json, jsonable
from sessionary.compat.hermes.store import log_unknown
from sessionary.model.redact import Redactor
from sessionary.model.session import SessionHead
from sessionary.model.source import ChatType, Isolation, SessionKey, Source, key_for

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
    *(
        "scope_id",
        "role_authorized",
        "profile",
        "auto_thread_created",
        "auto_thread_initial_name",
        "delivered_via_upstream_relay",
    ),
)
# What our own source has a field for; all else of a source goes into its `extra`.
_NATIVE = frozenset({"platform", *_ALWAYS, "user_id_alt", "chat_id_alt", "message_id"})
_TIMES = ("created_at", "updated_at", "last_resume_marked_at")
_WHATSAPP = Platform.WHATSAPP.value
_logger = logging.getLogger(__name__)
T = TypeVar("T")
# What a session keeps of its entry, because no column of ours says it.
KEPT_OF_ENTRY = (
    "display_name",
    "last_prompt_tokens",
    "is_fresh_reset",
    "expiry_finalized",
    "suspended",
    "resume_pending",
    "resume_reason",
    "was_auto_reset",
    "auto_reset_reason",
    "reset_had_activity",
    "model_override",
)


def tolerant(kind: type[T]) -> type[T]:
    """Let a data class take fields that only later versions have: they become attributes, and are logged once."""
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    plain = kind.__init__

    @wraps(plain)
    def init(self: T, *args: object, **given: object) -> None:
        further = {name: given.pop(name) for name in [*given] if name not in known}
        log_unknown(kind.__name__, further)
        plain(self, *args, **given)
        vars(self).update(further)

    kind.__init__ = init  # type: ignore[method-assign, assignment]
    return kind


@tolerant
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
    # Of later versions; only kept.
    scope_id: str | None = None
    role_authorized: bool = False
    profile: str | None = None
    auto_thread_created: bool = False
    auto_thread_initial_name: str | None = None
    delivered_via_upstream_relay: bool = False

    @property
    def description(self) -> str:
        if self.platform == Platform.LOCAL:
            return "CLI terminal"
        return to_source(self).description

    def to_dict(self) -> Json:
        """Eight fields always, the others when they are set."""
        shown: Json = {"platform": platform_value(self.platform)}
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
        platform = platform_of(data["platform"])
        if platform is None:
            raise ValueError(f"{data['platform']!r} is not a valid Platform")
        return cls(platform=platform, **given)

    @classmethod
    def local_cli(cls) -> Self:
        return cls(Platform.LOCAL, "cli", chat_name="CLI terminal", chat_type="dm")


def to_source(given: SessionSource) -> Source:
    """Convert to our source."""
    return Source(
        platform_value(given.platform),
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
        extra={
            name: jsonable(value)
            for name, value in vars(given).items()
            if value and name not in _NATIVE
        },
    )


def to_keyed_source(given: SessionSource) -> Source:
    """Convert to our source, with the ids that WhatsApp's bridge maps to a person's number."""
    source = to_source(given)
    if source.platform != _WHATSAPP:
        return source
    user_id, alt = (each and _mapped(each) for each in (source.user_id, source.user_id_alt))
    is_dm = source.chat_type == ChatType.DM
    chat_id = _mapped(source.chat_id) if is_dm and source.chat_id else source.chat_id
    return replace(source, chat_id=chat_id, user_id=user_id, user_id_alt=alt)


def normalize_whatsapp_identifier(value: str | None) -> str:
    """The number or name in an id of WhatsApp, without `+`, device and server."""
    text = str(value or "").strip().replace("+", "", 1)
    return text.partition(":")[0].partition("@")[0]


def expand_whatsapp_aliases(identifier: str | None) -> set[str]:
    """All identifiers of a person that the bridge's mapping files connect, with the given one."""
    first = normalize_whatsapp_identifier(identifier)
    known: set[str] = set()
    waiting = [first] if first else []
    while waiting:
        current = waiting.pop()
        known.add(current)
        waiting += [each for each in _mappings(current) if each and each not in known]
    return known


def canonical_whatsapp_identifier(identifier: str | None) -> str:
    """The one identifier of a person, under whichever id."""
    known = expand_whatsapp_aliases(identifier)
    return min(known, key=lambda each: (len(each), each), default="")


def _mapped(id: str) -> str:
    """The id itself, or the number that the bridge knows it by."""
    plain, canonical = normalize_whatsapp_identifier(id), canonical_whatsapp_identifier(id)
    return id if plain == canonical else canonical


def _mappings(id: str) -> list[str]:
    if not id.replace("-", "").replace(".", "").isalnum():
        return []  # no name of a file
    home = Path(os.environ.get("HERMES_HOME") or Path.home() / ".hermes")
    found = []
    for suffix in ("", "_reverse"):
        path = home / "whatsapp" / "session" / f"lid-mapping-{id}{suffix}.json"
        try:
            found.append(normalize_whatsapp_identifier(json.loads(path.read_text("utf-8"))))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            _logger.warning(
                "The mapping file %s of WhatsApp's bridge was not read: %s", path, error
            )
    return found


def from_source(source: Source) -> SessionSource | None:
    """Convert from our source; None for a platform that cannot be one of Hermes'."""
    data = source.to_json()
    data["message_id"] = data.pop("platform_message_id", None)
    try:
        # What was stored is a platform, though this process may not have named its plug-in yet.
        return SessionSource.from_dict(data | {"platform": Platform(source.platform)})
    except ValueError:
        return None


def build_session_key(
    source: SessionSource,
    group_sessions_per_user: bool = True,
    thread_sessions_per_user: bool = False,
    **further: object,
) -> str:
    """Which conversation a source belongs to, joined by colons as Hermes prints it."""
    log_unknown("build_session_key", further, kept=False)
    isolation = Isolation(group_sessions_per_user, thread_sessions_per_user)
    return print_key(key_for(to_keyed_source(source), isolation=isolation))


def print_key(key: SessionKey) -> str:
    """Print a key in Hermes' form. It is never parsed: two keys may print alike."""
    chat, person = key.chat, key.person
    if key.platform == _WHATSAPP:
        person = person and normalize_whatsapp_identifier(person)
        if key.chat_type == ChatType.DM:
            chat = chat and normalize_whatsapp_identifier(chat)
    shown = [part for part in (chat, key.thread, person) if part is not None]
    return ":".join(["agent", "main", key.platform, key.chat_type, *shown])


def is_shared_multi_user_session(
    source: SessionSource,
    *,
    group_sessions_per_user: bool = True,
    thread_sessions_per_user: bool = False,
) -> bool:
    """Whether people share a conversation in such a place, as it is configured."""
    if source.chat_type == ChatType.DM:
        return False
    return not (thread_sessions_per_user if source.thread_id else group_sessions_per_user)


@tolerant
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
    # Of later versions; only kept.
    model_override: Json | None = None
    # How the store that the entry came from hides ids; without a store there is no salt.
    redactor: Redactor = field(default=Redactor(""), repr=False, compare=False)

    def to_dict(self) -> Json:
        """The fields as JSON; `origin` and `model_override` only if they are known."""
        shown = {each.name: getattr(self, each.name) for each in fields(self)}
        del shown["redactor"]
        shown |= {name: _time_text(shown[name]) for name in _TIMES}
        shown["platform"] = None if self.platform is None else platform_value(self.platform)
        origin, override = shown.pop("origin"), shown.pop("model_override")
        shown |= {} if override is None else {"model_override": override}
        return shown if origin is None else shown | {"origin": origin.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` gave; an unknown platform reads as None, a malformed time as now or None."""
        names = {each.name for each in fields(cls)} - {"redactor"}
        given = {name: value for name, value in data.items() if name in names and value is not None}
        now = datetime.now()  # noqa: DTZ005 - entries have naive, local times
        for name in ("created_at", "updated_at"):
            given[name] = _read_time(given.get(name)) or now
        given["last_resume_marked_at"] = _read_time(given.get("last_resume_marked_at"))
        if "expiry_finalized" not in given:
            given["expiry_finalized"] = bool(data.get("memory_flushed", False))
        given["platform"] = platform_of(data.get("platform"))
        given["origin"] = _origin(data.get("origin"))
        return cls(**given)


def entry_of(
    head: SessionHead, key: str, kept: Mapping[str, Any], redactor: Redactor
) -> SessionEntry:
    """The entry of a key that is on this session."""
    facts = kept.get("entry")
    known = facts if isinstance(facts, dict) else {}
    source = source_of(head, known)
    origin = from_source(source)
    marked = _parse_time(known.get("last_resume_marked_at"))
    tokens = head.usage
    cached = tokens.cache_read_tokens + tokens.cache_write_tokens
    return SessionEntry(
        key,
        head.id,
        created_at=local_time(head.began_at),
        updated_at=local_time(active_at(head, known)),
        origin=origin,
        platform=None if origin is None else origin.platform,
        chat_type=source.chat_type,
        input_tokens=tokens.input_tokens,
        output_tokens=tokens.output_tokens,
        cache_read_tokens=tokens.cache_read_tokens,
        cache_write_tokens=tokens.cache_write_tokens,
        total_tokens=tokens.input_tokens + tokens.output_tokens + cached,
        estimated_cost_usd=float(kept.get("estimated_cost_usd") or 0.0),
        cost_status=kept.get("cost_status") or "unknown",
        last_resume_marked_at=None if marked is None else local_time(marked),
        redactor=redactor,
        **{"display_name": source.chat_name}
        | {name: known[name] for name in KEPT_OF_ENTRY if known.get(name) is not None},
    )


def source_of(head: SessionHead, known: Mapping[str, Any]) -> Source:
    """Where the conversation of an entry is: a session that the agent opened itself does not know that."""
    kept = known.get("origin")
    return head.source if kept is None else Source.from_json(kept)


def active_at(head: SessionHead, known: Mapping[str, Any]) -> datetime:
    """The latest activity: a stored message, or a call of the gateway whose message is not stored yet."""
    touched = _parse_time(known.get("touched_at"))
    if touched is None:
        return head.last_active_at
    # A program may have assigned an earlier time.
    return touched if known.get("is_backdated") else max(head.last_active_at, touched)


def local_time(at: datetime) -> datetime:
    """The time on the machine's clock, without a zone, as Hermes has it."""
    return at.astimezone().replace(tzinfo=None)


def _origin(data: Any) -> SessionSource | None:
    if not isinstance(data, dict) or platform_of(data.get("platform")) is None:
        return None
    return SessionSource.from_dict(data)


def _time_text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _read_time(text: object) -> datetime | None:
    if isinstance(text, datetime):
        return text
    try:
        return datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _parse_time(seconds: Any) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(float(seconds), UTC)
