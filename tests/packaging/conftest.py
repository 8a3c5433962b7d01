"""What a release is made of, built once for these tests."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.project.code import ROOT

# The first worker builds or installs while the others wait for it.
TIMEOUT_SECONDS = 900


def build(root: Path, folder: Path, *args: str) -> None:
    """Run `python -m build`, with what this environment has."""
    command = [sys.executable, "-m", "build", "--no-isolation", *args]
    done = subprocess.run(
        [*command, "--outdir", str(folder), str(root)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def shared_folder(
    tmp_path_factory: pytest.TempPathFactory, name: str, fill: Callable[[Path], None]
) -> Path:
    """Return a folder that all workers of this test run share; the first who needs it fills it."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder, filled = base / name, base / f"{name}.filled"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not filled.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            fill(folder)
            filled.touch()
    return folder


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and sdist of this checkout. `build` makes the wheel from the sdist."""
    return shared_folder(tmp_path_factory, "built", lambda folder: build(ROOT, folder))
