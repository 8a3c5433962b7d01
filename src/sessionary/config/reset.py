"""Settings of reset policies."""

from dataclasses import dataclass
from datetime import time, timedelta

from sessionary.config.table import Table
from sessionary.errors import BadInput


@dataclass(frozen=True, slots=True)
class ResetSettings:
    """One table of a reset policy."""

    mode: str = "none"
    idle: timedelta = timedelta(minutes=1440)
    daily_at: time = time(4)
    notify: bool = True
    notify_exclude: tuple[str, ...] = ("api", "webhook")


DEFAULT = ResetSettings()


def read(table: Table, default: ResetSettings) -> ResetSettings:
    """Read a policy; settings that it does not have come from the default."""
    mode = table.text("mode", default.mode) or default.mode
    if mode not in ("none", "idle", "daily", "both"):
        raise BadInput(f"A reset mode is none, idle, daily or both, not {mode!r}.")
    minutes = table.number("idle_minutes", default.idle.total_seconds() / 60)
    settings = ResetSettings(
        mode=mode,
        idle=timedelta(minutes=minutes),
        daily_at=_time(table.text("daily_at") or default.daily_at.isoformat("minutes")),
        notify=table.flag("notify", default=default.notify),
        notify_exclude=table.texts("notify_exclude", default.notify_exclude),
    )
    # The default's own table contains those of types and platforms: the caller checks it last.
    if default is not DEFAULT:
        table.refuse_unknown()
    return settings


def _time(text: str) -> time:
    try:
        found = time.fromisoformat(text)
    except ValueError as error:
        raise BadInput(f"A time of day is written like 04:00, not {text!r}.") from error
    if found.tzinfo is not None:
        raise BadInput(f"The time of day {text!r} has a zone of its own; set `zone` instead.")
    return found
