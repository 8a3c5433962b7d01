"""A pool of connections that can be ended under whoever waits for a silent server."""

import logging
import os
import socket
from typing import Any

import psycopg
from psycopg_pool import ConnectionPool

from sessionary.store.database import Row

# The pool tells its callers; its own log lines would only repeat that on a person's terminal.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())
logging.getLogger("psycopg.pool").propagate = False


class Pool(ConnectionPool[psycopg.Connection[Row]]):
    """The library's pool, which also knows the connections that are in use."""

    def __init__(self, url: str, **how: Any) -> None:
        super().__init__(url, **how)
        self._lent: set[psycopg.Connection[Row]] = set()

    def getconn(self, timeout: float | None = None) -> psycopg.Connection[Row]:
        """Lend a connection."""
        connection = super().getconn(timeout)
        self._lent.add(connection)
        return connection

    def putconn(self, conn: psycopg.Connection[Row]) -> None:
        """Take a connection back."""
        self._lent.discard(conn)
        super().putconn(conn)

    def cut(self) -> None:
        """End the connections in use: whoever waits for an answer meets the end of its line."""
        for connection in tuple(self._lent):
            try:
                with socket.socket(fileno=os.dup(connection.fileno())) as line:
                    line.shutdown(socket.SHUT_RDWR)
            except (OSError, psycopg.Error):
                pass  # it has ended by itself
