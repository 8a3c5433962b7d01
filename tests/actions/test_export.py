"""What goes out comes in again, on either database, to the byte."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sessionary.actions import verify
from sessionary.actions.retention import pack
from sessionary.actions.sessions import model_calls, read, revise
from sessionary.actions.transfer import export
from sessionary.clock import RandomIds, SystemClock
from sessionary.errors import BadInput, Conflict, NotFound
from sessionary.model.message import (
    Attachment,
    Compaction,
    Message,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from sessionary.model.record import ExportOptions
from sessionary.model.source import Source
from sessionary.store.database import Store, Tx
from sessionary.store.open import open_store
from sessionary.store.tables import retention, upkeep
from tests.support.postgres import Server
from tests.support.transfer import PICTURE, asks_a_model, attach, exported, fill, imported
from tests.support.world import World

Fresh = Callable[[], Store]


@pytest.fixture(params=["sqlite to postgres", "postgres to sqlite"])
def stores(
    request: pytest.FixtureRequest, postgres_url: str, tmp_path: Path
) -> Iterator[list[Store]]:
    """An empty store of each database: from here, to there."""
    urls = [f"sqlite:///{tmp_path}/sessionary.db", postgres_url]
    if request.param == "postgres to sqlite":
        urls.reverse()
    opened = [open_store(url, create=True, clock=SystemClock(), ids=RandomIds()) for url in urls]
    yield opened
    for store in opened:
        store.close()


@pytest.fixture
def memory() -> Iterator[Fresh]:
    """Makes fresh stores in memory."""
    made: list[Store] = []

    def fresh() -> Store:
        made.append(
            open_store("sqlite::memory:", create=True, clock=SystemClock(), ids=RandomIds())
        )
        return made[-1]

    yield fresh
    for store in made:
        store.close()


def count_blobs(tx: Tx) -> int:
    """How many blobs a store has."""
    return upkeep.stats(tx).blobs


def test_export_import_export_gives_equal_bytes_on_the_other_database(stores: list[Store]) -> None:
    here, there = stores
    fill(World(here))
    text = exported(here)
    report = imported(there, text)
    assert not report.refused
    assert not report.notes
    assert exported(there) == text
    assert verify.verify(there).broken == ()


def test_redacted_exports_of_two_stores_give_a_person_two_names(stores: list[Store]) -> None:
    """Within one store it is always the same name."""
    names = []
    for store in stores:
        World(store).session("hello", source=Source("signal", "+4915112345", user_id="+4915112345"))
        for _ in range(2):
            lines = export.export_jsonl(store, profile="main", options=ExportOptions(redact=True))
            names += [json.loads(line)["source"]["user_id"] for line in lines if '"source"' in line]

    assert len(names) == 4
    assert names[0] == names[1] != names[2] == names[3]


def test_the_transcripts_and_contexts_are_the_same_there(stores: list[Store]) -> None:
    here, there = stores
    made = fill(World(here))
    imported(there, exported(here))
    for name in made.keys() - {"gone"}:
        before, after = World(here), World(there)
        assert before.transcript(made[name]) == after.transcript(made[name])
        assert before.context(made[name]) == after.context(made[name])


def test_importing_twice_changes_nothing(stores: list[Store]) -> None:
    here, there = stores
    fill(World(here))
    text = exported(here)
    first = imported(there, text)
    again = imported(there, text)
    assert (again.added, again.extended, again.entries) == (0, 0, 0)
    assert again.unchanged == first.added
    assert exported(there) == text


def test_a_fork_alone_takes_what_it_needs_of_its_ancestors_along(stores: list[Store]) -> None:
    here, there = stores
    made = fill(World(here))
    for name in ("twig", "heir"):
        text = exported(here, [made[name]])
        imported(there, text)
        assert World(there).transcript(made[name]) == World(here).transcript(made[name])
        assert exported(there, [made[name]]) == text
    assert verify.verify(there).broken == ()
    with pytest.raises(NotFound):
        World(there).head(made["rich"])


def test_what_was_partial_becomes_whole_when_the_rest_is_imported(stores: list[Store]) -> None:
    here, there = stores
    made = fill(World(here))
    imported(there, exported(here, [made["twig"]]))
    imported(there, exported(here))
    assert sorted(exported(there).splitlines()) == sorted(exported(here).splitlines())
    assert verify.verify(there).broken == ()


def test_export_does_not_write(memory: Fresh) -> None:
    store = memory()
    fill(World(store))
    before = store.read(lambda tx: tx.all("page_of_all_sessions", after=0, limit=100)).result()
    assert exported(store) == exported(store)
    assert (
        before == store.read(lambda tx: tx.all("page_of_all_sessions", after=0, limit=100)).result()
    )


def test_the_file_says_nothing_of_when_and_where_it_was_made(memory: Fresh) -> None:
    first = exported(memory()).splitlines()
    assert [json.loads(line) for line in first] == [
        {"sessionary": 1},
        {"line": "close", "sessions": 0},
    ]


def test_each_attachment_stands_once_in_a_session_before_its_first_use(memory: Fresh) -> None:
    world = World(memory())
    made = fill(world)
    lines = [json.loads(line) for line in exported(world.store, [made["rich"]]).splitlines()]
    kinds = [line.get("line") for line in lines]
    assert kinds.count("blob") == 1
    assert "attachment" in json.dumps(lines[kinds.index("blob") + 1])


def test_what_a_model_was_sent_goes_along(stores: list[Store]) -> None:
    here, there = stores
    session = asks_a_model(World(here))
    text = exported(here)

    imported(there, text)
    imported(there, text)

    kinds = [json.loads(line).get("line") for line in text.splitlines()]
    assert kinds.count("blob") == 2
    assert kinds.index("blob") < kinds.index("turn")
    assert exported(there) == text
    for store in stores:
        [listed] = store.read(model_calls.list_turns, session, profile="main").result().items
        sent = store.read(model_calls.read_sent_context, listed.turn.id, profile="main").result()
        assert sent.system_prompt == "You talk with Ann, there."
        assert listed.turn.resumed == 1
    World(there).purge(session)
    assert there.read(count_blobs).result() == 0


def test_an_export_that_leaves_something_out_has_no_requests(memory: Fresh) -> None:
    world = World(memory())
    asks_a_model(world)
    for options in (ExportOptions(redact=True), ExportOptions(tools=False)):
        text = "".join(export.export_jsonl(world.store, None, profile="main", options=options))
        assert '"line":"blob"' not in text
        assert '"request":' not in text
        there = memory()
        assert not imported(there, text.encode()).refused


def test_what_was_erased_does_not_come_back_with_an_old_export(memory: Fresh) -> None:
    world = World(memory())
    session = asks_a_model(world)
    text = exported(world.store)
    world.write(retention.delete_requests, world.head(session))

    imported(world.store, text)

    assert world.read(count_blobs) == 0


def test_a_request_that_is_not_in_the_file_is_refused(memory: Fresh) -> None:
    world = World(memory())
    asks_a_model(world)
    lines = exported(world.store).splitlines(keepends=True)
    text = b"".join(line for line in lines if b'"line":"blob"' not in line)
    text = text.replace(b'"blobs":2,', b"").replace(b',"blobs":2', b"")

    report = imported(memory(), text)

    assert "names a request that does not come before it" in report.refused[0].reason


def test_a_running_turn_is_left_out_and_its_messages_are_not(memory: Fresh) -> None:
    world = World(memory())
    session = world.session("hello")
    world.begin_in(session, "and now?")
    there = memory()
    text = exported(world.store)
    assert b'"line":"turn"' not in text
    imported(there, text)
    assert World(there).texts(session) == ["hello", "and now?"]
    assert not World(there).head(session).running


LARGE = "large " * 10_000


def exported_while(store: Store, change: Callable[[], object]) -> list[dict[str, object]]:
    """The lines of an export in which something changes once the first entry has been written."""
    lines = []
    has_changed = False
    for text in export.export_jsonl(store, profile="main"):
        lines.append(json.loads(text))
        if lines[-1].get("line") == "entry" and not has_changed:
            has_changed = True
            change()
    assert has_changed
    return lines


def test_what_is_packed_while_it_is_exported_is_exported_whole(stores: list[Store]) -> None:
    here, there = stores
    world = World(here)
    world.session("a", LARGE, "c")
    before = [json.loads(line) for line in exported(here).splitlines()]
    far = world.clock.tick(days=1)

    lines = exported_while(here, lambda: pack.pack(here, profile="main", before=far))

    assert pack.pack(here, profile="main", before=far).messages == 0
    assert lines == before
    assert imported(there, exported(here)).added == 1


@pytest.mark.parametrize("second", ["large", "attached"])
def test_what_is_purged_while_it_is_exported_is_left_out(stores: list[Store], second: str) -> None:
    here, there = stores
    world = World(here)
    gone = world.session("a", *([LARGE] if second == "large" else []))
    if second == "attached":
        name = world.write(attach, PICTURE)
        world.append(gone, Message(Role.USER, (Attachment(name, "image/png", "a.png"),)))
    kept = world.session("b")

    lines = exported_while(here, lambda: world.purge(gone))

    assert [line["id"] for line in lines if line.get("line") == "drop"] == [gone]
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    assert imported(there, text).added == 1
    assert World(there).texts(kept) == ["b"]


def test_a_session_of_another_profile_is_not_found(memory: Fresh) -> None:
    world = World(memory())
    session = world.session("hello")
    with pytest.raises(NotFound):
        exported(world.store, [session], profile="other")
    assert len(exported(world.store, profile="other").splitlines()) == 2
    assert exported(world.store, profile=None) == exported(world.store)


words = st.text(st.characters(), max_size=20) | st.sampled_from(["\ud800", "\x00", "a\u2028b", ""])
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
parts = st.lists(
    st.builds(Text, words)
    | st.builds(ToolCall, words, words, json_values)
    | st.builds(ToolResult, words, json_values, st.none() | words, st.booleans()),
    max_size=3,
).map(tuple)
messages = st.builds(
    Message,
    st.sampled_from(Role),
    parts,
    model=st.none() | words,
    token_count=st.none() | st.integers(0, 2**40),
    extra=st.dictionaries(words, json_values, max_size=2),
)
steps = st.lists(
    st.tuples(st.just("say"), st.integers(0, 5), messages)
    | st.tuples(
        st.sampled_from(["fork", "retract", "compact", "shorten", "purge"]),
        st.integers(0, 5),
        st.integers(1, 9),
    ),
    max_size=12,
)


def live(world: World, script: list[tuple[str, int, object]]) -> None:
    """Do what the script says, as far as the record allows it."""
    known = [world.session("first")]
    for verb, which, what in script:
        session = known[which % len(known)]
        try:
            match verb, what:
                case "say", Message():
                    world.append(session, what)
                case "fork", int():
                    known.append(world.fork(session, what).id)
                case "retract", int():
                    world.write(
                        revise.retract, session, profile="main", after=what, at=world.clock.tick()
                    )
                case "compact", int():
                    world.write(
                        revise.compact,
                        session,
                        "s",
                        profile="main",
                        through=what,
                        at=world.clock.tick(),
                    )
                case "shorten", int():
                    head = world.read(read.get_head, session, profile="main")
                    mark = Compaction("", 0, kept=(1,), shortened=what, longest_output=400)
                    world.write(
                        revise.store_compaction,
                        session,
                        mark if what % 2 else replace(mark, summary="s", through=head.last_seq),
                        None,
                        profile="main",
                        moment=world.moment(),
                        last_seq=head.last_seq,
                    )
                case "purge", int():
                    world.purge(session)
        except (BadInput, Conflict, NotFound):
            continue


@settings(max_examples=25)
@given(script=steps, from_postgres=st.booleans())
def test_any_conversation_goes_to_the_other_database_and_back(
    postgres: Server, migrated: str, script: list[tuple[str, int, object]], from_postgres: bool
) -> None:
    url = postgres.create_database(template=migrated)
    pair = [
        open_store(each, create=True, clock=SystemClock(), ids=RandomIds())
        for each in (url, "sqlite::memory:")
    ]
    here, there = pair if from_postgres else reversed(pair)
    try:
        live(World(here), script)
        text = exported(here)
        report = imported(there, text)
        assert not report.refused
        assert exported(there) == text
        assert verify.verify(there).broken == ()
        assert verify.verify(here).broken == ()
    finally:
        for store in pair:
            store.close()
        postgres.drop_database(url)
