"""The page of all names says what the code has: no name is missing, none is invented."""

import re
from pathlib import Path
from types import ModuleType

import pytest

from sessionary.compat.hermes import config, session, state

PAGE = Path(__file__).parents[3] / "docs" / "hermes-names.md"
ROW = re.compile(r"^\| `([\w.]+)` \| (.+) \|$")
MODULES = {"state": state, "session": session, "config": config}
CLASSES = {
    "SessionDB": state.SessionDB,
    "SessionStore": session.SessionStore,
    "SessionSource": session.SessionSource,
    "SessionContext": session.SessionContext,
    "SessionEntry": session.SessionEntry,
    "HomeChannel": config.HomeChannel,
    "SessionResetPolicy": config.SessionResetPolicy,
    "PlatformConfig": config.PlatformConfig,
    "GatewayConfig": config.GatewayConfig,
}


def read_rows() -> list[tuple[str, str, str]]:
    """The section, name and text of each row."""
    found, section = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line[3:].strip("`").removeprefix("sessionary.compat.hermes.")
        elif row := ROW.match(line):
            found.append((section, row[1], row[2]))
    return found


def exists(section: str, name: str) -> bool:
    modules = [MODULES[section]] if section in MODULES else list(MODULES.values())
    first, _, attribute = name.partition(".")
    holders = [getattr(each, first) for each in modules if hasattr(each, first)]
    return bool(holders) and (not attribute or hasattr(holders[0], attribute))


@pytest.mark.parametrize(("section", "name", "text"), read_rows())
def test_a_name_is_there_unless_the_page_says_no(section: str, name: str, text: str) -> None:
    offered = not (text == "no" or text.startswith("no:"))

    assert exists(section, name) == offered


def test_no_name_stands_twice() -> None:
    names = [name for _, name, _ in read_rows()]

    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_method_is_on_the_page(name: str) -> None:
    public = {
        f"{name}.{each}"
        for each, value in vars(CLASSES[name]).items()
        if not each.startswith("_")
        and (callable(value) or isinstance(value, staticmethod | classmethod | property))
    }

    assert public <= {each for _, each, _ in read_rows()}


@pytest.mark.parametrize("module", MODULES.values())
def test_every_public_name_of_a_module_is_on_the_page(module: ModuleType) -> None:
    exported = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")
    ]
    ours = {"flag", "platform_of", "platform_value", "to_reset_policy", "T"}

    assert set(exported) - ours <= {each for _, each, _ in read_rows()}
