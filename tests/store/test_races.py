"""Two programs on one database. PostgreSQL shows what SQLite hides."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import pytest

from hansard.actions import (
    deliver,
    log,
    logins,
    purge,
    read,
    routing,
    schedule,
    sessions,
    sweep,
    titles,
    turns,
    usage,
    verify,
)
from hansard.actions.turns import Begun
from hansard.errors import Conflict, HansardError, NotFound, RetryLater, TurnLost
from hansard.model.entry import message
from hansard.model.part import Text
from hansard.model.place import Channel, Source
from hansard.model.reset import Policies, ResetMode, ResetPolicy
from hansard.model.schedule import RunState, Timing
from hansard.model.session import SessionHead
from hansard.model.usage import Usage
from hansard.store import ledger
from hansard.store.database import Tx
from hansard.testing.world import ANN, BOB, LEASE_SECONDS, World
from tests.store.conftest import Opener

T = TypeVar("T")
ROUNDS = 8


@pytest.fixture
def worlds(open_again: Opener) -> list[World]:
    return [World(open_again(), name=name) for name in ("one", "two")]


def at_once(*acts: Callable[[], T]) -> list[T | HansardError]:
    """Run the acts in threads that start together; what each came to."""
    barrier = threading.Barrier(len(acts))
    outcomes: list[Any] = [None] * len(acts)

    def run(number: int, act: Callable[[], T]) -> None:
        barrier.wait()
        try:
            outcomes[number] = act()
        except HansardError as error:
            outcomes[number] = error

    threads = [threading.Thread(target=run, args=each) for each in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert None not in [outcome for outcome in outcomes if isinstance(outcome, HansardError)]
    return outcomes


def switch(world: World, target: SessionHead) -> SessionHead:
    return world.write(routing.switch, world.key(BOB), target, when=world.when())


def clean(world: World) -> bool:
    return verify.verify(world.store).broken == ()


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
            lambda: one.write(sweep.end_expired_sessions, Policies(policy), when=one.when()),
            lambda: two.begin(BOB),
        )

        assert isinstance(begun, Begun)
        assert two.head(begun.route.session_id).is_open
        two.finish(begun, "hi")
        one.write(routing.reset, one.key(ANN), when=one.when())
        one.write(routing.reset, one.key(BOB), when=one.when())
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
            two.write(sweep.interrupt_dead_turns, when=two.when())
            return two.begin(ANN)

        late, begun = at_once(lambda: one.finish(stale, "late"), take_over)  # noqa: B023

        if isinstance(late, HansardError):
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
            *(lambda w=w: w.write(sweep.interrupt_dead_turns, when=w.when()) for w in worlds)
        )

        assert sorted(len(each) for each in swept if isinstance(each, list)) == [0, 1]
        assert one.texts(begun.route.session_id)[-2:] == ["hello", "half"]
    assert clean(one)


def test_a_turn_that_renews_its_lease_at_the_last_moment_is_not_declared_dead(
    worlds: list[World],
) -> None:
    """T-4: who was told that his lease is good goes on."""
    one, two = worlds
    for number in range(ROUNDS * 3):
        source = Source("telegram", f"chat {number}")
        one.arrive(source, "hello")
        begun = one.begin(source)
        assert begun is not None
        two.clock.set(one.clock.tick(LEASE_SECONDS + 5))

        renewed, swept = at_once(
            lambda: one.write(turns.renew, begun.lease, seconds=60, now=one.clock.now()),  # noqa: B023
            lambda: two.write(sweep.interrupt_dead_turns, when=two.when()),
        )

        assert isinstance(swept, list)
        assert bool(swept) is isinstance(renewed, TurnLost)
        if renewed is None:
            one.finish(begun, "hi")


def test_a_run_that_renews_its_lease_at_the_last_moment_is_not_declared_dead(
    worlds: list[World],
) -> None:
    """P9."""
    one, two = worlds
    plan = schedule.Plan("tick", Timing("every 1h", ZoneInfo("UTC")), "go")
    one.write(schedule.add, plan, profile="main", when=one.when())
    for _ in range(ROUNDS * 3):
        hold: Any = {"holder": "one", "seconds": 10}
        due = one.write(schedule.run_now, "tick", profile="main", when=one.when(), **hold)
        now = one.clock.tick(20)

        renewed, dead = at_once(
            lambda: one.write(schedule.renew, due, now=now, **hold),  # noqa: B023
            lambda: two.write(schedule.dead_runs, now=now),  # noqa: B023
        )

        assert isinstance(dead, list)
        assert bool(dead) is not renewed
        one.write(schedule.end_run, due, state=RunState.DONE, now=now)


def test_the_same_idempotency_key_from_eight_threads_is_one_entry(worlds: list[World]) -> None:
    session = worlds[0].session("a")
    elsewhere = worlds[0].session("b")
    at = worlds[0].clock.now()
    for number in range(ROUNDS):

        def append(world: World, where: str) -> log.Appended:
            said = message("user", "once")
            idem = f"key {number}"  # noqa: B023
            return world.write(log.append, where, said, profile="main", at=at, idem=idem)

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
        said = [message("user", f"{name} {n}") for n in range(10)]
        return [world.write(log.append, session, m, profile="main", at=at).seq for m in said]

    acts = [lambda w=w, n=n: append_ten(w, f"{w.name}{n}") for w in worlds for n in range(4)]
    seqs = at_once(*acts)

    assert all(isinstance(each, list) and each == sorted(each) for each in seqs)
    flat = sorted(seq for each in seqs if isinstance(each, list) for seq in each)
    assert flat == list(range(2, 82))
    assert clean(worlds[0])


def test_one_of_two_who_want_a_title_gets_it(worlds: list[World]) -> None:
    for number in range(ROUNDS):
        ids = [world.session("a") for world in worlds]

        given = at_once(
            *(
                lambda w=w, s=s: w.write(sessions.rename, s, f"plan {number}", profile="main")  # noqa: B023
                for w, s in zip(worlds, ids, strict=True)
            )
        )

        refusals = [each for each in given if isinstance(each, HansardError)]
        assert [type(each) for each in refusals] == [Conflict]
        assert any(each in str(refusals[0]) for each in ids)


def test_automatic_titles_never_fail_in_a_race(worlds: list[World]) -> None:
    session = worlds[0].session("a")
    worlds[0].write(sessions.rename, session, "plan", profile="main")

    forks = at_once(*(lambda w=w: w.fork(session) for w in worlds * 4))

    named = sorted(str(each.title) for each in forks if isinstance(each, SessionHead))
    assert named == sorted(f"plan #{number}" for number in range(2, 10))


def test_an_agent_never_overwrites_the_title_that_a_person_gives_at_the_same_time(
    worlds: list[World],
) -> None:
    """D-5."""
    one, two = worlds

    def name(tx: Tx, session: str, text: str) -> str | None:
        return titles.name_automatically(tx, read.head(tx, session, profile="main"), text)

    for number in range(ROUNDS * 2):
        session = one.session("a")

        at_once(
            lambda: one.write(sessions.rename, session, f"mine {number}", profile="main"),  # noqa: B023
            lambda: two.write(name, session, f"the agent's {number}"),  # noqa: B023
        )

        assert one.head(session).title == f"mine {number}"


def test_a_purge_and_a_fork_agree(worlds: list[World]) -> None:
    """D-8: the fork has all of it, or there is none."""
    one, two = worlds
    for _ in range(ROUNDS):
        session = one.session("a", "b")

        purged, fork = at_once(lambda: one.purge(session), lambda: two.fork(session))  # noqa: B023

        assert isinstance(purged, purge.Purged)
        if isinstance(fork, SessionHead):
            assert purged.kept_for_others == 2
            assert two.texts(fork.id) == ["a", "b"]
        else:
            assert type(fork) is NotFound
    assert clean(one)


def test_two_purges_leave_nothing_to_each_other(worlds: list[World]) -> None:
    """D-11: what an ancestor keeps for both goes with the last of them."""
    one, two = worlds
    for _ in range(ROUNDS):
        parent = one.session("a", "b")
        no = one.head(parent).no
        forks = [one.fork(parent).id for _ in range(2)]
        one.purge(parent)

        at_once(lambda: one.purge(forks[0]), lambda: two.purge(forks[1]))  # noqa: B023

        assert one.read(purge.size, no) == (0, 0)


def test_a_parent_and_its_fork_purged_at_once_leave_nothing(worlds: list[World]) -> None:
    one, two = worlds
    for _ in range(ROUNDS):
        parent = one.session("a", "b")
        no = one.head(parent).no
        fork = one.fork(parent).id

        at_once(lambda: one.purge(parent), lambda: two.purge(fork))  # noqa: B023

        assert one.read(purge.size, no) == (0, 0)


def test_two_sweeps_empty_the_trash_between_them(worlds: list[World]) -> None:
    one = worlds[0]
    for _ in range(ROUNDS):
        ids = [one.session("a") for _ in range(3)]
        for id in ids:
            one.write(sessions.trash, id, profile="main", when=one.when())
        worlds[1].clock.set(one.clock.tick(days=purge.TRASH_DAYS + 1))

        swept = at_once(*(lambda w=w: w.write(sweep.empty_trash, when=w.when()) for w in worlds))

        purged = [each for each in swept if isinstance(each, list)]
        assert len(purged) == len(worlds)
        assert sorted(id for each in purged for id in each) == sorted(ids)


def test_what_is_restored_while_the_trash_is_emptied_stays(worlds: list[World]) -> None:
    """P1: who was told that it is back has it back."""
    one, two = worlds
    for _ in range(ROUNDS):
        session = one.session("a")
        one.write(sessions.trash, session, profile="main", when=one.when())
        two.clock.set(one.clock.tick(days=purge.TRASH_DAYS + 1))

        restored, swept = at_once(
            lambda: one.write(sessions.restore, session, profile="main"),  # noqa: B023
            lambda: two.write(sweep.empty_trash, when=two.when()),
        )

        assert isinstance(swept, list)
        if isinstance(restored, SessionHead):
            assert one.texts(session) == ["a"]
        else:
            assert (type(restored), swept) == (NotFound, [session])


def test_an_append_and_an_end_come_one_after_the_other(worlds: list[World]) -> None:
    """D-3."""
    one, two = worlds
    for _ in range(ROUNDS):
        session = one.session("a")

        done, head = at_once(
            lambda: one.say(session, "b"),  # noqa: B023
            lambda: two.write(sessions.end, session, profile="main", when=two.when()),  # noqa: B023
        )

        assert isinstance(head, SessionHead)
        kept = one.texts(session)
        assert kept == (["a", "b"] if isinstance(done, log.Appended) else ["a"])
        if isinstance(done, HansardError):
            assert type(done) is Conflict
    assert clean(one)


def test_running_totals_and_calls_add_up_in_a_race(worlds: list[World]) -> None:
    """U-2, I6."""
    one, two = worlds
    session = one.session("a")
    no = one.head(session).no

    def set_total(world: World) -> None:
        used = Usage("total", 100)
        world.write(usage.set_running_total, no, used, profile="main", when=world.when())

    def record(world: World) -> None:
        for _ in range(5):
            world.write(usage.record, no, Usage("m", 1), profile="main", when=world.when())

    for _ in range(3):
        at_once(
            lambda: set_total(one), lambda: record(two), lambda: set_total(two), lambda: record(one)
        )

    assert one.head(session).usage.input_tokens == 130
    assert clean(one)


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_a_call_only_grows_whoever_tells_of_it_first(worlds: list[World], many: bool) -> None:
    """U-1: two programs read a tool's record, one of them sees more of it."""
    one = worlds[0]
    session = one.session("a")
    no, at = one.head(session).no, one.clock.now()

    def tell(tx: Tx, used: Usage) -> None:
        if many:
            ledger.raise_all(tx, [ledger.call_of(used, at=at)], profile="main", session_no=no)
        else:
            ledger.raise_to(tx, used, profile="main", session_no=no, at=at)

    for number in range(ROUNDS):
        calls = [Usage("m", 1, tokens, call_id=f"call {number}") for tokens in (5, 20, 10)]
        one.write(tell, calls[0])
        one.write(ledger.sum_up, no)

        at_once(
            *(lambda w=w, c=c: w.write(tell, c) for w, c in zip(worlds, calls[1:], strict=True))
        )

        assert one.head(session).usage.output_tokens == 20 * (number + 1)
    assert clean(one)


def test_two_senders_never_claim_the_same_delivery(worlds: list[World]) -> None:
    """P8, I13."""
    one, two = worlds
    for number in range(20):
        channel = Channel("telegram", str(number))
        one.write(deliver.enqueue, channel, (Text("x"),), profile="main", when=one.when())
    now = one.clock.tick()

    claimed = at_once(
        *(
            lambda w=w: w.write(deliver.claim, holder=w.name, seconds=60, now=now, limit=5)
            for w in worlds * 4
        )
    )

    numbers = [each.no for some in claimed if isinstance(some, list) for each in some]
    assert len(numbers) == len(set(numbers))
    rest = two.write(deliver.claim, holder="rest", seconds=60, now=now, limit=50)
    assert len(numbers) + len(rest) == 20


def elsewhere(world: World, id: str) -> str:
    channel = Channel("slack", world.name)
    return world.write(deliver.redirect, id, channel, profile="main", when=world.when())


def test_what_two_redirect_at_once_is_sent_once(worlds: list[World]) -> None:
    """P8: no copy but after an answer that was unclear."""
    one, channel = worlds[0], Channel("telegram", "1")
    for _ in range(ROUNDS):
        id = one.write(deliver.enqueue, channel, (Text("x"),), profile="main", when=one.when())
        one.write(deliver.abandon, id, reason="gone")

        made = at_once(*(lambda w=w: elsewhere(w, id) for w in worlds))  # noqa: B023

        assert [type(each) for each in made if isinstance(each, HansardError)] == [Conflict]
        now = one.clock.tick()
        sent = one.write(deliver.claim, holder="a", seconds=9, now=now, platform="slack")
        assert [each.id for each in sent] == [each for each in made if isinstance(each, str)]
        for each in sent:
            one.write(deliver.mark_sent, each.id, holder="a", at=now)


def test_what_is_redirected_while_it_is_claimed_is_sent_once(worlds: list[World]) -> None:
    one, two = worlds
    for number in range(ROUNDS):
        channel = Channel("telegram", str(number))
        id = one.write(deliver.enqueue, channel, (Text("x"),), profile="main", when=one.when())
        now = one.clock.tick()

        claimed, made = at_once(
            lambda: one.write(deliver.claim, holder="a", seconds=9, now=now, platform="telegram"),  # noqa: B023
            lambda: elsewhere(two, id),  # noqa: B023
        )

        assert isinstance(claimed, list)
        assert [each.id for each in claimed] == ([id] if isinstance(made, Conflict) else [])
        one.write(deliver.mark_sent, id, holder="a", at=now)


def test_wrong_passwords_at_once_are_counted_one_by_one(worlds: list[World]) -> None:
    """A guess must not be cheaper because others guess at the same moment."""
    one, now = worlds[0], worlds[0].clock.now()
    few = logins.WRONG_PASSWORDS - 1
    for _ in range(ROUNDS):
        one.write(logins.count_guess, profile="main", right=True, now=now)

        at_once(
            *(
                lambda w=w: w.write(logins.count_guess, profile="main", right=False, now=now)
                for w in (worlds * few)[:few]
            )
        )

        one.read(logins.check_guard, profile="main", now=now)
        one.write(logins.count_guess, profile="main", right=False, now=now)
        with pytest.raises(RetryLater):
            one.read(logins.check_guard, profile="main", now=now)


def test_switching_both_ways_at_once_leaves_one_open_session_per_key(worlds: list[World]) -> None:
    """I8."""
    one, two = worlds
    for _ in range(ROUNDS):
        ann, bob = one.talk("a"), one.talk("b", source=BOB)
        heads = {each: one.head(each) for each in (ann, bob)}

        at_once(
            lambda: one.write(routing.switch, one.key(ANN), heads[bob], when=one.when()),  # noqa: B023
            lambda: two.write(routing.switch, two.key(BOB), heads[ann], when=two.when()),  # noqa: B023
        )

        for source in (ANN, BOB):
            now = one.current(source)
            assert now is not None
            assert one.read(read.head, now.id, profile="main").id == now.id
        one.talk("x")
        one.talk("y", source=BOB)
    assert clean(one)


@pytest.mark.parametrize("_again", range(2))
def test_two_resets_at_once_open_one_new_session(worlds: list[World], _again: int) -> None:
    """I8, I10."""
    one, two = worlds
    for _ in range(ROUNDS):
        old = one.talk("a")

        at_once(*(lambda w=w: w.write(routing.reset, w.key(ANN), when=w.when()) for w in worlds))
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
        sessions.locked(tx, busy, profile="main")
        entered.set()
        leave.wait(10)

    pending = one.store.write(slow)
    entered.wait(10)
    two.say(free, "not held up")
    leave.set()
    pending.result()
