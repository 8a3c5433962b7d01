"""The whole table with one call: each benchmark in its own process, on each disk."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks import machine, slow_disk, table
from benchmarks.measure import AS_IT_IS, SLOW, Row
from sessionary.clock import SystemClock
from sessionary.errors import BadInput, SessionaryError

NAMES = (
    "append", "turn", "engine", "list", "load", "open", "postgres", "search", "web", "sdk",
    "start", "serve", "import",
)  # fmt: skip
# Reading syncs nothing: it is measured once.
WRITING = ("append", "turn", "engine", "sdk")
# What an installation may not have, and a benchmark needs.
SDKS = ("agents", "sqlalchemy", "aiosqlite", "langgraph.checkpoint.sqlite")


def main(
    names: Sequence[str] = (),
    *,
    scale: str = "normal",
    output: Path | None = None,
    echo: Callable[[str], None],
) -> list[Row]:
    """Run the named benchmarks, or all; print the table as it grows, write it to `output` too."""
    for name in names:
        if name not in NAMES:
            raise BadInput(f"There is no benchmark {name!r}: choose from {', '.join(NAMES)}.")
    rows: list[Row] = []
    described = machine.described(SystemClock().now())
    with tempfile.TemporaryDirectory(prefix="sessionary-bench-") as made:
        folder = Path(made)
        library = slow_disk.build(folder)
        echo("_ floor   ~ peer   ratios are of the same round; spread: lowest and highest round")
        if library is None:
            echo("No C compiler here: the slow disk is left out.")
        for name in _there(names, echo):
            for disk, environ in _disks(name, library):
                found = list(_run(name, disk, scale, folder, environ))
                rows.extend(found)
                for line in table.lines(found):
                    echo(line)
                if output is not None:  # at once: if the run is ended, the rows so far are kept
                    table.write(rows, output, described)
    return rows


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


def _disks(name: str, library: Path | None) -> Iterator[tuple[str, dict[str, str]]]:
    yield AS_IT_IS, dict(os.environ)
    if name in WRITING and library is not None:
        yield SLOW, slow_disk.environment(library)


def _run(name: str, disk: str, scale: str, folder: Path, environ: dict[str, str]) -> Iterator[Row]:
    # Large stores are beside this folder, for all benchmarks of a run; the rest is made for each.
    with tempfile.TemporaryDirectory(dir=folder) as own:
        command = [sys.executable, "-m", "benchmarks.worker", name, disk, scale, own]
        worker = subprocess.run(command, env=environ, capture_output=True, check=False)
        if worker.returncode != 0:
            reason = worker.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise SessionaryError(f"The benchmark {name!r} failed: {' '.join(reason)}")
        for line in worker.stdout.splitlines():
            yield Row(**json.loads(line))
