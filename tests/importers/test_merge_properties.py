"""Whatever a tool does to its files, people read what it shows, and nothing that came is lost."""

import itertools
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sessionary.clock import Moment, RandomIds, SystemClock
from sessionary.importers.base import driver, session_merger
from sessionary.importers.base.events import Unit
from sessionary.importers.base.session_merger import ImportTarget
from sessionary.model.message import Message
from sessionary.store.database import Store
from sessionary.store.tables import imports, usage
from sessionary.testing.importer_world import ImportedStore
from tests.importers.talking_tool import TOKENS, JsonLine, Talk, TalkingTool

# A operation, and two small numbers that say which message and how many.
Deed = tuple[str, int, int]
OPERATIONS = (
    "append",
    "edit",
    "edit back",
    "drop head",
    "truncate",
    "branch",
    "go to",
    "copy",
    "crash",
)
STYLES = ("lines", "parents", "tree")
_stories = itertools.count()


class Crash(Exception):
    """The process ends here."""


class Mortal:
    """A store whose process ends at a write: before it, or when it is done and not yet acknowledged."""

    def __init__(self, store: Store, writes: int, *, is_late: bool) -> None:
        self._store, self._left, self._is_late = store, writes, is_late

    def write(self, *args: Any, **kwargs: Any) -> Any:
        self._left -= 1
        if self._left < 0 and not self._is_late:
            raise Crash
        pending = self._store.write(*args, **kwargs)
        if self._left < 0:
            pending.result()
            raise Crash
        return pending

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Story:
    """A tool that works, and our record of what it wrote."""

    def __init__(self, store: Store, folder: Path, style: str, *, is_marked: bool) -> None:
        self.archive = ImportedStore(store)
        self.number = next(_stories)
        self.folder = folder
        self.ticks = itertools.count()
        first = f"{self.number}-first" if style != "tree" else None
        self.talks = [Talk(folder / f"{self.number}-0", style, is_marked, alias=first)]
        # Every text that an import has taken, by talk.
        self.taken: dict[str, set[str]] = {}
        # What an import that was broken off may have taken.
        self.tried: set[str] = set()
        self.earlier: dict[str, str] = {}

    def line(self, talk: Talk, parent: str | None) -> JsonLine:
        at = next(self.ticks)
        return JsonLine(f"{self.number}-{at}", parent, f"words {self.number}-{at}", at)

    def do(self, operation: str, a: int, b: int) -> None:
        talk = self.talks[a % len(self.talks)]
        if operation == "append" or not talk.lines:
            self.append(talk, 1 + b % 3)
        elif operation == "crash":
            self.crash(talk, b)
        else:
            getattr(self, operation.replace(" ", "_"))(talk, b)

    def append(self, talk: Talk, count: int) -> None:
        for _ in range(count):
            way = talk.way()
            line = self.line(talk, way[-1].id if way else None)
            talk.lines.append(line)
            talk.current = line.id

    def edit(self, talk: Talk, b: int) -> None:
        line = talk.lines[b % len(talk.lines)]
        self.earlier[line.id] = line.text
        line.text = f"{line.text} edited {next(self.ticks)}"

    def edit_back(self, talk: Talk, b: int) -> None:
        edited = [line for line in talk.lines if line.id in self.earlier]
        if edited:
            line = edited[b % len(edited)]
            line.text = self.earlier.pop(line.id)

    def drop_head(self, talk: Talk, b: int) -> None:
        self._forget(talk, talk.lines[: b % len(talk.lines)])

    def truncate(self, talk: Talk, b: int) -> None:
        self._forget(talk, talk.lines[len(talk.lines) - b % len(talk.lines) :])
        talk.current = talk.lines[-1].id

    def _forget(self, talk: Talk, gone: list[JsonLine]) -> None:
        if talk.style == "tree":
            return
        # Of two that answer to what is gone nobody can tell which way is the current one.
        talk.forgotten |= {line.id for line in (gone if talk.style == "lines" else talk.lines)}
        talk.lines = [line for line in talk.lines if line not in gone]

    def branch(self, talk: Talk, b: int) -> None:
        if talk.style == "lines":
            return
        line = self.line(talk, talk.lines[b % len(talk.lines)].id)
        talk.lines.append(line)
        talk.current = line.id

    def go_to(self, talk: Talk, b: int) -> None:
        if talk.style == "tree":
            talk.current = talk.lines[b % len(talk.lines)].id

    def copy(self, talk: Talk, b: int) -> None:
        """The tool goes on in a new file that begins with what the old one has."""
        if talk.style == "tree" or len(self.talks) > 2:
            return
        way = talk.way()
        kept = [replace(line) for line in way[: 1 + b % len(way)]]
        path = self.folder / f"{self.number}-{len(self.talks)}"
        made = Talk(path, talk.style, talk.is_marked, alias=talk.alias, lines=kept)
        made.current, made.forgotten = kept[-1].id, set(talk.forgotten)
        self.talks.append(made)
        self.append(made, 1)

    def crash(self, talk: Talk, b: int) -> None:
        self.tried |= {line.id for line in talk.lines}
        mortal = Mortal(self.archive.store, b % 4, is_late=b % 2 == 0)
        try:
            self.take(talk, mortal)
        except Crash:
            # What was written stays; the next import goes on from there.
            return

    def take(self, talk: Talk, store: Store) -> driver.ToolImportReport:
        return self.take_unit(replace(talk.write(), hint=talk.is_marked), store)

    def take_unit(self, unit: Unit, store: Store) -> driver.ToolImportReport:
        moment = Moment(SystemClock().now(), RandomIds())
        target = ImportTarget(store, "main", "talking", "Talking", moment)
        return driver.run(target, TalkingTool(), [unit])

    def import_all(self) -> None:
        for talk in self.talks:
            if talk.lines:
                report = self.take(talk, self.archive.store)
                assert (report.skipped, report.faults) == (0, [])
                self.taken.setdefault(talk.path.name, set()).update(e.text for e in talk.lines)
        for talk in self.talks:
            if self.is_here(talk):
                self.check(talk)
        # A copy that has nothing of its own yet is read in the talk it was copied from.
        assert all(map(self.is_here, self.talks[:1])) or not self.talks[0].lines

    def is_here(self, talk: Talk) -> bool:
        find = {"profile": "main", "tool": "talking"}
        found = self.archive.store.read(imports.find_session, talk.path.name, **find).result()
        return found is not None

    def check(self, talk: Talk) -> None:
        name = talk.path.name
        shown = self.archive.messages("talking", name)
        ids = [message.platform_message_id for message in shown]
        assert max(Counter(ids).values()) == 1, f"visible twice: {ids}"
        way = talk.way()
        wanted = {(line.id, line.text) for line in way}
        read = [each for each in ((m.platform_message_id, m.text) for m in shown) if each in wanted]
        assert read == [(line.id, line.text) for line in way]
        assert set(ids) - {line.id for line in way} <= talk.forgotten
        log = [
            e.body.text for e in self.archive.log("talking", name) if isinstance(e.body, Message)
        ]
        assert self.taken[name] <= set(log)

    def check_all(self) -> None:
        self.import_all()
        before = self.record()
        for talk in self.talks:
            talk.path.unlink(missing_ok=True)
        self.import_all()
        assert self.record() == before, "an import of the same changed something"
        names = [talk.path.name for talk in self.talks if self.is_here(talk)]
        ids = {text.split()[1] for name in names for text in self.taken.get(name, ())}
        calls = self.calls()
        wanted = {(f"call of {id}", TOKENS) for id in ids}
        assert len(calls) == len(set(calls))
        assert wanted <= set(calls) <= wanted | {(f"call of {id}", TOKENS) for id in self.tried}

    def record(self) -> list[Any]:
        """Every talk's head and log."""
        names = [talk.path.name for talk in self.talks if self.is_here(talk)]
        return [
            (self.archive.session("talking", name), self.archive.log("talking", name))
            for name in names
        ]

    def calls(self) -> list[tuple[str | None, int]]:
        """The model calls that the ledger has of the talks, with what came out."""
        heads = [head for head, _ in self.record()]
        rows = [self.archive.store.read(usage.of_session, head.no).result() for head in heads]
        return [(used.call_id, used.output_tokens) for each in rows for _, used in each]


@pytest.fixture(autouse=True)
def _small_sheaves() -> Iterator[None]:
    """A handful of messages is a transaction: what takes thousands of them happens with a few."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_merger, "MAX_BATCH_ROWS", 3)
        yield


DEED = st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 5), st.integers(0, 7))
BATCHES = st.lists(st.lists(DEED, min_size=1, max_size=4), min_size=1, max_size=5)


APPEND: Deed = ("append", 0, 0)
FOUR: Deed = ("append", 0, 2)


@example(
    style="lines",
    is_marked=False,
    batches=[[APPEND, APPEND], [APPEND, ("edit", 0, 0)], [("edit back", 0, 0)]],
)
@example(style="lines", is_marked=True, batches=[[FOUR, FOUR, ("crash", 0, 1), ("truncate", 0, 5)]])
@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(style=st.sampled_from(STYLES), is_marked=st.booleans(), batches=BATCHES)
def test_people_read_what_the_tool_shows_and_nothing_is_lost(
    store: Store, tmp_path: Path, style: str, is_marked: bool, batches: list[list[Deed]]
) -> None:
    story = Story(store, tmp_path, style, is_marked=is_marked)
    for batch in batches:
        for operation in batch:
            story.do(*operation)
        story.import_all()
    story.check_all()
    story.archive.check()


@pytest.mark.parametrize(("style", "is_marked"), [("lines", True), ("parents", False)])
def test_two_imports_of_one_file_at_once_say_everything_once(
    store: Store, tmp_path: Path, style: str, is_marked: bool
) -> None:
    story = Story(store, tmp_path, style, is_marked=is_marked)
    talk = story.talks[0]
    for count in (40, 1, 20):
        story.append(talk, count)
        unit = replace(talk.write(), hint=is_marked)
        together = Barrier(2)

        def take(unit: Unit = unit, together: Barrier = together) -> list[str]:
            together.wait()
            return [fault.why for fault in story.take_unit(unit, store).faults]

        with ThreadPoolExecutor(2) as pool:
            faults = [
                each for done in [pool.submit(take) for _ in range(2)] for each in done.result()
            ]

        assert {why.partition(";")[0] for why in faults} <= {"another import is writing it"}
        story.import_all()
    story.check_all()
    story.archive.check()
