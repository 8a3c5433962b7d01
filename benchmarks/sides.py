"""A benchmark side by side: the working tree, and an older revision in the same rounds."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from benchmarks.measure import Row, Scale
from benchmarks.revisions import ROOT, Revision
from sessionary.errors import SessionaryError

_WORKER = Path(__file__).with_name("worker.py")
# A case that has taken so long is not measured in more rounds than this.
LONG_CASE_SECONDS = 90.0
LEAST_ROUNDS = 2


class WorkerError(SessionaryError):
    """A worker cannot do what it was asked for; the message says why."""


@dataclass(frozen=True, slots=True)
class CurrentCase:
    """The case that a worker holds."""

    name: str
    contestants: tuple[str, ...]
    load: float


class Side:
    """A worker process with one benchmark of one revision."""

    def __init__(
        self,
        revision: Revision,
        bench: str,
        *,
        disk: str,
        scale: str,
        folder: Path,
        environ: dict[str, str],
        benchmarks: Path = ROOT,
    ) -> None:
        self.case: CurrentCase | None = None
        self._errors = folder / "errors.txt"
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-P", str(_WORKER), bench, disk, scale, str(folder)],
                cwd=benchmarks,
                env=revision.environ(environ, benchmarks),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def next(self) -> CurrentCase | None:
        """Go on to the next case; None after the last."""
        got = self._ask("next")
        self.case = (
            None
            if got["case"] is None
            else CurrentCase(got["case"], tuple(got["contestants"]), got["load"])
        )
        return self.case

    def run(self, name: str, *, warm_up: bool = False) -> dict[str, float]:
        """Let a contestant of the case work for one round; return how much it did, and its times."""
        return self._ask("run", name=name, warm_up=warm_up)

    def rows(self) -> list[Row]:
        """What was measured of the case."""
        assert self.case is not None
        known = {each.name for each in fields(Row)}
        return [
            Row(**{name: row[name] for name in row if name in known} | {"load": self.case.load})
            for row in self._ask("rows")["rows"]
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker; it closes its stores when there are no more requests."""
        # `communicate` closes the pipes; whether the worker has ended before does not matter.
        self.process.communicate()

    def _ask(self, do: str, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            printed = self._errors.read_text(encoding="utf-8", errors="replace").strip()
            raise WorkerError(" ".join(printed.splitlines()[-1:]) or "the process ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer


class Older:
    """An older revision: with the current benchmark as far as that runs there, then with its own.

    `case` is the next case that has not been measured, `reason` says why others cannot be.
    """

    def __init__(self, open_side: Callable[[Path], Side], own_benchmarks: Path) -> None:
        self.reason = "the case is new"
        self._open_side = open_side
        self._others = [own_benchmarks]
        self._measured: set[str] = set()
        self.side = open_side(ROOT)
        self.advance()

    @property
    def case(self) -> CurrentCase | None:
        """The case that can be measured now."""
        return self.side.case

    def advance(self) -> None:
        """Go on to the next case that has not been measured."""
        if self.case is not None:
            self._measured.add(self.case.name)
        while True:
            try:
                found = self.side.next()
            except WorkerError as error:
                self.side.case = None
                self.reason = str(error)
                if not self._others:
                    return
                self.side.close()
                self.side = self._open_side(self._others.pop())
            else:
                if found is None or found.name not in self._measured:
                    return


@dataclass(frozen=True, slots=True)
class Measured:
    """The rows of a case: of the working tree, and of the revision it is compared with."""

    after: list[Row]
    before: list[Row]


def measure(after: Side, older: Older | None, scale: Scale) -> Iterator[Measured]:
    """Measure every case, where both sides have it in the same rounds.

    Cases are matched by name. A case that the older revision cannot run gets a row that says so.
    """
    missing: list[Row] = []
    while (case := after.next()) is not None:
        if older is None or older.case is None or older.case.name != case.name:
            _run_rounds(after, None, scale)
            rows = after.rows()
            if older is not None:
                missing.append(_not_measurable(rows[0], older.reason))
            yield Measured(rows, [])
            continue
        reason = _run_rounds(after, older.side, scale)
        rows = after.rows()
        yield Measured(rows, [_not_measurable(rows[0], reason)] if reason else older.side.rows())
        older.advance()
    # What the older revision's own benchmark has in another order: measured alone.
    while older is not None and older.case is not None:
        reason = _run_rounds(older.side, None, scale)
        missing = [row for row in missing if row.case != older.case.name]
        yield Measured([], older.side.rows())
        older.advance()
    yield Measured([], missing)


def _not_measurable(like: Row, reason: str) -> Row:
    """The row that stands for a case which the older revision cannot run."""
    return Row(like.bench, like.disk, like.case, "", "missing", 0, 0, 0, figure=reason)


def _run_rounds(after: Side, before: Side | None, scale: Scale) -> str:
    """Let every contestant of both sides run in every round, each side first in every other one.

    Return why the older side could not go on, or nothing.
    """
    assert after.case is not None
    names = list(after.case.contestants)
    if before is not None and before.case is not None:
        names += [name for name in before.case.contestants if name not in names]
    reason = ""
    began = time.monotonic()
    for turn in range(-1, scale.rounds):
        if turn >= LEAST_ROUNDS and time.monotonic() - began > LONG_CASE_SECONDS:
            break
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            for side in (before, after) if turn % 2 else (after, before):
                if side is None or side.case is None or name not in side.case.contestants:
                    continue
                try:
                    side.run(name, warm_up=turn < 0)
                except WorkerError as error:
                    if side is after:
                        raise
                    before, reason = None, str(error)
    return reason
