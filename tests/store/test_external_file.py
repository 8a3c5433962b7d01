"""Another program's file is read, and nothing else."""

import os
import shutil
from pathlib import Path

import apsw
import pytest

from sessionary.errors import BadInput
from sessionary.store.sqlite.external_file import ExternalDatabase, is_sqlite


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "other's.db"
    connection = apsw.Connection(str(made))
    connection.execute('CREATE TABLE "odd ""name" (id INTEGER, text TEXT, "order" INTEGER)')
    connection.execute("INSERT INTO \"odd \"\"name\" VALUES (2, 'b', 1), (1, 'a', 2), (3, 'c', 3)")
    connection.execute("CREATE VIEW sly AS SELECT randomblob(1000000000)")
    connection.close()
    return made


def test_rows_come_in_order_and_a_missing_column_is_none(path: Path) -> None:
    with ExternalDatabase(path) as database:
        rows = list(database.rows('odd "name', ["text", "nothing"], order=["id"]))

    assert rows == [("a", None), ("b", None), ("c", None)]


def test_rows_can_be_chosen_by_a_value_or_a_range(path: Path) -> None:
    with ExternalDatabase(path) as database:
        one = list(database.rows('odd "name', ["text"], where=("id", 2)))
        some = list(database.rows('odd "name', ["id"], between=("id", 2, 4), order=["id"]))

    assert one == [("b",)]
    assert some == [(2,), (3,)]


def test_a_table_that_is_not_there_has_no_rows(path: Path) -> None:
    with ExternalDatabase(path) as database:
        assert list(database.rows("messages", ["id"])) == []
        assert list(database.rows("sly", ["id"])) == []
        assert database.fingerprint("messages", ["id"]) == ()
        assert not database.has("messages")


def test_a_fingerprint_tells_of_change(path: Path) -> None:
    with ExternalDatabase(path) as database:
        assert database.fingerprint('odd "name', ["id", "order", "gone"]) == (3, 3, 3)


def test_rubbish_is_refused_in_words(tmp_path: Path) -> None:
    rubbish = tmp_path / "rubbish.db"
    rubbish.write_bytes(b"SQLite format 3\x00" + b"\xff" * 5000)
    link = tmp_path / "link.db"
    link.symlink_to(rubbish)

    with pytest.raises(BadInput, match="cannot be read as a SQLite database"):
        ExternalDatabase(rubbish)
    with pytest.raises(BadInput, match="not a regular file"):
        ExternalDatabase(link)
    with pytest.raises(BadInput, match="cannot be read"):
        ExternalDatabase(tmp_path / "nowhere.db")
    assert is_sqlite(rubbish)
    assert not is_sqlite(link)


def test_rows_can_be_counted_by_a_value(path: Path) -> None:
    with ExternalDatabase(path) as database:
        found = list(
            database.groups(
                'odd "name', "text", largest=["id", "gone"], sizes=["text"], sums=["order"]
            )
        )

    assert found == [("a", 1, 1, 1.0, 2.0), ("b", 1, 2, 1.0, 1.0), ("c", 1, 3, 1.0, 3.0)]


def in_wal_mode(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("CREATE TABLE t (a)")
    connection.execute("INSERT INTO t VALUES (1)")
    return connection


def test_nothing_is_put_beside_a_file_that_rests(tmp_path: Path) -> None:
    path = tmp_path / "rests.db"
    in_wal_mode(path).close()

    with ExternalDatabase(path) as database:
        assert list(database.rows("t", ["a"])) == [(1,)]

    assert [each.name for each in tmp_path.iterdir()] == ["rests.db"]


def test_what_is_only_in_the_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "lives.db"
    connection = in_wal_mode(path)
    with ExternalDatabase(path) as database:
        before = list(database.rows("t", ["a"]))
        connection.execute("INSERT INTO t VALUES (2)")
        after = list(database.rows("t", ["a"]))
    connection.close()

    assert (before, after) == ([(1,)], [(1,), (2,)])


def test_a_copied_file_with_its_log_is_read_and_left_as_it_is(tmp_path: Path) -> None:
    path, folder = tmp_path / "lives.db", tmp_path / "copy"
    folder.mkdir()
    connection = in_wal_mode(path)
    for end in ("", "-wal"):
        shutil.copyfile(f"{path}{end}", folder / f"lives.db{end}")
    connection.close()

    with ExternalDatabase(folder / "lives.db") as database:
        assert list(database.rows("t", ["a"])) == [(1,)]

    assert sorted(each.name for each in folder.iterdir()) == ["lives.db", "lives.db-wal"]


def test_a_file_that_is_written_meanwhile_is_read_another_time(tmp_path: Path) -> None:
    path = tmp_path / "rests.db"
    in_wal_mode(path).close()

    with ExternalDatabase(path) as database:
        os.utime(path, ns=(1, 1))
        with pytest.raises(BadInput, match="read another time"):
            list(database.rows("t", ["a"]))


def test_a_directory_is_no_database(tmp_path: Path) -> None:
    assert not is_sqlite(tmp_path)


def test_a_text_that_is_none_is_a_fault_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.db"
    made = apsw.Connection(str(path))
    made.execute(
        "CREATE TABLE notes (id, words); INSERT INTO notes VALUES (1, CAST(X'ff' AS TEXT))"
    )
    made.close()

    with (
        ExternalDatabase(path) as database,
        pytest.raises(BadInput, match="cannot be read further"),
    ):
        list(database.rows("notes", ["words"]))


def test_rows_between_two_values_are_measured(tmp_path: Path) -> None:
    path = tmp_path / "some.db"
    made = apsw.Connection(str(path))
    made.execute("CREATE TABLE notes (who, seq, words)")
    made.executemany(
        "INSERT INTO notes VALUES (?, ?, ?)", [("a", 1, "x"), ("a", 3, "yy"), ("b", 2, "z")]
    )
    made.close()

    with ExternalDatabase(path) as database:
        assert database.measure("notes", "who", ("a", "b"), value="words") == (2, 3)


def test_a_file_that_is_cut_off_is_refused(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - 512])

    with pytest.raises(BadInput, match="shorter than it says"):
        ExternalDatabase(path)
