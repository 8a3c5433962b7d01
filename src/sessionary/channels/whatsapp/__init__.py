"""WhatsApp: a number of Meta's Cloud API, by its webhook."""

from dataclasses import dataclass
from typing import Annotated

from sessionary.channels.registry import ChannelKind
from sessionary.channels.whatsapp.inbound import WhatsAppOptions
from sessionary.config.secret import Secret
from sessionary.config.setting import Setting, ValueKind, address
from sessionary.engine.ports import Adapter


def _digits(text: str) -> str:
    if not text.isdecimal():
        raise ValueError(text)
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatsAppSettings(WhatsAppOptions):
    """The table `[channels.whatsapp]`."""

    phone_number_id: Annotated[
        str,
        ValueKind(
            "the digits that the app's page «API Setup» shows under the number "
            "(not the number itself)",
            _digits,
        ),
        Setting(
            "the digits that the app's page «API Setup» shows under the number",
            example="123456789012345",
        ),
    ]
    token: Annotated[Secret, Setting("the access token", example="WHATSAPP_TOKEN")]
    app_secret: Annotated[
        Secret, Setting("what requests are signed with", example="WHATSAPP_APP_SECRET")
    ]
    verify_token: Annotated[
        Secret,
        Setting("what Meta sends when it verifies the address", example="WHATSAPP_VERIFY_TOKEN"),
    ]
    api_version: Annotated[str, Setting("the version of the Graph API")] = "v23.0"
    base_url: Annotated[str, address("https", "http"), Setting("the address of your own proxy")] = (
        "https://graph.facebook.com"
    )


def create(settings: WhatsAppSettings) -> Adapter:
    """Return the adapter that `[channels.whatsapp]` describes."""
    # Loads httpx2, which may be missing.
    from sessionary.channels.whatsapp.adapter import WhatsAppAdapter
    from sessionary.channels.whatsapp.client import GraphClient

    graph = GraphClient(
        settings.phone_number_id,
        settings.token,
        base_url=settings.base_url,
        version=settings.api_version,
    )
    return WhatsAppAdapter(graph, settings.app_secret, settings.verify_token, settings)


CHANNEL = ChannelKind(
    name="whatsapp",
    title="WhatsApp",
    settings=WhatsAppSettings,
    create=create,
    extra="sessionary[whatsapp]",
    documentation="docs/channels/whatsapp.md",
)
