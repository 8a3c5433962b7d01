"""`SessionStore`: which session each conversation is on, by our rules."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import time_machine
from time_machine import Traveller

from sessionary.compat.hermes.config import GatewayConfig, Platform, SessionResetPolicy
from sessionary.compat.hermes.session import (
    SessionEntry,
    SessionSource,
    SessionStore,
    build_session_key,
)
from sessionary.compat.hermes.state import SessionDB
from tests.compat.hermes.conftest import Opener

ANN = SessionSource(Platform.TELEGRAM, "1", chat_name="Ann", user_id="1", user_name="Ann")
BOB = SessionSource(Platform.TELEGRAM, "2", user_id="2", user_name="Bob")
GROUP = SessionSource(Platform.TELEGRAM, "-100", chat_type="group", user_id="1")


@pytest.fixture
def clock() -> Iterator[Traveller]:
    with time_machine.travel("2026-03-02T10:00:00+00:00", tick=False) as traveller:
        yield traveller


@pytest.fixture
def config() -> GatewayConfig:
    return GatewayConfig(default_reset_policy=SessionResetPolicy(mode="idle", idle_minutes=60))


@pytest.fixture
def store(clock: Traveller, db: SessionDB, config: GatewayConfig) -> SessionStore:
    return SessionStore(Path("sessions-that-nobody-makes"), config, db=db)


def append_texts(store: SessionStore, entry: SessionEntry, *texts: str) -> None:
    for text in texts:
        store.append_to_transcript(entry.session_id, {"role": "user", "content": text})


def test_a_source_has_one_session_until_it_is_reset(store: SessionStore, clock: Traveller) -> None:
    first = store.get_or_create_session(ANN)
    clock.shift(30 * 60)
    again = store.get_or_create_session(ANN)
    clock.shift(59 * 60)
    later = store.get_or_create_session(ANN)

    assert re.fullmatch(r"20260302_100000_[0-9a-f]{8}", first.session_id)
    assert again.session_id == later.session_id == first.session_id
    assert store.get_or_create_session(BOB).session_id != first.session_id
    assert first.session_key == build_session_key(ANN) == "agent:main:telegram:dm:1"
    assert (first.origin, first.platform, first.display_name) == (ANN, Platform.TELEGRAM, "Ann")
    assert not first.was_auto_reset
    assert not Path("sessions-that-nobody-makes").exists()


def test_an_idle_reset_gives_a_new_entry_with_its_reason(
    store: SessionStore, clock: Traveller
) -> None:
    first = store.get_or_create_session(ANN)
    append_texts(store, first, "hello")
    clock.shift(61 * 60)

    second = store.get_or_create_session(ANN)

    assert second.session_id != first.session_id
    assert (second.was_auto_reset, second.auto_reset_reason, second.reset_had_activity) == (
        True,
        "idle",
        True,
    )
    clock.shift(61 * 60)
    third = store.get_or_create_session(ANN)
    assert (third.was_auto_reset, third.reset_had_activity) == (True, False)
    assert [each["end_reason"] for each in store._db.search_sessions()] == [None, "idle", "idle"]


def test_a_daily_reset_comes_at_its_hour_in_the_configured_zone(
    store: SessionStore, clock: Traveller
) -> None:
    store.config.default_reset_policy = SessionResetPolicy(mode="daily", at_hour=4)
    first = store.get_or_create_session(ANN)
    clock.move_to("2026-03-03T03:59:00+00:00")
    assert store.get_or_create_session(ANN).session_id == first.session_id
    append_texts(store, first, "hello")
    clock.move_to("2026-03-03T04:01:00+00:00")

    entry = store.get_or_create_session(ANN)

    assert (entry.auto_reset_reason, entry.session_id != first.session_id) == ("daily", True)


def test_the_policy_is_the_platforms_then_the_types_then_the_default(
    store: SessionStore, clock: Traveller
) -> None:
    store.config.reset_by_type["group"] = SessionResetPolicy(mode="none")
    group, ann = store.get_or_create_session(GROUP), store.get_or_create_session(ANN)
    clock.shift(100 * 24 * 3600)

    assert store.get_or_create_session(GROUP).session_id == group.session_id
    store.config.reset_by_platform[Platform.TELEGRAM] = SessionResetPolicy(mode="none")
    assert store.get_or_create_session(ANN).session_id == ann.session_id


def test_what_still_runs_is_not_reset(
    clock: Traveller, db: SessionDB, config: GatewayConfig
) -> None:
    busy = {build_session_key(ANN)}
    store = SessionStore(None, config, has_active_processes_fn=busy.__contains__, db=db)
    first = store.get_or_create_session(ANN)
    clock.shift(2 * 3600)
    assert store.get_or_create_session(ANN).session_id == first.session_id
    clock.shift(2 * 3600)
    busy.clear()

    assert store.get_or_create_session(ANN).session_id != first.session_id


def test_a_new_session_can_be_forced(store: SessionStore) -> None:
    first = store.get_or_create_session(ANN)
    second = store.get_or_create_session(ANN, force_new=True)
    third = store.reset_session(second.session_key, display_name="Work")

    assert len({first.session_id, second.session_id, third and third.session_id}) == 3
    assert not second.was_auto_reset
    assert third is not None
    assert (third.is_fresh_reset, third.display_name) == (True, "Work")
    assert store.get_or_create_session(ANN).session_id == third.session_id
    assert store.reset_session("agent:main:telegram:dm:nobody") is None


def test_a_key_can_be_pointed_at_another_session(store: SessionStore) -> None:
    old = store.get_or_create_session(ANN)
    append_texts(store, old, "the old one")
    new = store.reset_session(old.session_key)
    assert new is not None

    back = store.switch_session(old.session_key, old.session_id)

    assert back is not None
    assert back.session_id == store.get_or_create_session(ANN).session_id == old.session_id
    ended = store._db.get_session(new.session_id)
    assert ended is not None
    assert ended["end_reason"] == "switch"
    assert store.load_transcript(old.session_id) == [{"role": "user", "content": "the old one"}]
    assert store.switch_session("nobody", old.session_id) is None
    assert store.switch_session(old.session_key, "nobody") is None


def test_a_suspended_session_begins_again_and_says_so(store: SessionStore) -> None:
    first = store.get_or_create_session(ANN)
    assert store.suspend_session(first.session_key)
    assert not store.suspend_session("nobody")
    assert store.list_sessions()[0].suspended

    second = store.get_or_create_session(ANN)

    assert (second.was_auto_reset, second.auto_reset_reason) == (True, "suspended")
    assert not second.suspended


def test_a_session_to_be_resumed_goes_on_however_late(
    store: SessionStore, clock: Traveller
) -> None:
    first = store.get_or_create_session(ANN)
    assert store.mark_resume_pending(first.session_key, "shutdown_timeout")
    clock.shift(5 * 3600)

    entry = store.get_or_create_session(ANN)

    assert entry.session_id == first.session_id
    assert (entry.resume_pending, entry.resume_reason) == (True, "shutdown_timeout")
    assert entry.last_resume_marked_at == first.updated_at
    assert store.clear_resume_pending(first.session_key)
    assert not store.clear_resume_pending(first.session_key)
    assert not store.list_sessions()[0].resume_pending


def test_a_suspended_session_is_not_to_be_resumed(store: SessionStore) -> None:
    entry = store.get_or_create_session(ANN)
    store.suspend_session(entry.session_key)

    assert not store.mark_resume_pending(entry.session_key)


def test_after_a_crash_what_was_just_at_work_is_suspended(
    store: SessionStore, clock: Traveller, open_db: Opener, config: GatewayConfig
) -> None:
    old, waiting = store.get_or_create_session(BOB), store.get_or_create_session(GROUP)
    clock.shift(600)
    busy = store.get_or_create_session(ANN)
    store.get_or_create_session(GROUP)
    store.mark_resume_pending(waiting.session_key)
    clock.shift(60)

    restarted = SessionStore(None, config, db=open_db())
    assert restarted.suspend_recently_active(max_age_seconds=120) == 1

    suspended = [each.session_id for each in restarted.list_sessions() if each.suspended]
    assert suspended == [busy.session_id]
    assert old.session_id != busy.session_id


def test_entries_are_listed_by_activity(store: SessionStore, clock: Traveller) -> None:
    ann = store.get_or_create_session(ANN)
    clock.shift(20 * 60)
    bob = store.get_or_create_session(BOB)
    clock.shift(60)

    assert [each.session_id for each in store.list_sessions()] == [bob.session_id, ann.session_id]
    assert [each.session_id for each in store.list_sessions(active_minutes=10)] == [bob.session_id]
    store.update_session(ann.session_key, last_prompt_tokens=1234)
    first = store.list_sessions()[0]
    assert (first.session_id, first.last_prompt_tokens) == (ann.session_id, 1234)


def test_counts_of_an_entry_are_the_sessions(store: SessionStore) -> None:
    entry = store.get_or_create_session(ANN)
    store.update_session(
        entry.session_key, input_tokens=10, output_tokens=5, estimated_cost_usd=0.5
    )

    entry = store.get_or_create_session(ANN)
    assert (entry.input_tokens, entry.output_tokens, entry.total_tokens) == (10, 5, 15)
    assert entry.estimated_cost_usd == 0.5
    assert entry.cost_status == "unknown"


def test_the_first_session_ever_is_none_before_it(store: SessionStore) -> None:
    assert not store.has_any_sessions()
    store.get_or_create_session(ANN)
    assert not store.has_any_sessions()
    store.get_or_create_session(BOB)
    assert store.has_any_sessions()


def test_a_transcript_is_appended_rewritten_and_loaded(store: SessionStore) -> None:
    entry = store.get_or_create_session(ANN)
    append_texts(store, entry, "one", "two")
    store.append_to_transcript(entry.session_id, {"role": "user", "content": "x"}, skip_db=True)
    store.append_to_transcript("of-another-day", {"role": "user", "content": "not lost"})

    store.rewrite_transcript(entry.session_id, [{"role": "user", "content": "one"}])

    assert store.load_transcript(entry.session_id) == [{"role": "user", "content": "one"}]
    assert store.load_transcript("of-another-day") == [{"role": "user", "content": "not lost"}]
    assert store.load_transcript("nobody") == []


def test_entries_of_long_ago_are_let_go_and_their_words_stay(
    store: SessionStore, clock: Traveller
) -> None:
    old = store.get_or_create_session(ANN)
    append_texts(store, old, "kept")
    held = store.get_or_create_session(GROUP)
    store.suspend_session(held.session_key)
    clock.shift(100 * 24 * 3600)
    bob = store.get_or_create_session(BOB)

    assert store.prune_old_entries(0) == 0
    assert store.prune_old_entries(90) == 1

    left = {each.session_id for each in store.list_sessions()}
    assert left == {bob.session_id, held.session_id}
    assert store.load_transcript(old.session_id) == [{"role": "user", "content": "kept"}]
    assert not store.get_or_create_session(ANN).was_auto_reset


def test_another_process_sees_the_same_and_finds_keys_it_has_not_made(
    store: SessionStore, open_db: Opener, config: GatewayConfig
) -> None:
    entry = store.get_or_create_session(ANN)
    other = SessionStore(None, config, db=open_db())

    assert other.get_or_create_session(ANN).session_id == entry.session_id
    third = SessionStore(None, config, db=open_db())
    new = third.reset_session(entry.session_key)
    assert new is not None
    assert store.get_or_create_session(ANN).session_id == new.session_id


def test_sources_that_print_alike_are_still_two_conversations(store: SessionStore) -> None:
    thread = SessionSource(Platform.TELEGRAM, "1", chat_type="group", thread_id="7")
    person = SessionSource(Platform.TELEGRAM, "1", chat_type="group", user_id="7")

    assert build_session_key(thread) == build_session_key(person)
    one, other = store.get_or_create_session(thread), store.get_or_create_session(person)
    assert one.session_id != other.session_id
