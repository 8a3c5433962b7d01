"""On PostgreSQL a batch of changes costs the same however many were indexed before it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any

import psycopg
import pytest

from sessionary.store.database import Row, Store
from sessionary.store.postgres.connection import PostgresTx
from sessionary.store.search import indexer
from tests.search.conftest import Library, opened

LIMIT = 200
STATE = "SELECT watermark, seen FROM search_state"
SETTLED = "SELECT horizon < pg_snapshot_xmin(pg_current_snapshot()) FROM search_state"
ROWS_READ = (
    "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'feed'"
)
DOCS = "SELECT no, entry_no, length, words FROM search_docs ORDER BY no"


class CountingTx(PostgresTx):
    """Counts the statements that it runs, by name."""

    __slots__ = ("counts",)

    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        super().__init__(connection)
        self.counts = Counter[str]()

    def _execute(self, name: str, params: dict[str, Any]) -> psycopg.Cursor[Row]:
        self.counts[name] += 1
        return super()._execute(name, params)

    def many(self, name: str, rows: Iterable[Mapping[str, Any] | Row], /) -> int:
        self.counts[name] += 1
        return super().many(name, rows)


@pytest.fixture
def store(migrated_url: str) -> Iterator[Store]:
    with closing(opened(migrated_url)) as made:
        yield made


@pytest.fixture
def library(store: Store, migrated_url: str) -> Library:
    """Ten sessions; each is 400 times in the feed, so that the planner sees a large table."""
    made = Library(store)
    for number in range(10):
        made.session(f"question {number}")
    with closing(psycopg.connect(migrated_url)) as connection:
        connection.execute(
            "INSERT INTO feed (session_no, seq, what)"
            " SELECT no, 1, 'entry' FROM generate_series(1, 400), sessions"
        )
        connection.commit()
    return made


@pytest.fixture
def connection(migrated_url: str) -> Iterator[psycopg.Connection[Row]]:
    with closing(psycopg.connect(migrated_url)) as made:
        PostgresTx(made).one("set_up_connection")
        made.commit()
        yield made


def one(connection: psycopg.Connection[Row], text: str) -> Row:
    found = connection.execute(text.encode()).fetchone()
    assert found is not None
    return found


def step(connection: psycopg.Connection[Row]) -> tuple[int, int, Counter[str]]:
    """Index a batch; return how many changes it had, the rows of the feed it read, its statements."""
    tx = CountingTx(connection)
    before = one(connection, ROWS_READ)[0]
    taken = indexer.step(tx, LIMIT)
    read = one(connection, ROWS_READ)[0] - before
    connection.commit()
    return taken, read, tx.counts


def wait_until_settled(connection: psycopg.Connection[Row]) -> None:
    """Wait for every transaction of the round's time, the server's own ones too."""
    while not one(connection, SETTLED)[0]:
        connection.rollback()
    connection.rollback()


def all_steps(connection: psycopg.Connection[Row]) -> list[tuple[int, int, Counter[str]]]:
    """Index everything."""
    steps = [step(connection)]
    while steps[-1][0] == LIMIT:
        steps.append(step(connection))
    return steps


def test_the_watermark_moves_with_every_batch(
    library: Library, connection: psycopg.Connection[Row]
) -> None:
    step(connection)  # the first one learns which changes are settled
    before = one(connection, STATE)[0]
    for _ in range(4):
        wait_until_settled(connection)
        step(connection)
        after = one(connection, STATE)[0]
        assert after >= before + LIMIT
        before = after
    assert one(connection, "SELECT COUNT(*) FROM search_taken") == (0,)


def test_every_batch_reads_as_much_of_the_feed_and_runs_as_many_statements(
    library: Library, connection: psycopg.Connection[Row]
) -> None:
    full = [found for found in all_steps(connection) if found[0] == LIMIT]

    assert len(full) >= 10
    assert max(read for _, read, _ in full) <= 3 * LIMIT
    assert max(counts.total() for _, _, counts in full) <= 10


def test_a_long_transaction_of_somebody_else_does_not_make_batches_slower(
    library: Library, connection: psycopg.Connection[Row], migrated_url: str
) -> None:
    step(connection)
    with closing(psycopg.connect(migrated_url)) as other:
        position = one(
            other,
            "INSERT INTO feed (session_no, seq, what) SELECT MIN(no), 1, 'entry' FROM sessions"
            " RETURNING position",
        )[0]
        library.session("after it")
        full = [found for found in all_steps(connection) if found[0] == LIMIT]
        assert len(full) >= 9
        assert max(read for _, read, _ in full) <= 3 * LIMIT
        other.commit()

    all_steps(connection)

    assert one(connection, f"SELECT COUNT(*) FROM search_docs WHERE no / 4 = {position}") == (1,)


def test_an_indexer_that_is_killed_between_or_within_batches_goes_on_at_the_last_one(
    library: Library, connection: psycopg.Connection[Row], migrated_url: str
) -> None:
    for _ in range(3):
        step(connection)
    reached = one(connection, STATE)
    indexer.step(PostgresTx(connection), LIMIT)
    connection.close()  # the server rolls the batch back

    with closing(psycopg.connect(migrated_url)) as again:
        assert one(again, STATE) == reached
        wait_until_settled(again)
        step(again)
        assert one(again, STATE)[0] >= reached[0] + LIMIT
        all_steps(again)
        in_pieces = again.execute(DOCS).fetchall()
        again.rollback()

        library.store.rebuild_index().result()
        assert library.store.catch_up(None).result().behind == 0

        assert again.execute(DOCS).fetchall() == in_pieces


def test_changes_that_come_during_a_catch_up_are_indexed_too(
    library: Library, connection: psycopg.Connection[Row]
) -> None:
    for number in range(15):
        library.session(f"meanwhile {number}")
        step(connection)

    all_steps(connection)

    assert library.store.catch_up(0).result().behind == 0
    assert len(library.texts_of("meanwhile")) == 15


def test_a_catch_up_reads_every_change_once(
    library: Library, connection: psycopg.Connection[Row]
) -> None:
    behind = indexer.state(PostgresTx(connection)).behind
    connection.rollback()

    steps = all_steps(connection)

    assert sum(taken for taken, _, _ in steps) == behind
    # Each change is read from the index of the table and from the table itself.
    assert sum(read for _, read, _ in steps) <= 3 * behind


def test_asking_how_far_the_index_is_does_not_count_a_long_backlog(
    library: Library, connection: psycopg.Connection[Row]
) -> None:
    before = one(connection, ROWS_READ)[0]

    state = indexer.state(PostgresTx(connection))

    assert state.behind >= 4_000
    assert one(connection, ROWS_READ)[0] - before <= 1_100


def test_the_words_of_a_batch_are_sent_in_parts(
    library: Library, connection: psycopg.Connection[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "BATCH", LIMIT // 4)

    _, _, counts = step(connection)

    assert counts["insert_doc"] >= 4
    assert one(connection, "SELECT COUNT(*) FROM search_docs")[0] >= LIMIT


def test_the_titles_of_many_sessions_are_indexed_in_one_batch(
    library: Library, connection: psycopg.Connection[Row]
) -> None:
    all_steps(connection)
    for number in range(20):
        library.session(f"another {number}", title=f"Title {number}")

    _, _, counts = step(connection)

    assert counts["set_indexed_title"] == 1
    assert counts["indexed_titles"] == 1
