"""A command loads what it uses, and nothing else: that is what makes it start at once."""

import json

import pytest

from tests.cli.conftest import Program

HEAVY = {
    "asyncio",
    "apsw",
    "dataclasses",
    "fastapi",
    "genai_prices",
    "sessionary.client",
    "sessionary.actions.turns",
    "sessionary.model.tokenizer",
    "sessionary.prices",
    "httpx",
    "json",
    "logging",
    "mcp",
    "platformdirs",
    "psycopg",
    "pydantic_ai",
    "rich",
    "shutil",
    "socket",
    "sqlite3",
    "starlette",
    "subprocess",
    "tempfile",
    "tomllib",
    "uvicorn",
    "zstandard",
}
PROGRAM = (
    "import sys; from sessionary.cli import main; main(sys.argv[1:]); "
    "print('\", \"'.join(sorted(sys.modules)).join(('[\"', '\"]')), file=sys.stderr)"
)


def loaded(sessionary: Program, *args: str) -> set[str]:
    """The modules in memory after a command."""
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "--home", str(sessionary.home), *args],
        capture_output=True,
        check=True,
        text=True,
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


# `importlib.metadata` loads them: the help of the whole program lists the commands of plug-ins.
METADATA = {"dataclasses", "json", "socket", "tempfile"}


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["sessions", "--help"]])
def test_help_loads_no_store_and_no_command(sessionary: Program, args: list[str]) -> None:
    modules = loaded(sessionary, *args)

    # click loads `shutil` to learn the width of the terminal.
    assert modules & HEAVY <= {"shutil"} | (METADATA if args == ["--help"] else set())
    assert [
        name for name in modules if name.startswith(("sessionary.store", "sessionary.actions"))
    ] == []


@pytest.mark.parametrize(
    "args", [["sessions", "list"], ["sessions", "list", "--json"], ["sessions", "show", "Capitals"]]
)
def test_a_reading_command_loads_nothing_heavy(sessionary: Program, args: list[str]) -> None:
    sessionary.append("new", "hello", "--title", "Capitals")

    modules = loaded(sessionary, *args)

    assert modules & HEAVY == ({"apsw", "json"} if "--json" in args else {"apsw"})
    assert "importlib.metadata" not in modules


def test_reading_the_settings_loads_the_parser_and_nothing_else(sessionary: Program) -> None:
    sessionary.append("new", "hello")
    (sessionary.home / "sessionary.toml").write_text('zone = "Europe/Berlin"\n[engine]\n')

    modules = loaded(sessionary, "sessions", "list")

    assert modules & HEAVY == {"apsw", "dataclasses", "tomllib"}


def test_a_search_loads_the_words_and_little_else(sessionary: Program) -> None:
    sessionary.append("new", "hello", "--title", "Capitals")

    assert loaded(sessionary, "search", "hello") & HEAVY == {"apsw", "sessionary.model.tokenizer"}


def test_a_model_of_another_provider_does_not_load_openais_library() -> None:
    import subprocess
    import sys

    program = "import sys, sessionary.agents.provider; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )

    assert {"anthropic", "fastapi", "mcp", "openai"} & set(done.stdout.split()) == set()


def test_the_package_gives_its_public_names_and_no_others() -> None:
    import sessionary

    for name in sessionary.__all__:
        assert getattr(sessionary, name) is not None
    assert set(sessionary.__all__) <= set(dir(sessionary))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = sessionary.nothing  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = sessionary.Nothing  # type: ignore[attr-defined]
