"""`sessionary access …`: who may reach the agent."""

import click

from sessionary.actions import access as doors
from sessionary.cli.console import Console
from sessionary.cli.table import Column, table
from sessionary.cli.tree import command, group, pass_console
from sessionary.errors import NotFound
from sessionary.model.view import time_text

COLUMNS = (
    Column("PLATFORM"),
    Column("PERSON", flexible=True),
    Column("NAME", flexible=True),
    Column("STATE"),
    Column("SINCE"),
)


@command("list", example="sessionary access list")
@pass_console
def list_access(console: Console) -> None:
    """List who was let in, and who asks to be."""
    with console.client() as client:
        now = client.moment().now
        permits = client.reading(doors.permits, profile=client.profile).result()
        asking = client.reading(doors.pairings, profile=client.profile, now=now).result()
    found = [
        (each.platform, each.person_id, each.name, "allowed", each.given_at) for each in permits
    ]
    found += [(platform, person, name, "asks", at) for platform, person, name, at, _ in asking]
    if console.json:
        names = ("platform", "person", "name", "state")
        items = [
            {**dict(zip(names, who, strict=True)), "since": time_text(at)} for *who, at in found
        ]
        console.emit({"items": items, "next": None})
    elif not found:
        console.note(
            "Nobody was let in by hand. sessionary.toml may allow people too: [access.PLATFORM]."
        )
    else:
        rows = [
            [*(word or "" for word in who), console.time_cell(at, client)] for *who, at in found
        ]
        width = console.width if console.is_terminal else None
        console.print(table(COLUMNS, rows, width=width))


@command("approve", example="sessionary access approve K7QM2XPA")
@click.argument("code", metavar="CODE")
@pass_console
def approve(console: Console, code: str) -> None:
    """Let in whoever was given this code."""
    with console.client() as client:
        permit = client.writing(
            doors.approve, code, profile=client.profile, moment=client.moment()
        ).result()
    if permit is None:
        raise NotFound(
            "Nobody asks with that code, or it has run out. Five wrong ones lock the door."
        )
    value = {"platform": permit.platform, "person": permit.person_id, "name": permit.name}
    console.answer(value, f"{permit.name or permit.person_id} may now write on {permit.platform}.")


@command("allow", example="sessionary access allow telegram 123456789")
@click.argument("platform", metavar="PLATFORM")
@click.argument("person", metavar="PERSON")
@click.option("--name", metavar="NAME", help="What to call them.")
@pass_console
def allow(console: Console, platform: str, person: str, *, name: str | None) -> None:
    """Let a person in, by the id that their platform gives them."""
    with console.client(create=True) as client:
        person = doors.check_person(person)
        client.writing(
            doors.permit,
            platform,
            person,
            profile=client.profile,
            moment=client.moment(),
            name=name,
        ).result()
    value = {"platform": platform, "person": person, "name": name}
    console.answer(value, f"{name or person} may now write on {platform}.")


@command("revoke", example="sessionary access revoke telegram 123456789")
@click.argument("platform", metavar="PLATFORM")
@click.argument("person", metavar="PERSON")
@pass_console
def revoke(console: Console, platform: str, person: str) -> None:
    """Let a person in no longer."""
    with console.client() as client:
        was = client.writing(doors.revoke, platform, person, profile=client.profile).result()
    if not was:
        raise NotFound(f"{person} was not let in on {platform}; nothing was changed.")
    console.answer(
        {"platform": platform, "person": person}, f"{person} may no longer write on {platform}."
    )


access = group(
    "access",
    "Who may reach the agent.",
    {
        "list": (list_access, "List who was let in, and who asks."),
        "approve": (approve, "Let in whoever was given a code."),
        "allow": (allow, "Let a person in."),
        "revoke": (revoke, "Let a person in no longer."),
    },
)
