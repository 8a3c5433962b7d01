"""Slack: channels, threads and direct messages, by Socket Mode or by the Events API."""

from collections.abc import Mapping

from sessionary.channels.enclosures import largest_sent
from sessionary.channels.files import MEGABYTE
from sessionary.channels.slack.adapter import Keys, SlackAdapter
from sessionary.channels.slack.client import API, Wire
from sessionary.channels.slack.inbound import DEFAULT_LARGEST_FILE, DEFAULT_LARGEST_SENT, Rules
from sessionary.config.table import Table
from sessionary.engine.ports import Adapter
from sessionary.errors import BadInput


def build(table: Table, environ: Mapping[str, str]) -> SlackAdapter:
    """The adapter that `[channels.slack]` describes."""
    keys = Keys(
        table.required_secret("token", environ),
        table.secret("app_token", environ),
        table.secret("signing_secret", environ),
    )
    if (keys.app_token is None) == (keys.signing_secret is None):
        raise BadInput(
            "[channels.slack]: set app_token_env (Socket Mode) or signing_secret_env (Events API), "
            "not both."
        )
    most = table.number("largest_file_mb", DEFAULT_LARGEST_FILE / MEGABYTE)
    rules = Rules(
        always=table.word("answer", "mentioned", ("mentioned", "always")) == "always",
        always_in=frozenset(table.texts("always_in", ())),
        observe=table.flag("observe", default=False),
        threads=table.flag("reply_in_thread", default=True),
        largest_file=round(most * MEGABYTE),
        stream=table.flag("stream", default=False),
        largest_sent=largest_sent(table, DEFAULT_LARGEST_SENT),
    )
    return SlackAdapter(keys, rules, wire=_wire(keys, table.text("base_url")))


async def check(adapter: Adapter) -> str:
    """Present the tokens, and say who the bot is."""
    assert isinstance(adapter, SlackAdapter)
    return f"Slack knows this bot as {await adapter.who()}."


def _wire(keys: Keys, base_url: str | None) -> Wire:
    api = API if base_url is None else f"{base_url.rstrip('/')}/"
    if not api.startswith(("https://", "http://")):
        raise BadInput(f"[channels.slack]: base_url must be an address, not {base_url!r}.")
    app_token = None if keys.app_token is None else keys.app_token.reveal()
    return Wire(keys.token.reveal(), app_token=app_token, api=api)
