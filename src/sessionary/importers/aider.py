"""Aider: the history it keeps in each repository. It is looked for only where someone says."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from sessionary.importers.base import events, files
from sessionary.importers.base.content import (
    call_usage,
    parse_time,
    text_content,
    uncached_input,
)

HISTORY = ".aider.chat.history.md"
MAX_LINE = 16 * 1024 * 1024
_BEGIN = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
# What a call used, as the program tells it: rounded to thousands, and what it worked out as the cost.
_USED = re.compile(
    r"> Tokens: (?P<sent>[\d.,]+k?) sent(?:, (?P<written>[\d.,]+k?) cache write)?"
    r"(?:, (?P<read>[\d.,]+k?) cache hit)?, (?P<received>[\d.,]+k?) received\."
    r"(?: Cost: \$(?P<cost>\d+(?:\.\d+)?) message, \$\d+(?:\.\d+)? session\.)?\s*"
)
_MODEL = re.compile(r"> (?:Main model|Model): (\S+)")


class Aider(events.Importer):
    """Reads the histories of Aider."""

    name = "aider"
    title = "Aider"

    # Its histories are in repositories, and a home is not searched for them: it has no places.

    def recognises(self, path: Path) -> bool:
        if not files.is_file(path):
            return False
        return path.name == HISTORY or b"\n# aider chat started at " in b"\n" + files.head(path)

    def find(self, place: Path) -> Iterator[events.Unit]:
        """Yield the histories; a directory is searched three levels deep."""
        yield from map(files.unit, files.named_or_below(place, suffixes=(HISTORY,), depth=3))

    def read(self, unit: events.Unit, resume: events.Resume | None) -> Iterator[events.Event]:
        history = _History(unit.path)
        with files.opened(unit.path) as file:
            # A last line without its end is still being written: a later import reads it.
            for start, _, text in files.raw_lines(file, max_line=MAX_LINE):
                if text is None:
                    yield events.Skipped(
                        where=f"byte {start}", why=f"longer than {MAX_LINE:,} bytes"
                    )
                else:
                    yield from history.take(text.decode("utf-8", "replace").rstrip("\r\n"))
        yield from history.end()


class _History:
    """Sessions of a history, line by line: the beginning of a line shows its role."""

    def __init__(self, path: Path) -> None:
        self._folder = path.parent
        self._at: datetime | None = None
        self._seen: dict[str, int] = {}
        self._model: str | None = None
        self._role = ""
        self._words: list[str] = []
        self._number = 0
        self._is_fenced = False
        # Events before the first prompt of a session wait for it.
        self._waiting: list[events.Event] | None = None
        self._name = ""
        self._calls = 0

    def take(self, line: str) -> Iterator[events.Event]:
        """Yield the events of one line."""
        if begun := _BEGIN.fullmatch(line.strip()):
            yield from self.end()
            yield from self._begin(begun[1])
        elif self._at is None:
            return
        elif line.startswith("#### "):
            # A fence that an answer left open ends at the next prompt.
            self._is_fenced = False
            yield from self._add_line("user", line.removeprefix("#### ").rstrip())
        elif (line.startswith("> ") or line == ">") and not self._is_fenced:
            if found := _MODEL.match(line):
                self._model = found[1]
                yield from self._emit(events.facts(model=found[1]))
            if used := _USED.fullmatch(line):
                self._calls += 1
                sent, read, written = (_count(used[name]) for name in ("sent", "read", "written"))
                usage = call_usage(
                    "aider",
                    f"{self._name}:{self._calls}",
                    model=self._model,
                    at=self._at,
                    dollars=None if used["cost"] is None else float(used["cost"]),
                    input=uncached_input(sent, read, written),
                    output=_count(used["received"]),
                    cache_read=read,
                    cache_write=written,
                )
                yield from self._emit(events.UsageEvent(usage=usage))
            yield from self._add_line("system", line.removeprefix(">").strip())
        elif line.strip() or self._role == "assistant":
            self._is_fenced ^= line.startswith("```")
            yield from self._add_line("assistant", line)

    def end(self) -> Iterator[events.Event]:
        """End the session."""
        if self._at is not None:
            yield from self._flush()
            if self._waiting is None:
                yield events.SessionEnd()
            else:
                yield events.IgnoredRecord(what="starts without a question")
        self._at, self._waiting = None, None

    def _begin(self, started: str) -> Iterator[events.Event]:
        self._at, self._number, self._model = parse_time(started), 0, None
        self._is_fenced = False
        if self._at is None:
            yield events.Skipped(where=f"session of {started}", why="not a time")
            return
        # Two may begin in one second.
        count = self._seen[started] = self._seen.get(started, 0) + 1
        name = f"{self._folder.name} {started}" + (f" #{count}" if count > 1 else "")
        self._name, self._calls = name, 0
        self._waiting = [
            events.begin_session(name, self._at),
            events.facts(workspace=events.workspace(str(self._folder))),
        ]

    def _emit(self, event: events.Event) -> Iterator[events.Event]:
        """Yield an event; before the first prompt it waits."""
        if (
            self._waiting is not None
            and isinstance(event, events.MessageEvent)
            and event.role != "system"
        ):
            waiting, self._waiting = self._waiting, None
            yield from waiting
        if self._waiting is None:
            yield event
        else:
            self._waiting.append(event)

    def _add_line(self, role: str, words: str) -> Iterator[events.Event]:
        if role != self._role:
            yield from self._flush()
            self._role = role
        self._words.append(words)

    def _flush(self) -> Iterator[events.Event]:
        words = "\n".join(self._words).strip("\n").rstrip()
        role, self._role, self._words = self._role, "", []
        if not words or self._at is None:
            return
        self._number += 1
        model = self._model if role == "assistant" else None
        message = text_content(words).to_message(role, self._at, id=f"{self._number}", model=model)
        yield from self._emit(message)


def _count(text: str | None) -> int:
    """Return how many tokens a text such as `2.4k` means."""
    if text is None:
        return 0
    try:
        number = float(text.removesuffix("k").replace(",", ""))
    except ValueError:
        return 0
    return round(number * 1000 if text.endswith("k") else number)


IMPORTER = Aider()
