"""Search follows what happens to sessions: trash, purge, forks, profiles, other processes."""

from sessionary.actions.sessions import edit
from sessionary.store.database import Store
from tests.search.conftest import Library
from tests.store.conftest import Opener


def test_the_trash_is_not_searched_until_it_is_restored(library: Library) -> None:
    session = library.session("a secret almond", title="Nuts")
    library.write(edit.trash, session, profile="main", moment=library.moment())
    assert library.find("almond").total == 0
    assert library.find("nuts").total == 0

    library.write(edit.restore, session, profile="main")

    assert library.find("almond").total == 1
    assert library.find("nuts").total == 1


def test_the_archive_is_searched(library: Library) -> None:
    session = library.session("an old walnut")
    library.write(edit.archive, session, profile="main", archived=True)

    assert library.find("walnut").total == 1


def test_what_is_purged_is_gone(library: Library) -> None:
    session = library.session("a pecan", "another pecan", title="Pecans")
    library.session("my pecan")
    assert library.find("pecan", all_hits=True).total == 3

    library.purge(session)

    assert library.texts_of("pecan") == {"my pecan"}
    assert library.find("pecans").total == 0


def test_what_was_purged_before_it_was_indexed_is_not_found(library: Library) -> None:
    session = library.session("a cashew", title="Cashews")
    library.purge(session)

    assert library.find("cashew").total == 0
    assert library.find("cashews").total == 0


def test_nothing_is_found_across_profiles(library: Library) -> None:
    other = Library(library.store, profile="work")
    library.session("hazelnut at home")
    other.session("hazelnut at work")

    assert library.texts_of("hazelnut") == {"hazelnut at home"}
    assert other.texts_of("hazelnut") == {"hazelnut at work"}
    assert Library(library.store, profile="third").find("hazelnut").total == 0


def test_within_a_fork_its_whole_history_is_searched(library: Library) -> None:
    session = library.session("peanut one", "peanut two", "peanut three")
    fork = library.fork(session, 2)
    library.append_text(fork.id, "peanut four")

    assert len(library.hits("peanut")) == 4
    assert {hit.text for hit in library.hits("peanut", session=fork.id)} == {
        "peanut one",
        "peanut two",
        "peanut four",
    }
    assert len(library.hits("peanut", session=session)) == 3


def test_what_a_fork_still_shows_is_found_when_its_parent_is_away(library: Library) -> None:
    session = library.session("pistachio one", "pistachio two", "pistachio three")
    fork = library.fork(session, 2)
    library.append_text(fork.id, "and on")
    library.write(edit.trash, session, profile="main", moment=library.moment())

    shown = library.hits("pistachio")
    assert {hit.text for hit in shown} == {"pistachio one", "pistachio two"}
    assert {hit.session.id for hit in shown} == {fork.id}

    library.purge(session)
    assert library.texts_of("pistachio") == {"pistachio one", "pistachio two"}

    library.purge(fork.id)
    assert library.hits("pistachio") == []


def test_a_search_sees_what_another_process_has_appended(open_again: Opener) -> None:
    one, two = Library(open_again()), Library(open_again(), name="other")
    session = one.session("chestnut from one")
    assert two.find("chestnut").total == 1

    two.append_text(session, "chestnut from two")

    assert one.find("chestnut", all_hits=True).total == 2
    two.purge(session)
    assert one.find("chestnut").total == 0


def test_an_index_that_feeds_itself_is_complete_when_it_is_asked(store: Store) -> None:
    library = Library(store)
    store.index_in_background()
    session = library.session("start")
    for number in range(300):
        library.append_text(session, f"acorn {number}")

    assert library.find("acorn", all_hits=True).total == 300
    assert store.catch_up(0).result().behind == 0


def test_the_index_can_be_made_again(library: Library) -> None:
    library.session("a macadamia", title="Hard shells")
    assert library.find("macadamia").total == 1

    library.store.rebuild_index().result()

    assert library.find("macadamia").total == 1
    assert library.find("shells").total == 1


def test_a_search_that_may_not_wait_says_how_far_the_index_is_behind(library: Library) -> None:
    library.session("one", "two")
    library.store.rebuild_index().result()

    assert library.store.catch_up(None).result().behind == 0
