"""What the configuration says of the Telegram channel."""

from collections.abc import Mapping
from dataclasses import dataclass

from sessionary.channels.enclosures import largest_sent
from sessionary.channels.files import MEGABYTE
from sessionary.config.secret import Secret
from sessionary.config.table import Table
from sessionary.errors import BadInput

OFFICIAL = "https://api.telegram.org"
# More is not given out by Telegram's own servers; a server of one's own has no such limit.
LARGEST_FILE = 20 * MEGABYTE
LARGEST_SENT = 50_000_000


@dataclass(frozen=True, slots=True)
class TelegramSettings:
    """How the bot gets its messages, and what it answers in groups."""

    token: Secret
    base_url: str = OFFICIAL
    webhook_url: str | None = None
    webhook_secret: Secret | None = None
    groups: str = "mentioned"
    observe: bool = False
    edits: bool = True
    stream: bool = False
    largest_file: int = LARGEST_FILE
    largest_sent: int = LARGEST_SENT
    poll_seconds: int = 30
    pause_seconds: float = 1.0


def read(table: Table, environ: Mapping[str, str]) -> TelegramSettings:
    """The settings in a table of the configuration."""
    largest = table.number("largest_file_mb", LARGEST_FILE / MEGABYTE)
    settings = TelegramSettings(
        token=table.required_secret("token", environ),
        base_url=(table.text("base_url", OFFICIAL) or OFFICIAL).rstrip("/"),
        webhook_url=table.text("webhook_url"),
        webhook_secret=table.secret("webhook_secret", environ),
        groups=table.word("groups", "mentioned", ("mentioned", "always", "never")),
        observe=table.flag("observe", default=False),
        edits=table.flag("edits", default=True),
        stream=table.flag("stream", default=False),
        largest_file=int(largest * MEGABYTE),
        largest_sent=largest_sent(table, LARGEST_SENT),
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
