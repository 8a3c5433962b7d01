"""Bad input gets one clear line, and changes nothing."""

import ctypes
import os
import resource
import signal
import sqlite3
from pathlib import Path

import pytest

from tests.cli.conftest import Program

PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE = 1
CAP_DAC_READ_SEARCH = 2


@pytest.fixture
def filled(sessionary: Program) -> Program:
    sessionary.append("new", "hello", "--title", "Capitals")
    sessionary.append("new", "hello", "--title", "Rivers")
    return sessionary


def digest(sessionary: Program) -> str:
    """All that the store says, to be compared."""
    return sessionary("export", "--all").out


@pytest.mark.parametrize(
    ("code", "says", "args"),
    [
        (1, "at most 100 characters; this one has 101", ["rename", "Capitals", "x" * 101]),
        (1, "'Rivers' is taken by session", ["rename", "Capitals", "Rivers"]),
        (1, "'Rivers' is taken by session", ["append", "new", "--title", "Rivers", "hi"]),
        (3, "No session is called 'nobody'", ["show", "nobody"]),
        (3, "No session is called 'nobody'", ["append", "nobody", "hi"]),
        (4, "is the beginning of several ids", ["show", "0"]),
        (2, "-5 is not in the range", ["list", "--limit", "-5"]),
        (2, "'x' is not a valid integer", ["list", "--limit", "x"]),
        (1, "'soon' is not a time", ["list", "--since", "soon"]),
        (1, "That cursor is not one of ours", ["list", "--cursor", "zzz"]),
        (3, "There is no project 'nowhere'", ["list", "--project", "nowhere"]),
        (2, "exclude each other", ["list", "--trash", "--archived"]),
        (2, "'king' is not one of", ["append", "Capitals", "--role", "king", "hi"]),
        (1, "There is no text to append", ["append", "Capitals", ""]),
        (2, "--title needs REF new", ["append", "Capitals", "hi", "--title", "x"]),
        (2, "Missing argument 'REF'", ["show"]),
        (2, "No such command 'lst'. Did you mean 'list'?", ["lst"]),
        (2, "No such option '--limt'", ["list", "--limt", "3"]),
        (1, "it cannot be forked at 99", ["fork", "Capitals", "--at", "99"]),
        (1, "fewer than 9 messages", ["undo", "Capitals", "9"]),
    ],
)
def test_a_refusal_is_one_line_and_changes_nothing(
    filled: Program, code: int, says: str, args: list[str]
) -> None:
    before = digest(filled)

    people = filled("sessions", *args)
    program = filled("sessions", *args, "--json")

    assert (people.code, people.out) == (code, "")
    assert people.line.startswith("sessionary: ")
    assert says in people.line
    assert program.code == code
    assert set(program.json["error"]) == {"type", "message", "committed"}
    assert program.json["error"]["committed"] == "no"
    assert digest(filled) == before


@pytest.mark.parametrize(
    "args",
    [
        ["sessions", "list"],
        ["sessions", "show", "x"],
        ["sessions", "append", "x", "hi"],
        ["sessions", "rename", "x", "y"],
        ["export", "--all"],
        ["usage"],
        ["stats"],
        ["verify"],
        ["doctor"],
        ["prune"],
        ["bindings", "list"],
        ["projects", "list"],
    ],
)
def test_what_only_reads_makes_no_store_and_says_how_to_begin_one(
    sessionary: Program, args: list[str]
) -> None:
    answer = sessionary(*args)

    assert answer.code == 3
    assert "There is no store at" in answer.line
    assert "Begin one with: sessionary sessions append new" in answer.line
    assert not sessionary.home.exists()


def test_a_database_in_a_directory_that_is_not_there_is_refused(
    sessionary: Program, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'missing' / 'h.db'}"

    answer = sessionary("sessions", "append", "new", "hi", "--database", url)

    assert answer.code == 1
    assert "There is no directory" in answer.line
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("command", [["list"], ["append", "new", "hi"]])
def test_a_file_that_is_no_database_is_left_as_it_is(
    sessionary: Program, tmp_path: Path, command: list[str]
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("these are my notes\n" * 100)
    before = file.read_bytes()

    answer = sessionary("sessions", *command, "--database", str(file))

    assert answer.code == 1
    assert "is not a Sessionary store; it was left as it is" in answer.line
    assert file.read_bytes() == before


@pytest.mark.parametrize("command", [["list"], ["append", "new", "hi"]])
def test_the_database_of_another_program_is_left_as_it_is(
    sessionary: Program, tmp_path: Path, command: list[str]
) -> None:
    file = tmp_path / "other.db"
    other = sqlite3.connect(file)
    other.execute("CREATE TABLE t (x)")
    other.commit()
    other.close()
    before = file.read_bytes()

    answer = sessionary("sessions", *command, "--database", str(file))

    assert answer.code == 1
    assert "not a Sessionary store" in answer.line
    assert file.read_bytes() == before


def test_an_unknown_kind_of_database_is_refused(sessionary: Program) -> None:
    answer = sessionary("sessions", "list", "--database", "mysql://localhost/x")

    assert answer.code == 1
    assert "use sqlite:///path or postgresql://" in answer.line


def test_a_store_of_a_newer_program_is_left_as_it_is(filled: Program) -> None:
    store = sqlite3.connect(filled.database)
    store.execute("INSERT INTO schema_migrations VALUES ('9999_future', 'x', 0)")
    store.commit()
    store.close()

    for command in (["list"], ["append", "new", "hi"]):
        answer = filled("sessions", *command)

        assert answer.code == 1
        assert (
            "made by a newer Sessionary (it has 9999_future); it was left as it is" in answer.line
        )


def test_a_store_that_is_gone_is_not_created_again(filled: Program) -> None:
    for file in filled.home.glob("sessionary.db*"):
        if not file.name.endswith("-identity"):
            file.unlink()

    answer = filled("sessions", "append", "new", "hi")

    assert answer.code == 1
    assert "is gone or empty, but it was here" in answer.line
    assert not filled.database.exists()


def test_a_damaged_store_is_refused_and_doctor_says_what_to_do(filled: Program) -> None:
    for number in range(40):
        filled.append("Capitals", f"message {number} " + "x" * 2000)
    data = bytearray(filled.database.read_bytes())
    for page in range(1, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    filled.database.write_bytes(data)

    answer = filled("sessions", "append", "Capitals", "hi")
    doctor = filled("doctor", "--json")

    assert answer.code == 1
    assert "is damaged" in answer.line
    assert doctor.code == 1
    assert not doctor.json["ok"]


def test_standard_input_that_is_not_utf8_is_refused_in_one_line(filled: Program) -> None:
    before = digest(filled)

    answer = filled("sessions", "append", "Capitals", "-", stdin=b"caf\xe9")

    assert answer.code == 1
    assert "Standard input is not UTF-8 text (byte 0xe9 at 3); nothing was written." in answer.line
    assert digest(filled) == before


def test_an_argument_that_is_not_utf8_is_refused_in_one_line(filled: Program) -> None:
    answer = filled.run("sessions", "append", "Capitals", b"caf\xe9")

    assert answer.code == 2
    assert "Argument 4 is not UTF-8 text" in answer.line


def obey_permissions() -> None:
    """Root may write anywhere; from here on this process and its children may not."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), "cannot give up a right of root")


def test_a_read_only_directory_can_be_read_and_refuses_writes_with_its_path(
    filled: Program,
) -> None:
    for file in filled.home.iterdir():
        file.chmod(0o400)
    filled.home.chmod(0o500)

    listed = filled.run("sessions", "list", preexec_fn=obey_permissions)
    refused = filled.run("sessions", "append", "Capitals", "hi", preexec_fn=obey_permissions)
    fresh = filled.run(
        "sessions",
        "append",
        "new",
        "hi",
        "--home",
        str(filled.home / "x"),
        preexec_fn=obey_permissions,
    )
    filled.home.chmod(0o700)

    assert (listed.code, "Capitals" in listed.out) == (0, True)
    assert refused.code == fresh.code == 1
    assert str(filled.database) in refused.line
    assert str(filled.home / "x") in fresh.line


def test_a_full_disk_refuses_the_write_and_reading_goes_on(filled: Program) -> None:
    before = digest(filled)
    room = filled.database.stat().st_size + 100_000

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    answer = filled.run(
        "sessions", "append", "Capitals", "-", "--json", stdin=b"x" * 3_000_000, preexec_fn=limit
    )

    assert answer.code == 1
    assert answer.json["error"]["committed"] in ("no", "unknown")
    assert len(answer.err.splitlines()) == 1
    assert digest(filled) == before


def test_an_unexpected_failure_is_one_line_and_a_traceback_only_with_debug(
    sessionary: Program, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sessionary.cli.serve as s\n"
        "def boom(*a, **k): raise RuntimeError('boom \\x1b[31m')\n"
        "s.shown_url = boom\n"
    )
    environ = {"PYTHONPATH": str(tmp_path)}

    quiet = sessionary.run("serve", "--json", environ=environ)
    loud = sessionary.run("serve", "--debug", environ=environ)

    assert quiet.code == loud.code == 1
    assert "bug in Sessionary (RuntimeError: boom \u241b[31m)" in quiet.line
    assert quiet.json["error"]["type"] == "our-fault"
    assert "Traceback" in loud.err
