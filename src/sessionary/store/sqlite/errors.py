"""SQLite's errors in our words: the one place where they are translated."""

import os

import apsw

from sessionary.errors import (
    BadInput,
    Committed,
    Conflict,
    Damaged,
    RetryLater,
    SessionaryError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from sessionary.store.database import REMEDY


def translate(error: apsw.Error, path: str, *, committed: Committed = "no") -> SessionaryError:
    """Say what happened, what is safe and what to do."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return RetryLater(
                "Another program is writing to the store; nothing was written. Try again."
            )
        case apsw.FullError():
            return StoreFull(
                f"There is no room left to write to {path}; nothing was written, reading works. Free space."
            )
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return _read_only(path)
        case apsw.NotADBError():
            return StoreUnavailable(f"{path} is not a Sessionary store; it was left as it is.")
        case apsw.CorruptError():
            return Damaged(f"{path} is damaged ({error}); it was left as it is. {REMEDY}")
        case apsw.CantOpenError() if os.path.exists(path) and not _is_writable(path):
            return _read_only(path)  # what SQLite could not make is the WAL beside it
        case apsw.CantOpenError():
            return StoreUnavailable(
                f"{path} cannot be opened; nothing was changed. Check the path and its permissions."
            )
        case apsw.TooBigError():
            return BadInput(
                "That is larger than the store takes in one piece; nothing was written."
            )
        case apsw.IOError():
            return StoreUnavailable(
                f"The disk under {path} failed ({error}). "
                + (
                    "Whether the last write is there is not known: repeat it with its idempotency key."
                    if committed == "unknown"
                    else "Nothing was written."
                ),
                committed=committed,
            )
        case apsw.ConstraintError():
            return Conflict(f"The record does not allow that ({error}); nothing was changed.")
    return StoreUnavailable(f"SQLite refused {path}: {error}.", committed=committed)


def _read_only(path: str) -> StoreReadOnly:
    return StoreReadOnly(
        f"{path} cannot be written to; nothing was changed. Check its permissions and its disk."
    )


def _is_writable(path: str) -> bool:
    return os.access(os.path.dirname(path) or ".", os.W_OK)
