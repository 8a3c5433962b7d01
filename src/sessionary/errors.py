"""The whole error tree, named by what the caller can do about it."""

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

Committed = Literal["no", "unknown"]


class SessionaryError(Exception):
    """One line for a person: what happened, what is safe, what to do.

    `committed` says what became of the write that failed: `no` is never found
    stored later; `unknown` is settled by repeating it with its idempotency key.
    """

    kind: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, *, committed: Committed = "no") -> None:
        super().__init__(message)
        self.committed: Committed = committed

    def __copy__(self) -> Self:
        """Copy an error whatever its `__init__` requires: a store gives each caller a copy, and must not fail at it."""
        made = type(self).__new__(type(self), *self.args)
        made.__dict__.update(self.__dict__)
        return made


class BadInput(SessionaryError):
    """What was given cannot be used; change it."""

    kind = "bad-input"
    http_status = 422


class ContextTooLong(BadInput):
    """The conversation is longer than the model can read; compact it.

    `window` is how many tokens it reads, if the provider says so.
    """

    kind = "context-too-long"

    def __init__(self, message: str, window: int | None = None) -> None:
        super().__init__(message)
        self.window = window


class PluginFailed(BadInput):
    """An installed plug-in cannot be used; update or uninstall its package. Everything else goes on."""

    kind = "plugin-failed"


class NotFound(SessionaryError):
    """Nothing by that name that this caller may see."""

    kind = "not-found"
    exit_code = 3
    http_status = 404


class Purged(NotFound):
    """It was deleted for good; nothing brings it back."""

    kind = "purged"


class Ambiguous(SessionaryError):
    """Several things have that name; choose one of the candidates."""

    kind = "ambiguous"
    exit_code = 4
    http_status = 409

    def __init__(self, message: str, candidates: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.candidates = tuple(candidates)


class Conflict(SessionaryError):
    """The state is not what the request assumes; read it again, then decide."""

    kind = "conflict"
    http_status = 409


class TurnLost(Conflict):
    """The turn has lost its lease: another process may write to the session now. Stop."""

    kind = "turn-lost"


class NotAllowed(SessionaryError):
    """This caller may not do that."""

    kind = "not-allowed"
    http_status = 403


class RetryLater(SessionaryError):
    """Not now; try again after `after` seconds."""

    kind = "retry-later"
    http_status = 503

    def __init__(self, message: str, after: float = 1.0, *, committed: Committed = "no") -> None:
        super().__init__(message, committed=committed)
        self.after = after


class Unreachable(SessionaryError):
    """A channel will never accept this delivery; redirect or abandon it."""

    kind = "unreachable"
    http_status = 502

    def __init__(self, message: str, channel: str = "") -> None:
        super().__init__(message)
        self.channel = channel


class AgentFailed(SessionaryError):
    """The agent did not finish its turn; its output so far is kept. Try again."""

    kind = "agent-failed"
    http_status = 502


class StoreUnavailable(SessionaryError):
    """The database cannot be used as it is: missing, unreadable, not ours, too new."""

    kind = "store-unavailable"
    http_status = 503


class StoreFull(StoreUnavailable):
    """No room for the write. Reads go on; writes go on by themselves once there is room."""

    kind = "store-full"
    http_status = 507


class StoreReadOnly(StoreUnavailable):
    """The disk or its permissions allow no write. Reads go on; make it writable and start again."""

    kind = "store-read-only"


class Damaged(StoreUnavailable):
    """The database is damaged. Writes stop, the original is kept; restore a backup."""

    kind = "damaged"


class Unreadable(Damaged):
    """The content of one message or file is damaged; everything else is read and written as before."""
