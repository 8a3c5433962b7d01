"""The health of the index, found without changing it."""

import os

import apsw
from msgspec import Struct

from sessionary.errors import Damaged
from sessionary.store.database import Store, Tx
from sessionary.store.search import indexer
from sessionary.store.search.index_file import IndexFile, IndexLost
from sessionary.store.sqlite import db_file

# The command that rebuilds the index, whatever is wrong with it.
REBUILD = "sessionary rebuild --index"
_FAR = 2**62
_LOG_DAMAGED = "the database that it is made from is damaged"


class IndexHealth(Struct, frozen=True):
    """What an operator wants to know of an index."""

    exists: bool
    behind: int = 0
    bytes: int = 0
    problem: str | None = None


def examine(store: Store, path: str | None) -> IndexHealth:
    """Check the index beside the log at a path, or the index tables of a server (no path).

    Whether every page is sound, the full-text index is consistent, and every message that the index
    has seen is in it.
    """
    if path is None:
        return store.read(_examine_tables).result()
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
        return IndexHealth(exists=True, bytes=size, problem=_LOG_DAMAGED)
    except apsw.Error as error:
        if _is_damage_of_log(index, error):
            return IndexHealth(exists=True, bytes=size, problem=_LOG_DAMAGED)
        message = " ".join(str(error).split())
        return IndexHealth(exists=True, bytes=size, problem=f"it cannot be read: {message}")
    return IndexHealth(exists=True, behind=behind, bytes=size, problem=problem)


def _is_damage_of_log(index: IndexFile, error: apsw.Error) -> bool:
    try:
        index.check_log(error)
    except Damaged:
        return True
    return False


def _examine_tables(tx: Tx) -> IndexHealth:
    behind = indexer.state(tx).behind
    without = tx.one("docs_without_words", first=0, beyond=_FAR)
    problem = f"document {without[0]} has lost its words" if without else indexer.find_drift(tx)
    return IndexHealth(exists=True, behind=behind, problem=problem)
