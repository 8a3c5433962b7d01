"""Rules about what is committed: it says nothing about the machine it was written on."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.project.code import PACKAGE, ROOT, committed_files

# Written in pieces, so that this file does not break its own rule.
MACHINE_PATH = re.compile("/wo" + r"rk/|/ro" + "ot/")
REGISTRY = re.compile(
    r"(https?|file)://[^\s\"'<>)]*(pypi|pythonhosted|npmjs|artifactory|nexus|/simple\b)"
)
LOCKS_WITH_ADDRESSES = {"uv.lock", "pylock.toml", "poetry.lock", "yarn.lock"}


def text_of(path: Path) -> str:
    return path.read_bytes().decode("utf-8", errors="replace")


def test_no_committed_file_names_a_path_of_this_machine() -> None:
    assert [str(path) for path in committed_files() if MACHINE_PATH.search(text_of(path))] == []


def test_no_committed_file_has_the_address_of_a_registry() -> None:
    assert [str(path) for path in committed_files() if REGISTRY.search(text_of(path))] == []


def test_no_lock_file_that_records_addresses_is_committed() -> None:
    assert {path.name for path in committed_files()} & LOCKS_WITH_ADDRESSES == set()


@pytest.mark.parametrize("address", ["https://" + "pypi.org/simple", "file:///x/" + "simple/y"])
def test_an_address_of_a_registry_is_recognised(address: str) -> None:
    assert REGISTRY.search(f"--index-url {address}")


@pytest.mark.parametrize("command", ["./dev serve", "./dev test"])
def test_the_readme_shows_the_two_commands(command: str) -> None:
    assert command in text_of(ROOT / "README.md")


def test_ci_runs_what_a_person_runs() -> None:
    assert "exec ./dev test\n" in text_of(ROOT / ".ci" / "run")


def test_dev_is_a_correct_shell_script_and_explains_each_of_its_commands() -> None:
    subprocess.run(["sh", "-n", ROOT / "dev"], check=True)
    script = text_of(ROOT / "dev")

    commands = set(re.findall(r"^([a-z-]+)\)", script, flags=re.MULTILINE))
    explained = set(re.findall(r"^#   \./dev ([a-z-]+)", script, flags=re.MULTILINE))

    assert commands == explained


# Extras that no environment can have beside the others; `./dev lock` leaves them out.
NOT_LOCKED = {"google-adk"}


def test_the_lock_pins_every_requirement_of_the_project_with_hashes() -> None:
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))
    wanted = [
        *project["project"]["dependencies"],
        *(one for extra in project["project"]["optional-dependencies"].values() for one in extra),
        *project["dependency-groups"]["dev"],
    ]
    lock = text_of(ROOT / "requirements.lock")
    pinned = set(re.findall(r"^([a-z0-9-]+)==.* \\\n +--hash=", lock, flags=re.MULTILINE))

    names = {re.split(r"[^\w.-]", one)[0].lower().replace(".", "-") for one in wanted}
    assert names - pinned == NOT_LOCKED
    assert all(f"-e '/^{name} = /d'" in text_of(ROOT / "dev") for name in NOT_LOCKED)
    assert pinned == set(re.findall(r"^([a-z0-9-]+)==", lock, flags=re.MULTILINE))


WALK = ROOT / "docs" / "internals" / "walk.md"
NAMED = re.compile(r"`((?:[\w.-]+/)+[\w-]+(?:\.\w+)?)`")


def is_there(name: str) -> bool:
    """Whether `engine/loop`, `engine/loop.py` or `actions/turns.begin` exists."""
    if any((base / name).exists() for base in (ROOT, PACKAGE)):
        return True
    if (PACKAGE / f"{name}.py").exists():
        return True
    module, _, attribute = name.rpartition(".")
    file = PACKAGE / f"{module}.py"
    return file.exists() and attribute in names_defined_in(file)


def names_defined_in(file: Path) -> set[str]:
    tree = ast.parse(text_of(file))
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in tree.body if isinstance(node, defined)}


def test_every_file_that_the_walk_names_exists() -> None:
    text = text_of(WALK) if WALK.exists() else ""

    assert [name for name in NAMED.findall(text) if not is_there(name)] == []


def test_the_walk_may_name_a_file_a_module_or_a_function() -> None:
    text = "`src/sessionary/__init__.py`, `testing/fakes`, `testing/fakes.FakeClock`"

    assert [is_there(name) for name in NAMED.findall(text)] == [True, True, True]
    assert not is_there("testing/nothing")
    assert not is_there("testing/clock.nothing")
