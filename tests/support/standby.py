"""A second PostgreSQL that follows the first, and takes its place when that one dies."""

import subprocess

from tests.support.postgres import PostgresServer, PostgresUnavailable

# What a server that follows another says of itself when it answers.
FOLLOWING = "standby"


class Standby(PostgresServer):
    """Follows a server of ours; from `start` on, that one waits for it at every commit."""

    def __init__(self, primary: PostgresServer) -> None:
        super().__init__(primary.binaries)
        self._primary = primary

    def start(self) -> None:
        """Copy the other server, follow it, and have it wait for us."""
        super().start()
        self._primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self._primary.execute("SELECT pg_reload_conf()")

    def promote(self) -> None:
        """Follow no longer: from now on this one is written to."""
        self.execute("ALTER SYSTEM RESET synchronous_standby_names")
        self.execute("SELECT pg_promote(true)")

    def _create_cluster(self) -> None:
        copied = subprocess.run(
            [
                *(self.binaries / "pg_basebackup", "--pgdata", self.home / "data", "--no-sync"),
                *("--write-recovery-conf", "--checkpoint=fast", "--username=sessionary"),
                *("--host", self._primary.home),
            ],
            **self.popen_options(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if copied.returncode != 0:
            raise PostgresUnavailable(copied.stdout.decode(errors="replace").strip()[-300:])

    def _is_ready(self, pid: int) -> bool:
        return self.state(pid) in (FOLLOWING, "ready")
