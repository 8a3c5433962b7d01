"""The whole table with one call: each benchmark in its own process, on each disk."""

import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks import comparison, machine, revisions, slow_disk, table
from benchmarks.measure import AS_IT_IS, SCALES, SLOW, Row
from benchmarks.revisions import Revision
from benchmarks.sides import Measured, Older, Side, WorkerError, measure
from sessionary.clock import SystemClock
from sessionary.errors import BadInput, SessionaryError

NAMES = (
    "append", "turn", "engine", "list", "load", "open", "postgres", "search", "web", "sdk",
    "start", "serve", "import", "proxy",
)  # fmt: skip
# Reading syncs nothing: it is measured once.
WRITING = ("append", "turn", "engine", "sdk", "proxy")
# What an installation may not have, and a benchmark needs.
SDKS = ("agents", "sqlalchemy", "aiosqlite", "langgraph.checkpoint.sqlite")
_LEGEND = "_ floor   ~ peer   ratios are of the same round; spread: lowest and highest round"


def main(
    names: Sequence[str] = (),
    *,
    scale: str = "normal",
    output: Path | None = None,
    against: str | None = None,
    resume: bool = False,
    echo: Callable[[str], None],
) -> list[Row]:
    """Run the named benchmarks, or all; print the table as it grows, write it to `output` too.

    With `against`, an older revision runs in the same rounds; its rows go to a file beside `output`.
    Rows in `output` of benchmarks that are not named are kept. With `resume` those that it has of the
    named ones are kept too, and not measured again.
    """
    for name in names:
        if name not in NAMES:
            raise BadInput(f"There is no benchmark {name!r}: choose from {', '.join(NAMES)}.")
    if resume and output is None:
        raise BadInput("What is to be resumed? Name the file with -o.")
    kept = _Kept(output, against, fresh=not names and not resume)
    made: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="sessionary-bench-") as scratch:
        run = _Run(Path(scratch), scale, against)
        echo(_LEGEND)
        if run.library is None:
            echo("No C compiler here: the slow disk is left out.")
        for name in _there(names, echo):
            for disk in run.disks(name):
                if resume and kept.has(name, disk):
                    echo(f"{name}, disk {disk}: kept")
                    continue
                after: list[Row] = []
                before: list[Row] = []
                for measured in run.measure(name, disk):
                    after += measured.after
                    before += measured.before
                made += after
                for line in table.lines(after):
                    echo(line)
                if against is not None:
                    for line in comparison.lines(after, before):
                        echo(line)
                # At once: if the run is ended, the rows so far are kept.
                kept.replace(name, disk, after, before, run.described)
    return made


class _Run:
    """What all benchmarks of a run share: the revisions, the slow disk, the large stores."""

    def __init__(self, scratch: Path, scale: str, against: str | None) -> None:
        self.library = slow_disk.build(scratch)
        self.described = machine.described(SystemClock().now())
        self._scale = scale
        # Large stores are made once by each revision, and stay for its other benchmarks.
        self._folders = {side: scratch / side for side in ("after", "before")}
        for folder in self._folders.values():
            folder.mkdir()
        self._tree = revisions.working_tree()
        self._older: Revision | None = None
        if against is not None:
            self._older = revisions.checked_out(against, scratch)
            self.described |= {"before": self._older.name, "after": self._tree.name}

    def disks(self, name: str) -> Iterator[str]:
        """The disks that a benchmark is measured on."""
        yield AS_IT_IS
        if name in WRITING and self.library is not None:
            yield SLOW

    def measure(self, name: str, disk: str) -> Iterator[Measured]:
        """Measure a benchmark in every revision."""
        older = self._older
        with ExitStack() as stack:

            def open_side(side: str, revision: Revision, benchmarks: Path) -> Side:
                own = tempfile.TemporaryDirectory(dir=self._folders[side])
                folder = Path(stack.enter_context(own))
                return stack.enter_context(
                    Side(
                        revision,
                        name,
                        disk=disk,
                        scale=self._scale,
                        folder=folder,
                        environ=self._environ(disk),
                        benchmarks=benchmarks,
                    )
                )

            after = open_side("after", self._tree, revisions.ROOT)
            before = None
            if older is not None:
                if name == "web":
                    revisions.build_workbench(older)
                before = Older(lambda path: open_side("before", older, path), older.root)
            try:
                yield from measure(after, before, SCALES[self._scale])
            except WorkerError as error:
                raise SessionaryError(f"The benchmark {name!r} failed: {error}") from error

    def _environ(self, disk: str) -> dict[str, str]:
        if disk == SLOW and self.library is not None:
            return slow_disk.environment(self.library)
        return dict(os.environ)


class _Kept:
    """The rows in the files of results: those of the working tree, and those before it."""

    def __init__(self, output: Path | None, against: str | None, *, fresh: bool) -> None:
        self._paths = [] if output is None else [output]
        if output is not None and against is not None:
            self._paths.append(comparison.before_path(output))
        self._rows: list[list[Row]] = [
            [] if fresh or not path.exists() else table.read(path) for path in self._paths
        ]

    def has(self, name: str, disk: str) -> bool:
        """Whether every file has rows of a benchmark."""
        return all(
            any((row.bench, row.disk) == (name, disk) for row in rows) for rows in self._rows
        )

    def replace(
        self, name: str, disk: str, after: list[Row], before: list[Row], machine: dict[str, str]
    ) -> None:
        """Write the rows of a benchmark, beside those of the others."""
        for place, new in enumerate((after, before)[: len(self._paths)]):
            others = [row for row in self._rows[place] if (row.bench, row.disk) != (name, disk)]
            self._rows[place] = sorted(
                others + new, key=lambda row: (NAMES.index(row.bench), row.disk)
            )
            described = machine if place == 0 else None
            table.write(self._rows[place], self._paths[place], described)


def _there(names: Sequence[str], echo: Callable[[str], None]) -> Iterator[str]:
    """The named benchmarks, or all that can run here."""
    missing = [name for name in SDKS if not _is_there(name)]
    for name in names or NAMES:
        if name != "sdk" or not missing:
            yield name
        elif names:
            raise BadInput(
                f"The benchmark 'sdk' compares with other packages: install {', '.join(missing)}."
            )
        else:
            echo(f"Not installed here: {', '.join(missing)}. The benchmark of SDKs is left out.")


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
