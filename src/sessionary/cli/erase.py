"""`sessionary erase`, `sessionary erasures`."""

from dataclasses import asdict
from datetime import datetime

import click

from sessionary.actions.retention import erase as erasing
from sessionary.actions.retention.erase import ErasureSubject, PersonContent
from sessionary.cli.console import Console
from sessionary.cli.table import Column, count, table
from sessionary.cli.tree import command, pass_console

# They may still be on an access list, or have written without being let in.
NOTHING_SAID = (
    "{person!r} has said nothing on {platform!r}. A person is named by the id that the platform gives "
    "them, not by a name: `sessionary sessions show REF --json` has it (`user_id`, or a message's `person`)."
)


@command(
    "erase",
    example="sessionary erase telegram 123456789\nsessionary erase telegram 123456789 --apply --json",
)
@click.argument("platform")
@click.argument("person")
@click.option("--apply", "apply_it", is_flag=True, help="Do it. Without: say what would go.")
@pass_console
def erase(console: Console, platform: str, person: str, *, apply_it: bool) -> None:
    """Erase a person for ever: their messages, files and permissions on a platform.

    PERSON is the platform's id of them. Conversations that only they had are purged; in those with
    others their messages become empty places. The receipt says what went and what remains.
    """
    whom = ErasureSubject(platform, person)
    with console.client() as client:

        def progress(seen: int) -> None:
            console.progress(f"{seen:,} sessions")

        if not apply_it:
            found = list(
                erasing.look(client.store, whom, profile=client.profile, progress=progress)
            )
            console.end_progress()
            _tell_plan(console, found)
            if not found:
                console.note(NOTHING_SAID.format(person=person, platform=platform))
            return
        receipt = erasing.erase(
            client.store, whom, profile=client.profile, moment=client.moment(), progress=progress
        )
    console.end_progress()
    console.answer(
        asdict(receipt),
        f"{count(receipt.sessions_purged, 'session')} purged, "
        f"{count(receipt.messages_erased, 'message')} erased, "
        f"{count(receipt.sessions_changed, 'session')} with others kept. "
        f"Receipt {receipt.id}.\n{_left(receipt)}{receipt.remains}",
    )


@command("erasures", example="sessionary erasures\nsessionary erasures --json")
@pass_console
def erasures(console: Console) -> None:
    """Show the receipts of what was erased, oldest first. A person is named by a hash alone."""
    with console.client() as client:
        found = client.reading(erasing.receipts, profile=client.profile).result()
    if console.json:
        console.emit({"items": found, "next": None})
        return
    if not found:
        console.note("Nobody was erased.")
        return
    rows = [
        [
            str(each["id"]),
            console.time_cell(datetime.fromisoformat(str(each["at"])), client),
            str(each["person"]),
            *(f"{each[name]:,}" for name in ("sessions_purged", "messages_erased")),
        ]
        for each in found
    ]
    columns = (
        Column("RECEIPT"),
        Column("AT"),
        Column("PERSON", flexible=True),
        Column("SESSIONS", right=True),
        Column("MESSAGES", right=True),
    )
    console.print(table(columns, rows, width=console.width if console.is_terminal else None))


def _left(receipt: erasing.Receipt) -> str:
    if not receipt.left:
        return ""
    return f"A turn is running in {', '.join(receipt.left)}: not erased. Stop it and erase again.\n"


def _tell_plan(console: Console, found: list[PersonContent]) -> None:
    whole = sum(share.is_whole for share in found)
    messages = sum(len(share.seqs) for share in found)
    value = {
        "applied": False,
        "sessions_purged": whole,
        "sessions_changed": len(found) - whole,
        "messages_erased": messages,
        "sessions": [share.head.id for share in found],
    }
    console.answer(
        value,
        f"{count(whole, 'session')} would be purged, {count(messages, 'message')} erased, "
        f"{count(len(found) - whole, 'session')} with others kept. Nothing was changed: "
        "give --apply to do it.",
    )
