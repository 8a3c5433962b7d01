"""P13: a store is upgraded in one step, after a copy of it was kept."""

from pathlib import Path

import pytest

from hansard.actions import say, verify
from hansard.clock import Occasion, RandomIds, SystemClock
from hansard.errors import StoreUnavailable
from hansard.model.entry import message
from hansard.model.place import Source
from hansard.model.session import Opening
from hansard.store import migrate
from hansard.store.database import Store
from hansard.store.opening import open_store

KNOWN = migrate.known


def opened(path: Path, *, create: bool = False) -> Store:
    return open_store(str(path), create=create, clock=SystemClock(), ids=RandomIds())


def only_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program as it was at its first release."""
    monkeypatch.setattr(migrate, "known", lambda dialect: KNOWN(dialect)[:1])


@pytest.fixture
def old_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "hansard.db"
    with monkeypatch.context() as before:
        before.setattr(migrate, "known", lambda dialect: KNOWN(dialect)[:1])
        opened(path, create=True).close()
    return path


def test_an_old_store_is_upgraded_and_a_copy_of_it_kept(
    old_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(old_store)
    when = Occasion(SystemClock().now(), RandomIds())
    opening = Opening("main", Source(platform="web"))
    store.write(say.say_new, opening, say.Saying(message("user", "hello")), when=when).result()
    assert verify.verify(store).broken == ()
    store.close()

    [copy] = old_store.parent.glob("hansard.db-before-*")
    assert copy.stat().st_mode & 0o777 == 0o600
    only_the_first(monkeypatch)
    opened(copy).close()


def test_an_old_program_refuses_the_upgraded_store_and_leaves_it(
    old_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(old_store).close()
    bytes_before = old_store.stat().st_size
    only_the_first(monkeypatch)

    with pytest.raises(StoreUnavailable, match="newer Hansard"):
        opened(old_store)

    assert old_store.stat().st_size == bytes_before


def test_a_new_store_needs_no_copy(tmp_path: Path) -> None:
    opened(tmp_path / "hansard.db", create=True).close()

    assert list(tmp_path.glob("*-before-*")) == []
