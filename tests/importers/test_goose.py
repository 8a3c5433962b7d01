"""Goose's sessions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sessionary.importers.goose import IMPORTER
from sessionary.model.message import Attachment, Reasoning, Role, ToolCall, ToolResult
from sessionary.model.session import Kind, Lineage
from sessionary.store.tables.blobs import hash_of
from sessionary.testing.importer_world import ImportedStore
from tests.importers.write_goose import PICTURE, GooseBase, a_day_at_the_mill, words

TEXTS = ["What is in a.txt?", "", "", "Flour.", "Flour was found.", ""]


@pytest.fixture
def base(tmp_path: Path) -> Iterator[GooseBase]:
    made = GooseBase(tmp_path / "goose", ledger=True)
    made.session("20260201_1")
    a_day_at_the_mill(made, "20260201_1")
    yield made
    made.close()


def test_a_session_comes_over_as_it_was(archive: ImportedStore, base: GooseBase) -> None:
    base.paid("20260201_1", 100, 10, 0.001)
    base.paid("20260201_1", 200, 20, 0.002)

    report = archive.take_all(IMPORTER, base.path)

    head = archive.session("goose", "20260201_1")
    assert (report.added, report.skipped) == (1, 0)
    assert archive.texts("goose", "20260201_1") == TEXTS
    messages = archive.messages("goose", "20260201_1")
    assert [message.role for message in messages[2:5]] == [Role.TOOL, Role.ASSISTANT, Role.SYSTEM]
    parts = [part for message in messages for part in message.parts]
    picture = Attachment(hash_of(PICTURE), "image/png", None, len(PICTURE))
    assert parts[1:6] == [
        picture,
        Reasoning("I read it", {"signature": "sig"}),
        ToolCall("c1", "read", {"path": "a.txt"}),
        ToolResult("c1", "flour"),
        picture,
    ]
    assert parts[-1] == ToolResult("c2", "the mill is broken", is_error=True)
    assert (head.title, head.model) == ("The mill", "gpt-5")
    assert (head.usage.calls, head.usage.output_tokens, head.usage.cost_microusd) == (2, 30, 3000)
    archive.check_again(IMPORTER, base.path)


def test_only_the_session_that_grew_is_read_again(archive: ImportedStore, base: GooseBase) -> None:
    base.session("20260201_2", parent="20260201_1")
    base.say("20260201_2", "user", words("Dig."))
    archive.take_all(IMPORTER, base.path.parent)

    base.say("20260201_1", "user", words("Grind it."))
    report = archive.take_all(IMPORTER, base.path.parent)

    assert (report.unchanged_units, report.messages) == (1, 1)
    assert archive.texts("goose", "20260201_1") == [*TEXTS, "Grind it."]
    head = archive.session("goose", "20260201_2")
    assert (head.kind, head.lineage) == (Kind.SUBAGENT, Lineage.SUBAGENT)
    archive.check()


def test_sums_count_where_calls_were_not_noted(archive: ImportedStore, tmp_path: Path) -> None:
    older = GooseBase(tmp_path / "older")
    older.session("1")
    older.say("1", "user", words("a"))
    older.close()

    archive.take_all(IMPORTER, older.path)

    used = archive.session("goose", "1").usage
    assert (used.calls, used.input_tokens, used.cost_microusd) == (1, 1000, 10_000)


def test_it_is_recognised(base: GooseBase, tmp_path: Path) -> None:
    assert IMPORTER.recognises(base.path)
    assert not IMPORTER.recognises(base.path.parent)
