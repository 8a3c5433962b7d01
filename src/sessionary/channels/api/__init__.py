"""The channel for programs: messages come in over HTTP, answers are kept or called back."""

from collections.abc import Mapping

from sessionary.channels.api.adapter import ApiAdapter
from sessionary.clock import SystemClock
from sessionary.config.table import Table
from sessionary.engine.ports import Adapter


def build(table: Table, environ: Mapping[str, str]) -> ApiAdapter:
    """The adapter that `[channels.api]` describes; without an address answers are kept."""
    secret = table.secret("secret", environ)
    return ApiAdapter(
        SystemClock(),
        callback_url=table.text("callback_url"),
        secret=b"" if secret is None else secret.reveal().encode(),
    )


async def check(adapter: Adapter) -> str:
    """Say where answers go; nobody is called for it."""
    assert isinstance(adapter, ApiAdapter)
    return f"Programs write by POST /api/v1/arrivals; answers {adapter.where}."
