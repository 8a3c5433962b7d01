"""A store that can die at a chosen moment, as its process would."""

from collections.abc import Callable, Generator
from typing import Any

from sessionary.errors import Damaged
from sessionary.store.database import Listener, Pending, Store


class Died(BaseException):
    """The process is gone. Nothing that it still does reaches the store."""


class Fate:
    """Counts the steps of a process and ends it at one of them."""

    def __init__(self, last_step: int | None = None) -> None:
        self.steps = 0
        self.dead = False
        self._last = last_step

    def step(self) -> None:
        """One more moment at which a process may die."""
        if self.dead:
            raise Died
        self.steps += 1
        if self._last is not None and self.steps > self._last:
            self.dead = True
            raise Died


class MortalStore:
    """A store as one process sees it. A write has two moments: before it, and after its commit."""

    def __init__(self, store: Store, fate: Fate) -> None:
        self.url = store.url
        self._store = store
        self._fate = fate

    @property
    def damage(self) -> Damaged | None:
        """As the store."""
        return self._store.damage

    def note_damage(self, error: Damaged) -> None:
        """As the store."""
        self._store.note_damage(error)

    def write(self, action: Any, /, *args: Any, **kwargs: Any) -> Pending[Any]:
        """Die before the transaction, or after it and before its answer."""
        self._fate.step()
        return _Mortal(self._store.write(action, *args, **kwargs), self._fate)

    def read(self, action: Any, /, *args: Any, **kwargs: Any) -> Pending[Any]:
        """A read changes nothing: only a dead process cannot do it."""
        if self._fate.dead:
            raise Died
        return self._store.read(action, *args, **kwargs)

    def search(self, action: Any, /, *args: Any, **kwargs: Any) -> Pending[Any]:
        """As a read."""
        if self._fate.dead:
            raise Died
        return self._store.search(action, *args, **kwargs)

    def catch_up(self, seconds: float | None = None) -> Pending[Any]:
        """As a read."""
        return self._store.catch_up(seconds)

    def rebuild_index(self) -> Pending[None]:
        """As a read."""
        return self._store.rebuild_index()

    def index_in_background(self) -> None:
        """Not needed here."""

    def scrub(self) -> None:
        """Do what the store does."""
        self._store.scrub()

    def shrink(self) -> None:
        """Do what the store does."""
        self._store.shrink()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """As the store."""
        return self._store.listen(listener)

    def close(self) -> None:
        """The store belongs to the test."""


class _Mortal(Pending[Any]):
    __slots__ = ("_fate", "_inner")

    def __init__(self, inner: Pending[Any], fate: Fate) -> None:
        super().__init__()
        self._inner = inner
        self._fate = fate

    def result(self, timeout: float | None = None) -> Any:
        value = self._inner.result(timeout)
        self._fate.step()
        return value

    def __await__(self) -> Generator[Any, None, Any]:
        value = yield from self._inner.__await__()
        self._fate.step()
        return value

    @property
    def error(self) -> BaseException | None:
        return Died() if self._fate.dead else self._inner.error

    async def wait_uncancellable(self) -> BaseException | None:
        error = await self._inner.wait_uncancellable()
        self._fate.step()
        return error
