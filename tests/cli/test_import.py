"""`sessionary import`: what is on a machine, and how it comes over."""

import os
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.conftest import Program
from tests.cli.test_refusals import obey_permissions
from tests.importers.write_claude_code import Tape, new_uuid, text
from tests.importers.write_codex import Rollout


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory in which two tools were used."""
    home = tmp_path / "mia"
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    a_session(home, days=26)
    rollout = Rollout(home / ".codex")
    rollout.turn("And bed 4?")
    rollout.write()
    return home


def a_session(home: Path, *, days: float) -> Tape:
    id = new_uuid()
    tape = Tape(home / ".claude" / "projects" / "-garden" / f"{id}.jsonl", id)
    tape.prompt("What grows in bed 3?")
    tape.answer(text("Leeks."))
    tape.write(at=time.time() - days * 86_400)
    return tape


def test_without_arguments_it_says_what_is_on_the_machine(
    sessionary: Program, machine: Path
) -> None:
    answer = sessionary("import")
    found = sessionary("import", "--json").json["items"]

    assert "sessionary import --all" in answer.out
    assert "Claude Code will delete 1 new file within a week, the first in 4 days." in answer.out
    assert [(each["tool"], each["units"], each["new_units"]) for each in found] == [
        ("claude-code", 1, 1),
        ("codex", 1, 1),
    ]
    assert found[0]["expiring"] == 1
    assert not sessionary.home.exists()


def test_all_of_it_is_imported_once(sessionary: Program, machine: Path) -> None:
    looked = sessionary("import", "--all", "--dry-run")
    assert not sessionary.home.exists()
    first = sessionary("import", "--all", "--json").json
    again = sessionary("import", "--all", "--json").json
    answer = sessionary("import")

    assert "1 session would be added: 2 messages read. Nothing was changed." in looked.out
    assert (first["added"], first["messages"]) == (2, 3)
    assert (again["added"], again["extended"], again["messages"]) == (0, 0, 0)
    assert "All of it is here already." in answer.out
    assert len(sessionary.ids()) == 2


def test_a_source_or_a_path_is_enough(sessionary: Program, machine: Path, tmp_path: Path) -> None:
    tape = a_session(tmp_path / "elsewhere", days=3)

    by_path = sessionary("import", str(tape.path), "--json").json
    by_name = sessionary("import", "codex", "--json").json
    both = sessionary("import", "claude-code", str(tmp_path / "elsewhere"), "--json").json

    assert [each["tool"] for each in by_path["tools"]] == ["claude-code"]
    assert (by_path["added"], by_name["added"], both["added"]) == (1, 1, 0)


def test_what_could_not_be_read_is_reported_with_its_place(
    sessionary: Program, machine: Path
) -> None:
    tape = a_session(machine, days=2)
    with tape.path.open("ab") as file:
        file.write(b'{"broken\n')

    answer = sessionary("import", "claude-code")

    assert answer.code == 0
    assert f"{tape.path}: line 3: not JSON" in answer.out
    assert "1 skipped" in answer.out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["claude-cod"], "There is no file claude-cod (did you mean the source claude-code"),
        (["pi"], "No records of Pi were found. Looked in "),
        (["claude-code", "NOWHERE"], "There is no file "),
        (["NOTES"], "is no record that is known here; nothing was imported."),
        (["PIPE"], "is neither a file nor a directory"),
        (["--all", "codex"], "--all takes no SOURCE and no PATH."),
        (["--watch", "--dry-run"], "--watch imports; it cannot be a --dry-run."),
        (["--watch", "-"], "Only the records of other tools can be watched"),
        (["a\x00b"], "A path cannot hold that character"),
    ],
)
def test_a_mistake_is_explained(
    sessionary: Program, machine: Path, tmp_path: Path, words: list[str], expected: str
) -> None:
    (tmp_path / "NOTES").write_text("dear diary\n")
    os.mkfifo(tmp_path / "PIPE")
    given = [str(tmp_path / word) if word.isupper() else word for word in words]

    answer = sessionary("import", *given)

    assert answer.code != 0
    assert expected in answer.line


def test_the_store_is_not_read_by_whatever_name(
    sessionary: Program, machine: Path, tmp_path: Path
) -> None:
    sessionary.append("new", "hello")
    linked, pointed = tmp_path / "linked.jsonl", tmp_path / "pointed.jsonl"
    os.link(sessionary.database, linked)
    pointed.symlink_to(sessionary.database)

    answers = [
        sessionary("import", str(linked)),
        sessionary("import", "claude-code", str(pointed)),
        sessionary("import", "codex", str(sessionary.home)),
    ]

    assert [answer.code for answer in answers] == [1, 1, 1]
    assert "belongs to the store itself" in answers[0].line
    assert "belongs to the store itself" in answers[1].line
    assert "The store itself is in" in answers[2].line


def test_it_goes_on_importing_until_it_is_stopped(sessionary: Program, machine: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "sessionary", "import", "claude-code", "--watch"],
        env={**os.environ, "SESSIONARY_HOME": str(sessionary.home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as watching:
        try:
            assert watching.stdout is not None
            first = watching.stdout.readline()
            tape = a_session(machine, days=1)
            second = watching.stdout.readline()
            tape.prompt("And bed 5?")
            tape.write()
            third = watching.stdout.readline()
        finally:
            watching.send_signal(signal.SIGTERM)
        _, errors = watching.communicate()

    assert "1 session added" in first
    assert "1 session added" in second
    assert "1 extended: 1 new message" in third
    assert watching.returncode == 0
    assert "Stopped; what was read is here." in errors
    assert len(sessionary.ids()) == 2


def test_a_place_without_a_tools_records_is_reported_as_empty(
    sessionary: Program, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()

    answer = sessionary("import", "goose", str(tmp_path / "empty"))

    assert answer.code == 1
    assert f"There is no record of Goose in {tmp_path / 'empty'}; nothing was" in answer.line


def test_a_fault_names_its_file_once(
    sessionary: Program, machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "goose" / "sessions.db"
    database.parent.mkdir()
    database.write_bytes(b"SQLite format 3\x00" + b"\x00" * 5_000)

    answer = sessionary("import", "goose", str(database.parent))

    assert answer.code == 1
    assert answer.err.count(str(database)) == 1


def test_a_file_of_another_tool_is_refused_and_that_tool_is_named(
    sessionary: Program, machine: Path
) -> None:
    [rollout] = (machine / ".codex").rglob("rollout-*")

    file = sessionary("import", "claude-code", str(rollout))
    folder = sessionary("import", "claude-code", str(machine / ".codex"))

    assert (file.code, folder.code) == (1, 1)
    assert f"{rollout} is a record of Codex, not of Claude Code; nothing was imported." in file.line
    assert f"sessionary import codex {rollout}" in file.line
    assert "it has files of other tools: 1 of Codex." in folder.line


def test_a_folder_of_several_tools_is_read_as_what_it_is(
    sessionary: Program, machine: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "mixed"
    folder.mkdir()
    for path in machine.rglob("*.jsonl"):
        path.rename(folder / path.name)
    (folder / "junk.jsonl").write_text('{"event":"start"}\n' * 100)

    answer = sessionary("import", str(folder))
    shown = sessionary("import", str(folder), "--json").json

    assert answer.code == 0
    assert "Claude Code: 1 session added, 0 extended: 2 new messages." in answer.out
    assert "Codex: 1 session added, 0 extended: 1 new message." in answer.out
    assert f"1 file in {folder} left alone, no record of a known tool: junk.jsonl" in answer.out
    assert shown["unknown"] == [{"place": str(folder), "count": 1, "names": ["junk.jsonl"]}]
    assert len(sessionary.ids()) == 2


def test_a_record_that_brings_nothing_says_so_and_fails(
    sessionary: Program, tmp_path: Path
) -> None:
    path = tmp_path / f"{new_uuid()}.jsonl"
    path.write_text('{"type":"teleported-from","sessionId":"s","remoteSessionId":"r"}\n')

    first = sessionary("import", str(path))
    again = sessionary("import", str(path), "--json")

    assert (first.code, again.code) == (1, 1)
    assert (
        f"{path}: nothing of it was imported: nothing in it is part of a conversation" in first.err
    )
    assert again.json["tools"][0]["omissions"] == [
        {"unit": str(path), "reason": "nothing in it is part of a conversation"}
    ]
    assert sessionary.ids() == []


def test_an_unreadable_place_is_reported_and_does_not_block_the_others(
    sessionary: Program, machine: Path
) -> None:
    closed = machine / ".claude" / "projects"
    index = machine / ".codex" / "session_index.jsonl"
    index.write_text("{}\n")
    index.chmod(0)
    closed.chmod(0)
    try:
        looked = sessionary.run("import", preexec_fn=obey_permissions)
        answer = sessionary.run("import", "--all", preexec_fn=obey_permissions)
        alone = sessionary.run("import", "claude-code", preexec_fn=obey_permissions)
        dry = sessionary.run("import", "--all", "--dry-run", preexec_fn=obey_permissions)
    finally:
        closed.chmod(0o700)

    assert (looked.code, "codex" in looked.out) == (0, True)
    assert (answer.code, dry.code, answer.err) == (0, 0, "")
    assert f"{closed} cannot be read (Permission denied); it was left alone." in answer.out
    assert "Codex: 1 session added" in answer.out
    assert alone.code == 1
    assert f"{closed} cannot be read (Permission denied)" in alone.line
    assert sessionary("import", "--all", "--json").json["added"] == 1


def test_a_folder_without_read_permission_is_reported(sessionary: Program, machine: Path) -> None:
    """Whoever calls a tool as root leaves such folders behind."""
    closed = machine / ".claude" / "projects" / "-root"
    closed.mkdir(mode=0)

    answer = sessionary.run("import", "--all", preexec_fn=obey_permissions)
    found = sessionary.run("import", "claude-code", "--json", preexec_fn=obey_permissions)

    assert answer.code == found.code == 0
    assert f"{closed}: it cannot be read (Permission denied); it was left alone" in answer.out
    assert "Claude Code: 1 session added, 0 extended: 2 new messages, 1 skipped." in answer.out
    assert found.json["tools"][0]["faults"][0]["unit"] == str(closed)


def test_a_file_without_read_permission_is_reported_and_read_later(
    sessionary: Program, machine: Path
) -> None:
    tape = a_session(machine, days=1)
    tape.path.chmod(0)

    answer = sessionary.run("import", "--all", preexec_fn=obey_permissions)
    tape.path.chmod(0o600)
    later = sessionary("import", "--all", "--json").json

    assert answer.code == 0
    assert f"{tape.path} cannot be read (Permission denied); it was left alone." in answer.out
    assert "1 skipped" in answer.out
    assert (later["added"], later["skipped"]) == (1, 0)


def test_a_file_that_ends_in_rubbish_says_that_some_of_it_was_imported(
    sessionary: Program, tmp_path: Path
) -> None:
    sessionary.append("new", "hello", "--title", "Capitals")
    lines = sessionary("export", "--all").out
    (tmp_path / "half.jsonl").write_text(lines + "rubbish\n")
    (tmp_path / "none.jsonl").write_text(lines.partition("\n")[0] + "\nrubbish\n")
    elsewhere = Program(tmp_path / "elsewhere")

    none = elsewhere("import", str(tmp_path / "none.jsonl"), "--json")
    half = elsewhere("import", str(tmp_path / "half.jsonl"), "--json")

    assert none.json["error"]["committed"] == "no"
    assert half.json["error"]["committed"] == "unknown"
    assert "The session before it is in the store" in half.json["error"]["message"]
    assert len(elsewhere.ids()) == 1


def test_an_imported_session_says_its_tool_folder_and_branch(
    sessionary: Program, machine: Path
) -> None:
    sessionary("import", "codex")
    [id] = sessionary.ids()

    shown = sessionary("sessions", "show", id)
    sessions = [
        sessionary("sessions", "show", id, *more, "--json").json["session"]
        for more in ((), ("--all",), ("--raw",))
    ]

    assert "imported from Codex · /home/mia/garden · branch main" in shown.out
    for each in sessions:
        assert each["workspace"] == {"path": "/home/mia/garden", "branch": "main"}
        assert (each["imported"]["from"], each["imported"]["tool"]) == ("codex", "Codex")


def test_an_answer_that_may_still_grow_has_a_time_to_read_it_again(
    sessionary: Program, machine: Path
) -> None:
    rollout = Rollout(machine / ".codex")
    rollout.turn("And bed 5?")
    rollout.answer("Bea")
    path = rollout.write()
    os.utime(path)

    answer = sessionary("import", "codex")
    shown = sessionary("import", "codex", "--json").json["tools"][0]

    moment = datetime.fromtimestamp(path.stat().st_mtime).astimezone() + timedelta(minutes=3)
    assert (
        f"Codex: 1 answer may still be growing; run the import again after {moment:%H:%M}."
    ) in answer.out
    assert shown["held_back"] <= 1
