"""When a session is over by itself."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from msgspec import Struct, field
from msgspec.structs import force_setattr

from sessionary.errors import BadInput
from sessionary.model.source import Source

_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)


class ResetReason(StrEnum):
    """Why a session was over by itself."""

    IDLE = "idle"
    DAILY = "daily"


class ResetMode(StrEnum):
    """Which of the two clocks end a session."""

    NONE = "none"
    IDLE = "idle"
    DAILY = "daily"
    BOTH = "both"


class ResetPolicy(Struct, frozen=True, kw_only=True):
    """When a session is over by itself, and who is told."""

    mode: ResetMode = ResetMode.NONE
    idle: timedelta = timedelta(minutes=1440)
    daily_at: time = time(4)
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    notify: bool = True
    notify_exclude: frozenset[str] = frozenset({"webhook", "api"})

    def __post_init__(self) -> None:
        force_setattr(self, "mode", ResetMode(self.mode))
        if self.idle <= timedelta(0):
            raise BadInput("the idle time of a reset policy must be longer than nothing")
        if self.daily_at.tzinfo is not None:
            raise BadInput("daily_at is a time of day in `zone`; it has no zone of its own")

    def due(self, *, last_active: datetime, now: datetime) -> ResetReason | None:
        """Say why the session is over, or None while it may go on."""
        last_active, now = _utc(last_active), _utc(now)
        if self._watches_idle and now - last_active > self.idle:
            return ResetReason.IDLE
        if self._watches_day and last_active < self._latest_boundary(now):
            return ResetReason.DAILY
        return None

    def cutoff(self, now: datetime) -> datetime | None:
        """Return the instant before which a last activity makes a session due now; None if none ever is."""
        now = _utc(now)
        cutoffs = []
        if self._watches_idle and self.idle < now - datetime.min.replace(tzinfo=UTC):
            cutoffs.append(now - self.idle)
        if self._watches_day:
            cutoffs.append(self._latest_boundary(now))
        return max(cutoffs, default=None)

    def next_due(self, *, last_active: datetime) -> datetime | None:
        """The instant up to which the session goes on if nobody writes; None means for ever."""
        last_active = _utc(last_active)
        ends = []
        if self._watches_idle and self.idle < datetime.max.replace(tzinfo=UTC) - last_active:
            ends.append(last_active + self.idle)
        if self._watches_day:
            ends.append(self._next_boundary(last_active))
        return min(ends, default=None)

    def notifies(self, platform: str) -> bool:
        """Whether the person on this platform gets a notice of a reset."""
        return self.notify and platform not in self.notify_exclude

    @property
    def _watches_idle(self) -> bool:
        return self.mode in {ResetMode.IDLE, ResetMode.BOTH}

    @property
    def _watches_day(self) -> bool:
        return self.mode in {ResetMode.DAILY, ResetMode.BOTH}

    def _latest_boundary(self, now: datetime) -> datetime:
        today = now.astimezone(self.zone).date()
        # Tomorrow's may have passed already: clocks set back over midnight repeat an evening.
        boundaries = (self._boundary(today + _DAY * ahead) for ahead in (1, 0, -1))
        return next(boundary for boundary in boundaries if boundary <= now)

    def _next_boundary(self, after: datetime) -> datetime:
        today = after.astimezone(self.zone).date()
        boundaries = (self._boundary(today + _DAY * ahead) for ahead in (0, 1, 2))
        return next(boundary for boundary in boundaries if boundary > after)

    def _boundary(self, day: date) -> datetime:
        """The instant of the wall-clock hour: the first of two, or the first after a gap."""
        wall = datetime.combine(day, self.daily_at, tzinfo=self.zone).replace(fold=0)
        instant = wall.astimezone(UTC)
        if instant.astimezone(self.zone).replace(tzinfo=None) == wall.replace(tzinfo=None):
            return instant
        return _end_of_gap(wall)


def _end_of_gap(wall: datetime) -> datetime:
    """The instant at which the clocks jump over a wall-clock time that does not exist."""
    zone = wall.tzinfo
    before = wall.replace(fold=1, microsecond=0).astimezone(UTC)
    after = wall.replace(fold=0, microsecond=0).astimezone(UTC)
    old_offset = before.astimezone(zone).utcoffset()
    while after - before > _SECOND:
        middle = before + _SECOND * ((after - before) // _SECOND // 2)
        if middle.astimezone(zone).utcoffset() == old_offset:
            before = middle
        else:
            after = middle
    return after


def _utc(moment: datetime) -> datetime:
    # Two times of one zone subtract as wall clocks; only UTC counts elapsed time.
    if moment.tzinfo is None:
        raise ValueError("a time without a zone says nothing; give it in UTC")
    return moment.astimezone(UTC)


class Policies(Struct, frozen=True):
    """The reset policies of a configuration."""

    default: ResetPolicy = field(default_factory=ResetPolicy)
    by_type: Mapping[str, ResetPolicy] = field(default_factory=dict)
    by_platform: Mapping[str, ResetPolicy] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.default)

    def choose(self, source: Source) -> ResetPolicy:
        """The platform's policy, else the chat type's, else the default."""
        by_type = self.by_type.get(source.chat_type, self.default)
        return self.by_platform.get(source.platform, by_type)
