"""Folds of the log: forks, retractions, compactions, windows."""

import pytest

from sessionary.actions import verify
from sessionary.actions.sessions import edit, read, revise
from sessionary.actions.sessions.lists import SessionFilters, list_sessions
from sessionary.errors import BadInput, Conflict, TurnLost
from sessionary.model.message import Compaction, Message, Role, Text, ToolCall, ToolResult
from sessionary.model.session import Lineage, SessionHead
from sessionary.model.transcript import SUMMARY_HEADING
from tests.support.suite import Suite, refused
from tests.support.world import World

SIX = ("1", "2", "3", "4", "5", "6")


def rounds(world: World, session: str, *, since: int = 0) -> int:
    """Return how many rounds a session has after an entry."""
    return world.read(read.count_rounds, session, profile="main", since=since)


def undo(world: World, session: str, rounds: int = 1) -> SessionHead:
    """Take back the last prompts."""
    return world.write(revise.undo, session, profile="main", rounds=rounds, at=world.clock.tick())


def take_back(world: World, session: str, after: int) -> SessionHead:
    """Take back what follows an entry."""
    return world.write(revise.retract, session, profile="main", after=after, at=world.clock.tick())


def summarise(world: World, session: str, through: int, summary: str = "so far") -> SessionHead:
    """Compact a session."""
    return world.write(
        revise.compact, session, summary, profile="main", through=through, at=world.clock.tick()
    )


def contents(world: World, session: str) -> list[str]:
    """What the model reads, only the words."""
    return [str(chat["content"]) for chat in world.context(session)]


def agrees(world: World) -> bool:
    """Whether the record agrees with itself."""
    broken = verify.verify(world.store).broken
    assert broken == ()
    return True


class ForkSuite(Suite):
    """Forks: nothing is copied, nothing lost."""

    def test_a_fork_has_the_other_s_history_up_to_an_entry(self, world: World) -> None:
        parent = world.session(*SIX)

        fork = world.fork(parent, 4)
        world.append_text(fork.id, "own")
        world.append_text(parent, "7", role="assistant")

        assert world.texts(fork.id) == ["1", "2", "3", "4", "own"]
        assert world.texts(parent) == [*SIX, "7"]
        assert [entry.seq for entry in world.transcript(fork.id)] == [1, 2, 3, 4, 5]
        assert (fork.parent_id, fork.lineage, fork.base_seq) == (parent, Lineage.FORK, 4)
        assert (fork.message_count, fork.preview, fork.unread) == (4, "1", False)
        assert agrees(world)

    def test_a_fork_of_a_fork_may_begin_before_it(self, world: World) -> None:
        parent = world.session(*SIX)
        middle = world.fork(parent, 5)
        world.append_text(middle.id, "m6")

        low, high = world.fork(middle.id, 2), world.fork(middle.id, 6)
        world.append_text(low.id, "l3")

        assert world.texts(low.id) == ["1", "2", "l3"]
        assert world.texts(high.id) == ["1", "2", "3", "4", "5", "m6"]
        assert agrees(world)

    def test_a_long_line_of_forks_reads_as_one(self, world: World) -> None:
        """At any depth."""
        session = world.session("0")
        for number in range(1, 40):
            session = world.fork(session).id
            world.append_text(session, str(number))

        assert world.texts(session) == [str(number) for number in range(40)]

    @pytest.mark.parametrize("at_seq", [0, -1, 3, 2**40])
    def test_a_session_is_forked_only_where_it_has_an_entry(
        self, world: World, at_seq: int
    ) -> None:
        session = world.session("1", "2")

        with refused(BadInput, "entries 1 to 2", str(at_seq), unchanged=world):
            world.fork(session, at_seq)

    def test_a_fork_gets_the_next_title(self, world: World) -> None:
        session = world.session("a")
        world.write(edit.rename, session, "plan", profile="main")

        assert world.fork(session).title == "plan #2"
        assert world.fork(session).title == "plan #3"
        assert world.fork(session, title="other").title == "other"
        with refused(Conflict, "'plan'", unchanged=world):
            world.fork(session, title="plan")

    def test_a_read_only_session_goes_on_in_a_fork(self, world: World) -> None:
        frozen = world.session("a", "b", read_only=True)

        fork = world.fork(frozen)
        world.append_text(fork.id, "c")

        assert world.texts(fork.id) == ["a", "b", "c"]

    def test_a_fork_has_its_parent_s_settings_but_not_those_of_another_tool(
        self, world: World
    ) -> None:
        """What another tool noted of its own model is no wish to ours."""
        settings = {"model": "m", "thinking": "low"}
        forks = [
            world.fork(world.session("a", settings=settings)),
            world.fork(world.session("a", settings=settings, read_only=True)),
            world.fork(world.session("a", settings=settings, extra={"import": {"from": "x"}})),
        ]

        found = [fork.settings for fork in forks]

        assert found == [settings, settings, {}]

    def test_the_children_of_a_session_are_known(self, world: World) -> None:
        session = world.session("a")
        forks = [world.fork(session).id for _ in range(2)]

        found = world.read(
            lambda tx: read.list_children(tx, read.get_head(tx, session, profile="main"))
        )

        assert [each.id for each in found] == forks


class RetractionSuite(Suite):
    """Undo and retry: nothing is deleted."""

    def test_undo_takes_back_the_last_exchange(self, world: World) -> None:
        session = world.session(*SIX)

        head = undo(world, session)

        assert world.texts(session) == ["1", "2", "3", "4"]
        assert contents(world, session) == ["1", "2", "3", "4"]
        assert (head.message_count, head.last_reply_seq, head.last_seq) == (4, 4, 7)
        assert agrees(world)

    def test_undo_can_take_back_several_at_once_or_one_by_one(self, world: World) -> None:
        at_once, one_by_one = world.session(*SIX), world.session(*SIX)

        undo(world, at_once, 2)
        undo(world, one_by_one)
        undo(world, one_by_one)

        assert world.texts(at_once) == world.texts(one_by_one) == ["1", "2"]
        assert agrees(world)

    def test_what_was_taken_back_stays_reachable(self, world: World) -> None:
        session = world.session(*SIX)
        undo(world, session)
        world.append_text(session, "other")

        branches = world.read(read.list_retracted, session, profile="main")
        again = world.fork(session, branches[0][1])

        assert branches == [(5, 6)]
        assert world.texts(again.id) == list(SIX)
        assert world.texts(session) == ["1", "2", "3", "4", "other"]
        log = world.read(read.read_log, session, profile="main")
        assert [entry.seq for entry in log] == list(range(1, 9))

    def test_undoing_everything_leaves_an_empty_transcript(self, world: World) -> None:
        session = world.session("1", "2")

        head = undo(world, session)
        empty = world.texts(session)
        world.append_text(session, "anew")

        assert empty == []
        assert (head.message_count, head.preview, head.last_reply_seq) == (0, None, 0)
        assert world.head(session).preview == "anew"
        assert agrees(world)

    def test_undo_in_a_fork_may_reach_into_the_parent(self, world: World) -> None:
        """And the parent does not notice."""
        parent = world.session(*SIX)
        fork = world.fork(parent, 6)
        world.append_text(fork.id, "7")

        undo(world, fork.id, 2)
        world.append_text(fork.id, "other")

        assert world.texts(fork.id) == ["1", "2", "3", "4", "other"]
        assert world.texts(parent) == list(SIX)
        assert agrees(world)

    def test_a_fork_before_an_undo_is_not_affected_by_it(self, world: World) -> None:
        session = world.session(*SIX)
        take_back(world, session, 2)

        before, after = world.fork(session, 6), world.fork(session, 7)

        assert world.texts(before.id) == list(SIX)
        assert world.texts(after.id) == ["1", "2"]
        assert (before.message_count, after.message_count) == (6, 2)
        assert agrees(world)

    def test_tool_calls_that_were_taken_back_do_not_count(self, world: World) -> None:
        session = world.session("1")
        world.append(session, Message(Role.ASSISTANT, (ToolCall("a", "x"),)))
        world.append_text(session, "3")
        world.append(session, Message(Role.ASSISTANT, (ToolCall("b", "x"), ToolCall("c", "x"))))

        head = undo(world, session)

        assert (head.message_count, head.tool_call_count) == (2, 1)
        assert agrees(world)

    def test_undo_cannot_take_back_more_than_there_is(self, world: World) -> None:
        session = world.session("1", "2")

        with refused(Conflict, "fewer than 2", unchanged=world):
            undo(world, session, 2)
        with refused(BadInput, "not 0", unchanged=world):
            undo(world, session, 0)
        for after in (-1, 2, 99):
            with refused(BadInput, "entries 1 to 2", unchanged=world):
                take_back(world, session, after)

    def test_nothing_is_taken_back_under_a_running_turn(self, world: World) -> None:
        session = world.session("1", "2")
        world.begin_in(session)

        with refused(Conflict, "turn is running", unchanged=world):
            undo(world, session)

    def test_nothing_is_taken_back_from_a_read_only_session(self, world: World) -> None:
        session = world.session("1", "2", read_only=True)

        with refused(Conflict, "read-only", unchanged=world):
            undo(world, session)
        with refused(Conflict, "read-only", unchanged=world):
            summarise(world, session, 1)


class CompactionSuite(Suite):
    """Compaction is for the model only."""

    def test_a_summary_replaces_the_beginning_for_the_model(self, world: World) -> None:
        """People still read everything."""
        session = world.session(*SIX)

        head = summarise(world, session, 4)
        world.append_text(session, "7")

        assert contents(world, session) == [f"{SUMMARY_HEADING}\nso far", "5", "6", "7"]
        assert world.texts(session) == [*SIX, "7"]
        assert head.message_count == 6
        assert isinstance(world.transcript(session)[6].body, Compaction)
        assert agrees(world)

    def test_the_latest_compaction_applies(self, world: World) -> None:
        session = world.session(*SIX)
        summarise(world, session, 2, "first")
        summarise(world, session, 5, "second")

        assert contents(world, session) == [f"{SUMMARY_HEADING}\nsecond", "6"]

    def test_a_compaction_that_was_taken_back_no_longer_applies(self, world: World) -> None:
        session = world.session(*SIX)
        summarise(world, session, 2, "first")
        summarise(world, session, 6, "second")

        take_back(world, session, 7)
        after_one = contents(world, session)
        take_back(world, session, 6)

        assert after_one == [f"{SUMMARY_HEADING}\nfirst", "3", "4", "5", "6"]
        assert contents(world, session) == list(SIX)
        assert agrees(world)

    def test_a_fork_inherits_a_compaction_or_begins_before_it(self, world: World) -> None:
        session = world.session(*SIX)
        summarise(world, session, 4)

        before, after = world.fork(session, 6), world.fork(session, 7)

        assert contents(world, before.id) == list(SIX)
        assert contents(world, after.id) == [f"{SUMMARY_HEADING}\nso far", "5", "6"]
        assert agrees(world)

    def test_a_compaction_needs_a_summary_and_an_entry(self, world: World) -> None:
        session = world.session("1", "2")

        with refused(BadInput, "summary", unchanged=world):
            summarise(world, session, 1, "  ")
        for through in (0, 3):
            with refused(BadInput, "entries 1 to 2", unchanged=world):
                summarise(world, session, through)

    def test_only_the_running_turn_compacts_its_session(self, world: World) -> None:
        session = world.session("1", "2")
        begun = world.begin_in(session, "3")

        with refused(Conflict, "turn is running", unchanged=world):
            summarise(world, session, 2)
        at = world.clock.tick()
        world.write(
            revise.compact, session, "s", profile="main", through=2, at=at, lease=begun.lease
        )
        world.finish(begun, "4")

        with refused(TurnLost, begun.lease.turn_id, unchanged=world):
            world.write(
                revise.compact, session, "s", profile="main", through=2, at=at, lease=begun.lease
            )
        assert contents(world, session) == [f"{SUMMARY_HEADING}\ns", "3", "4"]


class ReadingSuite(Suite):
    """What the model reads, and windows of what people read."""

    def test_context_only_grows_while_turns_go_on(self, world: World) -> None:
        """Byte-stable."""
        session = world.session("1", "2")
        before = world.context(session)

        world.append_text(session, "3")

        assert world.context(session)[:2] == before

    def test_every_tool_call_has_its_result(self, world: World) -> None:
        """Repaired for the provider, the log as it was."""
        session = world.session("1")
        world.append(session, Message(Role.ASSISTANT, (ToolCall("a", "x"), ToolCall("b", "y"))))
        world.append(session, Message(Role.TOOL, (ToolResult("b", "found", "y"),)))
        world.append(session, Message(Role.TOOL, (ToolResult("ghost", "?"),)))
        log = world.everything()

        context = world.context(session)

        assert [chat["role"] for chat in context] == ["user", "assistant", "tool", "tool"]
        assert [chat.get("tool_call_id") for chat in context[2:]] == ["a", "b"]
        assert context[3]["content"] == "found"
        assert world.everything() == log

    def test_a_window_shows_what_is_around_an_entry(self, world: World) -> None:
        session = world.session(*map(str, range(1, 21)))

        def seqs(**where: int) -> tuple[list[int], bool, bool]:
            window = world.read(read.read_window, session, profile="main", limit=4, **where)
            return [e.seq for e in window.entries], window.more_before, window.more_after

        assert seqs() == ([17, 18, 19, 20], True, False)
        assert seqs(around=10) == ([8, 9, 10, 11], True, True)
        assert seqs(around=1) == ([1, 2], False, True)
        assert seqs(before=3) == ([1, 2], False, True)
        assert seqs(after=18) == ([19, 20], True, False)
        assert seqs(after=0) == ([1, 2, 3, 4], False, True)

    def test_a_window_reads_across_forks_and_retractions(self, world: World) -> None:
        parent = world.session(*map(str, range(1, 41)))
        take_back(world, parent, 10)
        fork = world.fork(parent)
        for number in range(5):
            world.append_text(fork.id, f"own {number}")

        window = world.read(read.read_window, fork.id, profile="main", limit=8)
        newer = world.read(read.read_window, fork.id, profile="main", limit=3, after=9)

        assert [e.seq for e in window.entries] == [8, 9, 10, 42, 43, 44, 45, 46]
        assert [e.seq for e in newer.entries] == [10, 42, 43]

    @pytest.mark.parametrize("limit", [0, -1, 1001])
    def test_a_page_has_a_sensible_size(self, world: World, limit: int) -> None:
        session = world.session("1")

        with refused(BadInput, "1 to 1,000"):
            world.read(read.read_window, session, profile="main", limit=limit)
        with refused(BadInput, "1 to 1,000"):
            world.read(list_sessions, SessionFilters(), profile="main", limit=limit)
        with refused(BadInput, "1 to 1,000"):
            world.read(read.read_log, session, profile="main", limit=limit)

    def test_a_round_is_one_or_more_questions_with_a_reply(self, world: World) -> None:
        session = world.session("1")
        world.append_text(session, "2")
        for role in ("assistant", "tool", "assistant", "system", "user", "tool", "assistant"):
            world.append_text(session, "x", role=role)
        world.append_text(session, "unanswered")

        assert rounds(world, session) == 2
        # `since` is exclusive: the question that it names is not counted, nor is its reply.
        assert [rounds(world, session, since=seq) for seq in range(11)] == [
            *(2, 2, 1, 1, 1, 1, 1, 0, 0, 0, 0),
        ]
        with refused(BadInput, "since -1"):
            rounds(world, session, since=-1)

    def test_rounds_that_were_taken_back_are_not_counted(self, world: World) -> None:
        session = world.session("1", "2", "3", "4")
        undo(world, session)

        assert rounds(world, session) == 1

        world.append_text(session, "6", role="assistant")
        world.append_text(session, "7")
        world.append_text(session, "8", role="assistant")

        assert rounds(world, session) == 2  # the sixth entry follows the second, a reply

    def test_a_fork_counts_the_rounds_that_it_shares(self, world: World) -> None:
        session = world.session("1", "2", "3", "4")
        fork = world.fork(session, 3)
        world.append_text(fork.id, "5", role="assistant")

        assert (rounds(world, session), rounds(world, fork.id)) == (2, 2)
        assert (rounds(world, fork.id, since=2), rounds(world, fork.id, since=3)) == (1, 0)

    def test_a_log_of_many_pages_is_whole(self, world: World) -> None:
        session = world.session(*("x",) * 1201)

        assert len(world.transcript(session)) == 1201
        page = world.read(read.read_log, session, profile="main", after=1000, limit=500)
        assert [page[0].seq, page[-1].seq] == [1001, 1201]

    def test_system_and_empty_messages_are_kept_in_place(self, world: World) -> None:
        session = world.session("1")
        world.append_text(session, "be brief", role="system")
        world.append(session, Message(Role.ASSISTANT, (Text(""),)))

        assert [chat["role"] for chat in world.context(session)] == ["user", "system"]
