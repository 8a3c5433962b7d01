"""Aider's histories."""

from pathlib import Path

import pytest

from sessionary.importers.aider import IMPORTER
from sessionary.importers.base.events import UserEnvironment
from sessionary.model.message import Role
from sessionary.testing.importer_world import ImportedStore
from tests.importers.write_aider import FIRST, SECOND

NAME = "mill 2026-02-01 09:00:00"


@pytest.fixture
def history(tmp_path: Path) -> Path:
    path = tmp_path / "src" / "mill" / ".aider.chat.history.md"
    path.parent.mkdir(parents=True)
    path.write_text(FIRST + SECOND)
    return path


def test_each_start_is_a_session(archive: ImportedStore, history: Path, tmp_path: Path) -> None:
    report = archive.take_all(IMPORTER, tmp_path / "src")

    assert (report.added, report.skipped) == (2, 0)
    messages = archive.messages("aider", NAME)
    spoken = [
        (message.role, message.text) for message in messages if message.role is not Role.SYSTEM
    ]
    assert spoken[0] == (Role.USER, "What is in a.txt?\nSay it briefly.")
    quoted = "```text\n> this is quoted inside an answer\n```"
    assert spoken[1] == (Role.ASSISTANT, f"Flour.\n\n{quoted}")
    assert spoken[-2:] == [(Role.USER, "Grind it."), (Role.ASSISTANT, "The mill is broken.")]
    assert archive.texts("aider", "mill 2026-02-02 09:00:00") == ["Another day.", "Yes."]
    assert archive.session("aider", NAME).model == "gpt-5"
    archive.check_again(IMPORTER, tmp_path / "src", history)


def test_a_history_that_grew_adds_what_is_new(archive: ImportedStore, history: Path) -> None:
    archive.take_all(IMPORTER, history)

    history.write_text(FIRST + SECOND + "#### And more.\n")
    report = archive.take_all(IMPORTER, history)

    assert (report.extended, report.unchanged, report.messages) == (1, 1, 1)
    assert archive.texts("aider", "mill 2026-02-02 09:00:00")[-1] == "And more."
    archive.check()


def test_two_that_began_in_one_second_are_two(archive: ImportedStore, history: Path) -> None:
    history.write_text(SECOND + SECOND.replace("Yes", "No"))

    archive.take_all(IMPORTER, history)

    assert archive.texts("aider", "mill 2026-02-02 09:00:00 #2") == ["Another day.", "No."]


def test_a_start_without_a_question_is_no_session(archive: ImportedStore, history: Path) -> None:
    empty = "# aider chat started at 2026-02-03 09:00:00\n\n> Aider v0.86.2  \n> Main model: gpt-5  \n\n"
    history.write_text(empty + SECOND + empty.replace("02-03", "02-04"))

    report = archive.take_all(IMPORTER, history)

    assert (report.added, report.left_out) == (1, {"starts without a question": 2})
    assert [head.title for head in archive.heads()] == [None]


def test_what_a_call_used_is_taken_as_aider_tells_it(archive: ImportedStore, history: Path) -> None:
    log = (
        "# aider chat started at 2026-02-03 09:00:00\n\n> Main model: gpt-4o with diff edit format  \n\n"
        "#### Grind it.  \n\nGround.\n\n"
        "> Tokens: 2.4k sent, 7 received. Cost: $0.0062 message, $0.0062 session.  \n\n"
        "#### Again.  \n\nAgain.\n\n"
        "> Tokens: 12k sent, 1.0k cache write, 9.0k cache hit, 801 received.  \n\n"
        "#### Quote.  \n\n```\n> Tokens: 99 sent, 99 received.\n```\n"
    )
    history.write_text(log)

    archive.take_all(IMPORTER, history)

    used = archive.session("aider", "mill 2026-02-03 09:00:00").usage
    assert (used.calls, used.input_tokens, used.output_tokens) == (2, 2400 + 2000, 808)
    assert (used.cache_read_tokens, used.cache_write_tokens) == (9000, 1000)
    archive.check_again(IMPORTER, history, history)


def test_a_home_directory_is_not_searched(tmp_path: Path) -> None:
    assert IMPORTER.places(UserEnvironment(tmp_path)) == []


def test_it_is_recognised(history: Path, tmp_path: Path) -> None:
    assert IMPORTER.recognises(history)
    assert not IMPORTER.recognises(history.parent)
