"""Files as they come after an accident or from an enemy: cut anywhere, wrong types everywhere."""

import contextlib
import json
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sessionary.errors import BadInput
from sessionary.importers.base.events import Branch, Event, Importer, MessageEvent
from sessionary.importers.base.session_merger import body_text
from sessionary.model import message
from sessionary.model.message import Role
from sessionary.store.tables.blobs import hash_of

DEEP: Any = []
for _ in range(150):
    DEEP = [DEEP]
VALUES: list[Any] = [
    *(None, True, -1, 2**53, 1.5, 1e300, "", "x", "\x00../../etc/passwd", "\ud800"),
    *([], {}, [None], [[]], [3, {"type": None}], {"type": 5}, {"type": "text"}, DEEP),
]


def events(importer: Importer, place: Path) -> list[Event]:
    """Everything that a place says, each message in the form the log keeps."""
    found = [event for unit in importer.find(place) for event in importer.read(unit, None)]
    for event in found:
        _check(event)
    return found


def survives(importer: Importer, place: Path, tmp_path: Path, *, times: int = 120) -> None:
    """Damage the files of a place in many ways: only `BadInput` may come of it."""
    rng = random.Random(7)
    for number in range(times):
        copy = tmp_path / f"hurt{number}"
        shutil.copytree(place, copy)
        chosen = rng.choice([each for each in sorted(copy.rglob("*")) if each.is_file()])
        rng.choice(_ways(chosen))(chosen, rng)
        with contextlib.suppress(BadInput):
            events(importer, copy)
        shutil.rmtree(copy)


def _check(event: Event) -> None:
    if isinstance(event, Branch):
        for item in event.items:
            _check(item)
    if not isinstance(event, MessageEvent):
        return
    assert event.role in set(Role)
    assert event.id is None or isinstance(event.id, str)
    assert event.at.tzinfo is not None
    for each in event.parts:
        assert message.to_json(message.from_json(each)) == each
    wanted = {each["blob"] for each in event.parts if each["type"] == "attachment"}
    assert wanted <= {hash_of(data) for data in event.blobs}
    body_text(event, "x")


Way = Callable[[Path, random.Random], None]


def _ways(path: Path) -> list[Way]:
    if path.read_bytes().startswith(b"SQLite"):
        return [_cut, _scribble, *[_spoil_cell] * 6]
    if path.suffix in (".json", ".jsonl"):
        return [_cut, _scribble, *[_spoil_json] * 6]
    return [_cut, _scribble]


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
        path.write_text(_spoilt(text, rng))
        return
    lines = text.splitlines()
    at = rng.randrange(len(lines))
    lines[at] = _spoilt(lines[at], rng)
    path.write_text("\n".join(lines) + "\n")


def _spoil_cell(path: Path, rng: random.Random) -> None:
    base = sqlite3.connect(path)
    with base:
        tables = [
            name
            for (name,) in base.execute("SELECT name FROM sqlite_schema WHERE type='table'")
            if "_fts" not in name
        ]
        table = rng.choice(tables)
        rows = base.execute(f'SELECT rowid, * FROM "{table}"').fetchall()
        columns = [row[1] for row in base.execute(f"PRAGMA table_info('{table}')")]
        if rows:
            row, column = rng.choice(rows), rng.randrange(len(columns))
            value = _spoilt_cell(row[column + 1], rng)
            # A number that is the row's own can be nothing else.
            with contextlib.suppress(sqlite3.IntegrityError):
                base.execute(
                    f'UPDATE OR IGNORE "{table}" SET "{columns[column]}"=? WHERE rowid=?',
                    (value, row[0]),
                )
    base.close()


def _spoilt_cell(value: Any, rng: random.Random) -> Any:
    try:
        return _spoilt(value, rng)
    except (ValueError, TypeError):
        return rng.choice([None, -1, 1.5, "x", "\x00", b"\xff\xfe", "[]", '{"a":[1]}', 2**53])


def _spoilt(text: str, rng: random.Random) -> str:
    """A JSON text with one of its values replaced."""
    document = json.loads(text)
    if not isinstance(document, dict | list):
        raise TypeError
    spots = list(_spots(document))
    if not spots:
        return "[]"
    holder, key = rng.choice(spots)
    holder[key] = rng.choice(VALUES)
    return json.dumps(document)


def _spots(value: Any) -> Iterator[tuple[Any, Any]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in inside:
        yield value, key
        if isinstance(each, dict | list):
            yield from _spots(each)
