"""sessionary.toml: every setting is read, a wrong one is named, a secret is never printed."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import pytest

from sessionary import config
from sessionary.config.engine import (
    Budget,
    EngineConfig,
    EngineSettings,
    Strangers,
    WhileRunning,
    read_engine,
)
from sessionary.config.reader import Place, read
from sessionary.config.setting import Setting
from sessionary.errors import BadInput
from tests.project.code import ROOT

EXAMPLE = ROOT / "sessionary.example.toml"


def loaded(folder: Path, text: str) -> EngineConfig:
    (folder / config.FILE).write_text(text, encoding="utf-8")
    return read_engine(config.load(home=str(folder)))


def refused(folder: Path, text: str) -> str:
    with pytest.raises(BadInput) as caught:
        loaded(folder, text)
    return str(caught.value)


def test_the_example_is_read(tmp_path: Path) -> None:
    """The commented example loads as it stands."""
    found = loaded(tmp_path, EXAMPLE.read_text(encoding="utf-8"))

    assert list(found.agents) == ["assistant"]
    assert found.engine.budgets == {}


def test_the_example_is_read_with_every_comment_taken_away(tmp_path: Path) -> None:
    """What stands in comments is right too."""
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    setting = [line.removeprefix("# ") if _is_setting(line) else line for line in lines]
    whole = "\n".join(setting)

    found = loaded(tmp_path, whole)

    assert {agent.kind for agent in found.agents.values()} == {
        "script", "model", "command", "python", "acp",
    }  # fmt: skip
    assert found.agent == "assistant"
    assert found.engine.compact_at_tokens == 100_000
    assert found.agent_by_platform == {"telegram": "assistant"}
    assert set(found.engine.budgets) == {"person", "schedule:morning"}


def _is_setting(line: str) -> bool:
    text = line.removeprefix("# ")
    return line.startswith("# ") and (text.startswith("[") or " = " in text)


def test_the_example_says_the_defaults(tmp_path: Path) -> None:
    """Every line that is not a comment says what holds without it."""
    settings = loaded(tmp_path, EXAMPLE.read_text(encoding="utf-8"))

    for each in fields(EngineSettings):
        if each.name != "access":
            assert getattr(settings.engine, each.name) == getattr(EngineSettings(), each.name)
    whole = config.load(home=str(tmp_path))
    (tmp_path / config.FILE).unlink()
    assert whole.settings == config.load(home=str(tmp_path)).settings


def test_what_is_written_reaches_the_engine(tmp_path: Path) -> None:
    found = loaded(
        tmp_path,
        """
        [access.telegram]
        allow = ["1", "2"]
        strangers = "pair"
        [budget.person]
        per = "month"
        usd = 1.5
        tokens = 10
        reserve_usd = 0.02
        reserve_tokens = 3
        [engine]
        while_running = "interrupt"
        lease_seconds = 10
        send_seconds = 7
        longest_output = 99
        """,
    ).engine

    policy = found.access["telegram"]
    assert (policy.everyone, policy.allow, policy.strangers) == (
        False, frozenset({"1", "2"}), Strangers.PAIR,
    )  # fmt: skip
    assert found.budgets == {"person": Budget("month", 10, 1_500_000, 3, 20_000)}
    assert found.while_running is WhileRunning.INTERRUPT
    assert (found.lease_seconds, found.send_seconds, found.longest_output) == (10, 7, 99)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[engine]\nturn_secnds = 5", "no setting 'turn_secnds'. Did you mean 'turn_seconds'?"),
        ("[engine]\nturn_seconds = '5'", "turn_seconds must be a number above 0, not '5'"),
        ("[engine]\nturn_seconds = inf", "turn_seconds must be a number above 0, not inf"),
        ("[engine]\nturn_seconds = nan", "turn_seconds must be a number above 0"),
        ("[engine]\nmost_turns = 0", "most_turns must be a whole number above 0, not 0"),
        ("[engine]\nmost_turns = 1.5", "most_turns must be a whole number above 0, not 1.5"),
        ("[engine]\nwhile_running = 'ask'", "while_running must be one of queue, interrupt, steer"),
        ("engine = 5", "engine must be a table, not 5"),
        ("[access.x]\neveryone = 1", "everyone must be true or false, not 1"),
        ("[access.x]\nallow = [1]", "allow must be a list of texts, but number 1 is 1"),
        ("[access.x]\nalow = []", "Did you mean 'allow'?"),
        ("[access.x]\nstrangers = 'shoot'", "strangers must be one of ignore, pair"),
        ("[budget.persn]\ntokens = 1", "a budget is of a person, channel, schedule"),
        ("[budget.person]\nper = 'day'", "[budget.person]: it sets no limit"),
        ("[budget.person]\nusd = -1", "usd must be a number above 0, not -1"),
        ("[budget.person]\neur = 1", "no setting 'eur'"),
        ("agent = 'b'\n[agents.a]\nkind = 'echo'", "there is no table [agents.b]"),
        ("[channels.telegram]\nagent = 'b'", "there is no table [agents.b]"),
        ("agnet = 'a'", "no setting 'agnet'"),
        ("zone = 'Berlin'", "zone must be a time zone such as Europe/Berlin, not 'Berlin'"),
        (
            "[reset]\nmode = 'weekly'",
            "[reset]: mode must be one of none, idle, daily, both, not 'weekly'",
        ),
        (
            "[reset]\ndaily_at = 'noon'",
            "daily_at must be a time of day such as 04:00, without a zone, not 'noon'",
        ),
        ("[engine\n", "cannot be read"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, says: str) -> None:
    """One line: where, what, and the nearest that is right."""
    problem = refused(tmp_path, text)

    assert says in problem
    assert "\n" not in problem


SECRET = "sk-very-secret-4711"


@pytest.mark.parametrize(
    "text",
    [
        f"[channels.telegram]\ntoken = '{SECRET}'",
        f"[agents.a]\nkind = 'model'\napi_key = '{SECRET}'",
        f"database = 'postgresql://u:{SECRET}@localhost/x'",
    ],
)
def test_what_is_secret_is_not_printed_with_the_configuration(tmp_path: Path, text: str) -> None:
    """S3: also where someone wrote it into the file."""
    (tmp_path / config.FILE).write_text(text, encoding="utf-8")
    found = config.load(home=str(tmp_path))

    assert SECRET not in repr(found)
    assert SECRET not in repr(read_engine(found))


@pytest.mark.parametrize(
    ("name", "value"),
    [("token", SECRET), ("webhook_secret", SECRET), ("auth", [SECRET]), ("x", {"key": SECRET})],
)
def test_an_error_does_not_repeat_what_may_be_secret(name: str, value: Any) -> None:
    """S3."""

    @dataclass
    class Flag:
        flag: Annotated[bool, Setting("a flag", name=name)] = False

    with pytest.raises(BadInput) as caught:
        read(Flag, {name: value}, Place("sessionary.toml"))
    assert SECRET not in str(caught.value)


def test_an_empty_file_is_as_good_as_none(tmp_path: Path) -> None:
    assert loaded(tmp_path, "") == EngineConfig()
    (tmp_path / config.FILE).unlink()
    assert read_engine(config.load(home=str(tmp_path))) == EngineConfig()


def test_models_personas_and_who_may_choose_are_read(tmp_path: Path) -> None:
    found = loaded(
        tmp_path,
        '[agents.a]\nmodel = "openai:gpt-5"\nmodels = ["openai:gpt-5-mini"]\n'
        '[personas.teacher]\nprompt = "Explain."\ntitle = "Teacher"\n'
        '[access.telegram]\nmay_choose = ["model", "persona"]\n',
    )

    assert found.agents["a"].models == ("openai:gpt-5-mini",)
    assert found.agents["a"].options == {"model": "openai:gpt-5"}
    assert found.personas["teacher"].prompt == "Explain."
    assert found.engine.access["telegram"].may_choose == {"model", "persona"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            '[agents.a]\nmodel = "openai:gpt-5"\nmodels = ["anthropic:claude"]',
            "'anthropic:claude' is of another provider than 'openai:gpt-5'",
        ),
        ('[access.telegram]\nmay_choose = ["colour"]', "agent, model, persona, tools"),
        ("[personas.teacher]\ntitle = 'Teacher'", "prompt"),
    ],
)
def test_what_cannot_be_chosen_is_refused(tmp_path: Path, text: str, says: str) -> None:
    assert says in refused(tmp_path, text)
