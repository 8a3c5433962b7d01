"""The Python interface: a house, its sessions and their turns."""

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import sessionary
from sessionary import AsyncSessionary, Sessionary
from sessionary.app.context import open_app
from sessionary.client.operations import LEASE_SECONDS
from sessionary.errors import BadInput, Conflict, NotFound, TurnLost
from sessionary.model.source import ChatType, Source
from sessionary.model.turn import TurnState
from sessionary.store.database import Tx
from sessionary.store.tables import turns
from sessionary.testing.fakes import FakeClock, SequentialIds

ALICE = Source(platform="web", chat_id="alice")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def client(tmp_path: Path, clock: FakeClock) -> Iterator[Sessionary]:
    path = tmp_path / "sessionary.db"
    app = open_app(path, home=tmp_path, clock=clock, ids=SequentialIds())
    with Sessionary._over(app) as opened:
        yield opened


def test_a_session_exists_from_its_first_message_on(client: Sessionary) -> None:
    chat = client.session(ALICE)

    assert chat.context() == []
    assert client.sessions().items == ()
    chat.append("user", "hello")
    assert [head.id for head in client.sessions().items] == [chat.id]


def test_the_same_source_finds_the_same_session(client: Sessionary) -> None:
    client.session(ALICE).append("user", "one")
    client.session(ALICE).append("user", "two")

    assert client.session(ALICE).head().message_count == 2


def test_an_idempotency_key_adds_a_message_once_in_whatever_session(client: Sessionary) -> None:
    first = client.session(ALICE).append("user", "hello", idempotency_key="m1")
    again = client.new_session().append("user", "hello", idempotency_key="m1")

    assert (again.id, again.repeated) == (first.id, True)
    assert len(client.sessions().items) == 1


def test_an_idempotency_key_with_other_words_is_a_conflict(client: Sessionary) -> None:
    chat = client.session(ALICE)
    chat.append("user", "hello", idempotency_key="m1")

    for other in (chat, client.session(Source("web", "bob")), client.new_session()):
        with pytest.raises(Conflict, match="belongs to another message") as refused:
            other.append("user", "goodbye", idempotency_key="m1")
        assert refused.value.committed == "no"
    with (
        pytest.raises(Conflict, match="belongs to another message"),
        chat.turn("goodbye", idempotency_key="m1"),
    ):
        pass
    assert len(chat.context()) == 1
    assert len(client.sessions().items) == 1


def test_an_idempotency_key_in_a_group_is_the_same_message_again(client: Sessionary) -> None:
    group = Source(platform="web", chat_id="team", chat_type=ChatType.GROUP, user_id="1")

    first = client.session(group).append("user", "hello", idempotency_key="m1")

    assert client.session(group).append("user", "hello", idempotency_key="m1").id == first.id


def test_a_file_is_written_with_its_message_and_read_back(
    client: Sessionary, tmp_path: Path
) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"remember the milk")
    chat = client.session(ALICE)

    chat.append("user", [{"type": "text", "text": "see"}, sessionary.File(path)])
    with chat.turn([sessionary.File(b"more", name="more.txt")]) as turn:
        turn.append("assistant", [sessionary.File(b"a,b", media_type="text/csv", name="a.csv")])

    pieces = [
        piece
        for each in chat.context()
        if not isinstance(each["content"], str)
        for piece in each["content"]
        if piece["type"] == "attachment"
    ]
    assert [(piece["name"], piece["media_type"]) for piece in pieces] == [
        ("notes.txt", "text/plain"),
        ("more.txt", "text/plain"),
        ("a.csv", "text/csv"),
    ]
    assert [chat.read_file(piece["blob"]) for piece in pieces] == [
        b"remember the milk",
        b"more",
        b"a,b",
    ]


def test_a_part_of_unknown_type_is_refused_and_nothing_is_written(client: Sessionary) -> None:
    chat = client.session(ALICE)

    with pytest.raises(BadInput, match="Unknown part type 'txet'"):
        chat.append("user", [{"type": "txet", "text": "hello"}])
    with pytest.raises(BadInput, match="Unknown part type 'txet'"):
        chat.turn([{"type": "txet", "text": "hello"}])
    assert client.sessions().items == ()


def test_a_conversation_in_anthropics_form_is_read_by_the_model(client: Sessionary) -> None:
    chat = client.session(ALICE)
    chat.append("user", [{"type": "text", "text": "What time is it?"}])
    call = {"type": "tool_use", "id": "c1", "name": "clock", "input": {}}
    chat.append("assistant", [{"type": "thinking", "thinking": "hm", "signature": "s"}, call])
    chat.append("user", [{"type": "tool_result", "tool_use_id": "c1", "content": "09:30"}])

    asked, called, answered = chat.context()

    assert asked["content"] == "What time is it?"
    assert called["tool_calls"][0]["function"]["name"] == "clock"
    assert called["reasoning"] == "hm"
    assert (answered["role"], answered["content"]) == ("tool", "09:30")


def test_a_turn_that_fails_says_why_and_lets_the_session_go(client: Sessionary) -> None:
    chat = client.session(ALICE)

    def fails() -> None:
        with chat.turn("hello") as turn:
            turn.append("assistant", "thinking")
            raise ZeroDivisionError("division by zero")

    with pytest.raises(ZeroDivisionError):
        fails()
    chat.append("user", "go on")
    found = client.store.read(turns.of_session, chat.head().no).result()
    assert [(each.state, each.reason) for each in found] == [
        (TurnState.FAILED, "ZeroDivisionError: division by zero")
    ]


def test_nobody_else_appends_while_a_turn_runs(client: Sessionary) -> None:
    chat = client.session(ALICE)

    with chat.turn("hello") as turn:
        with pytest.raises(Conflict, match="A turn is running"):
            client.session(ALICE).append("user", "me too")
        turn.append("assistant", "hi")

    assert [each["content"] for each in chat.context()] == ["hello", "hi"]


def test_a_turn_whose_process_died_does_not_lock_its_session(
    client: Sessionary, clock: FakeClock
) -> None:
    chat = client.session(ALICE)
    dead = chat.turn("hello")
    dead.__enter__()
    dead.checkpoint("half an ans")

    clock.tick(LEASE_SECONDS + 1)
    chat.append("user", "are you there?")

    texts = [each["content"] for each in chat.context()]
    assert texts == ["hello", "half an ans", "are you there?"]
    with pytest.raises(TurnLost):
        dead.append("assistant", "too late")


def test_a_repeated_message_begins_no_second_turn(client: Sessionary) -> None:
    chat = client.session(ALICE)
    with chat.turn("hello", idempotency_key="m1"):
        pass

    with pytest.raises(Conflict, match="already"), chat.turn("hello", idempotency_key="m1"):
        pass

    assert chat.head().message_count == 1


def test_a_new_session_can_begin_with_a_turn(client: Sessionary) -> None:
    chat = client.new_session(title="Plans")

    with chat.turn("hello") as turn:
        turn.append("assistant", "hi")

    assert client.find("Plans").head().message_count == 2


def test_a_cost_is_estimated_where_the_model_is_known_and_unknown_elsewhere(
    client: Sessionary,
) -> None:
    chat = client.session(ALICE)
    chat.append("user", "hello")
    chat.append(
        "assistant", "a", usage=sessionary.Usage(model="gpt-5-mini", input_tokens=1_000_000)
    )
    chat.append("assistant", "b", usage=sessionary.Usage(model="no-such-model", input_tokens=5))
    chat.append("assistant", "c", usage=sessionary.Usage(model="gpt-5-mini"))

    by_model = {each.group: each for each in client.usage("model")}
    assert by_model["gpt-5-mini"].cost_microusd == 250_000
    assert by_model["gpt-5-mini"].unknown_cost_calls == 1, "nothing counted is not free"
    assert by_model["no-such-model"].cost_microusd is None


def test_a_time_without_a_zone_is_refused(client: Sessionary, clock: FakeClock) -> None:
    with pytest.raises(BadInput, match="no zone"):
        client.session(ALICE).append("user", "hello", at=clock.now().replace(tzinfo=None))


def test_what_is_no_time_no_source_and_no_folder_is_refused_in_our_words(
    client: Sessionary,
) -> None:
    careless: Any = client
    for name in (7, "", " ", "session/x"):
        with pytest.raises(BadInput, match=r"a name or a sessionary\.Source"):
            careless.session(name)
    with pytest.raises(BadInput, match="datetime"):
        careless.session(ALICE).append("user", "hello", at="now")
    with pytest.raises(BadInput, match="no folder 'attic'"):
        careless.sessions(folder="attic")
    assert careless.sessions(folder="archive").items == ()


def test_a_policy_of_the_configuration_resets_a_session(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "sessionary.toml").write_text(
        '[reset.platform.web]\nmode = "idle"\nidle_minutes = 10\n'
    )
    path = tmp_path / "sessionary.db"
    app = open_app(path, home=tmp_path, clock=clock, ids=SequentialIds())
    with Sessionary._over(app) as client:
        old = client.session(ALICE).append("user", "one")
        clock.tick(601)
        new = client.session(ALICE).append("user", "two")

        assert new.session_id != old.session_id
        assert client.head(old.session_id).end_reason == "idle"
        assert client.head(new.session_id).parent_id == old.session_id


def test_an_unknown_name_is_not_found(client: Sessionary) -> None:
    with pytest.raises(NotFound):
        client.find("nobody")


@pytest.mark.parametrize(
    "at",
    [
        datetime(9999, 12, 31, 23, 59, tzinfo=timezone(-timedelta(hours=23))),
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=23))),
    ],
)
def test_a_time_that_could_not_be_read_again_is_refused(client: Sessionary, at: datetime) -> None:
    chat = client.session(ALICE)
    chat.append("user", "hello")

    with pytest.raises(BadInput, match="before the year 1 or after 9999"):
        chat.append("user", "from afar", at=at)

    assert [entry.at.year for entry in chat.entries().entries] == [2026]
    assert client.sessions().items[0].message_count == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", 5),
        ("finish_reason", 5),
        ("token_count", "many"),
        ("token_count", True),
        ("platform_message_id", 7),
        ("person", "Alice"),
        ("extra", ["x"]),
    ],
)
def test_a_field_that_an_export_could_not_give_back_is_refused(
    client: Sessionary, name: str, value: Any
) -> None:
    """Export, import, export gives equal bytes."""
    with pytest.raises(BadInput, match=f"{name} of a message is"):
        client.session(ALICE).append("user", "hello", **{name: value})

    assert client.sessions().items == ()


def test_another_event_loop_than_asyncios_is_refused_in_one_line(tmp_path: Path) -> None:
    """As trio does it: it drives coroutines itself, and no loop of asyncio runs."""
    entering = AsyncSessionary(tmp_path / "sessionary.db", home=tmp_path).__aenter__()

    with pytest.raises(BadInput, match="under asyncio only") as refused:
        entering.send(None)

    assert refused.value.committed == "no"
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "sessionary.db").exists()


def test_an_answer_awaited_under_another_event_loop_says_so(client: Sessionary) -> None:
    waiting = client.store.write(_slowly).__await__()

    with pytest.raises(BadInput, match="under asyncio only") as refused:
        waiting.send(None)

    assert refused.value.committed == "unknown"
    _LET_GO.set()


_LET_GO = threading.Event()


def _slowly(tx: Tx) -> None:
    _LET_GO.wait()


def test_a_session_is_held_and_released(client: Sessionary, clock: FakeClock) -> None:
    chat = client.session(ALICE)
    chat.append("user", "hello")
    until = clock.now() + timedelta(hours=1)

    made = chat.hold("the build is running", until=until)
    held = chat.holds()
    with pytest.raises(BadInput, match="no zone"):
        chat.hold("x", until=datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(NotFound, match="is not held by 'x'"):
        chat.release("x")
    gone = chat.release("the build is running")

    assert (made.reason, made.until) == ("the build is running", until)
    assert held == gone == [made]
    assert (chat.holds(), chat.release()) == ([], [])
