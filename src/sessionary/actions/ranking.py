"""In which order hits are shown, found out as far as someone looks."""

from collections.abc import Iterator, Sequence
from math import log2

from sessionary.actions.finding import Finder, Match, Scores

CHUNK = 100
# So few are looked at one by one: their number is exact then.
FEW = 200
RECENCY = 0.5
USUAL_LENGTH = 60


class Ranking:
    """The matches in order; what is not looked at costs nothing.

    Candidates are ordered by how often the words occur and by age, then in chunks by their
    length too. Chunks do not mix, so that pages follow each other whatever their size.
    """

    def __init__(self, finder: Finder, found: Scores, *, by_relevance: bool) -> None:
        self._finder = finder
        self._found = found
        self._merits = _merits(found) if by_relevance else None
        self._matches = self._in_order()
        self._known: list[Match] = []
        self._shown: list[Match] = []
        self._sessions: dict[int, int] = {}
        self.total = len(found)
        if len(found) <= FEW:
            self._known = list(self._matches)
            self.total = len(self._known)
            self._matches = iter(self._known)

    def page(self, begin: int, limit: int, *, one_each: bool) -> Sequence[Match]:
        """A page of the hits: all, or the best of each session."""
        while len(self._shown) < begin + limit + 1:
            match = next(self._matches, None)
            if match is None:
                break
            times = self._sessions[match.session_no] = self._sessions.get(match.session_no, 0) + 1
            if times == 1 or not one_each:
                self._shown.append(match)
        for match in self._matches if self._known else ():
            self._sessions[match.session_no] = self._sessions.get(match.session_no, 0) + 1
        return self._shown[begin : begin + limit]

    def has(self, place: int) -> bool:
        """Whether there is a hit at a place, of which the page before has been asked."""
        return place < len(self._shown)

    def times(self, match: Match) -> int:
        """How many matches its session has, as far as anyone has looked."""
        return self._sessions[match.session_no]

    def _in_order(self) -> Iterator[Match]:
        merits = self._merits
        ordered = list(self._found) if merits is None else sorted(merits, key=merits.__getitem__)
        entries: set[int] = set()
        for first in range(0, len(ordered), CHUNK):
            found = self._finder.matches(ordered[first : first + CHUNK], self._found)
            if merits is not None:
                found.sort(key=lambda match: _worth(match, merits[match.no]), reverse=True)
            for match in found:
                # What was said and its steps are one message.
                if match.entry_no not in entries:
                    entries.add(match.entry_no)
                    yield match


def _worth(match: Match, merit: float) -> float:
    return -merit / (1 + log2(1 + match.length / USUAL_LENGTH) / 2)


def _merits(found: Scores) -> dict[int, float]:
    """Less is better. The databases score on scales of their own; age counts half as much."""
    most = max(found.values(), default=0.0) or 1.0
    older = RECENCY / (len(found) or 1)
    return {no: place * older - 1 - score / most for place, (no, score) in enumerate(found.items())}
