"""Hansard: the session layer for AI agents."""

from hansard.app import House, RunningTurn, Session
from hansard.app import open_house as open
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
from hansard.model.entry import Entry, Message
from hansard.model.place import Channel, Person, Source
from hansard.model.session import SessionHead
from hansard.model.usage import Usage

__version__ = "0.1.0"

__all__ = [
    "Ambiguous",
    "BadInput",
    "Channel",
    "Conflict",
    "Entry",
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
