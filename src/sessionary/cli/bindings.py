"""`sessionary bindings …`."""

from typing import Any

import click

from sessionary.actions.sessions import read, routing
from sessionary.actions.sessions import routing as binding_actions
from sessionary.actions.sessions.routing import Binding
from sessionary.cli import times
from sessionary.cli.console import Console
from sessionary.cli.refs import find_head, ref_argument
from sessionary.cli.table import Column, table
from sessionary.cli.tree import command, group, pass_console
from sessionary.clock import Moment
from sessionary.errors import NotFound
from sessionary.model.key import SessionKey
from sessionary.model.session import SessionHead
from sessionary.model.view import head_json, time_text
from sessionary.store.database import Tx


@command("list", example="sessionary bindings list --json")
@click.option(
    "--limit", type=click.IntRange(1, binding_actions.MAX_LIMIT), default=100, show_default=True
)
@click.option("--cursor", metavar="NEXT", help="Where the last page ended (its `next`).")
@pass_console
def list_bindings(console: Console, *, limit: int, cursor: str | None) -> None:
    """List the keys and the session each is on."""
    with console.client() as client:
        page = client.reading(
            binding_actions.list_bindings, profile=client.profile, limit=limit, cursor=cursor
        ).result()
        now, zone = client.moment().now, console.zone(client)
    if console.json:
        console.emit({"items": [_json(each) for each in page.items], "next": page.next})
        return
    if not page.items:
        console.note("No key is bound to a session.")
        return
    rows = [
        [
            each.key,
            each.session.id,
            times.ago(each.session.last_active_at, now=now, zone=zone),
            each.session.title or each.session.preview or "",
        ]
        for each in page.items
    ]
    columns = (
        Column("KEY", flexible=True),
        Column("SESSION"),
        Column("ACTIVE", right=True),
        Column("TITLE", flexible=True),
    )
    console.print(table(columns, rows, width=console.width if console.is_terminal else None))
    if page.next is not None:
        console.note(f"There is more: --cursor {page.next}")


@command("reset", example="sessionary bindings reset main/telegram/dm/chat=42")
@click.argument("key", metavar="KEY")
@pass_console
def reset(console: Console, key: str) -> None:
    """End a key's session, so that the next message opens another."""
    parsed = SessionKey.parse(key)
    with console.client() as client:
        _refuse_foreign(parsed, client.profile)
        ended = client.writing(_reset, parsed, moment=client.moment()).result()
    told = "none was open" if ended is None else f"session {ended.id} ended"
    value = {"key": str(parsed), "ended_session_id": None if ended is None else ended.id}
    console.answer(value, f"{parsed}: {told}; the next message opens a new one.")


@command("switch", example="sessionary bindings switch main/telegram/dm/chat=42 Capitals")
@click.argument("key", metavar="KEY")
@ref_argument
@pass_console
def switch(console: Console, key: str, ref: str) -> None:
    """Point a key at another session: the old one ends, the other goes on."""
    parsed = SessionKey.parse(key)
    with console.client() as client:
        _refuse_foreign(parsed, client.profile)
        head = client.writing(
            _switch, parsed, find_head(client, ref).id, moment=client.moment()
        ).result()
    console.answer(
        {"key": str(parsed), "session": head_json(head)}, f"{parsed} is on session {head.id} now."
    )


def _reset(tx: Tx, key: SessionKey, *, moment: Moment) -> SessionHead | None:
    if routing.current(tx, key) is None:
        raise NotFound(f"The key {key} is on no session.")
    return routing.reset(tx, key, moment=moment)


def _switch(tx: Tx, key: SessionKey, session_id: str, *, moment: Moment) -> SessionHead:
    target = read.resolve(tx, session_id, profile=key.profile)
    return routing.switch(tx, key, target, moment=moment)


def _refuse_foreign(key: SessionKey, profile: str) -> None:
    """Nothing is touched across profiles unless it is asked for by name."""
    if key.profile != profile:
        raise NotFound(
            f"The key is of profile {key.profile}, and this is {profile}: "
            f"add --profile {key.profile}."
        )


def _json(each: Binding) -> dict[str, Any]:
    return {
        "key": each.key,
        "session_id": each.session.id,
        "bound_at": time_text(each.bound_at),
        "session": head_json(each.session),
    }


bindings = group(
    "bindings",
    "See and change which chat is on which session.",
    {
        "list": (list_bindings, "List the keys and their sessions."),
        "reset": (reset, "End a key's session; the next message opens another."),
        "switch": (switch, "Point a key at another session."),
    },
)
