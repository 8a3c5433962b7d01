"""Two programs on one database. PostgreSQL shows what SQLite hides."""

import threading
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sessionary.actions import schedules, sweep, turns
from sessionary.actions.sessions import edit, log, read, routing
from sessionary.actions.turns import Begun
from sessionary.errors import Conflict, SessionaryError, TurnLost
from sessionary.model.message import message
from sessionary.model.reset import Policies, ResetMode, ResetPolicy
from sessionary.model.schedule import RunState, Timing
from sessionary.model.session import SessionHead
from sessionary.model.source import Source
from sessionary.store.database import Tx
from tests.store.concurrent import ROUNDS, at_once, clean
from tests.support.dead_turns import interrupt_dead_turns
from tests.support.world import ANN, BOB, LEASE_SECONDS, World


def switch(world: World, target: SessionHead) -> SessionHead:
    return world.write(routing.switch, world.key(BOB), target, moment=world.moment())


def test_two_workers_begin_the_first_turn_of_a_key_and_open_one_session(
    worlds: list[World],
) -> None:
    one, two = worlds
    for number in range(ROUNDS):
        source = Source("telegram", f"chat {number}")
        one.arrive(source, "hello")

        begun = at_once(lambda: one.begin(source), lambda: two.begin(source))  # noqa: B023

        turns_begun = [each for each in begun if isinstance(each, Begun)]
        assert [each for each in begun if each is not turns_begun[0]] == [None]
        assert one.texts(turns_begun[0].route.session_id) == ["hello"]
    assert clean(one)


def test_messages_from_two_programs_share_one_session_of_a_new_key(worlds: list[World]) -> None:
    for number in range(ROUNDS):
        source = Source("telegram", f"chat {number}")

        new = at_once(*(lambda w=w: w.arrive(source, w.name) for w in worlds))  # noqa: B023
        begun = at_once(*(lambda w=w: w.begin(source) for w in worlds))  # noqa: B023

        assert new == [True, True]
        (turn,) = (each for each in begun if isinstance(each, Begun))
        assert sorted(worlds[0].texts(turn.route.session_id)) == ["one", "two"]


def test_the_same_message_received_by_two_programs_is_one_arrival(worlds: list[World]) -> None:
    source = Source("telegram", "c", platform_message_id="1")

    new = at_once(*(lambda w=w: w.arrive(source, "hello") for w in worlds * 4))

    assert sorted(map(bool, new)) == [False] * 7 + [True]
    begun = worlds[0].begin(source)
    assert begun is not None
    assert worlds[0].texts(begun.route.session_id) == ["hello"]


def test_one_turn_runs_when_two_keys_are_on_one_session(worlds: list[World]) -> None:
    one, two = worlds
    session = one.talk("a")
    switch(two, two.head(session))
    for _ in range(ROUNDS):
        one.arrive(ANN, "from Ann")
        two.arrive(BOB, "from Bob")

        begun = at_once(lambda: one.begin(ANN), lambda: two.begin(BOB))

        running = [each for each in begun if isinstance(each, Begun)]
        assert len(running) == 1
        one.finish(running[0], "hi")
        for world, source in ((one, ANN), (two, BOB)):
            left = world.begin(source)
            if left is not None:
                world.finish(left, "hi")
    assert clean(one)
    assert one.head(session).message_count == 2 + ROUNDS * 4


def test_a_session_with_two_keys_is_not_reset_under_a_turn(worlds: list[World]) -> None:
    """The sweep holds one key, the turn is begun through the other."""
    one, two = worlds
    policy = ResetPolicy(mode=ResetMode.IDLE, idle=timedelta(hours=1))
    for _ in range(ROUNDS):
        session = one.talk("a")
        switch(two, two.head(session))
        one.clock.tick(hours=2)
        two.clock.set(one.clock.now())
        two.arrive(BOB, "from Bob")

        ended, begun = at_once(
            lambda: one.write(sweep.end_expired_sessions, Policies(policy), moment=one.moment()),
            lambda: two.begin(BOB),
        )

        assert isinstance(begun, Begun)
        assert two.head(begun.route.session_id).is_open
        two.finish(begun, "hi")
        one.write(routing.reset, one.key(ANN), moment=one.moment())
        one.write(routing.reset, one.key(BOB), moment=one.moment())
        assert isinstance(ended, list)
    assert clean(one)


def test_a_stale_holder_loses_against_the_one_who_took_over(worlds: list[World]) -> None:
    one, two = worlds
    for _ in range(ROUNDS):
        one.arrive(ANN, "hello")
        stale = one.begin(ANN)
        assert stale is not None
        two.clock.set(one.clock.tick(LEASE_SECONDS + 5))
        two.arrive(ANN, "anyone?")

        def take_over() -> Begun | None:
            two.write(interrupt_dead_turns, moment=two.moment())
            return two.begin(ANN)

        late, begun = at_once(lambda: one.finish(stale, "late"), take_over)  # noqa: B023

        if isinstance(late, SessionaryError):
            assert type(late) is TurnLost
        assert isinstance(begun, Begun)
        two.finish(begun, "in time")
        one.clock.set(two.clock.now())
    assert clean(one)


def test_two_sweepers_interrupt_a_dead_turn_once(worlds: list[World]) -> None:
    one, two = worlds
    for _ in range(ROUNDS):
        one.arrive(ANN, "hello")
        begun = one.begin(ANN)
        assert begun is not None
        one.write(turns.checkpoint, begun.lease, "half")
        two.clock.set(one.clock.tick(LEASE_SECONDS + 5))

        swept = at_once(
            *(lambda w=w: w.write(interrupt_dead_turns, moment=w.moment()) for w in worlds)
        )

        assert sorted(len(each) for each in swept if isinstance(each, list)) == [0, 1]
        assert one.texts(begun.route.session_id)[-2:] == ["hello", "half"]
    assert clean(one)


@pytest.mark.parametrize("by_append", [False, True], ids=["sweep", "append"])
def test_a_turn_that_renews_its_lease_at_the_last_moment_is_not_declared_dead(
    worlds: list[World], *, by_append: bool
) -> None:
    """A holder whose lease was confirmed goes on, whoever finds that it had run out."""
    one, two = worlds
    for number in range(ROUNDS * 3):
        source = Source("telegram", f"chat {number}")
        one.arrive(source, "hello")
        begun = one.begin(source)
        assert begun is not None
        two.clock.set(one.clock.tick(LEASE_SECONDS + 5))

        def find_dead() -> bool:
            if by_append:
                no = begun.lease.session_no  # noqa: B023
                return two.write(turns.interrupt_if_dead, no, moment=two.moment())
            return bool(two.write(interrupt_dead_turns, moment=two.moment()))

        renewed, interrupted = at_once(
            lambda: one.write(turns.renew, begun.lease, seconds=60, now=one.clock.now()),  # noqa: B023
            find_dead,
        )

        assert interrupted is isinstance(renewed, TurnLost)
        if renewed is None:
            one.finish(begun, "hi")


def test_a_run_that_renews_its_lease_at_the_last_moment_is_not_declared_dead(
    worlds: list[World],
) -> None:
    """P9."""
    one, two = worlds
    plan = schedules.ScheduleSpec("tick", Timing("every 1h", ZoneInfo("UTC")), "go")
    one.write(schedules.add, plan, profile="main", moment=one.moment())
    for _ in range(ROUNDS * 3):
        hold: Any = {"holder": "one", "seconds": 10}
        due = one.write(schedules.run_now, "tick", profile="main", moment=one.moment(), **hold)
        now = one.clock.tick(20)

        renewed, dead = at_once(
            lambda: one.write(schedules.renew, due, now=now, **hold),  # noqa: B023
            lambda: two.write(schedules.fail_dead_runs, now=now),  # noqa: B023
        )

        assert isinstance(dead, list)
        assert bool(dead) is not renewed
        one.write(schedules.end_run, due, state=RunState.DONE, now=now)


def test_the_same_idempotency_key_from_eight_threads_is_one_entry(worlds: list[World]) -> None:
    session = worlds[0].session("a")
    elsewhere = worlds[0].session("b")
    at = worlds[0].clock.now()
    for number in range(ROUNDS):

        def append(world: World, where: str) -> log.Appended:
            new_message = message("user", "once")
            idempotency_key = f"key {number}"  # noqa: B023
            return world.write(
                log.append,
                where,
                new_message,
                profile="main",
                at=at,
                idempotency_key=idempotency_key,
            )

        acts = [
            lambda w=w, s=s: append(w, s)
            for w in worlds
            for s in (session, elsewhere, session, elsewhere)
        ]
        done = at_once(*acts)

        places = {(each.session_id, each.seq) for each in done if isinstance(each, log.Appended)}
        assert len(places) == 1
        assert sum(not each.repeated for each in done if isinstance(each, log.Appended)) == 1
    both = worlds[0].head(session).message_count + worlds[0].head(elsewhere).message_count
    assert both == 2 + ROUNDS
    assert clean(worlds[0])


def test_appends_from_many_threads_are_all_there_in_one_order(worlds: list[World]) -> None:
    session = worlds[0].session("a")
    at = worlds[0].clock.now()

    def append_ten(world: World, name: str) -> list[int]:
        messages = [message("user", f"{name} {n}") for n in range(10)]
        return [world.write(log.append, session, m, profile="main", at=at).seq for m in messages]

    acts = [lambda w=w, n=n: append_ten(w, f"{w.name}{n}") for w in worlds for n in range(4)]
    seqs = at_once(*acts)

    assert all(isinstance(each, list) and each == sorted(each) for each in seqs)
    flat = sorted(seq for each in seqs if isinstance(each, list) for seq in each)
    assert flat == list(range(2, 82))
    assert clean(worlds[0])


def test_an_append_and_an_end_come_one_after_the_other(worlds: list[World]) -> None:
    one, two = worlds
    for _ in range(ROUNDS):
        session = one.session("a")

        done, head = at_once(
            lambda: one.append_text(session, "b"),  # noqa: B023
            lambda: two.write(edit.end, session, profile="main", moment=two.moment()),  # noqa: B023
        )

        assert isinstance(head, SessionHead)
        kept = one.texts(session)
        assert kept == (["a", "b"] if isinstance(done, log.Appended) else ["a"])
        if isinstance(done, SessionaryError):
            assert type(done) is Conflict
    assert clean(one)


def test_switching_both_ways_at_once_leaves_one_open_session_per_key(worlds: list[World]) -> None:
    one, two = worlds
    for _ in range(ROUNDS):
        ann, bob = one.talk("a"), one.talk("b", source=BOB)
        heads = {each: one.head(each) for each in (ann, bob)}

        at_once(
            lambda: one.write(routing.switch, one.key(ANN), heads[bob], moment=one.moment()),  # noqa: B023
            lambda: two.write(routing.switch, two.key(BOB), heads[ann], moment=two.moment()),  # noqa: B023
        )

        for source in (ANN, BOB):
            now = one.current(source)
            assert now is not None
            assert one.read(read.get_head, now.id, profile="main").id == now.id
        one.talk("x")
        one.talk("y", source=BOB)
    assert clean(one)


@pytest.mark.parametrize("_again", range(2))
def test_two_resets_at_once_open_one_new_session(worlds: list[World], _again: int) -> None:
    one, two = worlds
    for _ in range(ROUNDS):
        old = one.talk("a")

        at_once(
            *(lambda w=w: w.write(routing.reset, w.key(ANN), moment=w.moment()) for w in worlds)
        )
        one.arrive(ANN, "b")
        begun = at_once(lambda: one.begin(ANN), lambda: two.begin(ANN))

        (turn,) = (each for each in begun if isinstance(each, Begun))
        assert turn.route.reset_from == old
        one.finish(turn, "hi")


def test_unrelated_actions_do_not_wait_for_a_slow_one(worlds: list[World]) -> None:
    """PostgreSQL only: SQLite has one writer."""
    one, two = worlds
    if "postgresql" not in one.store.url:
        return
    busy, free = one.session("a"), one.session("b")
    entered, leave = threading.Event(), threading.Event()

    def slow(tx: Tx) -> None:
        log.lock_session(tx, busy, profile="main")
        entered.set()
        leave.wait(10)

    pending = one.store.write(slow)
    entered.wait(10)
    two.append_text(free, "not held up")
    leave.set()
    pending.result()
