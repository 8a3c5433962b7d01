"""P13: a store is upgraded in one step, after a copy of it was kept."""

import re
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from sessionary.actions import verify
from sessionary.actions.sessions import append, read
from sessionary.clock import Moment, RandomIds, SystemClock
from sessionary.errors import StoreUnavailable
from sessionary.model.message import Message, message
from sessionary.model.session import Opening
from sessionary.model.source import Source
from sessionary.store import migrations, queries
from sessionary.store.database import Store
from sessionary.store.open import open_store
from sessionary.store.sqlite import db_file

KNOWN = migrations.known
# The column, not the parameter of that name: migration 18 renamed it.
FOLDER = re.compile(r"(?<!:)\bfolder\b")


def opened(path: Path | str, *, create: bool = False) -> Store:
    return open_store(str(path), create=create, clock=SystemClock(), ids=RandomIds())


def use_former_schema(before: pytest.MonkeyPatch, steps: int) -> None:
    """Know only the first migrations, with queries that name the columns as they were called then."""
    before.setattr(migrations, "known", lambda dialect: KNOWN(dialect)[:steps])
    load = queries.load
    before.setattr(
        queries,
        "load",
        lambda dialect: load(dialect) if _has_folders(dialect) else _former_texts(load(dialect)),
    )
    # Not the cached function: it must not keep these texts.
    before.setattr(queries, "load_for_psycopg", queries.load_for_psycopg.__wrapped__)


def _has_folders(dialect: str) -> bool:
    return any(step.name == "0018_folder" for step in migrations.known(dialect))


def _former_texts(texts: dict[str, str]) -> dict[str, str]:
    return {name: FOLDER.sub("shelf", text) for name, text in texts.items()}


def only_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program as it was at its first release."""
    monkeypatch.setattr(migrations, "known", lambda dialect: KNOWN(dialect)[:1])


@pytest.fixture
def old_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "sessionary.db"
    with monkeypatch.context() as before:
        before.setattr(migrations, "known", lambda dialect: KNOWN(dialect)[:1])
        opened(path, create=True).close()
    return path


def test_an_old_store_is_upgraded_and_a_copy_of_it_kept(
    old_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(old_store)
    moment = Moment(SystemClock().now(), RandomIds())
    opening = Opening("main", Source(platform="web"))
    store.write(
        append.append_to_new_session,
        opening,
        append.NewMessage(message("user", "hello")),
        moment=moment,
    ).result()
    assert verify.verify(store).broken == ()
    store.close()

    [copy] = old_store.parent.glob("sessionary.db-before-*")
    assert copy.stat().st_mode & 0o777 == 0o600
    only_the_first(monkeypatch)
    opened(copy).close()


def test_an_old_program_refuses_the_upgraded_store_and_leaves_it(
    old_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(old_store).close()
    bytes_before = old_store.stat().st_size
    only_the_first(monkeypatch)

    with pytest.raises(StoreUnavailable, match="newer Sessionary"):
        opened(old_store)

    assert old_store.stat().st_size == bytes_before


def test_a_new_store_needs_no_copy(tmp_path: Path) -> None:
    opened(tmp_path / "sessionary.db", create=True).close()

    assert list(tmp_path.glob("*-before-*")) == []


@pytest.mark.parametrize("steps", range(1, len(KNOWN("sqlite"))))
def test_a_store_of_every_earlier_schema_becomes_as_a_new_one_and_keeps_its_words(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        use_former_schema(before, steps)
        session = _say_hello(str(tmp_path / "old.db"))

    with closing(opened(tmp_path / "old.db")) as upgraded:
        assert _texts(upgraded, session) == ["hello"]
        assert verify.verify(upgraded).broken == ()
    opened(tmp_path / "new.db", create=True).close()
    assert _schema(tmp_path / "old.db") == _schema(tmp_path / "new.db")


@pytest.mark.parametrize("steps", range(2, len(KNOWN("postgres"))))
def test_so_does_one_of_postgresql(
    steps: int, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        use_former_schema(before, steps)
        session = _say_hello(postgres_url)

    with closing(opened(postgres_url)) as upgraded:
        assert _texts(upgraded, session) == ["hello"]
        assert verify.verify(upgraded).broken == ()


@pytest.mark.parametrize("name", ["insert_entry", "insert_usage", "insert_turn", "insert_delivery"])
def test_checking_a_row_of_a_busy_table_makes_no_table(name: str, tmp_path: Path) -> None:
    opened(tmp_path / "new.db", create=True).close()
    with closing(db_file.connect_writer(str(tmp_path / "new.db"))) as connection:
        text = queries.load("sqlite")[name]
        given = dict.fromkeys(re.findall(r":(\w+)", text))
        steps = [row[1] for row in connection.execute(f"EXPLAIN {text}", given)]

    assert "Insert" in steps
    assert "OpenEphemeral" not in steps


def test_the_rules_of_the_log_refuse_what_they_did(tmp_path: Path) -> None:
    opened(tmp_path / "new.db", create=True).close()
    with closing(db_file.connect_writer(str(tmp_path / "new.db"))) as connection:
        add = queries.load("sqlite")["insert_entry"]
        row: dict[str, Any] = {
            "entry_no": 1,
            "kind": "message",
            "role": "user",
            "at": 0,
            "turn_id": None,
        }
        connection.execute(add, row | {"body": "{}"})
        for wrong in ({"kind": "rumour"}, {"role": "robot"}, {"role": None}, {"kind": None}):
            with pytest.raises(apsw.ConstraintError):
                connection.execute(add, row | {"entry_no": 2, "body": "{}"} | wrong)


def _say_hello(url: str) -> str:
    """What someone wrote with the program as it was."""
    moment = Moment(SystemClock().now(), RandomIds())
    opening = Opening("main", Source(platform="web"))
    with closing(opened(url, create=True)) as store:
        saying = append.NewMessage(message("user", "hello"))
        return (
            store.write(append.append_to_new_session, opening, saying, moment=moment)
            .result()
            .session_id
        )


def _texts(store: Store, session: str) -> list[str]:
    entries = store.read(read.read_transcript, session, profile="main").result()
    return [entry.body.text for entry in entries if isinstance(entry.body, Message)]


def _schema(path: Path) -> Sequence[object]:
    with closing(db_file.connect_reader(str(path))) as connection:
        return connection.execute(
            "SELECT type, name, sql FROM sqlite_master ORDER BY name"
        ).fetchall()
