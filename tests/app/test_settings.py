"""What is in force and where it comes from; the schema that forms are made from."""

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from sessionary import config
from sessionary.app.settings import EffectiveSetting, effective_settings, json_schema
from sessionary.channels import registry
from tests.config.test_declared import TABLES, smallest
from tests.project.code import ROOT

EXAMPLE = ROOT / "sessionary.example.toml"
SECRET = "sk-very-secret-4711"


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json_schema()


def in_force(home: Path, text: str, **environ: str) -> dict[str, EffectiveSetting]:
    (home / config.FILE).write_text(text, encoding="utf-8")
    loaded = config.load(home=str(home), profile="work")
    flags = {"home": str(home), "database": None, "profile": "work"}
    return {each.name: each for each in effective_settings(loaded, flags=flags, environ=environ)}


def test_each_setting_says_where_it_comes_from(tmp_path: Path) -> None:
    found = in_force(
        tmp_path,
        """
        profile = "home"
        zone = "Europe/Berlin"
        [reset.type.group]
        mode = "daily"
        [web.limits]
        connections = 9
        [access.telegram]
        allow = ["2", "1"]
        """,
        SESSIONARY_DATABASE="sqlite:///elsewhere.db",
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:4318",
    )

    told = {name: (each.value, each.origin) for name, each in found.items()}
    assert told["profile"] == ("work", "flag")
    assert told["database"][1] == "variable SESSIONARY_DATABASE"
    assert told["zone"] == ("Europe/Berlin", "file")
    assert told["redact_people"] == (False, "default")
    assert told["reset.mode"] == ("none", "default")
    assert told["reset.type.group.mode"] == ("daily", "file")
    assert told["web.limits.connections"] == (9, "file")
    assert told["web.limits.streams"] == (128, "default")
    assert told["access.telegram.allow"] == (["1", "2"], "file")
    assert told["telemetry.export"] == (True, "variable OTEL_*")


def test_no_secret_is_shown_and_none_is_looked_up(tmp_path: Path) -> None:
    found = in_force(
        tmp_path,
        f"""
        database = "postgresql://u:{SECRET}@localhost/x"
        [agents.gpt]
        model = "openai:gpt-5"
        base_url = "https://u:{SECRET}@host/"
        api_key_env = "NOT_SET"
        settings = {{ temperature = 0.5, extra = {{ api_key = "{SECRET}" }} }}
        [[agents.gpt.mcp]]
        url = "https://tools.example.org"
        headers = {{ X-Anything = "{SECRET}" }}
        [agents.program]
        kind = "command"
        command = "run"
        env = {{ ANYTHING = "{SECRET}" }}
        [channels.telegram]
        token_file = "/nowhere/token"
        [web]
        password_hash = "{SECRET}"
        """,
    )

    assert SECRET not in json.dumps([[each.value, each.origin] for each in found.values()])
    assert found["agents.gpt.api_key"].origin == "file: the environment variable NOT_SET"
    assert found["channels.telegram.token"].value == "…"
    assert found["channels.telegram.token"].origin == "file: the file /nowhere/token"
    assert found["agents.gpt.settings"].value["temperature"] == 0.5


def test_the_schema_is_valid_and_json(schema: dict[str, Any]) -> None:
    assert jsonschema_rs.meta.is_valid(schema)
    assert json.loads(json.dumps(schema, allow_nan=False)) == schema


def test_the_example_fits_the_schema_also_with_its_comments_taken_away(
    schema: dict[str, Any],
) -> None:
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    is_setting = [
        each.startswith("# [") or each[2:].partition(" = ")[0].isidentifier() for each in lines
    ]
    whole = [
        line.removeprefix("# ") if wanted else line
        for line, wanted in zip(lines, is_setting, strict=True)
    ]

    jsonschema_rs.validate(schema, tomllib.loads("\n".join(lines)))
    jsonschema_rs.validate(schema, tomllib.loads("\n".join(whole)))


@pytest.mark.parametrize(
    "wrong",
    [
        "agnet = 'a'",
        "[engine]\nturn_seconds = 0",
        "[engine]\nwhile_running = 'ask'",
        "[web.limits]\nconnections = 0",
        "[agents.a]\nkind = 'oracle'",
        "[agents.a]\nkind = 'echo'\nmodel = 'm'",
        "[agents.a]\nprompt = 'a model needs its name'",
        "[channels.telegram]\ngroups = 'always'",
        "[channels.telegram]\ntoken = 'plain'",
        "[channels.pager]",
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(schema: dict[str, Any], wrong: str) -> None:
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(schema, tomllib.loads(wrong))


@pytest.mark.parametrize("platform", registry.CHANNELS.names)
def test_the_least_that_a_channel_needs_fits_the_schema(
    schema: dict[str, Any], platform: str
) -> None:
    name = f"channel {platform}"
    assert name in TABLES

    jsonschema_rs.validate(schema, {"channels": {platform: smallest(name)}})


def test_forms_know_titles_help_defaults_choices_and_secrets(schema: dict[str, Any]) -> None:
    engine = schema["properties"]["engine"]["properties"]
    telegram = schema["properties"]["channels"]["properties"]["telegram"]

    assert engine["turn_seconds"] == {
        "type": "number",
        "title": "Turn seconds",
        "description": "a turn that takes longer is ended",
        "default": 900,
        "exclusiveMinimum": 0,
        "maximum": 1_000_000_000,
    }
    assert engine["while_running"]["enum"] == ["queue", "interrupt", "steer"]
    assert telegram["properties"]["token_env"]["x-secret"] == "token"
    assert telegram["allOf"] == [
        {"anyOf": [{"required": ["token_env"]}, {"required": ["token_file"]}]}
    ]
    assert "x-secret" not in telegram["properties"]["groups"]
    # The URL may contain a password.
    database = schema["properties"]["database"]
    assert (database["x-secret"], database["writeOnly"]) == ("database", True)


def test_a_channel_says_what_to_install(schema: dict[str, Any]) -> None:
    found = schema["properties"]["channels"]["properties"]

    assert (found["matrix"]["title"], found["matrix"]["x-needs"]) == (
        "Matrix",
        "sessionary[matrix]",
    )
    assert "x-needs" not in found["webhook"]
