"""Starts `sessionary serve` in a process of its own: a fork of a process that has loaded the program already.

Loading the program takes more than a second of processor time, and nearly every test starts a server.
"""

import json
import multiprocessing
import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

# Not used here, but loaded before the fork.
import sessionary.app.server
import sessionary.cli.serve  # noqa: F401
from sessionary.cli import main

_forks = multiprocessing.get_context("forkserver")
# The process that all servers are forked from loads this module, and the program with it.
_forks.set_forkserver_preload([__name__])


class ServerProcess:
    """A process that runs `sessionary serve`, and what it printed when it was ready."""

    def __init__(self, home: Path, port: int, *, user_home: Path) -> None:
        args = ["--home", str(home), "--json", "serve", "--port", str(port)]
        env = {**os.environ, "HOME": str(user_home), "XDG_CONFIG_HOME": f"{user_home}/.config"}
        receiver, sender = _forks.Pipe(duplex=False)
        self._process = _forks.Process(target=_serve, args=(args, env, sender), daemon=True)
        self._process.start()
        sender.close()
        with receiver, open(receiver.fileno(), closefd=False, encoding="utf-8") as output:
            line = output.readline()
        assert line, f"sessionary serve ended before it was ready: home {home}"
        self.ready: dict[str, Any] = json.loads(line)

    def stop(self, seconds: float, *, kill: bool) -> None:
        """End the process, by SIGKILL or SIGTERM, and wait until it has ended."""
        if kill:
            self._process.kill()
        else:
            self._process.terminate()
        self._process.join(seconds)
        assert self._process.exitcode is not None, f"sessionary serve still runs after {seconds} s"


def _serve(args: list[str], env: dict[str, str], output: Connection) -> None:
    os.environ.clear()
    os.environ.update(env)
    sys.stdout = open(output.fileno(), "w", closefd=False, encoding="utf-8")  # noqa: SIM115
    sys.exit(main(args))
