"""The section of the system prompt about the conversation, in the lines that Hermes programs expect."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from sessionary.compat.hermes.config import GatewayConfig, HomeChannel, Platform
from sessionary.compat.hermes.rows import Json
from sessionary.compat.hermes.source import (
    SessionEntry,
    SessionSource,
    from_source,
    is_shared_multi_user_session,
    to_source,
)
from sessionary.model.prompt import MAX_ID, MAX_NAME, MAX_TOPIC
from sessionary.model.redact import Redactor
from sessionary.model.terminal import one_line

# Platforms where nobody is mentioned by id, so that ids can be hidden.
REDACTED = frozenset({Platform.WHATSAPP, Platform.SIGNAL, Platform.TELEGRAM})
# As in Hermes, without a salt: this module has no store to take one from.
_REDACTOR = Redactor("")
_CANNOT = (
    "you see only the messages of this conversation; you cannot search the history of a "
    "channel, pin messages, manage channels or roles, or list members."
)
_NOTES = {
    Platform.SLACK: f"You are in Slack: {_CANNOT}",
    Platform.DISCORD: f"You are in Discord: {_CANNOT}",
}


@dataclass
class SessionContext:
    """What the agent is told about one conversation."""

    source: SessionSource
    connected_platforms: list[Platform]
    home_channels: dict[Platform, HomeChannel] = field(default_factory=dict)
    shared_multi_user_session: bool = False
    session_key: str = ""
    session_id: str = ""
    created_at: datetime | None = None
    updated_at: datetime | None = None

    def to_dict(self) -> Json:
        return {
            "source": self.source.to_dict(),
            "connected_platforms": [each.value for each in self.connected_platforms],
            "home_channels": {
                each.value: home.to_dict() for each, home in self.home_channels.items()
            },
            "shared_multi_user_session": self.shared_multi_user_session,
            "session_key": self.session_key,
            "session_id": self.session_id,
            "created_at": None if self.created_at is None else self.created_at.isoformat(),
            "updated_at": None if self.updated_at is None else self.updated_at.isoformat(),
        }


def build_session_context(
    source: SessionSource, config: GatewayConfig, session_entry: SessionEntry | None = None
) -> SessionContext:
    """Collect the context of a conversation."""
    connected = config.get_connected_platforms()
    homes = {each: home for each in connected if (home := config.get_home_channel(each))}
    context = SessionContext(
        source,
        connected,
        homes,
        shared_multi_user_session=is_shared_multi_user_session(
            source,
            group_sessions_per_user=config.group_sessions_per_user,
            thread_sessions_per_user=config.thread_sessions_per_user,
        ),
    )
    if session_entry is not None:
        context.session_key = session_entry.session_key
        context.session_id = session_entry.session_id
        context.created_at = session_entry.created_at
        context.updated_at = session_entry.updated_at
    return context


def build_session_context_prompt(context: SessionContext, *, redact_pii: bool = False) -> str:
    """The section of the system prompt; the same facts give the same bytes.

    Names, topics and ids are other people's text: each stands on one line and is cut to size.
    """
    redacts = redact_pii and context.source.platform in REDACTED
    source = _redacted(context.source) if redacts else context.source
    lines = ["## Current Session Context", "", *_about_source(context, source), ""]
    connected = ["local (files on this machine)"]
    connected += [f"{each.value}: Connected ✓" for each in _others(context)]
    lines += [f"**Connected Platforms:** {', '.join(connected)}", ""]
    if context.home_channels:
        lines.append("**Home Channels (default destinations):**")
        lines += [
            f"  - {each.value}: {_name(_home_name(home, redact_pii))} (ID: {_home_id(home, redact_pii)})"
            for each, home in context.home_channels.items()
        ]
        lines.append("")
    lines += [
        "**Delivery options for scheduled tasks:**",
        *_deliveries(context, source, redact_pii),
    ]
    lines += ["", '*To name a target exactly, write it as `"platform:chat_id"`.*']
    return "\n".join(lines)


def _about_source(context: SessionContext, source: SessionSource) -> Iterator[str]:
    platform = source.platform
    place = "the machine this runs on" if platform is Platform.LOCAL else _name(source.description)
    yield f"**Source:** {platform.value.title()} ({place})"
    if source.chat_topic:
        yield f"**Channel Topic:** {one_line(source.chat_topic, MAX_TOPIC)}"
    if context.shared_multi_user_session:
        # The person changes from message to message; these lines must not.
        yield "**Session type:** several people write here; each message names its sender."
    elif source.user_name:
        yield f"**User:** {_name(source.user_name)}"
    elif source.user_id:
        yield f"**User ID:** {one_line(source.user_id, MAX_ID)}"
    if platform in _NOTES:
        yield f"**Platform notes:** {_NOTES[platform]}"


def _deliveries(context: SessionContext, source: SessionSource, redact: bool) -> Iterator[str]:
    where = source.chat_name or source.chat_id
    here = "local output" if source.platform is Platform.LOCAL else f"this chat ({_name(where)})"
    yield f'- `"origin"`: back to {here}'
    yield '- `"local"`: kept in files on this machine, sent nowhere'
    for each, home in context.home_channels.items():
        yield f'- `"{each.value}"`: home channel ({_name(_home_name(home, redact))})'


def _others(context: SessionContext) -> list[Platform]:
    return [each for each in context.connected_platforms if each is not Platform.LOCAL]


def _redacted(source: SessionSource) -> SessionSource:
    return from_source(_REDACTOR.source(to_source(source))) or source


def _home_name(home: HomeChannel, redact: bool) -> str:
    return _REDACTOR.name(home.name) if redact and home.platform in REDACTED else home.name


def _home_id(home: HomeChannel, redact: bool) -> str:
    hides = redact and home.platform in REDACTED
    return one_line(_REDACTOR.chat_id(home.chat_id) if hides else home.chat_id, MAX_ID)


def _name(text: str) -> str:
    return one_line(text, MAX_NAME)
