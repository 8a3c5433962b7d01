"""The working tree, and an older revision beside it, each with the sources that a benchmark runs."""

import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from sessionary.errors import BadInput

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Revision:
    """What is measured: the product's sources in a folder, and what they are called."""

    name: str
    root: Path

    def environ(self, given: dict[str, str], benchmarks: Path = ROOT) -> dict[str, str]:
        """The environment of a process that runs these sources with the benchmarks of a folder.

        PYTHONPATH comes before what is installed, also in the processes that a benchmark starts.
        """
        return {**given, "PYTHONPATH": os.pathsep.join((str(self.root / "src"), str(benchmarks)))}


def working_tree() -> Revision:
    """The sources as they are now."""
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "src").strip()
    commit = _git("rev-parse", "--short=8", "HEAD").decode().strip()
    return Revision(f"{commit} and changes" if changed else commit, ROOT)


def checked_out(revision: str, folder: Path) -> Revision:
    """The files of a revision, compiled, in a folder; the working tree and git's records stay as they are."""
    commit = _git("rev-parse", "--short=8", "--verify", f"{revision}^{{commit}}").decode().strip()
    root = folder / f"revision-{commit}"
    root.mkdir()
    with tarfile.open(fileobj=BytesIO(_git("archive", commit))) as archive:
        archive.extractall(root, filter="data")
    # As `./dev setup` does it: an installed program has its bytecode.
    subprocess.run([sys.executable, "-m", "compileall", "-q", root / "src"], check=True)
    return Revision(commit, root)


def build_workbench(revision: Revision) -> None:
    """Build the front end that its server sends."""
    build = [sys.executable, "hatch_build.py"]
    done = subprocess.run(build, cwd=revision.root, capture_output=True, check=False)
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise BadInput(f"The workbench of {revision.name} cannot be built: {' '.join(reason)}")


def _git(*args: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, check=False)
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise BadInput(f"git {args[0]}: {' '.join(reason)}")
    return done.stdout
