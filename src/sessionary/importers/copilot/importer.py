"""GitHub Copilot: the chat of VS Code, and the command line."""

from collections.abc import Iterator
from pathlib import Path

from sessionary.importers.base import files
from sessionary.importers.base.events import Event, Resume, Unit, UserEnvironment
from sessionary.importers.copilot import cli, vscode

_CHATS = ("chatSessions", "emptyWindowChatSessions", "transferredChatSessions")


class Copilot:
    """Reads the conversations of GitHub Copilot."""

    name = "copilot"
    title = "GitHub Copilot"

    def places(self, user: UserEnvironment) -> list[Path]:
        """The directories of VS Code's user on each system, and of the command line."""
        roots = (".config", "Library/Application Support", "AppData/Roaming")
        editions = ("Code", "Code - Insiders", "VSCodium")
        users = [user.home / root / name / "User" for root in roots for name in editions]
        servers = [
            user.home / name / "data" / "User" for name in (".vscode-server", ".vscodium-server")
        ]
        return [*users, *servers, user.path("COPILOT_HOME", ".copilot") / "session-state"]

    def recognises(self, path: Path) -> bool:
        """Whether it is a conversation, or a directory with some."""
        if files.is_file(path):
            return _is_chat(path) or cli.first_event(path) is not None
        return any(True for _ in _found(path))

    def find(self, place: Path) -> Iterator[Unit]:
        for path in [place] if files.is_file(place) else _found(place):
            workspace = path.parent.parent / "workspace.json"
            beside = (workspace,) if _is_chat(path) else (path.parent / "workspace.yaml",)
            stamp = files.stamp_of(path, *beside)
            yield Unit(str(path), path, stamp, files.size_of(path), beside, hint=workspace)

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        if _is_chat(unit.path):
            yield from vscode.read(unit)
        else:
            yield from cli.read(unit, resume)


def _found(place: Path) -> Iterator[Path]:
    for path in files.walk(place, suffixes=(".json", ".jsonl"), depth=3):
        is_log = path.name == "events.jsonl" or path.parent.name == "transcripts"
        if path.parent.name in _CHATS or (is_log and cli.first_event(path) is not None):
            yield path


def _is_chat(path: Path) -> bool:
    if path.suffix not in (".json", ".jsonl"):
        return False
    if path.parent.name in _CHATS:
        return True
    first = files.head(path, 4096)
    return b'"requests"' in first and (b'"sessionId"' in first or b'"responderUsername"' in first)


IMPORTER = Copilot()
