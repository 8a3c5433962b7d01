"""What a fleet needs, simulated from measured costs: `python -m benchmarks.fleet growth.csv`.

A turn writes three times, as the engine does (taken in and begun; ended, with its reply as being sent; marked as sent),
takes a third of its CPU each time, and waits for a commit that it shares with the others that wait. After the first it
waits for its model, which costs us nothing. The reply is sent after the second: nobody waits for the third.
"""

import csv
import heapq
import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

DAY, YEAR_DAYS = 86_400, 365
MESSAGES_A_TURN = 2
STEPS, STEPS_TO_REPLY = 3, 2
# The busiest minutes of a day, over its mean.
PEAK = 3.0
FSYNC_SECONDS = 0.002
THINKING_SECONDS = 4.0
# What a person should not notice, added to the model's own time by a whole turn.
MOST_ADDED_SECONDS = 0.1
MOST_BUSY = 0.7
# Until as many turns end as begin; only then is it counted how busy a process is.
WARM_SECONDS = 4 * THINKING_SECONDS
SIMULATED_SECONDS = 40.0
# People look at what they wrote and what was answered; some search.
LISTS_A_TURN, OPENS_A_TURN, SEARCHES_A_TURN = 1.0, 1.0, 0.05


@dataclass(frozen=True, slots=True)
class Costs:
    """What one turn costs, and what stays of it, on one database."""

    database: str
    cpu: float
    server_cpu: float
    reading_cpu: float
    server_reading_cpu: float
    written: float
    stored: float


@dataclass(frozen=True, slots=True)
class Load:
    """One process for a while: how late turns were, how busy it was, how often it synced."""

    rate: float
    p50: float
    p99: float
    busy: float
    syncs: float


@dataclass(frozen=True, slots=True)
class Need:
    """What so many messages a day take."""

    messages_a_day: int
    database: str
    peak_turns: float
    processes: int
    each: Load
    cores: float
    server_cores: float
    commits: float
    written_a_second: float
    bytes_a_year: float


def costs(points: Sequence[Mapping[str, str]], database: str) -> Costs:
    """The measured costs of a database, at its largest size."""
    turn = _at_largest(points, database, "sessions", "message to reply, 16 at once")
    plain = _at_largest(points, database, "sessions", "append")
    indexed = _at_largest(points, database, "messages", "append")
    # Turns are measured without an index and with short texts. What a message of the corpus costs
    # more than such an append is the index's share, and its own length.
    words = _bytes_a_message(points, database)
    return Costs(
        database,
        (_value(turn, "cpu_ms") + _more(indexed, plain, "cpu_ms")) / 1000,
        (_value(turn, "server_cpu_ms") + _more(indexed, plain, "server_cpu_ms")) / 1000,
        _reading(points, database, "cpu_ms") / 1000,
        _reading(points, database, "server_cpu_ms") / 1000,
        _value(turn, "written_bytes") + _more(indexed, plain, "written_bytes"),
        _value(turn, "stored_bytes")
        + MESSAGES_A_TURN * max(0.0, words - _value(plain, "stored_bytes")),
    )


def _bytes_a_message(points: Sequence[Mapping[str, str]], database: str) -> float:
    """What one more message takes, with its index: an empty database has a size of its own."""
    sizes = {
        float(point["size"]): float(point["store_bytes"]) + float(point["index_bytes"])
        for point in points
        if (point["database"], point["grown"]) == (database, "messages")
    }
    return (sizes[max(sizes)] - sizes[min(sizes)]) / (max(sizes) - min(sizes))


def _reading(points: Sequence[Mapping[str, str]], database: str, name: str) -> float:
    listed = _at_largest(points, database, "sessions", "list 50")
    opened = _at_largest(points, database, "messages", "open the last 200")
    sought = _at_largest(points, database, "messages", "search a medium word")
    return (
        _value(listed, name) * LISTS_A_TURN
        + _value(opened, name) * OPENS_A_TURN
        + _value(sought, name) * SEARCHES_A_TURN
    )


def _more(indexed: Mapping[str, str], plain: Mapping[str, str], name: str) -> float:
    return MESSAGES_A_TURN * max(0.0, _value(indexed, name) - _value(plain, name))


def simulate(cost: Costs, rate: float, *, seconds: float = SIMULATED_SECONDS) -> Load:
    """A process to which turns come at this rate, by chance, for so long."""
    rng = random.Random(7)
    step_cpu = (cost.cpu + cost.reading_cpu) / STEPS
    # What happens next, by time: a step of a turn that wants CPU.
    waiting: list[tuple[float, int, int, float]] = []
    at, number = rng.expovariate(rate), 0
    while at < seconds:
        waiting.append((at, number, 1, 0.0))
        number += 1
        at += rng.expovariate(rate)
    heapq.heapify(waiting)
    cpu_free, used, syncs = 0.0, 0.0, 0
    sync_began, sync_ends = -1.0, 0.0
    added: list[float] = []
    while waiting:
        came, turn, step, late = heapq.heappop(waiting)
        cpu_free = max(came, cpu_free) + step_cpu
        is_counted = WARM_SECONDS < came < seconds
        used += step_cpu * is_counted
        if cpu_free > sync_began:
            # A commit that begins after this step is shared with those that wait for it too.
            sync_began = max(cpu_free, sync_ends)
            sync_ends = sync_began + FSYNC_SECONDS
            syncs += is_counted
        late += sync_ends - came
        if step == STEPS_TO_REPLY:
            added.append(late)
        if step == STEPS:
            continue
        thinking = rng.expovariate(1 / THINKING_SECONDS) if step == 1 else 0.0
        heapq.heappush(waiting, (sync_ends + thinking, turn, step + 1, late))
    added.sort()
    counted = seconds - WARM_SECONDS
    return Load(
        rate,
        added[len(added) // 2],
        added[min(len(added) - 1, len(added) * 99 // 100)],
        used / counted,
        syncs / counted,
    )


def most_for_one(cost: Costs) -> float:
    """The most turns a second that one process takes without keeping people waiting."""
    low, high = 0.0, 1 / (cost.cpu + cost.reading_cpu)
    for _ in range(12):
        middle = (low + high) / 2
        found = simulate(cost, middle)
        is_fine = found.p99 <= MOST_ADDED_SECONDS and found.busy <= MOST_BUSY
        low, high = (middle, high) if is_fine else (low, middle)
    return low


def need(cost: Costs, messages_a_day: int) -> Need:
    """What the busiest minutes of such a day take, and what a year of them leaves."""
    turns = messages_a_day / MESSAGES_A_TURN / DAY
    peak = turns * PEAK
    processes = max(1, math.ceil(peak / most_for_one(cost)))
    each = simulate(cost, peak / processes)
    return Need(
        messages_a_day,
        cost.database,
        peak,
        processes,
        each,
        peak * (cost.cpu + cost.reading_cpu),
        peak * (cost.server_cpu + cost.server_reading_cpu),
        each.syncs * processes,
        peak * cost.written,
        turns * DAY * YEAR_DAYS * cost.stored,
    )


def read(path: Path) -> list[dict[str, str]]:
    """The points of a measurement."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def lines(points: Sequence[Mapping[str, str]], days: Sequence[int]) -> Iterator[str]:
    """The needs as text, one line each."""
    for database in dict.fromkeys(point["database"] for point in points):
        cost = costs(points, database)
        yield f"{database}: one process takes {most_for_one(cost):,.0f} turns a second"
        for each in (need(cost, day) for day in days):
            yield (
                f"  {each.messages_a_day:,} messages a day: {each.peak_turns:,.0f} turns/s at peak,"
                f" {each.processes:,} processes, {each.cores + each.server_cores:,.1f} cores,"
                f" {each.commits:,.0f} syncs/s, {each.bytes_a_year / 1e9:,.0f} GB a year,"
                f" p99 {each.each.p99 * 1000:.0f} ms"
            )


def _at_largest(
    points: Sequence[Mapping[str, str]], database: str, grown: str, operation: str
) -> Mapping[str, str]:
    found = [
        point
        for point in points
        if (point["database"], point["grown"], point["operation"]) == (database, grown, operation)
    ]
    return max(found, key=lambda point: int(point["size"]))


def _value(point: Mapping[str, str], name: str) -> float:
    return float(point[name])


if __name__ == "__main__":
    file, *asked = sys.argv[1:]
    for line in lines(read(Path(file)), [int(float(day)) for day in asked] or [10**6, 10**9]):
        sys.stdout.write(line + "\n")
