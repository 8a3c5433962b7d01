"""What the calls of a Codex thread used, from its running counts."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from sessionary.formats import shape
from sessionary.importers import times
from sessionary.importers.base import Json
from sessionary.model.usage import Usage

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# In milliseconds: what such a name can hold goes beyond every calendar.
_LATEST = 10**14
_FIELDS = (
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
)


class Tokens:
    """The calls so far.

    A count is written after each call and again when nothing has changed: it is a call only when the
    total has grown. A call is named by its turn and its number in it, so that a copy of a thread has
    the same names and is paid once.
    """

    def __init__(self, noted: Any = None) -> None:
        note = shape.record(noted)
        self.model = shape.name(note.get("model"))
        self.provider = shape.name(note.get("provider"))
        self._turn = shape.name(note.get("turn"))
        self._number = shape.count(note.get("number"))
        self._total = tuple(map(shape.count, shape.items(note.get("total"))))

    @property
    def note(self) -> Json:
        """What to remember until the next reading."""
        return {
            "model": self.model,
            "provider": self.provider,
            "turn": self._turn,
            "number": self._number,
            "total": list(self._total),
        }

    def begin(self, turn_id: str | None, model: str | None) -> None:
        """A turn begins, or its settings are told again."""
        self.model = model or self.model
        is_name = turn_id is not None and _UUID.fullmatch(turn_id) is not None
        turn = turn_id if is_name else None
        if turn != self._turn:
            self._turn, self._number = turn, 0 if turn is not None else self._number

    def take(self, info: object, *, thread: str, at: datetime, is_copy: bool) -> Usage | None:
        """The call that a count tells of, if it tells of one."""
        told = shape.record(info)
        total = _counts(told.get("total_token_usage"))
        if not told or (total == self._total and any(total)):
            return None
        last = told.get("last_token_usage")
        used = _counts(last) if isinstance(last, dict) else _difference(total, self._total)
        self._total = total
        self._number += 1
        if not any(used) or (is_copy and self._turn is None):
            return None
        sent, cached, output, reasoning = used
        return Usage(
            model=self.model,
            provider=self.provider,
            input_tokens=max(0, sent - cached),
            output_tokens=output,
            cache_read_tokens=min(cached, sent),
            reasoning_tokens=min(reasoning, output),
            call_id=f"codex:{self._turn or thread}:{self._number}",
            at=at,
        )


def time_in(turn_id: str | None) -> datetime | None:
    """When a turn began, where its name tells: such names begin with milliseconds."""
    if turn_id is None or not _UUID.fullmatch(turn_id) or turn_id[14] != "7":
        return None
    at = _EPOCH + timedelta(milliseconds=min(int(turn_id.replace("-", "")[:12], 16), _LATEST))
    return at if times.is_sensible(at) else None


def _counts(told: object) -> tuple[int, ...]:
    counted = shape.record(told)
    return tuple(shape.count(counted.get(name)) for name in _FIELDS)


def _difference(total: tuple[int, ...], before: tuple[int, ...]) -> tuple[int, ...]:
    earlier = before or (0,) * len(total)
    return tuple(max(0, now - then) for now, then in zip(total, earlier, strict=False))
