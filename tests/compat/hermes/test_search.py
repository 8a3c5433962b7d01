"""Searching messages."""

from typing import Any

import pytest
import time_machine

from sessionary.compat.hermes.state import SessionDB

KEYS = "id session_id role snippet timestamp tool_name source model session_started context"


@pytest.fixture
def library(db: SessionDB) -> SessionDB:
    with time_machine.travel("2026-03-01T10:00:00+00:00") as clock:
        for id, source in (("a", "cli"), ("b", "telegram"), ("c", "cron")):
            db.create_session(id, source, model="m")
            for role, text in (
                ("user", f"where is the lighthouse of {id}"),
                ("assistant", "let me look"),
                ("tool", "lighthouse: 42 m"),
            ):
                clock.shift(1)
                db.append_message(id, role, text, tool_name="maps" if role == "tool" else None)
    return db


def found(db: SessionDB, query: str, **how: Any) -> list[tuple[str, str]]:
    return [(each["session_id"], each["role"]) for each in db.search_messages(query, **how)]


def test_a_result_has_exactly_these_keys_and_its_neighbours(library: SessionDB) -> None:
    [result] = library.search_messages('"lighthouse of b"')

    assert sorted(result) == sorted(KEYS.split())
    assert result["snippet"] == "where is the >>>lighthouse of b<<<"
    assert (result["source"], result["model"], result["tool_name"]) == ("telegram", "m", None)
    assert result["context"] == [
        {"role": "user", "content": "where is the lighthouse of b"},
        {"role": "assistant", "content": "let me look"},
    ]
    assert result["id"] == library.get_messages("b")[0]["id"]


def test_context_is_cut_and_stays_in_the_session(db: SessionDB) -> None:
    for id in ("a", "b", "c"):
        db.create_session(id, "cli")
    for id in ("a", "b", "a", "c", "a"):
        db.append_message(id, "user", ("word " * 100) if id == "a" else "other")
    db.append_message("b", "user", "needle")

    [result] = db.search_messages("needle")
    assert [each["content"] for each in result["context"]] == ["other", "needle"]
    one = db.search_messages("word", sort="oldest")[1]
    assert [len(each["content"]) for each in one["context"]] == [200, 200, 200]


def test_tools_output_is_searched_too(library: SessionDB) -> None:
    [result] = library.search_messages("42", source_filter=["cli"])

    assert (result["role"], result["tool_name"]) == ("tool", "maps")


def test_results_are_narrowed_by_source_and_role(library: SessionDB) -> None:
    assert found(library, "lighthouse", source_filter=["cli", "telegram"], sort="oldest") == [
        ("a", "user"),
        ("a", "tool"),
        ("b", "user"),
        ("b", "tool"),
    ]
    assert found(library, "lighthouse", source_filter=[]) == []
    assert len(found(library, "lighthouse", role_filter=[])) == 6
    assert found(library, "lighthouse", role_filter=["tool"], exclude_sources=["cron", "cli"]) == [
        ("b", "tool")
    ]
    assert found(library, "lighthouse", role_filter=["system"]) == []


def test_results_come_newest_oldest_or_by_relevance_and_page_by_page(library: SessionDB) -> None:
    newest = found(library, "lighthouse", sort="newest")
    oldest = found(library, "lighthouse", sort="oldest")

    assert newest[0] == ("c", "tool")
    assert oldest == newest[::-1]
    assert found(library, "lighthouse", sort="newest", limit=2, offset=1) == newest[1:3]
    assert found(library, "lighthouse", sort="oldest", limit=2, offset=1) == oldest[1:3]
    assert sorted(found(library, "lighthouse")) == sorted(newest)


def test_whatever_is_typed_is_a_legal_query(library: SessionDB) -> None:
    for query in ("", "   ", '"', "AND", "(*", 'a" OR "', "-", "x" * 9000):
        assert isinstance(library.search_messages(query), list)


def test_all_words_are_wanted(library: SessionDB) -> None:
    assert found(library, "lighthouse marmalade") == []


def test_a_title_is_no_message(library: SessionDB) -> None:
    library.set_session_title("a", "zeppelin")

    assert library.search_messages("zeppelin") == []
