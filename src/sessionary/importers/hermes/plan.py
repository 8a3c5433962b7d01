"""The order of a Hermes conversation's messages, merged from all files that have some of them.

A long conversation is cut into segments: Hermes begins a new one (or, in newer versions, new rows)
with the first messages, a summary, and the last messages again. Here it is one conversation:
repeated messages are dropped, and the summary is for the model only.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from sessionary.importers.hermes.message import MessageKey

T = TypeVar("T")
Pair = tuple[int, int]
# How often a range between two common entries is divided again.
ROUNDS = 20


def aligned(a: Sequence[str], b: Sequence[str]) -> list[Pair]:
    """Return the pairs of indices at which two lists are equal, in the order of both."""
    found: list[Pair] = []
    stretches = [(0, len(a), 0, len(b), ROUNDS)]
    while stretches:
        a0, a1, b0, b1, rounds = stretches.pop()
        while a0 < a1 and b0 < b1 and a[a0] == b[b0]:
            found.append((a0, b0))
            a0, b0 = a0 + 1, b0 + 1
        while a0 < a1 and b0 < b1 and a[a1 - 1] == b[b1 - 1]:
            a1, b1 = a1 - 1, b1 - 1
            found.append((a1, b1))
        if a0 == a1 or b0 == b1 or rounds == 0:
            continue
        anchors = _anchors(a, b, (a0, a1, b0, b1))
        found += anchors
        for (ax, bx), (ay, by) in zip(
            [(a0 - 1, b0 - 1), *anchors], [*anchors, (a1, b1)], strict=True
        ):
            if anchors and ax + 1 < ay and bx + 1 < by:
                stretches.append((ax + 1, ay, bx + 1, by, rounds - 1))
    return sorted(found)


def merged(
    a: Sequence[T],
    b: Sequence[T],
    pairs: Sequence[Pair],
    *,
    time_of: Callable[[T], datetime | None],
) -> list[tuple[T | None, T | None]]:
    """Merge two lists: common items once, the others between them by time, or else a's first."""
    out: list[tuple[T | None, T | None]] = []
    ax = bx = 0
    for ay, by in [*pairs, (len(a), len(b))]:
        alone = _between(a[ax:ay], b[bx:by], time_of)
        out.extend(alone)
        if ay < len(a) and by < len(b):
            out.append((a[ay], b[by]))
        ax, bx = ay + 1, by + 1
    return out


def _between(
    a: Sequence[T], b: Sequence[T], time_of: Callable[[T], datetime | None]
) -> list[tuple[T | None, T | None]]:
    sides: list[tuple[T | None, T | None]] = [(each, None) for each in a]
    others: list[tuple[T | None, T | None]] = [(None, each) for each in b]
    times = [time_of(each) for each in (*a, *b)]
    known = [at for at in times if at is not None]
    if not a or not b or len(known) < len(times):
        return sides + others
    out = []
    a_next = b_next = 0
    while a_next < len(a) and b_next < len(b):
        if known[a_next] <= known[len(a) + b_next]:
            out.append(sides[a_next])
            a_next += 1
        else:
            out.append(others[b_next])
            b_next += 1
    return out + sides[a_next:] + others[b_next:]


def _anchors(a: Sequence[str], b: Sequence[str], stretch: tuple[int, int, int, int]) -> list[Pair]:
    """Return the longest common subsequence of two ranges, counting repeated items."""
    a0, a1, b0, b1 = stretch
    places = {key: b0 + n for n, key in enumerate(_numbered(b[b0:b1]))}
    pairs = [(a0 + n, places[key]) for n, key in enumerate(_numbered(a[a0:a1])) if key in places]
    return _longest_rise(pairs)


def _numbered(keys: Sequence[str]) -> list[tuple[str, int]]:
    seen: Counter[str] = Counter()
    out = []
    for key in keys:
        seen[key] += 1
        out.append((key, seen[key]))
    return out


def _longest_rise(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the longest subsequence of the pairs whose second numbers increase."""
    ends: list[int] = []
    at: list[int] = []
    before: list[int | None] = []
    for n, (_, second) in enumerate(pairs):
        place = bisect_left(ends, second)
        before.append(at[place - 1] if place else None)
        if place == len(ends):
            ends.append(second)
            at.append(n)
        else:
            ends[place], at[place] = second, n
    out = []
    last = at[-1] if at else None
    while last is not None:
        out.append(pairs[last])
        last = before[last]
    return out[::-1]


# How many messages may come before the summary at the beginning of a segment.
HEAD = 12
# How far back the repeated last messages of a segment are searched.
TAIL = 3000
# How often they are searched: no conversation is compressed more often.
LOOKS = 2000


@dataclass(slots=True, eq=False)
class PlannedMessage:
    """One message: its key, and its index in each source that has it."""

    message_key: MessageKey
    places: list[tuple[int, int]] = field(default_factory=list)
    id: str = ""
    # A summary that replaces everything before `keeps`, or before this message, for the model.
    is_compaction: bool = False
    keeps: "PlannedMessage | None" = None
    # The summary that the model reads instead of everything up to this message.
    summary_after: str | None = None

    @property
    def key(self) -> str:
        """The message's key."""
        return self.message_key.key

    @property
    def at(self) -> datetime | None:
        """The message's time."""
        return self.message_key.at


def steps_of(message_keys: Sequence[MessageKey], source: int) -> list[PlannedMessage]:
    """Return the messages of one source."""
    return [PlannedMessage(each, [(source, number)]) for number, each in enumerate(message_keys)]


def joined(steps: list[PlannedMessage], others: list[PlannedMessage]) -> list[PlannedMessage]:
    """Merge two records of the same conversation; nothing of either is lost."""
    if not steps or not others:
        return steps or others
    # A summary in one file does not equal the messages that another file has there.
    pairs = aligned([each.key for each in steps], [each.key for each in others])
    out: list[PlannedMessage] = []
    for ours, theirs in merged(steps, others, pairs, time_of=lambda step: step.at):
        step = ours or theirs
        assert step is not None
        if ours is not None and theirs is not None:
            ours.places += theirs.places
        out.append(step)
    return out


def merge_segments(
    segments: Sequence[list[PlannedMessage]], *, is_compressed: Sequence[bool]
) -> list[PlannedMessage]:
    """Merge segments into one conversation. `is_compressed` says how each ended."""
    made = _SegmentMerge()
    for number, segment in enumerate(segments):
        was_compressed = number > 0 and is_compressed[number - 1]
        made.take(segment, is_seam=number > 0, was_compressed=was_compressed)
    return made.plan


def name(plan: Sequence[PlannedMessage]) -> None:
    """Give each message a stable id: its key, and how often that came before."""
    seen: Counter[str] = Counter()
    for step in plan:
        seen[step.key] += 1
        count = seen[step.key]
        step.id = step.key if count == 1 else f"{step.key}-{count}"


class _SegmentMerge:
    def __init__(self) -> None:
        self.plan: list[PlannedMessage] = []
        # The messages that are neither retracted nor summaries.
        self._standing: list[PlannedMessage] = []
        self._looks = LOOKS

    def take(self, segment: list[PlannedMessage], *, is_seam: bool, was_compressed: bool) -> None:
        at = self._past_seam(segment, was_compressed=was_compressed) if is_seam else 0
        while at < len(segment):
            step = segment[at]
            at += 1
            if step.message_key.is_summary and self._standing:
                at += self._compact(step, segment, at)
                continue
            self.plan.append(step)
            if not step.message_key.is_taken_back:
                self._standing.append(step)

    def _compact(self, step: PlannedMessage, segment: list[PlannedMessage], at: int) -> int:
        """Add a summary; return how many messages after it are repetitions."""
        self._drop_head()
        repeated = self._repeated(segment, at)
        step.is_compaction = True
        step.keeps = self._standing[-repeated] if repeated else None
        self.plan.append(step)
        return repeated

    def _drop_head(self) -> None:
        """Drop the first messages of the conversation where they are repeated before a summary."""
        standing = [step.key for step in self._standing[-HEAD:]]
        first = [step.key for step in self._standing[:HEAD]]
        for count in range(min(HEAD, len(self._standing) // 2), 0, -1):
            if standing[-count:] == first[:count] and self.plan[-count:] == self._standing[-count:]:
                del self._standing[-count:], self.plan[-count:]
                return

    def _past_seam(self, segment: list[PlannedMessage], *, was_compressed: bool) -> int:
        """Return the index of a segment's first new message."""
        summary = next((n for n, s in enumerate(segment[:HEAD]) if s.message_key.is_summary), None)
        if summary is not None:
            known = {step.key for step in self._standing}
            fresh = [step for step in segment[:summary] if step.key not in known]
            self.plan += fresh
            self._standing += fresh
            return summary
        repeated = self._repeated(segment, 0)
        if repeated or not was_compressed or not segment:
            return repeated
        last_prompt = next(
            (s for s in reversed(self._standing) if s.message_key.role == "user"), None
        )
        return int(last_prompt is not None and last_prompt.key == segment[0].key)

    def _repeated(self, segment: list[PlannedMessage], at: int) -> int:
        """Return how many messages from there on repeat the last ones."""
        self._looks -= 1
        if at >= len(segment) or self._looks < 0:
            return 0
        standing = self._standing
        for begin in range(max(0, len(standing) - TAIL), len(standing)):
            count = len(standing) - begin
            if standing[begin].key == segment[at].key and at + count <= len(segment):
                again = (step.key for step in segment[at : at + count])
                if all(a.key == b for a, b in zip(standing[begin:], again, strict=True)):
                    return count
        return 0
