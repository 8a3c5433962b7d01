"""One benchmark of one revision, in a process of its own that does what `sides.Side` asks for.

It is started as a script, with the sources and the benchmarks of its revision on PYTHONPATH. Of the package
`benchmarks` it uses only what old revisions have too, so that their benchmarks can be run with it.
"""

import gc
import importlib
import json
import os
import resource
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from benchmarks.measure import SCALES, Case, Results, rows

MODULES = {
    "append": "append",
    "turn": "turn",
    "engine": "turn_engine",
    "list": "session_lists",
    "load": "load",
    "open": "open_store",
    "postgres": "postgres",
    "search": "search",
    "web": "web",
    "sdk": "sdk",
    "start": "start",
    "serve": "server_start",
    "import": "imports",
    "proxy": "proxy",
}


class Worker:
    """Holds the current case of a benchmark, and what was measured of it."""

    def __init__(self, bench: str, disk: str, scale: str, folder: Path) -> None:
        self._bench = bench
        self._disk = disk
        self._scale = SCALES[scale]
        # Loaded only now: each starts without what the others need.
        module = importlib.import_module(f"benchmarks.{MODULES[bench]}")
        self._cases: Iterator[Case] = module.cases(folder, self._scale)
        self._case: Case | None = None
        self._results = Results()
        self._cpu: dict[str, list[float]] = {}

    def next(self) -> dict[str, Any]:
        """Go on to the next case; the name is null after the last."""
        self._case = next(self._cases, None)
        self._results, self._cpu = Results(), {}
        if self._case is None:
            return {"case": None}
        names = [each.name for each in self._case.contestants]
        load = round(os.getloadavg()[0], 2)
        return {"case": self._case.name, "contestants": names, "load": load}

    def run(self, name: str, *, warm_up: bool = False) -> dict[str, Any]:
        """Let a contestant work; what it does to warm up is not kept."""
        assert self._case is not None
        contestant = next(each for each in self._case.contestants if each.name == name)
        gc.collect()
        began = _cpu_seconds()
        sample = contestant.run(self._scale.seconds / 5 if warm_up else self._scale.seconds)
        used = getattr(sample, "cpu_seconds", None)  # old revisions do not have it
        if used is None:
            used = _cpu_seconds() - began
        if not warm_up:
            self._results.samples.setdefault(name, []).append(sample)
            self._cpu.setdefault(name, []).append(used / max(1, sample.count))
        return {"count": sample.count, "seconds": sample.seconds, "cpu_seconds": used}

    def rows(self) -> dict[str, Any]:
        """The rows of the case: its contestants, its goals."""
        assert self._case is not None
        self._results.cpu = self._cpu
        found = [asdict(row) for row in rows(self._bench, self._disk, self._case, self._results)]
        return {"rows": found}


def main(bench: str, disk: str, scale: str, folder: str) -> None:
    """Answer each request, a line of JSON, with a line; an error is an answer too."""
    requests, answers = _take_pipes()
    worker: Worker | None = None
    for line in requests:
        request = json.loads(line)
        method = request.pop("do")
        try:
            worker = worker or Worker(bench, disk, scale, Path(folder))
            answer = getattr(worker, method)(**request)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _take_pipes() -> tuple[TextIO, TextIO]:
    """Return the pipes for requests and answers; programs that a benchmark starts do not get them."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return requests, answers


def _cpu_seconds() -> float:
    """The CPU time so far of all threads, and of the processes that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    main(*sys.argv[1:])
