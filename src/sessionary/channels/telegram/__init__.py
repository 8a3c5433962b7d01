"""Telegram: a bot that polls, or to which Telegram posts."""

from dataclasses import dataclass
from typing import Annotated, Literal

from sessionary.channels.base import ChannelOptions, LargestFile, LargestSent, Observe, Stream
from sessionary.channels.files import MEGABYTE
from sessionary.channels.registry import ChannelKind
from sessionary.config.secret import Secret
from sessionary.config.setting import Setting, address
from sessionary.engine.ports import Adapter

OFFICIAL = "https://api.telegram.org"


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramSettings(ChannelOptions):
    """How the bot gets its messages, and what it answers in groups."""

    token: Annotated[Secret, Setting("the token of @BotFather", example="TELEGRAM_TOKEN")]
    groups: Annotated[
        Literal["mentioned", "always", "never"],
        Setting("in groups, answer when mentioned, replied to or given a command; always; never"),
    ] = "mentioned"
    observe: Observe = False
    edits: Annotated[bool, Setting("edited messages reach the agent as a correction")] = True
    stream: Stream = False
    # Telegram's own servers give out no larger files; a server of your own has no such limit.
    largest_file: LargestFile = 20 * MEGABYTE
    largest_sent: LargestSent = 50_000_000
    webhook_url: Annotated[
        str | None,
        Setting(
            "let Telegram post messages to this address instead of polling",
            example="https://example.org/api/v1/channels/telegram/webhook",
        ),
    ] = None
    webhook_secret: Annotated[
        Secret | None,
        Setting("what Telegram's posts are checked with", example="TELEGRAM_SECRET"),
    ] = None
    base_url: Annotated[
        str, address("https", "http"), Setting("the address of your own Bot API server")
    ] = OFFICIAL
    poll_seconds: int = 30

    def check(self) -> None:
        """Refuse a webhook that anyone could post to."""
        if self.webhook_url is not None and self.webhook_secret is None:
            raise ValueError(
                "a webhook needs a secret, or anyone could post to it. "
                "Set webhook_secret_env or webhook_secret_file."
            )


def create(settings: TelegramSettings) -> Adapter:
    """Return the adapter that `[channels.telegram]` describes."""
    # Loads python-telegram-bot, which may be missing.
    from sessionary.channels.telegram.adapter import TelegramAdapter

    return TelegramAdapter(settings)


CHANNEL = ChannelKind(
    name="telegram",
    title="Telegram",
    settings=TelegramSettings,
    create=create,
    extra="sessionary[telegram]",
    documentation="docs/channels/telegram.md",
)
