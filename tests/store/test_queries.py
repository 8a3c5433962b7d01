"""Named queries: both databases understand those that they have."""

from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from sessionary.store import queries
from tests.store.conftest import opened

FOLDER = Path(queries.__file__).parent / "sql" / "queries"
EXPLAINED = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")


def names_in(file: str) -> set[str]:
    lines = (FOLDER / file).read_text(encoding="utf-8").splitlines()
    return {line.removeprefix("-- name: ") for line in lines if line.startswith("-- name: ")}


def explainable(dialect: str) -> dict[str, str]:
    """The queries that stand for themselves; the others are pieces of them."""
    texts = queries.load(dialect)
    return {name: texts[name] for name in texts if texts[name].lstrip().startswith(EXPLAINED)}


# The two engines of the search take their words differently; their own tests compare the answers.
FILES = ("sqlite/search.sql", "postgres/search.sql", "search.sql")
SEARCH = {name for file in FILES for name in names_in(file)}


# What one database needs and the other does by itself; the other skips it.
ONLY_SQLITE = {
    "begin_index",
    "add_place",
    "add_shard",
    "check_integrity",
    "delete_words",
    "find_counted",
    "find_counted_filtered",
    "found_words",
    "found_words_filtered",
    "has_index",
    "index_blocks",
    "index_identity",
    "index_shards",
    "insert_words",
    "occurrences",
    "scored",
    "widen_block",
    "widen_shard",
}
ONLY_POSTGRES = {
    "add_index_state",
    "among_sessions",
    "begin",
    "blocks_between",
    "for_no_key_update",
    "for_no_key_update_of_session",
    "for_update",
    "handed_out",
    "index_in_bulk",
    "lock_index",
    "lock_key",
    "lock_session_no",
    "matching_docs",
    "newest_taken",
    "ranked",
    "restart_numbers",
    "session_of_doc",
    "set_up_connection",
    "sort_words",
    "server_time",
    "wait_briefly",
}


def test_a_query_is_missing_in_one_dialect_only_where_that_is_meant() -> None:
    assert {name for name, text in queries.load("postgres").items() if not text} == ONLY_SQLITE
    assert {name for name, text in queries.load("sqlite").items() if not text} == ONLY_POSTGRES


def test_queries_of_both_dialects_take_the_same_parameters() -> None:
    sqlite, postgres = queries.load("sqlite"), queries.load("postgres")
    differing = {
        name
        for name in sqlite.keys() - SEARCH - ONLY_SQLITE - ONLY_POSTGRES
        if queries.parameters(sqlite[name]) != queries.parameters(postgres[name])
    }

    assert differing == set()


@pytest.mark.parametrize("dialect", queries.DIALECTS)
def test_every_piece_of_a_query_is_there(dialect: str) -> None:
    assert [name for name, text in queries.load(dialect).items() if "{{" in text] == []


def test_sqlite_understands_every_query(tmp_path: Path) -> None:
    opened(f"sqlite:///{tmp_path}/x.db").close()
    file = apsw.Connection(f"{tmp_path}/x.db")

    for name, text in explainable("sqlite").items():
        if name not in SEARCH:
            nothing = dict.fromkeys(queries.parameters(text))
            assert file.execute(f"EXPLAIN {text}", nothing).fetchall(), name
    file.close()


ORDERS = {
    "list_by_creation": "sessions_by_creation",
    "list_by_title": "sessions_by_name",
    "list_by_cost": "sessions_by_cost",
}
# Behind a place deep in a list, so that a plan that begins at its top would be seen.
DEEP = {"profile": "main", "folder": "chats", "at": 5, "no": 5, "limit": 50}


def deep(name: str) -> dict[str, Any]:
    return DEEP | ({"at": "m"} if name == "list_by_title" else {})


@pytest.mark.parametrize(("name", "index"), ORDERS.items())
def test_sqlite_reads_each_order_from_its_index_from_the_place_on(
    tmp_path: Path, name: str, index: str
) -> None:
    opened(f"sqlite:///{tmp_path}/x.db").close()
    file = apsw.Connection(f"{tmp_path}/x.db")

    text = queries.load("sqlite")[name]
    plan = [row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {text}", deep(name))]
    file.close()

    [first, *others] = plan
    assert first.startswith(f"SEARCH o USING COVERING INDEX {index} (profile=? AND folder=? AND ")
    assert not [line for line in others if "SCAN" in line or "TEMP B-TREE" in line]


@pytest.mark.parametrize(("name", "index"), ORDERS.items())
def test_postgres_reads_each_order_from_its_index_without_sorting(
    migrated: str, name: str, index: str
) -> None:
    with psycopg.connect(migrated, autocommit=True) as server:
        server.execute("SET enable_seqscan = off")
        server.execute("SET enable_bitmapscan = off")
        text = f"EXPLAIN {queries.load_for_psycopg()[name]}".encode()
        plan = "\n".join(row[0] for row in server.execute(text, deep(name)))

    assert f"using {index}" in plan
    condition = plan.split(f"using {index}", 1)[1].split("Index Cond:", 1)[1].splitlines()[0]
    assert condition.count("AND") == 2, plan
    assert "Sort" not in plan


CLAIM: dict[str, Any] = {
    "holder": "a",
    "now": 5,
    "lease_until": 9,
    "limit": 20,
    "platform": "telegram",
    "profile": "main",
}


def test_sqlite_takes_what_is_due_without_looking_at_all_that_waits(tmp_path: Path) -> None:
    opened(f"sqlite:///{tmp_path}/x.db").close()
    file = apsw.Connection(f"{tmp_path}/x.db")

    text = queries.load("sqlite")["claim_deliveries"]
    plan = [row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {text}", CLAIM)]
    file.close()

    assert "SEARCH d USING INDEX deliveries_due (not_before<?)" in plan
    assert not [line for line in plan if "TEMP B-TREE FOR ORDER" in line]


def test_postgres_takes_what_is_due_without_looking_at_all_that_waits(migrated: str) -> None:
    with psycopg.connect(migrated, autocommit=True) as server:
        server.execute("SET enable_seqscan = off")
        server.execute("SET enable_bitmapscan = off")
        text = f"EXPLAIN {queries.load_for_psycopg()['claim_deliveries']}".encode()
        plan = "\n".join(row[0] for row in server.execute(text, CLAIM))

    assert "using deliveries_due" in plan
    assert "Sort" not in plan.split("using deliveries_due", 1)[0].split("Limit", 1)[1]


def test_postgres_understands_every_query_even_with_nulls(migrated: str) -> None:
    """It infers each parameter's type; a null says nothing about its own."""
    for_psycopg = queries.load_for_psycopg()
    refused = {}
    with psycopg.connect(migrated, autocommit=True) as server:
        for name, text in explainable("postgres").items():
            if name in SEARCH:
                continue
            nothing = dict.fromkeys(queries.parameters(text))
            try:
                server.execute(f"EXPLAIN {for_psycopg[name]}".encode(), nothing)
            except psycopg.Error as error:
                refused[name] = str(error)
    assert refused == {}
