"""Slack: channels, threads and direct messages, by Socket Mode or by the Events API."""

from collections.abc import Mapping

from sessionary.channels.base import read_megabytes, read_options
from sessionary.channels.slack.adapter import SlackAdapter, SlackKeys
from sessionary.channels.slack.client import API, SlackClient
from sessionary.channels.slack.inbound import SlackOptions
from sessionary.config.table import Table
from sessionary.errors import BadInput


def build(table: Table, environ: Mapping[str, str]) -> SlackAdapter:
    """Return the adapter that `[channels.slack]` describes."""
    keys = SlackKeys(
        table.required_secret("token", environ),
        table.secret("app_token", environ),
        table.secret("signing_secret", environ),
    )
    if (keys.app_token is None) == (keys.signing_secret is None):
        raise BadInput(
            "[channels.slack]: set app_token_env (Socket Mode) or signing_secret_env (Events API), "
            "not both."
        )
    default = SlackOptions()
    options = read_options(
        table,
        default,
        always_in=frozenset(table.texts("always_in", ())),
        threads=table.flag("reply_in_thread", default=True),
        largest_file=read_megabytes(table, "largest_file_mb", default.largest_file),
        stream=table.flag("stream", default=False),
    )
    base_url = table.text("base_url")
    api = API if base_url is None else f"{base_url.rstrip('/')}/"
    if not api.startswith(("https://", "http://")):
        raise BadInput(f"[channels.slack]: base_url must be an address, not {base_url!r}.")
    app_token = None if keys.app_token is None else keys.app_token.reveal()
    client = SlackClient(keys.token.reveal(), app_token=app_token, api=api)
    return SlackAdapter(keys, options, client=client)
