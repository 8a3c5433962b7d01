"""Where a message came from, and which conversation that is, in Hermes' names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from sessionary.compat.hermes.config import Platform
from sessionary.compat.hermes.messages import Json
from sessionary.model.key import Isolation, SessionKey, is_shared, key_for
from sessionary.model.source import ChatType, Source

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
        """For people: where this is."""
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
        """The terminal of this machine."""
        return cls(Platform.LOCAL, "cli", chat_name="CLI terminal", chat_type="dm")


def to_source(given: SessionSource) -> Source:
    """The same in the words of the house."""
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
    """The house's source in Hermes' names; None for a platform that Hermes does not know."""
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
    return printed(key_for(to_source(source), isolation=isolation))


def printed(key: SessionKey) -> str:
    """A key of the house as Hermes prints it; two keys may print alike, so none is read back."""
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
