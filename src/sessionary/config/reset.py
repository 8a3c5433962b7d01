"""Settings of reset policies."""

from collections.abc import Mapping
from datetime import time, timedelta
from typing import Annotated, Literal

from msgspec import Struct, field

from sessionary.config.setting import INHERITS, Minutes, Setting, TimeOfDay


class ResetSettings(Struct, frozen=True, kw_only=True):
    """When a conversation starts afresh by itself."""

    mode: Annotated[
        Literal["none", "idle", "daily", "both"],
        Setting("when a conversation starts afresh: none, idle, daily, both"),
    ] = "none"
    idle: Annotated[
        Minutes, Setting("how long nobody has written (modes idle and both)", name="idle_minutes")
    ] = timedelta(minutes=1440)
    daily_at: Annotated[TimeOfDay, Setting("at what time of day (modes daily and both)")] = time(4)
    notify: Annotated[bool, Setting("notify the person that a new session has begun")] = True
    notify_exclude: Annotated[tuple[str, ...], Setting("platforms on which nobody is notified")] = (
        "api",
        "webhook",
    )


class ResetTable(ResetSettings, frozen=True, kw_only=True):
    """The table `[reset]`: the default, and what differs from it."""

    type: Annotated[
        Mapping[str, ResetSettings],
        INHERITS,
        Setting("the same for a chat type: dm, group, channel or thread"),
    ] = field(default_factory=dict)
    platform: Annotated[
        Mapping[str, ResetSettings],
        INHERITS,
        Setting("the same for a platform, which takes precedence"),
    ] = field(default_factory=dict)
