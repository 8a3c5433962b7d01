"""`sessionary mcp`: the record for agents of other programs."""

import asyncio

import click

from sessionary.cli.console import Console
from sessionary.cli.tree import command, pass_console
from sessionary.errors import BadInput


@command(
    "mcp",
    example="claude mcp add sessionary -- sessionary mcp\nsessionary mcp --http 127.0.0.1:8742",
)
@click.option("--http", metavar="HOST:PORT", help="Serve over HTTP instead of standard input.")
@click.option("--write", is_flag=True, help="Offer the tools that write, too.")
@pass_console
def mcp(console: Console, *, http: str | None, write: bool) -> None:
    """Run the MCP server: search, list and read sessions of this profile.

    Tools that write are left out unless asked for. Over HTTP a client needs a token of this profile
    (`sessionary tokens add`), and the scope `write` for the tools that write.
    """
    try:
        # Optional dependencies, installed with the extra `mcp`.
        from sessionary.app.mcp import serve_mcp
    except ModuleNotFoundError as error:
        raise BadInput(f"MCP needs an extra: install sessionary[mcp] ({error}).") from error
    with console.client() as store_client:
        asyncio.run(serve_mcp(store_client, write=write, http=http, tell=console.note))
