"""Time and ids that a test can foresee."""

from datetime import UTC, datetime, timedelta
from zlib import crc32

from sessionary.clock import Moment, encode_id, to_micros

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


class FakeClock:
    """A clock that stands still until it is told to move."""

    def __init__(self, at: datetime = START) -> None:
        self._now = at

    def now(self) -> datetime:
        return self._now

    def tick(self, seconds: float = 1.0, *, days: float = 0, hours: float = 0) -> datetime:
        """Move on, or with negative numbers back; what time it is then."""
        self._now += timedelta(seconds=seconds, days=days, hours=hours)
        return self._now

    def set(self, at: datetime) -> None:
        """Jump to a time."""
        self._now = at


class SequentialIds:
    """Ids in the shape of real ones whose chance is a count: 1, 2, 3 …

    Those of another maker are others.
    """

    def __init__(self, maker: str = "") -> None:
        self._count = crc32(maker.encode()) << 40

    def new(self, at: datetime) -> str:
        self._count += 1
        return encode_id(to_micros(at) // 1000, self._count)


def moment_of(clock: FakeClock, ids: SequentialIds) -> Moment:
    """The fake moment that is now."""
    return Moment(clock.now(), ids)
