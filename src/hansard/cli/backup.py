"""`hansard backup`."""

from pathlib import Path

import click

from hansard.cli.console import Console
from hansard.cli.table import count, share, size
from hansard.cli.tree import command, pass_console
from hansard.clock import RandomIds, SystemClock
from hansard.store import backup as making


@command("backup", example="hansard backup /mnt/safe/hansard-2026-01-31.db")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@pass_console
def backup(console: Console, file: Path, *, force: bool) -> None:
    """Copy the store into a file while it is in use, and check the copy.

    The file holds everything that was stored before this began, of all profiles. It is a store
    itself: `--database FILE` reads it, `hansard restore FILE` puts it in the store's place.
    """
    with console.house() as house:
        made = making.backup(
            house.store,
            file,
            clock=SystemClock(),
            ids=RandomIds(),
            overwrite=force,
            progress=lambda done, whole: console.progress(share(done, whole)),
        )
    console.end_progress()
    held = made.contents
    value = {
        "file": made.file,
        "bytes": made.bytes,
        "store_id": held.store_id,
        "generation": held.generation,
        "sessions": held.sessions,
        "entries": held.entries,
    }
    told = f"{count(held.sessions, 'session')}, {count(held.entries, 'entry')}"
    console.answer(value, f"{made.file}: {told}, {size(made.bytes)}, checked.")
