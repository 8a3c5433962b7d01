"""A store that is away for a while, as a database that is restarted, and loses answers."""

from collections.abc import Callable
from typing import Any

from sessionary.errors import StoreUnavailable
from sessionary.store.database import Listener, Pending, Store


class AwayStore:
    """Does what the store does, unless it is away.

    `away` names the actions that fail meanwhile, all of them if it is None; `loses` those whose next
    commit is made and never answered.
    """

    def __init__(self, store: Store) -> None:
        self.url = store.url
        self._store = store
        self.is_away = False
        self.away: frozenset[Any] | None = None
        self.loses: set[Any] = set()
        self.refused = 0

    def write(self, action: Any, /, *args: Any, **kwargs: Any) -> Pending[Any]:
        """Run the action, or say that the store is away."""
        if action in self.loses:
            self.loses.discard(action)
            return _Lost(self._store.write(action, *args, **kwargs))
        if self._is_refused(action):
            return _failed()
        return self._store.write(action, *args, **kwargs)

    def read(self, action: Any, /, *args: Any, **kwargs: Any) -> Pending[Any]:
        """As a write."""
        return _failed() if self._is_refused(action) else self._store.read(action, *args, **kwargs)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """As the store."""
        return self._store.listen(listener)

    def _is_refused(self, action: Any) -> bool:
        found = self.is_away and (self.away is None or action in self.away)
        self.refused += found
        return found


class _Lost(Pending[Any]):
    """The outcome of a commit whose answer does not come."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Pending[Any]) -> None:
        super().__init__()
        self._inner = inner

    @property
    def error(self) -> BaseException | None:
        return _unknown()

    async def wait_uncancellable(self) -> BaseException | None:
        error = await self._inner.wait_uncancellable()
        return error or _unknown()

    def result(self, timeout: float | None = None) -> Any:
        self._inner.result(timeout)
        raise _unknown()

    def __await__(self) -> Any:
        yield from self._inner.__await__()
        raise _unknown()


def _failed() -> Pending[Any]:
    pending: Pending[Any] = Pending()
    pending.settle(None, StoreUnavailable("the database is restarted"))
    return pending


def _unknown() -> StoreUnavailable:
    return StoreUnavailable("the answer was lost", committed="unknown")
