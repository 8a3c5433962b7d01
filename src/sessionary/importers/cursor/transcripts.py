"""The transcripts that Cursor's agents leave: JSON lines, or a text with marked speakers."""

from collections.abc import Iterator
from pathlib import Path

from sessionary.errors import BadInput
from sessionary.formats import anthropic_blocks
from sessionary.importers.base import files
from sessionary.importers.base.content import MessageContent, parse_time
from sessionary.importers.base.events import (
    Checkpoint,
    Event,
    MessageEvent,
    Resume,
    Skipped,
    Unit,
    begin_session,
)
from sessionary.importers.base.files import json_lines

MAX_TEXT = 64 * 1024 * 1024
_FOLDER = "agent-transcripts"
_ROLE_MARKS = {"user:": "user", "assistant:": "assistant"}


def found(place: Path) -> Iterator[Path]:
    """The transcripts below a directory, subagents last; or the one that was named."""
    if files.is_file(place):
        if is_transcript(place):
            yield place
        return
    below = files.walk(place, suffixes=(".txt", ".jsonl"), depth=5)
    yield from sorted(filter(is_transcript, below), key=lambda each: (len(each.parts), each))


def is_transcript(path: Path) -> bool:
    """Whether a file stands where transcripts do, and begins as they do."""
    if _FOLDER not in path.parts or path.suffix not in (".txt", ".jsonl"):
        return False
    first = files.head(path, 4096).lstrip()
    return (
        b'"role"' in first if path.suffix == ".jsonl" else first.startswith((b"user:", b"assist"))
    )


def read(unit: Unit, resume: Resume | None) -> Iterator[Event]:
    """One transcript. It has no times of its own: they are the file's."""
    parent = unit.path.parent.parent.name if unit.path.parent.name == "subagents" else None
    at = None if resume else files.changed_at(unit.path)
    yield begin_session(unit.path.stem, at, parent=parent)
    if unit.path.suffix == ".jsonl":
        yield from _read_lines(unit.path, resume)
    else:
        yield from _read_text(unit.path)


def _read_lines(path: Path, resume: Resume | None) -> Iterator[Event]:
    start = 0 if resume is None else resume.place
    otherwise = files.changed_at(path)
    yield Checkpoint(place=start)
    with files.opened(path) as file:
        for line in json_lines(file, start):
            if line.data is None:
                yield Skipped(where=f"byte {line.start}", why=line.why or "")
            else:
                message = line.data.get("message")
                given = message.get("content") if isinstance(message, dict) else message
                content = MessageContent()
                anthropic_blocks.add(content, line.data.get("content") if given is None else given)
                role = "user" if line.data.get("role") == "user" else "assistant"
                at = parse_time(line.data.get("timestamp")) or otherwise
                if content:
                    yield content.to_message(role, at, id=f"byte {line.start}")
            yield Checkpoint(place=line.end)


def _read_text(path: Path) -> Iterator[Event]:
    if files.size_of(path) > MAX_TEXT:
        raise BadInput(f"{path} is larger than {MAX_TEXT:,} bytes; it was left alone.")
    at = files.changed_at(path)
    with files.opened(path) as file:
        text = file.read(MAX_TEXT).decode("utf-8", "replace")
    role, words, number = "", [""], 0
    for line in [*text.splitlines(), "user:"]:
        marked = next((mark for mark in _ROLE_MARKS if line.startswith(mark)), None)
        if marked is None:
            words.append(line)
            continue
        text = "\n".join(words).strip()
        if role and text:
            content = MessageContent()
            content.add_text(text)
            made: MessageEvent = content.to_message(role, at, id=f"message {number}")
            number += 1
            yield made
        role, words = _ROLE_MARKS[marked], [line.removeprefix(marked).strip()]
