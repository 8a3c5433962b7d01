"""A log in partitions, as `deploy/partition.sql` makes them, is the same log."""

from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest

from benchmarks import populate
from sessionary.actions import verify
from sessionary.store.database import Store
from tests.project.code import ROOT
from tests.store.conftest import opened
from tests.support.postgres import Server
from tests.support.shared_database import delete_all_rows
from tests.support.store_lists import PurgeSuite
from tests.support.store_log import LogSuite

SCRIPT = (ROOT / "deploy" / "partition.sql").read_text(encoding="utf-8")
# Two sessions in each: what is a year elsewhere is a test here.
SMALL = SCRIPT.replace(":= 10000000;", ":= 2;")
COUNTS = """
    SELECT tableoid::regclass::text, COUNT(*) FROM entries GROUP BY 1
"""


def run(url: str, script: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(script)


@pytest.fixture(scope="module")
def partitioned(postgres: Server, migrated: str) -> Iterator[Callable[[], str]]:
    url = postgres.create_database(template=migrated)
    run(url, SMALL)
    yield lambda: delete_all_rows(url)
    postgres.drop_database(url)


@pytest.fixture
def store(partitioned: Callable[[], str]) -> Iterator[Store]:
    with closing(opened(partitioned())) as made:
        yield made


class TestPartitions(LogSuite, PurgeSuite): ...


def test_what_was_there_stays_where_it_is_and_what_comes_goes_into_partitions(
    migrated_url: str,
) -> None:
    with closing(opened(migrated_url)) as store:
        populate.open_many(store, range(5))
    run(migrated_url, SMALL)
    with closing(opened(migrated_url)) as store:
        populate.open_many(store, range(5, 30))
        assert verify.verify(store).broken == ()

    with psycopg.connect(migrated_url) as connection:
        counts: dict[str, int] = dict(connection.execute(COUNTS).fetchall())

    assert counts["entries_first"] == 5
    assert counts["entries_4"] == 2
    assert counts["entries_rest"] > 0
    assert sum(counts.values()) == 30


def test_it_can_be_run_again_to_add_more(migrated_url: str) -> None:
    opened(migrated_url).close()
    run(migrated_url, SMALL)
    with closing(opened(migrated_url)) as store:
        populate.open_many(store, range(9))

    run(migrated_url, SMALL)

    with psycopg.connect(migrated_url) as connection:
        found = connection.execute("SELECT to_regclass('entries_12')::text").fetchone()
    assert found == ("entries_12",)


def test_the_log_is_still_append_only(store: Store, partitioned: Callable[[], str]) -> None:
    populate.open_many(store, range(6))

    with psycopg.connect(store.url) as connection:
        with pytest.raises(psycopg.errors.RaiseException):
            connection.execute("UPDATE entries SET body = ''")
        connection.rollback()
        with pytest.raises(psycopg.errors.RaiseException):
            connection.execute("DELETE FROM entries")
