"""`sessionary serve`."""

import asyncio
import gc
from typing import Any

import click

from sessionary.cli.console import Console, shown_url
from sessionary.cli.tree import command, pass_console


@command("serve", example="sessionary serve\nsessionary serve --port 0 --json")
@click.option("--host", default="127.0.0.1", metavar="HOST", help="Where to listen.")
@click.option(
    "--port", default=8741, type=click.IntRange(0, 65535), help="Which port; 0 takes a free one."
)
@click.option("--exposed", is_flag=True, help="Let others reach it; needs a password.")
@click.option("--no-channels", is_flag=True, help="Leave the channels of sessionary.toml alone.")
@pass_console
def serve(console: Console, *, host: str, port: int, exposed: bool, no_channels: bool) -> None:
    """Run agents, schedules, the index and the HTTP interface in one process.

    It prints its address and a link that lets one browser in, once, within a minute.
    """
    with console.client(create=True) as client:
        # Hundreds of modules are loaded now, and none of them is ever garbage: looking for some
        # meanwhile would cost a tenth of the start.
        gc.disable()
        from sessionary.app import serving

        gc.freeze()
        gc.enable()
        where = shown_url(client.store.url)

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
                *_entrance(found),
                "Ctrl-C ends it.",
            ]
            console.answer(value, "\n".join(lines))
            console.flush()

        address = serving.Address(host, port, exposed)
        adapters = {} if no_channels else serving.channels_of(client)
        asyncio.run(serving.serve_to_the_end(client, address, adapters=adapters, on_ready=ready))
    console.note("Stopped.")


def _entrance(found: Any) -> list[str]:
    if found.login_link is not None:
        return [
            f"Open this once, within a minute: {found.login_link}",
            "Programs come in with a token of: sessionary tokens add",
        ]
    return [
        f"Reading only: {found.cannot_write}",
        "Programs with a token and browsers that are logged in can read; no new browser can log in.",
    ]


def _webhooks(address: str | None) -> list[str]:
    return [] if address is None else [f"Webhooks come in at {address}, and nothing else there"]
