"""`sessionary prune`."""

import click

from sessionary.actions.retention import purge as pruning
from sessionary.cli import times
from sessionary.cli.console import Console
from sessionary.cli.table import count, size
from sessionary.cli.tree import command, pass_console
from sessionary.model.view import time_text


@command(
    "prune", example="sessionary prune --older-than 90d\nsessionary prune --source telegram --apply"
)
@click.option(
    "--older-than", metavar="SPAN", default="90d", show_default=True, help="Ended longer ago."
)
@click.option("--source", metavar="S", help="Only from this platform.")
@click.option("--apply", "apply_it", is_flag=True, help="Do it. Without: say what would go.")
@pass_console
def prune(console: Console, *, older_than: str, source: str | None, apply_it: bool) -> None:
    """Delete sessions that ended long ago, for ever.

    Without --apply it only counts them. Open and pinned sessions are never deleted.
    """
    times.span(older_than)
    sessions = entries = amount = 0
    with console.client() as client:
        moment = client.moment()
        before = times.parse_time(older_than, now=moment.now, zone=console.zone(client))
        found = pruning.look(client.store, profile=client.profile, before=before, platform=source)
        for each in found:
            if (
                apply_it
                and not client.writing(
                    pruning.prune_one,
                    each.session_id,
                    profile=client.profile,
                    before=before,
                    moment=client.moment(),
                ).result()
            ):
                continue
            sessions, entries, amount = sessions + 1, entries + each.entries, amount + each.size
            console.progress(f"{sessions:,} sessions")
    console.end_progress()
    value = {
        "applied": apply_it,
        "ended_before": time_text(before),
        "sessions": sessions,
        "entries": entries,
        "bytes": amount,
    }
    what = f"{count(sessions, 'session')} with {count(entries, 'entry')}, {size(amount)}"
    if apply_it:
        console.answer(value, f"{what}: gone.")
    else:
        hint = " Add --apply to delete them." if sessions else ""
        console.answer(value, f"{what} would go.{hint}")
