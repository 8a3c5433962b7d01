"""Channels: one package for each platform, on a common base; none imports another.

What the author of a channel needs is exported here; docs/plugins/channel.md shows how it is used.
"""

from sessionary.channels.base import (
    ChannelAdapter,
    ChannelOptions,
    GroupOptions,
    PendingQueue,
    ReceivedMessage,
    answer_lost,
    until_first_ends,
    utf16_units,
)
from sessionary.channels.files import FileRefused, FileTooLarge, IncomingFile, OutgoingFile
from sessionary.channels.registry import ChannelKind
from sessionary.config.secret import Secret
from sessionary.config.setting import Setting
from sessionary.engine.outbox import split_text
from sessionary.engine.ports import Adapter, Capabilities, Receive, Sent
from sessionary.errors import BadInput, NotAllowed, RetryLater, SessionaryError, Unreachable
from sessionary.model.message import Message, Text, text_of
from sessionary.model.source import Channel, ChatType, Source
from sessionary.model.turn import Delivery

__all__ = [
    "Adapter",
    "BadInput",
    "Capabilities",
    "Channel",
    "ChannelAdapter",
    "ChannelKind",
    "ChannelOptions",
    "ChatType",
    "Delivery",
    "FileRefused",
    "FileTooLarge",
    "GroupOptions",
    "IncomingFile",
    "Message",
    "NotAllowed",
    "OutgoingFile",
    "PendingQueue",
    "Receive",
    "ReceivedMessage",
    "RetryLater",
    "Secret",
    "Sent",
    "SessionaryError",
    "Setting",
    "Source",
    "Text",
    "Unreachable",
    "answer_lost",
    "split_text",
    "text_of",
    "until_first_ends",
    "utf16_units",
]
