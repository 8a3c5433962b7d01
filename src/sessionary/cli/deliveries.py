"""`sessionary deliveries …`: what was sent to chats, and what could not be delivered."""

import click

from sessionary.actions import outbox
from sessionary.cli.console import Column, Console
from sessionary.cli.times import clock_time, second
from sessionary.cli.tree import command, group, pass_console
from sessionary.config.engine import read_engine
from sessionary.model.message import text_of
from sessionary.model.source import Channel
from sessionary.model.terminal import display_width, one_line
from sessionary.model.turn import Delivery, DeliveryState
from sessionary.model.view import delivery_detail_json, delivery_json

id_argument = click.argument("id", metavar="ID")


@command(
    "list",
    example="sessionary deliveries list --state abandoned\nsessionary deliveries list --channel telegram:42",
)
@click.option(
    "--state", type=click.Choice([str(each) for each in DeliveryState]), help="Only in this state."
)
@click.option(
    "--channel", metavar="CHANNEL", help="Only to this platform, or to platform:chat[:thread]."
)
@click.option(
    "--limit", default=50, type=click.IntRange(1, 1000), metavar="N", help="How many to list."
)
@click.option("--cursor", metavar="NEXT", help="Where the last page ended (its `next`).")
@pass_console
def list_deliveries(
    console: Console, *, state: str | None, channel: str | None, limit: int, cursor: str | None
) -> None:
    """List deliveries, newest first."""
    with console.open() as app:
        page = app.store.read(
            outbox.list_deliveries,
            profile=app.profile,
            limit=limit,
            state=None if state is None else DeliveryState(state),
            channel=channel,
            cursor=cursor,
        ).result()
    console.print_list(
        [delivery_json(each) for each in page.items],
        (
            Column("ID"),
            Column("CREATED"),
            Column("STATE"),
            Column("CHANNEL"),
            Column("REASON", flexible=True),
            Column("TEXT", flexible=True),
        ),
        [
            [
                each.id,
                second(each.created_at),
                each.state,
                str(each.channel),
                each.reason or "",
                one_line(text_of(each.parts), 80),
            ]
            for each in page.items
        ],
        empty="No deliveries." if state is None else f"No deliveries are {state}.",
        cursor=page.next,
    )


@command("show", example="sessionary deliveries show 01jx4k")
@id_argument
@pass_console
def show(console: Console, id: str) -> None:
    """Show a delivery with its text.

    ID is a delivery's id, or the beginning of only one.
    """
    with console.open() as app:
        found = app.store.read(outbox.find, id, profile=app.profile).result()
        zone = app.config.zone
    if console.json:
        console.emit(delivery_detail_json(found))
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
    width = max(display_width(name) for name, _ in facts)
    for name, value in facts:
        if value is not None:
            padding = " " * (width - display_width(name) + 2)
            console.print(f"{name}{padding}{one_line(value)}")
    console.print()
    console.print(text_of(found.parts) or "(no text)")


@command("retry", example="sessionary deliveries retry 01jx4k")
@id_argument
@pass_console
def retry(console: Console, id: str) -> None:
    """Send a waiting or abandoned delivery as soon as possible.

    A running server of the same profile sends it.
    """
    with console.open() as app:
        done = app.store.write(outbox.retry, id, profile=app.profile, moment=app.moment()).result()
    twice = " An earlier attempt may have arrived." if done.maybe_twice else ""
    _tell(console, done, f"Delivery {done.id} to {done.channel} is sent next.{twice}")


@command("redirect", example="sessionary deliveries redirect 01jx4k telegram:42")
@id_argument
@click.argument("channel", metavar="CHANNEL")
@pass_console
def redirect(console: Console, id: str, channel: str) -> None:
    """Send a waiting or abandoned delivery to another chat instead.

    CHANNEL is platform:chat or platform:chat:thread: a chat where someone has talked with the agent, or a platform's
    home channel.
    """
    target = Channel.parse(channel)
    with console.open() as app:
        made = app.store.write(
            outbox.redirect,
            id,
            target,
            profile=app.profile,
            moment=app.moment(),
            platforms=frozenset(read_engine(app.config).channels),
        ).result()
    _tell(console, made, f"Redirected to {made.channel}, as delivery {made.id}.")


@command("abandon", example='sessionary deliveries abandon 01jx4k --reason "answered by phone"')
@id_argument
@click.option("--reason", default=outbox.GIVEN_UP, metavar="TEXT", help="Why.")
@pass_console
def abandon(console: Console, id: str, *, reason: str) -> None:
    """Abandon a waiting delivery: it is not sent, and the next one for its chat is."""
    with console.open() as app:
        done = app.store.write(
            outbox.abandon_by_owner,
            id,
            profile=app.profile,
            moment=app.moment(),
            reason=reason,
        ).result()
    _tell(console, done, f"Delivery {done.id} to {done.channel} is abandoned.")


def _tell(console: Console, done: Delivery, text: str) -> None:
    console.answer(delivery_json(done), text)


deliveries = group(
    "deliveries",
    "List and manage outgoing messages.",
    [list_deliveries, show, retry, redirect, abandon],
)
