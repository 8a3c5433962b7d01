"""Lists of sessions and purging."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from sessionary.actions import outbox, sweep, usage, verify
from sessionary.actions.sessions import edit, lists, projects, read, revise
from sessionary.actions.sessions.lists import (
    Hidden,
    SessionFilters,
    SessionPage,
    SortOrder,
    list_sessions,
)
from sessionary.actions.transfer import jsonl_import
from sessionary.errors import BadInput, Conflict, NotFound, Purged
from sessionary.model.message import Text
from sessionary.model.session import Kind, SessionFolder
from sessionary.model.source import ChatType, Source
from sessionary.model.usage import CostStatus, Usage
from sessionary.store.database import Tx
from sessionary.store.tables import deliveries, retention, upkeep
from sessionary.store.tables import usage as usage_table
from tests.support.store_turns import HERE
from tests.support.suite import Suite, refused
from tests.support.transfer import exported, imported
from tests.support.world import World

GROUP = Source("telegram", "g", chat_type=ChatType.GROUP)
LARGE = "x" * 50_000


def page(
    world: World, *, limit: int = 50, cursor: str | None = None, **narrowed: Any
) -> SessionPage:
    """One page of a list."""
    filters = replace(SessionFilters(), **narrowed)
    return world.read(list_sessions, filters, profile="main", limit=limit, cursor=cursor)


def ids(world: World, **narrowed: Any) -> list[str]:
    """The ids of a list."""
    return [head.id for head in page(world, **narrowed).items]


def pages(world: World, limit: int, **narrowed: Any) -> list[str]:
    """The ids of a list, a page at a time."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        this = page(world, limit=limit, cursor=cursor, **narrowed)
        found += [head.id for head in this.items]
        if this.next is None:
            return found
        cursor = this.next


def spent(world: World, id: str, cost: int) -> None:
    """Note a model call of a session that cost so much."""
    used = Usage(model="m", cost_microusd=cost, cost_status=CostStatus.REPORTED)
    no = world.read(read.get_head, id, profile="main").no
    world.write(usage.record, no, used, profile="main", moment=world.moment())


class ListSuite(Suite):
    """Newest activity first, a page at a time."""

    def test_the_newest_activity_comes_first(self, world: World) -> None:
        first, second, third = (world.session(text) for text in "abc")

        world.append_text(first, "news")

        assert ids(world) == [first, third, second]

    def test_filters_narrow_a_list(self, world: World) -> None:
        chat = world.session("about Cats", model="m")
        group = world.session("dogs", source=GROUP)
        slack = world.session("birds", source=Source("slack", "C"))
        imported = world.session("fish", kind=Kind.IMPORT)
        world.write(edit.end, group, profile="main", moment=world.moment())
        world.write(edit.rename, slack, "Straße", profile="main")
        world.write(projects.add, "P", profile="main", moment=world.moment())
        world.write(projects.move_session, chat, "P", profile="main")
        world.write(edit.pin, group, profile="main", pinned=True)
        middle = world.head(slack).last_active_at

        assert ids(world) == [imported, slack, group, chat]
        assert ids(world, platform="slack") == [slack]
        assert ids(world, kind=Kind.IMPORT) == [imported]
        assert ids(world, model="m") == ids(world, project="P") == [chat]
        assert ids(world, is_open=False) == ids(world, pinned=True) == [group]
        assert ids(world, is_open=True, platform="telegram") == [imported, chat]
        assert ids(world, text="cATS") == [chat]
        assert ids(world, text="strasse") == [slack]
        assert ids(world, since=middle) == [imported, slack]
        assert ids(world, until=middle) == [group, chat]
        assert ids(world, project="P", platform="slack") == []
        with refused(NotFound, "'Q'"):
            page(world, project="Q")

    def test_sessions_are_listed_with_their_directories_or_those_of_one(self, world: World) -> None:
        places = ("/w", None, "/w/sub", "/w", "/v")
        made = [
            world.session(
                str(number), workspace=None if path is None else {"path": path, "branch": "main"}
            )
            for number, path in enumerate(places)
        ]
        world.session("no path", workspace={"branch": "main"})
        world.session("elsewhere", workspace=["/w"])

        def listed(directory: str | None, limit: int) -> list[tuple[str, str | None]]:
            found: list[tuple[str, str | None]] = []
            cursor: str | None = None
            while True:
                items, cursor = world.read(
                    lists.list_by_directory,
                    directory,
                    profile="main",
                    limit=limit,
                    cursor=cursor,
                )
                assert len(items) <= limit
                found += [(each.head.id, each.directory) for each in items]
                if cursor is None:
                    return found

        everything = [(made[number], places[number]) for number in reversed(range(5))]
        for limit in (1, 2, 50):
            assert listed(None, limit)[2:] == everything
            assert listed("/w/", limit) == [(made[3], "/w"), (made[0], "/w")]
            assert listed("/nowhere", limit) == []
        with refused(BadInput):
            world.read(lists.list_by_directory, None, profile="main", limit=5, cursor="?")

    def test_pinned_sessions_of_other_projects_are_not_listed(self, world: World) -> None:
        other, inside, unpinned = (world.session(text) for text in "abc")
        world.write(projects.add, "P", profile="main", moment=world.moment())
        for session in (inside, unpinned):
            world.write(projects.move_session, session, "P", profile="main")
        for session in (other, inside):
            world.write(edit.pin, session, profile="main", pinned=True)

        assert ids(world, project="P", pinned=True) == [inside]
        filters = SessionFilters(project="P")
        found = world.read(lists.list_pinned_first, filters, profile="main")
        assert [head.id for head in found.items] == [inside, unpinned]

    @pytest.mark.parametrize("odd", ["\ud800", "a\x00b", "%", "'"])
    def test_any_text_is_a_legal_filter(self, world: World, odd: str) -> None:
        world.session("a")

        assert ids(world, text=odd) == ids(world, platform=odd) == ids(world, model=odd) == []

    def test_automation_is_listed_apart_with_the_number_not_shown(self, world: World) -> None:
        chat = world.session("a")
        jobs = [world.session("x", kind=kind) for kind in (Kind.JOB, Kind.SUBAGENT)]

        shown = page(world)

        assert ([head.id for head in shown.items], shown.hidden) == ([chat], Hidden(automation=2))
        assert ids(world, folder=SessionFolder.AUTOMATION) == jobs[::-1]

    def test_archived_sessions_count_as_not_shown_and_trashed_ones_do_not(
        self, world: World
    ) -> None:
        _, archived, trashed = (world.session(text) for text in "abc")
        world.session("job", kind=Kind.JOB)
        world.write(edit.archive, archived, profile="main", archived=True)
        world.write(edit.trash, trashed, profile="main", moment=world.moment())

        assert page(world).hidden == Hidden(automation=1, archived=1)
        assert page(world, and_automation=True).hidden == Hidden(archived=1)
        assert page(world, folder=SessionFolder.ARCHIVE).hidden == Hidden()

    def test_the_count_of_what_is_not_shown_respects_the_filters(self, world: World) -> None:
        world.write(projects.add, "P", profile="main", moment=world.moment())
        slack = world.session("cats", source=Source("slack", "C"), kind=Kind.JOB, model="m")
        archived = world.session("dogs", labels=("pets",))
        world.write(edit.archive, archived, profile="main", archived=True)
        world.write(projects.move_session, archived, "P", profile="main")
        world.write(edit.pin, slack, profile="main", pinned=True)
        world.session("other", kind=Kind.JOB)
        middle = world.head(archived).last_active_at
        one_job, one_archived = Hidden(automation=1), Hidden(archived=1)

        assert page(world).hidden == Hidden(automation=2, archived=1)
        for narrowed, expected in (
            ({"platform": "slack"}, one_job),
            ({"platforms": ("slack", "discord")}, one_job),
            ({"model": "m"}, one_job),
            ({"pinned": True}, one_job),
            ({"kind": Kind.CHAT}, one_archived),
            ({"project": "P"}, one_archived),
            ({"label": "pets"}, one_archived),
            ({"text": "DOG"}, one_archived),
            ({"since": middle, "is_open": True}, Hidden(automation=1, archived=1)),
            ({"until": middle}, one_job),
            ({"read_only": True}, Hidden()),
        ):
            assert page(world, **narrowed).hidden == expected, narrowed

    def test_the_models_of_a_profile_are_named_whatever_folder_their_sessions_are_in(
        self, world: World
    ) -> None:
        world.session("a", model="small")
        world.session("b", model="large", kind=Kind.JOB)
        world.session("c", model="large")
        world.session("d")
        purged = world.session("e", model="old")
        world.purge(purged)

        assert world.read(lists.list_models, profile="main") == ["large", "small"]
        assert world.read(lists.list_models, profile="other") == []

    def test_each_folder_has_its_own_list(self, world: World) -> None:
        kept, away, trashed = (world.session(text) for text in "abc")
        world.write(edit.archive, away, profile="main", archived=True)
        world.write(edit.trash, trashed, profile="main", moment=world.moment())

        assert ids(world) == [kept]
        assert ids(world, folder=SessionFolder.ARCHIVE) == [away]
        assert ids(world, folder=SessionFolder.TRASH) == [trashed]

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
    def test_pages_together_are_the_list(self, world: World, limit: int) -> None:
        """By cursor."""
        made = [world.session(str(n)) for n in range(7)]
        world.clock.tick(-100)

        assert pages(world, limit) == made[::-1]
        assert pages(world, limit, platform="telegram") == made[::-1]
        assert pages(world, limit, text="3") == [made[3]]

    def test_sessions_of_one_moment_are_all_listed(self, world: World) -> None:
        """Nothing is ordered by time alone."""
        made = []
        for number in range(6):
            world.clock.tick(-1)
            made.append(world.session(str(number)))

        assert len({world.head(each).last_active_at for each in made}) == 1
        assert pages(world, 2) == made[::-1]

    def test_a_page_stays_right_while_new_sessions_arrive(self, world: World) -> None:
        made = [world.session(str(n)) for n in range(6)]

        first = page(world, limit=2)
        world.session("new")
        second = page(world, limit=2, cursor=first.next)
        world.session("newer")
        third = page(world, limit=2, cursor=second.next)

        seen = [head.id for each in (first, second, third) for head in each.items]
        assert seen == made[::-1]
        assert third.next is None

    @pytest.mark.parametrize("limit", [1, 2, 50])
    def test_a_list_has_other_orders_page_by_page(self, world: World, limit: int) -> None:
        names = {"b": "bee", "A": "Ant", "z": "Zoo", "ä": "ähm", "no title": None}
        made = {text: world.session(text) for text in names}
        for text, title in names.items():
            if title is not None:
                world.write(edit.rename, made[text], title, profile="main")
        for text, cost in {"z": 30, "b": 500, "A": 30}.items():
            spent(world, made[text], cost)
        world.append_text(made["b"], "activity changes nothing else")

        def texts(order: SortOrder) -> list[str]:
            wanted = pages(world, limit, order=order)
            return [next(text for text in made if made[text] == id) for id in wanted]

        assert texts(SortOrder.CREATED) == ["no title", "ä", "z", "A", "b"]
        assert texts(SortOrder.TITLE) == ["A", "b", "no title", "z", "ä"]
        assert texts(SortOrder.COST) == ["b", "z", "A", "no title", "ä"]

    @pytest.mark.parametrize("order", [SortOrder.CREATED, SortOrder.TITLE, SortOrder.COST])
    def test_filters_narrow_a_list_in_any_order(self, world: World, order: SortOrder) -> None:
        chat = world.session("about Cats", model="m")
        group = world.session("dogs", source=Source("slack", "C"))
        job = world.session("work", kind=Kind.JOB)
        world.write(edit.end, group, profile="main", moment=world.moment())
        world.write(projects.add, "P", profile="main", moment=world.moment())
        world.write(projects.move_session, chat, "P", profile="main")
        later = world.read(read.get_head, group, profile="main").last_active_at

        assert ids(world, order=order, platform="slack") == [group]
        assert ids(world, order=order, platforms=("matrix", "slack")) == [group]
        assert ids(world, order=order, project="P") == [chat]
        assert ids(world, order=order, model="m") == [chat]
        assert ids(world, order=order, is_open=True) == [chat]
        assert ids(world, order=order, is_open=False) == [group]
        assert ids(world, order=order, text="cats") == [chat]
        assert ids(world, order=order, since=later) == [group]
        assert ids(world, order=order, until=later) == [chat]
        assert set(ids(world, order=order, and_automation=True)) == {chat, group, job}
        assert ids(world, order=order, folder=SessionFolder.AUTOMATION, kind=Kind.JOB) == [job]
        with refused(NotFound, "no project"):
            page(world, order=order, project="Q")
        with refused(BadInput, "by activity"):
            page(world, order=order, pinned=True)

    def test_a_cursor_of_another_order_is_refused(self, world: World) -> None:
        made = [world.session(text) for text in "abc"]
        by_title = page(world, limit=1, order=SortOrder.TITLE).next
        by_cost = page(world, limit=1, order=SortOrder.COST).next

        assert made
        with refused(BadInput, "another order"):
            page(world, cursor=by_title, order=SortOrder.CREATED)
        with refused(BadInput, "another order"):
            page(world, cursor=by_cost, order=SortOrder.TITLE)

    @pytest.mark.parametrize("cursor", ["x", "!!", "OTk5", "\ud800", "9" * 80])
    def test_a_cursor_that_is_not_ours_is_refused(self, world: World, cursor: str) -> None:
        with refused(BadInput, "cursor"):
            page(world, cursor=cursor)

    def test_a_list_never_crosses_profiles(self, world: World) -> None:
        """P17."""
        other = World(world.store, profile="work")
        mine, theirs = world.session("a"), other.session("b")

        found = other.read(list_sessions, SessionFilters(), profile="work")

        assert ids(world) == [mine]
        assert [head.id for head in found.items] == [theirs]
        assert found.hidden == Hidden()


class PurgeSuite(Suite):
    """The only deletion; what others continue from is kept for them."""

    def test_a_purged_session_is_gone_but_for_its_cost(self, world: World) -> None:
        session = world.talk(LARGE)
        head = world.head(session)
        world.write(edit.rename, session, "secret", profile="main")
        world.write(_use, head.no, world)

        purged = world.purge(session)

        assert (purged.entries, purged.kept_for_others) == (2, 0)
        with refused(Purged, session):
            world.head(session)
        assert ids(world) == ids(world, folder=SessionFolder.TRASH) == []
        assert world.read(_blob_count) == 0
        assert world.read(_cost, head.no) == 9
        again = world.session("b", title="secret")
        assert world.head(again).title == "secret"
        assert verify.verify(world.store).broken == ()

    def test_a_purged_session_s_key_opens_another(self, world: World) -> None:
        session = world.talk("a")

        world.purge(session)

        assert world.talk("b") != session

    def test_a_purge_removes_deliveries_that_were_not_sent(self, world: World) -> None:
        """Nothing is sent empty."""
        session = world.session("a")
        no = world.head(session).no
        sent = world.write(_enqueue, no, world)

        world.purge(session)

        kept = world.read(deliveries.get, sent, profile="main")
        assert kept is not None
        assert (kept.state, kept.parts, kept.session_id) == ("abandoned", (), None)

    def test_forks_keep_what_they_need_of_a_purged_session(self, world: World) -> None:
        parent = world.session(LARGE, "2", "3", "4")
        fork = world.fork(parent, 2)
        world.append_text(fork.id, "own")

        purged = world.purge(parent)

        assert (purged.entries, purged.kept_for_others) == (2, 2)
        assert world.texts(fork.id) == [LARGE, "2", "own"]
        assert world.head(fork.id).parent_id == parent
        assert verify.verify(world.store).broken == ()

    def test_a_fork_whose_parent_is_purged_while_it_is_imported_is_refused(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        parent = world.session("1", "2")
        fork = world.fork(parent, 2).id
        world.append_text(fork, "own")
        text = exported(world.store)
        world.purge(fork)
        no = world.head(parent).no

        class PurgingStore:
            """The store, in which someone purges the parent right before the fork is shown."""

            def __getattr__(self, name: str) -> Any:
                return getattr(world.store, name)

            def write(self, action: Any, *args: Any, **kwargs: Any) -> Any:
                if action is jsonl_import._show:
                    world.purge(parent)
                return world.store.write(action, *args, **kwargs)

        monkeypatch.setattr(jsonl_import, "SMALL_BYTES", 0)
        report = imported(PurgingStore(), text)  # type: ignore[arg-type]

        assert [each.session_id for each in report.refused] == [fork]
        assert "was purged meanwhile" in report.refused[0].reason
        assert world.read(retention.log_size, no)[0] == 0
        assert verify.verify(world.store).broken == ()

    def test_what_was_kept_for_forks_goes_with_the_last_of_them(self, world: World) -> None:
        parent = world.session(LARGE, "2", "3")
        forks = [world.fork(parent, seq).id for seq in (1, 2)]
        deep = world.fork(forks[1], 1).id
        no = world.head(parent).no

        left = []
        for session in (parent, forks[1], forks[0], deep):
            world.purge(session)
            left.append(world.read(retention.log_size, no)[0])

        assert left == [2, 1, 1, 0]
        assert world.read(_blob_count) == 0
        assert verify.verify(world.store).broken == ()

    def test_a_fork_below_a_purged_fork_needs_no_more_than_it_reads(self, world: World) -> None:
        parent = world.session("1", "2", "3", "4")
        middle = world.fork(parent, 4).id
        world.append_text(middle, "m")
        low = world.fork(middle, 2).id
        no, middle_no = world.head(parent).no, world.head(middle).no

        world.purge(middle)
        world.purge(parent)

        assert world.texts(low) == ["1", "2"]
        assert world.read(retention.log_size, no)[0] == 2
        assert world.read(retention.log_size, middle_no)[0] == 0

    def test_a_session_that_was_reset_keeps_nothing_of_the_old_one(self, world: World) -> None:
        """Lineage without inheritance."""
        old = world.talk("a")
        world.write(edit.end, old, profile="main", moment=world.moment())
        new = world.talk("b")

        purged = world.purge(old)

        assert purged.entries == 2
        assert world.texts(new) == ["b", "hi!"]
        assert world.head(new).parent_id == old

    def test_blobs_are_kept_as_long_as_someone_needs_them(self, world: World) -> None:
        first, second = world.session(LARGE), world.session(LARGE, system_prompt="p" * 9)

        world.purge(first)
        kept = world.read(_blob_count)
        world.purge(second)

        assert (kept, world.read(_blob_count)) == (2, 0)

    def test_the_trash_is_emptied_after_thirty_days(self, world: World) -> None:
        old, new = world.session("a"), world.session("b")
        world.write(edit.trash, old, profile="main", moment=world.moment())
        world.clock.tick(days=20)
        world.write(edit.trash, new, profile="main", moment=world.moment())
        world.clock.tick(days=10)

        emptied = world.write(sweep.empty_trash, moment=world.moment())

        assert emptied == [old]
        assert ids(world, folder=SessionFolder.TRASH) == [new]

    def test_prune_takes_what_ended_long_ago_and_nothing_open(self, world: World) -> None:
        """By source; a dry run says counts and bytes."""
        ended = world.session("a", "b")
        pinned, slack = world.session("c"), world.session("d", source=Source("slack", "C"))
        world.session("open")
        for session in (ended, pinned, slack):
            world.write(edit.end, session, profile="main", moment=world.moment())
        world.write(edit.pin, pinned, profile="main", pinned=True)
        world.clock.tick(days=91)
        young = world.session("young")
        world.write(edit.end, young, profile="main", moment=world.moment())
        before = world.clock.now() - timedelta(days=90)

        found = world.read(retention.prunable, profile="main", before=before)
        on_slack = world.read(retention.prunable, profile="main", before=before, platform="slack")

        assert [each for _, each in found] == [ended, slack]
        assert [each for _, each in on_slack] == [slack]
        count, size = world.read(retention.log_size, found[0][0])
        assert (count, size > 0) == (2, True)

    def test_a_purged_session_cannot_be_touched(self, world: World) -> None:
        session = world.session("a")
        world.purge(session)

        for act in (
            lambda: world.purge(session),
            lambda: world.fork(session),
            lambda: world.write(edit.reopen, session, profile="main"),
            lambda: world.write(edit.restore, session, profile="main"),
            lambda: world.append_text(session, "x"),
            lambda: world.read(read.read_log, session, profile="main"),
            lambda: world.write(
                revise.undo, session, profile="main", rounds=1, at=world.clock.now()
            ),
        ):
            with pytest.raises(NotFound, match=session):
                act()

    def test_a_running_session_is_not_purged(self, world: World) -> None:
        session = world.session("a")
        world.begin_in(session)

        with refused(Conflict, "turn is running", unchanged=world):
            world.purge(session)


def _use(tx: Tx, no: int, world: World) -> None:
    usage.record(tx, no, Usage("m", 1, cost_microusd=9), profile="main", moment=world.moment())


def _cost(tx: Tx, no: int) -> int | None:
    return usage_table.total_of_session(tx, no).cost_microusd


def _enqueue(tx: Tx, no: int, world: World) -> str:
    parts = (Text("secret"),)
    return outbox.enqueue(tx, HERE, parts, profile="main", moment=world.moment(), session_no=no)


def _blob_count(tx: Tx) -> int:
    return upkeep.stats(tx).blobs
