"""The gateway's configuration, in the names that Hermes programs import."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import time, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Self
from zoneinfo import ZoneInfo

from sessionary import config
from sessionary.compat.hermes.rows import Json
from sessionary.model.reset import ResetMode, ResetPolicy

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})
_PLUGIN_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
# The plug-ins of Hermes itself; any other is known after the program has named it: `Platform("mine")`.
_SHIPPED_PLUGINS = frozenset({"google_chat", "irc", "line", "ntfy", "simplex", "teams"})
_MODES = frozenset(ResetMode)


class Platform(Enum):
    """The platforms that a Hermes gateway knows. `Platform("irc")` makes one for a plug-in's name.

    A program may keep its own `gateway.config.Platform`: a member equals the one of ours with the same value.
    """

    LOCAL = "local"
    TELEGRAM = "telegram"
    DISCORD = "discord"
    WHATSAPP = "whatsapp"
    SLACK = "slack"
    SIGNAL = "signal"
    MATTERMOST = "mattermost"
    MATRIX = "matrix"
    HOMEASSISTANT = "homeassistant"
    EMAIL = "email"
    SMS = "sms"
    DINGTALK = "dingtalk"
    FEISHU = "feishu"
    WECOM = "wecom"
    WEIXIN = "weixin"
    BLUEBUBBLES = "bluebubbles"
    QQBOT = "qqbot"
    API_SERVER = "api_server"
    WEBHOOK = "webhook"
    MSGRAPH_WEBHOOK = "msgraph_webhook"
    WECOM_CALLBACK = "wecom_callback"
    YUANBAO = "yuanbao"

    @classmethod
    def _missing_(cls, value: object) -> "Platform | None":
        """Make a member for a plug-in's name; the same name gives the same member from then on."""
        name = value.strip().lower() if isinstance(value, str) else ""
        found = cls._value2member_map_.get(name)
        if isinstance(found, Platform):
            return found
        if _PLUGIN_NAME.fullmatch(name) is None:
            return None
        made = object.__new__(cls)
        made._value_ = name
        made._name_ = name.replace("-", "_").upper()
        return cls._value2member_map_.setdefault(name, made)  # type: ignore[return-value]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Platform):
            return self is other
        return type(other).__name__ == "Platform" and platform_value(other) == self.value

    __hash__ = Enum.__hash__


def platform_of(value: object) -> Platform | None:
    """The platform by that name; None for one that is not known."""
    name = platform_value(value)
    if name in _SHIPPED_PLUGINS:
        return Platform(name)
    found = Platform._value2member_map_.get(name)
    return found if isinstance(found, Platform) else None


def platform_value(platform: object) -> str:
    """The name of a platform: of ours, of a program's own enumeration, or a plain text."""
    return str(getattr(platform, "value", platform))


@dataclass
class HomeChannel:
    """A platform's default channel."""

    platform: Platform
    chat_id: str
    name: str
    thread_id: str | None = None

    def to_dict(self) -> Json:
        """The fields; a thread only when there is one."""
        shown: Json = {
            "platform": platform_value(self.platform),
            "chat_id": self.chat_id,
            "name": self.name,
        }
        return shown if self.thread_id is None else shown | {"thread_id": self.thread_id}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` gave; numbers as ids become texts."""
        thread = data.get("thread_id")
        return cls(
            Platform(data["platform"]),
            str(data["chat_id"]),
            data.get("name") or "Home",
            None if thread is None else str(thread),
        )


@dataclass
class SessionResetPolicy:
    """When a session is over by itself: `none`, `idle`, `daily` or `both`."""

    mode: str = "both"
    at_hour: int = 4
    idle_minutes: int = 1440
    notify: bool = True
    notify_exclude_platforms: tuple[str, ...] = ("api_server", "webhook")

    def to_dict(self) -> Json:
        return asdict(self) | {"notify_exclude_platforms": list(self.notify_exclude_platforms)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read a policy; nulls and what is missing mean the defaults."""
        given = _given(cls, data)
        for name in ("at_hour", "idle_minutes"):
            if name in given:
                given[name] = int(given[name])
        if "notify" in given:
            given["notify"] = flag(given["notify"], default=True)
        if "notify_exclude_platforms" in given:
            given["notify_exclude_platforms"] = tuple(given["notify_exclude_platforms"])
        return cls(**given)


def to_reset_policy(given: SessionResetPolicy, zone: ZoneInfo) -> ResetPolicy:
    """Convert a policy, ours or a program's own with the same fields; an unknown mode never resets."""
    return ResetPolicy(
        mode=ResetMode(given.mode) if given.mode in _MODES else ResetMode.NONE,
        # Zero minutes: over as soon as time has passed.
        idle=max(timedelta(minutes=given.idle_minutes), timedelta(microseconds=1)),
        daily_at=time(int(given.at_hour) % 24),
        zone=zone,
        notify=given.notify,
    )


@dataclass
class PlatformConfig:
    """How one platform is connected."""

    enabled: bool = False
    token: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)
    home_channel: HomeChannel | None = None
    reply_to_mode: str = "first"
    gateway_restart_notification: bool = True
    extra: Json = field(default_factory=dict)

    def to_dict(self) -> Json:
        """The fields; secrets and the home channel only when they are set."""
        shown: Json = {
            "enabled": self.enabled,
            "extra": self.extra,
            "reply_to_mode": self.reply_to_mode,
            "gateway_restart_notification": self.gateway_restart_notification,
        }
        optional = {
            "token": self.token,
            "api_key": self.api_key,
            "home_channel": None if self.home_channel is None else self.home_channel.to_dict(),
        }
        return shown | {name: value for name, value in optional.items() if value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` gave; nulls mean the defaults."""
        given = _given(cls, data)
        for name in ("enabled", "gateway_restart_notification"):
            if name in given:
                given[name] = flag(given[name], default=name != "enabled")
        if "home_channel" in given:
            given["home_channel"] = HomeChannel.from_dict(given["home_channel"])
        return cls(**given)


@dataclass
class GatewayConfig:
    """The configuration of a gateway."""

    platforms: dict[Platform, PlatformConfig] = field(default_factory=dict)
    default_reset_policy: SessionResetPolicy = field(default_factory=SessionResetPolicy)
    reset_by_type: dict[str, SessionResetPolicy] = field(default_factory=dict)
    reset_by_platform: dict[Platform, SessionResetPolicy] = field(default_factory=dict)
    reset_triggers: list[str] = field(default_factory=lambda: ["/new", "/reset"])
    quick_commands: Json = field(default_factory=dict)
    sessions_dir: Path = field(default_factory=lambda: config.default_home() / "sessions")
    always_log_local: bool = True
    stt_enabled: bool = True
    group_sessions_per_user: bool = True
    thread_sessions_per_user: bool = False
    unauthorized_dm_behavior: str = "pair"
    session_store_max_age_days: int = 90

    def get_connected_platforms(self) -> list[Platform]:
        """The platforms that are on and have a token or a key."""
        return [
            platform
            for platform, each in self.platforms.items()
            if each.enabled and (each.token or each.api_key)
        ]

    def get_home_channel(self, platform: Platform) -> HomeChannel | None:
        found = self.platforms.get(platform)
        return None if found is None else found.home_channel

    def get_reset_policy(
        self, platform: Platform | None = None, session_type: str | None = None
    ) -> SessionResetPolicy:
        """The platform's policy, else the chat type's, else the default."""
        by_type = self.reset_by_type.get(session_type or "", self.default_reset_policy)
        return by_type if platform is None else self.reset_by_platform.get(platform, by_type)

    def get_unauthorized_dm_behavior(self, platform: Platform | None = None) -> str:
        """What happens to strangers who write: `pair` or `ignore`."""
        default = self.unauthorized_dm_behavior
        return self._choice(platform, "unauthorized_dm_behavior", ("pair", "ignore"), default)

    def get_notice_delivery(self, platform: Platform | None = None) -> str:
        """Where notices go: `public` or `private`."""
        return self._choice(platform, "notice_delivery", ("public", "private"), "public")

    def _choice(
        self, platform: Platform | None, name: str, known: tuple[str, ...], default: str
    ) -> str:
        found = None if platform is None else self.platforms.get(platform)
        chosen = "" if found is None else str(found.extra.get(name, "")).strip().lower()
        return chosen if chosen in known else default

    def to_dict(self) -> Json:
        shown = {each.name: getattr(self, each.name) for each in fields(self)}
        return shown | {
            "platforms": {each.value: one.to_dict() for each, one in self.platforms.items()},
            "default_reset_policy": self.default_reset_policy.to_dict(),
            "reset_by_type": {name: one.to_dict() for name, one in self.reset_by_type.items()},
            "reset_by_platform": {
                each.value: one.to_dict() for each, one in self.reset_by_platform.items()
            },
            "reset_triggers": list(self.reset_triggers),
            "quick_commands": dict(self.quick_commands),
            "sessions_dir": str(self.sessions_dir),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read a configuration: nulls mean the defaults, unknown platforms are skipped."""
        given = _given(cls, data)
        _read_as(given, "platforms", _by_platform, PlatformConfig)
        _read_as(given, "reset_by_platform", _by_platform, SessionResetPolicy)
        _read_as(given, "reset_by_type", _by_name, SessionResetPolicy)
        if "default_reset_policy" in given:
            given["default_reset_policy"] = SessionResetPolicy.from_dict(
                given["default_reset_policy"]
            )
        for each in fields(cls):
            if each.type is bool and each.name in given:
                given[each.name] = flag(given[each.name], default=bool(each.default))
        if "sessions_dir" in given:
            given["sessions_dir"] = Path(given["sessions_dir"])
        if "session_store_max_age_days" in given:
            given["session_store_max_age_days"] = int(given["session_store_max_age_days"])
        return cls(**given)


def flag(value: Any, *, default: bool) -> bool:
    """Read a boolean, also a quoted one."""
    if isinstance(value, str):
        word = value.strip().lower()
        return True if word in _TRUE else False if word in _FALSE else default
    return default if value is None else bool(value)


def _given(kind: type[Any], data: Mapping[str, Any] | None) -> Json:
    """The fields of this kind that are there and not null."""
    names = {each.name for each in fields(kind)}
    found = dict(data or {})
    return {name: value for name, value in found.items() if name in names and value is not None}


def _read_as(given: Json, name: str, how: Any, kind: Any) -> None:
    if name in given:
        given[name] = how(given[name], kind)


def _by_name(data: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    return {name: kind.from_dict(each or {}) for name, each in data.items()}


def _by_platform(data: Mapping[str, Any], kind: Any) -> dict[Platform, Any]:
    known = {platform_of(name): each for name, each in data.items()}
    return {name: kind.from_dict(each or {}) for name, each in known.items() if name is not None}
