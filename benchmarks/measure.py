"""Measuring side by side: every contestant in every round, ratios within a round."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

AS_IT_IS = "as it is"
SLOW = "with an fsync of 2 ms"
Kind = Literal["product", "floor", "peer"]


@dataclass(frozen=True, slots=True)
class Scale:
    """How long and how large."""

    rounds: int
    seconds: float
    sizes: tuple[int, ...]
    messages: int

    @property
    def largest(self) -> int:
        """The number of sessions in the largest store."""
        return self.sizes[-1]


SCALES = {
    "tiny": Scale(1, 0.02, (10, 60), 300),
    "quick": Scale(2, 0.15, (10, 1_000), 2_000),
    "normal": Scale(5, 0.3, (10, 1_000, 100_000), 10_000),
    "full": Scale(7, 0.5, (10, 1_000, 100_000, 1_000_000), 10_000),
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One contestant in one round."""

    count: int
    seconds: float
    latencies: Sequence[float]
    # Where a contestant leaves out what is not its work; otherwise that of the whole run counts.
    cpu_seconds: float | None = None

    @property
    def rate(self) -> float:
        """How many per second."""
        return self.count / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Contestant:
    """Something that can do the work for a while."""

    name: str
    kind: Kind
    run: Callable[[float], Sample]


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be reached, in words, and whether it is."""

    text: str
    is_met: Callable[["Results"], bool]
    only_slow: bool = False
    figure: Callable[["Results"], str] = lambda _: ""


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison. `by` says what a ratio is made of: more per second, or less time."""

    name: str
    contestants: tuple[Contestant, ...]
    goals: tuple[Goal, ...] = ()
    by: Literal["rate", "p50"] = "rate"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    bench: str
    disk: str
    case: str
    name: str
    kind: str
    rate: float
    p50_ms: float
    p99_ms: float
    ratio: float | None = None
    lowest: float | None = None
    highest: float | None = None
    goal: str = ""
    met: str = ""
    figure: str = ""
    load: float = 0.0
    cpu_us: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The row as a dictionary."""
        return asdict(self)


@dataclass
class Results:
    """The samples of a case, and the CPU seconds of one piece of work in each, by contestant."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)

    def cpu_ms(self, name: str) -> float:
        """The CPU time of one piece of work, in milliseconds: the median of the rounds."""
        return statistics.median(self.cpu[name]) * 1000

    def rate(self, name: str) -> float:
        """The median of the rounds."""
        return statistics.median(sample.rate for sample in self.samples[name])

    def percentile(self, name: str, percent: int) -> float:
        """A percentile of all latencies, in seconds."""
        found = sorted(late for sample in self.samples[name] for late in sample.latencies)
        return found[min(len(found) - 1, len(found) * percent // 100)] if found else 0.0

    def p50(self, name: str) -> float:
        """The median latency, in seconds."""
        return self.percentile(name, 50)

    def p99(self, name: str) -> float:
        """The latency that one in a hundred exceeds, in seconds."""
        return self.percentile(name, 99)

    def ratios(self, name: str, other: str, by: str) -> list[float]:
        """One contestant over another, round by round."""
        pairs = zip(self.samples[name], self.samples[other], strict=True)
        if by == "rate":
            return [one.rate / two.rate for one, two in pairs if two.rate]
        return [
            statistics.median(one.latencies) / statistics.median(two.latencies)
            for one, two in pairs
            if one.latencies and two.latencies
        ]

    def ratio(self, name: str, other: str, by: str = "rate") -> float:
        """The median of the ratios."""
        return statistics.median(self.ratios(name, other, by) or [0.0])


def rows(bench: str, disk: str, case: Case, results: Results) -> list[Row]:
    """The lines of a case: the contestants, then the goals that they had."""
    floor = next((each.name for each in case.contestants if each.kind == "floor"), None)
    out = []
    for each in case.contestants:
        found: list[float] = []
        if floor is not None and each.name != floor:
            found = results.ratios(each.name, floor, case.by)
        out.append(
            Row(
                bench,
                disk,
                case.name,
                each.name,
                each.kind,
                results.rate(each.name),
                results.p50(each.name) * 1000,
                results.p99(each.name) * 1000,
                statistics.median(found) if found else None,
                min(found, default=None),
                max(found, default=None),
                cpu_us=results.cpu_ms(each.name) * 1000 if each.name in results.cpu else None,
            )
        )
    for goal in case.goals:
        if goal.only_slow and disk != SLOW:
            continue  # set for a disk on which a sync costs something
        met = "met" if goal.is_met(results) else "not met"
        goal_row = Row(bench, disk, case.name, "", "goal", 0, 0, 0, goal=goal.text, met=met)
        out.append(replace(goal_row, figure=goal.figure(results)))
    return out


def attempts(began: float, seconds: float) -> Iterator[float]:
    """Yield the start of each attempt: of one in any case, of more until the time is over.

    On a busy machine the time can be over before the first attempt; a sample must not be empty.
    """
    while True:
        yield time.perf_counter()
        if time.perf_counter() - began >= seconds:
            return


def repeat(work: Callable[[], int | None]) -> Callable[[float], Sample]:
    """A contestant that does its work again and again; the work says how much it was, if not 1."""

    def run(seconds: float) -> Sample:
        latencies: list[float] = []
        count = 0
        began = now = time.perf_counter()
        while not latencies or now - began < seconds:
            done = work() or 1
            after = time.perf_counter()
            latencies.extend([after - now] * min(done, 1000))
            count += done
            now = after
        return Sample(count, now - began, latencies)

    return run
