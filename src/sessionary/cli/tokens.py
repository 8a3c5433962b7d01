"""`sessionary tokens …`: programs that may use the HTTP interface."""

import secrets

import click

from sessionary.actions import credentials as rights
from sessionary.actions.credentials import SECRET_BYTES, Scope, Token
from sessionary.cli.console import Console
from sessionary.cli.table import Column, table
from sessionary.cli.tree import command, group, pass_console
from sessionary.model.view import Json, time_text


@command("add", example="sessionary tokens add --scope read --name grafana")
@click.option(
    "--scope",
    type=click.Choice([each.value for each in Scope]),
    default="read",
    help="What it may do.",
)
@click.option("--name", default="", metavar="NAME", help="What it is for.")
@pass_console
def add(console: Console, *, scope: str, name: str) -> None:
    """Make a token for this profile. It is shown once and kept nowhere."""
    secret = rights.secret(secrets.token_bytes(SECRET_BYTES))
    with console.client(create=True) as client:
        made = client.writing(
            rights.add_token,
            secret,
            profile=client.profile,
            scope=Scope(scope),
            moment=client.moment(),
            name=name,
        ).result()
    if not console.json:
        console.note("This is the only time the token is shown:")
    console.answer({**_json(made), "token": secret}, secret)


@command("list", example="sessionary tokens list")
@pass_console
def list_tokens(console: Console) -> None:
    """List the tokens of this profile, revoked ones too."""
    with console.client() as client:
        found = client.reading(rights.list_tokens, profile=client.profile).result()
    if console.json:
        console.emit({"items": [_json(each) for each in found], "next": None})
        return
    if not found:
        console.note("No tokens. Make one with: sessionary tokens add --scope read")
        return
    rows = [
        [each.id, each.name, each.scope, console.time_cell(each.created_at, client), _state(each)]
        for each in found
    ]
    columns = (
        Column("ID"),
        Column("NAME", flexible=True),
        Column("SCOPE"),
        Column("MADE"),
        Column("STATE"),
    )
    console.print(table(columns, rows, width=console.width if console.is_terminal else None))


@command(
    "revoke",
    example="sessionary tokens revoke grafana\nsessionary tokens revoke 01m7grh8p81v02m6kpb1925h56",
)
@click.argument("token", metavar="TOKEN")
@pass_console
def revoke(console: Console, token: str) -> None:
    """Let nobody in with a token any more; streams that it opened are closed.

    TOKEN is its id or its name.
    """
    with console.client() as client:
        gone = client.writing(
            rights.revoke_token, token, profile=client.profile, moment=client.moment()
        ).result()
    console.answer(_json(gone), f"Token {gone.name or gone.id} is revoked.")


def _state(token: Token) -> str:
    return "good" if token.revoked_at is None else "revoked"


def _json(token: Token) -> Json:
    return {
        "id": token.id,
        "profile": token.profile,
        "name": token.name,
        "scope": token.scope,
        "created_at": time_text(token.created_at),
        "revoked_at": time_text(token.revoked_at),
    }


tokens = group(
    "tokens",
    "Programs that may use the HTTP interface.",
    {
        "add": (add, "Make a token; it is shown once."),
        "list": (list_tokens, "List the tokens."),
        "revoke": (revoke, "Let nobody in with a token any more."),
    },
)
