"""A new SQLite file with the tables of Hermes' `state.db`, filled row by row."""

import re
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import apsw

from sessionary.errors import SessionaryError
from sessionary.store import queries

_SURROGATES = re.compile("[\ud800-\udfff]")


class StateFile:
    """The tables of a `state.db`, open to be filled; closing it without an error completes it.

    The rows have Hermes' columns. A lone surrogate, which SQLite cannot store, becomes U+FFFD.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._texts = queries.external()
        self._connection = apsw.Connection(str(path))
        self._run("state_schema", ())

    def add_session(self, row: Mapping[str, Any]) -> None:
        """Add a session; its messages may come before it."""
        self._run("insert_state_session", _storable(row))

    def add_message(self, row: Mapping[str, Any], *, words: str) -> None:
        """Add a message after all others, and the words by which a search finds it."""
        self._run("insert_state_message", _storable(row))
        found = (self._connection.last_insert_rowid(), _SURROGATES.sub("\ufffd", words))
        for name in ("insert_state_words", "insert_state_trigrams"):
            self._run(name, found)

    def add_usage(self, row: Mapping[str, Any]) -> None:
        """Add what a session used of one model."""
        self._run("insert_state_usage", _storable(row))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._run("finish_state_file", ())
        finally:
            self._connection.close()

    def _run(self, name: str, values: Mapping[str, Any] | tuple[Any, ...]) -> None:
        try:
            self._connection.execute(self._texts[name], values).fetchall()
        except apsw.Error as error:
            raise SessionaryError(f"{self._path} cannot be written ({error}).") from error


def _storable(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _SURROGATES.sub("\ufffd", value) if isinstance(value, str) else value
        for name, value in row.items()
    }
