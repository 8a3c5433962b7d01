"""`sessionary sessions hold` and `release`: reasons not to reset a session now."""

from datetime import datetime, tzinfo

import click

from sessionary.actions.sessions.routing import Hold
from sessionary.cli.console import Console
from sessionary.cli.refs import find_session, ref_argument
from sessionary.cli.times import clock_time, parse_time, span
from sessionary.cli.tree import command, pass_console
from sessionary.errors import BadInput
from sessionary.model.view import hold_json


@command(
    "hold",
    example='sessionary sessions hold Capitals --reason "the build is running" --until 2h\n'
    "sessionary sessions hold Capitals --reason audit --until 2026-12-31",
)
@ref_argument
@click.option("--reason", required=True, metavar="TEXT", help="Why it must not be reset.")
@click.option(
    "--until", metavar="TIME", help="A date, a time, or how long from now; else until released."
)
@pass_console
def hold(console: Console, ref: str, *, reason: str, until: str | None) -> None:
    """Keep a session from being reset by its policy, until a time or until it is released.

    A person's own wish (/new, a switch, `sessions end`) still ends it.
    """
    with console.client() as client:
        zone = client.config.zone
        end = None if until is None else _end(until, now=client.moment().now, zone=zone)
        session = find_session(client, ref)
        made = session.hold(reason, until=end)
        id = session.head().id
    moment = "until it is released" if end is None else f"until {clock_time(end, zone=zone)}"
    value = {"session_id": id, **hold_json(made.reason, made.until)}
    console.answer(value, f"{id} is held {moment}: {made.reason}")


@command(
    "release",
    example='sessionary sessions release Capitals --reason "the build is running"\n'
    "sessionary sessions release Capitals",
)
@ref_argument
@click.option("--reason", metavar="TEXT", help="Which hold; without it, all of them.")
@pass_console
def release(console: Console, ref: str, *, reason: str | None) -> None:
    """Release a hold of a session, or all of them."""
    with console.client() as client:
        session = find_session(client, ref)
        gone = session.release(reason)
        id = session.head().id
    items = [hold_json(each.reason, each.until) for each in gone]
    names = ", ".join(each.reason for each in gone)
    text = f"{id} is released: {names}" if gone else f"{id} was not held."
    console.answer({"session_id": id, "items": items, "next": None}, text)


def shown(hold: Hold, *, zone: tzinfo | None) -> str:
    """A hold in one line."""
    end = "" if hold.until is None else f" (until {clock_time(hold.until, zone=zone)})"
    return f"held: {hold.reason}{end}"


def _end(text: str, *, now: datetime, zone: tzinfo) -> datetime:
    """A point in the future: a length of time counts from now on."""
    try:
        length = span(text)
    except BadInput:
        return parse_time(text, now=now, zone=zone, at_end=True)
    try:
        return now + length
    except OverflowError:
        raise BadInput(f"{text!r} from now is after the year 9999.") from None
