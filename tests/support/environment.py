"""Environments of their own for what cannot stand beside our other packages; made on first use."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.external_server import ServerUnavailable

if os.name == "posix":
    import fcntl

INSTALL_SECONDS = 600
# A package index may answer one request with an error that has passed when it is asked again.
INSTALL_TRIES = 3


def installed(
    tools: Path, name: str, wanted: Sequence[str], *, without_dependencies: Sequence[str] = ()
) -> Path:
    """The interpreter of the environment of this name, with everything in it that is wanted.

    `without_dependencies` are installed as they are, because not everything that they depend on is needed.
    """
    environment = tools.resolve() / name
    python = environment / "bin" / "python"
    tools.mkdir(exist_ok=True)
    with (tools / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done, made_of = environment / "sessionary-done", "\n".join((*wanted, *without_dependencies))
        if not done.exists() or done.read_text() != made_of:
            _install(tools / "bin" / "uv", environment, python, wanted, without_dependencies)
            done.write_text(made_of)
    return python


def _install(
    uv: Path,
    environment: Path,
    python: Path,
    wanted: Sequence[str],
    without_dependencies: Sequence[str],
) -> None:
    if uv.exists():
        _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, environment], wanted)
        install: list[str | Path] = [
            uv,
            "pip",
            "install",
            "--quiet",
            "--compile-bytecode",
            "--python",
            python,
        ]
    else:
        _run([sys.executable, "-m", "venv", "--clear", environment], wanted)
        install = [python, "-m", "pip", "install", "--quiet"]
    _try_to_run([*install, *wanted], wanted)
    if without_dependencies:
        _try_to_run([*install, "--no-deps", *without_dependencies], without_dependencies)


def _try_to_run(command: Sequence[str | Path], wanted: Sequence[str]) -> None:
    for left in reversed(range(INSTALL_TRIES)):
        try:
            _run(command, wanted)
        except ServerUnavailable as error:
            if left == 0:
                raise
            print(f"{error}; it is tried again, {left} more at most", file=sys.stderr)
        else:
            return


def _run(command: Sequence[str | Path], wanted: Sequence[str]) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INSTALL_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        reason = (done.stdout.strip().splitlines() or ["it printed nothing"])[-1][:300]
        what = ", ".join(wanted)
        raise ServerUnavailable(f"the tests need {what}, which could not be installed: {reason}")
