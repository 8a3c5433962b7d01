"""Two records of one conversation as one: what both have stands once, what one has alone stays."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

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
