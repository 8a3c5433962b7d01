"""Sessions under a program's own ids: opened, ended, counted, deleted."""

import json
from pathlib import Path

import pytest
import time_machine

from sessionary.actions.sessions import read
from sessionary.compat.hermes import state
from sessionary.compat.hermes.state import SCHEMA_VERSION, SessionDB
from tests.compat.hermes.conftest import Opener

COLUMNS = """
id source user_id model model_config system_prompt parent_session_id started_at ended_at end_reason
message_count tool_call_count input_tokens output_tokens cache_read_tokens cache_write_tokens
reasoning_tokens billing_provider billing_base_url billing_mode estimated_cost_usd actual_cost_usd
cost_status cost_source pricing_version title api_call_count
handoff_state handoff_platform handoff_error
"""


def row(db: SessionDB, id: str) -> dict[str, object]:
    found = db.get_session(id)
    assert found is not None
    return found


def test_a_session_exists_without_messages_and_has_exactly_these_columns(db: SessionDB) -> None:
    made = db.create_session(
        "s1",
        "cli",
        model="m",
        model_config={"temperature": 0.5},
        system_prompt="Be brief.",
        user_id="u1",
    )

    found = row(db, "s1")
    assert made == "s1"
    assert sorted(found) == sorted(COLUMNS.split())
    assert json.loads(str(found["model_config"])) == {"temperature": 0.5}
    assert [found[name] for name in ("source", "user_id", "model", "system_prompt")] == [
        "cli",
        "u1",
        "m",
        "Be brief.",
    ]
    assert (found["message_count"], found["title"], found["estimated_cost_usd"]) == (0, None, None)


def test_an_id_that_exists_is_left_as_it_is(db: SessionDB) -> None:
    db.create_session("s1", "cli", model="first")

    assert db.create_session("s1", "telegram", model="second") == "s1"
    assert db.ensure_session("s1", "discord") == "s1"

    assert (row(db, "s1")["source"], row(db, "s1")["model"]) == ("cli", "first")


def test_little_need_be_known_of_a_session(db: SessionDB) -> None:
    db.ensure_session("s1")

    assert row(db, "s1")["source"] == "unknown"


def test_the_first_reason_of_an_end_wins_and_reopening_clears_both(db: SessionDB) -> None:
    db.create_session("s1", "cli")
    db.end_session("s1", "user_exit")
    db.end_session("s1", "compression")
    ended = row(db, "s1")

    db.reopen_session("s1")

    assert ended["end_reason"] == "user_exit"
    assert isinstance(ended["ended_at"], float)
    assert (row(db, "s1")["ended_at"], row(db, "s1")["end_reason"]) == (None, None)


def test_ending_or_reopening_what_is_not_there_does_nothing(db: SessionDB) -> None:
    db.end_session("nobody", "x")
    db.reopen_session("nobody")
    db.update_system_prompt("nobody", "x")

    assert db.get_session("nobody") is None


def test_a_system_prompt_is_overwritten(db: SessionDB) -> None:
    db.create_session("s1", "cli", system_prompt="old")
    db.update_system_prompt("s1", "new ☃ " * 9000)

    assert row(db, "s1")["system_prompt"] == "new ☃ " * 9000


def test_messages_after_the_end_are_kept_and_the_end_stays(db: SessionDB) -> None:
    db.create_session("s1", "cli")
    db.append_message("s1", "user", "one")
    db.end_session("s1", "done")
    before = row(db, "s1")

    db.append_message("s1", "assistant", "a late word")

    assert [each["content"] for each in db.get_messages("s1")] == ["one", "a late word"]
    assert row(db, "s1")["ended_at"] == before["ended_at"]
    assert row(db, "s1")["end_reason"] == "done"


def test_a_session_is_found_by_its_id_or_a_unique_beginning_of_it(db: SessionDB) -> None:
    for id in ("20260315_092437_c9a6ff", "20260315X092437_c9a6ff", "a%b", "axb", "c\\d"):
        db.create_session(id, "cli")

    assert db.resolve_session_id("20260315_092437_c9a6ff") == "20260315_092437_c9a6ff"
    assert db.resolve_session_id("20260315_09") == "20260315_092437_c9a6ff"
    assert db.resolve_session_id("20260315") is None
    assert db.resolve_session_id("a%") == "a%b"
    assert db.resolve_session_id("c\\") == "c\\d"
    assert db.resolve_session_id("%") is None
    assert db.resolve_session_id("") is None
    head = db._store.read(read.find, "20260315_09", profile="main")
    assert head.id == "20260315_092437_c9a6ff"


def test_a_deleted_session_is_gone_and_its_children_have_no_parent(db: SessionDB) -> None:
    db.create_session("parent", "cli")
    db.append_message("parent", "user", "the words")
    db.create_session("child", "cli", parent_session_id="parent")

    assert db.delete_session("parent", sessions_dir=Path("unused"))
    assert not db.delete_session("parent")

    assert db.get_session("parent") is None
    assert db.get_messages("parent") == []
    assert row(db, "child")["parent_session_id"] is None
    assert db.search_messages("words") == []
    assert [each["id"] for each in db.list_sessions_rich()] == ["child"]


def test_a_deleted_id_can_be_used_again(db: SessionDB) -> None:
    db.create_session("s1", "cli")
    db.append_message("s1", "user", "old")
    db.update_token_counts("s1", input_tokens=5)
    db.delete_session("s1")

    db.create_session("s1", "telegram")
    db.append_message("s1", "user", "new")

    assert (row(db, "s1")["source"], row(db, "s1")["input_tokens"]) == ("telegram", 0)
    assert [each["content"] for each in db.get_messages("s1")] == ["new"]
    assert len(db.search_messages("new")) == 1


def test_prune_takes_only_sessions_that_ended_long_ago(db: SessionDB) -> None:
    with time_machine.travel("2026-01-01T00:00:00+00:00"):
        for id, source in (("old", "cli"), ("other", "telegram"), ("open", "cli")):
            db.create_session(id, source)
        db.end_session("old", "done")
        db.end_session("other", "done")
    with time_machine.travel("2026-06-01T00:00:00+00:00"):
        db.create_session("fresh", "cli")
        db.end_session("fresh", "done")

        assert db.prune_sessions(older_than_days=90, source="cli") == 1
        assert db.prune_sessions(older_than_days=90) == 1

    assert {each["id"] for each in db.search_sessions()} == {"open", "fresh"}


def test_the_regular_pruning_runs_once_in_an_interval(open_db: Opener) -> None:
    db, another = open_db(), open_db()
    with time_machine.travel("2026-01-01T00:00:00+00:00"):
        db.create_session("old", "cli")
        db.append_message("old", "user", "x" * 100_000)
        db.end_session("old", "done")
    with time_machine.travel("2026-06-01T00:00:00+00:00"):
        first = db.maybe_auto_prune_and_vacuum(retention_days=30)
        again = another.maybe_auto_prune_and_vacuum(retention_days=30)
    with time_machine.travel("2026-06-02T01:00:00+00:00"):
        later = another.maybe_auto_prune_and_vacuum(retention_days=30)

    assert first == {"skipped": False, "pruned": 1, "vacuumed": True}
    assert again == {"skipped": True, "pruned": 0, "vacuumed": False}
    assert later == {"skipped": False, "pruned": 0, "vacuumed": False}


def test_a_vacuum_loses_nothing_while_others_read_and_write(open_db: Opener) -> None:
    db, another = open_db(), open_db()
    for place in range(20):
        db.ensure_session(f"s{place}")
        db.append_message(f"s{place}", "user", "word " * 500)
    for place in range(10):
        db.delete_session(f"s{place}")
    assert another.session_count() == 10

    db.vacuum()
    another.append_message("s19", "user", "after")

    assert db.message_count() == 11
    assert another.message_count("s19") == 2


def test_without_a_path_the_record_is_the_configured_one(
    address: str, open_db: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_db().create_session("s1", "cli")
    url = address if "://" in address else f"sqlite:///{address}"
    monkeypatch.setenv("SESSIONARY_DATABASE", url)

    found = SessionDB()

    assert found.get_session("s1") is not None
    found.close()


def test_a_program_may_name_another_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "DEFAULT_DB_PATH", tmp_path / "mine.db")

    SessionDB().close()

    assert (tmp_path / "mine.db").exists()
    assert isinstance(SCHEMA_VERSION, int)
