"""`sessionary deliveries …`: the outbox, and what to do with what could not be delivered."""

import click

from sessionary.actions import outbox
from sessionary.cli.console import Console
from sessionary.cli.table import Column, table
from sessionary.cli.times import clock_time, second
from sessionary.cli.tree import command, group, pass_console
from sessionary.config import engine as engine_config
from sessionary.model.message import text_of
from sessionary.model.source import Channel
from sessionary.model.terminal import one_line
from sessionary.model.turn import Delivery, DeliveryState
from sessionary.model.view import delivery_json

COLUMNS = (
    Column("ID"),
    Column("CREATED"),
    Column("STATE"),
    Column("CHANNEL"),
    Column("REASON", flexible=True),
    Column("TEXT", flexible=True),
)
id_argument = click.argument("id", metavar="ID")


@command(
    "list",
    example="sessionary deliveries list --state abandoned\nsessionary deliveries list --channel telegram:42",
)
@click.option(
    "--state", type=click.Choice([str(each) for each in DeliveryState]), help="Only these."
)
@click.option(
    "--channel", metavar="CHANNEL", help="Only to a platform, or to platform:chat[:thread]."
)
@click.option("--limit", default=50, type=click.IntRange(1, 1000), help="How many.")
@click.option("--cursor", metavar="CURSOR", help="Go on where a list ended.")
@pass_console
def list_deliveries(
    console: Console, *, state: str | None, channel: str | None, limit: int, cursor: str | None
) -> None:
    """List deliveries, newest first."""
    with console.client() as client:
        page = client.reading(
            outbox.list_deliveries,
            profile=client.profile,
            limit=limit,
            state=None if state is None else DeliveryState(state),
            channel=channel,
            cursor=cursor,
        ).result()
    if console.json:
        console.emit({"items": [delivery_json(each) for each in page.items], "next": page.next})
        return
    if not page.items:
        console.note("No deliveries." if state is None else f"No deliveries are {state}.")
        return
    rows = [
        [
            each.id,
            second(each.created_at),
            each.state,
            str(each.channel),
            each.reason or "",
            one_line(text_of(each.parts), 80),
        ]
        for each in page.items
    ]
    console.print(table(COLUMNS, rows, width=console.width if console.is_terminal else None))
    if page.next is not None:
        console.note(f"There is more: --cursor {page.next}")


@command("show", example="sessionary deliveries show 01jx4k")
@id_argument
@pass_console
def show(console: Console, id: str) -> None:
    """Show a delivery with its text.

    ID is a delivery's id, or a beginning that only one id has.
    """
    with console.client() as client:
        found = client.reading(outbox.find, id, profile=client.profile).result()
        zone = client.config.zone
    if console.json:
        console.emit(delivery_json(found, whole=True))
        return
    facts = [
        ("delivery", found.id),
        ("to", str(found.channel)),
        ("state", found.state),
        ("reason", found.reason),
        ("attempts", str(found.attempts)),
        ("created", clock_time(found.created_at, zone=zone)),
    ]
    if found.state is DeliveryState.WAITING:
        facts.append(("not before", clock_time(found.not_before, zone=zone)))
    if found.sent_at is not None:
        facts.append(("sent", clock_time(found.sent_at, zone=zone)))
    if found.maybe_twice:
        facts.append(("note", "an earlier attempt may have arrived"))
    facts += [("session", found.session_id), ("redirected to", found.redirected_to)]
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        if value is not None:
            console.print(f"{name:<{width}}  {one_line(value)}")
    console.print()
    console.print(text_of(found.parts) or "(nothing to read)")


@command("retry", example="sessionary deliveries retry 01jx4k")
@id_argument
@pass_console
def retry(console: Console, id: str) -> None:
    """Send a delivery that waits or was abandoned as soon as possible.

    A running server of the same profile sends it.
    """
    with console.client() as client:
        done = client.writing(
            outbox.retry, id, profile=client.profile, moment=client.moment()
        ).result()
    twice = " An earlier attempt may have arrived." if done.maybe_twice else ""
    _tell(console, done, f"Delivery {done.id} to {done.channel} is sent next.{twice}")


@command("redirect", example="sessionary deliveries redirect 01jx4k telegram:42")
@id_argument
@click.argument("channel", metavar="CHANNEL")
@pass_console
def redirect(console: Console, id: str, channel: str) -> None:
    """Send a delivery that waits or was abandoned to another chat instead.

    CHANNEL is platform:chat or platform:chat:thread: a chat where someone has talked with the agent, or a platform's
    home channel.
    """
    target = Channel.parse(channel)
    with console.client() as client:
        made = client.writing(
            outbox.redirect,
            id,
            target,
            profile=client.profile,
            moment=client.moment(),
            platforms=frozenset(engine_config.read(client.config).channels),
        ).result()
    _tell(console, made, f"Redirected to {made.channel}, as delivery {made.id}.")


@command("abandon", example='sessionary deliveries abandon 01jx4k --reason "told by phone"')
@id_argument
@click.option("--reason", default=outbox.GIVEN_UP, metavar="TEXT", help="Why.")
@pass_console
def abandon(console: Console, id: str, *, reason: str) -> None:
    """Give up a delivery that waits: it is not sent, and the next for its chat goes on."""
    with console.client() as client:
        done = client.writing(
            outbox.abandon_by_owner,
            id,
            profile=client.profile,
            moment=client.moment(),
            reason=reason,
        ).result()
    _tell(console, done, f"Delivery {done.id} to {done.channel} is given up.")


def _tell(console: Console, done: Delivery, text: str) -> None:
    console.answer(delivery_json(done), text)


deliveries = group(
    "deliveries",
    "What was sent to chats, and what could not be.",
    {
        "list": (list_deliveries, "List deliveries, newest first."),
        "show": (show, "Show a delivery."),
        "retry": (retry, "Send a delivery again as soon as possible."),
        "redirect": (redirect, "Send a delivery to another chat instead."),
        "abandon": (abandon, "Give up a delivery that waits."),
    },
)
