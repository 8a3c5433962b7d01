"""A process that dies while it makes a store leaves something that the next one finishes."""

import sqlite3
from pathlib import Path

import apsw
import pytest

from sessionary.clock import RandomIds, SystemClock
from sessionary.errors import StoreUnavailable
from sessionary.store.open import open_store


def test_a_file_that_is_not_yet_a_store_is_made_one(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.close()
    assert path.stat().st_size > 0

    open_store(str(path), create=True, clock=SystemClock(), ids=RandomIds()).close()
    open_store(str(path), create=False, clock=SystemClock(), ids=RandomIds()).close()


def test_a_database_of_someone_else_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = path.read_bytes()

    with pytest.raises(StoreUnavailable, match="not a Sessionary store"):
        open_store(str(path), create=True, clock=SystemClock(), ids=RandomIds())

    assert path.read_bytes() == before
