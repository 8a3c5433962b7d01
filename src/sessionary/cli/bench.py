"""`sessionary bench`."""

import importlib
from dataclasses import asdict
from pathlib import Path

import click

from sessionary.cli.console import Console
from sessionary.cli.tree import command, pass_console


@command("bench", example="sessionary bench append turn list load open")
@click.argument("names", nargs=-1, metavar="[NAME]…")
@click.option("--quick", "scale", flag_value="quick", help="Less than a minute.")
@click.option("--full", "scale", flag_value="full", help="Up to 1,000,000 sessions.")
@click.option("--scale", "scale", default="normal", hidden=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the table to a file.")
@pass_console
def bench(console: Console, names: tuple[str, ...], *, scale: str, output: Path | None) -> None:
    """Print the benchmark table, beside raw SQLite and the disk's own rate.

    Without names all benchmarks run. They use stores of their own; yours is not touched.
    `growth`, by its name alone, measures each operation in stores of growing size.
    """
    say = console.note if console.json else console.print
    if names == ("growth",):
        growing = importlib.import_module("sessionary.bench.growth")
        rows = growing.main(scale=scale, output=output, say=say)
    else:
        running = importlib.import_module("sessionary.bench.command")
        rows = running.main(names, scale=scale, output=output, say=say)
    if console.json:
        console.emit({"items": [asdict(row) for row in rows], "next": None})
