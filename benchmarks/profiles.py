"""`./dev bench profile`: the functions that take the most CPU time of a turn, an append, an import.

py-spy reads the stacks of all threads from outside, several hundred times a second. It cannot say how much of a core
a thread had, so each thread's samples are weighted by the CPU time that the kernel counted for it.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import revisions, table
from benchmarks.measure import AS_IT_IS
from benchmarks.revisions import ROOT, Revision
from benchmarks.sides import Side, WorkerError
from sessionary.errors import BadInput, SessionaryError

TOP = 15
SAMPLES_PER_SECOND = 400
SECONDS = {"tiny": 1, "quick": 4, "normal": 15, "full": 30}
_THREAD = re.compile(r"^thread \((\d+)\)")
_LINE = re.compile(r":\d+\)$")
# The process that runs the benchmark: it collects garbage before each round, and waits.
_NOT_THE_WORK = "(benchmarks/worker.py)"
# A thread that waits for a disk looks as if it worked: where there is a disk in memory, the stores are there.
_IN_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Subject:
    """What is profiled: the first case of a benchmark whose name has these words, and one contestant."""

    bench: str
    case: str
    contestant: str
    unit: str


SUBJECTS = {
    "engine": Subject("engine", "message to reply, 16 at once", "sessionary", "turn"),
    "append": Subject("append", "64 sessions, asyncio", "sessionary", "append"),
    "import": Subject("import", "messages per CPU second", "sessionary, in the log", "message"),
}


@dataclass(frozen=True, slots=True)
class Line:
    """One function: its share of the CPU time, and how much that is of one piece of work."""

    subject: str
    revision: str
    place: int
    function: str
    percent: float
    own_us: float
    unit: str
    # Of one piece of work in all, with what the rest of the functions take.
    whole_us: float


def main(
    names: Sequence[str] = (),
    *,
    scale: str = "normal",
    against: str | None = None,
    output: Path | None = None,
    echo: Callable[[str], None],
) -> list[Line]:
    """Profile the named subjects, or all, in the working tree and the other revision; print Markdown.

    With `output`, each subject is written to a file of its own: `profile.csv` becomes `profile.engine.csv`.
    """
    for name in names:
        if name not in SUBJECTS:
            raise BadInput(f"There is no profile {name!r}: choose from {', '.join(SUBJECTS)}.")
    program = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which(
        "py-spy"
    )
    if program is None:
        raise BadInput("Profiles are made by py-spy, which is not installed: run ./dev setup.")
    made: list[Line] = []
    memory = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="sessionary-profile-", dir=memory) as scratch:
        sides = {"after": revisions.working_tree()}
        if against is not None:
            sides = {"before": revisions.checked_out(against, Path(scratch)), **sides}
        for name in names or SUBJECTS:
            found: list[Line] = []
            for side, revision in sides.items():
                recorder = _Recorder(program, SECONDS[scale], Path(scratch))
                lines = list(recorder.lines(name, side, revision, scale))
                found += lines
                for line in ("", *markdown(lines)):
                    echo(line)
            made += found
            if output is not None:
                table.write(found, output.with_name(f"{output.stem}.{name}{output.suffix}"))
    return made


def markdown(lines: Sequence[Line]) -> Iterator[str]:
    """The functions of one subject and revision as a table."""
    first = lines[0]
    title = (
        f"{first.subject}, {first.revision}: {first.whole_us:,.0f} µs of CPU for each {first.unit}"
    )
    yield from (f"**{title}**", "")
    yield from (f"| | function | own time | µs for each {first.unit} |", "|---|---|---|---|")
    for each in lines:
        yield f"| {each.place} | `{each.function}` | {each.percent:.1f} % | {each.own_us:,.1f} |"


class _Recorder:
    """Runs a contestant and lets py-spy watch it."""

    def __init__(self, program: str, seconds: int, scratch: Path) -> None:
        self._program = program
        self._seconds = seconds
        self._scratch = scratch

    def lines(self, name: str, side: str, revision: Revision, scale: str) -> Iterator[Line]:
        """The functions with the most CPU time, the first first."""
        subject = SUBJECTS[name]
        own, whole_us = self._record(subject, revision, scale)
        total = sum(own.values())
        if not total:
            raise SessionaryError(f"py-spy saw nothing of {name!r}.")
        for place, (function, weight) in enumerate(_largest(own), 1):
            part = weight / total
            values = (place, function, part * 100, part * whole_us, subject.unit, whole_us)
            yield Line(name, f"{side} ({revision.name})", *values)

    def _record(
        self, subject: Subject, revision: Revision, scale: str
    ) -> tuple[dict[str, float], float]:
        """The own CPU time by function, and the CPU time of one piece of work in µs."""
        try:
            return self._record_with(ROOT, subject, revision, scale)
        except WorkerError:
            if revision.root == ROOT:
                raise
            # The revision cannot run the current benchmark: its own is used.
            return self._record_with(revision.root, subject, revision, scale)

    def _record_with(
        self, benchmarks: Path, subject: Subject, revision: Revision, scale: str
    ) -> tuple[dict[str, float], float]:
        with (
            tempfile.TemporaryDirectory(dir=self._scratch) as parent,
            Side(
                revision,
                subject.bench,
                disk=AS_IT_IS,
                scale=scale,
                folder=_made(Path(parent) / "own"),
                environ=dict(os.environ),
                benchmarks=benchmarks,
            ) as side,
        ):
            while (case := side.next()) is not None and subject.case not in case.name:
                pass
            if case is None:
                raise WorkerError(f"it has no case {subject.case!r}")
            side.run(subject.contestant, warm_up=True)
            stacks = Path(parent) / "stacks.txt"
            threads = _Threads(side.process.pid)
            before = threads.cpu_seconds()
            spy = self._start(side.process.pid, stacks)
            count, used = 0.0, 0.0
            while spy.poll() is None or not count:
                did = side.run(subject.contestant)
                threads.cpu_seconds()
                count, used = count + did["count"], used + did["cpu_seconds"]
            after = threads.cpu_seconds()
            if not stacks.exists():
                raise SessionaryError(
                    "py-spy could not read the process. It needs root or the right to trace "
                    "processes (sysctl kernel.yama.ptrace_scope=0; SYS_PTRACE in a container)."
                )
            spent = {id: seconds - before.get(id, 0.0) for id, seconds in after.items()}
            return own_time(stacks.read_text(encoding="utf-8"), spent), used / count * 1e6

    def _start(self, pid: int, stacks: Path) -> "subprocess.Popen[bytes]":
        command = [self._program, "record", "--pid", str(pid), "--subprocesses", "--nonblocking"]
        command += ["--threads", "--function", "--format", "raw", "--output", str(stacks)]
        command += ["--rate", str(SAMPLES_PER_SECOND), "--duration", str(self._seconds)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def own_time(stacks: str, spent: Mapping[int, float]) -> dict[str, float]:
    """The seconds of each function from py-spy's stacks and the CPU seconds of each thread.

    A thread of a process that has ended is not in `spent`: its samples count as time on a core.
    """
    samples: dict[int, Counter[str]] = {}
    for line in stacks.splitlines():
        stack, _, seen = line.rpartition(" ")
        frames = [_LINE.sub(")", frame) for frame in stack.split(";")]
        thread = next((match for match in map(_THREAD.match, frames) if match), None)
        if frames[-1].endswith(_NOT_THE_WORK):
            continue
        functions = samples.setdefault(int(thread[1]) if thread else 0, Counter())
        functions[frames[-1]] += int(seen)
    own: dict[str, float] = {}
    for id, functions in samples.items():
        total = functions.total()
        seconds = spent.get(id, total / SAMPLES_PER_SECOND)
        for function, count in functions.items():
            own[function] = own.get(function, 0.0) + seconds * count / total
    return own


def _largest(own: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(own.items(), key=lambda item: item[1], reverse=True)[:TOP]


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


class _Threads:
    """The CPU time of each thread of a process; a thread that has ended keeps what it had last."""

    def __init__(self, pid: int) -> None:
        self._tasks = Path(f"/proc/{pid}/task")
        self._seconds: dict[int, float] = {}

    def cpu_seconds(self) -> dict[int, float]:
        """The seconds so far, by the thread's id."""
        for task in self._tasks.iterdir():
            with contextlib.suppress(OSError):  # it has ended
                nanoseconds = (task / "schedstat").read_text(encoding="utf-8").split()[0]
                self._seconds[int(task.name)] = int(nanoseconds) / 1e9
        return dict(self._seconds)
