"""A flag overrides the environment, which overrides sessionary.toml, which overrides the default."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from sessionary import config
from sessionary.cli.root import root

EXAMPLE = Path(__file__).parents[2] / "sessionary.example.toml"

# Every key that a flag or a variable can override: its line in the file, and how to read it back.
KEYS: dict[str, Callable[[config.Config], str]] = {
    "database": lambda found: found.database,
    "profile": lambda found: found.profile,
}
VALUES = {
    "database": ("sqlite:///flag.db", "sqlite:///variable.db", "sqlite:///file.db"),
    "profile": ("of-flag", "of-variable", "of-file"),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for key in KEYS:
        monkeypatch.delenv(f"SESSIONARY_{key.upper()}", raising=False)
    return tmp_path


def write_example(home: Path, key: str, value: str) -> None:
    """The shipped example with this key set; the line may be there already, or be a comment."""
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if not line.lstrip("# ").startswith(f"{key} = ")]
    (home / config.FILE).write_text(f'{key} = "{value}"\n' + "".join(kept), encoding="utf-8")


@pytest.mark.parametrize("key", KEYS)
def test_flag_then_environment_then_file_then_default(
    home: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    flag, variable, in_file = VALUES[key]
    default = KEYS[key](config.load(home=str(home)))
    assert default not in VALUES[key]

    write_example(home, key, in_file)
    assert KEYS[key](config.load(home=str(home))) == in_file

    monkeypatch.setenv(f"SESSIONARY_{key.upper()}", variable)
    assert KEYS[key](config.load(home=str(home))) == variable

    assert KEYS[key](config.load(home=str(home), **{key: flag})) == flag


@pytest.mark.parametrize("key", KEYS)
def test_every_command_line_flag_works_beside_the_shipped_example(home: Path, key: str) -> None:
    shutil.copy(EXAMPLE, home / config.FILE)
    value = f"sqlite:///{home}/other.db" if key == "database" else "other"

    done = CliRunner().invoke(
        root, ["demo", "--json", "--home", str(home), f"--{key}", value], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    listed = CliRunner().invoke(
        root, ["sessions", "list", "--json", "--home", str(home), f"--{key}", value]
    )

    assert json.loads(listed.output)["items"]
    assert (home / ("other.db" if key == "database" else "sessionary.db")).exists()


def test_a_misspelt_key_is_still_refused_when_flags_override_the_others(home: Path) -> None:
    (home / config.FILE).write_text('profil = "x"\n', encoding="utf-8")

    done = CliRunner().invoke(root, ["doctor", "--home", str(home), "--profile", "y"])

    assert done.exit_code != 0
    assert "profil" in str(done.exception or done.output)
