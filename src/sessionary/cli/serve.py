"""`sessionary serve`, `mcp`, `acp` and `demo`."""

import asyncio
import gc
import logging
import shlex
import sys
from typing import Any

import click

from sessionary.cli.console import Console, shown_url
from sessionary.cli.console import count as counted
from sessionary.cli.tree import command, pass_console
from sessionary.config.proxy import ProxySettings, read_proxy
from sessionary.errors import BadInput


@command("serve", example="sessionary serve\nsessionary serve --port 0 --json")
@click.option("--host", default="127.0.0.1", metavar="HOST", help="The address to listen on.")
@click.option(
    "--port",
    default=8741,
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="The port; 0 takes a free one.",
)
@click.option(
    "--exposed", is_flag=True, help="Accept connections from other machines; needs a password."
)
@click.option("--no-channels", is_flag=True, help="Do not run the channels of sessionary.toml.")
@pass_console
def serve(console: Console, *, host: str, port: int, exposed: bool, no_channels: bool) -> None:
    """Run agents, channels, schedules and the HTTP interface in one process.

    It prints its address and a link that logs in one browser, once, within a minute.
    """
    with console.open(create=True) as app:
        # What is loaded here stays, so looking for garbage meanwhile, and in it later, only costs: 0.1 of 0.8 s of CPU.
        gc.disable()
        # Loads the web server and the engine: two seconds that `serve --help` and a refusal do not need.
        from sessionary.app import server

        gc.freeze()
        gc.enable()
        where = shown_url(app.store.url)

        def ready(found: Any) -> None:
            value = {
                "address": found.address,
                "port": found.port,
                "login_link": found.login_link,
                "cannot_write": found.cannot_write,
                "webhook_address": found.webhook_address,
                "database": where,
            }
            lines = [
                f"Sessionary serves {where} at {found.address}",
                *_webhooks(found.webhook_address),
                *_proxy(read_proxy(app.config)),
                *_login_lines(found),
                "Press Ctrl-C to stop.",
            ]
            console.answer(value, "\n".join(lines))
            console.flush()

        address = server.ListenAddress(host, port, exposed)
        adapters = {} if no_channels else server.channels_of(app)
        asyncio.run(server.serve_and_close(app, address, adapters=adapters, on_ready=ready))
    console.note("Stopped.")


def _login_lines(found: Any) -> list[str]:
    if found.login_link is not None:
        return [
            f"Open this once, within a minute: {found.login_link}",
            "Programs need a token: sessionary tokens add",
        ]
    return [
        f"Read-only: {found.cannot_write}",
        "Programs with a token and browsers that are logged in can read; no other browser can log in.",
    ]


def _proxy(settings: ProxySettings) -> list[str]:
    if settings.port is None:
        return []
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return [f"The recording proxy is at http://{host}:{settings.port}/openai/v1 and /anthropic"]


def _webhooks(address: str | None) -> list[str]:
    return [] if address is None else [f"Webhooks, and nothing else, are served at {address}"]


@command(
    "mcp",
    example="claude mcp add sessionary -- sessionary mcp\nsessionary mcp --http 127.0.0.1:8742",
)
@click.option("--http", metavar="HOST:PORT", help="Serve over HTTP instead of standard input.")
@click.option("--write", is_flag=True, help="Also offer the tools that write.")
@pass_console
def mcp(console: Console, *, http: str | None, write: bool) -> None:
    """Run the MCP server, with tools that search, list and read the sessions of this profile.

    Over HTTP a client needs a token of this profile (`sessionary tokens add`), with the scope `write` for
    the tools that write.
    """
    try:
        # Optional dependencies, installed with the extra `mcp`.
        from sessionary.app.mcp import serve_mcp
    except ModuleNotFoundError as error:
        raise BadInput(f"MCP needs an extra: install sessionary[mcp] ({error}).") from error
    with console.open() as app:
        asyncio.run(serve_mcp(app, write=write, http=http, tell=console.note))


@command("acp", example="sessionary acp\nsessionary acp --agent coder")
@click.option(
    "--agent", metavar="NAME", help="Which agent answers in the sessions that begin here."
)
@pass_console
def acp(console: Console, *, agent: str | None) -> None:
    """Serve an editor that speaks the Agent Client Protocol (ACP), over standard input and output.

    The editor lists, opens and forks the sessions of this profile, and talks to the configured agents. It starts this
    command itself: its settings name it. Messages for people go to standard error.
    """
    level = logging.DEBUG if console.debug else logging.WARNING
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")
    gc.disable()  # as above
    try:
        # Loads the engine, and an optional dependency, installed with the extra `acp`.
        from sessionary.app.acp import serve_editor
    except ModuleNotFoundError as error:
        raise BadInput(f"ACP needs an extra: install sessionary[acp] ({error}).") from error
    gc.freeze()
    gc.enable()
    with console.open(create=True) as app:
        if sys.stdin.isatty():
            console.note("An editor starts this command, and speaks ACP with it. Ctrl-C ends it.")
        asyncio.run(serve_editor(app, agent=agent))


@command("demo", example="sessionary demo --home demo\nsessionary serve --home demo")
@click.option(
    "--sessions",
    default=320,
    type=click.IntRange(1, 20_000),
    metavar="N",
    help="How many sessions to create, besides a few that show special features.",
)
@pass_console
def demo(console: Console, *, sessions: int) -> None:
    """Fill an empty store with example sessions of several platforms.

    A store that has sessions is not changed: name another directory with --home.
    """
    from sessionary.app.demo import fill  # large texts that `demo --help` does not need

    with console.open(create=True) as app:
        filled = fill(app, count=sessions)
        where = shown_url(app.store.url)
    value = {"sessions": filled.sessions, "messages": filled.messages, "database": where}
    contents = f"{counted(filled.sessions, 'session')} and {counted(filled.messages, 'message')}"
    place = "".join(
        f" --{name} {shlex.quote(given)}"
        for name, given in (("home", console.home), ("database", console.database))
        if given is not None
    )
    console.answer(value, f"{where} now has {contents}. Look at them with: sessionary{place} serve")


COMMANDS: dict[str, click.Command] = {"serve": serve, "mcp": mcp, "acp": acp, "demo": demo}
