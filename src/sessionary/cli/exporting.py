"""`sessionary export`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sessionary.actions.transfer import handover, jsonl_export, render
from sessionary.cli.console import Console
from sessionary.cli.files import refuse_to_overwrite, write_pieces
from sessionary.cli.refs import REF, find_head
from sessionary.cli.table import size
from sessionary.cli.tree import command, pass_console
from sessionary.model.handover.forms import HANDOVER_FORMATS
from sessionary.model.handover.passage import HandoverExcerpt
from sessionary.model.record import ExportOptions

if TYPE_CHECKING:
    from sessionary.client.client import Sessionary

WAYS = {
    "jsonl": jsonl_export.export_jsonl,
    "md": render.export_markdown,
    "html": render.export_html,
}
# What steers a terminal has no meaning in a page to read.
SHOWN = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)], "\ufffd")


@command(
    "export",
    example="sessionary export --all -o conversations.jsonl\nsessionary export Capitals --format md\n"
    "sessionary export Capitals --as claude-code --budget 50000 -o session.jsonl",
)
@click.argument("refs", nargs=-1, type=REF, metavar="[REF]…")
@click.option("--format", "form", type=click.Choice(list(WAYS)), default="jsonl", show_default=True)
@click.option("--all", "everything", is_flag=True, help="Every session of the profile.")
@click.option("--no-tools", is_flag=True, help="Leave out what tools were asked and answered.")
@click.option("--no-reasoning", is_flag=True, help="Leave out what models thought.")
@click.option("--redact", is_flag=True, help="Hide people's ids, phone numbers and addresses.")
@click.option(
    "--as",
    "tool",
    type=click.Choice(list(HANDOVER_FORMATS)),
    help="A file that a tool goes on from.",
)
@click.option("--budget", type=int, help="With --as: at most so many tokens, the newest.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to a file.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@click.option("--mask-secrets", is_flag=True, help="Leave out keys, tokens and passwords.")
@pass_console
def export(
    console: Console,
    refs: tuple[str, ...],
    *,
    form: str,
    everything: bool,
    output: Path | None,
    force: bool,
    tool: str | None,
    budget: int | None,
    **left_out: bool,
) -> None:
    """Write sessions: JSONL without loss, to be imported again; Markdown or HTML to read.

    With --as one session becomes a file that another tool can go on from.
    """
    extent = ExportOptions(
        tools=not left_out["no_tools"],
        reasoning=not left_out["no_reasoning"],
        redact=left_out["redact"],
        mask_secrets=left_out["mask_secrets"],
    )
    _check(console, refs, form=form, everything=everything, output=output, tool=tool, budget=budget)
    if output is not None:
        refuse_to_overwrite(output, force=force)
    with console.client() as client:
        ids = list(dict.fromkeys(find_head(client, ref).id for ref in refs))
        if tool is not None:
            tokens = handover.BUDGET if budget is None else budget
            made = handover.passage(
                client.store, ids[0], profile=client.profile, budget=tokens, extent=extent
            )
            _hand_over(console, made, tool, output, force=force)
            return
        pieces = _pieces(client, ids if refs else None, form, extent)
        _write(console, pieces, form, output, force=force)


def _check(
    console: Console, refs: tuple[str, ...], *, form: str, everything: bool, **more: Any
) -> None:
    """Refuse what does not go together."""
    if more["tool"] is None and more["budget"] is not None:
        raise click.UsageError("--budget goes with --as.")
    if more["tool"] is not None and (everything or len(refs) != 1 or form != "jsonl"):
        raise click.UsageError("--as takes one session, and no --format.")
    if bool(refs) is everything:
        raise click.UsageError("Name sessions, or give --all.")
    if console.json and more["output"] is None and (form != "jsonl" or more["tool"] is not None):
        what = f"--format {form}" if more["tool"] is None else f"--as {more['tool']}"
        raise click.UsageError(f"--json with {what} needs -o FILE.")


def _write(
    console: Console, pieces: Iterator[str], form: str, output: Path | None, *, force: bool
) -> None:
    if output is not None:
        written = write_pieces(output, pieces, force=force)
        value = {"file": str(output), "format": form, "bytes": written}
        console.answer(value, f"{output}: {size(written)}")
    elif console.json:
        console.emit_items((json.loads(piece) for piece in pieces), before={})
    else:
        _print(console, pieces)


def _hand_over(
    console: Console,
    made: HandoverExcerpt,
    tool: str,
    output: Path | None,
    *,
    force: bool,
) -> None:
    """Write the file, and say how to go on with it."""
    form = HANDOVER_FORMATS[tool]
    if output is None:
        for piece in form.pieces(made):
            sys.stdout.write(piece)
        console.note(form.advice(made, f"session.{form.suffix}"))
        return
    written = write_pieces(output, form.pieces(made), force=force)
    advice = form.advice(made, str(output))
    value = {"file": str(output), "as": tool, "bytes": written, "messages": len(made.lines)}
    console.answer(
        value | {"left_out": made.left_out, "next": advice}, f"{output}: {size(written)}\n{advice}"
    )


def _print(console: Console, pieces: Iterator[str]) -> None:
    """A terminal gets what it can show; a pipe gets every byte."""
    for piece in pieces:
        if console.is_terminal:
            console.print(piece.removesuffix("\n"))
        else:
            sys.stdout.write(piece)


def _pieces(
    client: "Sessionary", ids: list[str] | None, form: str, extent: ExportOptions
) -> Iterator[str]:
    """The export, a line or an entry at a time, each with the end of its line."""
    for piece in WAYS[form](client.store, ids, profile=client.profile, extent=extent):
        shown = piece if form == "jsonl" else piece.translate(SHOWN)
        yield shown if shown.endswith("\n") else f"{shown}\n"
