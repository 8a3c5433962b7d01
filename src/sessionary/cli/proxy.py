"""`sessionary proxy`."""

import asyncio
from typing import Any

import click

from sessionary.cli.console import Console, shown_url
from sessionary.cli.tree import command, pass_console

_VARIABLES = (("openai", "OPENAI_BASE_URL", "/v1"), ("anthropic", "ANTHROPIC_BASE_URL", ""))


@command(
    "proxy",
    example="sessionary proxy\nsessionary proxy --upstream http://127.0.0.1:11434\n"
    "sessionary proxy --upstream openrouter=https://openrouter.ai/api",
)
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    metavar="[NAME=]URL",
    help="Another API to pass requests on to, under /NAME/; without a name, under every path that names no other, and "
    "those of OpenAI and Anthropic are not there by themselves.",
)
@click.option("--host", metavar="HOST", help="The address to listen on; by default 127.0.0.1.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="The port, by default 8750; 0 takes a free one.",
)
@click.option(
    "--exposed",
    is_flag=True,
    help="Accept connections from other machines; every request needs a token then.",
)
@click.option("--needs-token", is_flag=True, help="Ask programs on this machine for a token too.")
@pass_console
def proxy(
    console: Console,
    *,
    upstreams: tuple[str, ...],
    host: str | None,
    port: int | None,
    exposed: bool,
    needs_token: bool,
) -> None:
    """Pass requests to model APIs on byte for byte, and record them as sessions.

    Programs use it as OPENAI_BASE_URL or ANTHROPIC_BASE_URL, with their own keys, which are passed on and never stored.
    """
    with console.open(create=True) as app:
        # Loads the engine's parts: `proxy --help` and a refusal do not need them.
        from sessionary.app.proxy import ProxyAddress, ProxyChanges, run_proxy

        where = shown_url(app.store.url)

        def ready(found: ProxyAddress) -> None:
            value: dict[str, Any] = {
                "host": found.host,
                "port": found.port,
                "bases": found.bases,
                "upstreams": found.upstreams,
                "needs_token": found.needs_token,
                "database": where,
            }
            console.answer(value, "\n".join(_lines(found, where)))
            console.flush()

        changes = ProxyChanges(host, port, upstreams, exposed, needs_token)
        asyncio.run(run_proxy(app, changes, on_ready=ready, tell=console.note))
    console.note("Stopped.")


def _lines(found: Any, where: str) -> list[str]:
    lines = [f"The proxy records in {where} what passes to:"]
    width = max(map(len, found.bases.values()))
    lines += [f"  {base:<{width}}  {found.upstreams[name]}" for name, base in found.bases.items()]
    # An upstream without a name has no path in its base.
    plain = next((base for base in found.bases.values() if base.count("/") == 2), None)
    for name, variable, version in _VARIABLES:
        if base := found.bases.get(name, plain):
            lines.append(f"export {variable}={base}{version}")
    if found.needs_token:
        lines.append("Every request needs a token: sessionary tokens add")
    return [*lines, "Press Ctrl-C to stop."]


COMMANDS: dict[str, click.Command] = {"proxy": proxy}
