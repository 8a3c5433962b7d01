"""The contexts of recent turns, so that the next turn of a session reads only what was added to it."""

import threading
from collections import OrderedDict

from sessionary.model.message import Entry
from sessionary.model.transcript import ContextFold

MAX_BYTES = 32 * 1024 * 1024


class ContextCache:
    """Keeps folded contexts by session, the most recently used ones, up to a number of bytes.

    A session's epoch grows with each turn, in whatever process, and with each change of entries that are stored
    already: an erasure, an import of a purged session. Everything else only appends. So the fold of the turn right
    before, extended by the entries after its last, is the fold of the whole log; any other fold is not used.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._folds: OrderedDict[int, tuple[int, ContextFold]] = OrderedDict()
        self._lock = threading.Lock()
        self.size = 0

    def get(self, session_no: int, *, epoch: int) -> ContextFold | None:
        """Return the fold of the turn before the one with this epoch, or None."""
        with self._lock:
            found = self._folds.get(session_no)
            if found is None or found[0] != epoch - 1:
                return None
            self._folds.move_to_end(session_no)
            return found[1]

    def put(self, session_no: int, fold: ContextFold, *, epoch: int) -> None:
        """Keep the context of the turn with this epoch; it must be committed."""
        with self._lock:
            old = self._folds.pop(session_no, None)
            if old is not None:
                self.size -= old[1].size
            self._folds[session_no] = epoch, fold
            self.size += fold.size
            self._drop_oldest()

    def extend(self, session_no: int, entry: Entry, *, epoch: int) -> None:
        """Add the entry that the turn with this epoch has just committed, if its context is kept."""
        with self._lock:
            found = self._folds.get(session_no)
            if found is None or found[0] != epoch or found[1].last_seq != entry.seq - 1:
                return
            fold = found[1].extended((entry,), last_seq=entry.seq)
            if fold is not None:
                self._folds[session_no] = epoch, fold
                self.size += fold.size - found[1].size
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        while self.size > self._max_bytes:
            _, (_, dropped) = self._folds.popitem(last=False)
            self.size -= dropped.size
