"""Codex: a rollout of JSON lines for each thread, perhaps packed; older releases wrote one document."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO, cast

from sessionary.clock import Clock, SystemClock
from sessionary.errors import BadInput
from sessionary.formats import json_text, shape
from sessionary.importers import files, json_lines, zst
from sessionary.importers.base import Event, Resume, Unit, Where
from sessionary.importers.codex_reader import Reader
from sessionary.importers.json_lines import Line
from sessionary.store.tables.blobs import hash_of

# A model's answer is written piece by piece; a file that has been quiet for longer is whole.
QUIET = timedelta(minutes=2)
MAX_DOCUMENT = 64 * 1024 * 1024
_SUFFIXES = (".jsonl", ".jsonl.zst", ".json")
_NAME = re.compile(r"rollout-.*")
_THREAD = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", re.IGNORECASE)
_MARKS = (b'"session_meta"', b'"response_item"', b'"turn_context"')
_ARCHIVED = "archived_sessions"
# The instructions of a session stand before its first message.
_HEAD = 256 * 1024
_UNSETTLED = "~"


class Codex:
    """Reads the rollouts of Codex."""

    name = "codex"
    title = "Codex"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def places(self, where: Where) -> list[Path]:
        """`CODEX_HOME`, else `~/.codex`."""
        return [where.path("CODEX_HOME", ".codex")]

    def recognises(self, path: Path) -> bool:
        """A rollout, packed or not; or a document of an older release."""
        if not files.is_file(path) or not path.name.endswith(_SUFFIXES):
            return False
        head = _packed_head(path) if path.name.endswith(".zst") else files.head(path, _HEAD)
        if path.suffix == ".json":
            is_named = _NAME.match(path.name) is not None
            return (
                b'"session"' in head
                and b'"items"' in head
                and (is_named or b'"instructions"' in head)
            )
        return (b'"payload"' in head and any(mark in head for mark in _MARKS)) or (
            path.suffix == ".jsonl" and _NAME.match(path.name) is not None and _is_bare(path)
        )

    def find(self, place: Path) -> Iterator[Unit]:
        """The rollouts by the time of their beginning: a copy is younger than what it copies."""
        if files.is_file(place):
            yield self._unit(place, {})
            return
        titles = _titles(place / "session_index.jsonl")
        for path in sorted(_rollouts(place), key=lambda each: each.name):
            yield self._unit(path, titles)

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        """The thread that the file holds."""
        reader = Reader(
            resume,
            name=_thread_of(unit.path),
            title=unit.hint if isinstance(unit.hint, str) else None,
            at=files.changed_at(unit.path),
            is_archived=_ARCHIVED in unit.path.parts,
            is_settled=not unit.stamp.endswith(_UNSETTLED),
            settles_at=files.changed_at(unit.path) + QUIET,
            # Of what is packed no place can be kept, and it no longer grows.
            size=None if unit.path.suffix != ".jsonl" else unit.size,
        )
        with files.opened(unit.path) as file:
            yield from reader.events(_lines(file, unit.path, resume))

    def _unit(self, path: Path, titles: dict[str, str]) -> Unit:
        title = titles.get(_thread_of(path) or "")
        stamp = files.stamp_of(path)
        if title is not None:
            stamp += f";{hash_of(title.encode('utf-8', 'surrogatepass'))[:16]}"
        if abs(self._clock.now() - files.changed_at(path)) < QUIET:
            stamp += _UNSETTLED
        return Unit(str(path), path, stamp, files.size_of(path), hint=title)


def _packed_head(path: Path) -> bytes:
    """The first bytes of a packed file; none when it is damaged."""
    try:
        with files.opened(path) as packed:
            return zst.unpacked(packed).read(_HEAD)
    except (BadInput, OSError):
        return b""


def _is_bare(path: Path) -> bool:
    """Whether lines are those of the first releases, which had no envelope."""
    first = next(json_lines.first_objects(path), {})
    return isinstance(first.get("id"), str) and "timestamp" in first and "instructions" in first


def _rollouts(place: Path) -> Iterator[Path]:
    for path in files.walk(place, suffixes=_SUFFIXES):
        if _NAME.match(path.name):
            yield path


def _thread_of(path: Path) -> str | None:
    found = _THREAD.findall(path.name)
    return found[-1] if found else None


def _titles(index: Path) -> dict[str, str]:
    """What threads are called, where a release wrote that into a list; the last word counts."""
    found: dict[str, str] = {}
    try:
        with files.opened(index) as file:
            for line in json_lines.lines(file):
                told = line.data or {}
                id, title = shape.name(told.get("id")), shape.name(told.get("thread_name"))
                if id is not None and title is not None:
                    found[id] = title
    except BadInput:
        # Most have no such list. Without it threads have the names that they tell themselves.
        return found
    return found


def _lines(file: BinaryIO, path: Path, resume: Resume | None) -> Iterator[Line]:
    if path.suffix == ".json":
        return _items(file, path)
    if path.suffix == ".zst":
        return json_lines.lines(zst.unpacked(file))
    return json_lines.lines(file, 0 if resume is None else resume.place)


def _items(file: BinaryIO, path: Path) -> Iterator[Line]:
    """The document of an older release, as the lines it would be now."""
    text = file.read(MAX_DOCUMENT + 1)
    if len(text) > MAX_DOCUMENT:
        raise BadInput(f"{path} is larger than {MAX_DOCUMENT:,} bytes; it was left alone.")
    try:
        document = shape.record(json_text.decode(text))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not JSON ({str(error)[:100]}).") from error
    if json_text.is_deep(document):
        raise BadInput(f"{path} is nested too deeply; it was left alone.")
    yield Line(0, 0, shape.record(document.get("session")))
    for item in cast(list[object], shape.items(document.get("items"))):
        yield Line(0, 0, item if isinstance(item, dict) else None, "not an object")


IMPORTER = Codex(SystemClock())
