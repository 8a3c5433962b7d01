"""The webhook channel: JSON in with a signature, call-backs out with one."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from sessionary.channels.webhook import settings
from sessionary.channels.webhook.adapter import WebhookAdapter
from sessionary.config.table import Table
from sessionary.engine.ports import Adapter
from sessionary.errors import BadInput


def build(table: Table, environ: Mapping[str, str]) -> WebhookAdapter:
    """The adapter that the settings describe."""
    return WebhookAdapter(settings.read(table, environ))


async def check(adapter: Adapter) -> str:
    """Say what is expected of requests; nothing is sent, for a program would take it for real."""
    if not isinstance(adapter, WebhookAdapter):
        raise BadInput("This is not a webhook channel.")
    given = adapter.settings
    signed = "its time and its body" if given.signs_time else "its body"
    to = "nowhere (set call_back)" if given.call_back is None else _host(given.call_back)
    return (
        f"Requests come to /api/v1/channels/webhook/webhook with {given.signature_header}: "
        f"{given.signature_prefix}<hex of HMAC-SHA256 over {signed}>. Answers go to {to}."
    )


def _host(url: str) -> str:
    return urlsplit(url).hostname or url
