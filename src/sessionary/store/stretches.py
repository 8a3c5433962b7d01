"""Which stretches of documents can be from between two times, by what their blocks say.

Documents are numbered as they were written down, so that times mostly grow with the numbers; what
was imported may be older than its neighbours.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

BLOCK_BITS = 12
MOST = 8


class Block(NamedTuple):
    """So many documents in a row, and the first and the last of their times."""

    no: int
    first_at: int
    last_at: int


class Stretch(NamedTuple):
    """Documents from `above` on and before `below`; `is_inside`: all of them are between the times."""

    above: int
    below: int
    is_inside: bool

    @property
    def is_long(self) -> bool:
        """Whether it is of more than one block."""
        return self.below - self.above > 1 << BLOCK_BITS


def between(blocks: Iterable[Block], after: int, before: int) -> list[Stretch]:
    """The stretches that may have documents of these times, newest first; not more than a few."""
    touched = sorted(each for each in blocks if each.first_at < before and each.last_at >= after)
    runs = groupby(
        enumerate(touched),
        key=lambda each: (each[1].no - each[0], _is_inside(each[1], after, before)),
    )
    found = [
        _stretch([block for _, block in run], is_inside=is_inside) for (_, is_inside), run in runs
    ]
    if len(found) > MOST:
        found = [_stretch(touched, is_inside=False)]
    return found[::-1]


def _is_inside(block: Block, after: int, before: int) -> bool:
    return block.first_at >= after and block.last_at < before


def _stretch(run: list[Block], *, is_inside: bool) -> Stretch:
    return Stretch(run[0].no << BLOCK_BITS, run[-1].no + 1 << BLOCK_BITS, is_inside)
