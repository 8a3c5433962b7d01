"""Segmentation: from a text to the words the index knows. Both databases get the same words.

A word is a run of letters and digits, folded to lower case without diacritics. Scripts
that do not put spaces between words are cut into pairs of neighbouring characters, the
last character of a run standing alone as well, so that any part of a run can be found.
Everything else separates, except signs beyond ASCII, which are words of their own.
"""

import re
import unicodedata
from dataclasses import dataclass

LONGEST = 64
# + # % straight behind a word make another word: C++, C#, 50%. They are kept as private letters.
_STICKY = str.maketrans("+#%", "\ue02b\ue023\ue025")

_UNSPACED = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    "\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
)
_SIGNS = (
    "\u00a2-\u00a9\u00ac\u00ae-\u00b1\u00d7\u00f7\u2030-\u2031\u20a0-\u20cf\u2100-\u214f\u2190-\u2bff"
    "\U0001f000-\U0001faff"
)
# Vowel signs are no letters to the regular expressions, but belong to their word.
_MARKED = "\u0900-\u0963\u0966-\u0dff\u0f00-\u0f03\u0f18-\u0fbc"
_DIACRITICS = re.compile(
    "[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c7\u064b-\u065f\u0670\u1ab0-\u1aff\u1dc0-\u1dff\ufe00-\ufe0f\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\u00ad]"
)
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_WORD = re.compile(
    f"(?P<unspaced>[{_UNSPACED}]+)|(?P<sign>[{_SIGNS}])|(?:(?![{_UNSPACED}{_SIGNS}])[^\\W_]|[{_MARKED}])+"
)
_STICKY_WORD = re.compile(r"([^\W_]+)([+#%]+)")
_HUMP = re.compile(r"[a-z0-9][A-Z]|[A-Z][A-Z][a-z]")
_HUMPED = re.compile(r"\b[A-Za-z0-9]*(?:[a-z0-9][A-Z]|[A-Z][A-Z][a-z])[A-Za-z0-9]*\b")
_HUMPS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


@dataclass(frozen=True, slots=True)
class Word:
    """One word; `begins` means that it may be the beginning of what the text has there."""

    text: str
    begins: bool = False


def fold(text: str) -> str:
    """Lower case, compatibility forms unified, diacritics gone."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFC", _DIACRITICS.sub("", decomposed)).casefold()


def words(text: str) -> list[str]:
    """The words of a text in order, as the index keeps them."""
    folded = fold(text)
    if folded.isascii():
        found = _ASCII_WORD.findall(folded)
        return found if len(folded) <= LONGEST else [word[:LONGEST] for word in found]
    out: list[str] = []
    for match in _WORD.finditer(folded):
        run = match[0]
        if match.lastgroup == "unspaced":
            out.extend(run[at : at + 2] for at in range(len(run)))
        else:
            out.append(run[:LONGEST])
    return out


def wanted(text: str) -> list[Word]:
    """The words to look for so that every text in which this one stands is found.

    A run without spaces at the end of the question may go on in the text: its last
    character alone is looked for as a beginning, longer runs by their pairs.
    """
    folded = fold(text)
    matches = list(_WORD.finditer(folded))
    out: list[Word] = []
    for place, match in enumerate(matches):
        run = match[0]
        if match.lastgroup != "unspaced":
            out.append(Word(run[:LONGEST]))
        elif place + 1 < len(matches) and matches[place + 1].start() >= match.end():
            out.extend(Word(run[at : at + 2]) for at in range(len(run)))
        elif len(run) == 1:
            out.append(Word(run, begins=True))
        else:
            out.extend(Word(run[at : at + 2]) for at in range(len(run) - 1))
    return out


def sticky(text: str) -> list[str]:
    """Words with the signs straight behind them (`C++`), in a form that the index can keep."""
    if not ("+" in text or "#" in text or "%" in text):
        return []
    return [
        fold(word)[:LONGEST] + signs[:8].translate(_STICKY)
        for word, signs in _STICKY_WORD.findall(text)
    ]


def humps(text: str) -> list[str]:
    """The parts of names written in one: `getUserName` gives get, user, name."""
    if not _HUMP.search(text):
        return []
    return [
        part.lower()[:LONGEST] for name in _HUMPED.findall(text) for part in _HUMPS.findall(name)
    ]


def runs(text: str) -> list[str]:
    """The folded text cut only where words end, scripts without spaces left whole."""
    return [match[0] for match in _WORD.finditer(fold(text))]


def is_unspaced(run: str) -> bool:
    """Whether a run is of a script without spaces between words, or a sign."""
    match = _WORD.match(run)
    return match is not None and match.lastgroup is not None
