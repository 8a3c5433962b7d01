"""`sessionary backup`."""

from pathlib import Path
from typing import Any

import click

from sessionary.cli.console import Console
from sessionary.cli.table import count, share, size
from sessionary.cli.tree import command, pass_console
from sessionary.clock import RandomIds, SystemClock
from sessionary.store import backup as making
from sessionary.store import backups


@command(
    "backup",
    example="sessionary backup /mnt/safe/sessionary-2026-01-31.db\nsessionary backup --into /mnt/safe --keep 14",
)
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@click.option("--into", "folder", type=click.Path(path_type=Path), help="A folder of backups.")
@click.option("--keep", type=click.IntRange(min=1), help="Then delete all but the newest in it.")
@pass_console
def backup(
    console: Console, file: Path | None, *, force: bool, folder: Path | None, keep: int | None
) -> None:
    """Copy the store into a file while it is in use, and check the copy.

    The file holds everything that was stored before this began, of all profiles. It is a store
    itself: `--database FILE` reads it, `sessionary restore FILE` puts it in the store's place. With
    --into the file is named by the time: call that by a timer, and go back to any of those times.
    """
    if (file is None) is (folder is None):
        raise click.UsageError("Name a FILE, or a folder with --into.")
    if keep is not None and folder is None:
        raise click.UsageError("--keep needs --into.")
    with console.client() as client:
        target = file if folder is None else backups.named(folder, SystemClock().now())
        assert target is not None
        made = making.backup(
            client.store,
            target,
            clock=SystemClock(),
            ids=RandomIds(),
            overwrite=force,
            progress=lambda done, whole: console.progress(share(done, whole)),
        )
    console.end_progress()
    deleted = [] if folder is None or keep is None else backups.delete_older(folder, keep)
    _tell(console, made, deleted)


def _tell(console: Console, made: making.BackupReport, deleted: list[str]) -> None:
    held = made.contents
    value: dict[str, Any] = {
        "file": made.file,
        "bytes": made.bytes,
        "store_id": held.store_id,
        "generation": held.generation,
        "sessions": held.sessions,
        "entries": held.entries,
        "deleted": deleted,
    }
    told = f"{count(held.sessions, 'session')}, {count(held.entries, 'entry')}"
    older = f" {count(len(deleted), 'older backup')} deleted." if deleted else ""
    console.answer(value, f"{made.file}: {told}, {size(made.bytes)}, checked.{older}")
