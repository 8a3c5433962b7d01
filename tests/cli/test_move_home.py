"""A home that was made when the program was called Hansard is found, named and moved."""

import shutil
from pathlib import Path

import pytest

from sessionary import BadInput, Sessionary, config
from tests.cli.conftest import Program


def make_former_home(folder: Path, *, toml: str | None = None) -> None:
    """A home as Hansard left it: the same files under the former name."""
    program = Program(folder)
    assert program("sessions", "append", "new", "--role", "user", "hello lisbon").code == 0
    assert program("search", "lisbon").code == 0
    for each in list(folder.iterdir()):
        each.rename(folder / each.name.replace("sessionary", config.FORMER_NAME))
    if toml is not None:
        (folder / f"{config.FORMER_NAME}.toml").write_text(toml)


@pytest.fixture
def program(sessionary: Program) -> Program:
    """The program with a home of its own."""
    return sessionary


@pytest.fixture
def default_homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where homes are made when nobody names one."""
    monkeypatch.delenv("SESSIONARY_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path


def test_a_store_at_the_former_place_is_named_with_the_command_that_moves_it(
    default_homes: Path,
) -> None:
    make_former_home(default_homes / "hansard")

    with pytest.raises(BadInput, match=r"hansard is a home of Hansard.*move-home"):
        config.load()

    assert not (default_homes / "sessionary").exists()


def test_a_home_that_is_named_is_moved_in_place(program: Program) -> None:
    make_former_home(program.home, toml='profile = "work"\n')
    refused = program("sessions", "list")
    assert refused.code != 0
    assert refused.line.endswith(f"sessionary move-home --home {program.home}")

    moved = program("move-home", "--json")

    assert moved.json["to"] == str(program.home)
    assert not list(program.home.glob("hansard*"))
    assert config.load(home=str(program.home)).profile == "work"
    assert "hello" in program("--profile", "main", "search", "lisbon").out
    assert program("verify").code == 0


def test_a_home_is_moved_to_another_directory(tmp_path: Path, program: Program) -> None:
    old = tmp_path / "somewhere"
    make_former_home(old)
    shutil.rmtree(program.home, ignore_errors=True)

    assert program("move-home", str(old)).code == 0

    assert not old.exists()
    assert "lisbon" in program("search", "lisbon").out


def test_a_move_that_was_cut_off_is_done_again(program: Program) -> None:
    make_former_home(program.home, toml='profile = "work"\n')
    (program.home / "hansard.toml").rename(program.home / "sessionary.toml")
    assert "move-home" in program("sessions", "list").line

    assert program("move-home").code == 0

    assert "lisbon" in program("--profile", "main", "search", "lisbon").out


def test_a_home_that_is_there_already_is_not_overwritten(tmp_path: Path, program: Program) -> None:
    old = tmp_path / "somewhere"
    make_former_home(old)
    program("sessions", "append", "new", "--role", "user", "mine")

    refused = program("move-home", str(old))

    assert "not empty; nothing was moved" in refused.line
    assert (old / "hansard.db").exists()


def test_a_store_in_use_is_not_moved(program: Program) -> None:
    make_former_home(program.home)
    with Sessionary(program.home / "hansard.db") as user:
        user.sessions()

        refused = program("move-home")

    assert "Another program uses the store" in refused.line
    assert (program.home / "hansard.db").exists()


def test_a_store_that_the_configuration_names_by_its_path_is_not_moved(program: Program) -> None:
    make_former_home(program.home)
    line = f'database = "sqlite:///{program.home}/hansard.db"\n'
    (program.home / "hansard.toml").write_text(line)

    assert "names the store by its old path" in program("move-home").line

    assert (program.home / "hansard.db").exists()


def test_a_machine_without_a_former_home_gets_a_clear_message(program: Program) -> None:
    refused = program("move-home")

    assert refused.code != 0
    assert "no Hansard home" in refused.line
