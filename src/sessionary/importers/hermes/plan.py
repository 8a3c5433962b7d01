"""The order of what was said in a Hermes session, whichever of its files says it.

A long conversation is cut into segments: Hermes begins a new one (or, in newer versions, a new
stretch of rows) with the first messages, a summary, and the last messages again. Here it is one
conversation: what is only said again is passed over, the summary is for the model alone.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sessionary.importers.base.alignment import aligned, merged
from sessionary.importers.hermes.message import MessageKey

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
