"""The PostgreSQL that the tests start: private, real, and gone afterwards."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from tests.support import postgres as postgres_module
from tests.support.postgres import (
    GivenServer,
    PostgresServer,
    PostgresUnavailable,
    Server,
    start_own_server,
    start_server,
)


def one_value(url: str, query: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def wait_until_gone(home: Path) -> None:
    deadline = time.monotonic() + 30
    while home.exists():
        assert time.monotonic() < deadline, f"{home} is still there"
        time.sleep(0.05)


def test_a_fresh_database_is_a_real_postgresql_of_a_supported_version(postgres_url: str) -> None:
    version = one_value(postgres_url, "SELECT current_setting('server_version_num')::int")

    assert isinstance(version, int)
    assert version >= 150000


def test_a_fresh_database_is_empty_and_speaks_utf8(postgres_url: str) -> None:
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"

    assert one_value(postgres_url, tables) == 0
    assert one_value(postgres_url, "SHOW server_encoding") == "UTF8"
    assert one_value(postgres_url, "SELECT lower('ÄÖ')") == "äö"


def test_two_databases_do_not_see_each_other(postgres: Server) -> None:
    first, second = postgres.create_database(), postgres.create_database()
    run(first, "CREATE TABLE notes (text text)")

    assert one_value(first, "SELECT to_regclass('notes')::text") == "notes"
    assert one_value(second, "SELECT to_regclass('notes')::text") is None


def test_a_database_made_from_a_template_has_its_content(postgres: Server) -> None:
    template = postgres.create_database()
    run(template, "CREATE TABLE notes (text text)", "INSERT INTO notes VALUES ('hello')")

    copy = postgres.create_database(template=template)

    assert one_value(copy, "SELECT text FROM notes") == "hello"


def test_a_database_in_use_can_be_dropped(postgres: Server) -> None:
    url = postgres.create_database()
    with psycopg.connect(url):
        postgres.drop_database(url)

    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)


def test_a_killed_server_restarts_with_what_was_committed(
    postgres_to_break: PostgresServer,
) -> None:
    url = postgres_to_break.create_database()
    run(url, "CREATE TABLE notes (text text)", "INSERT INTO notes VALUES ('kept')")

    postgres_to_break.kill()
    assert not postgres_to_break.is_running
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)

    postgres_to_break.restart()
    assert one_value(url, "SELECT text FROM notes") == "kept"


def test_a_kill_cuts_open_connections(postgres_to_break: PostgresServer) -> None:
    connection = psycopg.connect(postgres_to_break.create_database())

    postgres_to_break.kill()

    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    connection.close()


def test_a_server_listens_on_no_port(postgres_to_break: PostgresServer) -> None:
    assert one_value(postgres_to_break.url, "SHOW listen_addresses") == ""


def test_a_stopped_server_leaves_nothing_behind() -> None:
    with start_own_server() as server:
        home = server.home
        assert home.exists()

    assert not home.exists()
    assert not server.is_running


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_test_run_that_is_killed_leaves_nothing_behind(how: signal.Signals) -> None:
    program = (
        "import signal, time\n"
        "from tests.support.postgres import start_own_server\n"
        # A shell starts what runs in its background with this signal ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "server = start_own_server()\n"
        "print(server.home, server.url, flush=True)\n"
        "time.sleep(100)\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as tests:
        assert tests.stdout is not None
        home, url = tests.stdout.readline().split()
        assert one_value(url, "SELECT 1") == 1
        tests.send_signal(how)

    wait_until_gone(Path(home))
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)


def test_the_server_does_not_run_as_root(postgres_to_break: PostgresServer) -> None:
    assert (postgres_to_break.home / "data").stat().st_uid != 0


def test_programs_that_the_servers_account_cannot_reach_are_copied(tmp_path: Path) -> None:
    (binaries,) = postgres_module._binaries_of_wheel()
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    (private / "site").symlink_to(binaries.parent.parent.parent)

    with PostgresServer(
        private / "site" / binaries.parent.parent.name / "pginstall" / "bin"
    ) as server:
        assert one_value(server.url, "SELECT 1") == 1
        assert (server.home / "programs").exists() == (os.geteuid() == 0)


def test_a_given_server_is_used_and_not_stopped(postgres: Server) -> None:
    given = start_server(postgres.url)
    url = given.create_database()
    given.stop()

    assert isinstance(given, GivenServer)
    assert one_value(url, "SELECT 1") == 1
    given.drop_database(url)


def test_a_given_server_that_does_not_answer_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(PostgresUnavailable) as failure:
        start_server(f"postgresql://nobody@/nothing?host={tmp_path}")

    assert len(str(failure.value).splitlines()) == 1


def test_without_postgresql_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_module, "_binaries_of_wheel", list)
    monkeypatch.setattr(postgres_module, "_binaries_of_system", list)

    with pytest.raises(PostgresUnavailable, match=r"^no PostgreSQL .* SESSIONARY_TEST_POSTGRES"):
        start_own_server()


def test_programs_that_do_not_work_give_way_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    working = postgres_module._binaries_of_wheel()
    monkeypatch.setattr(postgres_module, "_binaries_of_wheel", lambda: [tmp_path])
    monkeypatch.setattr(postgres_module, "_binaries_of_system", lambda: working)

    with start_own_server() as server:
        assert one_value(server.url, "SELECT 1") == 1


def test_importing_the_module_does_not_import_the_driver() -> None:
    program = "import sys, tests.support.postgres; sys.exit('psycopg' in sys.modules)"

    subprocess.run([sys.executable, "-c", program], check=True)
