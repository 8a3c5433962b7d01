"""`sessionary verify`, `rebuild` and `stats`."""

import click

from sessionary.actions.upkeep import stats as stats_action
from sessionary.actions.upkeep import verify as checking
from sessionary.cli.console import Console
from sessionary.cli.table import Column, count, size, table
from sessionary.cli.tree import command, pass_console

SHOWN_SIZES = 12
# How long the index is fed between two lines of progress.
STEP_SECONDS = 0.5


@command("verify", example="sessionary verify && echo clean")
@pass_console
def verify(console: Console) -> None:
    """Check that the record agrees with itself; each broken invariant is named.

    Every session of every profile is compared with its log, its ledger and its turns.
    """
    with console.client() as client:
        found = checking.verify(
            client.store, progress=lambda done: console.progress(f"{done:,} sessions checked")
        )
    console.end_progress()
    broken = [
        {"invariant": each.invariant, "where": each.where, "what": each.what}
        for each in found.broken
    ]
    checked = f"{count(found.sessions, 'session')}, {count(found.entries, 'entry')} checked"
    lines = [f"{each['invariant']}: {each['where']}: {each['what']}" for each in broken]
    if broken:
        lines.append(
            f"{checked}; {len(broken):,} broken. `sessionary rebuild` makes counts and sums again, "
            "`sessionary rebuild --index` the search index; for damage, `sessionary restore` a backup."
        )
    else:
        lines.append(f"{checked}; everything holds.")
    value = {
        "ok": not broken,
        "sessions": found.sessions,
        "entries": found.entries,
        "broken": broken,
    }
    console.answer(value, "\n".join(lines))
    if broken:
        raise click.exceptions.Exit(1)


@command("rebuild", example="sessionary rebuild\nsessionary rebuild --index")
@click.option("--index", is_flag=True, help="The search index alone, from nothing.")
@pass_console
def rebuild(console: Console, *, index: bool) -> None:
    """Make counts, previews and sums again from the log, which is not changed."""
    if index:
        _rebuild_index(console)
        return
    with console.client() as client:
        wrong = checking.rebuild(
            client.store, progress=lambda done: console.progress(f"{done:,} sessions rebuilt")
        )
    console.end_progress()
    console.answer({"changed": wrong}, f"{count(wrong, 'session')} had to be changed.")


def _rebuild_index(console: Console) -> None:
    with console.client() as client:
        client.store.rebuild_index().result()
        state = client.store.catch_up(0).result()
        total = state.behind
        while state.behind:
            console.progress(f"{max(0, total - state.behind):,} of {total:,} changes indexed")
            state = client.store.catch_up(STEP_SECONDS).result()
    console.end_progress()
    console.answer({"indexed": total}, f"{count(total, 'change')} indexed.")


@command("stats", example="sessionary stats")
@pass_console
def stats(console: Console) -> None:
    """Count what is in the store, of all profiles, and say what takes the room."""
    with console.client() as client:
        found = client.reading(stats_action.stats).result()
    names = (
        "sessions",
        "open_sessions",
        "entries",
        "turns",
        "waiting_arrivals",
        "open_deliveries",
        "blobs",
        "blob_bytes",
    )
    value = {name: getattr(found, name) for name in names}
    sizes = [{"name": name, "bytes": amount} for name, amount in found.sizes]
    total = sum(amount for _, amount in found.sizes)
    rows = [
        [name.replace("_", " "), size(number) if name.endswith("bytes") else f"{number:,}"]
        for name, number in value.items()
    ]
    rows.append(["tables and indexes", size(total)])
    largest = [[name, size(amount)] for name, amount in found.sizes[:SHOWN_SIZES]]
    counts = table((Column("WHAT"), Column("HOW MUCH", right=True)), rows, width=None)
    room = table((Column("LARGEST"), Column("SIZE", right=True)), largest, width=None)
    console.answer(value | {"bytes": total, "sizes": sizes}, f"{counts}\n\n{room}")
