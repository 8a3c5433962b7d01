"""`sessionary prune`, `pack`, `erase`, `erasures` and `scan-secrets`."""

from dataclasses import asdict
from datetime import datetime

import click
from msgspec import structs

from sessionary.actions.retention import erase as erasing
from sessionary.actions.retention import pack as packing
from sessionary.actions.retention import purge, secrets
from sessionary.actions.retention.erase import ErasureSubject, PersonContent
from sessionary.cli import times
from sessionary.cli.console import Column, Console, count, size
from sessionary.cli.sessions.refs import REF, find_head
from sessionary.cli.tree import command, pass_console
from sessionary.model.view import time_text
from sessionary.store.open import sqlite_path
from sessionary.store.sqlite.db_file import vacuum
from sessionary.store.tables import retention


@command(
    "prune", example="sessionary prune --older-than 90d\nsessionary prune --source telegram --apply"
)
@click.option(
    "--older-than",
    metavar="SPAN",
    default="90d",
    show_default=True,
    help="Only sessions that ended longer ago.",
)
@click.option("--source", metavar="S", help="Only from this platform.")
@click.option("--apply", "apply_it", is_flag=True, help="Do it. Without: only count.")
@pass_console
def prune(console: Console, *, older_than: str, source: str | None, apply_it: bool) -> None:
    """Delete sessions that ended long ago, forever.

    Without --apply they are only counted. Open and pinned sessions are never deleted,
    nor those with a subagent that is pinned or running.
    """
    times.span(older_than)
    sessions = entries = amount = 0
    with console.open() as app:
        moment = app.moment()
        before = times.parse_time(older_than, now=moment.now, zone=console.zone(app))
        found = purge.find_prunable(app.store, profile=app.profile, before=before, platform=source)
        for each in found:
            if (
                apply_it
                and not app.store.write(
                    purge.prune,
                    each.session_id,
                    profile=app.profile,
                    before=before,
                    moment=app.moment(),
                ).result()
            ):
                continue
            sessions, entries, amount = (
                sessions + each.sessions,
                entries + each.entries,
                amount + each.size,
            )
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
        console.answer(value, f"{what}: deleted.")
    else:
        hint = " Add --apply to delete them." if sessions else ""
        console.answer(value, f"{what} would be deleted.{hint}")


WAIT_SECONDS = 60.0


@command(
    "pack",
    example="sessionary pack --older-than 180d\nsessionary pack --older-than 1y --apply --shrink",
)
@click.option(
    "--older-than",
    metavar="SPAN",
    default="180d",
    show_default=True,
    help="Only sessions inactive for this long.",
)
@click.option("--apply", "apply_it", is_flag=True, help="Do it. Without: only count them.")
@click.option("--shrink", is_flag=True, help="Then rewrite an SQLite file without free space.")
@pass_console
def pack(console: Console, *, older_than: str, apply_it: bool, shrink: bool) -> None:
    """Compress sessions that have been inactive for long.

    They are read, searched, exported and continued as before. Damaged sessions are not packed but
    listed; the exit code is 1 then.
    """
    times.span(older_than)
    if shrink and not apply_it:
        raise click.UsageError("--shrink needs --apply.")
    with console.open() as app:
        before = times.parse_time(older_than, now=app.moment().now, zone=console.zone(app))
        if not apply_it:
            found = sum(
                1 for _ in packing.candidates(app.store, profile=app.profile, before=before)
            )
            console.answer(
                {"applied": False, "sessions": found},
                f"{count(found, 'session')} would be packed. Nothing was changed; add --apply to do it.",
            )
            return
        done = packing.pack(
            app.store,
            profile=app.profile,
            before=before,
            progress=lambda sessions: console.progress(f"{sessions:,} sessions"),
        )
        path = sqlite_path(app.config.database)
    console.end_progress()
    if shrink and path is not None:
        vacuum(path, wait_seconds=WAIT_SECONDS)
    value = {
        "applied": True,
        "sessions": done.sessions,
        "messages": done.messages,
        "bytes_before": done.before,
        "bytes_after": done.after,
        "damaged": [structs.asdict(each) for each in done.damaged],
    }
    console.answer(
        value,
        f"{count(done.sessions, 'session')} with {count(done.messages, 'message')} packed: "
        f"{size(done.before)} became {size(done.after)}.",
    )
    for each in done.damaged:
        console.note(f"Session {each.session_id} was not packed: {each.reason}")
    if done.damaged:
        console.note("A backup may have what is missing; `sessionary doctor` shows more.")
        raise click.exceptions.Exit(1)


# They may still be on an access list, or have written without being allowed.
NO_MESSAGES = (
    "{person!r} has written nothing on {platform!r}. PERSON is the id that the platform gives them, not a "
    "name: `sessionary sessions show REF --json` has it (`user_id`, or a message's `person`)."
)


@command(
    "erase",
    example="sessionary erase telegram 123456789\nsessionary erase telegram 123456789 --apply --json",
)
@click.argument("platform")
@click.argument("person")
@click.option("--apply", "apply_it", is_flag=True, help="Do it. Without: only count.")
@pass_console
def erase(console: Console, platform: str, person: str, *, apply_it: bool) -> None:
    """Erase a person forever: their messages, files and permissions on a platform.

    PERSON is the id that the platform gives them. Sessions with nobody else are purged; in others
    their messages are emptied. The receipt says what was erased and what remains.
    """
    subject = ErasureSubject(platform, person)
    with console.open() as app:

        def progress(seen: int) -> None:
            console.progress(f"{seen:,} sessions")

        if not apply_it:
            found = list(
                erasing.find_content(app.store, subject, profile=app.profile, progress=progress)
            )
            console.end_progress()
            _tell_plan(console, found)
            if not found:
                console.note(NO_MESSAGES.format(person=person, platform=platform))
            return
        receipt = erasing.erase(
            app.store, subject, profile=app.profile, moment=app.moment(), progress=progress
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
    """List the receipts of erasures, oldest first; a person appears only as a hash."""
    with console.open() as app:
        found = app.store.read(retention.receipts, profile=app.profile).result()
    console.print_list(
        found,
        (
            Column("RECEIPT"),
            Column("AT"),
            Column("PERSON", flexible=True),
            Column("SESSIONS", right=True),
            Column("MESSAGES", right=True),
        ),
        [
            [
                str(each["id"]),
                console.time_cell(datetime.fromisoformat(str(each["at"])), app),
                str(each["person"]),
                *(f"{each[name]:,}" for name in ("sessions_purged", "messages_erased")),
            ]
            for each in found
        ],
        empty="Nobody was erased.",
    )


def _left(receipt: erasing.Receipt) -> str:
    if not receipt.left:
        return ""
    return f"Not erased, because a turn is running: {', '.join(receipt.left)}. Stop it and erase again.\n"


def _tell_plan(console: Console, found: list[PersonContent]) -> None:
    whole = sum(each.is_whole for each in found)
    messages = sum(len(each.seqs) for each in found)
    value = {
        "applied": False,
        "sessions_purged": whole,
        "sessions_changed": len(found) - whole,
        "messages_erased": messages,
        "sessions": [each.head.id for each in found],
    }
    console.answer(
        value,
        f"{count(whole, 'session')} would be purged, {count(messages, 'message')} erased, "
        f"{count(len(found) - whole, 'session')} with others kept. Nothing was changed; "
        "add --apply to do it.",
    )


@command(
    "scan-secrets", example="sessionary scan-secrets\nsessionary scan-secrets 'deploy notes' --json"
)
@click.argument("refs", nargs=-1, type=REF, metavar="[REF]…")
@pass_console
def scan_secrets(console: Console, refs: tuple[str, ...]) -> None:
    """Find keys, tokens and passwords in messages.

    Only secrets of a known form are found, and only a part of each is shown. Nothing is changed: revoke
    what you find, then purge its session or mask it with `sessionary export --mask-secrets`.
    """
    with console.open() as app:
        ids = list(dict.fromkeys(find_head(app, ref).id for ref in refs)) or None
        found = list(
            secrets.scan(
                app.store,
                ids,
                profile=app.profile,
                progress=lambda done: console.progress(f"{done:,} sessions"),
            )
        )
    console.end_progress()
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
    columns = (
        Column("SESSION"),
        Column("SEQ", right=True),
        Column("ROLE"),
        Column("KIND"),
        Column("SHOWN"),
        Column("TITLE", flexible=True),
    )
    rows = [
        [*map(str, item.values()), each.session.title or each.session.preview or ""]
        for item, each in zip(items, found, strict=True)
    ]
    console.print_list(items, columns, rows, empty="Nothing that looks like a secret was found.")
    if found and not console.json:
        console.note(f"{count(len(found), 'secret')} found. Revoke those that are still valid.")


COMMANDS: dict[str, click.Command] = {
    "prune": prune,
    "pack": pack,
    "erase": erase,
    "erasures": erasures,
    "scan-secrets": scan_secrets,
}
