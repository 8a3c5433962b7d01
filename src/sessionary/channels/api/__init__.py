"""The channel for programs: messages come in over HTTP, replies are kept or called back."""

from collections.abc import Mapping

from sessionary.channels.api.adapter import ApiAdapter
from sessionary.clock import SystemClock
from sessionary.config.table import Table


def build(table: Table, environ: Mapping[str, str]) -> ApiAdapter:
    """Return the adapter that `[channels.api]` describes; without an address replies are kept."""
    secret = table.secret("secret", environ)
    return ApiAdapter(
        SystemClock(),
        callback_url=table.text("callback_url"),
        secret=b"" if secret is None else secret.reveal().encode(),
    )
