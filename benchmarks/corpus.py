"""Conversations to search in, the same each time: Zipf's words, log-normal lengths, tools, CJK."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from math import exp

SEED = 20_260_101
BEGAN = datetime(2024, 1, 1, tzinfo=UTC)
VOCABULARY = 120_000
CHARACTERS = 3_000
LONGEST_OUTPUT = 50_000
PLATFORMS = ("telegram", "slack", "discord", "terminal", "web")
_MESSAGES = 40
_ONSETS = (
    *"bcdfghklmnprstvw",
    "br",
    "ch",
    "cl",
    "cr",
    "dr",
    "fl",
    "gr",
    "pl",
    "pr",
    "sh",
    "sp",
    "st",
    "str",
    "th",
    "tr",
)
_NUCLEI = (*"aeiou", "ai", "ea", "ee", "io", "ou")
_CODAS = ["", "", "", "n", "r", "s", "t", "l", "m", "ck", "nd", "ng", "st"]
_STREAM = 200_000
_MARKS = ",.?:;.,."


@dataclass(frozen=True, slots=True)
class CorpusLine:
    """One message of the corpus: in which session, by whom, when, what."""

    session: int
    role: str
    text: str
    at: datetime
    tool: str | None = None


class Language:
    """Words and characters by rank: the first is the most common."""

    def __init__(self, seed: int = SEED) -> None:
        self._chance = random.Random(seed)
        self.words = self._make_words()
        # Chinese has no spaces: characters follow each other, some far more often than others.
        self.characters = [chr(0x4E00 + place * 5) for place in range(CHARACTERS)]
        self._word_weights = list(
            accumulate(1 / (rank + 2.7) ** 1.07 for rank in range(VOCABULARY))
        )
        self._character_weights = list(accumulate(1 / (rank + 5) for rank in range(CHARACTERS)))
        self._stream: list[str] = []
        self._next = 0

    def sentence(self, count: int) -> str:
        """So many words, with the punctuation that people use."""
        return " ".join(self._draw(count))

    def write(self, count: int) -> str:
        """So many Chinese characters."""
        return "".join(
            self._chance.choices(self.characters, cum_weights=self._character_weights, k=count)
        )

    def name(self) -> str:
        """A path, a call or a name in code."""
        one, two = (word.rstrip(_MARKS) for word in self._draw(2))
        forms = (f"src/{one}/{two}.py", f"{one}_{two}()", f"{one}{two.title()}")
        return str(self._chance.choice(forms))

    def _draw(self, count: int) -> list[str]:
        while self._next + count > len(self._stream):
            drawn = self._chance.choices(self.words, cum_weights=self._word_weights, k=_STREAM)
            for place in range(10, _STREAM, 11):
                drawn[place] += _MARKS[place % len(_MARKS)]
            self._stream = self._stream[self._next :] + drawn
            self._next = 0
        self._next += count
        return self._stream[self._next - count : self._next]

    def _make_words(self) -> list[str]:
        found: dict[str, None] = {}
        while len(found) < VOCABULARY:
            # Common words are short, as in every language.
            syllables = 1 + min(4, len(found) * 5 // VOCABULARY + self._chance.randrange(2))
            found["".join(self._syllable() for _ in range(syllables))] = None
        return list(found)

    def _syllable(self) -> str:
        made: str = "".join(self._chance.choice(part) for part in (_ONSETS, _NUCLEI, _CODAS))
        return made


def corpus(language: Language, messages: int) -> Iterator[CorpusLine]:
    """So many messages, session by session, some of the sessions side by side."""
    rng = random.Random(SEED + 1)
    for number in range(messages):
        # Four conversations go on at a time, each for forty messages.
        session = number // (4 * _MESSAGES) * 4 + number % 4
        at = BEGAN + timedelta(seconds=45 * number)
        turn = number // 4 % _MESSAGES % 4
        if turn == 0:
            yield CorpusLine(session, "user", _prompt(language, rng), at)
        elif turn == 2:
            length = min(_lengths(rng, 3.9, 1.3), LONGEST_OUTPUT // 7)
            text = f"{language.name()}\n{language.sentence(length)}"[:LONGEST_OUTPUT]
            yield CorpusLine(
                session, "tool", text, at, tool=rng.choice(("shell", "read", "search"))
            )
        else:
            text = language.sentence(_lengths(rng, 3.5, 0.9))
            yield CorpusLine(session, "assistant", f"{text} {language.name()}", at)


def _prompt(language: Language, rng: random.Random) -> str:
    if rng.random() < 0.08:
        return language.write(_lengths(rng, 3.0, 0.8))
    return language.sentence(_lengths(rng, 2.5, 1.0))


def _lengths(rng: random.Random, mean: float, spread: float) -> int:
    return max(1, min(int(exp(rng.gauss(mean, spread))), LONGEST_OUTPUT // 4))
