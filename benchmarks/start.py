"""How long a command takes from the shell and back: `.venv/bin/python benchmarks/start.py`."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HANSARD = str(Path(sys.executable).with_name("hansard"))
COMMANDS = {
    "an empty Python": [sys.executable, "-c", "pass"],
    "hansard --version": [HANSARD, "--version"],
    "hansard sessions list": [HANSARD, "sessions", "list"],
    "hansard sessions list --json": [HANSARD, "sessions", "list", "--json"],
    "hansard sessions show": [HANSARD, "sessions", "show", "Capitals"],
}
TIMES = 15


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        environ = {**os.environ, "HANSARD_HOME": home}
        new = [HANSARD, "sessions", "append", "new", "hello", "--title", "Capitals"]
        subprocess.run(new, env=environ, check=True, capture_output=True)
        for name, command in COMMANDS.items():
            taken = [_milliseconds(command, environ) for _ in range(TIMES)]
            print(
                f"{name:<30} best {min(taken):4.0f} ms, median {statistics.median(taken):4.0f} ms"
            )


def _milliseconds(command: list[str], environ: dict[str, str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, env=environ, check=True, capture_output=True)
    return (time.perf_counter() - begin) * 1000


if __name__ == "__main__":
    main()
