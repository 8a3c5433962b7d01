"""Writing an SQLite file anew, without the pages that deleted content left free."""

import apsw

from hansard.store import sqlite_file
from hansard.store.sqlite_errors import translate
from hansard.store.turnstile import Turnstile


def vacuum(path: str, *, wait_seconds: float) -> None:
    """Shrink the file as one writer among the others: they wait, nothing is lost if we die."""
    turnstile = Turnstile(path, wait_seconds)
    try:
        with turnstile.pass_through():
            connection = sqlite_file.connect_writer(path)
            try:
                connection.execute("VACUUM")
            finally:
                connection.close()
    except apsw.Error as error:
        raise translate(error, path) from error
    finally:
        turnstile.close()
