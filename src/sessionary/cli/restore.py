"""`sessionary restore`."""

import os
from pathlib import Path

import click

from sessionary import config
from sessionary.cli.console import Console, shown_url
from sessionary.cli.table import count, share
from sessionary.cli.tree import command, pass_console
from sessionary.clock import RandomIds, SystemClock
from sessionary.store import backup
from sessionary.store import restore as restoring
from sessionary.store.open import sqlite_path


@command("restore", example="sessionary restore /mnt/safe/sessionary-2026-01-31.db --yes")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--yes", "--force", "yes", is_flag=True, help="Replace the store that is there.")
@pass_console
def restore(console: Console, file: Path, *, yes: bool) -> None:
    """Put a backup in the place of the store; the old one is kept beside it.

    The backup is checked first. A store that another program uses is refused; a PostgreSQL
    database must be empty.
    """
    settings = config.load(home=console.home, database=console.database)
    held = backup.inspect(file)
    path = sqlite_path(settings.database)
    if path is not None and os.path.exists(path):
        said = count(held.sessions, "session")
        console.confirm(f"The store at {path} would be replaced by one with {said}.", yes=yes)
    if path is not None and console.database is None and Path(path).parent == settings.home:
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    done = restoring.restore(
        file,
        settings.database,
        clock=SystemClock(),
        ids=RandomIds(),
        force=True,
        progress=lambda done, whole: console.progress(share(done, whole)),
    )
    console.end_progress()
    now = done.contents
    where = shown_url(settings.database)
    value = {
        "database": where,
        "kept": done.kept,
        "store_id": now.store_id,
        "generation": now.generation,
        "sessions": now.sessions,
        "entries": now.entries,
    }
    told = f"{count(now.sessions, 'session')}, {count(now.entries, 'entry')}"
    kept = f" The old one is {done.kept}." if done.kept else ""
    console.answer(value, f"{where} has {told} now.{kept}")
