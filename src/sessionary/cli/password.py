"""`sessionary password …`: what lets browsers in."""

import getpass
import secrets
import sys

import click

from sessionary.actions import credentials
from sessionary.cli.console import Console
from sessionary.cli.tree import command, group, pass_console
from sessionary.errors import BadInput

SALT_BYTES = 16
LINK_BYTES = 32


@command("set", example="sessionary password set\npass show sessionary | sessionary password set")
@pass_console
def set_password(console: Console) -> None:
    """Set the password of the workbench; every browser is logged out.

    It is asked for, or read from standard input. Only a hash of it is kept.
    """
    hashed = _hashed()
    with console.client(create=True) as client:
        client.writing(
            credentials.set_password, hashed, profile=client.profile, moment=client.moment()
        ).result()
        value = {"profile": client.profile, "password": True}
    console.answer(value, "The password is set; every browser is logged out.")


@command("clear", example="sessionary password clear")
@pass_console
def clear(console: Console) -> None:
    """Take the password away; every browser is logged out, and comes in by the link again."""
    with console.client() as client:
        client.writing(
            credentials.set_password, None, profile=client.profile, moment=client.moment()
        ).result()
        value = {"profile": client.profile, "password": False}
    console.answer(value, "There is no password any more; `sessionary serve` prints a link.")


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
def link(console: Console, *, address: str) -> None:
    """Make a link that lets one browser in, once, within a minute; the server must be running.

    It works also while wrong passwords have locked the login, and when no password is set.
    """
    if not address.startswith(("http://", "https://")):
        raise BadInput(f"{address!r} is no address; write one like http://127.0.0.1:8741.")
    code = secrets.token_hex(LINK_BYTES)
    with console.client() as client:
        client.writing(
            credentials.offer_link, code, profile=client.profile, moment=client.moment()
        ).result()
    made = f"{address.rstrip('/')}/login?code={code}"
    if not console.json:
        console.note("Open this once, within a minute:")
    console.answer({"login_link": made}, made)


@command("hash", example="sessionary password hash")
@pass_console
def hash_password(console: Console) -> None:
    """Print the hash of a password, for `[web] password_hash` in sessionary.toml."""
    hashed = _hashed()
    console.answer({"password_hash": hashed}, hashed)


def _hashed() -> str:
    return credentials.hash_password(_asked(), secrets.token_bytes(SALT_BYTES))


def _asked() -> str:
    """A password from whoever sits here, twice; or a line from a pipe."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    given = getpass.getpass("Password: ")
    if getpass.getpass("Once more: ") != given:
        raise BadInput("The two are not the same; nothing was changed.")
    return given


password = group(
    "password",
    "What lets browsers in.",
    {
        "set": (set_password, "Set the password of the workbench."),
        "clear": (clear, "Take the password away."),
        "link": (link, "Make a link that lets one browser in, once."),
        "hash": (hash_password, "Print what `[web] password_hash` wants."),
    },
)
