"""What a release is made of, built once for these tests."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.code import ROOT


def build(root: Path, folder: Path, *args: str) -> None:
    """Run `python -m build`, with what this environment has."""
    command = [sys.executable, "-m", "build", "--no-isolation", *args]
    done = subprocess.run(
        [*command, "--outdir", str(folder), str(root)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and sdist of this checkout. `build` makes the wheel from the sdist."""
    folder = tmp_path_factory.mktemp("built")
    build(ROOT, folder)
    return folder
