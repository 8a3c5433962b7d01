"""Sessionary: the session layer for AI agents."""

import importlib
import sys
from typing import TYPE_CHECKING, Any

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
    from sessionary.model.entry import Entry, Message
    from sessionary.model.place import Channel, Person, Source
    from sessionary.model.session import SessionHead
    from sessionary.model.usage import Usage

__version__ = "0.1.0"

NOT_ON_WINDOWS = (
    "Sessionary runs on Linux and macOS, not on Windows itself: use it in WSL (`wsl --install`)."
)

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

# Where each name lives. A name is loaded when it is first asked for, so that a command
# that lists sessions does not wait for what it does not use.
_HOMES = {
    "sessionary.client.client": ("Sessionary", "open"),
    "sessionary.client.session": ("RunningTurn", "Session"),
    "sessionary.errors": (
        "Ambiguous",
        "BadInput",
        "Conflict",
        "SessionaryError",
        "NotAllowed",
        "NotFound",
        "RetryLater",
        "StoreUnavailable",
        "TurnLost",
    ),
    "sessionary.formats.message_input": ("File",),
    "sessionary.model.entry": ("Entry", "Message"),
    "sessionary.model.place": ("Channel", "Person", "Source"),
    "sessionary.model.session": ("SessionHead",),
    "sessionary.model.usage": ("Usage",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_CALLED_THERE = {"open": "connect"}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'sessionary' has no attribute {name!r}")
    if sys.platform == "win32" and _HOME_OF[name].startswith("sessionary.app"):
        raise importlib.import_module("sessionary.errors").StoreUnavailable(NOT_ON_WINDOWS)
    value = getattr(importlib.import_module(_HOME_OF[name]), _CALLED_THERE.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
