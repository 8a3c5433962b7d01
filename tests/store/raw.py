"""A connection past the store, for tests that look under it or break something."""

from typing import Any

import apsw
import psycopg

from sessionary.store.open import sqlite_path


def execute(url: str, statement: str, *, trusting: bool = False) -> list[tuple[Any, ...]]:
    """Run one statement as someone with the database's own tools would.

    `trusting`: without foreign keys and triggers, as damage comes about.
    """
    path = sqlite_path(url)
    if path is None:
        with psycopg.connect(url, autocommit=True) as server:
            if trusting:
                server.execute("SET session_replication_role = replica")
            found = server.execute(statement.encode())
            return found.fetchall() if found.description else []
    file = apsw.Connection(path)
    try:
        file.execute(f"PRAGMA foreign_keys = {'OFF' if trusting else 'ON'}")
        if trusting:
            file.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        return file.execute(statement).fetchall()
    finally:
        file.close()
