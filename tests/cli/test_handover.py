"""`sessionary export --as`: a session for another tool."""

import json
from pathlib import Path

import pytest

from sessionary.model.handover.forms import HANDOVER_FORMATS
from tests.cli.conftest import Program


@pytest.fixture
def talking(sessionary: Program) -> Program:
    sessionary.append("new", "hello", "--title", "Capitals")
    sessionary.append("Capitals", "hi", "--role", "assistant")
    return sessionary


@pytest.mark.parametrize("tool", list(HANDOVER_FORMATS))
def test_a_file_is_written_and_the_next_step_is_named(
    talking: Program, tmp_path: Path, tool: str
) -> None:
    path = tmp_path / "session"

    answer = talking("export", "Capitals", "--as", tool, "-o", str(path))

    assert answer.code == 0
    assert str(path) in answer.out.splitlines()[1]
    for line in (
        path.read_text().splitlines()
        if HANDOVER_FORMATS[tool].suffix == "jsonl"
        else [path.read_text()]
    ):
        json.loads(line)
    assert "hello" in path.read_text()


def test_a_pipe_gets_the_file_alone(talking: Program) -> None:
    answer = talking("export", "Capitals", "--as", "openai")

    assert answer.json == [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "hi"},
    ]
    assert "messages" in answer.line


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--all", "--as", "codex"], "one session"),
        (["Capitals", "--as", "codex", "--json"], "--json with --as codex needs -o FILE"),
        (["Capitals", "Capitals", "--as", "codex"], "one session"),
        (["Capitals", "--as", "codex", "--format", "md"], "not --format"),
        (["Capitals", "--budget", "5"], "needs --as"),
        (["Capitals", "--as", "codex", "--budget", "0"], "from 1 up"),
        (["Nowhere", "--as", "codex"], "Nowhere"),
    ],
)
def test_what_does_not_go_together_is_refused_in_words(
    talking: Program, arguments: list[str], why: str
) -> None:
    answer = talking("export", *arguments)

    assert answer.code != 0
    assert why in answer.err
    assert "Traceback" not in answer.err


def test_sessions_become_a_file_for_sql_and_come_back(talking: Program, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    talking.append("new", "another", "--title", "Rivers")

    written = talking("export", "--as", "hermes-state", str(path), "--json")
    again = talking("export", "--as", "hermes-state", str(path))
    one = talking("export", "Rivers", "--as", "hermes-state", str(path), "--force")

    assert (written.json["as"], written.json["sessions"]) == ("hermes-state", 2)
    assert written.json["bytes"] > 0
    assert (again.code, "exists already" in again.line) == (1, True)
    assert one.out == f"{path}: 1 session, {one.out.rpartition(', ')[2]}"
    assert talking("import", "hermes", str(path), "--json").json["added"] == 1


def test_a_session_is_not_taken_for_the_name_of_the_file(
    talking: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    talking.append("new", "another", "--title", "Rivers")

    answer = talking("export", "Rivers", "--as", "hermes-state")

    assert answer.code == 2
    assert "'Rivers' is a session. Name the file after it" in answer.line
    assert not (tmp_path / "Rivers").exists()


@pytest.mark.parametrize(
    "arguments",
    [["--as", "hermes-state"], ["state.db", "--as", "hermes-state", "--budget", "5"]],
)
def test_a_file_for_sql_needs_a_name_and_no_budget(talking: Program, arguments: list[str]) -> None:
    answer = talking("export", *arguments)

    assert answer.code == 2
    assert "--as hermes-state takes a FILE" in answer.line
