"""Forks processes quickly from one that has imported everything, and kills them at any instant."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[2]
FOREVER = 600.0


@dataclass
class ForkedProcess:
    """A process that writes, and the file of its reports."""

    name: str
    number: int
    report: Path
    _lines: list[dict[str, Any]] = field(default_factory=list)
    _read: int = 0

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):  # its own crash is in its report
            os.kill(self.number, signal.SIGKILL)
        while self.is_alive():
            time.sleep(0.001)

    def is_alive(self) -> bool:
        try:
            os.kill(self.number, 0)
        except ProcessLookupError:
            return False
        return True

    def lines(self) -> list[dict[str, Any]]:
        """What it has reported so far; only what is new is read from the file."""
        if self.report.exists():
            with self.report.open("rb") as file:
                file.seek(self._read)
                text = file.read()
            # The last line of one that was killed may be torn.
            whole = text[: text.rfind(b"\n") + 1]
            self._read += len(whole)
            self._lines += map(json.loads, whole.splitlines())
        return list(self._lines)


@dataclass
class ForkServer:
    """A process that forks others on demand; `module` is the program it runs."""

    folder: Path
    module: str = "tests.walks.writing_child"
    started: int = 0
    _process: subprocess.Popen[str] | None = None
    _running: list[ForkedProcess] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", self.module],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._answer() == "ready"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in self._running:
            if child.is_alive():
                child.kill()
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def fork(self, url: str, **order: Any) -> ForkedProcess:
        """Start a process on the store at the URL."""
        assert self._process is not None
        assert self._process.stdin is not None
        name = f"c{self.started}"
        self.started += 1
        report = self.folder / f"{name}.report"
        given = {"name": name, "url": url, "report": str(report), "seconds": FOREVER, **order}
        self._process.stdin.write(json.dumps(given) + "\n")
        self._process.stdin.flush()
        child = ForkedProcess(name, int(self._answer()), report)
        self._running.append(child)
        return child

    def let_run(self, seconds: float) -> None:
        """Let the processes run for some seconds."""
        time.sleep(seconds)

    def kill(self, child: ForkedProcess) -> None:
        """Kill a process, and wait until it is gone."""
        child.kill()
        self._running.remove(child)

    def _answer(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()
