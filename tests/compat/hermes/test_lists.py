"""Lists, and chains of compressed sessions that read as one."""

from typing import Any

import pytest
import time_machine

from sessionary.compat.hermes.state import SessionDB
from tests.compat.hermes.test_sessions import row


@pytest.fixture
def chain(db: SessionDB) -> SessionDB:
    """A root that was compressed twice, its subagent, and one more session in between."""
    with time_machine.travel("2026-03-01T10:00:00+00:00") as clock:

        def say(id: str, *texts: str) -> None:
            for text in texts:
                clock.shift(1)
                db.append_message(id, "user", text)

        db.create_session("root", "cli")
        db.set_session_title("root", "plan")
        say("root", "first question", "seam one")
        db.create_session("helper", "cli", parent_session_id="root")
        say("helper", "find out")
        db.end_session("root", "compression")
        clock.shift(1)
        db.create_session("middle", "cli", parent_session_id="root")
        db.set_session_title("middle", "plan #2")
        say("middle", "seam one", "more")
        db.create_session("between", "telegram")
        say("between", "hello\nthere")
        db.end_session("middle", "compression")
        clock.shift(1)
        db.create_session("tip", "cli", parent_session_id="middle")
        say("tip", "summary", "newest")
    return db


def ids(listed: list[dict[str, Any]]) -> list[str]:
    return [each["id"] for each in listed]


def test_the_newest_beginning_comes_first_and_a_chain_is_one_row(chain: SessionDB) -> None:
    listed = chain.list_sessions_rich()

    assert ids(listed) == ["between", "tip"]
    one = listed[1]
    assert one["_lineage_root_id"] == "root"
    assert one["started_at"] == row(chain, "root")["started_at"]
    assert one["message_count"] == 2
    assert one["last_active"] == chain.get_messages("tip")[-1]["timestamp"]
    assert (one["parent_session_id"], one["end_reason"]) == (None, None)
    assert sorted(set(listed[0]) - set(row(chain, "between"))) == ["last_active", "preview"]


def test_by_activity_a_chain_stands_where_its_newest_end_does(chain: SessionDB) -> None:
    assert ids(chain.list_sessions_rich(order_by_last_active=True)) == ["tip", "between"]
    assert ids(chain.list_sessions_rich(order_by_last_active=True, limit=1)) == ["tip"]
    assert ids(chain.list_sessions_rich(order_by_last_active=True, limit=1, offset=1)) == [
        "between"
    ]


def test_chains_and_children_can_be_shown_link_by_link(chain: SessionDB) -> None:
    assert ids(chain.list_sessions_rich(project_compression_tips=False)) == ["between", "root"]
    assert ids(chain.list_sessions_rich(include_children=True)) == [
        "tip",
        "between",
        "middle",
        "helper",
        "root",
    ]


def test_a_list_can_be_narrowed_and_paged(chain: SessionDB) -> None:
    assert ids(chain.list_sessions_rich(source="telegram")) == ["between"]
    assert ids(chain.list_sessions_rich(exclude_sources=["telegram", "tele"])) == ["tip"]
    assert ids(chain.list_sessions_rich(exclude_sources=["tele"])) == ["between", "tip"]
    assert ids(chain.list_sessions_rich(limit=1, offset=1)) == ["tip"]
    assert ids(chain.search_sessions(limit=2)) == ["tip", "between"]
    assert ids(chain.search_sessions("telegram")) == ["between"]
    assert (chain.session_count(), chain.session_count("cli")) == (5, 4)
    assert chain.message_count() == 8


def test_forks_of_a_branched_session_are_listed_like_roots(db: SessionDB) -> None:
    db.create_session("a", "cli")
    db.end_session("a", "branched")
    db.create_session("b", "cli", parent_session_id="a")

    assert ids(db.list_sessions_rich()) == ["b", "a"]
    assert row(db, "b")["parent_session_id"] == "a"


def test_a_preview_is_the_first_words_of_a_person(db: SessionDB) -> None:
    expected = {
        "one\ntwo\r\nthree": "one two  three",
        "x" * 60: "x" * 60,
        "x" * 61: "x" * 60 + "...",
        None: "",
    }
    for place, text in enumerate(expected):
        db.create_session(f"s{place}", "cli")
        db.append_message(f"s{place}", "assistant", "welcome")
        if text is not None:
            db.append_message(f"s{place}", "user", text)

    shown = {each["id"]: each["preview"] for each in db.list_sessions_rich()}
    assert [shown[f"s{place}"] for place in range(4)] == list(expected.values())


def test_a_session_goes_on_in_its_newest_continuation_that_has_messages(
    chain: SessionDB,
) -> None:
    for id in ("root", "middle", "tip"):
        assert chain.get_compression_tip(id) == chain.resolve_resume_session_id(id) == "tip"
    chain.end_session("tip", "compression")
    chain.create_session("empty", "cli", parent_session_id="tip")

    assert chain.resolve_resume_session_id("root") == "tip"
    assert chain.resolve_resume_session_id("between") == "between"
    assert chain.resolve_resume_session_id("nobody") == "nobody"
    assert chain.get_compression_tip("nobody") == "nobody"


def test_ancestors_come_first_and_a_repeated_prompt_stands_once(chain: SessionDB) -> None:
    def texts(id: str, *, include_ancestors: bool) -> list[str]:
        messages = chain.get_messages_as_conversation(id, include_ancestors=include_ancestors)
        return [each["content"] for each in messages]

    assert texts("tip", include_ancestors=False) == ["summary", "newest"]
    assert texts("tip", include_ancestors=True) == [
        "first question",
        "seam one",
        "more",
        "summary",
        "newest",
    ]
    assert texts("helper", include_ancestors=True) == ["first question", "seam one", "find out"]


def test_an_empty_session_goes_on_in_the_first_descendant_that_has_messages(db: SessionDB) -> None:
    for id, parent in (("a", None), ("b", "a"), ("c", "b")):
        db.create_session(id, "cli", parent_session_id=parent)
    db.append_message("c", "user", "here")

    assert db.resolve_resume_session_id("a") == "c"
    assert db.get_compression_tip("a") == "a"


def test_later_filters_narrow_a_list_and_its_count(db: SessionDB) -> None:
    db.create_session("s1", "cli", cwd="/home/ann/work", session_key="k1")
    db.create_session("s2", "telegram", cwd="/home/bob")
    db.append_message("s2", "user", "about apples")
    db.set_session_title("s1", "Pears")

    assert ids(db.list_sessions_rich(sources=["cli"])) == ["s1"]
    assert ids(db.list_sessions_rich(cwd_prefix="/home/bob")) == ["s2"]
    assert ids(db.list_sessions_rich(session_key="k1")) == ["s1"]
    assert ids(db.list_sessions_rich(min_message_count=1)) == ["s2"]
    assert ids(db.list_sessions_rich(search_query="APPLES")) == ["s2"]
    assert ids(db.list_sessions_rich(search_query="pears")) == ["s1"]
    assert ids(db.list_sessions_rich(id_query="S2", limit=1)) == ["s2"]
    assert ids(db.list_sessions_rich(archived_only=True)) == []
    assert db.session_count(min_message_count=1) == 1
    assert db.session_count(exclude_sources=["cli"]) == 1
    assert db.session_count(source="cli", exclude_children=True) == 1
