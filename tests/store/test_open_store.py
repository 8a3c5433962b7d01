"""Opening a store: bad input gets one clear line and changes nothing."""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import apsw
import psycopg
import pytest

from sessionary.clock import RandomIds, SystemClock
from sessionary.errors import BadInput, Damaged, NotFound, SessionaryError, StoreUnavailable
from sessionary.store import migrations
from sessionary.store.database import Store
from sessionary.store.open import open_store
from sessionary.store.sqlite import db_file
from tests.store.conftest import Opener, opened
from tests.store.raw import execute
from tests.support.postgres import Server
from tests.support.world import World

# On SQLite the index of the search is a file of its own.
SEARCH_TABLES = {
    *(
        "search_blocks",
        "search_docs",
        "search_places",
        "search_state",
        "search_taken",
        "search_titles",
    ),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessionary.db"


@pytest.fixture
def filled(path: Path) -> Path:
    store = opened(f"sqlite:///{path}")
    World(store).session("a")
    store.close()
    return path


def listed(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def refuse(url: str, *, create: bool = True) -> SessionaryError:
    with pytest.raises(SessionaryError) as caught:
        open_store(url, create=create, clock=SystemClock(), ids=RandomIds()).close()
    assert "\n" not in str(caught.value)
    assert caught.value.committed == "no"
    return caught.value


def test_a_store_is_private_from_its_first_byte(filled: Path) -> None:
    """P15: 0600."""
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in filled.parent.iterdir()}

    assert set(modes.values()) == {0o600}


def test_nothing_is_made_where_no_store_is_and_none_is_wanted(path: Path) -> None:
    error = refuse(f"sqlite:///{path}", create=False)

    assert type(error) is NotFound
    assert str(path) in str(error)
    assert listed(path.parent) == {}


def test_a_store_is_not_made_in_a_folder_that_is_not_there(path: Path) -> None:
    error = refuse(f"sqlite:///{path.parent}/no/such/folder.db")

    assert type(error) is StoreUnavailable
    assert f"{path.parent}/no/such" in str(error)
    assert listed(path.parent) == {}


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://x", "mysql"),
        ("sqlite://host/x.db", "names no file"),
        ("sqlite:", "names no file"),
        ("", "names no file"),
    ],
)
def test_what_is_not_a_store_s_address_is_refused(url: str, words: str) -> None:
    error = refuse(url)

    assert type(error) is BadInput
    assert words in str(error)


def test_a_folder_is_not_a_store(path: Path) -> None:
    assert "is a directory" in str(refuse(f"sqlite:///{path.parent}"))


def test_a_file_that_is_not_a_database_is_left_as_it_is(path: Path) -> None:
    path.write_bytes(b"Dear diary, today I learned about page sizes." * 40)
    before = listed(path.parent)

    error = refuse(f"sqlite:///{path}")

    assert type(error) is StoreUnavailable
    assert "not a Sessionary store" in str(error)
    assert listed(path.parent) == before


def test_another_program_s_database_is_left_as_it_is(path: Path) -> None:
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE sessions (id)")
    other.close()
    before = listed(path.parent)

    error = refuse(f"sqlite:///{path}")

    assert type(error) is StoreUnavailable
    assert "not a Sessionary store" in str(error)
    assert listed(path.parent) == before


def test_a_damaged_file_is_refused_and_kept(filled: Path) -> None:
    """P11."""
    data = bytearray(filled.read_bytes())
    data[100:4096] = b"\xff" * 3996
    filled.write_bytes(bytes(data))

    error = refuse(f"sqlite:///{filled}")

    assert type(error) is Damaged
    assert filled.read_bytes() == bytes(data)


@pytest.mark.parametrize("lose", ["unlink", "truncate"])
def test_a_store_that_is_gone_is_not_created_again(filled: Path, lose: str) -> None:
    """F9."""
    if lose == "unlink":
        filled.unlink()
    else:
        filled.write_bytes(b"")

    error = refuse(f"sqlite:///{filled}")

    assert type(error) is StoreUnavailable
    assert "gone or empty" in str(error)
    assert not filled.exists() or filled.stat().st_size == 0
    db_file.identity_file(str(filled)).unlink()
    opened(f"sqlite:///{filled}").close()


def test_a_store_in_the_place_of_another_is_refused(filled: Path, tmp_path: Path) -> None:
    """F9: swapped."""
    other = tmp_path / "other.db"
    opened(f"sqlite:///{other}").close()
    other.replace(filled)

    assert "is another store" in str(refuse(f"sqlite:///{filled}"))


def test_a_store_behind_a_link_is_the_same_store(filled: Path, tmp_path: Path) -> None:
    (tmp_path / "away").symlink_to(filled.parent)

    store = opened(f"sqlite:///{tmp_path}/away/{filled.name}")

    assert len(World(store).everything()) == 1
    store.close()


def test_a_newer_schema_is_refused_untouched(open_again: Opener) -> None:
    """P13, F25."""
    url = _url_of(open_again())
    execute(url, "INSERT INTO schema_migrations VALUES ('9999_future', 'x', 1)")
    try:
        error = refuse(url)
        kept = execute(url, "SELECT COUNT(*) FROM schema_migrations WHERE name = '9999_future'")
    finally:
        execute(url, "DELETE FROM schema_migrations WHERE name = '9999_future'")

    assert type(error) is StoreUnavailable
    assert "newer Sessionary" in str(error)
    assert "9999_future" in str(error)
    assert kept == [(1,)]


def test_a_schema_that_is_not_as_it_was_is_refused(open_again: Opener) -> None:
    """P13: the checksum of each step."""
    url = _url_of(open_again())
    ((name, checksum),) = execute(
        url, "SELECT name, checksum FROM schema_migrations WHERE name = '0001_spine'"
    )
    execute(url, "UPDATE schema_migrations SET checksum = 'x' WHERE name = '0001_spine'")
    try:
        error = refuse(url)
    finally:
        execute(
            url,
            f"UPDATE schema_migrations SET checksum = '{checksum}' WHERE name = '0001_spine'",
        )

    assert f"{name} is not the one" in str(error)


def test_an_empty_postgres_database_is_not_filled_unless_wanted(postgres_url: str) -> None:
    error = refuse(postgres_url, create=False)

    assert type(error) is NotFound
    assert execute(postgres_url, "SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'") == [
        (0,)
    ]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://127.0.0.1:1/nothing",
        "postgresql:///x?host=/nowhere",
        "postgresql://[",
        "postgres:",
    ],
)
def test_a_server_that_is_not_there_is_one_line(url: str) -> None:
    error = refuse(url)

    assert isinstance(error, StoreUnavailable | BadInput)


def test_a_database_that_is_not_there_is_one_line(postgres: Server) -> None:
    url = postgres.create_database()
    postgres.drop_database(url)

    assert "does not exist" in str(refuse(url))


def test_a_migration_killed_half_way_has_not_happened(path: Path) -> None:
    """F25."""
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_MIGRATION, str(path)], check=False, capture_output=True
    )
    assert killed.returncode == -9, killed.stderr.decode()

    store = opened(f"sqlite:///{path}")

    assert World(store).session("a")
    names = execute(f"sqlite:///{path}", "SELECT name FROM schema_migrations ORDER BY name")
    assert [name for (name,) in names] == [step.name for step in migrations.known("sqlite")]
    store.close()


KILLED_MIGRATION = """
import os, signal, sys
from sessionary.clock import RandomIds, SystemClock
from sessionary.store.open import open_store
from sessionary.store.sqlite.db_file import SqliteTx
class Dying(SqliteTx):
    def script(self, text):
        super().script(text)
        os.kill(os.getpid(), signal.SIGKILL)
import sessionary.store.open as opening
opening.SqliteTx = Dying
open_store("sqlite:///" + sys.argv[1], create=True, clock=SystemClock(), ids=RandomIds())
"""

OPEN_AT_ONCE = """
import sys
from sessionary.clock import RandomIds, SystemClock
from sessionary.store.open import open_store
print(flush=True)
sys.stdin.readline()
store = open_store(sys.argv[1], create=True, clock=SystemClock(), ids=RandomIds())
print(store.read(lambda tx: tx.one("get_meta", name="store_id")[0]).result())
store.close()
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_programs_that_start_at_once_make_one_store(
    request: pytest.FixtureRequest, path: Path, kind: str
) -> None:
    """P10, P13."""
    url = f"sqlite:///{path}" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN_AT_ONCE, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for program in programs:
        assert program.stdout is not None
        program.stdout.readline()

    answers = [program.communicate("\n") for program in programs]

    assert [error for _, error in answers] == [""] * 4
    assert len({output.strip() for output, _ in answers}) == 1


AS_SOMEONE_ELSE = """
import os, sys
from sessionary.clock import RandomIds, SystemClock
from sessionary.errors import SessionaryError
from sessionary.store.open import open_store
from tests.support.world import World
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
try:
    store = open_store(sys.argv[1], create=True, clock=SystemClock(), ids=RandomIds())
    world = World(store)
    print(len(world.everything()), flush=True)
    world.session("b")
    print("wrote")
except SessionaryError as error:
    print(type(error).__name__, error.committed, error)
"""


def as_someone_else(url: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-c", AS_SOMEONE_ELSE, url], check=False, capture_output=True, timeout=240
    )
    assert ran.stderr == b""
    return ran.stdout.decode().splitlines()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become someone else")
class TestAsSomeoneElse:
    @pytest.fixture
    def path(self) -> Iterator[Path]:
        """In a folder that others can read: pytest's own cannot be."""
        with tempfile.TemporaryDirectory() as made:
            Path(made).chmod(0o755)
            yield Path(made, "sessionary.db")

    def test_a_read_only_folder_serves_reads_and_refuses_writes(self, filled: Path) -> None:
        """F6, P14."""
        for each in filled.parent.iterdir():
            each.chmod(0o644)
        filled.parent.chmod(0o555)

        output = as_someone_else(f"sqlite:///{filled}")

        assert output[0] == "1"
        assert output[1].startswith("StoreReadOnly no ")
        assert str(filled) in output[1]

    def test_a_store_that_may_not_be_read_is_refused(self, filled: Path) -> None:
        """F6."""
        output = as_someone_else(f"sqlite:///{filled}")

        assert len(output) == 1
        assert output[0].startswith("StoreUnavailable no ")
        assert str(filled) in output[0]

    def test_a_store_is_not_made_in_a_read_only_folder(self, path: Path) -> None:
        """F6."""
        path.parent.chmod(0o555)

        output = as_someone_else(f"sqlite:///{path}")

        assert len(output) == 1
        assert output[0].startswith("StoreUnavailable no ")
        assert str(path) in output[0]
        assert listed(path.parent) == {}


def test_both_dialects_have_the_same_tables_and_columns(tmp_path: Path, migrated: str) -> None:
    opened(f"sqlite:///{tmp_path}/x.db").close()
    file = apsw.Connection(f"{tmp_path}/x.db")
    ours = {
        name: _columns(file, name)
        for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    file.close()
    with psycopg.connect(migrated) as server:
        rows = server.execute(
            "SELECT table_name, column_name FROM information_schema.columns"
            " WHERE table_schema = 'public' ORDER BY table_name, ordinal_position"
        ).fetchall()
    theirs: dict[str, list[str]] = {}
    for table, name in rows:
        theirs.setdefault(table, []).append(name)

    assert ours == {table: names for table, names in theirs.items() if table in ours}
    assert {table for table in theirs if table not in ours} <= SEARCH_TABLES


def _columns(file: apsw.Connection, table: str) -> list[str]:
    return [row[1] for row in file.execute(f"PRAGMA table_info({table})")]


def _url_of(store: Store) -> str:
    store.close()
    return store.url
