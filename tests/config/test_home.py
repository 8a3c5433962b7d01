"""Where the home directory is when nobody configures it."""

from pathlib import Path

import platformdirs
import pytest

from sessionary import config


@pytest.mark.parametrize("data_home", [None, "", "/data", "not/absolute"])
def test_the_home_is_the_platforms_directory_for_data(
    monkeypatch: pytest.MonkeyPatch, data_home: str | None
) -> None:
    monkeypatch.delenv("SESSIONARY_HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    if data_home is not None:
        monkeypatch.setenv("XDG_DATA_HOME", data_home)

    assert config.default_home() == Path(platformdirs.user_data_dir("sessionary", appauthor=False))


def test_a_home_that_is_named_is_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESSIONARY_HOME", "/somewhere")

    assert config.default_home() == Path("/somewhere")
