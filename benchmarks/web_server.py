"""A real `sessionary serve` on a large store, and someone who asks it over one connection."""

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from benchmarks import populate, search_store
from benchmarks.corpus import Language
from benchmarks.measure import Scale
from sessionary.actions import credentials
from sessionary.actions.sessions import append, edit
from sessionary.clock import Moment, RandomIds, SystemClock
from sessionary.model.access import Scope
from sessionary.model.message import message
from sessionary.model.session import Opening
from sessionary.model.source import Source
from sessionary.store.database import Store, Tx

SESSIONS, MESSAGES, LONG = 10_000, 320_000, 2_000
LONG_TITLE = "A long session"
PER_SESSION = 40
_LEAST = 400
_CHUNK = 500
_KEPT_SECONDS = 2.0
_CONFIG = 'database = "sqlite:///{path}"\n[agents.quick]\nkind = "echo"\n'


@dataclass(frozen=True, slots=True)
class Asked:
    """One answer: how long it took, its status and its bytes."""

    seconds: float
    status: int
    body: bytes


class Web:
    """A server in a process of its own, its token, and the session of many messages."""

    def __init__(
        self, home: Path, token: str, long_id: str, *, environ: Mapping[str, str] | None = None
    ) -> None:
        command = [sys.executable, "-m", "sessionary", "--home", str(home), "--json"]
        self._process = subprocess.Popen(
            [*command, "serve", "--port", "0"], env=environ, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        ready = json.loads(self._process.stdout.readline())
        self.address: str = ready["address"]
        self.login_link: str = ready["login_link"]
        self.long_id = long_id
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._asked_at = 0.0
        self._connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=60)

    def ask(self, method: str, path: str, body: Any = None, *, api: bool = True) -> Asked:
        """Ask, over the one connection that is kept."""
        sent = None if body is None else json.dumps(body).encode()
        if time.perf_counter() - self._asked_at > _KEPT_SECONDS:
            self._connection.close()  # the server has let go of it by now
            self._connection.connect()
        began = time.perf_counter()
        where = f"/api/v1{path}" if api else path
        self._connection.request(method, where, body=sent, headers=self._headers)
        answer = self._connection.getresponse()
        data = answer.read()
        self._asked_at = time.perf_counter()
        asked = Asked(self._asked_at - began, answer.status, data)
        assert asked.status < 300, data[:300]
        return asked

    def json(self, path: str) -> Any:
        """What a path says."""
        return json.loads(self.ask("GET", path).body)

    @property
    def pid(self) -> int:
        """The process of the server."""
        return self._process.pid

    @property
    def resident_bytes(self) -> int | None:
        """How much memory the server holds; None where nobody says."""
        status = Path(f"/proc/{self._process.pid}/status")
        if not status.exists():
            return None
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmRSS"].split()[0]) * 1024

    @property
    def cpu_seconds(self) -> float | None:
        """How much CPU the server has used, its own and the system's; None where nobody says."""
        stat = Path(f"/proc/{self._process.pid}/stat")
        if not stat.exists():
            return None
        # The name of the program stands in brackets and may contain anything.
        fields = stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End the server."""
        self._connection.close()
        self._process.terminate()
        self._process.wait(30)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def cpu_of(pid: int) -> float:
    """The CPU seconds of a process's threads, to the nanosecond; 0 where nobody says."""
    spent = 0
    for each in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):  # a thread that has ended meanwhile
            spent += int(each.read_text().split()[0])
    return spent / 1e9


def serve(folder: Path, language: Language, scale: Scale, stack: ExitStack) -> Web:
    """A server on a store of the scale's size."""
    count = min(MESSAGES, max(_LEAST, scale.largest * PER_SESSION))
    path = search_store.build(folder, language, count)
    store = populate.opened(path)
    missing = min(SESSIONS, scale.largest) - count // PER_SESSION
    for first in range(0, missing, _CHUNK):
        store.write(_open_many, first, min(_CHUNK, missing - first)).result()
    long_id = store.write(_open_long).result()
    for first in range(0, LONG, _CHUNK):
        store.write(populate.fill, long_id, first, _CHUNK).result()
    store.write(_append_last, long_id).result()
    store.catch_up(None).result()
    token = add_token(store)
    store.close()
    return stack.enter_context(Web(make_home(folder, path), token, long_id))


def make_home(folder: Path, path: Path) -> Path:
    """A home directory whose configuration names the store, and an agent that echoes."""
    home = folder / "home"
    home.mkdir()
    (home / "sessionary.toml").write_text(_CONFIG.format(path=path), encoding="utf-8")
    return home


def _moment() -> Moment:
    return Moment(SystemClock().now(), RandomIds())


def _open_many(tx: Tx, first: int, count: int) -> None:
    for number in range(first, first + count):
        opening = Opening(populate.PROFILE, populate.source_of(number), title=f"Question {number}")
        new_message = append.NewMessage(message("user", f"{number}: what became of it?"))
        append.append_to_new_session(tx, opening, new_message, moment=_moment())


def _open_long(tx: Tx) -> str:
    opening = Opening(populate.PROFILE, Source("web"), title=LONG_TITLE)
    return edit.open_session(tx, opening, moment=_moment())


def _append_last(tx: Tx, id: str) -> None:
    """The long session is the newest: it stands first in every list."""
    new_message = append.NewMessage(message("assistant", "That was the last of it."))
    append.append_to_session(tx, id, new_message, profile=populate.PROFILE, moment=_moment())


def add_token(store: Store) -> str:
    """A token with which everything may be asked."""
    secret = credentials.make_secret(bytes(credentials.SECRET_BYTES))
    store.write(
        credentials.add_token, secret, profile=populate.PROFILE, scope=Scope.ADMIN, moment=_moment()
    ).result()
    return secret
