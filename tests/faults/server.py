"""`sessionary serve` as a process that can be killed, stopped and started again, and its clients."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.support.external_server import port_of, reserved_port
from tests.support.history import Line, Reading

CONFIGURATION = """
[agents.echo]
kind = "echo"

[engine]
lease_seconds = 2
"""
READY = 60.0


class Gone(Exception):
    """The server gave no whole answer: nobody knows what became of the request."""


class Served:
    """A server that comes back to the same address."""

    def __init__(self, home: Path, url: str) -> None:
        self.home, self.url = home, url
        home.mkdir(parents=True, exist_ok=True)
        (home / "sessionary.toml").write_text(CONFIGURATION)
        # Kept for as long as this object lives, also while no server runs.
        self._reservation = reserved_port()
        self.port = port_of(self._reservation)
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        added = self.command("tokens", "add", "--scope", "write", "--json")
        self.token: str = json.loads(added)["token"]

    def command(self, *args: str) -> str:
        """What a command on the same store prints."""
        done = subprocess.run(
            [sys.executable, "-m", "sessionary", "--database", self.url, *args],
            env=self._environ(),
            capture_output=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
        return done.stdout.decode()

    def start(self, *, before: tuple[str, ...] = ()) -> None:
        """Run it, and wait until it answers."""
        arguments = ["--database", self.url, "serve", "--port", str(self.port), "--json"]
        self._process = subprocess.Popen(
            [*before, sys.executable, "-m", "sessionary", *arguments],
            env=self._environ(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the server did not start"
        self.starts += 1

    def close(self) -> None:
        """Kill it, and give its port back."""
        self.kill()
        self._reservation.close()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def stop(self) -> int:
        """SIGTERM, and wait until it has ended by itself."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=60)
        return self._process.returncode

    def ask(
        self, method: str, path: str, body: Any = None, *, key: str | None = None
    ) -> tuple[int, Any]:
        """One request; `Gone` when there is no whole answer."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, f"/api/v1{path}", sent, headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Gone(str(error)) from error
        finally:
            connection.close()
        return answer.status, json.loads(text) if text else None

    def read(self, tokens: list[str]) -> Reading:
        """Everything that is there, read as any program would."""
        heads = self._heads()
        lines = {head["id"]: self._lines(head["id"]) for head in heads}
        counts = {head["id"]: head["message_count"] for head in heads}
        keys = [head["key"] for head in heads if head["key"] and head["ended_at"] is None]
        return Reading(lines, counts, keys, {token: self._search(token) for token in tokens})

    def _heads(self) -> list[dict[str, Any]]:
        found, cursor = [], ""
        while True:
            status, page = self.ask("GET", f"/sessions?limit=100{cursor}")
            assert status == 200, page
            found += page["items"]
            if page["next"] is None:
                return found
            cursor = f"&cursor={quote(page['next'])}"

    def _lines(self, session: str) -> list[Line]:
        found: list[Line] = []
        while True:
            after = found[-1].seq if found else 0
            _, page = self.ask("GET", f"/sessions/{session}/entries?after={after}&limit=100")
            if not page["items"]:
                return found
            found += [Line(each["seq"], each["role"], each["text"]) for each in page["items"]]

    def _search(self, token: str) -> frozenset[tuple[str, int]]:
        query = f"/search?q={quote(token)}+role:user&all_hits=true&limit=50"
        status, page = self.ask("GET", query)
        assert status == 200, page
        return frozenset((hit["session"]["id"], hit["seq"]) for hit in page["items"])

    def _environ(self) -> dict[str, str]:
        return {**os.environ, "SESSIONARY_HOME": str(self.home)}


def wait_until(holds: Any, seconds: float = READY) -> None:
    """Wait for something that must come true."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it did not come true in time"
        time.sleep(0.05)
