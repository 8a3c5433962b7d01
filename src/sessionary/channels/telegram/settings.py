"""The settings of the Telegram channel."""

from collections.abc import Mapping
from dataclasses import dataclass

from sessionary.channels.base import ChannelOptions, read_megabytes
from sessionary.channels.files import MEGABYTE
from sessionary.config.secret import Secret
from sessionary.config.table import Table
from sessionary.errors import BadInput

OFFICIAL = "https://api.telegram.org"


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramSettings(ChannelOptions):
    """How the bot gets its messages, and what it answers in groups."""

    token: Secret
    base_url: str = OFFICIAL
    webhook_url: str | None = None
    webhook_secret: Secret | None = None
    groups: str = "mentioned"
    edits: bool = True
    # Telegram's own servers give out no larger files; a server of your own has no such limit.
    largest_file: int = 20 * MEGABYTE
    largest_sent: int = 50_000_000
    poll_seconds: int = 30


def read(table: Table, environ: Mapping[str, str]) -> TelegramSettings:
    """Read the table `[channels.telegram]`."""
    token = table.required_secret("token", environ)
    default = TelegramSettings(token=token)
    settings = TelegramSettings(
        token=token,
        base_url=(table.text("base_url", OFFICIAL) or OFFICIAL).rstrip("/"),
        webhook_url=table.text("webhook_url"),
        webhook_secret=table.secret("webhook_secret", environ),
        groups=table.word("groups", "mentioned", ("mentioned", "always", "never")),
        observe=table.flag("observe", default=False),
        edits=table.flag("edits", default=True),
        stream=table.flag("stream", default=False),
        largest_file=read_megabytes(table, "largest_file_mb", default.largest_file),
        largest_sent=read_megabytes(table, "largest_sent_mb", default.largest_sent),
    )
    if not settings.base_url.startswith(("https://", "http://")):
        raise BadInput(
            f"[channels.telegram]: base_url must be an address, not {settings.base_url!r}."
        )
    if settings.webhook_url is not None and settings.webhook_secret is None:
        raise BadInput(
            "[channels.telegram]: a webhook needs a secret, or anyone could post to it. "
            "Set webhook_secret_env or webhook_secret_file."
        )
    return settings
