"""`hansard password …`: what lets browsers in."""

import getpass
import secrets
import sys

from hansard.actions import logins
from hansard.cli.console import Console
from hansard.cli.tree import command, group, pass_console
from hansard.errors import BadInput

SALT_BYTES = 16

password = group(
    "password",
    "What lets browsers in.",
    {
        "set": ("password:set_password", "Set the password of the workbench."),
        "clear": ("password:clear", "Take the password away."),
        "hash": ("password:hash_password", "Print what `[web] password_hash` wants."),
    },
)


@command("set", example="hansard password set\npass show hansard | hansard password set")
@pass_console
def set_password(console: Console) -> None:
    """Set the password of the workbench; every browser is logged out.

    It is asked for, or read from standard input. Only a hash of it is kept.
    """
    hashed = _hashed()
    with console.house(create=True) as house:
        house.writing(
            logins.set_password, hashed, profile=house.profile, when=house.occasion()
        ).result()
        value = {"profile": house.profile, "password": True}
    console.answer(value, "The password is set; every browser is logged out.")


@command("clear", example="hansard password clear")
@pass_console
def clear(console: Console) -> None:
    """Take the password away; every browser is logged out, and comes in by the link again."""
    with console.house() as house:
        house.writing(
            logins.set_password, None, profile=house.profile, when=house.occasion()
        ).result()
        value = {"profile": house.profile, "password": False}
    console.answer(value, "There is no password any more; `hansard serve` prints a link.")


@command("hash", example="hansard password hash")
@pass_console
def hash_password(console: Console) -> None:
    """Print the hash of a password, for `[web] password_hash` in hansard.toml."""
    hashed = _hashed()
    console.answer({"password_hash": hashed}, hashed)


def _hashed() -> str:
    return logins.hash_password(_asked(), secrets.token_bytes(SALT_BYTES))


def _asked() -> str:
    """A password from whoever sits here, twice; or a line from a pipe."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    given = getpass.getpass("Password: ")
    if getpass.getpass("Once more: ") != given:
        raise BadInput("The two are not the same; nothing was changed.")
    return given
