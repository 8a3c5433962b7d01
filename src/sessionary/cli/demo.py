"""`sessionary demo`."""

import shlex

import click

from sessionary.cli.console import Console, shown_url
from sessionary.cli.table import count as counted
from sessionary.cli.tree import command, pass_console


@command("demo", example="sessionary demo --home demo\nsessionary serve --home demo")
@click.option(
    "--sessions",
    default=320,
    type=click.IntRange(1, 20_000),
    help="How many sessions to make, besides a few that show what a session can hold.",
)
@pass_console
def demo(console: Console, *, sessions: int) -> None:
    """Fill an empty store with made-up sessions of several platforms, to look around in.

    A store that holds sessions is refused: name another place with --home.
    """
    # The made-up texts are large, and `demo --help` does without them.
    from sessionary.app.demo import fill

    with console.client(create=True) as client:
        filled = fill(client, count=sessions)
        where = shown_url(client.store.url)
    value = {"sessions": filled.sessions, "messages": filled.messages, "database": where}
    told = f"{counted(filled.sessions, 'session')} and {counted(filled.messages, 'message')}"
    place = "".join(
        f" --{name} {shlex.quote(given)}"
        for name, given in (("home", console.home), ("database", console.database))
        if given is not None
    )
    console.answer(value, f"{where} holds {told}. Look at them: sessionary{place} serve")
