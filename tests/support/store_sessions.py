"""What people do with sessions: names, folders, trash, projects."""

from datetime import timedelta

import pytest

from sessionary.actions.retention import purge
from sessionary.actions.sessions import edit, holds, projects, read, routing, titles
from sessionary.errors import Ambiguous, BadInput, Conflict, NotFound, Purged
from sessionary.model.session import EndReason, Kind, Opening, SessionFolder, TitleBy
from sessionary.model.source import Source
from sessionary.store.database import Tx
from sessionary.store.tables.sessions import Details, details
from tests.support.suite import Suite, refused
from tests.support.world import ANN, BOB, World


def rename(world: World, session: str, text: str, by: TitleBy = TitleBy.PERSON) -> str | None:
    """Give a session a title."""
    return world.write(edit.rename, session, text, profile="main", by=by).title


def name_automatically(world: World, session: str, text: str) -> str | None:
    """Let the agent name a session."""

    def named(tx: Tx) -> str | None:
        return titles.name_automatically(tx, read.get_head(tx, session, profile="main"), text)

    return world.write(named)


def _subagent(world: World, parent: str) -> str:
    """Open a subagent's session under another one; its id."""
    opening = Opening("main", ANN)
    child = world.write(edit.open_subagent, parent, opening, moment=world.moment())
    world.append_text(child, "find out")
    return child


class TitleSuite(Suite):
    """Titles, and finding a session by what a person typed."""

    def test_a_title_is_cleaned(self, world: World) -> None:
        session = world.session("a")

        assert rename(world, session, " a\u200b \x00b\t\u202e c\n") == "a b c"
        assert rename(world, session, " \u200b ") is None

    def test_a_title_that_is_too_long_is_refused_with_the_count(self, world: World) -> None:
        session = world.session("a")

        with refused(BadInput, "101", unchanged=world):
            rename(world, session, "x" * 101)

    def test_a_clash_of_titles_names_the_holder(self, world: World) -> None:
        holder, other = world.session("a"), world.session("b")
        rename(world, holder, "plan")

        with refused(Conflict, "'plan'", holder, unchanged=world):
            rename(world, other, " plan ")

    def test_a_session_opens_with_a_clean_title_that_is_free(self, world: World) -> None:
        session = world.session("a", title=" my\tplan ", title_by=TitleBy.PERSON)

        assert world.head(session).title == "my plan"
        with refused(Conflict, session, unchanged=world):
            world.session("b", title="my plan", title_by=TitleBy.PERSON)

    def test_titles_are_unique_within_a_profile_only(self, world: World) -> None:
        other = World(world.store, profile="work")
        mine, theirs = world.session("a"), other.session("b")
        rename(world, mine, "plan")

        other.write(edit.rename, theirs, "plan", profile="work")

        assert other.head(theirs).title == "plan"

    def test_a_person_s_title_is_never_overwritten_by_the_agent(self, world: World) -> None:
        session = world.session("a")
        rename(world, session, "mine")

        assert rename(world, session, "yours", by=TitleBy.AGENT) == "mine"
        assert name_automatically(world, session, "yours") == "mine"

    def test_an_automatic_title_never_fails(self, world: World) -> None:
        """Numbered, shortened to fit."""
        long = "x" * 100
        given = [name_automatically(world, world.session("a"), text) for text in ("plan", long) * 3]

        assert given[::2] == ["plan", "plan #2", "plan #3"]
        assert given[1::2] == [long, "x" * 97 + " #2", "x" * 97 + " #3"]

    def test_the_next_title_is_above_every_number(self, world: World) -> None:
        for title in ("plan", "plan #2", "plan #7", "plan #8 later"):
            rename(world, world.session("a"), title)

        assert name_automatically(world, world.session("b"), "plan #2") == "plan #8"

    def test_a_title_with_a_huge_number_leaves_numbers_for_others(self, world: World) -> None:
        for title in ("plan", "plan #999999999", "plan #0000001 b", "plan #99999999x"):
            rename(world, world.session("a"), title)
        given = [name_automatically(world, world.session("b"), "plan") for _ in range(3)]

        assert given == ["plan #1000000000", "plan #1000000001", "plan #1000000003"]

    def test_a_session_is_found_by_id_prefix_and_title(self, world: World) -> None:
        session = world.session("a")
        rename(world, session, "Plan B")
        by = {session, session[:20], "Plan B"}

        assert {world.read(read.find, ref, profile="main").id for ref in by} == {session}

    def test_a_title_means_its_latest_numbered_continuation(self, world: World) -> None:
        """Digits only."""
        sessions_by_title = {t: world.session("a") for t in ("bug #2", "bug #10", "bug #12 crash")}
        for title, session in sessions_by_title.items():
            rename(world, session, title)

        assert world.read(read.find, "bug", profile="main").title == "bug #10"

    def test_a_title_that_ends_in_a_number_has_continuations_too(self, world: World) -> None:
        for title in ("bug #2 #1", "bug #2 #4", "bug #9"):
            rename(world, world.session("a"), title)

        assert world.read(read.find, "bug #2", profile="main").title == "bug #2 #4"

    def test_an_exact_title_wins_over_its_continuations(self, world: World) -> None:
        for title in ("bug", "bug #2"):
            rename(world, world.session("a"), title)

        assert world.read(read.find, "bug", profile="main").title == "bug"

    def test_an_ambiguous_prefix_names_the_candidates(self, world: World) -> None:
        ids = [world.session(str(n)) for n in range(3)]
        rename(world, ids[0], "one")

        with pytest.raises(Ambiguous, match=r"\(one\)") as caught:
            world.read(read.find, ids[0][:4], profile="main")

        assert caught.value.candidates == tuple(ids)

    @pytest.mark.parametrize("ref", ["nope", "\x00", "\ud800", "%", "_", "' OR 1=1 --", "01KJ"])
    def test_what_is_not_there_is_not_found(self, world: World, ref: str) -> None:
        """Case matters in ids."""
        world.session("a")

        with refused(NotFound, "No session is called", unchanged=world):
            world.read(read.find, ref, profile="main")

    def test_a_foreign_session_looks_missing(self, world: World) -> None:
        """P17."""
        session = world.session("a")
        rename(world, session, "secret")

        for ref in (session, session[:10], "secret"):
            with refused(NotFound):
                world.read(read.find, ref, profile="other")

    def test_an_empty_reference_is_refused(self, world: World) -> None:
        with refused(BadInput):
            world.read(read.find, "  ", profile="main")


class SessionSuite(Suite):
    """Folders, trash, drafts, projects."""

    def test_a_session_keeps_what_it_was_opened_with(self, world: World) -> None:
        opening = {
            "model": "m",
            "settings": {"temperature": 0.5},
            "system_prompt": "Be \ud800 brief.\x00",
            "workspace": {"path": "/w", "branch": "main"},
            "labels": ("x",),
            "extra": {"any": ["thing"]},
        }
        session = world.session("a", source=ANN, kind=Kind.JOB, **opening)

        head = world.head(session)
        more = world.read(_details, head.no)
        prompt = world.read(read.get_system_prompt, head)

        assert (head.model, head.labels, head.kind, head.source) == ("m", ("x",), Kind.JOB, ANN)
        assert (more.settings, more.workspace) == (opening["settings"], opening["workspace"])
        assert (more.extra, prompt) == (opening["extra"], opening["system_prompt"])

    def test_an_id_is_taken_once(self, world: World) -> None:
        session = world.session("a")
        opening = Opening("main", ANN)

        with refused(Conflict, session, unchanged=world):
            world.write(edit.open_session, opening, moment=world.moment(), id=session)

    def test_a_source_with_any_unicode_comes_back(self, world: World) -> None:
        source = Source(
            "new platform\x00", "\ud800", user_id="7\x00", user_name="é", extra={"x": [1, None]}
        )

        session = world.talk("a", source=source)

        assert world.head(session).source == source
        assert world.talk("b", source=source) == session

    def test_reopening_clears_the_end(self, world: World) -> None:
        session = world.talk("a")
        world.write(edit.end, session, profile="main", moment=world.moment())

        head = world.write(edit.reopen, session, profile="main")

        assert (head.is_open, head.end_reason, head.ended_at) == (True, None, None)
        assert world.talk("b") == session

    def test_a_reopened_session_does_not_take_its_key_from_another(self, world: World) -> None:
        old = world.talk("a")
        world.write(routing.reset, world.key(ANN), moment=world.moment())
        new = world.talk("b")

        head = world.write(edit.reopen, old, profile="main")

        assert (head.is_open, head.key) == (True, None)
        assert world.talk("c") == new
        assert world.append_text(old, "by name").seq == 3

    def test_a_reopened_session_without_the_binding_loses_its_key_to_the_next_one(
        self, world: World
    ) -> None:
        old = world.talk("a")
        world.write(routing.reset, world.key(ANN), moment=world.moment())
        new = world.talk("b")
        world.write(routing.reset, world.key(ANN), moment=world.moment())
        world.write(edit.reopen, old, profile="main")

        third = world.talk("c")

        assert len({old, new, third}) == 3
        assert world.head(old).is_open
        assert world.head(old).key is None

    def test_restoring_a_session_from_the_trash_undoes_trashing_it(self, world: World) -> None:
        """Undo."""
        session = world.talk("a")
        before = world.head(session)

        trashed = world.write(edit.trash, session, profile="main", moment=world.moment())
        back = world.write(edit.restore, session, profile="main")

        assert (trashed.folder, trashed.end_reason) == (SessionFolder.TRASH, EndReason.TRASH)
        assert back == before
        assert world.talk("b") == session

    def test_a_session_that_had_ended_is_still_ended_when_restored_from_the_trash(
        self, world: World
    ) -> None:
        session = world.session("a")
        world.write(edit.end, session, profile="main", moment=world.moment(), reason="done")
        before = world.head(session)

        world.write(edit.trash, session, profile="main", moment=world.moment())

        assert world.write(edit.restore, session, profile="main") == before

    def test_what_comes_back_from_the_trash_leaves_the_key_with_its_holder(
        self, world: World
    ) -> None:
        session = world.talk("a")
        world.write(edit.trash, session, profile="main", moment=world.moment())
        new = world.talk("b")

        head = world.write(edit.restore, session, profile="main")

        assert (head.is_open, head.key) == (True, None)
        assert world.talk("c") == new

    def test_subagents_go_to_the_trash_with_their_parent_and_come_back_with_it(
        self, world: World
    ) -> None:
        """Subagents of subagents too; nothing else about them changes."""
        parent = world.session("a")
        child = _subagent(world, parent)
        grandchild = _subagent(world, child)
        family = (parent, child, grandchild)
        before = [world.head(id) for id in family]

        world.write(edit.trash, parent, profile="main", moment=world.moment())
        trashed = [world.head(id).folder for id in family]
        world.write(edit.restore, parent, profile="main")

        assert trashed == [SessionFolder.TRASH] * 3
        assert [world.head(id) for id in family] == before

    def test_forks_and_continuations_stay_when_their_parent_is_trashed(self, world: World) -> None:
        parent = world.session("a", "b")
        fork = world.fork(parent).id

        world.write(edit.trash, parent, profile="main", moment=world.moment())

        assert world.head(fork).folder is SessionFolder.CHATS
        assert world.texts(fork) == ["a", "b"]

    def test_subagents_are_purged_with_their_parent(self, world: World) -> None:
        """Subagents of subagents too; a fork of one keeps what it reads."""
        parent = world.session("a", "b")
        child = _subagent(world, parent)
        grandchild = _subagent(world, child)
        fork = world.fork(grandchild).id
        words = world.texts(grandchild)

        purged = world.purge(parent)

        assert purged.entries == 2 + len(words)
        for gone in (parent, child, grandchild):
            with refused(Purged, gone):
                world.head(gone)
        assert world.texts(fork) == words

    def test_a_restored_subagent_outlives_its_parent_in_the_trash(self, world: World) -> None:
        parent = world.session("a")
        restored, trashed = _subagent(world, parent), _subagent(world, parent)
        world.write(edit.trash, parent, profile="main", moment=world.moment())
        world.write(edit.restore, restored, profile="main")

        world.purge(parent)

        assert world.head(restored).trashed_at is None
        with refused(Purged, trashed):
            world.head(trashed)

    def test_a_session_whose_subagent_is_at_work_is_not_purged(self, world: World) -> None:
        parent = world.session("a")
        child = _subagent(world, parent)
        world.begin_in(child, "go on")

        with refused(Conflict, child, unchanged=world):
            world.purge(parent)

    def test_what_would_be_pruned_is_what_is_pruned(self, world: World) -> None:
        """A subagent is counted once, with its parent; one that is pinned or at work keeps both."""
        old, pinned, working = (world.session(text) for text in "abc")
        children = [_subagent(world, parent) for parent in (old, pinned, working)]
        for session in (old, children[0], pinned, working):
            world.write(edit.end, session, profile="main", moment=world.moment())
        world.write(edit.pin, children[1], profile="main", pinned=True)
        world.begin_in(children[2], "go on")
        world.clock.tick()
        before = world.clock.now()

        found = list(purge.find_prunable(world.store, profile="main", before=before))
        pruned = {
            session: world.write(
                purge.prune, session, profile="main", before=before, moment=world.moment()
            )
            for session in (old, pinned, working)
        }

        assert [(each.session_id, each.sessions, each.entries) for each in found] == [(old, 2, 2)]
        assert [session for session, result in pruned.items() if result] == [old]
        result = pruned[old]
        assert result is not None
        assert result.entries == found[0].entries

    def test_a_subagent_that_was_trashed_by_itself_stays_in_the_trash(self, world: World) -> None:
        """The parent brings back only what went with it."""
        parent = world.session("a")
        own, with_parent = _subagent(world, parent), _subagent(world, parent)
        world.write(edit.trash, own, profile="main", moment=world.moment())
        world.clock.tick()
        world.write(edit.trash, parent, profile="main", moment=world.moment())

        world.write(edit.restore, parent, profile="main")

        assert world.head(own).folder is SessionFolder.TRASH
        assert world.head(with_parent).folder is SessionFolder.AUTOMATION

    def test_a_session_whose_subagent_is_at_work_is_not_trashed(self, world: World) -> None:
        parent = world.session("a")
        child = _subagent(world, parent)
        world.begin_in(child, "go on")

        with refused(Conflict, child, unchanged=world):
            world.write(edit.trash, parent, profile="main", moment=world.moment())

    def test_reopening_a_session_in_the_trash_brings_its_subagents_back(self, world: World) -> None:
        parent = world.session("a")
        child = _subagent(world, parent)
        world.write(edit.trash, parent, profile="main", moment=world.moment())

        world.write(edit.reopen, parent, profile="main")

        assert world.head(parent).folder is SessionFolder.CHATS
        assert world.head(child).folder is SessionFolder.AUTOMATION

    def test_a_request_for_a_purged_session_says_that_it_was_purged(self, world: World) -> None:
        session = world.session("a")
        world.write(edit.trash, session, profile="main", moment=world.moment())
        world.purge(session)

        with refused(Purged, session, "purged", "gone for good", unchanged=world):
            world.write(edit.restore, session, profile="main")
        with refused(Purged, "gone for good"):
            world.head(session)
        with refused(Purged, "gone for good"):
            world.read(read.find, session, profile="main")
        with refused(NotFound, f"There is no session {session}."):
            world.read(read.get_head, session, profile="other")

    def test_an_archived_session_goes_on(self, world: World) -> None:
        session = world.talk("a")

        away = world.write(edit.archive, session, profile="main", archived=True)
        world.talk("b")
        back = world.write(edit.archive, session, profile="main", archived=False)

        assert (away.folder, back.folder) == (SessionFolder.ARCHIVE, SessionFolder.CHATS)
        assert back.message_count == 4

    def test_an_archived_session_is_restored_from_the_trash_to_the_archive(
        self, world: World
    ) -> None:
        session = world.session("a")
        world.write(edit.archive, session, profile="main", archived=True)
        world.write(edit.trash, session, profile="main", moment=world.moment())

        assert world.write(edit.restore, session, profile="main").folder is SessionFolder.ARCHIVE

    def test_a_draft_is_its_own_field(self, world: World) -> None:
        session = world.session("a")
        no = world.head(session).no

        drafts = []
        for text in ("half a th\ud800ought\x00", "longer", ""):
            world.write(edit.set_draft, session, text, profile="main", moment=world.moment())
            drafts.append(world.read(_details, no).draft)

        assert drafts == ["half a th\ud800ought\x00", "longer", None]
        with refused(BadInput, "1,000,001", unchanged=world):
            world.write(
                edit.set_draft, session, "x" * 1_000_001, profile="main", moment=world.moment()
            )

    def test_the_read_position_never_moves_back(self, world: World) -> None:
        """Last read position."""
        session = world.session("a", "b", "c", "d")

        seen = []
        for through in (2, 1, 99, -5):
            world.write(edit.mark_read, session, through, profile="main")
            seen.append((world.head(session).read_through, world.head(session).unread))

        assert seen == [(2, True), (2, True), (4, False), (4, False)]

    def test_labels_are_a_set_of_short_texts(self, world: World) -> None:
        session = world.session("a")

        head = world.write(edit.set_labels, session, ["b", " a  x ", "b", ""], profile="main")

        assert head.labels == ("a x", "b")
        with refused(BadInput, "65", unchanged=world):
            world.write(edit.set_labels, session, ["x" * 65], profile="main")

    def test_a_project_can_go_without_its_sessions(self, world: World) -> None:
        session = world.session("a")
        world.write(projects.add, "Work", profile="main", moment=world.moment(), colour="#a0B1c2")
        world.write(projects.move_session, session, "Work", profile="main")
        inside = world.head(session).project
        listed = world.read(projects.list_projects, profile="main")

        world.write(projects.remove, "Work", profile="main")

        assert inside == "Work"
        assert [(each.name, each.sessions) for each in listed] == [("Work", 1)]
        assert world.head(session).project is None
        assert world.read(projects.list_projects, profile="main") == []

    def test_a_project_s_name_is_taken_once(self, world: World) -> None:
        for name in ("A", "B"):
            world.write(projects.add, name, profile="main", moment=world.moment())

        with refused(Conflict, "'B'", unchanged=world):
            world.write(projects.change, "A", profile="main", new_name=" B ")
        with refused(Conflict, "'A'"):
            world.write(projects.add, "A", profile="main", moment=world.moment())
        with refused(BadInput, "colour"):
            world.write(projects.add, "C", profile="main", moment=world.moment(), colour="red")
        with refused(NotFound, "'C'"):
            world.read(projects.get, "C", profile="main")
        assert world.write(projects.change, "A", profile="main", new_name="A").name == "A"

    def test_a_project_of_another_profile_looks_missing(self, world: World) -> None:
        """P17."""
        session = world.session("a")
        world.write(projects.add, "A", profile="work", moment=world.moment())

        with refused(NotFound, "'A'", unchanged=world):
            world.write(projects.move_session, session, "A", profile="main")

    def test_sessions_of_others_are_left_alone(self, world: World) -> None:
        """P17: foreign looks exactly like missing."""
        session = world.session("a")
        until = world.clock.now() + timedelta(days=1)
        moment = world.moment()

        for act in (
            lambda: world.write(edit.pin, session, profile="x", pinned=True),
            lambda: world.write(edit.archive, session, profile="x", archived=True),
            lambda: world.write(edit.trash, session, profile="x", moment=moment),
            lambda: world.write(edit.rename, session, "t", profile="x"),
            lambda: world.write(edit.fork, session, profile="x", moment=moment),
            lambda: world.write(holds.hold, session, "h", profile="x", until=until),
            lambda: world.write(edit.set_labels, session, ["l"], profile="x"),
            lambda: world.read(read.read_window, session, profile="x"),
            lambda: world.read(read.read_context, session, profile="x"),
        ):
            with refused(NotFound, f"There is no session {session}.", unchanged=world):
                act()

    def test_bob_s_session_is_not_ann_s(self, world: World) -> None:
        world.talk("a")
        world.talk("b", source=BOB)

        ann, bob = world.current(ANN), world.current(BOB)

        assert ann is not None
        assert bob is not None
        assert {world.texts(ann.id)[0], world.texts(bob.id)[0]} == {"a", "b"}
        assert ann.id != bob.id


def _details(tx: Tx, no: int) -> Details:
    return details(tx, no)
