"""Titles: cleaned, unique, numbered."""

import pytest

from sessionary.compat.hermes.state import SessionDB


def test_a_title_is_cleaned_and_an_empty_one_is_none() -> None:
    assert SessionDB.sanitize_title("  a\tb\u200b\n c ") == "a b c"
    assert SessionDB.sanitize_title(" \u200b ") is None
    assert SessionDB.sanitize_title(None) is None


def test_a_title_that_is_too_long_is_refused(db: SessionDB) -> None:
    db.create_session("s1", "cli")

    with pytest.raises(ValueError, match=r"^Title too long \(101 "):
        db.set_session_title("s1", "x" * 101)
    assert db.get_session_title("s1") is None


def test_a_title_is_set_and_cleared(db: SessionDB) -> None:
    db.create_session("s1", "cli")

    assert db.set_session_title("s1", " My  work ")
    assert db.get_session_title("s1") == "My work"
    found = db.get_session_by_title("My work")
    assert found is not None
    assert found["id"] == "s1"
    assert db.set_session_title("s1", "")
    assert db.get_session_title("s1") is None
    assert db.get_session_by_title("My work") is None
    assert not db.set_session_title("nobody", "x")


def test_a_taken_title_names_its_holder(db: SessionDB) -> None:
    db.create_session("s1", "cli")
    db.create_session("s2", "cli")
    db.set_session_title("s1", "work")

    with pytest.raises(ValueError, match="already in use by session s1"):
        db.set_session_title("s2", "work")
    assert db.set_session_title("s1", "work")


def test_the_variant_that_began_last_wins_over_the_exact_title(db: SessionDB) -> None:
    for id, title in (
        ("a", "bug"),
        ("b", "bug #3"),
        ("c", "bug #2"),
        ("d", "bug #12 crash notes"),
        ("e", "a_c"),
        ("f", "abc"),
    ):
        db.create_session(id, "cli")
        db.set_session_title(id, title)

    assert db.resolve_session_by_title("bug") == "c"
    assert db.resolve_session_by_title("bug #3") == "b"
    assert db.resolve_session_by_title("a_c") == "e"
    assert db.resolve_session_by_title("nothing") is None


def test_the_next_title_of_a_lineage_has_the_next_number(db: SessionDB) -> None:
    assert db.get_next_title_in_lineage("work") == "work"
    assert db.get_next_title_in_lineage("work #4") == "work"

    for id, title in (("a", "work"), ("b", "work #2"), ("c", "work #x")):
        db.create_session(id, "cli")
        db.set_session_title(id, title)

    assert db.get_next_title_in_lineage("work") == "work #3"
    assert db.get_next_title_in_lineage("work #2") == "work #3"
    long = "y" * 100
    db.create_session("d", "cli")
    db.set_session_title("d", long)
    assert db.get_next_title_in_lineage(long) == "y" * 97 + " #2"
