"""Turns: begun durably, fenced, ended in one step."""

import random
from typing import Any

import pytest
from msgspec.structs import replace

from sessionary.actions import inbox, outbox, turns
from sessionary.actions.sessions import log
from sessionary.actions.sessions.append import NewMessage, append_to_source
from sessionary.actions.turns import Begun, Claim, Ending, TurnReply
from sessionary.errors import BadInput, Conflict, NotFound, TurnLost
from sessionary.model.message import Message, Role, Text, message
from sessionary.model.reset import ResetPolicy
from sessionary.model.source import Channel, Source
from sessionary.model.turn import ArrivalState, Turn, TurnState
from sessionary.model.usage import Usage
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals, deliveries
from tests.support.dead_turns import interrupt_dead_turns
from tests.support.suite import Suite, refused
from tests.support.world import ANN, BOB, LEASE_SECONDS, World

HERE = Channel("telegram", "ann-chat")
NUMBERED = replace(ANN, platform_message_id="77")


def begin(world: World, text: str = "hello") -> Begun:
    """Receive a message and begin a turn with it."""
    world.arrive(ANN, text)
    begun = world.begin(ANN)
    assert begun is not None
    return begun


def turn_of(world: World, begun: Begun) -> Turn:
    """The turn as the record has it now."""
    found = world.read(turns.list_turns, begun.lease.session_no)
    return next(turn for turn in found if turn.id == begun.lease.turn_id)


class InboxSuite(Suite):
    """Messages before they are part of a conversation."""

    def test_a_message_that_comes_twice_is_answered_once(self, world: World) -> None:
        """P2."""
        new = [world.arrive(NUMBERED, "hello"), world.arrive(NUMBERED, "hello")]

        session = world.talk("more")

        assert new == [True, False]
        assert world.texts(session) == ["hello", "more", "hi!"]

    def test_a_message_is_known_after_it_was_taken_and_purged(self, world: World) -> None:
        """P2: for ever."""
        world.arrive(NUMBERED, "hello")
        begun = world.begin(ANN)
        assert begun is not None
        world.finish(begun, "hi")
        world.purge(begun.route.session_id)

        assert world.arrive(NUMBERED, "hello") is False
        assert world.begin(ANN) is None

    def test_the_same_message_id_in_another_chat_is_another_message(self, world: World) -> None:
        others = [replace(NUMBERED, chat_id="7"), replace(NUMBERED, platform="signal")]

        assert all(world.arrive(source, "x") for source in (NUMBERED, *others))

    def test_a_message_without_an_id_is_new_each_time(self, world: World) -> None:
        assert [world.arrive(ANN, "x"), world.arrive(ANN, "x")] == [True, True]

    def test_arrivals_wait_in_order_and_are_taken_by_the_next_turn(self, world: World) -> None:
        begun = begin(world, "1")
        for text in ("2", "3"):
            world.arrive(ANN, text)

        meanwhile = world.begin(ANN)
        world.finish(begun, "a")
        following = world.begin(ANN)

        assert meanwhile is None
        assert following is not None
        assert [done.seq for done in following.prompts] == [3, 4]
        assert world.texts(begun.route.session_id) == ["1", "a", "2", "3"]

    def test_an_arrival_shows_its_outcome(self, world: World) -> None:
        moment = world.moment()
        sent = message("user", "hello \ud800")
        arrival, _ = world.write(inbox.receive, world.key(ANN), ANN, sent, moment=moment)
        begun = world.begin(ANN)
        assert begun is not None

        after = world.read(arrivals.get, arrival.id, profile="main")

        assert (arrival.state, arrival.message, arrival.source) == ("waiting", sent, ANN)
        assert after is not None
        assert (after.state, after.turn_id) == (ArrivalState.TAKEN, begun.lease.turn_id)
        assert (after.session_id, after.seq) == (begun.route.session_id, 1)
        assert world.read(arrivals.get, arrival.id, profile="other") is None

    def test_an_arrival_that_is_refused_is_not_taken(self, world: World) -> None:
        moment = world.moment()
        arrival, _ = world.write(
            inbox.receive, world.key(ANN), ANN, message("user", "x"), moment=moment
        )

        world.write(arrivals.refuse, arrival, reason="a stranger\x00")

        assert world.begin(ANN) is None
        after = world.read(arrivals.get, arrival.id, profile="main")
        assert after is not None
        assert (after.state, after.reason) == (ArrivalState.REFUSED, "a stranger\ufffd")

    def test_the_log_keeps_who_wrote_and_the_platform_s_id(self, world: World) -> None:
        world.arrive(NUMBERED, "hello")
        begun = world.begin(ANN)
        assert begun is not None

        body = world.transcript(begun.route.session_id)[0].body

        assert isinstance(body, Message)
        assert (body.person, body.platform_message_id) == (ANN.person, "77")

    @pytest.mark.parametrize("idempotency_key", ["x" * 513, "a\x00"])
    def test_a_key_that_cannot_be_kept_is_refused(self, world: World, idempotency_key: str) -> None:
        with refused(BadInput, "idempotency key"):
            world.arrive(ANN, "x", idempotency_key=idempotency_key)

        assert world.begin(ANN) is None

    @pytest.mark.parametrize("field", ["chat_id", "thread_id", "user_id"])
    def test_an_id_that_is_too_long_is_refused_with_its_size(
        self, world: World, field: str
    ) -> None:
        """Combining marks: few letters to the eye, many bytes in an index. Alike on both databases."""
        rng = random.Random(1)
        marks = "".join(chr(rng.randrange(0x300, 0x34F)) for _ in range(2000))
        ids: dict[str, Any] = {"chat_id": "1", "user_id": "7"} | {field: f"e{marks}"}
        source = Source("telegram", **ids)
        what = {"chat_id": "chat id", "thread_id": "thread id", "user_id": "person id"}[field]
        saying = NewMessage(message("user", "hello"))

        with refused(BadInput, f"The {what} is too long", "2,001 characters", "bytes"):
            world.arrive(source, "hello")
        if field != "user_id":  # of a direct message the chat is enough
            given: dict[str, Any] = {"policy": ResetPolicy(), "moment": world.moment()}
            with refused(BadInput, f"The {what} is too long"):
                world.write(append_to_source, world.key(source), source, saying, **given)

    def test_ids_of_hundreds_of_letters_are_taken(self, world: World) -> None:
        chat, thread = "\u00e9\u0301" * 200, "a" * 500
        source = Source("telegram", chat, thread_id=thread, platform_message_id="m" * 5000)

        assert world.arrive(source, "hello")
        assert not world.arrive(source, "hello"), "it is known by its long message id"
        assert world.begin(source) is not None


class TurnSuite(Suite):
    """One running turn per session; only its holder appends."""

    def test_a_user_s_message_is_durable_before_the_agent_runs(self, world: World) -> None:
        begun = begin(world)

        assert world.texts(begun.route.session_id) == ["hello"]
        assert world.head(begun.route.session_id).running_turn == begun.lease.turn_id
        assert turn_of(world, begun).state is TurnState.RUNNING

    def test_one_turn_runs_in_a_session(self, world: World) -> None:
        begun = begin(world)
        session = begun.route.session_id

        world.arrive(ANN, "more")

        assert world.begin(ANN) is None
        with refused(Conflict, "turn is running", unchanged=world):
            world.begin_in(session, "named")

    def test_finished_steps_are_durable_as_they_finish(self, world: World) -> None:
        begun = begin(world)
        at = world.clock.tick()

        done = world.write(
            turns.append_step, begun.lease, message("assistant", "1"), profile="main", at=at
        )

        assert done.seq == 2
        assert world.texts(begun.route.session_id) == ["hello", "1"]
        assert world.transcript(begun.route.session_id)[1].turn_id == begun.lease.turn_id

    def test_a_repeated_step_is_one_step(self, world: World) -> None:
        begun = begin(world)
        sent = message("assistant", "1")
        at = world.clock.tick()

        again = [
            world.write(
                turns.append_step,
                begun.lease,
                sent,
                profile="main",
                at=at,
                idempotency_key="step-1",
            ).repeated
            for _ in range(2)
        ]

        assert again == [False, True]

    def test_a_turn_ends_in_one_step(self, world: World) -> None:
        """Entries, usage, deliveries, state."""
        begun = begin(world)

        world.finish(
            begun,
            "hi",
            usage=(Usage(model="m", input_tokens=5, call_id="c"),),
            replies=(TurnReply(HERE, (Text("hi"),)),),
        )

        head = world.head(begun.route.session_id)
        sent = world.read(deliveries.of_session, head.no)
        assert world.texts(head.id) == ["hello", "hi"]
        assert (head.usage.input_tokens, head.running) == (5, False)
        assert [(each.channel, each.turn_id) for each in sent] == [(HERE, begun.lease.turn_id)]
        assert turn_of(world, begun).state is TurnState.DONE

    def test_an_end_that_fails_leaves_nothing_behind(self, world: World) -> None:
        """All of it or nothing."""
        begun = begin(world)
        ending = Ending(
            messages=(message("assistant", "hi"),),
            usage=(Usage(call_id="c", input_tokens=1),),
            replies=(TurnReply(HERE, (Text("hi"),)),),
        )

        def fails_late(tx: Tx) -> None:
            turns.end(tx, begun.lease, ending, profile="main", moment=world.moment())
            raise BadInput("at the last moment")

        with refused(BadInput, unchanged=world):
            world.write(fails_late)
        assert turn_of(world, begun).state is TurnState.RUNNING
        assert world.read(deliveries.of_session, begun.lease.session_no) == []
        assert world.finish(begun, "hi")

    def test_a_turn_that_failed_says_why(self, world: World) -> None:
        begun = begin(world)

        world.finish(begun, state=TurnState.FAILED, reason="no credit \ud800")

        turn = turn_of(world, begun)
        assert (turn.state, turn.reason) == (TurnState.FAILED, "no credit \ufffd")

    def test_the_epoch_only_grows(self, world: World) -> None:
        epochs = []
        for _ in range(3):
            begun = begin(world)
            epochs.append(begun.lease.epoch)
            world.finish(begun, "hi")

        assert epochs == sorted(set(epochs))

    def test_a_turn_in_a_named_session(self, world: World) -> None:
        session = world.session("a", "b")

        begun = world.begin_in(session, "c")
        world.finish(begun, "d")

        assert world.texts(session) == ["a", "b", "c", "d"]
        with refused(NotFound, "no-such"):
            world.begin_in("no-such", "x")

    def test_no_turn_begins_in_a_session_that_takes_no_messages(self, world: World) -> None:
        ended, frozen = world.session("a"), world.session("b", read_only=True)
        world.write(log_end, ended, world)

        with refused(Conflict, "has ended", unchanged=world):
            world.begin_in(ended, "x")
        with refused(Conflict, "read-only", unchanged=world):
            world.begin_in(frozen, "x")

    def test_a_prompt_with_a_known_key_does_not_begin_another_turn(self, world: World) -> None:
        session = world.session("a")
        claim = Claim("worker", 30)
        sent = message("user", "once")

        def begun(tx: Tx) -> Begun:
            return turns.begin_in_session(
                tx,
                session,
                sent,
                profile="main",
                claim=claim,
                moment=world.moment(),
                idempotency_key="k",
            )

        world.finish(world.write(begun), "hi")

        with refused(Conflict, session, "entry 2", unchanged=world):
            world.write(begun)


class LeaseSuite(Suite):
    """Liveness is a lease that is renewed; a stale holder changes nothing."""

    def test_a_turn_that_renews_its_lease_is_never_declared_dead(self, world: World) -> None:
        """Merely slow."""
        begun = begin(world)
        for _ in range(5):
            world.clock.tick(LEASE_SECONDS - 1)
            world.write(turns.renew, begun.lease, seconds=LEASE_SECONDS, now=world.clock.now())

        assert world.write(interrupt_dead_turns, moment=world.moment()) == []
        assert world.finish(begun, "at last")

    def test_a_dead_turn_is_interrupted_and_keeps_its_partial_output(self, world: World) -> None:
        """The prompt exactly once, partial output kept."""
        begun = begin(world)
        at = world.clock.tick()
        world.write(
            turns.append_step, begun.lease, message("assistant", "step"), profile="main", at=at
        )
        world.write(turns.checkpoint, begun.lease, "and th\x00")
        world.clock.tick(LEASE_SECONDS + 1)

        dead = world.write(interrupt_dead_turns, moment=world.moment())

        session = begun.route.session_id
        assert [(turn.id, turn.state) for turn in dead] == [
            (begun.lease.turn_id, TurnState.INTERRUPTED)
        ]
        assert world.texts(session) == ["hello", "step", "and th\x00"]
        last = world.transcript(session)[-1].body
        assert isinstance(last, Message)
        assert last.finish_reason == "interrupted"
        assert not world.head(session).running
        assert world.write(interrupt_dead_turns, moment=world.moment()) == []

    def test_what_was_streamed_of_a_finished_step_is_not_kept_twice(self, world: World) -> None:
        begun = begin(world)
        world.write(turns.checkpoint, begun.lease, "ste")
        at = world.clock.tick()
        world.write(
            turns.append_step, begun.lease, message("assistant", "step"), profile="main", at=at
        )

        world.write(
            turns.interrupt,
            begun.lease.turn_id,
            profile="main",
            moment=world.moment(),
            reason="stop",
        )

        assert world.texts(begun.route.session_id) == ["hello", "step"]

    def test_a_stale_holder_changes_nothing(self, world: World) -> None:
        stale = begin(world)
        world.clock.tick(LEASE_SECONDS + 1)
        world.write(interrupt_dead_turns, moment=world.moment())
        fresh = begin(world, "again")
        assert fresh.lease.epoch > stale.lease.epoch
        late = message("assistant", "late")
        now = world.clock.now()

        for act in (
            lambda: world.write(turns.append_step, stale.lease, late, profile="main", at=now),
            lambda: world.write(turns.renew, stale.lease, seconds=30, now=now),
            lambda: world.write(turns.checkpoint, stale.lease, "late"),
            lambda: world.finish(stale, "late", usage=(Usage(call_id="u"),)),
            lambda: world.finish(stale, replies=(TurnReply(HERE, (Text("late"),)),)),
        ):
            with refused(TurnLost, stale.lease.turn_id, unchanged=world):
                act()
        assert world.read(deliveries.of_session, stale.lease.session_no) == []
        assert world.finish(fresh, "in time")
        assert world.texts(fresh.route.session_id) == ["hello", "again", "in time"]

    def test_a_turn_ends_once(self, world: World) -> None:
        """Exactly one outcome."""
        begun = begin(world)
        world.finish(begun, "hi")
        again = world.write(
            turns.interrupt, begun.lease.turn_id, profile="main", moment=world.moment(), reason="x"
        )

        assert again is None
        with refused(TurnLost, unchanged=world):
            world.finish(begun, "twice")
        with refused(NotFound):
            world.write(
                turns.interrupt, begun.lease.turn_id, profile="x", moment=world.moment(), reason="x"
            )

    def test_a_dead_turn_in_one_session_does_not_touch_another(self, world: World) -> None:
        """F13."""
        begin(world)
        world.clock.tick(LEASE_SECONDS)
        world.arrive(BOB, "hello")
        alive = world.begin(BOB)
        assert alive is not None

        dead = world.write(interrupt_dead_turns, moment=world.moment())

        assert len(dead) == 1
        assert world.finish(alive, "hi")

    def test_replies_go_out_in_the_order_of_their_turns(self, world: World) -> None:
        """P8."""
        for text in ("1", "2"):
            world.finish(begin(world), text, replies=(TurnReply(HERE, (Text(text),)),))

        first = world.write(outbox.claim, holder="h", seconds=5, now=world.clock.tick())

        assert [each.parts for each in first] == [(Text("1"),)]


def log_end(tx: Tx, session: str, world: World) -> None:
    """End a session after a note of the system."""
    log.append(
        tx, session, Message(Role.SYSTEM, (Text("x"),)), profile="main", at=world.clock.now()
    )
    row = tx.one("lock_session", id=session, profile="main")
    assert row is not None
    tx.run("end_session", no=row[0], at=2**53, reason="done")
