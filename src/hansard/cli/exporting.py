"""`hansard export`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hansard.actions import exporting, listing
from hansard.actions.read import find
from hansard.cli.console import Console
from hansard.cli.files import refuse_to_overwrite, write_lines
from hansard.cli.refs import REF
from hansard.cli.showing import walk
from hansard.cli.table import size
from hansard.cli.tree import command, pass_console
from hansard.model import html, markdown
from hansard.model.session import SessionHead, Shelf

if TYPE_CHECKING:
    from hansard.app.house import House

PAGE = 200
FORMATS = ("jsonl", "md", "html")
IN_PAGES = (Shelf.CHATS, Shelf.AUTOMATION, Shelf.ARCHIVE)


@command(
    "export",
    example="hansard export --all -o conversations.jsonl\nhansard export Capitals --format md",
)
@click.argument("refs", nargs=-1, type=REF, metavar="[REF]…")
@click.option("--format", "form", type=click.Choice(FORMATS), default="jsonl", show_default=True)
@click.option("--all", "everything", is_flag=True, help="Every session of the profile.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to a file.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@pass_console
def export(
    console: Console,
    refs: tuple[str, ...],
    *,
    form: str,
    everything: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Write sessions: JSONL without loss, to be imported again; Markdown or HTML to read."""
    if bool(refs) is everything:
        raise click.UsageError("Name sessions, or give --all.")
    if console.json and output is None and form != "jsonl":
        raise click.UsageError(f"--json with --format {form} needs -o FILE.")
    if output is not None:
        refuse_to_overwrite(output, force=force)
    with console.house() as house:
        ids = [house.reading(find, ref, profile=house.profile).result().id for ref in refs]
        lines = _lines(house, ids if refs else None, form)
        if output is not None:
            written = write_lines(output, lines, force=force)
            value = {"file": str(output), "format": form, "bytes": written}
            console.answer(value, f"{output}: {size(written)}")
        elif console.json:
            console.emit_items((json.loads(line) for line in lines), before={})
        else:
            _print(console, lines)


def _print(console: Console, lines: Iterator[str]) -> None:
    """A terminal gets what it can show; a pipe gets every byte."""
    for line in lines:
        if console.is_terminal:
            console.print(line)
        else:
            click.echo(line.encode("utf-8", "backslashreplace"))


def _lines(house: "House", ids: list[str] | None, form: str) -> Iterator[str]:
    if form == "jsonl":
        for line in exporting.export_jsonl(house.store, ids, profile=house.profile):
            yield line.rstrip("\n")
        return
    if form == "html":
        yield html.beginning("Sessions")
    for head in _heads(house, ids):
        if form == "html":
            yield from html.section(head, walk(house, head))
        else:
            yield from markdown.markdown(head, walk(house, head))
    if form == "html":
        yield html.ending()


def _heads(house: "House", ids: list[str] | None) -> Iterator[SessionHead]:
    if ids is not None:
        yield from (house.head(each) for each in dict.fromkeys(ids))
        return
    for shelf in IN_PAGES:
        cursor: str | None = None
        while True:
            page = house.reading(
                listing.listing,
                listing.Filters(shelf=shelf),
                profile=house.profile,
                limit=PAGE,
                cursor=cursor,
            ).result()
            yield from page.items
            cursor = page.next
            if cursor is None:
                break
