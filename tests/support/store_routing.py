"""Which session a key is on: opened, reset, switched."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from sessionary.actions import sweep, turns
from sessionary.actions.access import list_homes, set_home
from sessionary.actions.sessions import edit, holds, read, routing
from sessionary.actions.sessions.revise import compact
from sessionary.actions.sessions.routing import Move, move_chat
from sessionary.errors import Conflict, NotAllowed, NotFound
from sessionary.model.prompt import HomeAddress
from sessionary.model.reset import Policies, ResetMode, ResetPolicy
from sessionary.model.session import EndReason, Lineage, SessionHead
from sessionary.model.source import ChatType, Isolation, Source, key_for
from sessionary.store.database import Tx
from tests.support.dead_turns import interrupt_dead_turns
from tests.support.suite import Suite, refused
from tests.support.world import ANN, BOB, World

IDLE = ResetPolicy(mode=ResetMode.IDLE, idle=timedelta(hours=1))
EVERYWHERE = Policies(default=IDLE)
GROUP = Source("telegram", "g", chat_type=ChatType.GROUP, user_id="ann", user_name="Ann")


def switch(world: World, source: Source, session_id: str) -> SessionHead:
    """Point a source's key at a session."""

    def switched(tx: Tx) -> SessionHead:
        target = read.get_head(tx, session_id, profile=world.profile)
        return routing.switch(tx, world.key(source), target, moment=world.moment())

    return world.write(switched)


class RoutingSuite(Suite):
    """Opening, resetting, sweeping."""

    def test_a_session_exists_from_its_first_message_on(self, world: World) -> None:
        """No empty ghosts."""
        world.arrive(ANN, "hello")
        waiting = world.everything()

        session = world.talk("more")

        assert waiting == []
        assert world.texts(session) == ["hello", "more", "hi!"]

    def test_a_turn_that_cannot_begin_leaves_no_session_behind(self, world: World) -> None:
        assert world.begin(ANN) is None
        assert world.current(ANN) is None

    def test_messages_of_one_source_share_a_session_and_others_do_not(self, world: World) -> None:
        first, second, other = world.talk("a"), world.talk("b"), world.talk("c", source=BOB)

        assert first == second != other

    def test_a_session_id_never_changes_and_sorts_by_time(self, world: World) -> None:
        ids = [world.session(str(n)) for n in range(3)]

        assert ids == sorted(ids)
        assert all(each.isascii() and each.isalnum() for each in ids)

    def test_an_idle_session_is_reset_by_the_next_message(self, world: World) -> None:
        """The old one closed with its reason, the new one of its lineage."""
        old = world.talk("before", policy=IDLE)
        world.clock.tick(hours=2)

        new = world.talk("after", policy=IDLE)

        assert new != old
        assert (world.head(old).end_reason, world.head(old).is_open) == ("idle", False)
        assert (world.head(new).parent_id, world.head(new).lineage) == (old, Lineage.RESET)
        assert world.texts(old) == ["before", "hi!"]
        assert world.texts(new) == ["after", "hi!"]
        assert world.context(new)[0]["content"] == "after"

    def test_the_agent_is_notified_of_a_reset_once(self, world: World) -> None:
        """In the first turn."""
        old = world.talk("before", policy=IDLE)
        world.clock.tick(hours=2)
        world.arrive(ANN, "after")

        first = world.begin(ANN, policy=IDLE)
        assert first is not None
        world.finish(first, "ok")
        world.arrive(ANN, "again")
        second = world.begin(ANN, policy=IDLE)

        assert (first.route.reset_from, first.route.reason) == (old, "idle")
        assert second is not None
        assert (second.route.reset_from, second.route.reason) == (None, None)

    def test_a_hold_prevents_a_reset_until_it_is_released(self, world: World) -> None:
        session = world.talk("a", policy=IDLE)
        until = world.clock.now() + timedelta(days=9)
        world.write(holds.hold, session, "build", profile="main", until=until)
        world.clock.tick(hours=2)

        swept = world.write(sweep.end_expired_sessions, EVERYWHERE, moment=world.moment())
        held = world.talk("b", policy=IDLE)
        world.write(holds.release, session, "build", profile="main")
        world.clock.tick(hours=2)

        assert (swept, held) == ([], session)
        assert world.talk("c", policy=IDLE) != session

    def test_a_hold_that_expired_prevents_nothing(self, world: World) -> None:
        session = world.talk("a", policy=IDLE)
        until = world.clock.now() + timedelta(hours=1)
        world.write(holds.hold, session, "build", profile="main", until=until)
        world.clock.tick(hours=2)

        assert world.talk("b", policy=IDLE) != session

    def test_holds_are_listed_renewed_and_released_by_reason_or_all_at_once(
        self, world: World
    ) -> None:
        """The public verbs; what another program holds is left to it."""
        session = world.talk("a", policy=IDLE)
        later = world.clock.now() + timedelta(days=9)
        world.write(holds.hold, session, "hermes/compression/x", profile="main", until=later)
        given: dict[str, Any] = {"profile": "main", "moment": world.moment()}
        world.write(holds.add_hold, session, "build", until=later, **given)
        made = world.write(holds.add_hold, session, "build", **given)
        world.write(holds.add_hold, session, "audit", until=later, **given)
        world.write(holds.add_hold, session, "short", until=later - timedelta(days=8), **given)
        world.clock.tick(days=3)
        found = world.read(holds.list_holds, world.head(session), now=world.clock.now())
        given["moment"] = world.moment()
        with refused(NotFound, "not held by 'short'", unchanged=world):
            world.write(holds.release_hold, session, "short", **given)
        one = world.write(holds.release_hold, session, "audit", **given)
        rest = world.write(holds.release_hold, session, None, **given)
        left = world.read(holds.list_holds, world.head(session), now=world.clock.now())

        assert made.until is None
        assert [each.reason for each in found] == ["audit", "build", "hermes/compression/x"]
        assert [each.reason for each in one + rest] == ["audit", "build"]
        assert [each.reason for each in left] == ["hermes/compression/x"]

    def test_a_running_turn_keeps_its_session(self, world: World) -> None:
        world.arrive(ANN, "a")
        begun = world.begin(ANN, policy=IDLE)
        assert begun is not None
        world.clock.tick(hours=2)

        swept = world.write(sweep.end_expired_sessions, EVERYWHERE, moment=world.moment())

        assert swept == []
        assert world.finish(begun, "late, but here")

    def test_the_sweep_and_the_message_path_agree(self, world: World) -> None:
        """One rule; both at the very moment, and a microsecond later."""
        session = world.talk("a", policy=IDLE)
        edge = world.head(session).last_active_at + IDLE.idle
        world.clock.set(edge - timedelta(seconds=1))

        on_the_edge = world.write(sweep.end_expired_sessions, EVERYWHERE, moment=world.moment())
        beyond = world.write(sweep.end_expired_sessions, EVERYWHERE, moment=world.moment())

        assert on_the_edge == []
        assert [(each.session_id, each.reason) for each in beyond] == [(session, "idle")]

    def test_a_sweep_looks_at_each_place_with_its_own_policy(self, world: World) -> None:
        kept = world.talk("a")
        ended = world.talk("b", source=replace(GROUP, user_id="x"))
        slack = world.talk("c", source=Source("slack", "C1", user_id="u"))
        world.clock.tick(hours=2)
        policies = Policies(by_type={"group": IDLE}, by_platform={"slack": IDLE})

        swept = world.write(sweep.end_expired_sessions, policies, moment=world.moment())

        assert {each.session_id for each in swept} == {ended, slack}
        assert world.head(kept).is_open

    def test_what_was_swept_stays_ended(self, world: World) -> None:
        """A message can never be routed into an ended session."""
        session = world.talk("a", policy=IDLE)
        world.clock.tick(hours=2)
        world.write(sweep.end_expired_sessions, EVERYWHERE, moment=world.moment())

        again = world.write(sweep.end_expired_sessions, EVERYWHERE, moment=world.moment())
        new = world.talk("b")

        assert again == []
        assert new != session
        assert world.head(new).parent_id == session

    def test_recovery_never_moves_activity(self, world: World) -> None:
        world.arrive(ANN, "a")
        begun = world.begin(ANN)
        assert begun is not None
        world.write(turns.checkpoint, begun.lease, "half an ans")
        before = world.head(begun.route.session_id).last_active_at
        world.clock.tick(hours=5)

        world.write(interrupt_dead_turns, moment=world.moment())

        assert world.head(begun.route.session_id).last_active_at == before
        assert world.texts(begun.route.session_id) == ["a", "half an ans"]

    def test_a_manual_reset_ends_the_session_of_the_key(self, world: World) -> None:
        old = world.talk("a")

        ended = world.write(routing.reset, world.key(ANN), moment=world.moment())
        again = world.write(routing.reset, world.key(ANN), moment=world.moment())
        new = world.talk("b")

        assert ended is not None
        assert (ended.id, again) == (old, None)
        assert world.head(old).end_reason == EndReason.NEW
        assert (world.head(new).parent_id, world.head(new).lineage) == (old, Lineage.RESET)

    def test_the_first_reason_wins(self, world: World) -> None:
        session = world.session("a")

        world.write(edit.end, session, profile="main", moment=world.moment(), reason="one")
        world.write(edit.end, session, profile="main", moment=world.moment(), reason="two")

        assert world.head(session).end_reason == "one"

    def test_a_session_never_ends_before_it_began(self, world: World) -> None:
        """F12."""
        session = world.session("a")
        world.clock.tick(days=-30)

        head = world.write(edit.end, session, profile="main", moment=world.moment())

        assert head.ended_at == head.began_at

    def test_nothing_ends_a_session_under_a_running_turn(self, world: World) -> None:
        world.arrive(ANN, "a")
        begun = world.begin(ANN)
        assert begun is not None
        session, other = begun.route.session_id, world.session("b")

        with refused(Conflict, "turn is running", unchanged=world):
            world.write(edit.end, session, profile="main", moment=world.moment())
        with refused(Conflict, "turn is running", unchanged=world):
            world.write(edit.trash, session, profile="main", moment=world.moment())
        with refused(Conflict, "turn is running", unchanged=world):
            world.purge(session)
        with refused(Conflict, "turn is running", unchanged=world):
            world.write(routing.reset, world.key(ANN), moment=world.moment())
        with refused(Conflict, "turn is running", unchanged=world):
            switch(world, ANN, other)


class MoveSuite(Suite):
    """A chat gets another id, as a Telegram group does that becomes a supergroup."""

    OLD = Source("telegram", "-100", chat_type="group", user_id="ann", user_name="Ann")
    NEW = replace(OLD, chat_id="-1009")

    def move(self, world: World) -> int:
        move = Move("telegram", "-100", "-1009")
        return world.write(move_chat, move, profile=world.profile, moment=world.moment())

    def test_the_conversations_of_a_chat_go_on_under_its_new_id(self, world: World) -> None:
        bob = replace(self.OLD, user_id="bob")
        others = (replace(self.OLD, chat_id="-1001"), replace(self.OLD, platform="signal"), ANN)
        anns, bobs = world.talk("a", source=self.OLD), world.talk("b", source=bob)
        apart = [world.talk("c", source=other) for other in others]

        assert self.move(world) == 2

        assert world.talk("d", source=self.NEW) == anns
        assert world.talk("d", source=replace(bob, chat_id="-1009")) == bobs
        assert [world.talk("d", source=other) for other in others] == apart

    def test_what_waits_goes_with_it_and_the_old_key_is_on_nothing(self, world: World) -> None:
        session = world.talk("a", source=self.OLD)
        world.arrive(self.OLD, "written before the move")

        self.move(world)

        begun = world.begin(self.NEW)
        assert begun is not None
        world.finish(begun, "hi!")
        assert world.texts(session) == ["a", "hi!", "written before the move", "hi!"]
        assert world.current(self.OLD) is None

    def test_a_move_that_is_reported_twice_is_done_once(self, world: World) -> None:
        session = world.talk("a", source=self.OLD)

        assert [self.move(world), self.move(world)] == [1, 0]

        assert world.talk("b", source=self.NEW) == session

    def test_a_conversation_under_the_new_id_is_left_alone(self, world: World) -> None:
        world.talk("a", source=self.OLD)
        session = world.talk("b", source=self.NEW)

        assert self.move(world) == 0

        assert world.talk("c", source=self.NEW) == session

    def test_a_home_channel_moves_with_its_chat(self, world: World) -> None:
        home = HomeAddress("telegram", "-100", "Kitchen")
        world.write(set_home, home, profile=world.profile, moment=world.moment())

        self.move(world)

        assert world.read(list_homes, profile=world.profile) == [replace(home, chat_id="-1009")]


class SwitchSuite(Suite):
    """Resuming: a key is pointed at another session."""

    def test_a_switch_ends_the_old_and_reopens_the_target(self, world: World) -> None:
        first = world.talk("a")
        world.write(routing.reset, world.key(ANN), moment=world.moment())
        second = world.talk("b")

        head = switch(world, ANN, first)

        assert (head.id, head.is_open, head.end_reason) == (first, True, None)
        assert world.head(second).end_reason == EndReason.SWITCH
        assert world.talk("c") == first
        assert [chat["content"] for chat in world.context(first)] == ["a", "hi!", "c", "hi!"]

    def test_a_switch_to_the_current_session_changes_nothing(self, world: World) -> None:
        session = world.talk("a")
        before = world.head(session)

        assert switch(world, ANN, session) == before

    def test_several_keys_may_point_at_one_session(self, world: World) -> None:
        """P5, one open session per key."""
        session = world.talk("a")
        other = world.talk("b", source=BOB)

        switch(world, BOB, session)

        assert world.head(other).end_reason == EndReason.SWITCH
        assert world.talk("from Bob", source=BOB) == session
        assert world.talk("from Ann") == session

    def test_leaving_a_shared_session_does_not_end_it(self, world: World) -> None:
        shared = world.talk("a")
        switch(world, BOB, shared)
        target = world.session("elsewhere")

        switch(world, BOB, target)

        assert world.head(shared).is_open
        assert world.talk("still here") == shared
        assert world.talk("there", source=BOB) == target

    def test_the_one_who_opened_a_shared_session_may_leave_it_too(self, world: World) -> None:
        shared = world.talk("a")
        switch(world, BOB, shared)
        switch(world, ANN, shared)

        switch(world, ANN, world.session("elsewhere"))

        assert world.head(shared).is_open
        assert world.talk("x", source=BOB) == shared
        assert world.talk("y") != shared

    def test_after_the_reset_of_a_shared_session_each_key_gets_its_own(self, world: World) -> None:
        shared = world.talk("a")
        switch(world, BOB, shared)

        world.write(routing.reset, world.key(BOB), moment=world.moment())
        ann, bob = world.talk("x"), world.talk("y", source=BOB)

        assert len({shared, ann, bob}) == 3

    def test_a_key_is_not_pointed_at_another_profile(self, world: World) -> None:
        """P17."""
        other = World(world.store, profile="work")
        target = other.head(other.session("a"))

        with refused(NotAllowed, "another profile", unchanged=world):
            world.write(routing.switch, world.key(ANN), target, moment=world.moment())

    def test_a_key_is_not_pointed_at_trash_or_at_what_is_read_only(self, world: World) -> None:
        session = world.talk("a")
        trashed, frozen = world.session("b"), world.session("c", read_only=True)
        world.write(edit.trash, trashed, profile="main", moment=world.moment())

        with refused(Conflict, "in the trash", unchanged=world):
            switch(world, ANN, trashed)
        with refused(Conflict, "read-only", unchanged=world):
            switch(world, ANN, frozen)
        assert world.talk("b") == session

    def test_a_key_is_not_pointed_at_what_was_purged_meanwhile(self, world: World) -> None:
        session = world.talk("a")
        stale = world.head(world.session("b"))
        world.purge(stale.id)

        with refused(NotFound, stale.id):
            world.write(routing.switch, world.key(ANN), stale, moment=world.moment())
        assert world.talk("b") == session

    @pytest.mark.parametrize(
        ("source", "allowed"),
        [
            (ANN, True),
            (replace(ANN, chat_id="another"), True),
            (replace(ANN, user_id="eve"), True),
            (replace(ANN, chat_id="another", user_id="eve"), False),
            (Source("slack", "ann-chat", user_id="ann"), False),
            (Source("telegram"), False),
        ],
        ids=["same", "same person", "same chat", "stranger", "other platform", "nobody"],
    )
    def test_a_person_resumes_only_what_they_may_see(
        self, world: World, source: Source, *, allowed: bool
    ) -> None:
        """Fail closed."""
        head = world.head(world.talk("a"))

        assert routing.may_resume(head, source) is allowed

    def test_several_people_behind_one_key_are_distinguished(self, world: World) -> None:
        isolation = Isolation(isolate_people_in_groups=False)
        key = key_for(GROUP, isolation=isolation)
        bob = replace(GROUP, user_id="bob", user_name="Bob")
        for source, text in ((GROUP, "hello"), (bob, "me too")):
            world.arrive_as(key, source, text)
        begun = world.begin_as(key)
        world.finish(begun, "hi both")

        session = begun.route.session_id
        fork = world.fork(session)

        texts = ["[Ann] hello", "[Bob] me too", "hi both"]
        assert [chat["content"] for chat in world.context(session)] == texts
        assert [chat["content"] for chat in world.context(fork.id)] == texts
        assert world.texts(session) == ["hello", "me too", "hi both"]

        switch(world, ANN, session)
        world.talk("just us now")
        assert [chat["content"] for chat in world.context(session)][:3] == texts
        assert world.context(session)[3]["content"] == "[Ann] just us now"
        world.write(
            compact,
            session,
            "They greeted.",
            profile=world.profile,
            through=4,
            at=world.moment().now,
        )
        world.talk("still here")
        assert world.context(session)[-2]["content"] == "[Ann] still here"
