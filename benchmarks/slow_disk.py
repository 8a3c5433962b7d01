"""A slow disk for benchmarks: a fast virtual one flatters stores that commit often."""

import os
import shutil
import subprocess
import sys
from importlib.resources import as_file, files
from pathlib import Path

SYNC_MICROS = 2000


def build(folder: Path) -> Path | None:
    """Compile the library that delays fsync; None where there is no Linux or no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        return None
    library = folder / "slow_disk.so"
    with as_file(files("benchmarks") / "slow_disk.c") as source:
        made = subprocess.run(
            [compiler, "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"],
            capture_output=True,
            check=False,
        )
    return library if made.returncode == 0 else None


def environment(library: Path) -> dict[str, str]:
    """The environment of a process that runs on the slow disk."""
    return {
        **os.environ,
        "LD_PRELOAD": str(library),
        "SESSIONARY_BENCH_SYNC_MICROS": str(SYNC_MICROS),
    }
