"""`./dev bench`: print the benchmark table."""

import sys
from pathlib import Path

import click

from benchmarks import command, growth, profiles
from sessionary.errors import SessionaryError


@click.command("bench")
@click.argument("names", nargs=-1, metavar="[NAME]…")
@click.option("--quick", "scale", flag_value="quick", help="Less than a minute.")
@click.option("--full", "scale", flag_value="full", help="Up to 1,000,000 sessions.")
@click.option("--scale", "scale", default="normal", hidden=True)
@click.option(
    "--only", multiple=True, type=click.Choice(growth.PARTS), help="Of growth, only this part."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the table to a file.")
@click.option("--against", metavar="REV", help="Measure this revision too, in the same rounds.")
@click.option("--resume", is_flag=True, help="Keep what the file of -o has; measure the rest.")
def main(
    names: tuple[str, ...],
    *,
    scale: str,
    output: Path | None,
    only: tuple[str, ...],
    against: str | None,
    resume: bool,
) -> None:
    """Print the benchmark table, beside raw SQLite and the disk's own rate.

    Without names all benchmarks run, each on stores of its own. `growth`, by its name alone,
    measures each operation in stores of growing size. `profile` prints the functions that take the
    most CPU time: `profile engine`, `append`, `import`, or all three.
    """
    try:
        if names == ("growth",):
            growth.main(scale=scale, output=output, echo=click.echo, only=only)
        elif names[:1] == ("profile",):
            profiles.main(names[1:], scale=scale, against=against, output=output, echo=click.echo)
        else:
            command.main(
                names, scale=scale, output=output, against=against, resume=resume, echo=click.echo
            )
    except SessionaryError as error:
        sys.exit(f"bench: {error}")


if __name__ == "__main__":
    main()
