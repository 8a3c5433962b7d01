"""Sessionary: the session layer for AI agents."""

import sys
from typing import TYPE_CHECKING, Any

from sessionary.version import __version__ as __version__

if TYPE_CHECKING:
    from sessionary.client.client import Sessionary
    from sessionary.client.client import connect as open
    from sessionary.client.session import RunningTurn, Session
    from sessionary.errors import (
        Ambiguous,
        BadInput,
        Conflict,
        NotAllowed,
        NotFound,
        RetryLater,
        SessionaryError,
        StoreUnavailable,
        TurnLost,
    )
    from sessionary.formats.message_input import File
    from sessionary.model.message import Entry, Message
    from sessionary.model.session import SessionHead
    from sessionary.model.source import Channel, Person, Source
    from sessionary.model.usage import Usage

NOT_ON_WINDOWS = "Sessionary runs on Linux and macOS. On Windows, use it in WSL (`wsl --install`)."

__all__ = [
    "Ambiguous",
    "BadInput",
    "Channel",
    "Conflict",
    "Entry",
    "File",
    "Message",
    "NotAllowed",
    "NotFound",
    "Person",
    "RetryLater",
    "RunningTurn",
    "Session",
    "SessionHead",
    "Sessionary",
    "SessionaryError",
    "Source",
    "StoreUnavailable",
    "TurnLost",
    "Usage",
    "open",
]

# Public names that need the store, which Windows cannot run.
_NOT_ON_WINDOWS = {"RunningTurn", "Session", "Sessionary", "open"}


def __getattr__(name: str) -> Any:
    """Load the public names on first use, so that the command line starts fast."""
    if name not in __all__:
        raise AttributeError(f"module 'sessionary' has no attribute {name!r}")
    from sessionary import errors

    if hasattr(errors, name):
        return getattr(errors, name)
    if sys.platform == "win32" and name in _NOT_ON_WINDOWS:
        raise errors.StoreUnavailable(NOT_ON_WINDOWS)
    from sessionary.client.client import Sessionary, connect
    from sessionary.client.session import RunningTurn, Session
    from sessionary.formats.message_input import File
    from sessionary.model.message import Entry, Message
    from sessionary.model.session import SessionHead
    from sessionary.model.source import Channel, Person, Source
    from sessionary.model.usage import Usage

    classes = (
        Channel,
        Entry,
        File,
        Message,
        Person,
        RunningTurn,
        Session,
        SessionHead,
        Sessionary,
        Source,
        Usage,
    )
    globals().update({each.__name__: each for each in classes}, open=connect)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
