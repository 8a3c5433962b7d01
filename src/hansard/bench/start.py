"""From the shell and back: what a command takes that has hardly anything to do."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from hansard.bench.goals import at_most
from hansard.bench.measure import Case, Contestant, Sample, Scale

EMPTY = "an empty Python"
VERSION, LIST, SHOW = "hansard --version", "hansard sessions list", "hansard sessions show"
TITLE = "Capitals"
_HANSARD = ["-m", "hansard"]
COMMANDS = {
    VERSION: [*_HANSARD, "--version"],
    LIST: [*_HANSARD, "sessions", "list"],
    SHOW: [*_HANSARD, "sessions", "show", TITLE],
}


def cases(folder: Path, _: Scale) -> Iterator[Case]:
    """Commands that read one small store."""
    environ = {**os.environ, "HANSARD_HOME": str(folder / "home")}
    new = [*_HANSARD, "sessions", "append", "new", "hello", "--title", TITLE]
    _run(new, environ)
    ours = [Contestant(name, "product", _times(args, environ)) for name, args in COMMANDS.items()]
    floor = Contestant(EMPTY, "floor", _times(["-c", "pass"], environ))
    goal = at_most(150, "ms", lambda got: got.p50(LIST) * 1000, of="a list")
    yield Case("a command, from the shell and back", (*ours, floor), (goal,), by="p50")


def _times(args: list[str], environ: dict[str, str]) -> Callable[[float], Sample]:
    def run(_: float) -> Sample:
        latencies = []
        for _ in range(4):
            began = time.perf_counter()
            _run(args, environ)
            latencies.append(time.perf_counter() - began)
        return Sample(len(latencies), sum(latencies), latencies)

    return run


def _run(args: list[str], environ: dict[str, str]) -> None:
    subprocess.run([sys.executable, *args], env=environ, stdout=subprocess.DEVNULL, check=True)
