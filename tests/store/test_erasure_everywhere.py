"""Where a person's words hide: forks, summaries, overheard lines, other platforms, files, free pages."""

import json
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sessionary.actions import requests, verify
from sessionary.actions.retention import erase, pack
from sessionary.actions.retention.erase import ErasureSubject, Receipt
from sessionary.actions.sessions import revise, routing
from sessionary.channels.base import with_group_lines
from sessionary.clock import Moment
from sessionary.errors import BadInput, Conflict
from sessionary.formats import parts
from sessionary.importers.base import driver, files
from sessionary.importers.base.events import Event, MessageEvent, SessionBegin, Unit
from sessionary.importers.base.session_merger import ImportTarget
from sessionary.model.message import Attachment, Message, Role, Text
from sessionary.model.source import Person, Source
from sessionary.store import copy_store
from sessionary.store.database import Store
from sessionary.store.tables import blobs, retention
from tests.support.world import ANN, World

GROUP = Source("telegram", "group-chat", chat_type="group", chat_name="All")
EVA, BEN = Person("ann", name="Ann"), Person("ben", name="Ben")
SHE = ErasureSubject("telegram", "ann")
LONG = "okapi and again " * 20_000


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


def message_by(person: Person, text: str) -> Message:
    return Message(Role.USER, (Text(text),), person=person)


def shared(world: World, first: str = "okapi from Ann") -> str:
    made = world.session("a door opens", source=replace(GROUP, user_id="zoe"))
    world.append(made, message_by(EVA, first))
    world.append(made, message_by(BEN, "giraffe from Ben"))
    world.append_text(made, "an answer", role="assistant")
    return made


def erased(world: World) -> Receipt:
    return erase.erase(world.store, SHE, profile="main", moment=world.moment())


def check(world: World, *ids: str) -> None:
    assert verify.verify(world.store).broken == ()
    for id in ids:
        assert "okapi" not in str(world.context(id))
    assert "okapi" not in rows(world.store)


def rows(store: Store) -> str:
    """Every row of every table."""
    read = copy_store._reader(store)
    return str([list(copy_store._rows(read, table)) for table in copy_store.tables()])


# What happens in a conversation: who speaks, or what is done to it.
HAPPENINGS = ("she", "he", "agent", "fork", "summary", "undo", "pack", "overheard", "dm")


@settings(
    max_examples=8,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    happenings=st.lists(
        st.tuples(st.sampled_from(HAPPENINGS), st.integers(0, 5)), min_size=5, max_size=25
    )
)
def test_no_row_of_any_table_has_their_words(
    store: Store, happenings: list[tuple[str, int]]
) -> None:
    world = World(store, name=uuid4().hex)
    ids = [shared(world)]
    for happening, number in happenings:
        with suppress(BadInput, Conflict):
            happen(world, ids, happening, number)
    kept = giraffes(world, ids)

    erased(world)

    assert giraffes(world, ids) == kept
    check(world, *ids)


def giraffes(world: World, ids: list[str]) -> list[str]:
    """Ben's own messages."""
    texts = [text for id in ids for text in world.texts(id)]
    return [text.partition("\n")[0] for text in texts if text.startswith("giraffe")]


def happen(world: World, ids: list[str], happening: str, number: int) -> None:
    id = ids[number % len(ids)]
    match happening:
        case "she":
            world.append(id, message_by(EVA, f"okapi {number} " * (1 + 4000 * (number % 2))))
        case "he":
            world.append(id, message_by(BEN, f"giraffe {number}"))
        case "agent":
            world.append_text(id, "an answer", role="assistant")
        case "fork":
            ids.append(world.fork(id, 1 + number).id)
            world.append(ids[-1], message_by(BEN, "giraffe in a fork"))
        case "summary":
            at, through = world.clock.tick(), 2 + number
            before = str([each for each in world.transcript(id) if each.seq <= through])
            word = "okapi" if "okapi" in before else "talk"
            world.write(revise.compact, id, word, profile="main", through=through, at=at)
        case "undo":
            world.write(revise.undo, id, profile="main", rounds=1, at=world.clock.tick())
        case "pack":
            pack.pack(world.store, profile="main", before=world.moment().now)
        case "overheard":
            lines = ("Ann: okapi", "Ben: giraffe")
            world.append(id, with_group_lines(message_by(BEN, "giraffe!"), lines))
        case "dm":
            world.talk(f"okapi {number}", "nice!", source=ANN)


def test_a_fork_does_not_show_their_words_in_its_head_or_its_summary(world: World) -> None:
    made = world.session("okapi", source=replace(GROUP, user_id="zoe"))
    world.append(made, message_by(EVA, "okapi from Ann"))
    world.append(made, message_by(BEN, "giraffe"))
    branch = world.fork(made, 3).id
    world.append(branch, message_by(BEN, "on my own"))
    now = world.clock.now()
    world.write(revise.compact, branch, "an okapi", through=3, profile="main", at=now)
    far = world.fork(branch, 4).id
    world.append(far, message_by(BEN, "further"))

    whom = ErasureSubject("telegram", "zoe", frozenset())
    erased(world)
    erase.erase(world.store, whom, profile="main", moment=world.moment())

    assert verify.verify(world.store).broken == ()
    assert "an okapi" not in str([world.context(each) for each in (made, branch, far)])
    assert "okapi from Ann" not in str(world.everything())


def test_what_was_overheard_of_them_goes_from_others_messages(world: World) -> None:
    made = shared(world)
    picture = world.write(blobs.add, b"a picture of Ben")
    own = Message(Role.USER, (Text("look: Ann"), Attachment(picture)), person=BEN)
    lines = ("Ann: my okapi is ill", "Ben: oh no: Ann", "Anna: hello")
    world.append(made, with_group_lines(own, lines))
    other = world.session("hm", source=replace(GROUP, chat_id="elsewhere"))
    world.append(
        other, with_group_lines(message_by(BEN, "go"), ("Ann: an okapi", "ann: okapi too"))
    )

    erased(world)

    assert "Ben: oh no: Ann" in str(world.everything())
    assert "Anna: hello" in str(world.everything())
    assert "look: Ann" in str(world.everything())
    assert world.read(blobs.exists, picture)
    check(world, made, other)


def test_what_they_wrote_in_a_session_of_another_platform_goes(world: World) -> None:
    made = world.session("hello", source=Source("web", "browser", user_id="owner"))
    world.append(made, message_by(Person("owner"), "mine"))
    key = world.key(ANN)
    world.write(routing.bind, key, world.head(made).no, moment=world.moment())
    world.talk("my okapi", "nice!", source=ANN)

    receipt = erased(world)

    assert receipt.messages_erased == 1
    assert "mine" in world.texts(made)
    check(world, made)


def test_a_running_turn_is_left_and_named_and_the_rest_is_erased(world: World) -> None:
    made = shared(world)
    world.arrive(ANN, "my okapi")
    begun = world.begin(ANN)
    assert begun is not None

    first = erased(world)
    world.finish(begun, "nice!")
    second = erased(world)

    assert (first.left, first.sessions) == ([begun.route.session_id], [made])
    assert (second.left, second.sessions_purged) == ([], 1)
    assert len(world.read(retention.receipts, profile="main")) == 2
    check(world, made)


def test_erasing_again_finds_nothing(world: World) -> None:
    shared(world)
    world.talk("my okapi", "nice!", source=ANN)
    erased(world)
    before = world.everything()

    again = erased(world)

    assert (again.sessions, again.messages_erased, again.arrivals_erased) == ([], 0, 0)
    assert world.everything() == before


def test_who_opened_a_conversation_of_many_is_not_named_by_it(world: World) -> None:
    made = world.session("hi", source=replace(GROUP, user_id="ann", user_name="Ann"))
    world.append(made, message_by(EVA, "okapi"))
    world.append(made, message_by(BEN, "giraffe"))

    erased(world)

    assert "ann" not in str(world.head(made).source).lower()
    check(world, made)


def test_noted_answers_that_quote_them_go(world: World) -> None:
    made = shared(world)
    request = requests.IdempotentRequest("k", "f")
    answer = requests.StoredResponse(200, json.dumps({"text": "okapi"}), made)
    again = requests.StoredResponse(404, "{}")
    now = world.clock.now()
    world.write(requests.run_once, request, lambda _: answer, profile="main", now=now)

    erased(world)

    noted = world.write(requests.run_once, request, lambda _: again, profile="main", now=now)
    assert noted == again


def test_long_words_are_in_no_free_page_and_not_in_the_wal(tmp_path: Path, world: World) -> None:
    shared(world, LONG)
    world.append(shared(world), message_by(EVA, "okapi " * 3000))
    pack.pack(world.store, profile="main", before=world.moment().now)
    world.talk(LONG[:9000], "nice!", source=ANN)

    erased(world)

    for file in filter(Path.is_file, tmp_path.rglob("*")):
        assert b"okapi" not in file.read_bytes(), file


def test_an_import_does_not_bring_them_back(world: World, tmp_path: Path) -> None:
    file = tmp_path / "file"
    taken = []
    for size in (1, 2, 3):
        file.write_text("x" * size)
        taken.append(_import(world, file))
        if size == 2:
            erased(world)
            assert "okapi" not in str(world.everything())

    assert [report.messages for report in taken] == [2, 0, 0]
    check(world)


def _import(world: World, file: Path) -> driver.ToolImportReport:
    at = world.clock.now()

    class _Tool:
        name, title = "tool", "Tool"

        def read(self, unit: Unit, resume: object) -> list[Event]:
            return [
                SessionBegin(native_id="s1", began_at=at),
                MessageEvent(
                    role="user", parts=[parts.text("okapi")], at=at, id="1", person=EVA.to_json()
                ),
                MessageEvent(
                    role="user", parts=[parts.text("hm")], at=at, id="2", person=BEN.to_json()
                ),
            ]

    moment: Moment = world.moment()
    target = ImportTarget(world.store, "main", "telegram", "Tool", moment)
    unit = Unit(str(file), file, files.stamp_of(file), 1)
    return driver.run(target, _Tool(), [unit])  # type: ignore[arg-type]
