"""Time and chance as arguments: the protocols, and the system's own."""

import os
from datetime import UTC, datetime, timedelta
from typing import Protocol

from msgspec import Struct

from sessionary.errors import BadInput

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [high + low for high in _ALPHABET for low in _ALPHABET]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# The first and the last microsecond that a datetime in UTC can name.
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999


class Clock(Protocol):
    """Says what time it is, always in UTC."""

    def now(self) -> datetime: ...


class Ids(Protocol):
    """Makes identifiers that no one else has made."""

    def new(self, at: datetime) -> str: ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)


class ShiftedClock:
    """Another clock, put right by as much as it was found to be wrong."""

    def __init__(self, clock: Clock, shift: timedelta) -> None:
        self._clock = clock
        self._shift = shift

    def now(self) -> datetime:
        return self._clock.now() + self._shift


class RandomIds:
    """26 characters that sort by time: 50 bits of milliseconds, then 80 bits of chance."""

    def __init__(self) -> None:
        # The millisecond of the last id and its letters: ids are made many at a time.
        self._last = -1, ""

    def new(self, at: datetime) -> str:
        milliseconds = to_micros(at) // 1000
        last, prefix = self._last
        if milliseconds != last:
            prefix = encode_id(milliseconds, 0)[:-_RANDOM_LETTERS]
            self._last = milliseconds, prefix
        return prefix + _random_letters()


# Random letters that no id has yet: the system is asked for many at once. A forked process takes none of its parent's.
_RANDOM_LETTERS = 16
_BLOCK = 256
_unused: list[str] = []
os.register_at_fork(after_in_child=_unused.clear)
# Every letter stands for eight of the 256 bytes, so that all letters are equally likely.
_LETTER_OF_BYTE = _ALPHABET.encode() * 8


def _random_letters() -> str:
    while True:
        try:
            return _unused.pop()
        except IndexError:  # another thread may be first to take what this one adds
            letters = os.urandom(_RANDOM_LETTERS * _BLOCK).translate(_LETTER_OF_BYTE).decode()
            _unused.extend(
                letters[first : first + _RANDOM_LETTERS]
                for first in range(0, len(letters), _RANDOM_LETTERS)
            )


def encode_id(milliseconds: int, rng: int) -> str:
    """Print an id: lower-case base 32 without look-alikes, safe in URLs and file names."""
    number = (milliseconds & ((1 << 50) - 1)) << 80 | rng
    return "".join([_PAIRS[number >> shift & 1023] for shift in range(120, -1, -10)])


def to_micros(at: datetime) -> int:
    """Microseconds since 1970, the form in which both databases keep a time."""
    since = at - _EPOCH
    micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if not _FIRST <= micros <= _LAST:
        # In another zone it may still have a name; read back in UTC it would have none.
        raise BadInput(
            "A time before the year 1 or after 9999 cannot be kept; nothing was written."
        )
    return micros


def from_micros(micros: int) -> datetime:
    """The inverse of `to_micros`."""
    return _EPOCH + micros * _MICROSECOND


class Moment(Struct, frozen=True):
    """The time of a call, and where its fresh ids come from."""

    now: datetime
    ids: Ids

    def new_id(self) -> str:
        """An id of this moment."""
        return self.ids.new(self.now)
