"""A tool that writes its conversations as other tools do: it grows them, edits, forgets, branches."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sessionary.formats import parts
from sessionary.importers.base import files
from sessionary.importers.base.events import (
    Branch,
    Checkpoint,
    Event,
    Importer,
    MessageEvent,
    Resume,
    SessionBegin,
    SessionEnd,
    Unit,
)
from sessionary.model.usage import Usage

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOKENS = 7


@dataclass
class JsonLine:
    """A message as the tool writes it."""

    id: str
    parent: str | None
    text: str
    at: int


@dataclass
class Talk:
    """One conversation: its file, and what its tool would show of it."""

    path: Path
    # lines: each follows the one before; parents: each names what it answers to; tree: one document.
    style: str
    is_marked: bool = False
    alias: str | None = None
    lines: list[JsonLine] = field(default_factory=list)
    current: str | None = None
    # What the tool no longer has; people here may still read it.
    forgotten: set[str] = field(default_factory=set)

    def write(self) -> Unit:
        """Put the talk on disk, all of it; a file that only grew keeps its beginning."""
        head = {"talk": self.path.name, "style": self.style, "alias": self.alias}
        rows: list[dict[str, Any]] = [head | {"current": self.current} if self._is_tree else head]
        rows += [{"id": e.id, "parent": e.parent, "text": e.text, "at": e.at} for e in self.lines]
        self.path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return Unit(str(self.path), self.path, files.stamp_of(self.path), files.size_of(self.path))

    @property
    def _is_tree(self) -> bool:
        return self.style == "tree"

    def way(self) -> list[JsonLine]:
        """What the tool shows: everything, or the way to where it stands."""
        if self.style == "lines":
            return list(self.lines)
        known = {line.id: line for line in self.lines}
        at = known.get(self.current or "") or (self.lines[-1] if self.lines else None)
        return _way(known, at)


def _way(known: dict[str, JsonLine], at: JsonLine | None) -> list[JsonLine]:
    found: list[JsonLine] = []
    while at is not None:
        found.append(at)
        at = known.get(at.parent or "")
    return found[::-1]


class TalkingTool(Importer):
    """Reads what a `Talk` wrote."""

    name = "talking"
    title = "Talking"

    def recognises(self, path: Path) -> bool:
        return False

    def find(self, place: Path) -> Iterator[Unit]:
        yield Unit(str(place), place, files.stamp_of(place), files.size_of(place))

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        with files.opened(unit.path) as file:
            rows = list(files.json_lines(file))
        head = rows[0].data or {}
        alias = head["alias"]
        yield SessionBegin(native_id=head["talk"], began_at=NOON, aliases=[alias] if alias else [])
        lines = [(row.end, _line(row.data or {})) for row in rows[1:]]
        if head["style"] == "tree":
            yield from _tree([line for _, line in lines], head["current"])
        else:
            start = 0 if resume is None else resume.place
            for end, line in lines:
                if end > start:
                    yield _said(line, has_parent=head["style"] == "parents")
                    if unit.hint:
                        yield Checkpoint(place=end)
        yield SessionEnd()


def _line(data: dict[str, Any]) -> JsonLine:
    return JsonLine(data["id"], data["parent"], data["text"], data["at"])


def _said(line: JsonLine, *, has_parent: bool) -> MessageEvent:
    event = MessageEvent(
        role="assistant" if line.at % 2 else "user",
        parts=[parts.text(line.text)],
        at=NOON + timedelta(seconds=line.at),
        id=line.id,
        usage=[Usage(call_id=f"call of {line.id}", model="m", output_tokens=TOKENS)],
    )
    if has_parent:
        event.parent = line.parent
    return event


def _tree(lines: list[JsonLine], current: str | None) -> Iterator[Event]:
    known = {line.id: line for line in lines}
    parents = {line.parent for line in lines}
    leaves = [line for line in lines if line.id not in parents and line.id != current]
    for leaf in leaves:
        items = [_said(each, has_parent=False) for each in _way(known, leaf)]
        yield Branch(items=items, is_current=False)
    at = known.get(current or "") or (lines[-1] if lines else None)
    yield Branch(items=[_said(e, has_parent=False) for e in _way(known, at)], is_current=True)
