"""`sessionary route` and `bindings`: which session a message goes to."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from sessionary.actions.sessions import read, routing
from sessionary.actions.sessions.lists import MAX_LIMIT
from sessionary.actions.sessions.routing import Binding
from sessionary.cli import times
from sessionary.cli.console import Column, Console
from sessionary.cli.sessions.refs import find_head, ref_argument
from sessionary.cli.tree import command, group, pass_console
from sessionary.clock import Moment
from sessionary.errors import NotFound
from sessionary.model import source as keys
from sessionary.model.reset import ResetPolicy
from sessionary.model.session import SessionHead
from sessionary.model.source import SessionKey, Source
from sessionary.model.view import head_json, policy_json, time_text
from sessionary.store.database import Tx

if TYPE_CHECKING:
    from sessionary.app.context import AppContext


@command("explain", example="sessionary route explain --platform telegram --type group --chat -100")
@click.option("--platform", metavar="P", required=True, help="The platform it comes from.")
@click.option(
    "--type",
    "chat_type",
    metavar="T",
    default="dm",
    show_default=True,
    help="dm, group, channel or thread.",
)
@click.option("--chat", metavar="C", help="The chat's id.")
@click.option("--thread", metavar="T", help="The thread's id.")
@click.option("--person", metavar="P", help="The id of the person who writes.")
@pass_console
def explain(console: Console, **asked: str | None) -> None:
    """Explain which session a message would go to, and why."""
    source = Source(
        platform=asked["platform"] or "",
        chat_id=asked["chat"],
        chat_type=asked["chat_type"] or "",
        thread_id=asked["thread"],
        user_id=asked["person"],
    )
    with console.open() as app:
        value = _explained(app, source)
    console.answer(value, _explanation_text(value))


def _explained(app: "AppContext", source: Source) -> dict[str, Any]:
    key = app.key(source)
    policy = app.policies.choose(source)
    head, due = app.store.read(_look, app, key, policy).result()
    return {
        "key": str(key),
        "reasons": keys.explain(source, profile=app.profile, isolation=app.isolation),
        "binding": None if head is None else _binding_json(head),
        "policy": _policy(app, source, policy),
        "next_message": _next(head, due),
    }


def _look(
    tx: "Tx", app: "AppContext", key: keys.SessionKey, policy: ResetPolicy
) -> tuple[SessionHead | None, str | None]:
    head = routing.get_current(tx, key)
    if head is None or not head.is_open:
        return head, None
    return head, routing.get_reset_reason(tx, head, policy=policy, moment=app.moment())


def _binding_json(head: SessionHead) -> dict[str, Any]:
    return {
        "session_id": head.id,
        "title": head.title,
        "is_open": head.is_open,
        "last_active_at": time_text(head.last_active_at),
    }


def _policy(app: "AppContext", source: Source, policy: ResetPolicy) -> dict[str, Any]:
    if source.platform in app.policies.by_platform:
        why = f"set for the platform {source.platform}"
    elif source.chat_type in app.policies.by_type:
        why = f"set for chats of type {source.chat_type}"
    else:
        why = "the default"
    return policy_json(policy) | {"why": why}


def _next(head: SessionHead | None, due: str | None) -> str:
    if head is None:
        return "opens the first session of this chat"
    if not head.is_open:
        return f"opens a new session: {head.id} has ended ({head.end_reason})"
    if due is not None:
        return f"opens a new session: {head.id} is due for a reset ({due})"
    if head.read_only:
        return f"opens a new session: {head.id} is read-only"
    return f"goes to session {head.id}"


def _explanation_text(value: dict[str, Any]) -> str:
    policy = value["policy"]
    clocks = [
        f"after {policy['idle_minutes']:g} idle minutes" if policy["idle_minutes"] else "",
        f"daily at {policy['daily_at']} {policy['zone']}" if policy["daily_at"] else "",
    ]
    moment = " or ".join(filter(None, clocks)) or "never automatically"
    binding = value["binding"]
    on = "no session yet" if binding is None else binding["session_id"]
    return "\n".join(
        [
            f"key:      {value['key']}",
            *(f"          {line}" for line in value["reasons"][:-1]),
            f"binding:  {on}",
            f"policy:   {policy['mode']}, {policy['why']}; resets {moment}",
            f"next:     a message {value['next_message']}",
        ]
    )


route = group(
    "route",
    "Explain which session a message goes to.",
    [explain],
)


@command("list", example="sessionary bindings list --json")
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_LIMIT),
    default=100,
    show_default=True,
    metavar="N",
    help="How many to list.",
)
@click.option("--cursor", metavar="NEXT", help="Where the last page ended (its `next`).")
@pass_console
def list_bindings(console: Console, *, limit: int, cursor: str | None) -> None:
    """List the session keys, and the session that each is on."""
    with console.open() as app:
        page = app.store.read(
            routing.list_bindings, profile=app.profile, limit=limit, cursor=cursor
        ).result()
        now, zone = app.moment().now, console.zone(app)
    console.print_list(
        [_item_json(each, now=now) for each in page.items],
        (
            Column("KEY", flexible=True),
            Column("SESSION"),
            Column("ACTIVE", right=True),
            Column("TITLE", flexible=True),
        ),
        [
            [
                each.key,
                each.session.id,
                times.ago(each.session.last_active_at, now=now, zone=zone),
                each.session.title or each.session.preview or "",
            ]
            for each in page.items
        ],
        empty="No key is bound to a session.",
        cursor=page.next,
    )


@command("reset", example="sessionary bindings reset main/telegram/dm/chat=42")
@click.argument("key", metavar="KEY")
@pass_console
def reset(console: Console, key: str) -> None:
    """End a key's session; the next message opens a new one."""
    parsed = SessionKey.parse(key)
    with console.open() as app:
        _refuse_foreign(parsed, app.profile)
        ended = app.store.write(_reset, parsed, moment=app.moment()).result()
    what = "no session was open" if ended is None else f"session {ended.id} ended"
    value = {"key": str(parsed), "ended_session_id": None if ended is None else ended.id}
    console.answer(value, f"{parsed}: {what}; the next message opens a new one.")


@command("switch", example="sessionary bindings switch main/telegram/dm/chat=42 Capitals")
@click.argument("key", metavar="KEY")
@ref_argument
@pass_console
def switch(console: Console, key: str, ref: str) -> None:
    """Switch a key to another session; the old one ends."""
    parsed = SessionKey.parse(key)
    with console.open() as app:
        _refuse_foreign(parsed, app.profile)
        head = app.store.write(
            _switch, parsed, find_head(app, ref).id, moment=app.moment()
        ).result()
    shown = head_json(head, now=app.clock.now())
    console.answer({"key": str(parsed), "session": shown}, f"{parsed} is now on session {head.id}.")


def _reset(tx: Tx, key: SessionKey, *, moment: Moment) -> SessionHead | None:
    if routing.get_current(tx, key) is None:
        raise NotFound(f"The key {key} is on no session.")
    return routing.reset(tx, key, moment=moment)


def _switch(tx: Tx, key: SessionKey, session_id: str, *, moment: Moment) -> SessionHead:
    target = read.find(tx, session_id, profile=key.profile)
    return routing.switch(tx, key, target, moment=moment)


def _refuse_foreign(key: SessionKey, profile: str) -> None:
    """Refuse a key of another profile than the chosen one."""
    if key.profile != profile:
        raise NotFound(
            f"The key belongs to profile {key.profile}, not {profile}: add --profile {key.profile}."
        )


def _item_json(each: Binding, *, now: datetime) -> dict[str, Any]:
    return {
        "key": each.key,
        "session_id": each.session.id,
        "bound_at": time_text(each.bound_at),
        "session": head_json(each.session, now=now),
    }


bindings = group(
    "bindings",
    "See and change which session a chat is on.",
    [list_bindings, reset, switch],
)


COMMANDS: dict[str, click.Command] = {"route": route, "bindings": bindings}
