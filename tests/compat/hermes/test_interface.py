"""The calls of `interface/*.txt` against the compat package.

Their expected results are written from the published interface of Hermes 0.15, not from what this
code returns. A file has sections; each begins with `# a sentence` and is one test with an empty
database. A line is a call, or `call => expected result`, or `call => raises Error: a part of its
message`; an indented line continues the one before it.
"""

import ast
import asyncio
import json
import logging
import os
import re
import sqlite3
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import time_machine

from sessionary.actions.transfer.export import export_jsonl
from sessionary.compat.hermes import config, session, state
from sessionary.compat.hermes.config import GatewayConfig, SessionResetPolicy
from sessionary.compat.hermes.session import SessionStore
from tests.compat.hermes.conftest import Opener

FOLDER = Path(__file__).parent / "interface"
# Files about values: they need no database.
PURE = ("config.txt", "sources.txt")
BEGINNING = "2026-03-02T10:00:00+00:00"


@dataclass(frozen=True)
class Line:
    """One line of a section: a call, and what it must return or raise."""

    number: int
    call: str
    expected: str | None = None


@dataclass(frozen=True)
class Section:
    """A sentence of the interface and the calls that show it."""

    file: str
    sentence: str
    lines: tuple[Line, ...]

    def __str__(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", f"{self.file[:-4]} {self.sentence}".lower()).strip("-")


def read_sections(path: Path) -> Iterator[Section]:
    sentence, lines = "", list[Line]()
    for number, text in enumerate([*path.read_text().splitlines(), "# end"], 1):
        if text.startswith("# "):
            if lines:
                yield Section(path.name, sentence, tuple(lines))
            sentence, lines = text.removeprefix("# "), []
        elif text.startswith(" "):
            before = lines.pop()
            joined = f"{before.call} => {before.expected}" if before.expected else before.call
            lines.append(_parse_line(before.number, f"{joined} {text.strip()}"))
        elif text:
            lines.append(_parse_line(number, text))


def _parse_line(number: int, text: str) -> Line:
    call, arrow, expected = text.partition(" => ")
    return Line(number, call.strip(), expected.strip() if arrow else None)


SECTIONS = [each for path in sorted(FOLDER.glob("*.txt")) for each in read_sections(path)]


def run(section: Section, names: dict[str, Any]) -> None:
    """Run a section line by line; the first line that is not as expected fails it."""
    for line in section.lines:
        where = f"{section.file}:{line.number}: {line.call}"
        if line.expected is not None and line.expected.startswith("raises "):
            kind, _, part = line.expected.removeprefix("raises ").partition(":")
            with pytest.raises(_evaluate(kind, names), match=re.escape(part.strip()) or None):
                _evaluate(line.call, names)
            continue
        try:
            found = _evaluate(line.call, names)
        except Exception as error:
            error.add_note(where)
            raise
        if line.expected is not None:
            expected = _evaluate(line.expected, names)
            assert found == expected, where
            assert type(found) is type(expected), where


def _evaluate(text: str, names: dict[str, Any]) -> Any:
    """The value of an expression; an assignment adds its name."""
    [statement] = ast.parse(text).body
    if isinstance(statement, ast.Expr):
        return eval(text, names)  # our own files
    exec(text, names)
    return None


def plain_names() -> dict[str, Any]:
    """What a section can name without a database."""
    found: dict[str, Any] = {}
    for module in (config, session, state):
        found |= {name: value for name, value in vars(module).items() if name[:1].isupper()}
    for name in ("build_session_context", "build_session_context_prompt", "build_session_key"):
        found[name] = getattr(session, name)
    return found | {
        "config": config,
        "session": session,
        "state": state,
        "datetime": datetime,
        "timedelta": timedelta,
        "json": json,
        "is_shared_multi_user_session": session.is_shared_multi_user_session,
    }


@pytest.fixture
def names(
    address: str, open_db: Opener, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> Iterator[dict[str, Any]]:
    """What a section can name: `db`, `store`, `clock` and a few helpers."""
    caplog.set_level(logging.INFO)
    folder = tmp_path / "sessions"
    folder.mkdir()
    with time_machine.travel(BEGINNING) as clock:
        db = open_db()
        policy = SessionResetPolicy(mode="idle", idle_minutes=60)
        store = SessionStore(folder, GatewayConfig(default_reset_policy=policy), db=db)
        yield plain_names() | {
            "db": db,
            "store": store,
            "clock": clock,
            "address": address,
            "folder": folder,
            "open_db": open_db,
            "sqlite3": sqlite3,
            "say": lambda id, *texts: [db.append_message(id, "user", text) for text in texts],
            "row": lambda id, *columns: _chosen(db.get_session(id) or {}, columns),
            "contents": lambda id: [each["content"] for each in db.get_messages(id)],
            "field": lambda rows, name: [each[name] for each in rows],
            "ids": lambda rows: [each["id"] for each in rows],
            "exported": lambda: "".join(export_jsonl(db._store.store, profile="main")),
            "logged": lambda: caplog.text,
            # A keyword that no other test uses: each is logged only once.
            "fresh": f"keyword_{uuid4().hex}",
            "in_threads": in_threads,
            "in_child": in_child,
            "awaited": awaited,
        }


def _chosen(row: Mapping[str, Any], columns: Sequence[str]) -> Any:
    found = [row[name] for name in columns]
    return found[0] if len(found) == 1 else tuple(found)


def in_threads(count: int, call: Callable[[int], Any]) -> list[Any]:
    """The results of that many calls at once."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(call, range(count)))


def in_child(call: Callable[[], Any]) -> Any:
    """The result of a call in a forked process, or the name of its error."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = repr(call())
        except Exception as error:
            answer = repr(type(error).__name__)
        os.write(writer, answer.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return ast.literal_eval(answer)


def awaited(make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """The result of a coroutine, in a loop of its own."""
    return asyncio.run(make())


@pytest.mark.parametrize("section", [s for s in SECTIONS if s.file not in PURE], ids=str)
def test_a_call_returns_what_hermes_returns(section: Section, names: dict[str, Any]) -> None:
    run(section, names)


@pytest.mark.parametrize("section", [s for s in SECTIONS if s.file in PURE], ids=str)
def test_a_value_is_what_it_is_in_hermes(section: Section) -> None:
    run(section, plain_names())


def test_at_least_200_calls_have_an_expected_result() -> None:
    assert sum(line.expected is not None for each in SECTIONS for line in each.lines) >= 200
