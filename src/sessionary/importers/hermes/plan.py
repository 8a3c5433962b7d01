"""Two records of one conversation as one: what both have stands once, what one has alone stays."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from sessionary.importers.hermes.message import MessageKey

T = TypeVar("T")
Pair = tuple[int, int]
# How often a stretch between two common lines is looked at more closely.
ROUNDS = 20


def aligned(a: Sequence[str], b: Sequence[str]) -> list[Pair]:
    """Which places of two lists say the same, in the order of both."""
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
    """Both lists as one: common lines together, the others between them by time, else a's first."""
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
    here = there = 0
    while here < len(a) and there < len(b):
        if known[here] <= known[len(a) + there]:
            out.append(sides[here])
            here += 1
        else:
            out.append(others[there])
            there += 1
    return out + sides[here:] + others[there:]


def _anchors(a: Sequence[str], b: Sequence[str], stretch: tuple[int, int, int, int]) -> list[Pair]:
    """The longest row of lines that both have in the same order, each by how often it came."""
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
    """The longest part of the pairs whose second numbers rise too."""
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
    here = at[-1] if at else None
    while here is not None:
        out.append(pairs[here])
        here = before[here]
    return out[::-1]


# So many messages may stand before the summary at the beginning of a segment.
HEAD = 12
# So far back the last messages of a segment are looked for.
TAIL = 3000
# And so often: no one compresses a conversation more than this.
LOOKS = 2000


@dataclass(slots=True, eq=False)
class PlannedMessage:
    """One message: by what it is known, and on which tapes it stands at which number."""

    light: MessageKey
    places: list[tuple[int, int]] = field(default_factory=list)
    id: str = ""
    # A summary for the model: everything before `keeps`, or before here, is replaced by it.
    is_compaction: bool = False
    keeps: "PlannedMessage | None" = None
    # What the model read from here on in place of all that was said up to this message.
    summary_after: str | None = None

    @property
    def key(self) -> str:
        """By what it is known."""
        return self.light.key

    @property
    def at(self) -> datetime | None:
        """When it was said."""
        return self.light.at


def steps_of(lights: Sequence[MessageKey], tape: int) -> list[PlannedMessage]:
    """What one tape says."""
    return [PlannedMessage(each, [(tape, number)]) for number, each in enumerate(lights)]


def joined(steps: list[PlannedMessage], others: list[PlannedMessage]) -> list[PlannedMessage]:
    """Two records of the same as one; nothing of either is left out."""
    if not steps or not others:
        return steps or others
    # A summary of one file is not what another file has in its place.
    pairs = aligned([each.key for each in steps], [each.key for each in others])
    out: list[PlannedMessage] = []
    for ours, theirs in merged(steps, others, pairs, time_of=lambda step: step.at):
        step = ours or theirs
        assert step is not None
        if ours is not None and theirs is not None:
            ours.places += theirs.places
        out.append(step)
    return out


def unfolded(
    segments: Sequence[list[PlannedMessage]], *, is_compressed: Sequence[bool]
) -> list[PlannedMessage]:
    """Segments as one conversation. `is_compressed` tells of each how it ended."""
    made = _Unfolding()
    for number, segment in enumerate(segments):
        was_compressed = number > 0 and is_compressed[number - 1]
        made.take(segment, is_seam=number > 0, was_compressed=was_compressed)
    return made.plan


def name(plan: Sequence[PlannedMessage]) -> None:
    """Give each message a name that stays: what it says, and how often that came before."""
    seen: Counter[str] = Counter()
    for step in plan:
        seen[step.key] += 1
        count = seen[step.key]
        step.id = step.key if count == 1 else f"{step.key}-{count}"


class _Unfolding:
    def __init__(self) -> None:
        self.plan: list[PlannedMessage] = []
        # What stands: neither taken back nor a summary.
        self._said: list[PlannedMessage] = []
        self._looks = LOOKS

    def take(self, segment: list[PlannedMessage], *, is_seam: bool, was_compressed: bool) -> None:
        at = self._past_seam(segment, was_compressed=was_compressed) if is_seam else 0
        while at < len(segment):
            step = segment[at]
            at += 1
            if step.light.is_summary and self._said:
                at += self._compact(step, segment, at)
                continue
            self.plan.append(step)
            if not step.light.is_taken_back:
                self._said.append(step)

    def _compact(self, step: PlannedMessage, segment: list[PlannedMessage], at: int) -> int:
        """Note a summary; say how many messages behind it are only said again."""
        self._drop_head()
        repeated = self._repeated(segment, at)
        step.is_compaction = True
        step.keeps = self._said[-repeated] if repeated else None
        self.plan.append(step)
        return repeated

    def _drop_head(self) -> None:
        """Forget the first messages where they are said again before a summary."""
        said = [step.key for step in self._said[-HEAD:]]
        first = [step.key for step in self._said[:HEAD]]
        for count in range(min(HEAD, len(self._said) // 2), 0, -1):
            if said[-count:] == first[:count] and self.plan[-count:] == self._said[-count:]:
                del self._said[-count:], self.plan[-count:]
                return

    def _past_seam(self, segment: list[PlannedMessage], *, was_compressed: bool) -> int:
        """Where a segment begins to say something new."""
        summary = next((n for n, s in enumerate(segment[:HEAD]) if s.light.is_summary), None)
        if summary is not None:
            known = {step.key for step in self._said}
            fresh = [step for step in segment[:summary] if step.key not in known]
            self.plan += fresh
            self._said += fresh
            return summary
        repeated = self._repeated(segment, 0)
        if repeated or not was_compressed or not segment:
            return repeated
        asked = next((s for s in reversed(self._said) if s.light.role == "user"), None)
        return int(asked is not None and asked.key == segment[0].key)

    def _repeated(self, segment: list[PlannedMessage], at: int) -> int:
        """How many messages from there on are the last ones said, once more."""
        self._looks -= 1
        if at >= len(segment) or self._looks < 0:
            return 0
        said = self._said
        for begin in range(max(0, len(said) - TAIL), len(said)):
            count = len(said) - begin
            if said[begin].key == segment[at].key and at + count <= len(segment):
                again = (step.key for step in segment[at : at + count])
                if all(a.key == b for a, b in zip(said[begin:], again, strict=True)):
                    return count
        return 0
