"""Commands of other packages: found by their metadata, after ours, and no danger to them."""

from pathlib import Path

import click
import pytest

from sessionary.cli import plugins, root
from sessionary.errors import PluginFailed
from sessionary.plugins import PluginGroup
from tests.cli.conftest import Program
from tests.support.packages import Packages
from tools import cli_page

MODULE = """
import click
from sessionary.cli import Console, command, pass_console

@command("{name}", example="sessionary {name} 1")
@click.argument("number", type=int)
@click.option("--loud", is_flag=True, help="In capitals.")
@pass_console
def PLUGIN(console: Console, number: int, *, loud: bool) -> None:
    \"\"\"Divide by a number, and count the sessions.\"\"\"
    share = 100 // number
    with console.client() as client:
        found = len(client.sessions().items)
    console.answer({{"share": share, "sessions": found}}, f"{{share}} {{found}}")
"""


class CommandPackages(Packages):
    """Packages with one command each."""

    def install_command(self, name: str, package: str, module: str = "") -> None:
        """Install a package whose module makes a `PLUGIN`."""
        module = module or MODULE.format(name=name)
        self.install(package, module, group="sessionary.commands", name=name)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandPackages:
    """An empty directory of packages, and a group that has not read it yet."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    group = PluginGroup(
        "sessionary.commands", "command", click.Command, reserved=root.COMMANDS.reserved
    )
    monkeypatch.setattr(root, "COMMANDS", group)
    monkeypatch.setattr(plugins, "GROUPS", (group,))
    return CommandPackages(folder)


def test_a_command_of_another_package_reads_the_store_that_the_options_name(
    packages: CommandPackages, sessionary: Program
) -> None:
    packages.install_command("share", "share-a")
    sessionary.append("new", "hello")

    assert sessionary("share", "4").out == "25 1\n"
    assert sessionary("share", "4", "--json").json == {"share": 25, "sessions": 1}
    assert sessionary("share", "4", "--profile", "other").out == "25 0\n"


def test_help_lists_it_with_its_package_without_importing_it(
    packages: CommandPackages, sessionary: Program
) -> None:
    packages.install_command("share", "share-b", "raise RuntimeError('imported')")
    packages.install_command("halve", "halve-b", "raise RuntimeError('imported')")

    shown = sessionary("--help").out

    assert "\nCommands of halve-b 1.0:\n  halve\n\nCommands of share-b 1.0:\n  share\n" in shown
    assert shown.index("\n  completion ") < shown.index("halve-b") < shown.index("\nOptions:")


def test_a_command_has_its_own_help(packages: CommandPackages, sessionary: Program) -> None:
    packages.install_command("share", "share-c")

    shown = sessionary("share", "--help").out

    assert "Divide by a number, and count the sessions." in shown
    assert "\n  sessionary share 1" in shown
    assert "Options of every command:" in shown


def test_a_misspelt_name_is_answered_with_the_command_of_a_package(
    packages: CommandPackages, sessionary: Program
) -> None:
    packages.install_command("share", "share-d")

    answer = sessionary("shar", "4")

    assert answer.code == 2
    assert answer.line.startswith("sessionary: No such command 'shar'. Did you mean 'share'?")


def test_our_command_wins_and_the_package_is_reported(
    packages: CommandPackages, sessionary: Program
) -> None:
    packages.install_command("stats", "stats-e", "raise RuntimeError('imported')")
    sessionary.append("new", "hello")

    assert sessionary("stats", "--json").json["sessions"] == 1
    assert "stats-e" not in sessionary("--help").out
    assert (
        "bad   plug-in: The command 'stats' of stats-e 1.0 cannot be used: Sessionary has its own command of "
        "that name. Uninstall the package.\n"
    ) in sessionary("doctor").out


def test_a_command_that_raises_is_one_line_and_with_debug_a_traceback(
    packages: CommandPackages, sessionary: Program
) -> None:
    packages.install_command("share", "share-f")

    answer = sessionary("share", "0")

    assert answer.code == 1
    assert answer.line == (
        "sessionary: The command 'share' of share-f 1.0 failed: ZeroDivisionError: "
        "integer division or modulo by zero. The same command with --debug shows where."
    )
    assert sessionary("share", "0", "--json").json["error"]["type"] == "plugin-failed"
    with pytest.raises(PluginFailed) as caught:
        sessionary("share", "0", "--debug")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_what_sessionary_and_click_refuse_is_reported_as_it_is_for_our_commands(
    packages: CommandPackages, sessionary: Program
) -> None:
    packages.install_command("share", "share-g")

    missing, wrong = sessionary("share", "1"), sessionary("share", "one")

    assert (missing.code, wrong.code) == (3, 2)
    assert missing.line.startswith("sessionary: There is no store at ")
    assert wrong.line.startswith("sessionary: Invalid value for 'NUMBER'")


def test_a_command_that_cannot_be_loaded_is_one_line_and_completes_without_an_error(
    packages: CommandPackages, sessionary: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages.install_command("share", "share-h", "import nothing_h")

    answer = sessionary("share", "1")

    assert answer.code == 1
    assert "'share' of share-h 1.0 cannot be loaded: ModuleNotFoundError" in answer.line
    assert completed(sessionary, monkeypatch, "sessionary share --") == ["--home"]


def completed(sessionary: Program, monkeypatch: pytest.MonkeyPatch, words: str) -> list[str]:
    """What bash offers after these words, without the options of every command but the first."""
    monkeypatch.setenv("_SESSIONARY_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    answer = sessionary()
    assert answer.err == ""
    shared = {f"--{name}" for name in ("database", "profile", "json", "utc", "debug", "version")}
    found = [line.partition(",")[2] for line in answer.out.splitlines()]
    return [each for each in found if each and each not in shared | {"--help"}]


def test_a_shell_completes_its_name_and_its_options(
    packages: CommandPackages, sessionary: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages.install_command("share", "share-i")

    assert completed(sessionary, monkeypatch, "sessionary sha") == ["share"]
    assert completed(sessionary, monkeypatch, "sessionary share --l") == ["--loud"]


def test_an_unknown_command_completes_to_nothing(
    packages: CommandPackages, sessionary: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert completed(sessionary, monkeypatch, "sessionary nosuch x") == []


def test_the_pages_of_the_command_line_have_our_commands_only(packages: CommandPackages) -> None:
    packages.install_command("share", "share-j")

    assert "sessionary share" not in cli_page.page() + cli_page.man_page()
