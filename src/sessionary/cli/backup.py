"""`sessionary backup`, `restore`, `migrate` and `move-home`: the store as a whole."""

import os
from pathlib import Path
from typing import Any

import click

from sessionary import config
from sessionary.cli.console import Console, count, share, shown_url, size
from sessionary.cli.tree import command, pass_console
from sessionary.clock import RandomIds, SystemClock
from sessionary.errors import BadInput, NotFound
from sessionary.store import backup as backup_store
from sessionary.store.copy_store import copy_store
from sessionary.store.open import open_store, sqlite_path


@command(
    "backup",
    example="sessionary backup /mnt/safe/sessionary-2026-01-31.db\nsessionary backup --into /mnt/safe --keep 14",
)
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("--into", "folder", type=click.Path(path_type=Path), help="A directory of backups.")
@click.option(
    "--keep", type=click.IntRange(1), metavar="N", help="Then delete all but the newest N in it."
)
@pass_console
def backup(
    console: Console, file: Path | None, *, force: bool, folder: Path | None, keep: int | None
) -> None:
    """Copy the store to a file while it is in use, and check the copy.

    The file has everything that was stored before the command began, of all profiles. It is a store
    itself: `--database FILE` reads it, `sessionary restore FILE` replaces the store with it. With --into
    the file is named by the time, so that a timer can make one every day.
    """
    if (file is None) is (folder is None):
        raise click.UsageError("Name a FILE, or a directory with --into.")
    if keep is not None and folder is None:
        raise click.UsageError("--keep needs --into.")
    with console.open() as app:
        target = (
            file if folder is None else backup_store.new_backup_path(folder, SystemClock().now())
        )
        assert target is not None
        made = backup_store.backup(
            app.store,
            target,
            clock=SystemClock(),
            ids=RandomIds(),
            overwrite=force,
            progress=lambda done, whole: console.progress(share(done, whole)),
        )
    console.end_progress()
    deleted = (
        [] if folder is None or keep is None else backup_store.delete_old_backups(folder, keep)
    )
    _tell_backup(console, made, deleted)


def _tell_backup(console: Console, made: backup_store.BackupReport, deleted: list[str]) -> None:
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
    summary = f"{count(held.sessions, 'session')}, {count(held.entries, 'entry')}"
    older = f" {count(len(deleted), 'older backup')} deleted." if deleted else ""
    console.answer(value, f"{made.file}: {summary}, {size(made.bytes)}, checked.{older}")


@command("restore", example="sessionary restore /mnt/safe/sessionary-2026-01-31.db --yes")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--yes", "--force", "yes", is_flag=True, help="Replace an existing store without asking."
)
@pass_console
def restore(console: Console, file: Path, *, yes: bool) -> None:
    """Replace the store with a backup; the old store is kept beside it.

    The backup is checked first. A store that another program uses is not replaced; a PostgreSQL
    database must be empty.
    """
    settings = config.load(home=console.home, database=console.database)
    contents = backup_store.inspect(file)
    path = sqlite_path(settings.database)
    if path is not None and os.path.exists(path):
        sessions = count(contents.sessions, "session")
        console.confirm(f"The store at {path} would be replaced by one with {sessions}.", yes=yes)
    if path is not None and console.database is None and Path(path).parent == settings.home:
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    done = backup_store.restore(
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
    summary = f"{count(now.sessions, 'session')}, {count(now.entries, 'entry')}"
    kept = f" The old store is kept as {done.kept}." if done.kept else ""
    console.answer(value, f"{where} now has {summary}.{kept}")


@command(
    "migrate",
    example="sessionary migrate --to postgresql://localhost/sessionary\n"
    "sessionary migrate --database postgresql://localhost/sessionary --to sqlite:///copy.db",
)
@click.option("--to", "url", metavar="URL", required=True, help="An empty database.")
@pass_console
def migrate(console: Console, url: str) -> None:
    """Copy the whole store to another database, and compare the two.

    All profiles are copied. The source is not changed, and nothing may write to it meanwhile. If the
    copy was interrupted, the same command continues it.
    """
    with console.open() as app:
        if _is_same(app.config.database, url):
            raise BadInput("The store cannot be copied to itself; nothing was changed.")
        target = open_store(
            url, create=True, clock=SystemClock(), ids=RandomIds(), half_copied=True
        )
        try:
            report = copy_store(
                app.store,
                target,
                progress=lambda table, rows: console.progress(f"{table}: {rows:,} rows"),
            )
        finally:
            target.close()
    console.end_progress()
    rows = dict(report.rows)
    value = {
        "to": shown_url(url),
        "store_id": report.store_id,
        "generation": report.generation,
        "resumed": report.resumed,
        "rows": rows,
    }
    summary = (
        f"{count(rows.get('sessions', 0), 'session')}, {count(rows.get('entries', 0), 'entry')}"
    )
    where = "--database or SESSIONARY_DATABASE, or `database` in sessionary.toml"
    console.answer(
        value, f"{summary} copied to {shown_url(url)} and compared. To use it, set {where}."
    )


def _is_same(source: str, target: str) -> bool:
    here, there = sqlite_path(source), sqlite_path(target)
    return source == target if here is None or there is None else here == there


@command(
    "move-home", example="sessionary move-home\nsessionary move-home ~/old-home --home ~/new-home"
)
@click.argument("old", metavar="[OLD]", required=False, type=click.Path(path_type=Path))
@pass_console
def move_home(console: Console, old: Path | None) -> None:
    """Move a home directory from the time when this program was called Hansard.

    OLD is found automatically if it is in its usual place. The directory and the files in it are renamed,
    not changed. A store that a program still uses is not moved.
    """
    new = Path(console.home) if console.home else config.default_home()
    candidates = [old] if old else config.former_homes(new, is_named=bool(console.home))
    found = next((each for each in candidates if config.is_former_home(each)), None)
    if found is None:
        where = " or ".join(str(each) for each in candidates)
        raise NotFound(f"There is no Hansard home at {where}; nothing was moved.")
    _refuse_named_path(found)
    files = backup_store.move_home(found, new, old_name=config.FORMER_NAME, new_name="sessionary")
    value = {"from": str(found), "to": str(new), "files": files}
    console.answer(value, f"{found} is now {new} ({count(files, 'file')} renamed).")


def _refuse_named_path(home: Path) -> None:
    """Refuse a configuration that names the store by its path: it would no longer find it."""
    database = config.read_file(home / f"{config.FORMER_NAME}.toml").get("database")
    path = sqlite_path(database) if isinstance(database, str) else None
    if path is not None and Path(path).resolve().parent == home.resolve():
        raise BadInput(
            f"{home / config.FORMER_NAME}.toml names the store by its old path ({database}); nothing was moved. "
            "Remove its line `database`, and run the command again."
        )


COMMANDS: dict[str, click.Command] = {
    "backup": backup,
    "restore": restore,
    "migrate": migrate,
    "move-home": move_home,
}
