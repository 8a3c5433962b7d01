"""What `hermes sessions export` writes: a session a line, its row and its messages in one object."""

from dataclasses import dataclass, field
from pathlib import Path

from sessionary.formats import shape
from sessionary.importers import files, json_lines
from sessionary.importers.hermes_state import PROMPT, Row, held

_HEAD = 256 * 1024
_NAMES = ("id", "source", "started_at")


@dataclass(slots=True)
class Export:
    """The sessions of a file, where each begins, and which lines are none."""

    rows: dict[str, Row] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    faults: list[tuple[str, str]] = field(default_factory=list)


def is_export(path: Path) -> bool:
    """Whether a file is a list of sessions, and not of messages."""
    head = files.head(path, _HEAD).lstrip(b"\xef\xbb\xbf \t\r\n")
    if not head.startswith(b"{"):
        return False
    line, newline, _ = head.partition(b"\n")
    if newline:
        first = shape.record(shape.parsed(line))
        return all(name in first for name in _NAMES)
    # A session with all its messages may be longer than what is looked at.
    return all(f'"{name}"'.encode() in head for name in _NAMES)


def read(path: Path) -> Export:
    """Everything but the messages."""
    found = Export()
    stamp = files.stamp_of(path)
    with files.opened(path) as file:
        for number, line in enumerate(json_lines.lines(file), 1):
            data = shape.record(line.data)
            id = shape.name(data.get("id"))
            if id is None or "messages" not in data:
                found.faults.append((f"line {number}", line.why or "it is no session"))
                continue
            said = shape.items(data.pop("messages"))
            facts = held({n: v for n, v in data.items() if n not in ("id", PROMPT)})
            found.rows[id] = Row(id, facts, len(said), (len(said), stamp))
            found.places[id] = line.start
    return found


def prompt_of(path: Path, place: int) -> str | None:
    """What the model was told in a session, from its line."""
    with files.opened(path) as file:
        line = next(json_lines.lines(file, place), None)
    return None if line is None else shape.name(shape.record(line.data).get(PROMPT))
