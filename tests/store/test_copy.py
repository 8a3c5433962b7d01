"""A whole store goes to the other database and back, with every number, or is not opened."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sessionary.actions import push, verify
from sessionary.actions.sessions.lists import SessionFilters, SortOrder, list_sessions
from sessionary.actions.transfer import export
from sessionary.clock import RandomIds, SystemClock
from sessionary.errors import Conflict, StoreUnavailable
from sessionary.model.push import NewSubscription
from sessionary.model.record import ExportOptions
from sessionary.store import copy_store, queries
from sessionary.store.database import Row, Store
from sessionary.store.open import open_store
from sessionary.store.sqlite import db_file
from sessionary.store.sqlite.store import SqliteStore
from tests.store.raw import execute
from tests.support.transfer import exported, fill, imported
from tests.support.world import World
from tools import copy_sql


def opened(url: str, *, half_copied: bool = False) -> Store:
    return open_store(
        url, create=True, clock=SystemClock(), ids=RandomIds(), half_copied=half_copied
    )


@pytest.fixture(params=["sqlite to postgres", "postgres to sqlite"])
def urls(request: pytest.FixtureRequest, migrated_url: str, tmp_path: Path) -> list[str]:
    """From here, to there."""
    both = [f"sqlite:///{tmp_path}/sessionary.db", migrated_url]
    return both if request.param == "sqlite to postgres" else both[::-1]


@pytest.fixture
def stores(urls: list[str]) -> Iterator[list[Store]]:
    """Two empty stores; the second may be half a copy."""
    both = [opened(urls[0]), opened(urls[1], half_copied=True)]
    yield both
    for store in both:
        store.close()


def everything(store: Store) -> dict[str, list[Row]]:
    """Every row of every table."""
    read = copy_store._reader(store)
    return {table.name: list(copy_store._rows(read, table)) for table in copy_store.tables()}


def meta(store: Store, name: str) -> Any:
    row = store.read(lambda tx: tx.one("get_meta", name=name)).result()
    return None if row is None else row[0]


class Killed(Exception):
    """Stands for SIGKILL between two transactions."""


def kill_at(step: int) -> Any:
    count = 0

    def progress(table: str, rows: int) -> None:
        nonlocal count
        count += 1
        if count == step:
            raise Killed

    return progress


@pytest.mark.parametrize("order", list(SortOrder))
def test_a_copy_lists_its_sessions_in_every_order(stores: list[Store], order: SortOrder) -> None:
    here, there = stores
    fill(World(here))

    copy_store.copy_store(here, there)

    wanted = SessionFilters(order=order)
    lists = [store.read(list_sessions, wanted, profile="main").result().items for store in stores]
    assert lists[0]
    assert [head.id for head in lists[0]] == [head.id for head in lists[1]]


def test_every_row_of_every_table_is_there_with_its_number(stores: list[Store]) -> None:
    here, there = stores
    fill(World(here))
    report = copy_store.copy_store(here, there)
    assert everything(there) == everything(here)
    assert report.rows["entries"] == len(everything(here)["entries"])
    assert exported(there) == exported(here)
    assert verify.verify(there).broken == ()


def test_the_copy_hides_people_behind_the_same_names(stores: list[Store]) -> None:
    here, there = stores
    World(here).session("hello")
    hidden = ExportOptions(redact=True)
    before = list(export.export_jsonl(here, profile="main", options=hidden))

    copy_store.copy_store(here, there)

    assert list(export.export_jsonl(there, profile="main", options=hidden)) == before


def test_browsers_stay_subscribed_at_the_copy(stores: list[Store]) -> None:
    here, there = stores
    new = NewSubscription(
        endpoint="https://push.example.org/1",
        p256dh="AA",
        auth="AA",
        label="Firefox",
        language="en",
        origin="https://agents.example.org",
    )
    here.write(
        push.subscribe, new, profile="main", moment=World(here).moment(), login_id="login"
    ).result()
    key = here.write(push.keep_key, "a key").result()

    copy_store.copy_store(here, there)

    assert there.read(push.get_key).result() == key
    (kept,) = there.read(push.list_subscriptions, "main").result()
    assert kept.endpoint == new.endpoint


def test_the_copy_is_the_same_store_in_its_next_generation(
    stores: list[Store], urls: list[str]
) -> None:
    here, there = stores
    World(here).session("hello")
    copy_store.copy_store(here, there)
    assert meta(there, "store_id") == meta(here, "store_id")
    assert meta(there, "generation") == "1"
    there.close()
    opened(urls[1]).close()
    if urls[1].startswith("sqlite"):
        assert db_file.read_identity(urls[1].removeprefix("sqlite:///")) == meta(here, "store_id")


def test_the_copy_goes_on_with_numbers_that_no_one_has(stores: list[Store]) -> None:
    here, there = stores
    made = fill(World(here))
    copy_store.copy_store(here, there)
    world = World(there)
    world.clock.tick(3600)
    session = world.session("a new day")
    assert world.head(session).no > max(row[0] for row in everything(here)["sessions"])
    world.talk("and again")
    world.append_text(made["rich"], "more")
    assert verify.verify(there).broken == ()


def test_it_comes_back_the_same(stores: list[Store], tmp_path: Path) -> None:
    here, there = stores
    fill(World(here))
    copy_store.copy_store(here, there)
    back = opened(f"sqlite:///{tmp_path}/back.db", half_copied=True)
    try:
        assert copy_store.copy_store(there, back).generation == 2
        assert everything(back) == everything(here)
    finally:
        back.close()


def test_a_parent_with_a_higher_number_is_no_trouble(stores: list[Store]) -> None:
    here, there = stores
    source = World(here)
    child = source.session("child")
    parent = source.session("parent")
    low, high = source.head(child).no, source.head(parent).no
    source.write(lambda tx: tx.run("set_parent", no=low, parent_no=high, lineage="reset"))
    copy_store.copy_store(here, there)
    assert World(there).head(child).parent_id == parent
    assert exported(there) == exported(here)


def test_a_copy_that_was_killed_is_refused_until_it_is_finished(
    stores: list[Store], urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = stores
    fill(World(here))
    monkeypatch.setattr(copy_store, "PAGE", 3)
    kills = 0
    while not is_copied(there, here):
        with pytest.raises(Killed):
            copy_store.copy_store(here, there, progress=kill_at(4))
        kills += 1
        with pytest.raises(StoreUnavailable, match="not whole"):
            opened(urls[1])
    assert kills > 3
    assert copy_store.copy_store(here, there).resumed
    assert everything(there) == everything(here)
    opened(urls[1]).close()


def is_copied(there: Store, here: Store) -> bool:
    return everything(there) == everything(here)


def test_a_target_that_is_not_empty_is_refused_and_left_as_it_is(stores: list[Store]) -> None:
    here, there = stores
    World(here).session("hello")
    World(there).session("mine")
    before = everything(there)
    with pytest.raises(Conflict, match="not empty"):
        copy_store.copy_store(here, there)
    assert everything(there) == before
    assert meta(there, "copy") is None


def test_half_a_copy_of_another_store_is_refused(stores: list[Store], tmp_path: Path) -> None:
    here, there = stores
    fill(World(here))
    with pytest.raises(Killed):
        copy_store.copy_store(here, there, progress=kill_at(3))
    other = opened(f"sqlite:///{tmp_path}/other.db")
    try:
        with pytest.raises(Conflict, match="another store"):
            copy_store.copy_store(other, there)
    finally:
        other.close()


def test_a_running_turn_in_the_source_refuses_the_copy(stores: list[Store]) -> None:
    here, there = stores
    world = World(here)
    world.begin_in(world.session("hello"))
    with pytest.raises(Conflict, match="running"):
        copy_store.copy_store(here, there)
    assert meta(there, "copy") is None


def test_a_change_of_the_source_meanwhile_is_found(stores: list[Store], urls: list[str]) -> None:
    here, there = stores
    world = World(here)
    session = world.session("hello")
    outcomes: list[object] = []

    def progress(table: str, rows: int) -> None:
        if table == "sessions" and not outcomes:
            outcomes.append(world.append_text(session, "wait, there is more"))

    with pytest.raises(Conflict, match="changed while they were copied"):
        copy_store.copy_store(here, there, progress=progress)
    with pytest.raises(StoreUnavailable, match="not whole"):
        opened(urls[1])


def test_an_import_into_the_copy_changes_nothing(stores: list[Store]) -> None:
    here, there = stores
    fill(World(here))
    copy_store.copy_store(here, there)
    assert imported(there, exported(here)).added == 0


def test_the_queries_of_the_copy_are_made_from_the_schema() -> None:
    assert copy_sql.FILE.read_text(encoding="utf-8") == copy_sql.text(), (
        "the schema has changed: run python -m tools.copy_sql, and see restart_numbers"
    )


COLUMNS_OF_POSTGRES = (
    "SELECT table_name, column_name FROM information_schema.columns"
    " WHERE table_schema = current_schema()"
)


def test_both_databases_have_the_columns_that_are_copied(stores: list[Store]) -> None:
    for store in stores:
        is_sqlite = isinstance(store, SqliteStore)
        rows = execute(store.url, copy_sql.COLUMNS if is_sqlite else COLUMNS_OF_POSTGRES)
        found: dict[str, set[str]] = {}
        for table, column, *_ in rows:
            found.setdefault(table, set()).add(column)
        copied = {table.name: set(table.columns) for table in copy_store.tables()}
        assert copied == {
            name: columns for name, columns in found.items() if name not in copy_store.NOT_COPIED
        }


def test_every_number_that_postgres_gives_is_restarted(migrated_url: str) -> None:
    rows = execute(
        migrated_url,
        "SELECT table_name, column_name FROM information_schema.columns"
        " WHERE table_schema = current_schema() AND is_identity = 'YES'",
    )
    text = queries.load("postgres")["restart_numbers"]

    assert rows
    for table, column in rows:
        assert f"pg_get_serial_sequence('{table}', '{column}')" in text
