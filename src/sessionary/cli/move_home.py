"""`sessionary move-home`."""

from pathlib import Path

import click

from sessionary import config
from sessionary.cli.console import Console
from sessionary.cli.table import count
from sessionary.cli.tree import command, pass_console
from sessionary.errors import BadInput, NotFound
from sessionary.store.move import move_home as move
from sessionary.store.open import sqlite_path


@command(
    "move-home", example="sessionary move-home\nsessionary move-home ~/old-home --home ~/new-home"
)
@click.argument("old", metavar="[OLD]", required=False, type=click.Path(path_type=Path))
@pass_console
def move_home(console: Console, old: Path | None) -> None:
    """Move a home that was made when this program was called Hansard to its new name.

    OLD is found by itself where it is at its usual place. The directory and the files in it are
    renamed; nothing in them is changed. A store that a program still uses is refused.
    """
    new = Path(console.home) if console.home else config.default_home()
    candidates = [old] if old else config.former_homes(new, is_named=bool(console.home))
    found = next((each for each in candidates if config.is_former_home(each)), None)
    if found is None:
        where = " or ".join(str(each) for each in candidates)
        raise NotFound(f"There is no home of the former name at {where}; nothing was moved.")
    _refuse_named_path(found)
    files = move(found, new, old_name=config.FORMER_NAME, new_name="sessionary")
    value = {"from": str(found), "to": str(new), "files": files}
    console.answer(value, f"{found} is {new} now ({count(files, 'file')} renamed).")


def _refuse_named_path(home: Path) -> None:
    """A configuration that names the store by its path would miss it after the move."""
    database = config.read_file(home / f"{config.FORMER_NAME}.toml").get("database")
    path = sqlite_path(database) if isinstance(database, str) else None
    if path is not None and Path(path).resolve().parent == home.resolve():
        raise BadInput(
            f"{home / config.FORMER_NAME}.toml names the store by its old path ({database}); nothing was moved. "
            "Remove its line `database`, and give the command again."
        )
