"""What later versions of Hermes pass: kept and logged once, never an error."""

import inspect
import logging
from typing import Any
from uuid import uuid4

import pytest

from sessionary.compat.hermes import rows
from sessionary.compat.hermes.config import GatewayConfig, Platform
from sessionary.compat.hermes.session import SessionEntry, SessionSource, SessionStore
from sessionary.compat.hermes.state import SessionDB
from sessionary.errors import SessionaryError


def kept(db: SessionDB, id: str) -> dict[str, Any]:
    """What is kept of the keywords of later versions with a session."""

    def asked(tx: Any) -> dict[str, Any]:
        head = rows.find_session(tx, id, profile="main")
        assert head is not None
        return dict(rows.kept_fields(tx, head).get(rows.FURTHER, {}))

    return db._store.read(asked)


def kept_of_messages(db: SessionDB, id: str) -> list[dict[str, Any]]:
    """The same of its messages."""

    def asked(tx: Any) -> list[dict[str, Any]]:
        head = rows.find_session(tx, id, profile="main")
        assert head is not None
        bodies = [entry.body for _, entry in rows.visible_messages(tx, head)]
        return [dict(body.extra.get(rows.KEPT, {}).get(rows.FURTHER, {})) for body in bodies]  # type: ignore[union-attr]

    return db._store.read(asked)


def test_keywords_of_a_session_are_kept_and_the_first_value_stays(db: SessionDB) -> None:
    db.create_session("s1", "cli", cwd="/work", profile_name="main", tomorrow={"a": [1]})
    db.ensure_session("s1", cwd="/elsewhere", chat_id="7")

    assert kept(db, "s1") == {
        "cwd": "/work",
        "profile_name": "main",
        "tomorrow": {"a": [1]},
        "chat_id": "7",
    }
    row = db.get_session("s1")
    assert row is not None
    assert "cwd" not in row


def test_a_parent_that_is_not_there_is_noted(db: SessionDB) -> None:
    db.create_session("s1", "cli", parent_session_id="nobody")

    assert kept(db, "s1") == {"parent_session_id": "nobody"}


def test_keywords_of_a_message_are_kept_and_its_time_counts(db: SessionDB) -> None:
    db.create_session("s1", "cli")
    db.append_message(
        "s1", "user", "hi", timestamp=1_700_000_000.5, api_content="x", display_kind="note"
    )
    assert db.append_messages_batch("s1", messages=[{"role": "user", "effect": object}]) == 1

    assert db.get_messages("s1")[0]["timestamp"] == 1_700_000_000.5
    first, second = kept_of_messages(db, "s1")
    assert first == {"api_content": "x", "display_kind": "note"}
    assert second["effect"] == str(object)


def test_reads_take_the_keywords_of_later_versions(db: SessionDB) -> None:
    db.create_session("s1", "cli")
    numbers = [db.append_message("s1", "user", str(n)) for n in range(5)]

    def texts(**how: Any) -> list[str]:
        return [each["content"] for each in db.get_messages("s1", **how)]

    assert texts(limit=2) == ["0", "1"]
    assert texts(limit=2, offset=1) == ["1", "2"]
    assert texts(offset=3) == ["3", "4"]
    assert texts(limit=2, latest=True) == ["3", "4"]
    assert texts(after_id=numbers[2]) == ["3", "4"]
    chats = db.get_messages_as_conversation("s1", include_row_ids=True, repair_alternation=True)
    assert [each["_row_id"] for each in chats] == numbers
    db.replace_messages("s1", [{"role": "user", "content": "new"}], active_only=True)
    assert texts() == ["new"]
    assert texts(include_inactive=True) == ["0", "1", "2", "3", "4", "new"]


def test_an_unknown_keyword_is_logged_once(db: SessionDB, caplog: pytest.LogCaptureFixture) -> None:
    name = f"of_{uuid4().hex}"
    further: dict[str, Any] = {name: 1}
    for id in ("s1", "s2"):
        db.create_session(id, "cli", **further)
    db.list_sessions_rich(**further)

    lines = [each.getMessage() for each in caplog.records if name in each.getMessage()]
    assert len(lines) == 2
    assert "SessionDB.create_session" in lines[0]
    assert "kept with the row" in lines[0]
    assert "SessionDB.list_sessions_rich" in lines[1]


def test_a_prune_with_an_unknown_filter_deletes_nothing(db: SessionDB) -> None:
    db.create_session("s1", "cli")
    db.end_session("s1", "done")

    assert db.prune_sessions(older_than_days=-1, title_like="x") == 0
    assert db.prune_sessions(older_than_days=None) == 0
    assert db.get_session("s1") is not None


def test_what_could_not_be_recorded_is_an_error_in_the_log(
    db: SessionDB, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(SessionaryError):
        db.append_message("nobody", "user", "lost?")
    db.close()
    with pytest.raises(SessionaryError):
        db.create_session("s1", "cli")
    with pytest.raises(SessionaryError):
        SessionStore(None, GatewayConfig(), db=db)

    errors = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert [line.split()[0] for line in errors] == [
        "SessionDB.append_message",
        "SessionDB.create_session",
    ]


def test_a_title_that_is_taken_is_an_answer_and_no_failure(
    db: SessionDB, caplog: pytest.LogCaptureFixture
) -> None:
    for id in ("s1", "s2"):
        db.create_session(id, "cli")
    db.set_session_title("s1", "plan")
    with pytest.raises(ValueError, match="already in use by session s1"):
        db.set_session_title("s2", "plan")

    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


def test_sources_and_entries_take_fields_of_later_versions(db: SessionDB) -> None:
    source = SessionSource(
        Platform.DISCORD,
        "1",
        role_authorized=True,
        scope_id="g",
        of_tomorrow=3,  # type: ignore[call-arg]
    )
    store = SessionStore(None, GatewayConfig(), db=db, of_tomorrow=3)
    entry = store.get_or_create_session(source)
    other = SessionStore(None, GatewayConfig(), db=db).list_sessions()[0]

    assert source.to_dict()["role_authorized"] is True
    assert vars(source)["of_tomorrow"] == 3
    assert other.origin is not None
    assert (other.origin.scope_id, other.origin.role_authorized) == ("g", True)
    entry.model_override = {"model": "m"}
    store._save()
    assert store.list_sessions()[0].to_dict()["model_override"] == {"model": "m"}
    assert "model_override" not in SessionEntry.from_dict(other.to_dict()).to_dict()


def test_facts_that_later_versions_record_of_a_session_are_kept(db: SessionDB) -> None:
    db.create_session("s1", "cli", model="m1", model_config={"a": 1})
    db.update_session_cwd("s1", "/work", git_branch="main")
    db.record_gateway_session_peer("s1", source="telegram", chat_id="7")
    db.set_expiry_finalized("s1")
    db.update_session_meta("s1", '{"a": 2}')
    db.update_session_model("s1", "m2")
    db.update_token_counts("s1", 1, billing_provider="p1")
    db.update_session_billing_route("s1", provider="p2", base_url="u", billing_mode="api")
    db.record_auxiliary_usage("s1", "vision", model="m3", input_tokens=5)

    row = db.get_session("s1")
    assert row is not None
    assert (row["model"], row["model_config"], row["input_tokens"]) == ("m2", '{"a": 2}', 1)
    assert (row["billing_provider"], row["billing_mode"]) == ("p2", "api")
    assert kept(db, "s1") == {
        "cwd": "/work",
        "git_branch": "main",
        "source": "telegram",
        "chat_id": "7",
        "expiry_finalized": True,
    }


def test_titles_archives_and_ends_of_later_versions(db: SessionDB) -> None:
    db.create_session("s1", "cli")
    assert db.set_auto_title_if_empty("s1", "first")
    assert not db.set_auto_title_if_empty("s1", "second")
    assert not db.set_auto_title_if_empty("nobody", "second")
    assert db.get_session_title("s1") == "first"
    assert db.set_session_archived("s1", True)
    assert not db.set_session_archived("nobody", True)
    assert [each["id"] for each in db.list_sessions_rich(archived_only=True)] == ["s1"]
    assert db.list_sessions_rich(include_archived=False) == []
    assert db.promote_to_session_reset("s1")
    assert not db.promote_to_session_reset("s1")


def test_messages_are_compacted_and_rewound_as_later_versions_do(db: SessionDB) -> None:
    db.create_session("s1", "cli")
    numbers = [db.append_message("s1", "user", str(n), platform_message_id=f"p{n}") for n in (1, 2)]
    assert db.has_platform_message_id("s1", "p2")
    assert db.set_latest_user_api_content("s1", "2", "sent") == 1
    assert db.set_latest_user_api_content("s1", "other", "sent") == 0

    [newest, _] = db.list_recent_user_messages("s1")
    assert (newest["id"], newest["preview"]) == (numbers[1], "2")
    rewound = db.rewind_to_message("s1", numbers[1])
    assert (rewound["rewound_count"], rewound["new_head_id"]) == (1, numbers[0])
    assert rewound["target_message"]["content"] == "2"
    assert not db.has_platform_message_id("s1", "p2")
    with pytest.raises(ValueError, match="no message"):
        db.rewind_to_message("s1", 1)

    assert db.archive_and_compact("s1", [{"role": "user", "content": "so far"}]) == 1
    assert [each["content"] for each in db.get_messages("s1")] == ["so far"]
    assert len(db.get_messages("s1", include_inactive=True)) == 3


def test_locks_and_failures_of_a_compression_as_later_versions_note_them(db: SessionDB) -> None:
    db.create_session("s1", "cli")
    assert not db.refresh_compression_lock("s1", "a")
    db.try_acquire_compression_lock("s1", "a")
    assert db.refresh_compression_lock("s1", "a")
    assert db.get_compression_failure_cooldown("s1") is None
    db.record_compression_failure_cooldown("s1", 9e9, "no model")
    cooldown = db.get_compression_failure_cooldown("s1")
    assert cooldown is not None
    assert (cooldown["error"], cooldown["remaining_seconds"] > 0) == ("no model", True)
    db.clear_compression_failure_cooldown("s1")
    assert db.get_compression_failure_cooldown("s1") is None
    db.set_compression_fallback_streak("s1", 3)
    assert (db.get_compression_fallback_streak("s1"), db.get_compression_fallback_streak("x")) == (
        3,
        0,
    )


def test_a_gateway_keeps_its_own_index_of_conversations(db: SessionDB) -> None:
    scope = uuid4().hex
    db.replace_gateway_routing_entries({"a": "1", "b": "2"}, scope=scope)
    db.save_gateway_routing_entry("c", "3", scope=scope)
    db.delete_gateway_routing_entries(["a"], scope=scope)
    assert db.load_gateway_routing_entries(scope=scope) == {"b": "2", "c": "3"}
    db.replace_gateway_routing_entries({"d": "4"}, scope=scope)

    assert db.load_gateway_routing_entries(scope=scope) == {"d": "4"}
    assert db.load_gateway_routing_entries(scope=scope[:5]) == {}


@pytest.mark.parametrize("kind", [SessionDB, SessionStore])
def test_no_method_refuses_a_keyword_of_tomorrow(kind: type[Any]) -> None:
    """Called without its arguments, a method misses those, and does not mind the keyword."""
    refused = [
        name
        for name, method in vars(kind).items()
        if not name.startswith("_")
        and inspect.isfunction(method)
        and "unexpected" in str(_error_of(method))
    ]

    assert refused == []


def _error_of(method: Any) -> Exception | None:
    try:
        method(object(), of_tomorrow=1)
    except (TypeError, AttributeError) as error:
        return error
    return None


def test_a_keyword_of_tomorrow_is_kept_by_every_call_that_records(db: SessionDB) -> None:
    further: dict[str, Any] = {"of_tomorrow": 7}
    db.create_session("s1", "cli")
    db.end_session("s1", "done", **further)

    assert kept(db, "s1") == {"of_tomorrow": 7}
    row = db.get_session("s1", **further)
    assert row is not None
    assert row["end_reason"] == "done"
    assert db.get_session_title("nobody", **further) is None


def test_a_negative_limit_means_all(db: SessionDB) -> None:
    for id in ("s1", "s2"):
        db.create_session(id, "cli")
        db.append_message(id, "user", "apples")

    assert len(db.list_sessions_rich(limit=-1)) == len(db.search_sessions(limit=-1)) == 2
    assert len(db.search_messages("apples", limit=-1, sort=" Oldest ")) == 2
    assert db.list_sessions_rich(limit=0) == db.search_messages("apples", limit=0) == []


@pytest.mark.parametrize("marker", ["", "rubbish", "inf", "nan", "-inf"])
def test_the_regular_pruning_runs_whatever_its_marker_holds(db: SessionDB, marker: str) -> None:
    db.set_meta("last_auto_prune", marker)

    assert db.maybe_auto_prune_and_vacuum()["skipped"] is False
    assert db.maybe_auto_prune_and_vacuum()["skipped"] is True
