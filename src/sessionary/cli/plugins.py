"""The plug-ins of other packages that are installed, for commands that list them."""

from dataclasses import dataclass
from typing import Any

from sessionary.agents.registry import AGENTS
from sessionary.channels.registry import CHANNELS
from sessionary.cli.root import COMMANDS
from sessionary.errors import PluginFailed
from sessionary.importers.registry import IMPORTERS
from sessionary.plugins import PluginGroup

GROUPS: tuple[PluginGroup[Any], ...] = (CHANNELS, AGENTS, IMPORTERS, COMMANDS)


@dataclass(frozen=True, slots=True)
class InstalledPlugin:
    """A plug-in of another package, and the reason why it cannot be used, if it cannot."""

    kind: str
    name: str
    package: str
    version: str
    problem: str | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.name} ({self.package} {self.version})"


def installed_plugins() -> list[InstalledPlugin]:
    """Load the plug-ins of other packages, and return what was found."""
    found = []
    for group in GROUPS:
        for plugin in group.installed:
            if plugin.is_ours:
                continue
            problem = None
            try:
                group.load(plugin.name)
            except PluginFailed as error:
                problem = str(error)
            found.append(
                InstalledPlugin(group.noun, plugin.name, plugin.package, plugin.version, problem)
            )
    return found
