"""How the index is, without changing it."""

import os
from dataclasses import dataclass

import apsw

from hansard.store import indexing
from hansard.store.database import Store
from hansard.store.index_file import IndexFile, IndexLost


@dataclass(frozen=True, slots=True)
class IndexHealth:
    """What someone who looks after a store wants to know of its index."""

    exists: bool
    behind: int = 0
    bytes: int = 0
    problem: str | None = None


def examine(store: Store, path: str | None) -> IndexHealth:
    """Look at every page of the index at a log's path, or at the tables of a server."""
    if path is None:
        return IndexHealth(exists=True, behind=store.read(indexing.state).result().behind)
    index = IndexFile(path)
    if not os.path.exists(index.path):
        return IndexHealth(exists=False)
    size = os.stat(index.path).st_size
    try:
        behind = index.examine()
    except IndexLost:
        return IndexHealth(exists=True, bytes=size, problem="it is not of this store, or too old")
    except apsw.Error as error:
        return IndexHealth(exists=True, bytes=size, problem=" ".join(str(error).split()))
    return IndexHealth(exists=True, behind=behind, bytes=size)
