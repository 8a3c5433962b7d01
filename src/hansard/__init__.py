"""Hansard: the session layer for AI agents."""

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hansard.app.house import House
    from hansard.app.house import open_house as open
    from hansard.app.session import RunningTurn, Session
    from hansard.errors import (
        Ambiguous,
        BadInput,
        Conflict,
        HansardError,
        NotAllowed,
        NotFound,
        RetryLater,
        StoreUnavailable,
        TurnLost,
    )
    from hansard.formats.message_input import File
    from hansard.model.entry import Entry, Message
    from hansard.model.place import Channel, Person, Source
    from hansard.model.session import SessionHead
    from hansard.model.usage import Usage

__version__ = "0.1.0"

NOT_ON_WINDOWS = (
    "Hansard runs on Linux and macOS, not on Windows itself: use it in WSL (`wsl --install`)."
)

__all__ = [
    "Ambiguous",
    "BadInput",
    "Channel",
    "Conflict",
    "Entry",
    "File",
    "HansardError",
    "House",
    "Message",
    "NotAllowed",
    "NotFound",
    "Person",
    "RetryLater",
    "RunningTurn",
    "Session",
    "SessionHead",
    "Source",
    "StoreUnavailable",
    "TurnLost",
    "Usage",
    "open",
]

# Where each name lives. A name is loaded when it is first asked for, so that a command
# that lists sessions does not wait for what it does not use.
_HOMES = {
    "hansard.app.house": ("House", "open"),
    "hansard.app.session": ("RunningTurn", "Session"),
    "hansard.errors": (
        "Ambiguous",
        "BadInput",
        "Conflict",
        "HansardError",
        "NotAllowed",
        "NotFound",
        "RetryLater",
        "StoreUnavailable",
        "TurnLost",
    ),
    "hansard.formats.message_input": ("File",),
    "hansard.model.entry": ("Entry", "Message"),
    "hansard.model.place": ("Channel", "Person", "Source"),
    "hansard.model.session": ("SessionHead",),
    "hansard.model.usage": ("Usage",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_CALLED_THERE = {"open": "open_house"}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'hansard' has no attribute {name!r}")
    if sys.platform == "win32" and _HOME_OF[name].startswith("hansard.app"):
        raise importlib.import_module("hansard.errors").StoreUnavailable(NOT_ON_WINDOWS)
    value = getattr(importlib.import_module(_HOME_OF[name]), _CALLED_THERE.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
