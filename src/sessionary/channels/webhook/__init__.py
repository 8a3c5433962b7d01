"""The webhook channel: signed JSON in, signed call-backs out."""

from collections.abc import Mapping

from sessionary.channels.webhook import settings
from sessionary.channels.webhook.adapter import WebhookAdapter
from sessionary.config.table import Table


def build(table: Table, environ: Mapping[str, str]) -> WebhookAdapter:
    """Return the adapter that `[channels.webhook]` describes."""
    return WebhookAdapter(settings.read(table, environ))
