"""A server program that tests start in a directory of its own; it ends with the tests.

A second process, the guard, is the server's parent. It waits for the tests to be over, however
they end, then stops the server and removes the directory. This file is also the guard's program,
so it imports nothing but the standard library.
"""

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

STOP_SECONDS = 10.0
_POLL_SECONDS = 0.5
_LOG_CHARACTERS = 300


class ServerUnavailable(RuntimeError):
    """A server for the tests could not be started; the message is one line that says what to do."""


class ExternalServer:
    """A server in a process of its own; its directory `home` is removed with it."""

    def __init__(
        self, command: Sequence[str | Path], home: Path, *, environ: Mapping[str, str] | None = None
    ) -> None:
        self._home = home
        self._guard = subprocess.Popen(
            [sys.executable, "-I", __file__, home, str(os.getpid()), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=None if environ is None else dict(environ),
            # Ctrl-C in the terminal is for the tests, which then stop the server in order.
            start_new_session=True,
        )

    def wait_until(self, is_ready: Callable[[], bool], *, seconds: float, what: str) -> None:
        """Wait until the server answers, or raise with the last line of its log."""
        deadline = time.monotonic() + seconds
        while not is_ready():
            if self._guard.poll() is not None or time.monotonic() > deadline:
                reason = self._last_log_line()
                self.stop()
                raise ServerUnavailable(f"{what} does not start: {reason}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End the server, and leave nothing behind."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()

    def _last_log_line(self) -> str:
        log = self._home / "log"
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        return (lines or ["it wrote no log"])[-1][-_LOG_CHARACTERS:]


def reserved_port() -> socket.socket:
    """A socket that holds a port of loopback without listening; close it when the port is not needed.

    A server that sets SO_REUSEADDR, as most do, can listen there, end and listen again; the system
    gives the port to nobody who asks for just any, and to no outgoing connection.
    """
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", 0))
    return made


def port_of(reservation: socket.socket) -> int:
    """The port that a socket of `reserved_port` holds."""
    port: int = reservation.getsockname()[1]
    return port


def answers(port: int) -> bool:
    """Whether a server listens there."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
        return True
    return False


def _guard(home: Path, parent: int, command: Sequence[str]) -> None:
    with (home / "log").open("ab") as log:
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home,
            start_new_session=True,
        )
    while server.poll() is None and os.getppid() == parent:
        if select.select([sys.stdin], [], [], _POLL_SECONDS)[0]:
            break
    server.terminate()
    try:
        server.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    # If the server ended by itself, the test reads its log and then closes our input.
    while os.getppid() == parent and not select.select([sys.stdin], [], [], _POLL_SECONDS)[0]:
        pass
    shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    _guard(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
