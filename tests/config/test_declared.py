"""Every declared setting: its default can be written and read, its misspellings are named, nonsense is refused."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessionary import config
from sessionary.agents import registry as agents
from sessionary.agents.model import ToolServer
from sessionary.app.settings import SINGLE_TABLES
from sessionary.channels import registry as channels
from sessionary.config import IsolationSettings, StoreSettings
from sessionary.config.engine import (
    AccessPolicy,
    AgentTable,
    Budget,
    ChannelTable,
    EngineSettings,
    read_engine,
)
from sessionary.config.proxy import read_proxy
from sessionary.config.reader import MISSING, Place, read, settings_of
from sessionary.config.reset import ResetTable
from sessionary.config.schema import toml, written_table
from sessionary.config.secret import Secret
from sessionary.config.server import Limits, read_imports, read_telemetry, read_web
from sessionary.config.setting import MAY_BE_EMPTY
from sessionary.errors import BadInput, SessionaryError

PLACE = Place("sessionary.toml", "table")
TABLES: dict[str, type[Any]] = {
    "top": StoreSettings,
    "isolation": IsolationSettings,
    "reset": ResetTable,
    "access": AccessPolicy,
    "budget": Budget,
    "engine": EngineSettings,
    "limits": Limits,
    **SINGLE_TABLES,
    "agent": AgentTable,
    "channel": ChannelTable,
    "mcp": ToolServer,
    **{f"agent {name}": kind.settings for name, kind in agents.AGENTS.load_all().items()},
    **{f"channel {name}": kind.settings for name, kind in channels.CHANNELS.load_all().items()},
}
# What some tables need besides their required settings.
NEEDED: dict[str, dict[str, Any]] = {
    "budget": {"tokens": 1},
    "mcp": {"url": "https://tools.example.org"},
    "channel email": {"trust_from": True},
    "channel slack": {"app_token_env": "T"},
    "channel telegram": {"webhook_secret_env": "T"},
}
# Settings that exclude each other.
EXCLUDES = {("mcp", "command"): "url", ("mcp", "url"): "command"}
EVERY_TABLE = pytest.mark.parametrize("name", TABLES)


def smallest(name: str) -> dict[str, Any]:
    """The least that a table needs: its required settings, as their examples show them."""
    values = dict(NEEDED.get(name, {}))
    for each in settings_of(TABLES[name]):
        if each.default is MISSING:
            values[each.names[0]] = "VARIABLE" if each.is_secret else each.example
    return values


@EVERY_TABLE
def test_what_is_written_is_read_back(name: str) -> None:
    table = TABLES[name]
    made = read(table, smallest(name), PLACE)

    lines = [f"{key} = {toml(value)}" for key, value in written_table(made).items()]
    again = read(table, smallest(name) | tomllib.loads("\n".join(lines)), PLACE)

    for each in settings_of(table):
        if not each.is_secret:
            assert getattr(again, each.attribute) == getattr(made, each.attribute), each.name


@EVERY_TABLE
def test_every_setting_has_help_and_an_example_or_a_default(name: str) -> None:
    for each in settings_of(TABLES[name]):
        assert each.description, each.name
        assert each.example is not None or each.default not in (MISSING, None), each.name
        if each.example is not None and not each.is_secret:
            excluded = EXCLUDES.get((name, each.name))
            others = {key: value for key, value in smallest(name).items() if key != excluded}
            read(TABLES[name], others | {each.name: each.example}, PLACE)


def misspellings(name: str) -> Iterator[str]:
    for at in range(len(name)):
        yield name[:at] + name[at + 1 :]
        yield name[:at] + name[at] + name[at:]
        if name[at : at + 1] != name[at + 1 : at + 2] and at + 1 < len(name):
            yield name[:at] + name[at + 1] + name[at] + name[at + 2 :]


@EVERY_TABLE
def test_every_misspelling_is_refused_with_the_right_suggestion(name: str) -> None:
    known = {written for each in settings_of(TABLES[name]) for written in each.names}
    secrets = {each.name for each in settings_of(TABLES[name]) if each.is_secret}
    for right in known:
        for wrong in set(misspellings(right)) - known - secrets:
            with pytest.raises(BadInput) as caught:
                read(TABLES[name], {wrong: 1}, PLACE)
            told = str(caught.value)
            assert told.startswith(f"sessionary.toml [table]: there is no setting {wrong!r}.")
            assert f"Did you mean {right!r}?" in told


hostile = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(),
        st.integers(min_value=-(10**400), max_value=10**400),
        st.floats(),
        st.text(max_size=20),
        st.datetimes(),
        st.dates(),
        st.times(),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


def refusal(table: type[Any], values: dict[str, Any]) -> str:
    """Why a table is refused; nothing if it is read."""
    try:
        read(table, values, PLACE)
    except BadInput as error:
        return str(error)
    return ""


@EVERY_TABLE
@settings(max_examples=25)
@given(data=st.data())
def test_any_value_is_read_or_refused_in_one_line(name: str, data: st.DataObject) -> None:
    known = [written for each in settings_of(TABLES[name]) for written in each.names]
    if not known:
        return
    values = data.draw(st.dictionaries(st.sampled_from(known), hostile, max_size=4))

    assert refusal(TABLES[name], smallest(name) | values).isprintable()


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 5000 + "]" * 5000,
        "engine = " + "{a = " * 3000 + "1" + "}" * 3000,
        "[engine]\nturn_seconds = " + "9" * 5000,
        "[engine]\nmost_turns = 0x" + "f" * 20_000,
        "[engine]\nturn_seconds = 1e400",
        "[engine]\nturn_seconds = -nan",
        "[reset]\nidle_minutes = 1e300",
        "[reset]\ndaily_at = 04:00:00",
        '[access."a\\nb"]\nallow = 1',
        'agent = "a\\nb"',
        'zone = "Europe"',
        'zone = "../../etc/passwd"',
        'zone = "\\u0000"',
        "web = 1",
        "web = []",
        "[web]\nlimits = 1",
        "[web.limits]\nconnections = 0",
        "[web.limits]\nconnections = 10000000",
        "telemetry = 'x'",
        "imports = 2026-01-01",
        "[imports]\nwatch = [[1]]",
        "agents = []",
        "[agents]\na = 1",
        "channels = 1",
        "[channels]\ntelegram = 1",
        "[channels.telegram]\nagent = 5",
        "budget = nan",
        "[budget]\nperson = 1",
        "[reset.type]\ngroup = 1",
        "[reset.type.group]\nmode = []",
        "isolation = 1",
    ],
)
def test_a_hostile_file_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / config.FILE).write_text(text, encoding="utf-8")

    with pytest.raises(SessionaryError) as caught:
        read_everything(tmp_path)

    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500
    assert config.FILE in str(caught.value)


def read_everything(home: Path) -> None:
    loaded = config.load(home=str(home))
    read_engine(loaded)
    read_web(loaded, {})
    read_telemetry(loaded, {})
    read_imports(loaded)
    read_proxy(loaded)


@given(
    st.recursive(
        st.one_of(
            st.booleans(),
            st.integers(min_value=-(2**63), max_value=2**63 - 1),
            st.floats(allow_nan=False, allow_infinity=False),
            st.text(st.characters(blacklist_categories=["Cs"])),
        ),
        lambda inner: st.one_of(
            st.lists(inner),
            st.dictionaries(st.text(st.characters(blacklist_categories=["Cs"])), inner),
        ),
    )
)
def test_a_value_survives_being_written_as_toml(value: Any) -> None:
    assert tomllib.loads(f"x = {toml(value)}")["x"] == value


def test_a_plug_in_may_declare_its_settings_as_a_msgspec_struct() -> None:
    class PagerSettings(msgspec.Struct, frozen=True, kw_only=True):
        number: Annotated[str, msgspec.Meta(description="whom to call", examples=["+49 30 1"])]
        token: Annotated[Secret, msgspec.Meta(description="the pager's token")]
        retries: Annotated[int, msgspec.Meta(description="how often", gt=0, le=9)] = msgspec.field(
            default=3, name="retry_count"
        )
        internal: int = 7

    found = read(
        PagerSettings,
        {"number": "1", "token_env": "T", "retry_count": 4},
        PLACE,
        environ={"T": "s"},
    )
    assert (found.number, found.token.reveal(), found.retries) == ("1", "s", 4)
    for wrong, told in (
        ({"token_env": "T"}, "set number, whom to call, such as +49 30 1."),
        ({"number": "1"}, "set token_env or token_file, the pager's token."),
        ({"number": "1", "token": "s3cret"}, "set token_env or token_file instead."),
        ({"number": "1", "token_env": "T", "retry_count": 10}, "retry_count must be at most 9"),
        ({"number": "1", "token_env": "T", "internal": 1}, "no setting 'internal'"),
    ):
        with pytest.raises(BadInput) as caught:
            read(PagerSettings, wrong, PLACE)
        assert told in str(caught.value)
        assert "s3cret" not in str(caught.value)


@EVERY_TABLE
def test_an_empty_text_is_no_value_and_no_secret_is_empty(name: str) -> None:
    table = TABLES[name]
    for each in settings_of(table):
        for written in each.names:
            told = refusal(table, smallest(name) | {written: ""})
            if each.is_secret and MAY_BE_EMPTY in each.shape.marks:
                assert told == ""
            elif each.is_secret:
                assert f"{written} is empty. Remove it" in told
            elif not each.shape.is_text:
                assert f"{each.name} must be" in told
            elif each.default is MISSING:
                assert f"set {each.name}," in told
            elif MAY_BE_EMPTY not in each.shape.marks and written not in smallest(name):
                assert told == ""


def test_a_secret_is_looked_up_when_it_is_used() -> None:
    environ: dict[str, str] = {}
    found = read(
        channels.CHANNELS.load("telegram").settings, {"token_env": "T"}, PLACE, environ=environ
    )

    with pytest.raises(BadInput, match=r"\[table\]: the environment variable T is not set"):
        found.token.reveal()
    environ["T"] = "s3cret"
    assert found.token.reveal() == "s3cret"
    assert "s3cret" not in repr(found)
