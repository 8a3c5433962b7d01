"""The channel for programs: messages come in over HTTP, replies are kept or called back."""

from dataclasses import dataclass
from typing import Annotated

from sessionary.channels.api.adapter import ApiAdapter
from sessionary.channels.callback import address_to_call
from sessionary.clock import SystemClock
from sessionary.config.engine import ChannelTable
from sessionary.config.secret import Secret
from sessionary.config.setting import Setting, ValueKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings(ChannelTable):
    """Where replies are posted; without an address they are kept."""

    callback_url: Annotated[
        str | None,
        ValueKind(
            "an address to call back, such as https://host/path",
            address_to_call,
            short="address",
            schema={"type": "string", "format": "uri"},
        ),
        Setting("where replies are posted", example="https://example.org/answers"),
    ] = None
    secret: Annotated[
        Secret | None, Setting("what call-backs are signed with", example="API_SECRET")
    ] = None


SETTINGS = ApiSettings


def build(settings: ApiSettings) -> ApiAdapter:
    """Return the adapter that `[channels.api]` describes."""
    secret = b"" if settings.secret is None else settings.secret.reveal().encode()
    return ApiAdapter(SystemClock(), callback_url=settings.callback_url, secret=secret)
