"""Slack: channels, threads and direct messages, by Socket Mode or by the Events API."""

from dataclasses import dataclass
from typing import Annotated

from sessionary.channels.registry import ChannelKind
from sessionary.channels.slack.inbound import SlackOptions
from sessionary.config.secret import Secret
from sessionary.config.setting import Setting, address
from sessionary.engine.ports import Adapter


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackSettings(SlackOptions):
    """The table `[channels.slack]`."""

    token: Annotated[Secret, Setting("the bot token", example="SLACK_TOKEN")]
    app_token: Annotated[
        Secret | None,
        Setting("the app-level token, for Socket Mode", example="SLACK_APP_TOKEN"),
    ] = None
    signing_secret: Annotated[
        Secret | None,
        Setting("what Slack signs with, for the Events API", example="SLACK_SIGNING_SECRET"),
    ] = None
    base_url: Annotated[str, address("https", "http"), Setting("the address of your own proxy")] = (
        "https://slack.com/api"
    )

    def check(self) -> None:
        """Refuse a channel that has no way to receive messages, or two."""
        if (self.app_token is None) == (self.signing_secret is None):
            raise ValueError(
                "set app_token_env (Socket Mode) or signing_secret_env (Events API), not both."
            )


def create(settings: SlackSettings) -> Adapter:
    """Return the adapter that `[channels.slack]` describes."""
    # Loads slack-sdk, which may be missing.
    from sessionary.channels.slack.adapter import SlackAdapter, SlackKeys

    keys = SlackKeys(settings.token, settings.app_token, settings.signing_secret)
    return SlackAdapter(keys, settings, api=f"{settings.base_url}/")


CHANNEL = ChannelKind(
    name="slack",
    title="Slack",
    settings=SlackSettings,
    create=create,
    extra="sessionary[slack]",
    documentation="docs/channels/slack.md",
)
