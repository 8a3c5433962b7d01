"""The example agent and client of the protocol's own Python package, from its source distribution.

The installed package does not have them. They are fetched on first use, checked against the hash in
`requirements.lock`, and run as they are.
"""

import re
import shutil
import subprocess
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

import hatch_build
from tests.support.environment import INSTALL_SECONDS, installed
from tests.support.external_server import ServerUnavailable

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".tools"
PACKAGE = "agent-client-protocol"


def folder() -> Path:
    """Return the folder of the examples of the installed version."""
    name = f"{PACKAGE.replace('-', '_')}-{version(PACKAGE)}"
    examples = TOOLS / name / "examples"
    python = installed(TOOLS, "pip", ("pip",))
    with hatch_build.FolderLock(TOOLS):
        if not examples.exists():
            with tempfile.TemporaryDirectory(dir=TOOLS) as place:
                _fetch(python, Path(place))
                with tarfile.open(Path(place) / f"{name}.tar.gz") as archive:
                    archive.extractall(place, filter="data")
                shutil.rmtree(TOOLS / name, ignore_errors=True)
                (Path(place) / name).rename(TOOLS / name)
    return examples


def _fetch(python: Path, place: Path) -> None:
    lock = (ROOT / "requirements.lock").read_text()
    pinned = re.search(rf"^{PACKAGE}==(?:.*\\\n)*.*\n", lock, re.MULTILINE)
    assert pinned is not None
    wanted = place / "wanted.txt"
    wanted.write_text(pinned.group())
    pip = (python, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", PACKAGE)
    done = subprocess.run(
        (*pip, "--require-hashes", "-r", wanted, "-d", place),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1][:300]
        raise ServerUnavailable(f"the examples of {PACKAGE} could not be fetched: {reason}")
