"""Writing an SQLite file anew, without the pages that deleted content left free."""

from collections.abc import Callable

import apsw

from sessionary.store.sqlite import db_file
from sessionary.store.sqlite.errors import translate
from sessionary.store.sqlite.lock import Turnstile

# Of SQLite's machine, between two looks at whether to go on: some milliseconds.
STEPS = 100_000


def nothing() -> None:
    """What happens between two steps, if nobody cares."""


def vacuum(path: str, *, wait_seconds: float, on_step: Callable[[], None] = nothing) -> None:
    """Shrink the file as one writer among the others: they wait, nothing is lost if we die.

    `on_step` is called again and again meanwhile; what it raises ends the work, and the file stays.
    """

    def act(connection: apsw.Connection) -> None:
        connection.set_progress_handler(_stepping(on_step), STEPS)
        connection.execute("VACUUM")
        # Until the WAL is folded in, the room is not given back.
        connection.set_progress_handler(None)
        _checkpoint(connection)

    _alone(path, act, wait_seconds=wait_seconds)


def _stepping(on_step: Callable[[], None]) -> Callable[[], bool]:
    def step() -> bool:
        on_step()
        return False

    return step


def empty_wal(path: str, *, wait_seconds: float) -> None:
    """Fold the WAL into the file and cut it; while a reader needs it, that is left to a later time."""
    _alone(path, _checkpoint, wait_seconds=wait_seconds)


def _checkpoint(connection: apsw.Connection) -> None:
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.BusyError:
        # A reader is on it. The pages are written over as the WAL begins anew.
        return


def _alone(path: str, act: Callable[[apsw.Connection], object], *, wait_seconds: float) -> None:
    turnstile = Turnstile(path, wait_seconds)
    try:
        with turnstile.pass_through():
            connection = db_file.connect_writer(path)
            try:
                act(connection)
            finally:
                connection.close()
    except apsw.Error as error:
        raise translate(error, path) from error
    finally:
        turnstile.close()
