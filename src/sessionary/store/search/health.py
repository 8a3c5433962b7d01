"""How the index is, without changing it."""

import os
from dataclasses import dataclass

import apsw

from sessionary.errors import Damaged
from sessionary.store.database import Store, Tx
from sessionary.store.search import indexer
from sessionary.store.search.index_file import IndexFile, IndexLost
from sessionary.store.sqlite import db_file

# What makes the index again, whatever is wrong with it.
REBUILD = "sessionary rebuild --index"
_FAR = 2**62
_LOG = "the database that it is made from is damaged"


@dataclass(frozen=True, slots=True)
class IndexHealth:
    """What someone who looks after a store wants to know of its index."""

    exists: bool
    behind: int = 0
    bytes: int = 0
    problem: str | None = None


def examine(store: Store, path: str | None) -> IndexHealth:
    """Look at every page of the index at a log's path, or at the tables of a server.

    Whether the pages are sound, whether the full-text index agrees with itself, and whether every
    message that it has seen is in it.
    """
    if path is None:
        return store.read(_of_tables).result()
    if path == db_file.MEMORY:
        return IndexHealth(exists=False)
    index = IndexFile(path)
    if not os.path.exists(index.path):
        return IndexHealth(exists=False)
    size = os.stat(index.path).st_size
    try:
        behind, problem = index.examine()
    except IndexLost:
        return IndexHealth(exists=True, bytes=size, problem="it is not of this store, or too old")
    except Damaged:
        return IndexHealth(exists=True, bytes=size, problem=_LOG)
    except apsw.Error as error:
        if _is_of_the_log(index, error):
            return IndexHealth(exists=True, bytes=size, problem=_LOG)
        said = " ".join(str(error).split())
        return IndexHealth(exists=True, bytes=size, problem=f"it cannot be read: {said}")
    return IndexHealth(exists=True, behind=behind, bytes=size, problem=problem)


def _is_of_the_log(index: IndexFile, error: apsw.Error) -> bool:
    try:
        index.check_log(error)
    except Damaged:
        return True
    return False


def _of_tables(tx: Tx) -> IndexHealth:
    behind = indexer.state(tx).behind
    without = tx.all("docs_without_words", first=0, beyond=_FAR)
    problem = f"document {without[0][0]} has lost its words" if without else indexer.find_drift(tx)
    return IndexHealth(exists=True, behind=behind, problem=problem)
