"""Segmentation: from a text to the words the index knows. Both databases get the same words.

A word is a run of letters and digits, folded to lower case without diacritics. Scripts
that do not put spaces between words are cut into pairs of neighbouring characters, the
last character of a run standing alone as well, so that any part of a run can be found.
Everything else separates, except signs beyond ASCII, which are words of their own.

Behind the words of a text stand its extras, apart from them: the parts of names written in
one (`getUserName`), words with their signs (`C++`), punctuation that stands alone (`=>`).
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import cache

LONGEST = 64
# Between the words of a text and its extras: no phrase reaches across.
GAP = "\ue004"
# Signs that are to be found are kept as private letters: databases separate words at the real ones.
_PRIVATE = {code: chr(0xE100 + code) for code in range(128) if not chr(code).isalnum()}
_NEITHER = dict.fromkeys(range(0xD800, 0xE200))
_PLAIN = {code: chr(code).lower() if chr(code).isalnum() else " " for code in range(128)}
# Compatibility forms that would grow into the word before them: Foo™ is Foo.
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
# Vowel signs are no letters to the regular expressions, but belong to their word.
_MARKED = "\u0900-\u0963\u0966-\u0dff\u0f00-\u0f03\u0f18-\u0fbc"
_DIACRITICS = (
    "[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c7"
    "\u064b-\u065f\u0670"
    "\u1ab0-\u1aff\u1dc0-\u1dff\ufe00-\ufe0f\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\u00ad\u0640]"
)
_WORD = f"(?P<unspaced>[{_UNSPACED}]+)|(?P<sign>[{_SIGNS}])|(?:(?![{_UNSPACED}{_SIGNS}])[^\\W_]|[{_MARKED}])+"
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")
_STICKY_WORD = re.compile(r"([^\W_]+)([+#%]+)")
# These begin with the rare thing: a text without it is passed over quickly.
_HUMP = re.compile(r"[A-Z](?:(?<=[a-z0-9][A-Z])|(?<=[A-Z][A-Z])(?=[a-z]))")
# What stands where in an ASCII text, in five letters: a search for one letter is faster still.
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
_HUMP_OUTLINE = re.compile(rb"A(?:(?<=[a0]A)|(?<=AA)(?=a))")
_ALONE_OUTLINE = re.compile(rb"\.(?<![^ ]\.)\.*(?![^ ])")
_RUNS = bytes(ord("a") if 48 <= code < 128 and chr(code).isalnum() else 32 for code in range(256))
_LONG_RUN = b"a" * (LONGEST + 1)
_ALPHANUMERIC = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_HUMPS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SIGN = r"(?:[^\w\s]|_)"
_ALONE = re.compile(rf"{_SIGN}(?<!\S{_SIGN}){_SIGN}*(?!\S)")


@dataclass(frozen=True, slots=True)
class Word:
    """One word; `begins` means that it may be the beginning of what the text has there."""

    text: str
    begins: bool = False


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
    """What else the text is found by: parts of names, words with signs, punctuation alone."""
    found = [*humps(text), *dict.fromkeys((*sticky(text), *alone(text)))]
    return [GAP, *found] if found else found


def wanted(text: str) -> list[Word]:
    """The words to look for so that every text in which this one stands is found.

    A run without spaces at the end of the question may go on in the text: its last
    character alone is looked for as a beginning, longer runs by their pairs.
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
            out.append(Word(run, begins=True))
        else:
            out.extend(Word(run[at : at + 2]) for at in range(len(run) - 1))
    return out


def sticky(text: str) -> list[str]:
    """Words with the signs straight behind them (`C++`), in a form that the index can keep."""
    if not ("+" in text or "#" in text or "%" in text):
        return []
    return [
        fold(word)[:LONGEST] + signs[:8].translate(_PRIVATE)
        for word, signs in _STICKY_WORD.findall(text)
        if not is_unspaced(word)
    ]


def alone(text: str) -> list[str]:
    """Punctuation with white space around it (`=>`, `???`), in a form that the index can keep."""
    if text.isascii():
        spans = _ALONE_OUTLINE.finditer(_outline(text))
        marks = [text[span.start() : span.end()] for span in spans]
    else:
        marks = [match[0] for match in _ALONE.finditer(text)]
    found = []
    for each in marks:
        mark = each.strip('"') or each
        kept = mark[:LONGEST].translate(_NEITHER).translate(_PRIVATE)
        if kept and not _word(folded := fold(mark)).search(folded):
            found.append(kept)
    return found


def shown(word: str) -> str:
    """A word of the index with its signs as people write them."""
    return "".join(
        chr(ord(char) - 0xE100) if 0xE100 <= ord(char) < 0xE180 else char for char in word
    )


def humps(text: str) -> list[str]:
    """The parts of names written in one: `getUserName` gives get, user, name; a gap after each."""
    found: list[str] = []
    end = 0
    for hump in _HUMP_OUTLINE.finditer(_outline(text)) if text.isascii() else _HUMP.finditer(text):
        begin = hump.start()
        if begin < end:
            continue
        while begin and text[begin - 1] in _ALPHANUMERIC:
            begin -= 1
        name = _ASCII_WORD.match(text, begin)
        assert name is not None
        end = name.end()
        found += [part.lower()[:LONGEST] for part in _HUMPS.findall(name[0])]
        found.append(GAP)
    return found


def _outline(text: str) -> bytes:
    return text.encode().translate(_OUTLINE)


def runs(text: str) -> list[str]:
    """The folded text cut only where words end, scripts without spaces left whole."""
    folded = fold(text)
    return [match[0] for match in _word(folded).finditer(folded)]


def is_unspaced(run: str) -> bool:
    """Whether a run is of a script without spaces between words, or a sign."""
    match = _word(run).match(run)
    return match is not None and match.lastgroup is not None


def _word(text: str) -> re.Pattern[str]:
    """What a word of a text is."""
    return _ASCII_WORD if text.isascii() else _compiled(_WORD)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern for all scripts: it takes as long to make as a search does."""
    return re.compile(pattern)
