"""`sessionary migrate`."""

import click

from sessionary.cli.console import Console, shown_url
from sessionary.cli.table import count
from sessionary.cli.tree import command, pass_console
from sessionary.clock import RandomIds, SystemClock
from sessionary.errors import BadInput
from sessionary.store.copy_store import copy_store
from sessionary.store.open import open_store, sqlite_path


@command(
    "migrate",
    example="sessionary migrate --to postgresql://localhost/sessionary\n"
    "sessionary migrate --database postgresql://localhost/sessionary --to sqlite:///copy.db",
)
@click.option("--to", "url", metavar="URL", required=True, help="An empty database.")
@pass_console
def migrate(console: Console, url: str) -> None:
    """Copy the whole store to another database, and compare the two.

    All profiles are copied; the source stays as it is and must be at rest. A copy that was
    stopped goes on where it was when the same command is given again.
    """
    with console.client() as client:
        if _is_same(client.config.database, url):
            raise BadInput("The store cannot be copied to itself; nothing was changed.")
        target = open_store(
            url, create=True, clock=SystemClock(), ids=RandomIds(), half_copied=True
        )
        try:
            report = copy_store(
                client.store,
                target,
                progress=lambda table, rows: console.progress(f"{table}: {rows:,} rows"),
            )
        finally:
            target.close()
    console.end_progress()
    rows = dict(report.rows)
    value = {
        "to": shown_url(url),
        "store_id": report.store_id,
        "generation": report.generation,
        "resumed": report.resumed,
        "rows": rows,
    }
    told = f"{count(rows.get('sessions', 0), 'session')}, {count(rows.get('entries', 0), 'entry')}"
    where = "--database or SESSIONARY_DATABASE, or `database` in sessionary.toml"
    console.answer(
        value, f"{told} copied to {shown_url(url)} and compared. Name it by {where} to use it."
    )


def _is_same(source: str, target: str) -> bool:
    here, there = sqlite_path(source), sqlite_path(target)
    return source == target if here is None or there is None else here == there
