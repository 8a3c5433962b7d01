"""`sessionary scan-secrets`."""

import click

from sessionary.actions.retention import secrets
from sessionary.cli.console import Console
from sessionary.cli.refs import REF, find_head
from sessionary.cli.table import Column, count, table
from sessionary.cli.tree import command, pass_console


@command(
    "scan-secrets", example="sessionary scan-secrets\nsessionary scan-secrets 'deploy notes' --json"
)
@click.argument("refs", nargs=-1, type=REF, metavar="[REF]…")
@pass_console
def scan_secrets(console: Console, refs: tuple[str, ...]) -> None:
    """Find keys, tokens and passwords that stand in messages.

    Only what has a known form is found, and only a part of it is shown. Nothing is changed: revoke
    what you find, then purge its session or leave it out with `sessionary export --mask-secrets`.
    """
    with console.client() as client:
        ids = list(dict.fromkeys(find_head(client, ref).id for ref in refs)) or None
        found = list(
            secrets.scan(
                client.store,
                ids,
                profile=client.profile,
                progress=lambda done: console.progress(f"{done:,} sessions"),
            )
        )
    console.end_progress()
    if console.json:
        items = [
            {
                "session_id": each.session.id,
                "seq": each.seq,
                "role": each.role,
                "kind": each.kind,
                "shown": each.shown,
            }
            for each in found
        ]
        console.emit({"items": items, "next": None})
    elif found:
        console.print(_table(found, width=console.width if console.is_terminal else None))
        console.note(f"{count(len(found), 'secret')} found. Revoke what still works.")
    else:
        console.note("Nothing that looks like a secret was found.")


def _table(found: list[secrets.SecretMatch], *, width: int | None) -> str:
    columns = [
        Column("SESSION"),
        Column("SEQ", right=True),
        Column("ROLE"),
        Column("KIND"),
        Column("SHOWN"),
        Column("TITLE", flexible=True),
    ]
    lines = [
        [
            each.session.id,
            str(each.seq),
            each.role,
            each.kind,
            each.shown,
            each.session.title or each.session.preview or "",
        ]
        for each in found
    ]
    return table(columns, lines, width=width)
