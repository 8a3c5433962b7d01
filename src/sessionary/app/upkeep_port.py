"""Upkeep for the workbench: the same as the commands', as plain values."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sessionary.actions.upkeep import verify
from sessionary.client.client import Sessionary
from sessionary.config.web import WebTable
from sessionary.errors import StoreUnavailable
from sessionary.store import backup
from sessionary.store.sqlite.store import SqliteStore

FOLDER = "backups"
SHOWN_BROKEN = 100
Json = dict[str, Any]
Tell = Callable[[Json], None]


class HouseUpkeep:
    """What the web asks for when someone looks after the store in a browser."""

    def __init__(self, client: Sessionary, web: WebTable) -> None:
        self._client = client
        self._folder = web.backup_folder or client.config.home / FOLDER
        self._keep = web.keep_backups

    def overview(self) -> Json:
        """Where backups are, which there are, and how large the store is."""
        store = self._client.store
        return {
            "folder": str(self._folder),
            "keep": self._keep,
            "backups": [
                {"name": each.name, "bytes": each.bytes}
                for each in backup.list_backups(self._folder)
            ],
            "bytes": _size(store.path) if isinstance(store, SqliteStore) else None,
            "tasks": ["backup", "verify", *(["shrink"] if isinstance(store, SqliteStore) else [])],
        }

    def run(self, task: str, tell: Tell) -> Json:
        """Do one task to its end."""
        return {"backup": self._backup, "verify": self._verify, "shrink": self._shrink}[task](tell)

    def _backup(self, tell: Tell) -> Json:
        """A copy of everything, of all profiles, checked before it has its name."""
        machine = self._client.machine
        _make(self._folder)
        file = backup.new_backup_path(self._folder, machine.clock.now())
        made = backup.backup(
            self._client.store,
            file,
            clock=machine.clock,
            ids=machine.ids,
            progress=lambda done, whole: tell({"done": done, "whole": whole}),
        )
        deleted = [] if self._keep is None else backup.delete_old_backups(self._folder, self._keep)
        held = made.contents
        return {
            "file": made.file,
            "bytes": made.bytes,
            "sessions": held.sessions,
            "entries": held.entries,
            "deleted": deleted,
        }

    def _verify(self, tell: Tell) -> Json:
        found = verify.verify(
            self._client.store, progress=lambda done: tell({"done": done, "whole": 0})
        )
        broken = [
            {"invariant": each.invariant, "where": each.where, "what": each.what}
            for each in found.broken[:SHOWN_BROKEN]
        ]
        return {
            "sessions": found.sessions,
            "entries": found.entries,
            "broken": broken,
            "broken_count": len(found.broken),
        }

    def _shrink(self, tell: Tell) -> Json:
        store = self._client.store
        assert isinstance(store, SqliteStore)
        before = _size(store.path)
        store.shrink(on_step=lambda: tell({"done": 0, "whole": 0}))
        return {"before": before, "bytes": _size(store.path)}


def _make(folder: Path) -> None:
    """The folder, for nobody else's eyes."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(
            f"The directory {folder} cannot be made: {error.strerror}; no backup was made."
        ) from error


def _size(path: str) -> int:
    return sum(os.stat(each).st_size for each in (path, f"{path}-wal") if os.path.exists(each))
