"""The files of `deploy/` and the page about them name what there is."""

import configparser
import re
import shlex
from pathlib import Path

import click
import pytest

from sessionary.cli.root import root
from tests.cli.conftest import Program
from tests.project.code import ROOT

DEPLOY = ROOT / "deploy"
PAGE = ROOT / "docs" / "deploy.md"
UNITS = sorted([*DEPLOY.glob("*.service"), *DEPLOY.glob("*.timer")])


def commands() -> list[str]:
    """Every call of `sessionary` in the units, the container file and the code of the page."""
    found = [line.split("bin/sessionary ")[1] for unit in UNITS for line in _starts(unit)]
    container = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    found += [" ".join(re.findall(r'"([^"]+)"', line)) for line in _lines(container, 'CMD ["serve')]
    for block in re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        for line in block.splitlines():
            calls = re.findall(
                r"(?:^|&& |exec sessionary |/data )sessionary ([a-z].*?)(?= &&|$)", line
            )
            found += [re.sub(r"\s+#.*", "", call) for call in calls]
    found += re.findall(r"`sessionary ([a-z][^`…]*)`", PAGE.read_text(encoding="utf-8"))
    return found


def _starts(unit: Path) -> list[str]:
    return _lines(unit.read_text(encoding="utf-8"), "ExecStart")


def _lines(text: str, beginning: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(beginning)]


def test_there_is_something_to_check() -> None:
    names = {command.split()[0] for command in commands()}

    assert names >= {"serve", "backup", "config", "restore", "verify", "password", "doctor"}


@pytest.mark.parametrize("text", commands())
def test_a_command_and_its_options_exist(text: str) -> None:
    rest = shlex.split(text)
    found: click.Command | None = root
    name = "sessionary"
    while isinstance(found, click.Group):
        name = rest.pop(0)
        found = found.get_command(click.Context(found), name)
        assert found is not None, text
    assert found is not None
    found.make_context(name, rest, resilient_parsing=False).close()


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_can_be_read(unit: Path) -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(unit.read_text(encoding="utf-8"))

    assert parser.has_section("Unit")
    assert "Timer" in parser or parser["Service"]["User"] == "sessionary"


def test_the_settings_of_the_page_are_accepted(tmp_path: Path) -> None:
    sessionary = Program(tmp_path / "home")
    blocks = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    sessionary.home.mkdir()
    for block in blocks:
        (sessionary.home / "sessionary.toml").write_text(block, encoding="utf-8")
        answer = sessionary("config", "check")
        assert answer.code == 0, answer.err


def test_the_proxies_lead_to_the_ports_that_are_served() -> None:
    serve = next(line for line in _starts(DEPLOY / "sessionary.service") if " serve " in line)
    served = re.findall(r"--port (\d+)", serve)
    webhooks = re.findall(r"webhook_port = (\d+)", PAGE.read_text(encoding="utf-8"))
    for name in ("nginx.conf", "Caddyfile"):
        ports = set(re.findall(r"127\.0\.0\.1:(\d+)", (DEPLOY / name).read_text(encoding="utf-8")))
        assert ports == {*served, *webhooks}, name
