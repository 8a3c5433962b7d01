"""PostgreSQL's errors in our words: the one place where they are translated."""

import psycopg
from psycopg import errors as pg

from sessionary.errors import (
    BadInput,
    Committed,
    Conflict,
    Damaged,
    RetryLater,
    SessionaryError,
    StoreFull,
    StoreUnavailable,
)

# Another transaction was first: the same function, run again, finds what it left.
RACES = (
    pg.SerializationFailure,
    pg.DeadlockDetected,
    pg.UniqueViolation,
    pg.ForeignKeyViolation,
    pg.ExclusionViolation,
)


def translate(error: psycopg.Error, *, committed: Committed = "no") -> SessionaryError:
    """Say what happened, what is safe and what to do."""
    said = (error.diag.message_primary or str(error)).strip().splitlines()
    reason = said[0] if said else type(error).__name__
    match error:
        case pg.DiskFull() | pg.OutOfMemory():
            return StoreFull(f"PostgreSQL has no room ({reason}); nothing was written. Free space.")
        case pg.DataCorrupted() | pg.IndexCorrupted():
            return Damaged(
                f"PostgreSQL found damage ({reason}). Restore from a backup.", committed=committed
            )
        case pg.ReadOnlySqlTransaction():
            return StoreUnavailable(
                "This PostgreSQL server only reads at the moment; nothing was written."
            )
        case pg.QueryCanceled() | pg.LockNotAvailable():
            return RetryLater(
                f"PostgreSQL was too busy ({reason}); nothing was written. Try again."
            )
        case pg.ProgramLimitExceeded():
            return BadInput(
                f"A name or an id in it is too long for PostgreSQL ({reason}); nothing was written."
            )
        case pg.IntegrityError():
            return Conflict(f"The record does not allow that ({reason}); nothing was changed.")
        case pg.OperationalError() | pg.InterfaceError():
            safe = (
                "Whether the last write is there is not known: repeat it with its idempotency key."
                if committed == "unknown"
                else "Nothing was written."
            )
            return StoreUnavailable(
                f"PostgreSQL cannot be reached ({reason}). {safe}", committed=committed
            )
    return StoreUnavailable(f"PostgreSQL refused: {reason}.", committed=committed)
