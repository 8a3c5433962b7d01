"""The part of a message that shows why it was found, with the matches marked."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice

from sessionary.model import tokenizer
from sessionary.model.query import Query, Term

OPEN, CLOSE = "⟦", "⟧"
WIDTH = 160
_LEAD = 40
_LOOKED_AT = 200_000
_MOST_WINDOWS, _MOST_IN_WINDOW = 200, 20


def snippet(text: str, query: Query, *, width: int = WIDTH) -> str:
    """One line of the text around the best match; the beginning when nothing in it matches."""
    folded, origin = _folded(text[:_LOOKED_AT])
    terms = [term for group in query.groups for term in group]
    spans = _spans(folded, terms) or _spans_inside_words(folded, terms)
    first = _densest_window(spans, width)
    begin = max(0, first - _LEAD)
    if begin:
        space = folded.find(" ", begin, first)
        begin = space + 1 if space >= 0 else begin
    end = min(len(folded), begin + width)
    shown = [(max(a, begin), min(b, end)) for a, b in spans if a < end and b > begin]
    return _marked(text, origin, begin=begin, end=end, spans=shown, whole=len(text))


def spans_in(text: str, query: Query) -> list[tuple[int, int]]:
    """Where the words of a query are in a text: sorted spans that do not overlap."""
    folded, origin = _folded(text[:_LOOKED_AT])
    found = _spans(folded, [term for group in query.groups for term in group])
    return [(origin[a], origin[b - 1] + 1) for a, b in found]


def _folded(text: str) -> tuple[str, Sequence[int]]:
    """The folded text, and for each of its characters where it came from."""
    if text.isascii():
        return text.lower(), range(len(text))
    made = list(map(_folded_character, text))
    folded = "".join(made)
    if len(folded) == len(text) and "" not in made:
        return folded, range(len(text))
    return folded, [place for place, piece in enumerate(made) for _ in piece]


@lru_cache(4096)
def _folded_character(char: str) -> str:
    return tokenizer.fold(char)


def _spans(folded: str, terms: Sequence[Term]) -> list[tuple[int, int]]:
    found = [match.span() for term in terms for match in _pattern(term).finditer(folded)]
    return _merge_overlapping(sorted(found))


def _merge_overlapping(found: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for begin, end in found:
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return [(a, b) for a, b in merged if b > a]


def _spans_inside_words(folded: str, terms: Sequence[Term]) -> list[tuple[int, int]]:
    """Matches inside of longer words: `user` in `getUserName`."""
    found = sorted(
        match.span()
        for term in terms
        for word in term.words
        for match in islice(re.finditer(re.escape(word.text), folded), 50)
    )
    return _merge_overlapping(found)


@lru_cache(64)
def _pattern(term: Term) -> re.Pattern[str]:
    runs = tokenizer.runs(term.text)
    if not runs:  # punctuation that stands alone
        return re.compile(rf"(?<!\S)\"?{re.escape(tokenizer.fold(term.text))}\"?(?!\S)")
    first, *others = map(re.escape, runs)
    # The word comes before the check of what is left of it: a text without the word is scanned fast.
    left = "" if tokenizer.is_unspaced(runs[0]) else rf"(?<![^\W_]{first})"
    body = "".join(rf"[\W_]*{run}" for run in others)
    right = "" if term.prefix or tokenizer.is_unspaced(runs[-1]) else r"(?![^\W_])"
    signs = "[+#%]*" if term.with_signs is not None else ""
    return re.compile(first + left + body + (r"[^\W_]*" if term.prefix else right) + signs)


def _densest_window(spans: Sequence[tuple[int, int]], width: int) -> int:
    """Where the window with the most matches begins; 0 without any."""
    best, most = 0, 0
    begins = [begin for begin, _ in spans[:_MOST_WINDOWS]]
    for place, begin in enumerate(begins):
        inside = min(bisect_left(begins, begin + width - _LEAD, place) - place, _MOST_IN_WINDOW)
        if inside > most:
            best, most = begin, inside
    return best


def _marked(
    text: str,
    origin: Sequence[int],
    *,
    begin: int,
    end: int,
    spans: Sequence[tuple[int, int]],
    whole: int,
) -> str:
    pieces: list[str] = []
    at = begin
    for a, b in spans:
        pieces += [_cut(text, origin, at, a), OPEN, _cut(text, origin, a, b), CLOSE]
        at = b
    pieces.append(_cut(text, origin, at, end))
    line = " ".join("".join(pieces).split())
    before = "…" if begin > 0 else ""
    after = "…" if end < len(origin) or whole > _LOOKED_AT else ""
    return f"{before}{line}{after}"


def _cut(text: str, origin: Sequence[int], begin: int, end: int) -> str:
    if begin >= end:
        return ""
    last = origin[end] if end < len(origin) else min(len(text), _LOOKED_AT)
    return text[origin[begin] : last]
