"""The outbox, the ledger and the finalizers."""

from collections.abc import Collection
from datetime import timedelta
from typing import Any

import pytest

from sessionary.actions import access, outbox, sweep, usage
from sessionary.actions.retention import purge
from sessionary.actions.sessions import edit
from sessionary.errors import Ambiguous, BadInput, Conflict, NotAllowed, NotFound
from sessionary.model.message import Text
from sessionary.model.prompt import HomeAddress
from sessionary.model.source import Channel, Source
from sessionary.model.turn import Delivery, DeliveryState
from sessionary.model.usage import CostStatus, Usage
from sessionary.store.tables import deliveries
from sessionary.store.tables import usage as usage_table
from tests.support.suite import Suite, refused
from tests.support.world import World

ANN = Channel("telegram", "ann-chat")
BOB = Channel("telegram", "bob-chat", "7")
BOBS_GROUP = Source("telegram", "bob-chat", chat_type="group", user_id="bob")


def post(world: World, text: str, channel: Channel = ANN) -> str:
    """Put a text into the outbox."""
    return world.write(
        outbox.enqueue, channel, (Text(text),), profile="main", moment=world.moment()
    )


def claim(world: World, holder: str = "h", seconds: float = 10, limit: int = 20) -> list[Delivery]:
    """Take what is due."""
    now = world.clock.tick()
    return world.write(outbox.claim, holder=holder, seconds=seconds, now=now, limit=limit)


def sent(world: World, id: str, holder: str = "h") -> bool:
    """Mark a delivery as sent."""
    return world.write(outbox.mark_sent, id, holder=holder, at=world.clock.tick())


def get(world: World, id: str) -> Delivery:
    """A delivery as the record has it."""
    found = world.read(deliveries.get, id, profile="main")
    assert found is not None
    return found


def redirect(
    world: World, id: str, *, profile: str = "main", platforms: Collection[str] = ("telegram",)
) -> Delivery:
    """Send a delivery to Bob's chat instead."""
    given: dict[str, Any] = {"profile": profile, "moment": world.moment(), "platforms": platforms}
    return world.write(outbox.redirect, id, BOB, **given)


class OutboxSuite(Suite):
    """At least once, in order for each channel."""

    def test_deliveries_go_out_in_order_for_each_channel(self, world: World) -> None:
        ids = [post(world, "1"), post(world, "2"), post(world, "b1", BOB), post(world, "3")]

        rounds = []
        while due := claim(world):
            rounds.append([each.id for each in due])
            assert claim(world, "other") == []
            for each in due:
                assert sent(world, each.id)

        assert rounds == [[ids[0], ids[2]], [ids[1]], [ids[3]]]

    def test_a_failed_delivery_waits_and_blocks_its_channel(self, world: World) -> None:
        """F14: other chats go on."""
        first, second, other = post(world, "1"), post(world, "2"), post(world, "b", BOB)
        claim(world)
        later = world.clock.now() + timedelta(seconds=1000)
        world.write(
            outbox.mark_failed, first, holder="h", not_before=later, reason="429\x00 slow down"
        )
        sent(world, other)

        early = claim(world)
        world.clock.set(later)
        due = claim(world)

        assert early == []
        assert [(each.id, each.attempts) for each in due] == [(first, 2)]
        assert get(world, first).reason == "429\ufffd slow down"
        assert not get(world, first).maybe_twice
        assert get(world, second).state is DeliveryState.WAITING

    def test_a_sender_that_died_is_overtaken_and_that_is_marked(self, world: World) -> None:
        """F15: at most one extra copy per ambiguous answer."""
        delivery = post(world, "1")
        claim(world, "dead", seconds=10)
        world.clock.tick(11)

        taken = claim(world, "h")

        assert [(each.id, each.unclear_attempts) for each in taken] == [(delivery, 1)]
        assert taken[0].maybe_twice
        assert sent(world, delivery, "dead") is False
        given_up = world.write(outbox.abandon, delivery, reason="gone", holder="dead")
        assert given_up is False
        assert sent(world, delivery) is True
        assert get(world, delivery).state is DeliveryState.SENT

    def test_an_unclear_answer_is_marked(self, world: World) -> None:
        """F15."""
        delivery = post(world, "1")
        claim(world)
        now = world.clock.now()
        world.write(
            outbox.mark_failed, delivery, holder="h", not_before=now, reason="?", unclear=True
        )

        assert get(world, delivery).maybe_twice

    def test_what_was_sent_is_not_sent_again(self, world: World) -> None:
        delivery = post(world, "1")
        claim(world)
        at = world.clock.now()
        world.write(outbox.mark_sent, delivery, holder="h", at=at, platform_message_id="9\x00")

        assert sent(world, delivery) is False
        assert claim(world) == []
        assert get(world, delivery).platform_message_id == "9\ufffd"

    def test_a_dead_target_is_abandoned_with_a_reason_and_redirected(self, world: World) -> None:
        session = world.session("a")
        no = world.head(session).no
        first = world.write(
            outbox.enqueue,
            ANN,
            (Text("1"),),
            profile="main",
            moment=world.moment(),
            session_no=no,
        )
        second = post(world, "2")

        assert world.write(outbox.abandon, first, reason="blocked\ud800")
        assert [each.id for each in claim(world)] == [second]
        assert get(world, first).reason == "blocked\ufffd"

        with refused(NotAllowed, "no home channel", unchanged=world):
            redirect(world, first)
        with refused(NotAllowed, "no channel 'telegram'", unchanged=world):
            redirect(world, first, platforms={"slack"})
        world.arrive(BOBS_GROUP, "hello")
        assert world.begin(BOBS_GROUP) is not None
        made = redirect(world, first).id

        assert (get(world, first).state, get(world, first).redirected_to) == ("redirected", made)
        assert (get(world, made).channel, get(world, made).parts) == (BOB, (Text("1"),))
        assert get(world, made).session_id == session
        with refused(Conflict, "redirected", made):
            redirect(world, first)
        with refused(NotFound):
            redirect(world, first, profile="x")

    def test_what_was_abandoned_is_retried_under_its_own_id_before_what_waits(
        self, world: World
    ) -> None:
        """A platform that knows the id recognises a copy."""
        first, second = post(world, "1"), post(world, "2")
        claim(world)
        world.write(outbox.abandon, first, reason="blocked", holder="h")

        again = world.write(outbox.retry, first, profile="main", moment=world.moment())

        assert (again.id, again.state, again.attempts) == (first, DeliveryState.WAITING, 0)
        assert [each.id for each in claim(world)] == [first]
        assert sent(world, first)
        assert [each.id for each in claim(world)] == [second]

    def test_what_waits_for_a_later_time_is_retried_now(self, world: World) -> None:
        delivery = post(world, "1")
        claim(world)
        later = world.clock.now() + timedelta(hours=5)
        world.write(outbox.mark_failed, delivery, holder="h", not_before=later, reason="429")
        assert claim(world) == []

        world.write(outbox.retry, delivery, profile="main", moment=world.moment())

        assert [(each.id, each.attempts) for each in claim(world)] == [(delivery, 2)]

    def test_what_is_being_sent_is_left_to_its_sender(self, world: World) -> None:
        """P8: nobody sends it a second time, or says that it was not sent."""
        world.arrive(BOBS_GROUP, "hello")
        world.begin(BOBS_GROUP)
        delivery = post(world, "1")
        claim(world, seconds=10)

        with refused(Conflict, "being sent now", unchanged=world):
            redirect(world, delivery)
        with refused(Conflict, "being sent now", unchanged=world):
            world.write(outbox.retry, delivery, profile="main", moment=world.moment())
        with refused(Conflict, "being sent now", unchanged=world):
            world.write(outbox.abandon_by_owner, delivery, profile="main", moment=world.moment())
        world.clock.tick(11)
        made = redirect(world, delivery)

        assert get(world, delivery).maybe_twice, "the sender that died may have sent it"
        assert sent(world, delivery) is False
        assert [each.id for each in claim(world)] == [made.id]

    def test_what_was_sent_or_redirected_is_not_touched_again(self, world: World) -> None:
        delivery = post(world, "1")
        claim(world)
        sent(world, delivery)

        for verb in (outbox.retry, outbox.abandon_by_owner):
            with refused(Conflict, "was sent already", unchanged=world):
                world.write(verb, delivery, profile="main", moment=world.moment())

    def test_a_delivery_that_is_given_up_lets_the_next_go(self, world: World) -> None:
        first, second = post(world, "1"), post(world, "2")

        done = world.write(
            outbox.abandon_by_owner,
            first,
            profile="main",
            moment=world.moment(),
            reason="by  phone",
        )

        assert (done.state, done.reason) == (DeliveryState.ABANDONED, "by phone")
        assert [each.id for each in claim(world)] == [second]
        with refused(Conflict, "is abandoned", unchanged=world):
            world.write(outbox.abandon_by_owner, first, profile="main", moment=world.moment())

    def test_a_home_channel_may_be_redirected_to(self, world: World) -> None:
        home = HomeAddress("telegram", "bob-chat", "Bob")
        world.write(access.set_home, home, profile="main", moment=world.moment())
        delivery = post(world, "1")

        with refused(BadInput, "retry it instead", unchanged=world):
            redirect(world, post(world, "2", BOB))

        assert redirect(world, delivery).channel == BOB

    def test_deliveries_of_a_purged_session_cannot_be_sent_again(self, world: World) -> None:
        session = world.session("a")
        no = world.head(session).no
        given: dict[str, Any] = {"profile": "main", "moment": world.moment()}
        delivery = world.write(outbox.enqueue, ANN, (Text("1"),), session_no=no, **given)
        world.write(purge.purge, session, **given)

        with refused(Conflict, "was purged", unchanged=world):
            world.write(outbox.retry, delivery, profile="main", moment=world.moment())

    def test_the_outbox_is_listed_by_state_and_channel_a_page_at_a_time(self, world: World) -> None:
        ids = [post(world, str(n), ANN if n % 2 else BOB) for n in range(6)]
        claim(world)
        sent(world, ids[0])
        world.write(outbox.abandon, ids[2], reason="blocked")

        def listed(**how: Any) -> list[str]:
            found, cursor = [], None
            while True:
                page = world.read(
                    outbox.list_deliveries, profile="main", limit=2, cursor=cursor, **how
                )
                found += [each.id for each in page.items]
                cursor = page.next
                if cursor is None:
                    return found

        assert listed() == ids[::-1]
        assert listed(channel=str(ANN)) == [ids[5], ids[3], ids[1]]
        assert listed(channel="telegram") == ids[::-1]
        assert listed(channel="slack") == []
        assert listed(state=DeliveryState.WAITING) == [ids[5], ids[4], ids[3]]
        assert listed(state=DeliveryState.SENDING) == [ids[1]]
        assert listed(state=DeliveryState.SENT) == [ids[0]]
        assert listed(state=DeliveryState.ABANDONED) == [ids[2]]
        assert world.read(outbox.list_deliveries, profile="x", limit=9).items == ()

    @pytest.mark.parametrize("count", [3, deliveries.MOST_PLATFORMS + 2])
    def test_deliveries_to_several_platforms_are_listed_newest_first(
        self, world: World, count: int
    ) -> None:
        ids = [
            post(world, "x", Channel(f"platform{number % count}", "c"))
            for number in range(2 * count)
        ]
        for each in claim(world, limit=count):
            sent(world, each.id)

        found, cursor = [], None
        while True:
            page = world.read(outbox.list_deliveries, profile="main", limit=5, cursor=cursor)
            found += [each.id for each in page.items]
            cursor = page.next
            if cursor is None:
                break
        done = world.read(
            outbox.list_deliveries, profile="main", limit=99, state=DeliveryState.SENT
        )

        assert found == ids[::-1]
        assert [each.id for each in done.items] == ids[:count][::-1]

    def test_a_delivery_is_found_by_the_beginning_of_its_id(self, world: World) -> None:
        ids = [post(world, "1"), post(world, "2")]
        common = ids[0][: next(n for n in range(99) if ids[0][n] != ids[1][n])]

        assert world.read(outbox.find, ids[0], profile="main").id == ids[0]
        with refused(Ambiguous, *ids):
            world.read(outbox.find, common, profile="main")
        with refused(NotFound):
            world.read(outbox.find, ids[0], profile="x")
        with refused(NotFound):
            world.read(outbox.find, "", profile="main")

    def test_a_claim_takes_no_more_than_it_was_asked_for(self, world: World) -> None:
        ids = [post(world, "x", Channel("telegram", str(n))) for n in range(5)]

        assert [each.id for each in claim(world, limit=2)] == ids[:2]
        assert [each.id for each in claim(world, limit=9)] == ids[2:]


class FinalizerSuite(Suite):
    """What must follow an end is done at least once, and given up after three tries."""

    def test_an_end_is_finalized(self, world: World) -> None:
        session = world.session("a")
        before = world.read(sweep.list_to_finalize)
        world.write(edit.end, session, profile="main", moment=world.moment())

        (due,) = world.read(sweep.list_to_finalize)
        world.write(sweep.mark_finalized, due, moment=world.moment())

        assert before == []
        assert (due.id, due.reason, due.tries) == (session, "closed", 0)
        assert world.read(sweep.list_to_finalize) == []

    def test_a_failing_finalizer_is_given_up_after_three_tries(self, world: World) -> None:
        """Saying so."""
        session = world.session("a")
        world.write(edit.end, session, profile="main", moment=world.moment())

        tries = []
        while due := world.read(sweep.list_to_finalize):
            tries.append(due[0].tries)
            world.write(sweep.mark_finalize_failed, due[0], error="boom\x00", moment=world.moment())

        assert tries == [0, 1, 2]

    def test_a_session_that_ends_again_is_finalized_again(self, world: World) -> None:
        session = world.session("a")
        for _ in range(2):
            world.write(edit.end, session, profile="main", moment=world.moment())
            (due,) = world.read(sweep.list_to_finalize)
            world.write(sweep.mark_finalized, due, moment=world.moment())
            world.write(edit.reopen, session, profile="main")

        assert world.read(sweep.list_to_finalize) == []

    def test_an_end_that_came_while_the_one_before_was_finalized_is_not_forgotten(
        self, world: World
    ) -> None:
        """At least once for each end, however long a finalizer takes."""
        session = world.session("a")
        world.write(edit.end, session, profile="main", moment=world.moment())
        (first,) = world.read(sweep.list_to_finalize)
        world.write(edit.reopen, session, profile="main")
        world.write(edit.end, session, profile="main", moment=world.moment())

        world.write(sweep.mark_finalized, first, moment=world.moment())

        (second,) = world.read(sweep.list_to_finalize)
        assert second.ended_at > first.ended_at
        world.write(sweep.mark_finalized, second, moment=world.moment())
        assert world.read(sweep.list_to_finalize) == []


class LedgerSuite(Suite):
    """One row per model call; totals are its sums."""

    def test_a_call_is_counted_once(self, world: World) -> None:
        session = world.session("a")
        no = world.head(session).no
        used = Usage("m", 10, 5, 3, 2, 1, cost_microusd=70, call_id="c1\x00", provider="p")

        new = [
            world.write(usage.record, no, used, profile="main", moment=world.moment())
            for _ in range(2)
        ]

        total = world.head(session).usage
        assert new == [True, False]
        assert (total.calls, total.input_tokens, total.output_tokens) == (1, 10, 5)
        assert (total.cost_microusd, total.cost_status) == (70, CostStatus.REPORTED)
        assert world.head(session).model == "m"
        ((_, kept),) = world.read(usage_table.of_session, no)
        assert (kept.reasoning_tokens, kept.provider) == (1, "p")

    def test_an_unknown_cost_is_never_counted_as_zero(self, world: World) -> None:
        session = world.session("a")
        no = world.head(session).no
        world.write(usage.record, no, Usage("m", 10), profile="main", moment=world.moment())
        unknown = world.head(session).usage
        free = Usage("m", cost_microusd=0, cost_status=CostStatus.INCLUDED)
        world.write(usage.record, no, free, profile="main", moment=world.moment())
        partial = world.head(session).usage

        assert (unknown.cost_microusd, unknown.cost_status) == (None, CostStatus.UNKNOWN)
        assert (partial.cost_microusd, partial.cost_status) == (0, CostStatus.PARTIAL)

    def test_cumulative_totals_are_set_and_not_added(self, world: World) -> None:
        session = world.session("a")
        no = world.head(session).no
        world.write(usage.record, no, Usage("m", 1), profile="main", moment=world.moment())

        for tokens in (10, 30, 20):
            used = Usage("other \ud800", tokens)
            world.write(usage.set_running_total, no, used, profile="main", moment=world.moment())

        assert world.head(session).usage.input_tokens == 21
        assert world.head(session).usage.calls == 2

    def test_reports_sum_by_each_group(self, world: World) -> None:
        """The share with unknown price is stated."""
        first, second = world.session("a"), world.session("b")
        for session, model, cost in ((first, "m", 5), (first, "n", None), (second, None, 7)):
            used = Usage(model, 1, cost_microusd=cost)
            no = world.head(session).no
            world.write(usage.record, no, used, profile="main", moment=world.moment())
            world.clock.tick(days=1)

        def report(group: str) -> list[tuple[str | None, int, int]]:
            found = world.read(usage.sum_usage, group, profile="main")
            return [(each.group, each.calls, each.unknown_cost_calls) for each in found]

        assert report("model") == [(None, 1, 0), ("m", 1, 0), ("n", 1, 1)]
        assert report("session") == [(first, 2, 1), (second, 1, 0)]
        assert report("day") == [
            ("2026-03-02", 1, 0),
            ("2026-03-03", 1, 1),
            ("2026-03-04", 1, 0),
        ]
        assert report("source") == [("telegram", 3, 1)]
        assert report("provider") == report("project") == [(None, 3, 1)]

    def test_a_report_covers_a_time_and_a_profile(self, world: World) -> None:
        no = world.head(world.session("a")).no
        for _ in range(3):
            world.write(usage.record, no, Usage("m", 1), profile="main", moment=world.moment())
        at = world.clock.now()

        def calls(**how: object) -> int:
            found = world.read(usage.sum_usage, "model", **({"profile": "main"} | how))  # type: ignore[arg-type]
            return sum(each.calls for each in found)

        assert (calls(), calls(until=at), calls(since=at)) == (3, 2, 1)
        assert calls(profile="other") == 0
        with refused(BadInput, "'colour'"):
            world.read(usage.sum_usage, "colour", profile="main")

    @pytest.mark.parametrize("field", ["input_tokens", "cost_microusd", "reasoning_tokens"])
    def test_negative_usage_is_refused(self, field: str) -> None:
        """All >= 0."""
        with refused(BadInput, field):
            Usage("m", **{field: -1})  # type: ignore[arg-type]
