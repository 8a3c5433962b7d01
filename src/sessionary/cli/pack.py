"""`sessionary pack`."""

from dataclasses import asdict

import click

from sessionary.actions.retention import pack as packing
from sessionary.cli import times
from sessionary.cli.console import Console
from sessionary.cli.table import count, size
from sessionary.cli.tree import command, pass_console
from sessionary.store.open import sqlite_path
from sessionary.store.sqlite.db_file import vacuum

WAIT_SECONDS = 60.0


@command(
    "pack",
    example="sessionary pack --older-than 180d\nsessionary pack --older-than 1y --apply --shrink",
)
@click.option(
    "--older-than", metavar="SPAN", default="180d", show_default=True, help="Quiet for so long."
)
@click.option("--apply", "apply_it", is_flag=True, help="Do it. Without: say what would be packed.")
@click.option("--shrink", is_flag=True, help="Then write an SQLite file anew, without free room.")
@pass_console
def pack(console: Console, *, older_than: str, apply_it: bool, shrink: bool) -> None:
    """Compress sessions that have been quiet for long.

    They stay where they are: read, searched, exported and continued as before. One with words that
    cannot be read is left alone and named; the exit code is 1 then.
    """
    times.span(older_than)
    if shrink and not apply_it:
        raise click.UsageError("--shrink needs --apply.")
    with console.client() as client:
        before = times.parse_time(older_than, now=client.moment().now, zone=console.zone(client))
        if not apply_it:
            found = sum(
                1 for _ in packing.candidates(client.store, profile=client.profile, before=before)
            )
            console.answer(
                {"applied": False, "sessions": found},
                f"{count(found, 'session')} would be packed. Nothing was changed: give --apply.",
            )
            return
        done = packing.pack(
            client.store,
            profile=client.profile,
            before=before,
            progress=lambda sessions: console.progress(f"{sessions:,} sessions"),
        )
        path = sqlite_path(client.config.database)
    console.end_progress()
    if shrink and path is not None:
        vacuum(path, wait_seconds=WAIT_SECONDS)
    value = {
        "applied": True,
        "sessions": done.sessions,
        "messages": done.messages,
        "bytes_before": done.before,
        "bytes_after": done.after,
        "damaged": [asdict(each) for each in done.damaged],
    }
    console.answer(
        value,
        f"{count(done.sessions, 'session')} with {count(done.messages, 'message')} packed: "
        f"{size(done.before)} are {size(done.after)} now.",
    )
    for each in done.damaged:
        console.note(f"Session {each.session_id} was left as it is: {each.reason}")
    if done.damaged:
        console.note("A backup may have what is missing; sessionary doctor tells more.")
        raise click.exceptions.Exit(1)
