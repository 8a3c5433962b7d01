"""What the suite for importers works with: what an importer reads, a store after an import, and damaged files."""

import json
import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sessionary.actions import verify
from sessionary.clock import Moment, RandomIds, SystemClock
from sessionary.errors import BadInput
from sessionary.importers.base import driver
from sessionary.importers.base.driver import ToolImportReport
from sessionary.importers.base.events import (
    Branch,
    Event,
    Importer,
    MessageEvent,
    SessionBegin,
    Skipped,
    Unit,
    check_event,
)
from sessionary.importers.base.prepared import body_text
from sessionary.importers.base.session_merger import ImportTarget
from sessionary.model import message, transcript
from sessionary.model.message import Entry, Message
from sessionary.model.session import SessionHead
from sessionary.store.database import Store, Tx
from sessionary.store.tables import entries, imports, sessions
from sessionary.store.tables.blobs import hash_of

# Writes a tool's records below a new directory, and returns the place to import from.
Sample = Callable[[Path], Path]
JSON_SUFFIXES = (".json", ".jsonl")
# A file with one of these suffixes may end anywhere: its last line is still being written.
GROWING_SUFFIXES = (".jsonl", ".txt", ".md")
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T[0-9:.]+(?:Z|[+-]\d{2}:\d{2})")


def files_of(place: Path) -> list[Path]:
    """Return every regular file of a sample."""
    return sorted(each for each in place.rglob("*") if each.is_file() and not each.is_symlink())


class ReadEvents:
    """What an importer reads in a place."""

    def __init__(self, importer: Importer, place: Path) -> None:
        self.messages: list[MessageEvent] = []
        # The number of messages of each session, by the tool's id.
        self.counts: Counter[str] = Counter()
        # How many files and records were reported as unreadable.
        self.faults = 0
        self._session = ""
        try:
            for unit in importer.find(place):
                self._read(importer, unit)
        except BadInput:
            self.faults += 1

    @property
    def user_texts(self) -> list[str]:
        """The texts of what people wrote."""
        return [
            part["text"]
            for each in self.messages
            if each.role == "user"
            for part in each.parts
            if part["type"] == "text"
        ]

    def _read(self, importer: Importer, unit: Unit) -> None:
        try:
            for event in importer.read(unit, None):
                self._add(event)
        except BadInput:
            self.faults += 1

    def _add(self, event: Event) -> None:
        found: list[MessageEvent] = []
        if isinstance(event, MessageEvent):
            found = [event]
        elif isinstance(event, Branch):
            found = [each for each in event.items if isinstance(each, MessageEvent)]
        elif isinstance(event, Skipped):
            self.faults += 1
        elif isinstance(event, SessionBegin):
            self._session = event.native_id
        self.messages += found
        self.counts[self._session] += len(found)


def read_all(importer: Importer, place: Path) -> list[Event]:
    """Return every event of a place, after checking that each can be stored."""
    found = [event for unit in importer.find(place) for event in importer.read(unit, None)]
    for event in found:
        _check_storable(event)
    return found


def _check_storable(event: Event) -> None:
    check_event(event)
    if isinstance(event, Branch):
        for item in event.items:
            _check_storable(item)
    if not isinstance(event, MessageEvent):
        return
    assert event.id is None or isinstance(event.id, str)
    for each in event.parts:
        assert message.to_json(message.from_json(each)) == each
    wanted = {each["blob"] for each in event.parts if each["type"] == "attachment"}
    assert wanted <= {hash_of(data) for data in event.blobs}
    body_text(event, "x")


class ImportedStore:
    """A store into which records are imported, and what it contains then."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def take(self, importer: Importer, units: list[Unit]) -> ToolImportReport:
        """Import units as the command does."""
        return driver.run(self.target(importer), importer, units)

    def target(self, importer: Importer) -> ImportTarget:
        """Return where imports of the tool go."""
        moment = Moment(SystemClock().now(), RandomIds())
        return ImportTarget(self.store, "main", importer.name, importer.title, moment)

    def take_all(self, importer: Importer, place: Path) -> ToolImportReport:
        """Import everything that is found in a place."""
        return self.take(importer, list(importer.find(place)))

    def check_again(self, importer: Importer, place: Path, *touched: Path) -> None:
        """Check that nothing changes, neither if no file has changed nor if all of them are read once more."""
        before = self.everything()
        unread = self.take_all(importer, place)
        assert unread.unchanged_units == unread.units
        for path in touched:
            later = path.stat().st_mtime_ns + 1_000_000_000
            os.utime(path, ns=(later, later))
        report = self.take_all(importer, place)
        if touched:
            assert report.unchanged_units < report.units
        assert (report.added, report.extended, report.messages) == (0, 0, 0)
        assert self.everything() == before
        self.check()

    def session(self, tool: str, native_id: str) -> SessionHead:
        """Return the session with this id of the tool."""
        return self.store.read(_head, tool, native_id).result()

    def extra(self, tool: str, native_id: str) -> Mapping[str, Any]:
        """Return what else is known of the session."""
        return self.store.read(_extra, tool, native_id).result()

    def draft(self, tool: str, native_id: str) -> str | None:
        """Return what was typed and not sent."""
        return self.store.read(_draft, tool, native_id).result()

    def log(self, tool: str, native_id: str) -> list[Entry]:
        """Return all entries of the session, including retracted ones."""
        return self.store.read(_log, tool, native_id).result()

    def messages(self, tool: str, native_id: str) -> list[Message]:
        """Return the messages that people read."""
        read = transcript.transcript(self.log(tool, native_id))
        return [entry.body for entry in read if isinstance(entry.body, Message)]

    def texts(self, tool: str, native_id: str) -> list[str]:
        """Return the texts that people read."""
        return [message.text for message in self.messages(tool, native_id)]

    def count(self) -> int:
        """Return how many sessions people see."""
        return len(self.heads())

    def heads(self) -> list[SessionHead]:
        """Return every session that people see."""
        return self.store.read(_heads).result()

    def totals(self) -> dict[str, tuple[int, Any]]:
        """Return the number of messages and the usage of each session."""
        return {head.id: (head.message_count, head.usage) for head in self.heads()}

    def everything(self) -> list[Any]:
        """Return all heads and entries, to see that nothing changed."""
        return [(head, self.store.read(_own, head.no).result()) for head in self.heads()]

    def check(self) -> None:
        """Check that no invariant of the store is broken."""
        broken = list(verify.verify(self.store).broken)
        assert broken == [], broken


def _found(tx: Tx, tool: str, native_id: str) -> int:
    found = imports.find_session(tx, native_id, profile="main", tool=tool)
    assert found is not None, f"{tool} has no session {native_id}"
    return found.no


def _head(tx: Tx, tool: str, native_id: str) -> SessionHead:
    return sessions.get_by_no(tx, _found(tx, tool, native_id))


def _extra(tx: Tx, tool: str, native_id: str) -> Mapping[str, Any]:
    return sessions.details(tx, _found(tx, tool, native_id)).extra


def _draft(tx: Tx, tool: str, native_id: str) -> str | None:
    return sessions.details(tx, _found(tx, tool, native_id)).draft


def _log(tx: Tx, tool: str, native_id: str) -> list[Entry]:
    return _own(tx, _found(tx, tool, native_id))


def _own(tx: Tx, no: int) -> list[Entry]:
    return list(entries.walk(tx, sessions.segments(tx, no)))


def _heads(tx: Tx) -> list[SessionHead]:
    rows = sessions.page(tx, profile=None, after=0, limit=100_000)
    found = [sessions.get_by_no(tx, row.no) for row in rows]
    return [head for head in found if head.folder != "gone"]


# Damage: files as they are after an accident, or made by someone with bad intentions.

Damage = Callable[[Path, random.Random], None]
_DEEP: Any = []
for _ in range(150):
    _DEEP = [_DEEP]
_WRONG_VALUES: list[Any] = [
    *(None, True, -1, 2**53, 1.5, 1e300, "", "x", "\x00../../etc/passwd", "\ud800"),
    *([], {}, [None], [[]], [3, {"type": None}], {"type": 5}, {"type": "text"}, _DEEP),
]
_DEPTH = 100_000


def damage(path: Path, rng: random.Random, *, database: Damage | None = None) -> None:
    """Damage a file in one of many ways; `database` damages a value in a database."""
    ways: list[Damage] = [_cut, _scribble]
    if path.read_bytes().startswith(b"SQLite"):
        ways += [] if database is None else [database] * 6
    elif path.suffix in JSON_SUFFIXES:
        ways += [_spoil_json] * 6
    rng.choice(ways)(path, rng)


def check_damaged(
    importer: Importer,
    place: Path,
    folder: Path,
    *,
    times: int = 120,
    database: Damage | None = None,
) -> None:
    """Damage copies of a place in many ways: the importer may raise only `BadInput`."""
    rng = random.Random(7)
    for number in range(times):
        copy = folder / f"damaged{number}"
        shutil.copytree(place, copy)
        damage(rng.choice(files_of(copy)), rng, database=database)
        with suppress(BadInput):
            read_all(importer, copy)
        shutil.rmtree(copy)


def _cut(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data) + 1)])


def _scribble(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(min(20, len(data))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(bytes(data))


def _spoil_json(path: Path, rng: random.Random) -> None:
    text = path.read_text()
    if path.suffix == ".json":
        path.write_text(spoilt_json(text, rng))
        return
    lines = text.splitlines()
    at = rng.randrange(len(lines))
    lines[at] = spoilt_json(lines[at], rng)
    path.write_text("\n".join(lines) + "\n")


def spoilt_json(text: str, rng: random.Random) -> str:
    """Return a JSON text with one of its values replaced; raise TypeError if it is not an object or a list."""
    document = json.loads(text)
    if not isinstance(document, dict | list):
        raise TypeError
    places = list(_places(document))
    if not places:
        return "[]"
    holder, key = rng.choice(places)
    holder[key] = rng.choice(_WRONG_VALUES)
    return json.dumps(document)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in inside:
        yield value, key
        if isinstance(each, dict | list):
            yield from _places(each)


def replace_with_link(path: Path, aside: Path) -> None:
    """Move a file aside, and put a link to it in its place."""
    target = aside / path.name
    shutil.move(path, target)
    path.symlink_to(target)


def _replace_with_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _replace_with_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _fill_with_zeros(path: Path) -> None:
    """Write what is left after a power cut: the length without the content."""
    path.write_bytes(b"\x00" * path.stat().st_size)


def _nest_deeply(path: Path) -> None:
    path.write_bytes(b'{"messages":' + b"[" * _DEPTH + b"]" * _DEPTH + b"}\n")


def _fill_with_empty_objects(path: Path) -> None:
    path.write_bytes(b"[" + b"{}," * 200_000 + b"{}]\n")


def _add_byte_order_mark(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())


REPLACEMENTS: list[Callable[[Path], None]] = [
    *(_replace_with_pipe, _replace_with_directory, _empty, _fill_with_zeros),
    *(_nest_deeply, _fill_with_empty_objects, _add_byte_order_mark),
]


def keep_share(path: Path, data: bytes, share: float) -> None:
    """Write the first lines of a file that grows, such as half of them for 0.5."""
    lines = data.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: round(len(lines) * share)]))


def replace_text(place: Path, before: str, after: str) -> bool:
    """Replace a text wherever it is in a JSON file; return whether there is one that has it."""
    old, new = json.dumps(before)[1:-1], json.dumps(after)[1:-1]
    found = [
        path for path in files_of(place) if path.suffix in JSON_SUFFIXES and old in path.read_text()
    ]
    for path in found:
        path.write_text(path.read_text().replace(old, new))
    return bool(found)


def replace_numbers(place: Path, number: Any) -> None:
    """Replace every number in every JSON file."""
    for path in files_of(place):
        if path.suffix == ".json":
            path.write_text(json.dumps(_with_numbers(json.loads(path.read_text()), number)))
        elif path.suffix == ".jsonl":
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            changed = (json.dumps(_with_numbers(each, number)) for each in lines)
            path.write_text("".join(f"{line}\n" for line in changed))


def _with_numbers(value: Any, number: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_numbers(each, number) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_numbers(each, number) for each in value]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return number if is_number else value


def replace_times(place: Path, time: str) -> None:
    """Replace every RFC 3339 time in every text file."""
    for path in files_of(place):
        if path.suffix in (*JSON_SUFFIXES, ".md"):
            path.write_text(_TIME.sub(time, path.read_text()))
