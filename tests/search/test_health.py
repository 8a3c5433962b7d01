"""`verify` and `doctor` say when the search index is damaged, and what makes it again."""

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from sessionary.actions import verify
from sessionary.store.open import sqlite_path
from sessionary.store.search import index_file
from sessionary.store.search.health import IndexHealth, examine
from tests.cli.conftest import Program, sessionary  # noqa: F401
from tests.search.conftest import Library
from tests.store.conftest import Opener
from tests.store.raw import execute
from tests.support.transfer import exported, imported

PAGE = 4096


@pytest.fixture
def library(open_again: Opener) -> Library:
    made = Library(open_again())
    for name in range(30):
        made.session(f"walrus {name} in the harbour", f"reply {name}", title=f"title {name}")
    assert made.find("walrus").total
    return made


def health(library: Library) -> IndexHealth:
    return examine(library.store, sqlite_path(library.store.url))


def broken(library: Library) -> list[str]:
    return [each.what for each in verify.verify(library.store).broken]


def spoil(library: Library, statement: str) -> None:
    """Change the index past the program, with sound checksums: only its content is wrong."""
    path = sqlite_path(library.store.url)
    if path is None:
        execute(library.store.url, statement)
        return
    file = apsw.Connection(f"{path}-search", vfs=index_file.checksum_vfs())
    file.execute(statement).fetchall()
    file.close()


def test_a_sound_index_is_called_sound(library: Library) -> None:
    library.purge(library.session("gone soon"))
    fork = library.fork(library.session("a", "b")).id
    library.append_text(fork, "c")
    library.find("walrus")

    assert health(library).problem is None
    assert broken(library) == []


def test_what_the_index_has_not_seen_yet_is_no_damage(library: Library) -> None:
    library.session("said after the last search")

    assert health(library).problem is None
    assert broken(library) == []


def test_a_purged_session_that_comes_back_shorter_is_no_damage(library: Library) -> None:
    id = library.session("a seal")
    earlier = exported(library.store, [id])
    library.append_text(id, "a penguin")
    library.purge(id)
    assert imported(library.store, earlier).added == 1

    library.store.rebuild_index().result()

    assert library.find("seal").total == 1
    assert library.find("penguin").total == 0
    assert library.store.damage is None
    assert broken(library) == []


DRIFTS = {
    "a document is missing": (
        "DELETE FROM search_docs WHERE no = (SELECT MIN(no) FROM search_docs WHERE entry_no & 16777215 = 1)",
        "is not in it",
    ),
    "all documents are missing": ("DELETE FROM search_docs", "is not in it"),
    "a document has no entry": (
        "UPDATE search_docs SET entry_no = entry_no + 999 WHERE no = (SELECT MAX(no) FROM search_docs)",
        "in it",
    ),
}


@pytest.mark.parametrize(("statement", "says"), DRIFTS.values(), ids=DRIFTS.keys())
def test_an_index_that_lacks_messages_is_named_and_made_again(
    library: Library, statement: str, says: str
) -> None:
    spoil(library, statement)

    assert says in (health(library).problem or "")
    [what] = broken(library)
    assert "damaged" in what
    assert "sessionary rebuild --index" in what

    library.store.rebuild_index().result()
    assert library.find("walrus").total
    assert broken(library) == []


def test_words_that_are_lost_are_noticed(library: Library) -> None:
    is_file = sqlite_path(library.store.url) is not None
    spoil(
        library,
        "DELETE FROM search_words_0_docsize" if is_file else "UPDATE search_docs SET words = ''",
    )

    assert "lost its words" in (health(library).problem or "")
    assert len(broken(library)) == 1


def zeros(page: bytes) -> bytes:
    return bytes(len(page))


def flipped(page: bytes) -> bytes:
    return page[:2000] + bytes([page[2000] ^ 0xFF]) + page[2001:]


@pytest.mark.parametrize("damage", [zeros, flipped])
def test_every_damaged_page_of_the_index_is_seen(
    sessionary: Program,  # noqa: F811
    damage: Callable[[bytes], bytes],
) -> None:
    for name in range(30):
        sessionary.append("new", f"walrus {name} in the harbour")
    assert sessionary("search", "walrus").code == 0
    index = Path(f"{sessionary.database}-search")
    whole = index.read_bytes()

    for first in range(0, len(whole), PAGE):
        index.write_bytes(
            whole[:first] + damage(whole[first : first + PAGE]) + whole[first + PAGE :]
        )
        doctor, verified = sessionary("doctor", "--json"), sessionary("verify", "--json")
        [finding] = [each for each in doctor.json["findings"] if each["name"] == "search index"]

        assert (doctor.code, doctor.json["ok"], finding["status"]) == (1, False, "bad"), first
        assert "sessionary rebuild --index" in finding["do"]
        assert (verified.code, verified.json["ok"]) == (1, False), first
        assert "sessionary rebuild --index" in verified.json["broken"][0]["what"]

    assert sessionary("rebuild", "--index").code == 0
    assert sessionary("doctor").code == sessionary("verify").code == 0
    assert sessionary("search", "walrus", "--json").json["total"] == 30


@pytest.mark.parametrize("content", [b"", b"no database at all" * 500], ids=["empty", "junk"])
def test_a_file_that_is_no_index_is_seen(
    sessionary: Program,  # noqa: F811
    content: bytes,
) -> None:
    sessionary.append("new", "a walrus")
    assert sessionary("search", "walrus").code == 0
    Path(f"{sessionary.database}-search").write_bytes(content)

    assert sessionary("doctor").code == sessionary("verify").code == 1
    assert sessionary("rebuild", "--index").code == 0
    assert sessionary("doctor").code == sessionary("verify").code == 0
