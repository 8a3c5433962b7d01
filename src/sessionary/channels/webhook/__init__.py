"""The webhook channel: signed JSON in, signed call-backs out."""

from sessionary.channels.webhook.adapter import WebhookAdapter
from sessionary.channels.webhook.settings import WebhookSettings

SETTINGS = WebhookSettings


def build(settings: WebhookSettings) -> WebhookAdapter:
    """Return the adapter that `[channels.webhook]` describes."""
    return WebhookAdapter(settings)
