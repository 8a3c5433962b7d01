"""The index fails; the log does not notice, and no search ever says that there is nothing."""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import psycopg
import pytest

from sessionary.actions import verify
from sessionary.actions.search import search
from sessionary.errors import SessionaryError, StoreUnavailable
from sessionary.store.search.index_file import IndexFile
from sessionary.store.sqlite import db_file
from tests.search.conftest import Library, opened
from tests.store.conftest import Opener
from tests.store.raw import execute

TEXTS = [f"message {number} about walrus number{number}" for number in range(480)]
NOBODY = 65_534


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that others can read: pytest's own cannot be."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def filled(folder: Path) -> Path:
    """A store whose index is complete, closed."""
    path = folder / "sessionary.db"
    library = Library(opened(f"sqlite:///{path}"))
    library.session(*TEXTS)
    assert library.find("walrus", all_hits=True).total == len(TEXTS)
    library.store.close()
    return path


@pytest.fixture
def on_postgres(emptied: Callable[[], str]) -> Iterator[Library]:
    store = opened(emptied())
    yield Library(store)
    store.close()


def test_an_index_that_another_process_has_replaced_says_nothing_of_the_log(filled: Path) -> None:
    index, other = IndexFile(str(filled)), IndexFile(str(filled))
    index.connected()
    # The other process met the same damage first: by now there is a sound file.
    other.delete()
    other.connected()

    index.check_log(apsw.CorruptError("database disk image is malformed"))

    index.disconnect()
    other.disconnect()


UNREADABLE = "UPDATE entries SET body = '{{\"parts' WHERE entry_no = {no}"


def test_an_entry_that_cannot_be_read_stops_no_search(open_again: Opener) -> None:
    """P6, P11: the others are found; a reader of its session gets an error, and verify names it."""
    library = Library(open_again())
    session = library.session("a walrus", "a broken walrus", "another walrus")
    other = library.session("a far walrus")
    broken = (library.head(session).no << 24) + 2

    execute(library.store.url, UNREADABLE.format(no=broken), trusting=True)

    assert library.texts_of("walrus") == {"a walrus", "another walrus", "a far walrus"}
    library.store.rebuild_index().result()
    assert [hit.session.id for hit in library.hits("far")] == [other]
    assert verify.verify(library.store).broken[0].where == session


def test_a_hit_that_cannot_be_read_any_more_says_so(open_again: Opener) -> None:
    library = Library(open_again())
    session = library.session("a walrus", "a broken walrus", "another walrus")
    assert len(library.hits("walrus")) == 3
    broken = (library.head(session).no << 24) + 2

    execute(library.store.url, UNREADABLE.format(no=broken), trusting=True)

    shown = {hit.seq: hit.snippet for hit in library.hits("walrus")}
    assert shown == {1: "a ⟦walrus⟧", 2: search.UNREADABLE, 3: "another ⟦walrus⟧"}


def index_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-search")


def check_complete(path: Path) -> None:
    """Appending works, and everything is found, the new words too."""
    store = opened(f"sqlite:///{path}")
    library = Library(store, name="checker")
    library.session("a new walrus")
    found = library.find("walrus", all_hits=True)
    assert (found.total, found.behind) == (len(TEXTS) + 1, 0)
    for number in (0, 1, 299, 479):
        assert library.find(f"number{number}").total == 1
    store.close()


@pytest.mark.parametrize("seed", range(12))
def test_flipped_bytes_are_noticed_and_the_index_is_made_again(filled: Path, seed: int) -> None:
    rng = random.Random(seed)
    index = index_of(filled)
    data = bytearray(index.read_bytes())
    for _ in range(rng.choice((1, 3, 40))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    index.write_bytes(data)

    check_complete(filled)


@pytest.mark.parametrize("part", [0, 0.01, 0.3, 0.9])
def test_a_truncated_index_is_made_again(filled: Path, part: float) -> None:
    index = index_of(filled)
    os.truncate(index, int(index.stat().st_size * part))

    check_complete(filled)


def test_an_index_that_is_no_database_is_made_again(filled: Path) -> None:
    index_of(filled).write_bytes(b"this is not a database" * 500)

    check_complete(filled)


def test_a_deleted_index_is_made_again(filled: Path) -> None:
    index_of(filled).unlink()

    check_complete(filled)


def test_an_index_of_another_store_is_not_believed(filled: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    library = Library(opened(f"sqlite:///{other}"))
    library.session(*(f"foreign {number}" for number in range(900)))
    assert library.find("foreign").total
    library.store.close()
    shutil.copy(index_of(other), index_of(filled))

    check_complete(filled)


def test_an_index_that_knows_more_than_the_log_is_not_believed(filled: Path) -> None:
    index = index_of(filled)
    backup = filled.read_bytes()
    library = Library(opened(f"sqlite:///{filled}"), name="later")
    library.session("a walrus that a restored backup does not know")
    assert library.find("walrus", all_hits=True).total == len(TEXTS) + 1
    library.store.close()
    newer = index.read_bytes()
    filled.write_bytes(backup)
    index.write_bytes(newer)

    check_complete(filled)


def test_the_index_may_vanish_while_it_is_served(filled: Path) -> None:
    library = Library(opened(f"sqlite:///{filled}"), name="server")
    library.store.index_in_background()
    assert library.find("walrus", all_hits=True).total == len(TEXTS)
    for count, ends in enumerate((("",), ("", "-wal", "-shm"), ("-wal",), ("-shm", ""))):
        for end in ends:
            index_of(filled).with_name(index_of(filled).name + end).unlink(missing_ok=True)
        library.session(f"walrus again {count}")

        found = library.find("walrus", all_hits=True)

        assert (found.total, found.behind) == (len(TEXTS) + count + 1, 0), ends
    library.store.close()
    later = Library(opened(f"sqlite:///{filled}"), name="later")
    assert later.find("walrus", all_hits=True).total == len(TEXTS) + 4
    later.store.close()


def test_bytes_may_flip_while_it_is_served(filled: Path) -> None:
    library = Library(opened(f"sqlite:///{filled}"), name="server")
    assert library.find("walrus", all_hits=True).total == len(TEXTS)
    other = Library(opened(f"sqlite:///{filled}"), name="other")
    index = index_of(filled)
    with index.open("r+b") as file:
        for at in range(4096, index.stat().st_size, 4096):
            file.seek(at + 100)
            file.write(b"\xff" * 16)

    for each in (other, library):
        each.session("one more walrus")
    assert other.find("walrus", all_hits=True).total == len(TEXTS) + 2
    assert library.find("walrus", all_hits=True).total == len(TEXTS) + 2
    for each in (other, library):
        each.store.close()


def test_an_index_that_cannot_be_deleted_is_reported_and_blocks_nobody(filled: Path) -> None:
    """P6: a search has an answer or an error, also after the indexer met the damage first."""
    library = Library(opened(f"sqlite:///{filled}"), name="server")
    library.store.index_in_background()
    assert library.find("walrus", all_hits=True).total == len(TEXTS)
    lock = index_of(filled).with_name(f"{index_of(filled).name}-lock")
    lock.unlink()
    lock.mkdir()
    with index_of(filled).open("r+b") as file:
        for at in range(4096, index_of(filled).stat().st_size, 4096):
            file.seek(at + 100)
            file.write(b"\xff" * 16)
    library.session("one more walrus")

    # It is fed as soon as the writer has rested for a moment: some come before that, some after.
    for _ in range(400):
        with pytest.raises(StoreUnavailable, match="cannot be used"):
            library.store.catch_up().result(timeout=20)
    lock.rmdir()
    assert library.store.catch_up().result(timeout=20).behind == 0
    assert library.find("walrus", all_hits=True).total == len(TEXTS) + 1
    library.store.close()


def test_several_processes_may_find_the_damage_at_once(filled: Path) -> None:
    index_of(filled).write_bytes(b"\x00" * 100_000)
    libraries = [Library(opened(f"sqlite:///{filled}"), name=f"p{no}") for no in range(4)]
    totals: list[int] = []

    def ask(library: Library) -> None:
        totals.append(library.find("walrus", all_hits=True).total)

    threads = [threading.Thread(target=ask, args=(each,)) for each in libraries]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert totals == [len(TEXTS)] * 4
    for each in libraries:
        each.store.close()
    check_complete(filled)


@pytest.mark.timeout(600)
def test_an_indexer_may_be_killed_at_any_moment(filled: Path) -> None:
    url = f"sqlite:///{filled}"
    rng = random.Random(5)
    written = 0
    for name in range(4):
        with subprocess.Popen(
            [sys.executable, "-m", "tests.search.indexing_child", url, f"c{name}"],
            stdout=subprocess.PIPE,
        ) as child:
            assert child.stdout is not None
            line = b""
            for _ in range(rng.randrange(1, 8)):
                line = child.stdout.readline()
            timer = threading.Timer(rng.random() * 0.1, child.kill)
            timer.start()
            rest = child.stdout.read().split()
            timer.join()
        written = int(rest[-1] if rest else line)
        library = Library(opened(url), name=f"after{name}")
        found = library.find(f"c{name} word{written}", all_hits=True)
        assert found.total == 1
        assert found.behind == 0
        library.store.close()
    check_complete(filled)


def test_an_index_that_cannot_be_written_says_how_far_it_is_behind(filled: Path) -> None:
    library = Library(opened(f"sqlite:///{filled}"), name="writer")
    library.session("a walrus that is not in the index")
    library.store.close()

    found = as_nobody(filled, "walrus")

    assert found == f"{len(TEXTS)} 1"


def test_an_index_that_cannot_be_made_beside_the_log_is_made_elsewhere(filled: Path) -> None:
    index_of(filled).unlink()

    assert as_nobody(filled, "walrus") == "480 0"


def test_a_complete_index_is_read_where_nothing_can_be_written(filled: Path) -> None:
    assert as_nobody(filled, "walrus") == f"{len(TEXTS)} 0"


def as_nobody(path: Path, query: str) -> str:
    """What someone gets who may read everything here and write nothing."""
    for each in (path, *path.parent.glob(f"{path.name}-*")):
        each.chmod(0o644)
    program = f"""
import os, sys
from tests.search.conftest import Library
from tests.store.conftest import opened
os.setgid({NOBODY}); os.setuid({NOBODY})
from sessionary.clock import RandomIds, SystemClock
from sessionary.store.open import open_store
store = open_store("sqlite:///{path}", create=False, clock=SystemClock(), ids=RandomIds())
try:
    found = Library(store).find({query!r}, all_hits=True)
    print(found.total, found.behind)
except Exception as error:
    print(error)
"""
    if os.getuid() != 0:
        pytest.fail("this test becomes another user: run it as root")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    return done.stdout.strip()


def test_a_full_disk_under_the_index_stops_no_append(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The index may not grow: what a full disk does, for this file alone.
    pages = index_of(filled).stat().st_size // 4096
    real = db_file.script
    limit = f"PRAGMA max_page_count = {pages};"
    with monkeypatch.context() as full:
        full.setattr(db_file, "script", lambda name: real(name) + limit * (name[:5] == "index"))
        library = Library(opened(f"sqlite:///{filled}"), name="server")
        library.store.index_in_background()
        session = library.session("start")
        for number in range(100):
            library.append_text(session, " ".join(f"seal{number}x{word}" for word in range(50)))

        found = library.find("walrus", all_hits=True)

        assert found.total == len(TEXTS)
        assert found.behind > 0
        library.store.close()
    later = Library(opened(f"sqlite:///{filled}"), name="later")
    again = later.find("seal99x49")
    later.store.close()
    assert (again.total, again.behind) == (1, 0)


def test_a_store_in_a_directory_without_room_for_an_index_appends_all_the_same(
    filled: Path,
) -> None:
    index = index_of(filled)
    index.unlink()
    index.mkdir()
    library = Library(opened(f"sqlite:///{filled}"), name="server")
    library.store.index_in_background()

    library.session("still here")

    with pytest.raises(StoreUnavailable):
        library.find("walrus")
    index.rmdir()
    assert library.find("walrus", all_hits=True).total == len(TEXTS)
    library.store.close()


def test_a_transaction_that_commits_late_is_found_all_the_same(
    on_postgres: Library,
) -> None:
    library = on_postgres
    session = library.session("walrus zero")
    with psycopg.connect(library.store.url) as late:
        late.execute(
            "INSERT INTO feed (session_no, seq, what) "
            "SELECT no, 2, 'entry' FROM sessions WHERE id = %s",
            (session,),
        )
        late.execute(
            "INSERT INTO entries (entry_no, kind, role, at, body) "
            "SELECT no << 24 | 2, 'message', 'user', 1, %s FROM sessions WHERE id = %s",
            ('{"parts":[{"type":"text","text":"walrus that came late"}]}', session),
        )
        for number in range(10):
            library.session(f"walrus {number}")
            assert library.find("walrus", all_hits=True).total == number + 2
        late.commit()

    assert library.find("walrus", all_hits=True).total == 12
    assert library.texts_of("late") == {"walrus that came late"}
    for number in range(3):
        library.session(f"more walrus {number}")
        assert library.find("walrus", all_hits=True).total == 13 + number


def test_an_engine_that_fails_is_an_error_and_not_an_empty_answer(on_postgres: Library) -> None:
    library = on_postgres
    library.session("walrus")
    with psycopg.connect(library.store.url, autocommit=True) as connection:
        connection.execute("ALTER TABLE search_docs RENAME TO hidden_docs")
        with pytest.raises(SessionaryError):
            library.find("walrus")
        library.session("another walrus")
        connection.execute("ALTER TABLE hidden_docs RENAME TO search_docs")

    assert library.find("walrus", all_hits=True).total == 2


@pytest.mark.timeout(600)
def test_nothing_is_lost_while_many_write_and_feed_at_once(on_postgres: Library) -> None:
    on_postgres.store.index_in_background()
    missed: list[str] = []

    def write(number: int) -> None:
        store = opened(on_postgres.store.url)
        library = Library(store, name=f"writer{number}")
        session = library.session("begin")
        for count in range(60):
            library.append_text(session, f"otter w{number}x{count}")
            if library.find(f"w{number}x{count}").total != 1:
                missed.append(f"w{number}x{count}")
        store.close()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert missed == []
    assert on_postgres.find("otter", all_hits=True).total == 240
