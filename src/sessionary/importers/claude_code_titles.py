"""What a Claude Code session is called: as a person named it, else the program, else its first words."""

from typing import Any

from sessionary.importers.base import Json
from sessionary.importers.claude_code_line import Line
from sessionary.importers.recent import Recent

_PROMPT, _SUMMARY, _AI, _CUSTOM = range(4)
_MOST_SUMMARIES = 100


class Titles:
    """The best title so far, and how good it is."""

    def __init__(self, noted: Any = None) -> None:
        is_noted = isinstance(noted, list) and len(noted) == 2
        self._level: int = noted[0] if is_noted else -1
        self.title: str | None = noted[1] if is_noted else None
        # Summaries of conversations that may be this one: it is when their last line is here.
        self.awaited: dict[str, str] = {}

    @property
    def note(self) -> list[Any] | None:
        """What to remember until the next reading."""
        return None if self.title is None else [self._level, self.title]

    def take(self, line: Line, seen: Recent[str | None]) -> None:
        """A line that names the session."""
        if line.type == "custom-title":
            self._raise(_CUSTOM, line.customTitle)
        elif line.type == "ai-title":
            self._raise(_AI, line.aiTitle)
        elif line.summary and line.leafUuid:
            if seen.get(line.leafUuid) is not None:
                self._raise(_SUMMARY, line.summary)
            elif len(self.awaited) < _MOST_SUMMARIES:
                self.awaited[line.leafUuid] = line.summary

    def meet(self, uuid: str) -> None:
        """A line is here for which a summary may have been waiting."""
        self._raise(_SUMMARY, self.awaited.pop(uuid, None))

    def take_prompt(self, made: list[Json]) -> None:
        """What a person said: the first words are a title when there is no other."""
        if self._level >= _PROMPT:
            return
        words = " ".join(part["text"] for part in made if part["type"] == "text").strip()
        if words and not words.startswith(("/", "!", "[Request interrupted")):
            self._raise(_PROMPT, words[:400])

    def _raise(self, level: int, title: str | None) -> None:
        if title and title.strip() and level >= self._level:
            self._level, self.title = level, title
