"""Programs that are started again for each measurement, with compiled bytecode as an installed one has."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.measure import Contestant, Sample

EMPTY = "an empty Python"
# What the script `sessionary` of an installed package does; `python -m` takes longer.
SESSIONARY = ["-c", "import sys; from sessionary.cli import main; sys.exit(main())"]
_MEASURE = (
    "import resource, subprocess, sys;"
    "subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True);"
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
)


def _cpu_seconds(pid: int) -> float:
    """The CPU time of a running process, from one hundredth of a second up; Linux counts no finer."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return max(1, int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Cold:
    """Runs Pythons of their own. What they load is compiled once, by the first, in a folder of theirs."""

    def __init__(self, folder: Path, **environ: str) -> None:
        # A source tree that changes has none or old bytecode; a package that was installed has it.
        given = {**os.environ, **environ, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
        self.environ: Mapping[str, str] = {
            name: value for name, value in given.items() if name != "PYTHONDONTWRITEBYTECODE"
        }

    def run(self, args: list[str]) -> None:
        """Start a Python and wait for its end."""
        command = [sys.executable, *args]
        subprocess.run(command, env=self.environ, stdout=subprocess.DEVNULL, check=True)

    def times(self, args: list[str], count: int) -> Callable[[float], Sample]:
        """A contestant's run: so many starts, one after the other."""

        def run(_: float) -> Sample:
            latencies = []
            for _ in range(count):
                began = time.perf_counter()
                self.run(args)
                latencies.append(time.perf_counter() - began)
            return Sample(count, sum(latencies), latencies)

        return run

    def cpu_to_first_output(self, args: list[str], count: int) -> Callable[[float], Sample]:
        """A contestant's run: the CPU time that each start took until something was printed."""

        def run(_: float) -> Sample:
            used = [self._cpu_to_first_output(args) for _ in range(count)]
            return Sample(count, sum(used), used)

        return run

    def _cpu_to_first_output(self, args: list[str]) -> float:
        with subprocess.Popen(
            [sys.executable, *args], env=self.environ, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            if not process.stdout.read(1):
                raise RuntimeError("the program printed nothing")
            used = _cpu_seconds(process.pid)
            process.stdout.read()
        return used

    def floor(self, count: int) -> Contestant:
        """A Python that does nothing."""
        return Contestant(EMPTY, "floor", self.times(["-c", "pass"], count))

    def most_memory(self, args: list[str]) -> float:
        """The most memory that a Python takes, in megabytes.

        A small process starts it: what the starting one has would be counted otherwise.
        """
        command = [sys.executable, "-c", _MEASURE, sys.executable, *args]
        output = subprocess.run(
            command, env=self.environ, stdout=subprocess.PIPE, check=True
        ).stdout
        return int(output.split()[-1]) / 1000
