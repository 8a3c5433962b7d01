"""The blocking client, on both databases: pages, turns, transactions, subscriptions, and what hangs on a session."""

import os
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sessionary
from sessionary import (
    BadInput,
    Change,
    Conflict,
    File,
    InputMessage,
    NotFound,
    Role,
    Sessionary,
    Source,
    StoreUnavailable,
    TurnLost,
    Usage,
)
from sessionary.actions import turns
from sessionary.app.context import open_app
from sessionary.client import operations
from sessionary.testing.fakes import FakeClock


def texts(s: Sessionary, name: str) -> list[str]:
    return [message.text for message in s.session(name).messages()]


def test_the_example_of_the_readme_runs(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Sessionary(url) as s:
        chat = s.session("alice")
        chat.append("user", "hello", idempotency_key="m1")
        with chat.turn() as turn:
            turn.append("assistant", "hi", usage=Usage(model="gpt-5-mini", output_tokens=3))
        for message in chat.messages():
            print(message.role, message.text)
        for hit in s.search("hello", source="web"):
            print(hit.session.shown_title, hit.snippet)
        assert list(s.search("hello", source="telegram")) == []

    assert capsys.readouterr().out.splitlines() == [
        "user hello",
        "assistant hi",
        "hello ⟦hello⟧",
    ]


def test_a_new_session_is_empty_everywhere(s: Sessionary) -> None:
    for chat in (s.session("alice"), s.new_session(title="Plans")):
        assert list(chat.messages()) == []
        assert chat.context() == []
        assert chat.entries().entries == ()
        assert list(chat.log()) == []
        assert (chat.holds(), chat.children(), chat.waiting(), chat.draft()) == ([], [], [], None)
        assert chat.running_turn() is None
        assert chat.overview().prompts == ()
        assert chat.count_rounds() == 0
        assert not chat.exists()
        head = chat.head()
        assert (head.id, head.message_count, head.running) == ("", 0, False)
        with pytest.raises(NotFound, match="no messages yet"):
            chat.rename("x")
        with pytest.raises(NotFound, match="no messages yet"), chat.turn():
            pass
    assert list(s.sessions()) == []


def test_iterating_goes_on_through_all_pages(s: Sessionary) -> None:
    chat = s.session("alice")
    chat.append_many([InputMessage("user", f"plum {number}") for number in range(7)])
    for number in range(5):
        s.session(f"other {number}").append("user", f"a plum for {number}")

    page = chat.messages(limit=3)
    assert [each.text for each in page.items] == ["plum 0", "plum 1", "plum 2"]
    assert [each.text for each in page] == [f"plum {number}" for number in range(7)]
    following = page.next_page()
    assert following is not None
    assert following.items[0].seq == 4
    assert [each.seq for each in chat.messages(after=5)] == [6, 7]
    assert len(list(s.sessions(limit=2))) == 6
    assert len(list(s.search("plum", limit=2))) == 6
    assert [entry.seq for entry in chat.log(limit=2)] == [1, 2, 3, 4, 5, 6, 7]
    assert repr(page) == "<Page of 3 items, and more>"


def test_rounds_are_counted_after_an_entry(s: Sessionary) -> None:
    chat = s.session("alice")
    for role, text in (("user", "1"), ("user", "2"), ("assistant", "3")):
        chat.append(Role(role), text)
    with chat.turn("4") as turn:
        turn.append("assistant", "5")

    assert (chat.count_rounds(), chat.count_rounds(since=3), chat.count_rounds(since=4)) == (
        2,
        1,
        0,
    )


def test_messages_are_appended_together_or_not_at_all(s: Sessionary) -> None:
    chat = s.session("alice")
    chat.append("user", "one", idempotency_key="k")

    with pytest.raises(Conflict, match="belongs to another message"):
        chat.append_many(
            [InputMessage("user", "two"), InputMessage("user", "x", idempotency_key="k")]
        )

    assert texts(s, "alice") == ["one"]
    done = chat.append_many([InputMessage("user", "two"), InputMessage("assistant", "three")])
    assert [each.seq for each in done] == [2, 3]


def test_a_transaction_commits_operations_on_several_sessions(s: Sessionary) -> None:
    alice, fresh = s.session("alice"), s.new_session(title="Plans")

    with s.transaction() as t:
        first = t.append(alice, "user", "hello")
        t.append(fresh, "user", "one")
        second = t.append(fresh, "assistant", "two")
        t.set_labels(fresh, ["work"])
        t.set_draft(fresh, "half a th")
        read = t.mark_read(fresh)
        with pytest.raises(BadInput, match="not committed"):
            first.result()

    assert first.result().seq == 1
    assert (second.result().session_id, second.result().seq) == (fresh.id, 2)
    assert (fresh.draft(), read.result().read_through, fresh.head().unread) == (
        "half a th",
        2,
        False,
    )
    assert s.head("Plans").labels == ("work",)


def test_a_transaction_that_fails_writes_nothing(s: Sessionary) -> None:
    alice, bob = s.session("alice"), s.session("bob")
    alice.append("user", "hello")

    def rename_nobody() -> None:
        with s.transaction() as t:
            t.append(alice, "user", "again")
            t.rename(bob, "Nobody")  # has no messages

    def fail() -> None:
        with s.transaction() as t:
            t.append(alice, "user", "again")
            raise ZeroDivisionError

    with pytest.raises(NotFound):
        rename_nobody()
    with pytest.raises(ZeroDivisionError):
        fail()

    assert texts(s, "alice") == ["hello"]


def test_a_turn_waits_for_a_running_one(s: Sessionary) -> None:
    chat = s.session("alice")
    chat.append("user", "hello")
    is_running, may_end = threading.Event(), threading.Event()

    def first() -> None:
        with chat.turn() as turn:
            is_running.set()
            may_end.wait()
            turn.append("assistant", "one")

    thread = threading.Thread(target=first)
    thread.start()
    is_running.wait()
    with pytest.raises(Conflict, match="A turn is running"), chat.turn():
        pass
    with pytest.raises(Conflict, match="A turn is running"), chat.turn(wait=0.05):
        pass
    threading.Timer(0.2, may_end.set).start()
    with s.session("alice").turn(wait=60) as turn:
        turn.append("assistant", "two")
    thread.join()

    assert texts(s, "alice") == ["hello", "one", "two"]


def test_a_turn_renews_its_lease_by_itself(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    renewed = threading.Event()
    real = turns.renew

    def renew(*args: Any, **kwargs: Any) -> None:
        real(*args, **kwargs)
        renewed.set()

    monkeypatch.setattr(turns, "renew", renew)
    monkeypatch.setattr("sessionary.client.turn.LEASE_SECONDS", 0.03)
    with Sessionary._over(open_app(home=home, clock=clock)) as s:
        chat = s.session("alice")
        with chat.turn("hello") as turn:
            clock.tick(operations.LEASE_SECONDS - 1)
            renewed.clear()
            renewed.wait()
            running = chat.running_turn()
            assert running is not None
            assert running.lease_until >= clock.now()
            turn.append("assistant", "hi")
        assert not chat.head().running


def test_a_lost_lease_is_an_error_at_the_next_append_and_at_the_end(home: Path) -> None:
    clock = FakeClock()
    with Sessionary._over(open_app(home=home, clock=clock)) as s:
        chat = s.session("alice")

        def lose() -> None:
            with chat.turn("hello") as turn:
                clock.tick(operations.LEASE_SECONDS + 1)
                s.session("alice").append("user", "are you there?")
                with pytest.raises(TurnLost):
                    turn.append("assistant", "too late")

        with pytest.raises(TurnLost):
            lose()
        assert texts(s, "alice") == ["hello", "are you there?"]


def test_a_subscription_gives_what_changes_and_resumes(s: Sessionary, url: str) -> None:
    before = s.position()
    chat = s.session("alice")
    chat.append("user", "one")
    chat.rename("Greetings")
    chat.append("assistant", "two")

    def entries(changes: Iterator[Change]) -> list[str]:
        return [each.message.text for each in changes if each.message is not None]

    seen = list(s.subscribe(after=before, timeout=0))
    assert entries(iter(seen)) == ["one", "two"]
    assert {each.kind for each in seen} >= {"entry", "head"}
    assert {each.session.title for each in seen if each.session is not None} == {"Greetings"}
    first = next(each for each in seen if each.kind == "entry")
    assert entries(s.subscribe(after=first.position, timeout=0))[-1] == "two"

    with s.subscribe(session=chat) as live:
        with Sessionary(url) as other:  # as another process would
            other.session("bob").append("user", "not for us")
            other.session("alice").append("user", "three")
        change = next(each for each in live if each.kind == "entry")
        assert change.message is not None
        assert change.message.text == "three"
        assert live.position is not None
    assert list(live) == []
    with pytest.raises(BadInput, match="not of this store"):
        next(s.subscribe(after=10**9))


def test_a_subscription_wakes_at_once_for_a_commit_of_its_own_process(s: Sessionary) -> None:
    chat = s.session("alice")
    with s.subscribe() as live:
        timer = threading.Timer(0.05, lambda: chat.append("user", "hello"))
        timer.start()
        change = next(live)
        timer.join()

    assert change.session_id == chat.id


def test_what_hangs_on_a_session_is_written_and_read(s: Sessionary) -> None:
    chat = s.session("alice")
    chat.append("user", "hello")
    project = s.projects.add("Work", colour="#336699")

    assert chat.move("Work").project == "Work"
    assert [(each.name, each.sessions) for each in s.projects.list()] == [("Work", 1)]
    assert s.projects.change(project.id, new_name="Play").name == "Play"
    assert s.projects.get("Play").colour == "#336699"
    assert chat.set_labels(["b", "a"]).labels
    chat.set_draft("half a th")
    assert chat.draft() == "half a th"
    chat.append("assistant", "hi")
    assert chat.head().unread
    assert not chat.mark_read().unread
    assert [each.id for each in s.sessions(label="a", project="Play", source="web")] == [chat.id]
    assert s.projects.remove("Play").name == "Play"
    assert s.count_sessions().sources == {"web": 1}

    fork = chat.fork(at=1, title="Fork")
    assert [each.id for each in chat.children()] == [fork.id]
    chat.compact("They greeted.")
    assert [each["role"] for each in chat.context()] == ["user"]
    assert chat.entries(limit=10).entries[-1].seq == 3
    with pytest.raises(BadInput, match="one of"):
        chat.entries(before=1, after=1)
    assert chat.trash().trashed_at is not None
    assert chat.restore().trashed_at is None
    assert fork.purge().entries == 0


def test_a_file_is_uploaded_and_read_back(s: Sessionary) -> None:
    part = s.upload(File(b"a,b", media_type="text/csv", name="a.csv"))
    chat = s.session("alice")
    chat.append("user", [{"type": "text", "text": "see"}, part])

    (message,) = chat.messages()
    assert message.parts[1] == part
    assert chat.read_file(part.blob) == b"a,b"


def test_bindings_are_listed_switched_and_reset(s: Sessionary) -> None:
    alice, other = s.session("alice"), s.new_session(title="Plans")
    alice.append("user", "hello")
    other.append("user", "plans")
    key = s.bindings.key("alice")

    assert [(each.key, each.session.id) for each in s.bindings.list()] == [(key, alice.id)]
    assert other.id is not None
    s.bindings.switch(key, other.id)
    assert s.session("alice").head().title == "Plans"
    ended = s.bindings.reset(key)
    assert ended is not None
    assert s.bindings.next_reset(key).resets_at is None
    s.session("alice").append("user", "afresh")
    assert texts(s, "alice") == ["afresh"]


def test_schedules_access_and_tokens_have_all_their_calls(s: Sessionary) -> None:
    made = s.schedules.add("Brief", "every 1h", "What is new?", zone="Europe/Berlin")
    assert [each.name for each in s.schedules.list()] == ["Brief"]
    assert s.schedules.pause("Brief").paused
    assert not s.schedules.resume(made.id).paused
    assert s.schedules.runs("Brief") == []
    s.schedules.remove("Brief")
    with pytest.raises(NotFound):
        s.schedules.get("Brief")
    with pytest.raises(BadInput, match="no time zone"):
        s.schedules.add("x", "every 1h", "x", zone="Nowhere/Else")

    s.access.allow("telegram", "42", name="Mei")
    assert [(each.platform, each.person_id) for each in s.access.list()] == [("telegram", "42")]
    s.access.revoke("telegram", "42")
    with pytest.raises(NotFound):
        s.access.revoke("telegram", "42")
    with pytest.raises(NotFound):
        s.access.approve("ABCDEFGH")
    assert s.access.waiting() == []

    token, secret = s.tokens.add(name="ci", scope="read")
    assert secret not in repr(token)
    assert [each.name for each in s.tokens.list()] == ["ci"]
    assert s.tokens.revoke(token.id).revoked_at is not None


def test_a_message_waits_for_the_agent_of_a_server(s: Sessionary) -> None:
    arrival = s.arrivals.send(Source("web", "alice"), "hello")
    chat = s.session("bob")
    chat.append("user", "one")
    assert chat.id is not None
    sent = s.find(chat.id).send("two")

    assert s.arrivals.get(arrival.id).state == "waiting"
    assert [each.message.text for each in chat.waiting()] == ["two"]
    assert s.arrivals.rewrite(sent.id, "three").message.text == "three"
    s.arrivals.withdraw(sent.id)
    assert chat.waiting() == []
    assert list(s.deliveries.list()) == []


def test_exports_are_imported_again(s: Sessionary, tmp_path: Path) -> None:
    chat = s.session("alice")
    chat.append("user", "hello")
    file = tmp_path / "all.jsonl"
    file.write_text("".join(s.export()), encoding="utf-8")

    assert "hello" in "".join(s.export([chat], format="md"))
    assert "<html" in "".join(s.export([chat], format="html"))
    handover = s.handover(chat, "openai")
    assert handover.messages == 1
    assert "hello" in handover.text
    assert s.export_hermes_state(tmp_path / "state.db", [chat]) == 1
    with pytest.raises(Conflict):
        s.export_hermes_state(tmp_path / "state.db")
    assert s.export_hermes_state(tmp_path / "state.db", overwrite=True) == 1
    with Sessionary(tmp_path / "copy.db") as copy:
        assert copy.imports.jsonl(file).added == 1
        assert copy.imports.jsonl(file).unchanged == 1
        assert copy.upkeep.backup(tmp_path / "backup.db").contents.sessions == 1
        assert copy.upkeep.verify().broken == ()
        copy.upkeep.shrink()


def test_the_demo_agent_answers_in_this_process(s: Sessionary) -> None:
    reply = s.ask("hello", session="alice", timeout=120)

    assert reply.text
    assert reply.session_id == s.session("alice").head().id
    messages = list(s.session("alice").messages())
    assert (messages[0].text, messages[-1].text) == ("hello", reply.text)
    assert messages[-1].turn_id == reply.turn_id
    assert s.ask("and again", timeout=120).session_id != reply.session_id


def test_a_typo_is_refused(s: Sessionary) -> None:
    careless: Any = s
    with pytest.raises(TypeError, match="idempotencykey"):
        careless.session("alice").append("user", "hello", idempotencykey="x")
    with pytest.raises(TypeError, match="foldr"):
        careless.sessions(foldr="archive")
    with pytest.raises(TypeError, match="sorce"):
        careless.search("x", sorce="web")
    with pytest.raises(BadInput, match="no folder 'attic'"):
        careless.sessions(folder="attic")
    with pytest.raises(BadInput, match="Unknown role"):
        careless.session("alice").append("usr", "hello")


def test_a_client_says_what_it_is_without_secrets(home: Path) -> None:
    s = Sessionary()
    chat = s.session("alice")
    assert repr(s) == f"<Sessionary 'sqlite:///{home / 'sessionary.db'}', profile 'main'>"
    assert repr(chat) == "<Session main/web/dm/chat=alice without messages>"
    chat.append("user", "hello")
    assert repr(chat) == f"<Session main/web/dm/chat=alice {chat.id}>"
    assert "user: 'hello'" in repr(chat.messages().items[0])
    assert repr(chat.turn()) == "<RunningTurn, not begun>"
    s.close()
    s.close()
    assert repr(s) == "<Sessionary, closed>"
    with pytest.raises(StoreUnavailable, match="closed; open a new one"):
        chat.append("user", "again")
    with pytest.raises(StoreUnavailable, match="closed"), s:
        pass


def test_a_missing_store_is_not_created_unless_asked(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Sessionary(tmp_path / "none.db", create=False)
    assert list(tmp_path.iterdir()) == []


async def test_inside_a_running_loop_the_blocking_client_works(home: Path) -> None:
    with Sessionary() as s:
        s.session("alice").append("user", "hello")
        assert s.ask("hello", timeout=120).text


def test_from_several_threads(s: Sessionary) -> None:
    def work(number: int) -> None:
        s.session(f"chat {number % 3}").append("user", f"plum {number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(head.message_count for head in s.sessions()) == 12


def test_after_a_fork_one_clear_line(s: Sessionary, url: str) -> None:
    s.session("alice").append("user", "hello")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork with threads: that is the test
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                s.session("alice").append("user", "in the child")
                told = "written"
            except StoreUnavailable as error:
                told = str(error)
            os.write(writer, told.encode())
            os._exit(0)
    os.waitpid(child, 0)

    assert os.read(reader, 1000).decode() == (
        "An open store cannot cross a fork; open it again in the child process."
    )
    assert texts(s, "alice") == ["hello"]


def test_the_old_name_warns(home: Path) -> None:
    old: Any = sessionary
    with pytest.warns(DeprecationWarning, match=r"sessionary\.Sessionary"):
        opened = old.open()
    opened.close()
