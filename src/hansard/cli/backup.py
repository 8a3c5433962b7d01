"""`hansard backup`, `restore` and `migrate`."""

import click

from hansard.cli.console import Console
from hansard.cli.tree import command, pass_console
from hansard.errors import BadInput


@command("backup", example="hansard backup /mnt/safe/hansard-2026-01-31.db")
@click.argument("file", metavar="FILE")
@pass_console
def backup(console: Console, file: str) -> None:
    """Copy the store into a file while it is in use."""
    raise BadInput("not yet")


@command("restore", example="hansard restore /mnt/safe/hansard-2026-01-31.db")
@click.argument("file", metavar="FILE")
@pass_console
def restore(console: Console, file: str) -> None:
    """Put a backup in the place of the store."""
    raise BadInput("not yet")
