"""Plug-ins of other packages: found by their metadata, loaded by name, and no danger to each other."""

import subprocess
import sys
import tomllib
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from sessionary import config
from sessionary.app.context import AppContext
from sessionary.app.server import channels_of
from sessionary.channels import ChannelKind, registry
from sessionary.errors import BadInput, PluginFailed
from sessionary.plugins import PluginGroup
from tests.project.code import ROOT
from tests.support.packages import Packages


@dataclass(frozen=True)
class Lamp:
    """What a plug-in of these tests registers."""

    name: str


class LampPackages(Packages):
    """Packages that register a lamp."""

    def install_lamp(
        self, package: str, name: str, module: str, *, version: str = "1.0", group: str = "lamps"
    ) -> None:
        """Install a package whose module makes a `PLUGIN`."""
        module = f"from tests.test_plugins import Lamp\n{module}\n"
        self.install(package, module, group=group, name=name, version=version)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LampPackages:
    monkeypatch.syspath_prepend(tmp_path)
    return LampPackages(tmp_path)


def lamps() -> PluginGroup[Lamp]:
    return PluginGroup("lamps", "lamp", Lamp)


def test_a_plug_in_is_loaded_by_its_name(packages: LampPackages) -> None:
    packages.install_lamp("desk_a", "desk", "PLUGIN = Lamp('desk')")

    assert lamps().load("desk").name == "desk"
    assert [str(each) for each in lamps().installed] == ["desk_a 1.0"]


def test_an_unknown_name_is_answered_with_the_nearest_and_all_that_are_installed(
    packages: LampPackages,
) -> None:
    packages.install_lamp("desk_b", "desk", "PLUGIN = Lamp('desk')")
    packages.install_lamp("floor_b", "floor", "PLUGIN = Lamp('floor')")

    with pytest.raises(BadInput) as caught:
        lamps().load("desk2")

    assert str(caught.value) == (
        "There is no lamp 'desk2'. Did you mean 'desk'? Installed: desk, floor."
    )


def test_a_group_without_anything_says_how_to_install_the_metadata_again() -> None:
    with pytest.raises(BadInput, match=r"install it again \(\./dev setup\)\. Installed: none\.$"):
        lamps().load("desk")


def test_a_plug_in_that_fails_is_named_in_one_line_and_the_others_load(
    packages: LampPackages,
) -> None:
    packages.install_lamp("broken_c", "broken", "raise RuntimeError('no bulb\\nat all')")
    packages.install_lamp("desk_c", "desk", "PLUGIN = Lamp('desk')")
    group = lamps()

    with pytest.raises(PluginFailed) as caught:
        group.load("broken")

    assert str(caught.value) == (
        "The lamp 'broken' of broken_c 1.0 cannot be loaded: RuntimeError: no bulb. "
        "Update or uninstall the package."
    )
    assert group.load("desk").name == "desk"


@pytest.mark.parametrize(
    ("module", "what"), [("PLUGIN = 3", "a int"), ("PLUGIN = Lamp('x')", "a Lamp named 'x'")]
)
def test_an_object_that_is_something_else_is_refused(
    packages: LampPackages, module: str, what: str
) -> None:
    package = "odd_" + str(len(module))
    packages.install_lamp(package, "odd", module)

    with pytest.raises(PluginFailed, match=f"is {what}; expected: Lamp of that name"):
        lamps().load("odd")


def test_a_name_that_is_reserved_is_refused_and_not_listed(packages: LampPackages) -> None:
    packages.install_lamp("desk_g", "desk", "PLUGIN = Lamp('desk')")
    group = PluginGroup("lamps", "lamp", Lamp, reserved=["desk"])

    with pytest.raises(PluginFailed) as caught:
        group.load("desk")

    assert str(caught.value) == (
        "The lamp 'desk' of desk_g 1.0 cannot be used: Sessionary has its own lamp of that name. "
        "Uninstall the package."
    )
    assert group.names == []


def test_two_packages_with_the_same_name_are_both_named(packages: LampPackages) -> None:
    packages.install_lamp("first_e", "desk", "PLUGIN = Lamp('desk')")
    packages.install_lamp("second_e", "desk", "PLUGIN = Lamp('desk')", version="2.0")

    with pytest.raises(PluginFailed) as caught:
        lamps().load("desk")

    assert str(caught.value) == (
        "The lamp 'desk' is registered by first_e 1.0 and second_e 2.0; uninstall all but one."
    )


async def test_a_channel_that_cannot_be_loaded_leaves_the_others_running(
    packages: LampPackages,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    packages.install_lamp("broken_f", "broken", "import nothing_f", group=registry.CHANNELS.group)
    group = PluginGroup(registry.CHANNELS.group, "channel", ChannelKind)
    monkeypatch.setattr(registry, "CHANNELS", group)
    (tmp_path / "sessionary.toml").write_text("[channels.broken]\n[channels.api]\n")
    app = cast(AppContext, SimpleNamespace(config=config.load(home=str(tmp_path))))

    adapters = channels_of(app)

    assert list(adapters) == ["api"]
    (record,) = caplog.records
    assert "The channel broken is not started, the others are: " in record.getMessage()
    assert "broken_f 1.0 cannot be loaded: ModuleNotFoundError" in record.getMessage()
    for adapter in adapters.values():
        await adapter.close()


def test_the_environment_has_what_pyproject_registers() -> None:
    """If this fails, the environment is older than pyproject.toml: run ./dev setup."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]

    for group, names in wanted.items():
        found = {each.name: each.value for each in entry_points(group=group)}
        assert found == names, "run ./dev setup"


def test_a_command_without_channels_loads_neither_their_base_nor_the_metadata() -> None:
    program = (
        "import sys, sessionary.cli.configuration\n"
        "print({'sessionary.channels.base', 'importlib.metadata'} & {*sys.modules})"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "set()\n"
