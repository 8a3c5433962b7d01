"""`sessionary route explain`."""

from typing import TYPE_CHECKING, Any

import click

from sessionary.actions.sessions import routing
from sessionary.cli.console import Console
from sessionary.cli.tree import command, group, pass_console
from sessionary.model import key as keys
from sessionary.model.reset import ResetPolicy
from sessionary.model.session import SessionHead
from sessionary.model.source import Source
from sessionary.model.view import policy_json, time_text

if TYPE_CHECKING:
    from sessionary.client.client import Sessionary
    from sessionary.store.database import Tx


@command("explain", example="sessionary route explain --platform telegram --type group --chat -100")
@click.option("--platform", metavar="P", required=True, help="Where the message comes from.")
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
@click.option("--person", metavar="P", help="The id of who writes.")
@pass_console
def explain(console: Console, **asked: str | None) -> None:
    """Say which conversation a message would go to, and why."""
    source = Source(
        platform=asked["platform"] or "",
        chat_id=asked["chat"],
        chat_type=asked["chat_type"] or "",
        thread_id=asked["thread"],
        user_id=asked["person"],
    )
    with console.client() as client:
        value = _explained(client, source)
    console.answer(value, _text(value))


def _explained(client: "Sessionary", source: Source) -> dict[str, Any]:
    key = client.key(source)
    policy = client.policies.choose(source)
    head, due = client.reading(_look, client, key, policy).result()
    return {
        "key": str(key),
        "reasons": keys.explain(source, profile=client.profile, isolation=client.isolation),
        "binding": None if head is None else _binding(head),
        "policy": _policy(client, source, policy),
        "next_message": _next(head, due),
    }


def _look(
    tx: "Tx", client: "Sessionary", key: keys.SessionKey, policy: ResetPolicy
) -> tuple[SessionHead | None, str | None]:
    head = routing.current(tx, key)
    if head is None or not head.is_open:
        return head, None
    return head, routing.reset_due(tx, head, policy=policy, moment=client.moment())


def _binding(head: SessionHead) -> dict[str, Any]:
    return {
        "session_id": head.id,
        "title": head.title,
        "is_open": head.is_open,
        "last_active_at": time_text(head.last_active_at),
    }


def _policy(client: "Sessionary", source: Source, policy: ResetPolicy) -> dict[str, Any]:
    if source.platform in client.policies.by_platform:
        why = f"the platform {source.platform} has its own"
    elif source.chat_type in client.policies.by_type:
        why = f"chats of type {source.chat_type} have their own"
    else:
        why = "the default"
    return policy_json(policy) | {"why": why}


def _next(head: SessionHead | None, due: str | None) -> str:
    if head is None:
        return "opens the first session of this key"
    if not head.is_open:
        return f"opens a new session: {head.id} has ended ({head.end_reason})"
    if due is not None:
        return f"opens a new session: {head.id} is over ({due})"
    if head.read_only:
        return f"opens a new session: {head.id} is read-only"
    return f"goes to session {head.id}"


def _text(value: dict[str, Any]) -> str:
    policy = value["policy"]
    clocks = [
        f"after {policy['idle_minutes']:g} idle minutes" if policy["idle_minutes"] else "",
        f"daily at {policy['daily_at']} {policy['zone']}" if policy["daily_at"] else "",
    ]
    moment = " or ".join(filter(None, clocks)) or "never by itself"
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
    "Say which conversation a message belongs to.",
    {"explain": (explain, "Say the key, the binding, the policy, and why.")},
)
