"""`export --as hermes-state`: a file that programs read by SQL, and that our own importer reads back."""

import json
import re
import sqlite3
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessionary.actions.sessions import edit, revise
from sessionary.actions.transfer.export import transcript_of
from sessionary.clock import RandomIds, SystemClock
from sessionary.compat.hermes.state_file import export_state
from sessionary.errors import BadInput, Conflict, NotFound
from sessionary.importers.hermes import IMPORTER
from sessionary.model.message import (
    Attachment,
    Compaction,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
    to_json,
)
from sessionary.model.record import WHOLE, ExportOptions
from sessionary.model.session import Lineage, SessionHead
from sessionary.store.database import Store
from sessionary.store.open import open_store
from sessionary.store.tables import imports
from sessionary.testing.importer_world import ImportedStore
from tests.compat.hermes.conftest import Opener
from tests.store.conftest import opened
from tests.support.transfer import HOSTILE, PICTURE, fill
from tests.support.world import World

Row = dict[str, Any]


@pytest.fixture
def world(address: str) -> Iterator[World]:
    store = opened(address if "://" in address else f"sqlite:///{_made(Path(address))}")
    yield World(store)
    store.close()


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    return path


def in_memory() -> Store:
    return open_store("sqlite::memory:", create=True, clock=SystemClock(), ids=RandomIds())


@pytest.fixture
def archive() -> Iterator[ImportedStore]:
    """An empty store for what is imported again."""
    store = in_memory()
    yield ImportedStore(store)
    store.close()


def rows(path: Path, sql: str, *values: object) -> list[Row]:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        return [dict(each) for each in connection.execute(sql, values)]
    finally:
        connection.close()


def take(archive: ImportedStore, path: Path) -> None:
    report = archive.take_all(IMPORTER, path)
    assert report.skipped == 0
    archive.check()


def test_all_that_a_session_has_is_there_when_it_is_imported_again(
    world: World, archive: ImportedStore, tmp_path: Path
) -> None:
    made = fill(world)
    file = tmp_path / "state.db"
    world.write(edit.set_system_prompt, made["rich"], "Be brief.", profile="main")

    count = export_state(world.store, file, profile="main")
    take(archive, file)

    exported = ("talk", "next", "rich", "fork", "shared", "asked", "heir")
    assert count == len(exported) == archive.count()
    for name in exported:
        before, after = world.head(made[name]), archive.session("hermes", made[name])
        assert after.title == before.title
        assert after.began_at == before.began_at
        assert after.ended_at == before.ended_at
        assert (after.pinned, after.archived) == (before.pinned, before.archived)
        assert after.source.chat_name == before.source.chat_name
        assert told(archive.store, after) == told(world.store, before), name
        for total in ("input_tokens", "output_tokens", "known_cost_microusd"):
            assert getattr(after.usage, total) == getattr(before.usage, total)
    assert "summary" in [
        kind for _, kind, *_ in told(archive.store, archive.session("hermes", made["shared"]))
    ]
    fork = archive.session("hermes", made["fork"])
    rich = archive.session("hermes", made["rich"])
    assert (fork.parent_id, fork.lineage) == (rich.id, Lineage.FORK)
    assert fork.base_seq > 0
    bodies = [entry.body for entry in archive.log("hermes", made["rich"])]
    [picture] = [
        part
        for body in bodies
        if isinstance(body, Message)
        for part in body.parts
        if isinstance(part, Attachment)
    ]
    assert (picture.media_type, picture.size) == ("image/png", len(PICTURE))


def told(store: Store, head: SessionHead) -> list[tuple[object, ...]]:
    """What people read of a session, in a form that does not depend on how its messages are cut."""
    return [
        (entry.at, *each)
        for entry in transcript_of(store, head, WHOLE)
        for each in items(entry.body)
    ]


def items(body: object) -> Iterator[tuple[object, ...]]:
    if isinstance(body, Compaction):
        yield "summary", body.summary.removeprefix("[CONTEXT SUMMARY] ")
    if not isinstance(body, Message):
        return
    for part in body.parts:
        if isinstance(part, Reasoning) and (part.text.strip() or part.details):
            yield "reasoning", storable(part.text), plain(part.details)
    if text := "\n".join(part.text for part in body.parts if isinstance(part, Text)):
        yield "text", body.role, text
    for part in body.parts:
        match part:
            case ToolCall():
                yield (
                    "call",
                    part.id,
                    part.name,
                    plain({} if part.arguments is None else part.arguments),
                )
            case ToolResult():
                content = "" if part.content is None else part.content
                yield "result", storable(part.call_id), plain(content)
            case Attachment():
                yield "file", part.blob, part.media_type
            case Unknown():
                yield "unknown", plain(to_json(part))


def storable(text: str) -> str:
    """A text as a column of SQLite has it, without lone surrogates."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def plain(value: object) -> str:
    """A value, or the JSON text of one, in one form."""
    if isinstance(value, str):
        try:
            parsed: object = json.loads(value)
        except ValueError:
            return value
        return value if isinstance(parsed, str) else json.dumps(parsed, sort_keys=True)
    return json.dumps(value, sort_keys=True)


def test_a_chain_of_a_hermes_program_is_one_conversation_again(
    open_db: Opener, archive: ImportedStore, tmp_path: Path
) -> None:
    db = open_db()
    call = {"id": "c1", "type": "function", "function": {"name": "grep", "arguments": "{}"}}
    db.create_session("root", "cli", model="m", model_config={"t": 1}, system_prompt="Be brief.")
    db.set_session_title("root", "Harbour")
    db.append_message("root", "user", [{"type": "text", "text": "look"}], platform_message_id="7")
    db.append_message("root", "assistant", "", tool_calls=[call], reasoning="why")
    db.append_message("root", "tool", "out", tool_call_id="c1")
    db.append_message("root", "developer", "be kind", tool_name="clock", observed=True)
    db.update_token_counts("root", 10, 5, model="m", estimated_cost_usd=0.25, api_call_count=2)
    db.end_session("root", "compression")
    db.create_session("tip", "cli", parent_session_id="root")
    db.append_message("tip", "user", "go on")
    file = tmp_path / "state.db"

    assert export_state(db._store.store, file, profile="main") == 2
    take(archive, file)

    [row] = rows(file, "SELECT * FROM sessions WHERE id = 'root'")
    known = db.get_session("root")
    assert known is not None
    assert {name: row[name] for name in known} == known
    parsed = ("tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items")
    stored = rows(file, "SELECT * FROM messages WHERE session_id = 'root' ORDER BY id")
    for shown, found in zip(db.get_messages("root"), stored, strict=True):
        for name in set(shown) - {"id", "content", "tool_name"}:
            value = found[name]
            is_json = name in parsed and value is not None
            assert (json.loads(value) if is_json else value) == shown[name], name
    assert [each["tool_name"] for each in stored] == [None, None, "grep", "clock"]
    assert stored[0]["content"] == '\x00json:[{"type": "text", "text": "look"}]'
    assert archive.count() == 1
    head = archive.session("hermes", "root")
    assert (head.title, head.message_count, head.usage.input_tokens) == ("Harbour", 5, 10)


def test_programs_find_messages_by_sql(world: World, tmp_path: Path) -> None:
    session = world.session("where is the lighthouse", "let me look", title="Coast")
    world.append(session, Message(Role.ASSISTANT, (ToolCall("c1", "find_tower", {"a": 1}),)))
    world.append(session, Message(Role.TOOL, (ToolResult("c1", "灯塔在海边"),)))
    file = tmp_path / "state.db"
    export_state(world.store, file, profile="main")

    search = "SELECT m.role FROM {0} JOIN messages m ON m.id = {0}.rowid WHERE {0} MATCH ?"
    assert rows(file, search.format("messages_fts"), "lighthouse") == [{"role": "user"}]
    found = rows(file, search.format("messages_fts"), '"find_tower"')
    assert [each["role"] for each in found] == ["assistant", "tool"]
    assert rows(file, search.format("messages_fts_trigram"), "在海边") == [{"role": "tool"}]
    assert rows(file, "SELECT version FROM schema_version") == [{"version": 14}]
    [row] = rows(file, "SELECT source, title, message_count, tool_call_count FROM sessions")
    assert row == {"source": "telegram", "title": "Coast", "message_count": 4, "tool_call_count": 1}


def test_only_the_named_sessions_are_written_and_the_trash_only_by_name(
    world: World, tmp_path: Path
) -> None:
    parent = world.session("one")
    child = world.fork(parent).id
    thrown = world.session("two")
    world.write(edit.trash, thrown, profile="main", moment=world.moment())
    file = tmp_path / "state.db"

    def written(ids: list[str] | None) -> list[tuple[str, str | None]]:
        export_state(world.store, file, ids, profile="main", overwrite=True)
        found = rows(file, "SELECT id, parent_session_id FROM sessions ORDER BY started_at, id")
        return [(row["id"], row["parent_session_id"]) for row in found]

    assert written(None) == [(parent, None), (child, parent)]
    assert written([child]) == [(child, None)]
    assert written([thrown]) == [(thrown, None)]
    with pytest.raises(NotFound):
        export_state(world.store, file, ["nobody"], profile="main", overwrite=True)
    assert [row["id"] for row in rows(file, "SELECT id FROM sessions")] == [thrown]
    assert [each.name for each in tmp_path.glob(".state.db*")] == []


def test_an_existing_file_stays_and_a_new_one_is_private(world: World, tmp_path: Path) -> None:
    world.session("hello")
    file = tmp_path / "state.db"
    export_state(world.store, file, profile="main")

    with pytest.raises(Conflict, match="exists already and was not changed"):
        export_state(world.store, file, profile="main")

    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(NotFound, match="no directory"):
        export_state(world.store, tmp_path / "none" / "state.db", profile="main")


def test_options_leave_out_what_they_say(world: World, tmp_path: Path) -> None:
    session = world.session("call me: +49 170 1234567", system_prompt="key sk-" + "a1B2" * 12)
    calls = (Reasoning("secret thought"), ToolCall("c1", "grep", {}))
    world.append(session, Message(Role.ASSISTANT, calls))
    file = tmp_path / "state.db"

    options = ExportOptions(tools=False, reasoning=False, redact=True, mask_secrets=True)
    export_state(world.store, file, profile="main", options=options)

    text = file.read_bytes()
    for hidden in (b"1234567", b"secret thought", b"grep", b"a1B2a1B2"):
        assert hidden not in text


def test_memory_stays_small_whatever_a_session_has(tmp_path: Path) -> None:
    store = in_memory()
    world = World(store)
    session = world.session("hello")
    for number in range(600):
        world.append_text(session, f"{number} " + "word " * 8000)
    tracemalloc.start()
    try:
        export_state(store, tmp_path / "state.db", profile="main")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        store.close()

    assert (tmp_path / "state.db").stat().st_size > 20_000_000
    assert peak < 12_000_000


words = st.text(st.characters(), max_size=20) | st.sampled_from(
    [
        "\ud800",
        "\x00",
        "\x00json:[1]",
        "a\u2028b",
        "",
        "[]",
        "null",
        "\U0001f600" * 40,
        HOSTILE,
        "x" * 70_000,
    ]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(["grep", "日本", "odd \ud800 name", "a.b-c"])
steps = st.lists(
    st.tuples(st.sampled_from(["user", "system"]), st.integers(0, 5), words)
    | st.tuples(st.just("call"), st.integers(0, 5), st.tuples(words, names, json_values))
    | st.tuples(st.just("result"), st.integers(0, 5), json_values)
    | st.tuples(
        st.sampled_from(["fork", "retract", "compact", "trash"]),
        st.integers(0, 5),
        st.integers(1, 9),
    ),
    max_size=12,
)


def live(world: World, script: list[tuple[str, int, Any]]) -> None:
    """Do what the script says, as far as the store allows it; texts and calls are numbered."""
    known = [world.session("first")]
    calls = 0
    for number, (verb, which, what) in enumerate(script):
        session = known[which % len(known)]
        try:
            match verb:
                case "user" | "system":
                    world.append_text(session, f"{number} {what}", verb)
                case "call":
                    calls += 1
                    text, name, arguments = what
                    parts = (
                        Reasoning(text),
                        Text(f"{number} {text}"),
                        ToolCall(f"c{calls}", name, arguments),
                    )
                    world.append(session, Message(Role.ASSISTANT, parts))
                case "result":
                    # Of the newest call, or of none: each result has an id of its own.
                    result = ToolResult(f"c{calls}.{number}", what)
                    world.append(session, Message(Role.TOOL, (result,)))
                case "fork":
                    known.append(world.fork(session, what).id)
                case "retract":
                    at = world.clock.tick()
                    world.write(revise.retract, session, profile="main", after=what, at=at)
                case "compact":
                    at = world.clock.tick()
                    world.write(
                        revise.compact,
                        session,
                        f"so far {number}",
                        profile="main",
                        through=what,
                        at=at,
                    )
                case "trash":
                    world.write(edit.trash, session, profile="main", moment=world.moment())
        except (BadInput, Conflict, NotFound):
            continue


def is_imported(store: Store, id: str) -> bool:
    found = store.read(imports.find_session, id, profile="main", tool="hermes").result()
    return found is not None


@settings(max_examples=40)
@given(script=steps)
def test_any_conversation_comes_back_from_the_file(script: list[tuple[str, int, Any]]) -> None:
    here, there = in_memory(), in_memory()
    try:
        with TemporaryDirectory() as folder:
            live(World(here), script)
            file = Path(folder) / "state.db"
            count = export_state(here, file, profile="main")
            archive = ImportedStore(there)
            take(archive, file)
        heads = [head for head in ImportedStore(here).heads() if head.trashed_at is None]
        assert count == len(heads)
        stories = {head.id: told(here, head) for head in heads}
        for head in heads:
            if is_imported(there, head.id):
                after = archive.session("hermes", head.id)
                assert told(there, after) == stories[head.id]
                assert after.parent_id is None or after.lineage is Lineage.FORK
            else:
                # An import leaves out what is empty, and a fork that says nothing of its own.
                origin = stories.get(head.parent_id or "", [])
                assert stories[head.id] == origin[: len(stories[head.id])]
    finally:
        here.close()
        there.close()
