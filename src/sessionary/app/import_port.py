"""Imports for the workbench: the same as the command's, as plain values."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sessionary.client.client import Sessionary
from sessionary.model.view import time_text

if TYPE_CHECKING:
    from sessionary.app.imports import Discovery, Outcome


class WebImports:
    """What the web asks for when someone imports in a browser.

    What reads other tools' records is loaded on use: it would add 70 ms of CPU to every start.
    """

    def __init__(self, client: Sessionary) -> None:
        self._client = client

    def discover(self) -> list[dict[str, Any]]:
        """What is on this machine, tool by tool."""
        from sessionary.app import imports

        now = self._client.machine.clock.now()
        return [plain(each) for each in imports.discover(self._client, imports.here(), now=now)]

    def run(
        self, tools: Sequence[str], *, dry_run: bool, tell: Callable[[dict[str, Any]], None]
    ) -> list[dict[str, Any]]:
        """Import from where the tools keep their records; or only look."""
        from sessionary.app import imports

        wishes = imports.default_wishes(imports.here(), tools)
        if dry_run:
            found = imports.look(self._client, wishes, is_profile_asked_for=True)
            return [plain(each) for each in found.outcomes]
        # Whoever imports here is let into this profile alone: nothing is written to another.
        done = imports.run(
            self._client,
            wishes,
            lambda progress: tell(asdict(progress)),
            is_profile_asked_for=True,
        )
        return [plain(each) for each in done.outcomes]


def plain(value: "Discovery | Outcome") -> dict[str, Any]:
    """An answer without classes; times as text."""
    return {
        name: time_text(each) if isinstance(each, datetime) else each
        for name, each in asdict(value).items()
    }
