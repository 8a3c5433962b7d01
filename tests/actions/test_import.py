"""An import is whole or not at all, says what is wrong, and never half-does anything."""

import io
import json
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sessionary.actions import verify
from sessionary.actions.transfer import jsonl_import
from sessionary.clock import RandomIds, SystemClock
from sessionary.errors import BadInput, NotFound
from sessionary.model import record
from sessionary.model.source import Source
from sessionary.store.database import Store
from sessionary.store.open import open_store
from tests.support.transfer import exported, fill, imported
from tests.support.world import ANN, World

Fresh = Callable[[], Store]

SESSION: dict[str, Any] = {
    "line": "session",
    "id": "s1",
    "profile": "main",
    "kind": "chat",
    "began_at": "2026-01-01T00:00:00Z",
    "source": {"platform": "terminal"},
    "last_active_at": "2026-01-01T00:00:00Z",
}
ENTRY: dict[str, Any] = {
    "line": "entry",
    "seq": 1,
    "at": "2026-01-01T00:00:00Z",
    "kind": "message",
    "role": "user",
    "parts": [{"type": "text", "text": "hello"}],
}
END: dict[str, Any] = {"line": "end", "id": "s1", "entries": 1}


@pytest.fixture
def fresh() -> Iterator[Fresh]:
    """Makes fresh stores in memory."""
    made: list[Store] = []

    def new() -> Store:
        made.append(
            open_store("sqlite::memory:", create=True, clock=SystemClock(), ids=RandomIds())
        )
        return made[-1]

    yield new
    for store in made:
        store.close()


def file_of(*lines: dict[str, Any], sessions: int = 1) -> bytes:
    whole = [{"sessionary": 1}, *lines, {"line": "close", "sessions": sessions}]
    return b"".join(json.dumps(line).encode() + b"\n" for line in whole)


def is_empty(store: Store) -> bool:
    return not store.read(lambda tx: tx.all("page_of_all_sessions", after=0, limit=1)).result()


def test_a_hand_written_file_is_imported(fresh: Fresh) -> None:
    store = fresh()
    assert imported(store, file_of(SESSION, ENTRY, END)).added == 1
    assert World(store).texts("s1") == ["hello"]
    assert verify.verify(store).broken == ()


def test_a_file_cut_anywhere_gives_whole_sessions_or_nothing(fresh: Fresh) -> None:
    two = {**SESSION, "id": "s2"}
    text = file_of(SESSION, ENTRY, END, two, ENTRY, {**END, "id": "s2"}, sessions=2)
    for size in range(len(text) - 1):
        store = fresh()
        with pytest.raises(BadInput) as refusal:
            imported(store, text[:size])
        assert "\n" not in str(refusal.value)
        for name in ("s1", "s2"):
            try:
                assert World(store).texts(name) == ["hello"]
            except NotFound:
                continue
        assert verify.verify(store).broken == ()
        store.close()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n\n",
        b"hello\n",
        b"\x00\x01\x02\n",
        b"\xff\xfe{\n",
        b"[]\n",
        b"null\n",
        b'{"sessionary": 2}\n',
        b'{"sessionary": "1"}\n',
        b'{"sessionary": 1, "made_at": 3}\n',
        b'{"sessionary": 1}\n{"line": "sing"}\n',
        b'{"sessionary": 1}\n{"sessionary": 1}\n',
        b'{"sessionary": 1}\n' + b"[" * 100_000 + b"\n",
        b'{"sessionary": 1}\n{"line": "session", "extra": ' + b'{"a":' * 100_000 + b"\n",
        b'{"sessionary": 1}\n{"line":"entry","seq":' + b"9" * 5000 + b"}\n",
        b'{"sessionary": 1}\n{"line": "close", "sessions": 1}\n',
        b'{"sessionary": 1}\n{"line": "close", "sessions": NaN}\n',
        file_of(SESSION, ENTRY),
        file_of(SESSION, SESSION),
        file_of(ENTRY),
        file_of(SESSION, END),
        file_of(SESSION, {**ENTRY, "seq": 2}, END),
        file_of(SESSION, ENTRY, ENTRY, {**END, "entries": 2}),
        file_of(SESSION, ENTRY, {**END, "id": "s2"}),
        file_of(SESSION, ENTRY, {**END, "entries": 2}),
        file_of(SESSION, ENTRY, {**END, "usage": 1}),
    ],
)
def test_a_broken_file_is_refused_in_one_line_and_changes_nothing(
    fresh: Fresh, text: bytes
) -> None:
    store = fresh()
    with pytest.raises(BadInput) as refusal:
        imported(store, text)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 400
    assert is_empty(store)


def deep(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("where", "field", "value"),
    [
        ("session", "id", "../../etc/passwd"),
        ("session", "id", "a/b"),
        ("session", "id", ".."),
        ("session", "id", ""),
        ("session", "id", "x" * 65),
        ("session", "id", "a\x00b"),
        ("session", "id", "a\nb"),
        ("session", "id", 7),
        ("session", "profile", "../x"),
        ("session", "profile", ""),
        ("session", "kind", "opera"),
        ("session", "began_at", "yesterday"),
        ("session", "began_at", "2026-01-01T00:00:00"),
        ("session", "began_at", 5),
        ("session", "last_active_at", None),
        ("session", "source", None),
        ("session", "source", {"platform": ""}),
        ("session", "source", {"platform": "x", "chat_id": [1]}),
        ("session", "ended_at", "2026-01-02T00:00:00Z"),
        ("session", "end_reason", "x"),
        ("session", "title", "t" * 101),
        ("session", "title", 5),
        ("session", "labels", "a"),
        ("session", "labels", [1]),
        ("session", "extra", []),
        ("session", "extra", {"a": deep(600)}),
        ("session", "read_through", -1),
        ("session", "read_through", 2**40),
        ("session", "base_seq", 3),
        ("session", "key", "other/terminal/dm"),
        ("session", "key", "main"),
        ("session", "bindings", [{"key": "main/x/dm"}]),
        ("session", "parent_id", "p"),
        ("session", "lineage", "fork"),
        ("session", "project", {"name": ""}),
        ("session", "project", {"name": "x", "colour": "red; }"}),
        ("session", "draft", "x" * 1_000_001),
        ("session", "surprise", 1),
        ("entry", "seq", 0),
        ("entry", "seq", 1.5),
        ("entry", "seq", True),
        ("entry", "at", None),
        ("entry", "kind", "song"),
        ("entry", "role", None),
        ("entry", "role", "king"),
        ("entry", "parts", None),
        ("entry", "parts", {}),
        ("entry", "parts", ["x"]),
        ("entry", "person", {}),
        ("entry", "turn_id", "../t"),
        ("entry", "summary", "x"),
        ("entry", "extra", "x"),
        ("entry", "surprise", 1),
    ],
)
def test_a_wrong_value_is_named_with_its_line(
    fresh: Fresh, where: str, field: str, value: Any
) -> None:
    store = fresh()
    session = {**SESSION, field: value} if where == "session" else SESSION
    entry = {**ENTRY, field: value} if where == "entry" else ENTRY
    with pytest.raises(BadInput, match=f"^Line {2 if where == 'session' else 3} "):
        imported(store, file_of(session, entry, END))
    assert is_empty(store)


@pytest.mark.parametrize(
    "mark",
    [
        {"kind": "compaction", "summary": "s", "through": 5},
        {"kind": "compaction", "through": 1},
        {"kind": "compaction", "summary": 5, "through": 1},
        {"kind": "retraction", "after": 2},
        {"kind": "retraction", "after": -1},
        {"kind": "retraction"},
        {"kind": "retraction", "after": 1, "role": "user"},
    ],
)
def test_a_marker_covers_only_what_came_before_it(fresh: Fresh, mark: dict[str, Any]) -> None:
    store = fresh()
    line = {"line": "entry", "seq": 2, "at": "2026-01-01T00:00:00Z", **mark}
    with pytest.raises(BadInput, match=r"^Line 4 "):
        imported(store, file_of(SESSION, ENTRY, line, {**END, "entries": 2}))
    assert is_empty(store)


def test_a_mark_of_bytes_and_line_ends_of_other_systems_are_taken(fresh: Fresh) -> None:
    text = b"\xef\xbb\xbf" + file_of(SESSION, ENTRY, END).replace(b"\n", b"\r\n") + b"\r\n"
    assert imported(fresh(), text).added == 1


def test_two_exports_one_behind_the_other_are_taken(fresh: Fresh) -> None:
    text = file_of(SESSION, ENTRY, END) + file_of(
        {**SESSION, "id": "s2"}, ENTRY, {**END, "id": "s2"}
    )
    assert imported(fresh(), text).added == 2


def test_a_line_that_is_too_long_is_refused_without_being_held(fresh: Fresh) -> None:
    store = fresh()
    huge = {**ENTRY, "parts": [{"type": "text", "text": "x" * 50_000}]}
    file = io.BytesIO(file_of(SESSION, huge, END))
    with pytest.raises(BadInput, match=r"Line 3 .* longer than 10,000 bytes"):
        jsonl_import.import_jsonl(
            store,
            jsonl_import.lines_of(file, max_line=10_000),
            moment=World(store).moment(),
            max_line=10_000,
        )
    assert is_empty(store)


def test_a_session_that_was_dropped_on_the_way_is_forgotten(fresh: Fresh) -> None:
    store = fresh()
    report = imported(store, file_of(SESSION, ENTRY, {"line": "drop", "id": "s1"}, sessions=0))
    assert report.sessions == 0
    assert is_empty(store)


def test_bytes_that_are_not_what_their_hash_says_are_refused(fresh: Fresh) -> None:
    for blob in (
        {"line": "blob", "hash": "0" * 64, "data": "aGk="},
        {"line": "blob", "hash": "../x", "data": "aGk="},
        {"line": "blob", "hash": "0" * 64, "data": "!"},
    ):
        with pytest.raises(BadInput, match=r"^Line 3 "):
            imported(fresh(), file_of(SESSION, blob, ENTRY, {**END, "blobs": 1}))


def test_an_attachment_without_its_bytes_refuses_its_session_and_no_other(fresh: Fresh) -> None:
    store = fresh()
    torn = {**ENTRY, "parts": [{"type": "attachment", "blob": "0" * 64}]}
    text = file_of(
        SESSION, torn, END, {**SESSION, "id": "s2"}, ENTRY, {**END, "id": "s2"}, sessions=2
    )
    report = imported(store, text)
    assert [each.session_id for each in report.refused] == ["s1"]
    assert World(store).texts("s2") == ["hello"]
    with pytest.raises(NotFound):
        World(store).head("s1")


def test_data_that_looks_like_our_mark_of_a_blob_comes_back_as_it_was(fresh: Fresh) -> None:
    store = fresh()
    content = {"$blob": "0" * 64, "size": 3}
    part = {"type": "tool_result", "call_id": "c", "content": content}
    imported(store, file_of(SESSION, {**ENTRY, "role": "tool", "parts": [part]}, END))
    assert json.dumps(content, separators=(",", ":")).encode() in exported(store)


def test_what_has_grown_in_the_file_is_appended_here(fresh: Fresh) -> None:
    here, there = World(fresh()), World(fresh())
    session = here.session("one", "two")
    imported(there.store, exported(here.store))
    here.append_text(session, "three")
    report = imported(there.store, exported(here.store))
    assert (report.extended, report.entries) == (1, 1)
    assert there.texts(session) == ["one", "two", "three"]
    assert exported(there.store) == exported(here.store)
    assert verify.verify(there.store).broken == ()


def test_what_has_grown_here_stays_as_it_is(fresh: Fresh) -> None:
    here, there = World(fresh()), World(fresh())
    session = here.session("one", "two")
    imported(there.store, exported(here.store))
    there.append_text(session, "three")
    before = exported(there.store)
    assert imported(there.store, exported(here.store)).unchanged == 1
    assert exported(there.store) == before


def test_logs_that_part_are_refused_and_the_others_go_on(fresh: Fresh) -> None:
    here, there = World(fresh()), World(fresh())
    session = here.session("one", "two")
    imported(there.store, exported(here.store))
    here.append_text(session, "three")
    there.append_text(session, "drei")
    fork = here.fork(session)
    here.append_text(fork.id, "four")
    other = here.session("another")
    report = imported(there.store, exported(here.store))
    assert [each.session_id for each in report.refused] == [session, fork.id]
    assert "entry 3" in report.refused[0].reason
    assert there.texts(session) == ["one", "two", "drei"]
    assert there.texts(other) == ["another"]


def test_a_title_that_is_taken_is_numbered(fresh: Fresh) -> None:
    here, there = World(fresh()), World(fresh())
    session = here.session("one", title="Plans")
    there.clock.tick(5)
    there.session("mine", title="Plans")
    report = imported(there.store, exported(here.store))
    assert there.head(session).title == "Plans #2"
    assert "Plans #2" in report.notes[0]


def test_a_title_full_of_tricks_is_cleaned(fresh: Fresh) -> None:
    store = fresh()
    imported(store, file_of({**SESSION, "title": "a\u202eb\x00\n c"}, ENTRY, END))
    assert World(store).head("s1").title == "ab c"


def test_a_key_that_has_an_open_session_here_stays_with_it(fresh: Fresh) -> None:
    here, there = World(fresh()), World(fresh())
    theirs = here.talk("hello")
    there.clock.tick(5)
    mine = there.talk("good day")
    report = imported(there.store, exported(here.store))
    current = there.current(ANN)
    assert current is not None
    assert current.id == mine
    assert there.texts(theirs) == ["hello", "hi!"]
    assert len(report.notes) == 2


def test_a_key_goes_on_where_it_was_in_an_empty_store(fresh: Fresh) -> None:
    here, there = World(fresh()), World(fresh())
    session = here.talk("hello")
    imported(there.store, exported(here.store))
    there.clock.tick(60)
    assert there.talk("again") == session


def test_sessions_go_into_the_profile_that_is_asked_for(fresh: Fresh) -> None:
    here, store = World(fresh()), fresh()
    fill(here)
    report = imported(store, exported(here.store), profile="work")
    assert not report.refused
    assert len(exported(store, profile="main").splitlines()) == 2
    current = World(store, profile="work").current(Source("telegram", "ann-chat", user_id="ann"))
    assert current is not None
    assert verify.verify(store).broken == ()
    again = imported(store, exported(here.store))
    assert again.added == 0
    assert all("another profile" in each.reason for each in again.refused[:1])


def test_a_fork_of_what_is_nowhere_is_refused(fresh: Fresh) -> None:
    store = fresh()
    fork = {**SESSION, "parent_id": "p", "lineage": "fork", "base_seq": 3}
    report = imported(store, file_of(fork, {**ENTRY, "seq": 4}, END))
    assert "neither here nor before it" in report.refused[0].reason
    assert is_empty(store)


def test_a_fork_of_more_than_there_is_is_refused(fresh: Fresh) -> None:
    store = fresh()
    fork = {**SESSION, "id": "f", "parent_id": "s1", "lineage": "fork", "base_seq": 3}
    text = file_of(SESSION, ENTRY, END, fork, {**ENTRY, "seq": 4}, {**END, "id": "f"}, sessions=2)
    assert [each.session_id for each in imported(store, text).refused] == ["f"]


def test_sessions_that_come_from_each_other_are_refused(fresh: Fresh) -> None:
    store = fresh()
    stub = {**SESSION, "id": "a", "through": 0}
    for name in ("source", "last_active_at"):
        del stub[name]
    child = {**SESSION, "id": "b", "parent_id": "a", "lineage": "reset"}
    parent = {**SESSION, "id": "a", "parent_id": "b", "lineage": "reset"}
    text = file_of(
        stub,
        {**END, "id": "a", "entries": 0},
        child,
        ENTRY,
        {**END, "id": "b"},
        parent,
        ENTRY,
        {**END, "id": "a"},
        sessions=3,
    )
    assert "came from it" in imported(store, text).refused[0].reason


def test_a_purged_session_comes_back_by_import(fresh: Fresh) -> None:
    world = World(fresh())
    made = fill(world)
    text = exported(world.store)
    for name in ("talk", "rich"):
        world.purge(made[name])
    assert imported(world.store, text).added == 2
    assert sorted(exported(world.store).splitlines()) == sorted(text.splitlines())
    assert verify.verify(world.store).broken == ()


def long_session(entries: int) -> Iterator[bytes]:
    yield b'{"sessionary":1}\n'
    yield json.dumps(SESSION).encode() + b"\n"
    for seq in range(1, entries + 1):
        line = {**ENTRY, "seq": seq, "role": "assistant" if seq % 2 == 0 else "user"}
        yield json.dumps(line).encode() + b"\n"
    yield json.dumps({**END, "entries": entries}).encode() + b"\n"
    yield b'{"line":"close","sessions":1}\n'


def test_a_long_session_is_shown_only_when_it_is_whole(
    fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fresh()
    seen: list[int] = []
    put = jsonl_import._put

    def watched(tx: Any, *args: Any, **kwargs: Any) -> int:
        seen.append(len(tx.all("page_of_sessions", profile="main", after=0, limit=9)))
        assert tx.one("get_head", id="s1", profile="main") is None
        if len(seen) == 3 and not stopped:
            stopped.append(True)
            raise BadInput("the power fails")
        return put(tx, *args, **kwargs)

    stopped: list[bool] = []
    monkeypatch.setattr(jsonl_import, "_put", watched)
    lines = list(long_session(2500))
    first = jsonl_import.import_jsonl(store, lines, moment=World(store).moment())
    assert len(first.refused) == 1
    again = jsonl_import.import_jsonl(store, lines, moment=World(store).moment())
    assert again.added == 1
    assert again.entries == 2500 - 2 * jsonl_import.BATCH_LINES
    assert World(store).head("s1").message_count == 2500
    assert verify.verify(store).broken == ()


def test_memory_stays_small_however_long_a_session_is(fresh: Fresh) -> None:
    store = fresh()
    tracemalloc.start()
    try:
        report = jsonl_import.import_jsonl(
            store, long_session(20_000), moment=World(store).moment()
        )
        count = sum(1 for _ in jsonl_import.lines_of(io.BytesIO(exported(store))))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert report.entries == 20_000
    assert count == 20_004
    assert peak < 60 * 1024 * 1024


def test_limits_of_the_format_are_those_it_publishes() -> None:
    assert record.MAX_LINE == 400 * 1024 * 1024
    assert record.MAX_DEPTH == 500
