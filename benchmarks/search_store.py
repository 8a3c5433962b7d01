"""Stores with the corpus in them: ours, and the one that is known, re-created."""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import apsw

from benchmarks import populate
from benchmarks.corpus import BEGAN, PLATFORMS, CorpusLine, Language, corpus
from benchmarks.texts import sql
from sessionary.actions.sessions import log, projects
from sessionary.clock import Moment, RandomIds
from sessionary.model.message import Message, Role, ToolResult, message
from sessionary.model.session import Opening
from sessionary.model.source import Source
from sessionary.store.database import Store, Tx
from sessionary.store.tables import sessions as table

PROJECT, SMALL_PROJECT = "Alpha", "Beta"
_CHUNK = 2_000


def build(folder: Path, language: Language, count: int) -> Path:
    """A store with so many messages; it is kept beside the folder, for the next round too."""
    path = folder.parent / f"search-{count}.db"
    if not path.exists():
        store = populate.opened(path)
        fill(store, corpus(language, count))
        store.close()
    return path


def fill(store: Store, messages: Iterable[CorpusLine]) -> None:
    """Say it all."""
    Filling(store).append(messages)


class Filling:
    """A store that is filled a piece at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: set[int] = set()
        moment = Moment(BEGAN, RandomIds())
        for name in (PROJECT, SMALL_PROJECT):
            store.write(projects.add, name, profile=populate.PROFILE, moment=moment).result()

    def append(self, messages: Iterable[CorpusLine]) -> None:
        """The next messages of the corpus."""
        for chunk in chunks(messages):
            self._store.write(_append_chunk, chunk, self._known).result()
            self._known.update(line.session for line in chunk)


def build_known(folder: Path, language: Language, count: int) -> Path:
    """The same messages as they are known to be kept: FTS5 over a table, the tokenizer's default."""
    path = folder.parent / f"search-known-{count}.db"
    if not path.exists():
        connection = apsw.Connection(str(path))
        connection.execute(sql()["known_search_tables"]).fetchall()
        for chunk in chunks(corpus(language, count)):
            rows = [(str(line.session), line.role, line.text) for line in chunk]
            connection.execute("BEGIN")
            connection.executemany(sql()["known_search_message"], rows)
            connection.execute("COMMIT")
        connection.close()
    return path


def chunks(messages: Iterable[CorpusLine]) -> Iterator[list[CorpusLine]]:
    """The messages, so many at a time."""
    rest = iter(messages)
    while chunk := list(islice(rest, _CHUNK)):
        yield chunk


def as_message(line: CorpusLine) -> Message:
    """A message of the corpus as the log takes it."""
    if line.tool is None:
        return message(line.role, line.text)
    return Message(Role.TOOL, (ToolResult("call", line.text, line.tool),))


def text_bytes(messages: Iterable[CorpusLine]) -> int:
    """How long the texts are, as JSON has them."""
    return sum(len(json.dumps(line.text, ensure_ascii=False).encode()) for line in messages)


def _append_chunk(tx: Tx, chunk: list[CorpusLine], known: set[int]) -> None:
    opened = set(known)
    for line in chunk:
        id = populate.id_of(line.session)
        if line.session not in opened:
            opened.add(line.session)
            source = Source(PLATFORMS[line.session % len(PLATFORMS)], f"chat{line.session}")
            opening = Opening(populate.PROFILE, source, title=f"Talk {line.session}")
            table.insert(tx, id, opening, at=line.at)
            if line.session % 50 == 7 or line.session % 5_000 == 8:
                name = SMALL_PROJECT if line.session % 5_000 == 8 else PROJECT
                projects.move_session(tx, id, name, profile=populate.PROFILE)
        log.append(tx, id, as_message(line), profile=populate.PROFILE, at=line.at)
