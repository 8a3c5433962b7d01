"""The section of the system prompt about the conversation, in the lines that Hermes programs expect."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from sessionary.compat.hermes.config import GatewayConfig, HomeChannel, Platform, platform_value
from sessionary.compat.hermes.rows import Json
from sessionary.compat.hermes.source import (
    SessionEntry,
    SessionSource,
    is_shared_multi_user_session,
    to_source,
)
from sessionary.model.prompt import MAX_ID, MAX_NAME, MAX_TOPIC
from sessionary.model.redact import Redactor
from sessionary.model.source import Source
from sessionary.model.terminal import one_line

# Platforms where nobody is mentioned by id, so that ids can be hidden.
REDACTED = frozenset({Platform.WHATSAPP, Platform.SIGNAL, Platform.TELEGRAM, Platform.BLUEBUBBLES})
_NOTES = {
    Platform.SLACK: "This conversation is in Slack. You do NOT have access to Slack's own functions: you "
    "cannot search the history of a channel, pin messages, manage channels or list members, so never "
    "offer it. Parts of the current message's Slack block/attachment payload may be in its text.",
    Platform.DISCORD: "This conversation is in Discord. You do NOT have access to Discord's own functions: "
    "you cannot search the history of a channel, pin messages, manage roles or list members, so never "
    "offer it. You read what is sent to you, and answer.",
    Platform.BLUEBUBBLES: "You are responding via iMessage. Be short and conversational. A blank line ends "
    "a bubble: put one thought into each, and give the short answer before a long one.",
    Platform.YUANBAO: "This conversation is in Yuanbao. The send_message tool reaches people as "
    "`yuanbao:direct:<account_id>` and groups as `yuanbao:group:<group_code>`.",
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
    # How ids are hidden: with the salt of the store that the entry came from.
    redactor: Redactor = field(default=Redactor(""), repr=False, compare=False)

    def to_dict(self) -> Json:
        return {
            "source": self.source.to_dict(),
            "connected_platforms": [platform_value(each) for each in self.connected_platforms],
            "home_channels": {
                platform_value(each): home.to_dict() for each, home in self.home_channels.items()
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
            group_sessions_per_user=getattr(config, "group_sessions_per_user", True),
            thread_sessions_per_user=getattr(config, "thread_sessions_per_user", False),
        ),
    )
    if session_entry is not None:
        context.session_key = session_entry.session_key
        context.session_id = session_entry.session_id
        context.created_at = session_entry.created_at
        context.updated_at = session_entry.updated_at
        context.redactor = session_entry.redactor
    return context


def build_session_context_prompt(context: SessionContext, *, redact_pii: bool = False) -> str:
    """The section of the system prompt; the same facts give the same bytes.

    Names, topics and ids are other people's text: each stands on one line and is cut to size. With `redact_pii` ids
    and numbers are hidden on platforms where nobody is mentioned by id: with the store's salt if the context was
    built with an entry of a `SessionStore`, and without one otherwise.
    """
    redactor = context.redactor if redact_pii and context.source.platform in REDACTED else None
    source = to_source(context.source)
    if redactor is not None:
        source = redactor.source(source)
    platform = platform_value(context.source.platform)
    is_local = context.source.platform == Platform.LOCAL
    place = "the machine running this agent" if is_local else _name(source.description)
    lines = ["## Current Session Context", "", f"**Source:** {_name(platform.title())} ({place})"]
    lines += _about_people(context, source)
    note = _NOTES.get(context.source.platform)
    if note is not None:
        lines += ["", f"**Platform notes:** {note}"]
    others = [each for each in context.connected_platforms if each != Platform.LOCAL]
    connected = [f"{_name(platform_value(each))}: Connected ✓" for each in others]
    shown = ", ".join(["local (files on this machine)", *connected])
    lines.append(f"**Connected Platforms:** {shown}")
    homes = [_shown_home(home, redactor) for home in context.home_channels.values()]
    if homes:
        lines += ["", "**Home Channels (default destinations):**"]
        lines += [f"  - {platform}: {name} (ID: {id})" for platform, name, id in homes]
    origin = (
        "Local output (saved to files)"
        if is_local
        else f"Back to this chat ({_name(source.chat_name or source.chat_id or '')})"
    )
    lines += [
        "",
        "**Delivery options for scheduled tasks:**",
        f'- `"origin"` → {origin}',
        f'- `"local"` → Local files only ({_home_folder()}/cron/output/)',
        *(f'- `"{platform}"` → Home channel ({name})' for platform, name, _ in homes),
        "",
        '*Name any other chat exactly, as `"platform:chat_id"`.*',
    ]
    return "\n".join(lines)


def _about_people(context: SessionContext, source: Source) -> Iterator[str]:
    if source.chat_topic:
        yield f"**Channel Topic:** {one_line(source.chat_topic, MAX_TOPIC)}"
    if context.shared_multi_user_session:
        # The person changes from message to message; these lines must not.
        label = "Multi-user thread" if source.thread_id else "Multi-user session"
        yield f"**Session type:** {label} — several people write; each message begins with [sender name]."
    elif source.user_name:
        yield f"**User:** {_name(source.user_name)}"
    elif source.user_id:
        yield f"**User ID:** {one_line(source.user_id, MAX_ID)}"


def _shown_home(home: HomeChannel, redactor: Redactor | None) -> tuple[str, str, str]:
    """The platform, name and id of a home channel as they are shown."""
    name, id = home.name, home.chat_id
    if redactor is not None and home.platform in REDACTED:
        name, id = redactor.name(name), redactor.chat_id(id)
    return _name(platform_value(home.platform)), _name(name), one_line(id, MAX_ID)


def _home_folder() -> str:
    """Where Hermes keeps its files, as people write it."""
    return os.environ.get("HERMES_HOME") or "~/.hermes"


def _name(text: str) -> str:
    return one_line(text, MAX_NAME)
