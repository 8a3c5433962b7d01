"""`sessionary config show`, and defaults that help names."""

import pytest

from tests.cli.conftest import Program


def test_config_show_tells_what_is_in_force_and_from_where(
    sessionary: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessionary.home.mkdir(exist_ok=True)
    (sessionary.home / "sessionary.toml").write_text(
        '[engine]\nmost_turns = 5\n[channels.telegram]\ntoken_env = "NOT_SET"\n'
    )
    monkeypatch.setenv("SESSIONARY_PROFILE", "work")

    items = sessionary("config", "show", "--json").json["items"]

    found = {item["name"]: (item["value"], item["from"]) for item in items}
    assert found["engine.most_turns"] == (5, "file")
    assert found["engine.send_attempts"] == (12, "default")
    assert found["profile"] == ("work", "variable SESSIONARY_PROFILE")
    assert found["channels.telegram.token"] == ("…", "file: the environment variable NOT_SET")


def test_config_show_can_leave_out_the_defaults(sessionary: Program) -> None:
    sessionary.home.mkdir(exist_ok=True)
    (sessionary.home / "sessionary.toml").write_text("[engine]\nmost_turns = 5\n")

    items = sessionary("config", "show", "--changed", "--json").json["items"]

    assert "engine.most_turns" in {item["name"] for item in items}
    assert "default" not in {item["from"] for item in items}


def test_help_names_the_default_target_of_a_schedule(sessionary: Program) -> None:
    assert "[default: local]" in sessionary("schedule", "add", "--help").out
