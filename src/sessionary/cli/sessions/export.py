"""`sessionary export`: sessions as files, each written whole or not at all."""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sessionary.actions.transfer import export as exports
from sessionary.cli.console import Console, count, size
from sessionary.cli.sessions.refs import REF, find_head
from sessionary.cli.tree import command, pass_console
from sessionary.errors import NotFound
from sessionary.model.handover.excerpt import HandoverExcerpt
from sessionary.model.handover.forms import HANDOVER_FORMATS
from sessionary.model.record import ExportOptions
from sessionary.store import filesystem

if TYPE_CHECKING:
    from sessionary.app.context import AppContext


EXPORTERS = {
    "jsonl": exports.export_jsonl,
    "md": exports.export_markdown,
    "html": exports.export_html,
}
# Not a file to continue from, but one to read by SQL.
STATE = "hermes-state"
# Control characters have no meaning in a page to read.
CONTROL_CHARACTERS = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)], "\ufffd")


@command(
    "export",
    example="sessionary export --all -o conversations.jsonl\nsessionary export Capitals --format md\n"
    "sessionary export Capitals --as claude-code --budget 50000 -o session.jsonl\n"
    "sessionary export --as hermes-state state.db",
)
@click.argument("refs", nargs=-1, type=REF, metavar="[REF]…")
@click.option(
    "--format", "form", type=click.Choice(list(EXPORTERS)), default="jsonl", show_default=True
)
@click.option("--all", "everything", is_flag=True, help="Every session of the profile.")
@click.option("--no-tools", is_flag=True, help="Leave out tool calls and results.")
@click.option("--no-reasoning", is_flag=True, help="Leave out the reasoning of models.")
@click.option("--redact", is_flag=True, help="Hide people's ids, phone numbers and addresses.")
@click.option(
    "--as",
    "tool",
    type=click.Choice([*HANDOVER_FORMATS, STATE]),
    help="A file with which this tool continues the session; hermes-state: sessions as a new state.db.",
)
@click.option(
    "--budget", type=int, metavar="N", help="With --as: at most this many tokens, the newest."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to a file.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("--mask-secrets", is_flag=True, help="Mask keys, tokens and passwords.")
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
    """Write sessions: as complete JSONL that can be imported again, or as Markdown or HTML to read.

    With --as, write one session as a file with which another tool continues it. With --as hermes-state FILE, write all
    sessions, or those named before FILE, as a SQLite file with the tables of Hermes.
    """
    options = ExportOptions(
        tools=not left_out["no_tools"],
        reasoning=not left_out["no_reasoning"],
        redact=left_out["redact"],
        mask_secrets=left_out["mask_secrets"],
    )
    named = None
    if tool == STATE:
        if output is None and refs:
            *names, named = refs
            refs, output = tuple(names), Path(named)
        everything = everything or not refs
    _check(console, refs, form=form, everything=everything, output=output, tool=tool, budget=budget)
    if output is not None:
        refuse_to_overwrite(output, force=force)
    with console.open() as app:
        ids = list(dict.fromkeys(find_head(app, ref).id for ref in refs))
        if named is not None and not refs:
            _refuse_session_as_file(app, named)
        if tool == STATE and output is not None:
            _write_state(console, app, output, ids if refs else None, options, force=force)
            return
        if tool is not None:
            tokens = exports.HANDOVER_BUDGET if budget is None else budget
            made = exports.handover_excerpt(
                app.store, ids[0], profile=app.profile, budget=tokens, options=options
            )
            _hand_over(console, made, tool, output, force=force)
            return
        pieces = _pieces(app, ids if refs else None, form, options)
        _write(console, pieces, form, output, force=force)


def _check(
    console: Console, refs: tuple[str, ...], *, form: str, everything: bool, **more: Any
) -> None:
    """Refuse options that exclude each other."""
    if more["tool"] is None and more["budget"] is not None:
        raise click.UsageError("--budget needs --as.")
    if more["tool"] == STATE:
        if more["output"] is None or more["budget"] is not None or form != "jsonl":
            raise click.UsageError(f"--as {STATE} takes a FILE, and not --format or --budget.")
    elif more["tool"] is not None and (everything or len(refs) != 1 or form != "jsonl"):
        raise click.UsageError("--as takes one session, and not --format or --all.")
    if bool(refs) is everything:
        raise click.UsageError("Name sessions, or give --all.")
    if console.json and more["output"] is None and (form != "jsonl" or more["tool"] is not None):
        what = f"--format {form}" if more["tool"] is None else f"--as {more['tool']}"
        raise click.UsageError(f"--json with {what} needs -o FILE.")


def _refuse_session_as_file(app: "AppContext", name: str) -> None:
    """Refuse a file name that is a session: its owner wants that session, not all of them in a file of its name."""
    try:
        find_head(app, name)
    except NotFound:
        return
    raise click.UsageError(
        f"{name!r} is a session. Name the file after it, or use -o {name!r} to write all sessions to a file "
        "of that name."
    )


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
    """Write the file, and print how to continue with it."""
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


def _write_state(
    console: Console,
    app: "AppContext",
    output: Path,
    ids: list[str] | None,
    options: ExportOptions,
    *,
    force: bool,
) -> None:
    from sessionary.compat.hermes.state_file import export_state  # only this format needs it

    sessions = export_state(
        app.store, output, ids, profile=app.profile, options=options, overwrite=force
    )
    written = output.stat().st_size
    value = {"file": str(output), "as": STATE, "bytes": written, "sessions": sessions}
    console.answer(value, f"{output}: {count(sessions, 'session')}, {size(written)}")


def _print(console: Console, pieces: Iterator[str]) -> None:
    """Print to a terminal without control characters, to a pipe byte for byte."""
    for piece in pieces:
        if console.is_terminal:
            console.print(piece.removesuffix("\n"))
        else:
            sys.stdout.write(piece)


def _pieces(
    app: "AppContext", ids: list[str] | None, form: str, options: ExportOptions
) -> Iterator[str]:
    """Yield the export in pieces of whole lines."""
    for piece in EXPORTERS[form](app.store, ids, profile=app.profile, options=options):
        shown = piece if form == "jsonl" else piece.translate(CONTROL_CHARACTERS)
        yield shown if shown.endswith("\n") else f"{shown}\n"


def write_pieces(path: Path, pieces: Iterable[str], *, force: bool) -> int:
    """Write text to a private file and return its size in bytes; a failure leaves no file."""
    refuse_to_overwrite(path, force=force)
    with (
        filesystem.new_file(path) as draft,
        draft.open("w", encoding="utf-8", errors="backslashreplace") as file,
    ):
        file.writelines(pieces)
        return file.tell()


def refuse_to_overwrite(path: Path, *, force: bool) -> None:
    """Refuse a path that cannot be written, before any work is done."""
    filesystem.refuse_to_overwrite(path, is_allowed=force, hint="Add --force to overwrite it.")
