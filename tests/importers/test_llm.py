"""The log of `llm`, as it was and as it is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sessionary.importers.llm import IMPORTER
from sessionary.model.message import (
    Attachment,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from sessionary.store.tables.blobs import hash_of
from sessionary.testing.importer_world import ImportedStore
from tests.importers import rubbish
from tests.importers.write_llm import (
    PICTURE,
    Log,
    a_day_at_the_mill,
    a_day_by_hash,
    a_day_in_chains,
    words,
)

IMAGE = Attachment(hash_of(PICTURE), "image/png", None, len(PICTURE))


@pytest.fixture
def older(tmp_path: Path) -> Iterator[Log]:
    made = Log(tmp_path / "older")
    a_day_at_the_mill(made)
    yield made
    made.close()


@pytest.fixture
def newer(tmp_path: Path) -> Iterator[Log]:
    made = Log(tmp_path / "newer", is_new=True)
    a_day_in_chains(made)
    yield made
    made.close()


@pytest.fixture
def hashed(tmp_path: Path) -> Iterator[Log]:
    made = Log(tmp_path / "hashed", is_hashed=True)
    a_day_by_hash(made)
    yield made
    made.close()


def test_prompts_and_responses_become_conversations(archive: ImportedStore, older: Log) -> None:
    report = archive.take_all(IMPORTER, older.path)

    assert (report.added, report.skipped) == (2, 0)
    messages = archive.messages("llm", "t1")
    roles = [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert [message.role for message in messages] == roles
    assert [part for message in messages for part in message.parts] == [
        Text("Be kind."),
        Text("A fragment.\nWhat is in a.txt?"),
        IMAGE,
        ToolCall("c1", "read", {"path": "a.txt"}),
        ToolResult("c1", "flour", "read"),
        Text("Flour."),
    ]
    assert archive.texts("llm", "r003") == ["Alone.", "Yes."]
    head = archive.session("llm", "t1")
    assert (head.title, head.model) == ("The mill", "gpt-5")
    assert (head.usage.calls, head.usage.input_tokens, head.usage.cache_read_tokens) == (2, 120, 80)
    archive.check_again(IMPORTER, older.path)


def test_only_the_conversation_that_grew_is_read_again(archive: ImportedStore, older: Log) -> None:
    archive.take_all(IMPORTER, older.path)

    older.respond("Grind it.", "Ground.")
    report = archive.take_all(IMPORTER, older.path.parent)

    assert (report.unchanged_units, report.messages) == (1, 2)
    assert archive.texts("llm", "t1")[-2:] == ["Grind it.", "Ground."]
    archive.check()


def test_chains_become_a_tree(archive: ImportedStore, newer: Log) -> None:
    report = archive.take_all(IMPORTER, newer.path)

    assert (report.added, report.skipped) == (1, 0)
    assert archive.texts("llm", "t1") == ["What is in a.txt?", "I cannot see."]
    bodies = [entry.body for entry in archive.log("llm", "t1")]
    parts = [part for body in bodies if isinstance(body, Message) for part in body.parts]
    assert parts == [
        Text("What is in a.txt?"),
        IMAGE,
        Reasoning("I read it"),
        ToolCall("c1", "read", {"path": "a.txt"}),
        ToolResult("c1", "flour", "read"),
        IMAGE,
        Text("Flour."),
        Text("I cannot see."),
    ]
    assert archive.session("llm", "t1").usage.calls == 3
    archive.check_again(IMPORTER, newer.path)

    asked = ("user", [*words("What is in a.txt?"), {"type": "attachment", "attachment_id": "a1"}])
    longer = newer.chain(asked, ("assistant", words("I cannot see.")), ("user", words("Try.")))
    newer.turn(longer[1], longer[2])
    archive.take_all(IMPORTER, newer.path)
    assert archive.texts("llm", "t1") == ["What is in a.txt?", "I cannot see.", "Try."]
    archive.check()


def test_messages_named_by_their_hash_become_a_conversation(
    archive: ImportedStore, hashed: Log
) -> None:
    report = archive.take_all(IMPORTER, hashed.path)

    assert (report.added, report.skipped) == (1, 0)
    parts = [part for message in archive.messages("llm", "t1") for part in message.parts]
    assert parts == [
        Text("Be kind."),
        Text("A fragment.What is in a.txt?"),
        IMAGE,
        Reasoning("I read it"),
        ToolCall("c1", "read", {"path": "a.txt"}),
        ToolResult("c1", "flour", "read"),
        IMAGE,
        Text("Flour."),
    ]
    head = archive.session("llm", "t1")
    assert (head.title, head.model) == ("The mill", "gpt-5")
    assert (head.usage.calls, head.usage.input_tokens, head.usage.cache_read_tokens) == (2, 120, 80)
    archive.check_again(IMPORTER, hashed.path)


def test_two_turns_that_end_in_the_same_message_are_both_paid(
    archive: ImportedStore, hashed: Log
) -> None:
    asked, answered = hashed.hashed(("user", words("Again?")), ("assistant", words("Yes.")))
    for _ in range(2):
        hashed.hashed_turn(asked, answered, "t2")

    archive.take_all(IMPORTER, hashed.path)

    assert archive.session("llm", "t2").usage.calls == 2


def test_a_missing_message_is_reported(archive: ImportedStore, hashed: Log) -> None:
    hashed.hashed_turn("b2:gone", "b2:gone", "t3")

    report = archive.take_all(IMPORTER, hashed.path)

    assert [(fault.where, fault.why) for fault in report.faults] == [
        ("message b2:gone", "it is not in the database")
    ]


def test_damage_is_survived(older: Log, newer: Log, hashed: Log, tmp_path: Path) -> None:
    rubbish.survives(IMPORTER, hashed.path.parent, tmp_path, times=80)
    rubbish.survives(IMPORTER, older.path.parent, tmp_path, times=80)
    rubbish.survives(IMPORTER, newer.path.parent, tmp_path, times=80)


def test_it_is_recognised(older: Log, newer: Log, tmp_path: Path) -> None:
    assert IMPORTER.recognises(older.path)
    assert IMPORTER.recognises(newer.path)
    assert not IMPORTER.recognises(newer.path.parent)
