"""`SessionStore`: which session each conversation is on, by our rules."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import cast

import pytest
import time_machine
from time_machine import Traveller

from sessionary.compat.hermes.config import GatewayConfig, Platform, SessionResetPolicy
from sessionary.compat.hermes.session import (
    SessionEntry,
    SessionSource,
    SessionStore,
    build_session_context,
    build_session_context_prompt,
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
    reset = "session_reset"
    assert [each["end_reason"] for each in store._db.search_sessions()] == [None, reset, reset]


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
    assert ended["end_reason"] == "session_switch"
    assert store.load_transcript(old.session_id) == [{"role": "user", "content": "the old one"}]
    assert store.switch_session("nobody", old.session_id) is None
    bound = store.switch_session(old.session_key, "not-there-yet")
    assert bound is not None
    assert store.get_or_create_session(ANN).session_id == bound.session_id == "not-there-yet"


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


def test_after_a_crash_what_was_just_at_work_goes_on(
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

    [marked] = [e for e in restarted.list_sessions() if e.resume_reason == "restart_interrupted"]
    assert (marked.session_id, marked.suspended) == (busy.session_id, False)
    clock.shift(10 * 3600)
    assert restarted.get_or_create_session(ANN).session_id == busy.session_id
    assert restarted.get_or_create_session(BOB).session_id != old.session_id


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


def test_what_a_program_assigns_to_an_entry_is_stored(
    store: SessionStore, open_db: Opener, config: GatewayConfig
) -> None:
    entry = store.get_or_create_session(ANN)
    store.get_or_create_session(ANN)
    entry.expiry_finalized = True
    entry.last_prompt_tokens = 7
    store._save()

    restarted = SessionStore(None, config, db=open_db())
    found = restarted._entries[entry.session_key]
    assert (found.expiry_finalized, found.last_prompt_tokens) == (True, 7)
    found.suspended = True
    assert restarted.get_or_create_session(ANN).auto_reset_reason == "suspended"


def test_a_reset_is_announced_until_the_program_takes_note(
    store: SessionStore, clock: Traveller
) -> None:
    store.get_or_create_session(ANN)
    clock.shift(2 * 3600)
    assert store.get_or_create_session(ANN).was_auto_reset

    again = store.get_or_create_session(ANN)
    assert (again.was_auto_reset, again.auto_reset_reason) == (True, "idle")
    again.was_auto_reset = False

    assert not store.get_or_create_session(ANN).was_auto_reset


def test_an_assigned_session_id_binds_the_key_to_that_session(store: SessionStore) -> None:
    entry = store.get_or_create_session(ANN)
    store._db.end_session(entry.session_id, "compression")
    store._db.create_session("next", "telegram", parent_session_id=entry.session_id)
    entry.session_id = "next"
    store._save()

    assert store.get_or_create_session(ANN).session_id == "next"


def test_a_compressed_session_goes_on_in_its_continuation_though_nobody_switched(
    store: SessionStore,
) -> None:
    entry = store.get_or_create_session(ANN)
    store._db.end_session(entry.session_id, "compression")
    assert store.get_or_create_session(ANN).session_id == entry.session_id
    store._db.create_session("next", "telegram", parent_session_id=entry.session_id)

    went_on = store.get_or_create_session(ANN)

    assert (went_on.session_id, went_on.display_name) == ("next", "Ann")


def test_an_entry_that_is_dated_back_is_as_old_as_it_says(store: SessionStore) -> None:
    entry = store.get_or_create_session(ANN)
    entry.updated_at -= timedelta(minutes=61)

    assert store._should_reset(entry, ANN) == "idle"
    assert store._is_session_expired(entry)
    assert store.get_or_create_session(ANN).auto_reset_reason == "idle"


class ForeignPlatform(Enum):
    TELEGRAM = "telegram"


ForeignPlatform.__name__ = "Platform"


@dataclass
class ForeignPolicy:
    """A policy as a program's own configuration has it."""

    mode: str = "idle"
    at_hour: int = 4
    idle_minutes: int = 30
    notify: bool = True


class ForeignConfig:
    """Only what the store needs of a program's own configuration."""

    def get_reset_policy(
        self, platform: ForeignPlatform | None = None, session_type: str | None = None
    ) -> ForeignPolicy:
        assert platform is ForeignPlatform.TELEGRAM
        return ForeignPolicy()


def test_a_program_may_keep_its_own_configuration(clock: Traveller, db: SessionDB) -> None:
    store = SessionStore(None, cast(GatewayConfig, ForeignConfig()), db=db)
    source = SessionSource(cast(Platform, ForeignPlatform.TELEGRAM), "1", user_id="1")
    first = store.get_or_create_session(source)
    clock.shift(31 * 60)
    second = store.get_or_create_session(source)

    assert (second.auto_reset_reason, second.session_id != first.session_id) == ("idle", True)
    assert second.platform is source.platform
    assert store.list_sessions()[0].platform == source.platform
    assert {source.platform: 1}[Platform.TELEGRAM] == 1


def test_people_on_whatsapp_have_one_session_under_all_their_ids(
    store: SessionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    folder = tmp_path / "whatsapp" / "session"
    folder.mkdir(parents=True)
    (folder / "lid-mapping-99999999999999.json").write_text('"15551234567@s.whatsapp.net"')
    ids = (
        "15551234567@s.whatsapp.net",
        "+15551234567",
        "15551234567:3@s.whatsapp.net",
        "99999999999999@lid",
    )
    entries = [store.get_or_create_session(SessionSource(Platform.WHATSAPP, id)) for id in ids]

    assert {each.session_key for each in entries} == {"agent:main:whatsapp:dm:15551234567"}
    assert len({each.session_id for each in entries}) == 1


def test_ids_in_a_prompt_are_hidden_with_the_salt_of_the_store(
    store: SessionStore, config: GatewayConfig
) -> None:
    entry = store.get_or_create_session(BOB)
    with_entry = build_session_context(BOB, config, entry)
    salted = build_session_context_prompt(with_entry, redact_pii=True)
    plain = build_session_context_prompt(build_session_context(BOB, config), redact_pii=True)

    assert salted != plain
    listed = build_session_context(BOB, config, store.list_sessions()[0])
    assert build_session_context_prompt(listed, redact_pii=True) == salted
