"""Segmentation: from a text to the words the index knows. Both databases get the same words.

A word is a run of letters and digits, folded to lower case without diacritics. Scripts
that do not put spaces between words are cut into pairs of neighbouring characters, the
last character of a run standing alone as well, so that any part of a run can be found.
Everything else separates, except signs beyond ASCII, which are words of their own.

After the words of a text, behind a gap, come its extras: the parts of camel-case names
(`getUserName`), words with the signs behind them (`C++`), punctuation between spaces (`=>`).
"""

import re
import unicodedata
from functools import cache

from msgspec import Struct

LONGEST = 64
# Between the words of a text and its extras: no phrase reaches across.
GAP = "\ue004"
# Signs that can be searched for are stored as private-use characters: databases split words at the real ones.
_PRIVATE = {code: chr(0xE100 + code) for code in range(128) if not chr(code).isalnum()}
_NEITHER = dict.fromkeys(range(0xD800, 0xE200))
_PLAIN = {code: chr(code).lower() if chr(code).isalnum() else " " for code in range(128)}
# Compatibility forms that would be joined to the word before them: Foo™ is Foo.
_APART = str.maketrans("™℠", "  ")

_UNSPACED = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    "\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
)
_SIGNS = (
    "\u00a2-\u00a9\u00ac\u00ae-\u00b1\u00d7\u00f7\u2030-\u2031\u20a0-\u20cf\u2100-\u214f\u2190-\u2bff"
    "\U0001f000-\U0001faff"
)
# Vowel signs are no letters for regular expressions, but are part of a word.
_MARKED = "\u0900-\u0963\u0966-\u0dff\u0f00-\u0f03\u0f18-\u0fbc"
_DIACRITICS = (
    "[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c7"
    "\u064b-\u065f\u0670"
    "\u1ab0-\u1aff\u1dc0-\u1dff\ufe00-\ufe0f\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\u00ad\u0640]"
)
_WORD = f"(?P<unspaced>[{_UNSPACED}]+)|(?P<sign>[{_SIGNS}])|(?:(?![{_UNSPACED}{_SIGNS}])[^\\W_]|[{_MARKED}])+"
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")
_WORD_WITH_SIGNS = re.compile(r"([^\W_]+)([+#%]+)")
# Begins with what is rare, a capital letter, so that a text without one is scanned fast.
_CAPITAL = re.compile(r"[A-Z](?:(?<=[a-z0-9][A-Z])|(?<=[A-Z][A-Z])(?=[a-z]))")
# The kind of each character of an ASCII text, as one of five letters: searching in that is faster still.
_KINDS = (
    (" ", str.isspace),
    ("A", str.isupper),
    ("0", str.isdigit),
    ("a", str.isalnum),
    (".", str),
)
_OUTLINE = bytes(
    next(ord(kind) for kind, is_so in _KINDS if is_so(chr(code))) for code in range(256)
)
_CAPITAL_OUTLINE = re.compile(rb"A(?:(?<=[a0]A)|(?<=AA)(?=a))")
_PUNCTUATION_OUTLINE = re.compile(rb"\.(?<![^ ]\.)\.*(?![^ ])")
_RUNS = bytes(ord("a") if 48 <= code < 128 and chr(code).isalnum() else 32 for code in range(256))
_LONG_RUN = b"a" * (LONGEST + 1)
_ALPHANUMERIC = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_NAME_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SIGN = r"(?:[^\w\s]|_)"
_PUNCTUATION = re.compile(rf"{_SIGN}(?<!\S{_SIGN}){_SIGN}*(?!\S)")


class Word(Struct, frozen=True):
    """One word of a query; with `is_prefix` it also matches longer words that begin with it."""

    text: str
    is_prefix: bool = False


def fold(text: str) -> str:
    """Lower case, compatibility forms unified, diacritics gone."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.translate(_APART).casefold())
    return unicodedata.normalize("NFC", _compiled(_DIACRITICS).sub("", decomposed)).casefold()


def words(text: str) -> list[str]:
    """The words of a text in order, as the index keeps them."""
    if text.isascii():
        found = text.translate(_PLAIN).split()
        if len(text) > LONGEST and _LONG_RUN in text.encode().translate(_RUNS):
            return [word[:LONGEST] for word in found]
        return found
    out: list[str] = []
    for match in _compiled(_WORD).finditer(fold(text)):
        run = match[0]
        if match.lastgroup == "unspaced":
            out.extend(run[at : at + 2] for at in range(len(run)))
        else:
            out.append(run[:LONGEST])
    return out


def extras(text: str) -> list[str]:
    """What else a text is found by: parts of names, words with signs, punctuation."""
    found = [*name_parts(text), *dict.fromkeys((*words_with_signs(text), *punctuation(text)))]
    return [GAP, *found] if found else found


def query_words(text: str) -> list[Word]:
    """The words to look for so that every text that contains this one is found.

    At the end of a query, a run of a script without spaces may continue in the text: a single
    character is looked for as a prefix, a longer run by its pairs.
    """
    folded = fold(text)
    matches = list(_word(folded).finditer(folded))
    out: list[Word] = []
    for place, match in enumerate(matches):
        run = match[0]
        if match.lastgroup != "unspaced":
            out.append(Word(run[:LONGEST]))
        elif place + 1 < len(matches):
            out.extend(Word(run[at : at + 2]) for at in range(len(run)))
        elif len(run) == 1:
            out.append(Word(run, is_prefix=True))
        else:
            out.extend(Word(run[at : at + 2]) for at in range(len(run) - 1))
    return out


def words_with_signs(text: str) -> list[str]:
    """Words with the signs right behind them (`C++`), as the index stores them."""
    if not ("+" in text or "#" in text or "%" in text):
        return []
    return [
        fold(word)[:LONGEST] + signs[:8].translate(_PRIVATE)
        for word, signs in _WORD_WITH_SIGNS.findall(text)
        if not is_unspaced(word)
    ]


def punctuation(text: str) -> list[str]:
    """Punctuation between white space (`=>`, `???`), as the index stores it."""
    if text.isascii():
        spans = _PUNCTUATION_OUTLINE.finditer(_outline(text))
        marks = [text[span.start() : span.end()] for span in spans]
    else:
        marks = [match[0] for match in _PUNCTUATION.finditer(text)]
    found = []
    for each in marks:
        mark = each.strip('"') or each
        kept = mark[:LONGEST].translate(_NEITHER).translate(_PRIVATE)
        if kept and not _word(folded := fold(mark)).search(folded):
            found.append(kept)
    return found


def display_form(word: str) -> str:
    """A word of the index with its signs as people write them; the inverse of how they are stored."""
    return "".join(
        chr(ord(char) - 0xE100) if 0xE100 <= ord(char) < 0xE180 else char for char in word
    )


def name_parts(text: str) -> list[str]:
    """The parts of camel-case names: `getUserName` gives get, user, name, and a gap after each name."""
    found: list[str] = []
    end = 0
    for capital in (
        _CAPITAL_OUTLINE.finditer(_outline(text)) if text.isascii() else _CAPITAL.finditer(text)
    ):
        begin = capital.start()
        if begin < end:
            continue
        while begin and text[begin - 1] in _ALPHANUMERIC:
            begin -= 1
        name = _ASCII_WORD.match(text, begin)
        assert name is not None
        end = name.end()
        found += [part.lower()[:LONGEST] for part in _NAME_PARTS.findall(name[0])]
        found.append(GAP)
    return found


def _outline(text: str) -> bytes:
    return text.encode().translate(_OUTLINE)


def runs(text: str) -> list[str]:
    """The words of the folded text, runs of scripts without spaces left whole."""
    folded = fold(text)
    return [match[0] for match in _word(folded).finditer(folded)]


def is_unspaced(run: str) -> bool:
    """Whether a run is of a script without spaces between words, or a sign."""
    match = _word(run).match(run)
    return match is not None and match.lastgroup is not None


def _word(text: str) -> re.Pattern[str]:
    """The pattern of one word of this text."""
    return _ASCII_WORD if text.isascii() else _compiled(_WORD)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern for all scripts, compiled when first needed: that takes as long as a search."""
    return re.compile(pattern)
