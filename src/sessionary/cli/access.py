"""`sessionary access`, `tokens` and `password`: people, programs and browsers that may come in."""

import getpass
import secrets
import sys

import click

from sessionary.actions import access as access_actions
from sessionary.actions import credentials
from sessionary.actions.credentials import SECRET_BYTES
from sessionary.cli.console import Column, Console
from sessionary.cli.tree import command, group, pass_console
from sessionary.errors import BadInput, NotFound
from sessionary.model.access import Scope
from sessionary.model.view import time_text, token_json

SALT_BYTES = 16
LINK_BYTES = 32


@command("list", example="sessionary access list")
@pass_console
def list_access(console: Console) -> None:
    """List the people who are allowed, and those who ask to be."""
    with console.open() as app:
        now = app.moment().now
        permits = app.store.read(access_actions.list_permits, profile=app.profile).result()
        asking = app.store.read(access_actions.list_pairings, profile=app.profile, now=now).result()
    found = [
        (each.platform, each.person_id, each.name, "allowed", each.given_at) for each in permits
    ]
    found += [(platform, person, name, "asks", at) for platform, person, name, at, _ in asking]
    names = ("platform", "person_id", "name", "state")
    console.print_list(
        [{**dict(zip(names, who, strict=True)), "since": time_text(at)} for *who, at in found],
        (
            Column("PLATFORM"),
            Column("PERSON", flexible=True),
            Column("NAME", flexible=True),
            Column("STATE"),
            Column("SINCE"),
        ),
        [[*(word or "" for word in who), console.time_cell(at, app)] for *who, at in found],
        empty="Nobody was allowed by a command. sessionary.toml may allow people too: [access.PLATFORM].",
    )


@command("approve", example="sessionary access approve K7QM2XPA")
@click.argument("code", metavar="CODE")
@pass_console
def approve(console: Console, code: str) -> None:
    """Allow the person who was given this pairing code."""
    with console.open() as app:
        permit = app.store.write(
            access_actions.approve_pairing, code, profile=app.profile, moment=app.moment()
        ).result()
    if permit is None:
        raise NotFound(
            "Nobody was given that code, or it has expired. After five wrong codes no code is accepted for a while."
        )
    value = {"platform": permit.platform, "person_id": permit.person_id, "name": permit.name}
    console.answer(value, f"{permit.name or permit.person_id} may now write on {permit.platform}.")


@command("allow", example="sessionary access allow telegram 123456789")
@click.argument("platform", metavar="PLATFORM")
@click.argument("person", metavar="PERSON")
@click.option("--name", metavar="NAME", help="A name to show for them.")
@pass_console
def allow(console: Console, platform: str, person: str, *, name: str | None) -> None:
    """Allow a person, by the id that their platform gives them."""
    with console.open(create=True) as app:
        person = access_actions.check_person(person)
        app.store.write(
            access_actions.permit,
            platform,
            person,
            profile=app.profile,
            moment=app.moment(),
            name=name,
        ).result()
    value = {"platform": platform, "person_id": person, "name": name}
    console.answer(value, f"{name or person} may now write on {platform}.")


@command("revoke", example="sessionary access revoke telegram 123456789")
@click.argument("platform", metavar="PLATFORM")
@click.argument("person", metavar="PERSON")
@pass_console
def revoke_access(console: Console, platform: str, person: str) -> None:
    """Withdraw a person's permission."""
    with console.open() as app:
        was_allowed = app.store.write(
            access_actions.revoke, platform, person, profile=app.profile
        ).result()
    if not was_allowed:
        raise NotFound(f"{person} was not allowed on {platform}; nothing was changed.")
    console.answer(
        {"platform": platform, "person_id": person}, f"{person} may no longer write on {platform}."
    )


@command("add", example="sessionary tokens add --scope read --name grafana")
@click.option(
    "--scope",
    type=click.Choice([each.value for each in Scope]),
    default="read",
    help="What it may do.",
)
@click.option("--name", default="", metavar="NAME", help="What it is for.")
@pass_console
def add_token(console: Console, *, scope: str, name: str) -> None:
    """Create a token for this profile; it is shown once, and only its hash is kept."""
    secret = credentials.make_secret(secrets.token_bytes(SECRET_BYTES))
    with console.open(create=True) as app:
        made = app.store.write(
            credentials.add_token,
            secret,
            profile=app.profile,
            scope=Scope(scope),
            moment=app.moment(),
            name=name,
        ).result()
    if not console.json:
        console.note("This is the only time the token is shown:")
    console.answer({**token_json(made), "token": secret}, secret)


@command("list", example="sessionary tokens list")
@pass_console
def list_tokens(console: Console) -> None:
    """List the tokens of this profile, including revoked ones."""
    with console.open() as app:
        found = app.store.read(credentials.list_tokens, profile=app.profile).result()
    console.print_list(
        [token_json(each) for each in found],
        (
            Column("ID"),
            Column("NAME", flexible=True),
            Column("SCOPE"),
            Column("CREATED"),
            Column("STATE"),
        ),
        [
            [
                each.id,
                each.name,
                each.scope,
                console.time_cell(each.created_at, app),
                "valid" if each.revoked_at is None else "revoked",
            ]
            for each in found
        ],
        empty="No tokens. Create one with: sessionary tokens add --scope read",
    )


@command(
    "revoke",
    example="sessionary tokens revoke grafana\nsessionary tokens revoke 01m7grh8p81v02m6kpb1925h56",
)
@click.argument("token", metavar="TOKEN")
@pass_console
def revoke_token(console: Console, token: str) -> None:
    """Revoke a token, and close the streams that it opened.

    TOKEN is its id or its name.
    """
    with console.open() as app:
        gone = app.store.write(
            credentials.revoke_token, token, profile=app.profile, moment=app.moment()
        ).result()
    console.answer(token_json(gone), f"Token {gone.name or gone.id} is revoked.")


@command("set", example="sessionary password set\npass show sessionary | sessionary password set")
@pass_console
def set_password(console: Console) -> None:
    """Set the password of the web interface, and log out every browser.

    It is asked for, or read from standard input. Only a hash of it is kept.
    """
    _store_hash(console, _ask_and_hash(), "The password is set; every browser is logged out.")


@command("clear", example="sessionary password clear")
@pass_console
def clear_password(console: Console) -> None:
    """Remove the password, and log out every browser; they log in by a link again."""
    _store_hash(console, None, "There is no password any more; `sessionary serve` prints a link.")


def _store_hash(console: Console, hashed: str | None, text: str) -> None:
    with console.open(create=hashed is not None) as app:
        app.store.write(
            credentials.set_password, hashed, profile=app.profile, moment=app.moment()
        ).result()
    console.answer({"profile": app.profile, "password": hashed is not None}, text)


@command(
    "link",
    example="sessionary password link\nsessionary password link --address https://sessionary.example.org",
)
@click.option(
    "--address",
    default="http://127.0.0.1:8741",
    metavar="URL",
    help="Where browsers reach the server.",
)
@pass_console
def login_link(console: Console, *, address: str) -> None:
    """Create a link that logs in one browser, once, within a minute.

    The server must be running. It also works while the login is locked after wrong passwords, and when no
    password is set.
    """
    if not address.startswith(("http://", "https://")):
        raise BadInput(f"{address!r} is not an address; write one like http://127.0.0.1:8741.")
    code = secrets.token_hex(LINK_BYTES)
    with console.open() as app:
        app.store.write(
            credentials.add_login_link, code, profile=app.profile, moment=app.moment()
        ).result()
    link = f"{address.rstrip('/')}/login?code={code}"
    if not console.json:
        console.note("Open this once, within a minute:")
    console.answer({"login_link": link}, link)


@command("hash", example="sessionary password hash")
@pass_console
def hash_password(console: Console) -> None:
    """Print the hash of a password, for `[web] password_hash` in sessionary.toml."""
    hashed = _ask_and_hash()
    console.answer({"password_hash": hashed}, hashed)


def _ask_and_hash() -> str:
    """Ask for a password twice on a terminal, or read a line from a pipe; return its hash."""
    if sys.stdin.isatty():
        given = getpass.getpass("Password: ")
        if getpass.getpass("Once more: ") != given:
            raise BadInput("The two passwords differ; nothing was changed.")
    else:
        given = sys.stdin.readline().rstrip("\r\n")
    return credentials.hash_password(given, secrets.token_bytes(SALT_BYTES))


COMMANDS: dict[str, click.Command] = {
    "access": group(
        "access",
        "Manage who may write to the agent.",
        [list_access, approve, allow, revoke_access],
    ),
    "tokens": group(
        "tokens",
        "Manage tokens for the HTTP interface.",
        [add_token, list_tokens, revoke_token],
    ),
    "password": group(
        "password",
        "Manage how browsers log in.",
        [set_password, clear_password, login_link, hash_password],
    ),
}
