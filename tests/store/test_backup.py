"""A backup holds all that was acknowledged; a restore is checked, whole, and keeps the old one."""

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from sessionary.actions import verify
from sessionary.clock import RandomIds, SystemClock
from sessionary.errors import (
    BadInput,
    Conflict,
    Damaged,
    NotFound,
    SessionaryError,
    StoreUnavailable,
)
from sessionary.store import copy_store
from sessionary.store.backup import BackupReport, RestoreReport, backup, inspect, restore
from sessionary.store.database import Store
from sessionary.store.open import open_store
from sessionary.store.sqlite import db_file
from tests.support.transfer import exported, fill
from tests.support.world import World

CLOCK, IDS = SystemClock(), RandomIds()


def opened(url: str) -> Store:
    return open_store(url, create=True, clock=CLOCK, ids=IDS)


def backed_up(store: Store, file: Path, *, overwrite: bool = False) -> BackupReport:
    return backup(store, file, clock=CLOCK, ids=IDS, overwrite=overwrite)


def restored(file: Path, path: Path | str, *, force: bool = False) -> RestoreReport:
    return restore(file, str(path), clock=CLOCK, ids=IDS, force=force)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def live(home: Path) -> Iterator[Store]:
    """A store in a file, in use."""
    store = opened(f"sqlite:///{home}/sessionary.db")
    yield store
    store.close()


@pytest.fixture(params=["sqlite-file", "sqlite-memory", "postgres"])
def any_store(request: pytest.FixtureRequest, home: Path) -> Iterator[Store]:
    url = {
        "sqlite-file": f"sqlite:///{home}/sessionary.db",
        "sqlite-memory": "sqlite::memory:",
    }.get(request.param)
    store = opened(url or request.getfixturevalue("migrated_url"))
    yield store
    store.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "safe"
    folder.mkdir()
    return folder


def test_a_backup_is_the_store_as_it_was(any_store: Store, folder: Path) -> None:
    fill(World(any_store))
    before = exported(any_store)
    report = backed_up(any_store, folder / "b.db")
    World(any_store).session("too late")
    assert [each.name for each in folder.iterdir()] == ["b.db"]
    assert stat.S_IMODE(os.stat(folder / "b.db").st_mode) == 0o600
    assert report.bytes == os.stat(folder / "b.db").st_size
    assert report.contents == inspect(folder / "b.db")
    copy = opened(f"sqlite:///{folder}/b.db")
    try:
        assert exported(copy) == before
        assert verify.verify(copy).broken == ()
    finally:
        copy.close()


def test_a_backup_under_load_has_all_that_was_acknowledged_before(
    any_store: Store, folder: Path
) -> None:
    world = World(any_store)
    session = world.session("begin")
    acknowledged: list[int] = []
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            acknowledged.append(world.append_text(session, f"message {len(acknowledged)}").seq)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(5):
            known = list(acknowledged)
            backed_up(any_store, folder / f"{number}.db")
            copy = opened(f"sqlite:///{folder}/{number}.db")
            try:
                found = [entry.seq for entry in World(copy).transcript(session)]
                assert found == list(range(1, len(found) + 1))
                assert set(known) <= set(found)
                assert verify.verify(copy).broken == ()
            finally:
                copy.close()
    finally:
        stop.set()
        writer.join()
    assert verify.verify(any_store).broken == ()


def test_the_store_itself_is_no_target(live: Store, home: Path, folder: Path) -> None:
    World(live).session("hello")
    os.link(home / "sessionary.db", folder / "link.db")
    os.symlink(home / "sessionary.db", folder / "symlink.db")
    for target in (home / "sessionary.db", folder / "link.db", folder / "symlink.db"):
        with pytest.raises(BadInput, match="itself"):
            backed_up(live, target, overwrite=True)
    with pytest.raises(BadInput, match="itself"):
        backed_up(live, home / "sessionary.db-wal", overwrite=True)
    assert verify.verify(live).broken == ()


def test_a_file_that_is_there_is_left_as_it_is_unless_that_is_meant(
    live: Store, folder: Path
) -> None:
    target = folder / "b.db"
    target.write_text("precious")
    with pytest.raises(Conflict):
        backed_up(live, target)
    assert target.read_text() == "precious"
    backed_up(live, target, overwrite=True)
    assert inspect(target).sessions == 0
    assert [each.name for each in folder.iterdir()] == ["b.db"]


def test_another_store_that_is_in_use_is_never_overwritten(live: Store, folder: Path) -> None:
    other = opened(f"sqlite:///{folder}/other.db")
    World(other).session("mine")
    with pytest.raises(Conflict, match="in use"):
        backed_up(live, folder / "other.db", overwrite=True)
    other.close()


@pytest.mark.parametrize("target", ["no/such/b.db", "."])
def test_a_bad_target_is_refused(live: Store, folder: Path, target: str) -> None:
    with pytest.raises((NotFound, BadInput)):
        backed_up(live, folder / target)
    assert list(folder.iterdir()) == []


FULL = """
import resource, signal, sys
from sessionary.clock import RandomIds, SystemClock
from sessionary.errors import SessionaryError
from sessionary.store.backup import backup
from sessionary.store.open import open_store

store = open_store(sys.argv[1], create=False, clock=SystemClock(), ids=RandomIds())
store.read(lambda tx: tx.one("count_running")).result()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    backup(store, sys.argv[2], clock=SystemClock(), ids=RandomIds())
except SessionaryError as error:
    print(type(error).__name__, error)
"""


def test_a_backup_that_finds_no_room_leaves_nothing_behind(
    live: Store, home: Path, folder: Path
) -> None:
    fill(World(live))
    done = subprocess.run(
        [sys.executable, "-c", FULL, f"sqlite:///{home}/sessionary.db", str(folder / "b.db")],
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    assert done.stdout.startswith("Store")
    assert done.stdout.count("\n") == 1
    assert list(folder.iterdir()) == []


def test_a_restore_brings_the_backup_back_and_keeps_the_old_store(
    live: Store, home: Path, folder: Path
) -> None:
    fill(World(live))
    before = exported(live)
    backed_up(live, folder / "b.db")
    lost = World(live).session("to be undone")
    live.close()
    path = home / "sessionary.db"
    with pytest.raises(Conflict, match="There is a store"):
        restored(folder / "b.db", path)
    report = restored(folder / "b.db", path, force=True)
    again = opened(f"sqlite:///{path}")
    try:
        assert exported(again) == before
        assert verify.verify(again).broken == ()
    finally:
        again.close()
    assert report.kept is not None
    old = inspect(report.kept)
    assert old.sessions == report.contents.sessions + 1
    assert lost
    assert report.contents.generation == 1
    assert not [each for each in home.iterdir() if each.name.startswith(".")]


def test_each_restore_is_a_new_generation(live: Store, home: Path, folder: Path) -> None:
    backed_up(live, folder / "b.db")
    live.close()
    for generation in (1, 2, 3):
        report = restored(folder / "b.db", home / "sessionary.db", force=True)
        assert report.contents.generation == generation


def test_a_store_that_is_in_use_is_not_replaced(live: Store, home: Path, folder: Path) -> None:
    World(live).session("hello")
    backed_up(live, folder / "b.db")
    before = exported(live)
    with pytest.raises(Conflict, match="Another program uses"):
        restored(folder / "b.db", home / "sessionary.db", force=True)
    World(live).clock.tick(60)
    assert exported(live) == before
    world = World(live)
    world.clock.tick(3600)
    world.session("it goes on")
    assert verify.verify(live).broken == ()
    assert db_file.read_identity(str(home / "sessionary.db")) == inspect(folder / "b.db").store_id


def test_a_store_that_is_gone_comes_back_without_force(
    live: Store, home: Path, folder: Path
) -> None:
    made = fill(World(live))
    backed_up(live, folder / "b.db")
    live.close()
    for each in home.glob("sessionary.db*"):
        if not each.name.endswith("identity"):
            each.unlink()
    with pytest.raises(StoreUnavailable, match="gone"):
        opened(f"sqlite:///{home}/sessionary.db")
    assert restored(folder / "b.db", home / "sessionary.db").kept is None
    again = opened(f"sqlite:///{home}/sessionary.db")
    assert World(again).texts(made["talk"])
    again.close()


def test_a_damaged_store_is_replaced_and_kept(live: Store, home: Path, folder: Path) -> None:
    backed_up(live, folder / "b.db")
    live.close()
    path = home / "sessionary.db"
    path.write_bytes(b"not a database at all" * 1000)
    report = restored(folder / "b.db", path, force=True)
    assert report.kept is not None
    assert Path(report.kept).read_bytes().startswith(b"not a database")
    opened(f"sqlite:///{path}").close()


def test_a_backup_of_another_store_takes_its_place_when_that_is_meant(
    live: Store, home: Path, folder: Path
) -> None:
    other = opened(f"sqlite:///{folder}/other.db")
    World(other).session("elsewhere")
    backed_up(other, folder / "b.db")
    other.close()
    live.close()
    report = restored(folder / "b.db", home / "sessionary.db", force=True)
    again = opened(f"sqlite:///{home}/sessionary.db")
    again.close()
    assert db_file.read_identity(str(home / "sessionary.db")) == report.contents.store_id


def damage(file: Path) -> None:
    """Overwrite the second half of the file's pages with nothing."""
    size = file.stat().st_size
    with open(file, "r+b") as raw:
        raw.seek(size // 2)
        raw.write(b"\xff" * (size // 4))


def test_a_bad_backup_is_refused_and_the_store_stays(live: Store, home: Path, folder: Path) -> None:
    fill(World(live))
    backed_up(live, folder / "b.db")
    before = exported(live)
    live.close()
    damage(folder / "b.db")
    (folder / "text.db").write_text("hello " * 1000)
    (folder / "empty.db").write_bytes(b"")
    foreign = apsw.Connection(str(folder / "foreign.db"))
    foreign.execute("CREATE TABLE t (a)")
    foreign.close()
    names = [each.name for each in home.iterdir()]
    for name in ("b.db", "text.db", "empty.db", "foreign.db", "missing.db", "."):
        with pytest.raises(SessionaryError) as refusal:
            restored(folder / name, home / "sessionary.db", force=True)
        assert "\n" not in str(refusal.value)
    assert sorted(names) == sorted(each.name for each in home.iterdir())
    again = opened(f"sqlite:///{home}/sessionary.db")
    assert exported(again) == before
    again.close()


def test_damage_is_called_damage(live: Store, folder: Path) -> None:
    fill(World(live))
    backed_up(live, folder / "b.db")
    damage(folder / "b.db")
    with pytest.raises(Damaged):
        inspect(folder / "b.db")


def test_the_store_is_not_its_own_backup(live: Store, home: Path) -> None:
    World(live).session("hello")
    with pytest.raises(Conflict, match="in use"):
        restored(home / "sessionary.db", home / "sessionary.db", force=True)
    live.close()
    with pytest.raises(BadInput, match="itself"):
        restored(home / "sessionary.db", home / "sessionary.db", force=True)


def test_half_a_copy_is_no_backup(live: Store, folder: Path) -> None:
    World(live).session("hello")
    half = open_store(
        f"sqlite:///{folder}/half.db", create=True, clock=CLOCK, ids=IDS, half_copied=True
    )

    def stop(table: str, rows: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        copy_store.copy_store(live, half, progress=stop)
    half.close()
    with pytest.raises(StoreUnavailable, match="not whole"):
        inspect(folder / "half.db")


def test_a_backup_goes_into_an_empty_postgres_database_and_no_other(
    live: Store, folder: Path, postgres_url: str
) -> None:
    fill(World(live))
    before = exported(live)
    backed_up(live, folder / "b.db")
    report = restored(folder / "b.db", postgres_url)
    assert report.contents.generation == 1
    assert [each.name for each in folder.iterdir()] == ["b.db"]
    there = opened(postgres_url)
    try:
        assert exported(there) == before
        assert verify.verify(there).broken == ()
    finally:
        there.close()
    with pytest.raises(Conflict, match="not empty"):
        restored(folder / "b.db", postgres_url, force=True)


def test_a_backup_of_postgres_restores_to_a_file(
    postgres_url: str, home: Path, folder: Path
) -> None:
    store = opened(postgres_url)
    fill(World(store))
    before = exported(store)
    backed_up(store, folder / "b.db")
    store.close()
    restored(folder / "b.db", home / "sessionary.db")
    again = opened(f"sqlite:///{home}/sessionary.db")
    assert exported(again) == before
    again.close()
