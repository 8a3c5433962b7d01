"""A store that fails from a chosen moment on, as if its process had crashed there."""

from collections.abc import Callable, Generator
from typing import Any

from sessionary.errors import Damaged
from sessionary.store.database import Listener, Pending, Store


class ProcessCrashed(BaseException):
    """Raised by everything that a crashed process still tries to do."""


class CrashPoint:
    """Counts the steps of a process and crashes it after `last_step` of them."""

    def __init__(self, last_step: int | None = None) -> None:
        self.steps = 0
        self.crashed = False
        self._last = last_step

    def step(self) -> None:
        """Count a step, or crash here."""
        if self.crashed:
            raise ProcessCrashed
        self.steps += 1
        if self._last is not None and self.steps > self._last:
            self.crashed = True
            raise ProcessCrashed


class CrashingStore:
    """A store as one process sees it. A write can crash before its transaction or after its commit."""

    def __init__(self, store: Store, crash: CrashPoint) -> None:
        self.url = store.url
        self._store = store
        self._crash = crash

    @property
    def damage(self) -> Damaged | None:
        """Same as the store's."""
        return self._store.damage

    def note_damage(self, error: Damaged) -> None:
        """Same as the store's."""
        self._store.note_damage(error)

    def write(self, action: Any, /, *args: Any, **kwargs: Any) -> Pending[Any]:
        """Crash before the transaction, or after it and before its answer."""
        self._crash.step()
        return _CrashingPending(self._store.write(action, *args, **kwargs), self._crash)

    def read(self, action: Any, /, *args: Any, **kwargs: Any) -> Pending[Any]:
        """Fails only in a process that has crashed already: a read changes nothing."""
        if self._crash.crashed:
            raise ProcessCrashed
        return self._store.read(action, *args, **kwargs)

    def search(self, action: Any, /, *args: Any, **kwargs: Any) -> Pending[Any]:
        """Same as the store's."""
        if self._crash.crashed:
            raise ProcessCrashed
        return self._store.search(action, *args, **kwargs)

    def catch_up(self, seconds: float | None = None) -> Pending[Any]:
        """Same as the store's."""
        return self._store.catch_up(seconds)

    def rebuild_index(self) -> Pending[None]:
        """Same as the store's."""
        return self._store.rebuild_index()

    def index_in_background(self) -> None:
        """Not needed here."""

    def scrub(self) -> None:
        """Same as the store's."""
        self._store.scrub()

    def shrink(self) -> None:
        """Same as the store's."""
        self._store.shrink()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Same as the store's."""
        return self._store.listen(listener)

    def close(self) -> None:
        """Leave the store open: the test owns it."""


class _CrashingPending(Pending[Any]):
    __slots__ = ("_crash", "_inner")

    def __init__(self, inner: Pending[Any], crash: CrashPoint) -> None:
        super().__init__()
        self._inner = inner
        self._crash = crash

    def result(self, timeout: float | None = None) -> Any:
        value = self._inner.result(timeout)
        self._crash.step()
        return value

    def __await__(self) -> Generator[Any, None, Any]:
        value = yield from self._inner.__await__()
        self._crash.step()
        return value

    @property
    def error(self) -> BaseException | None:
        return ProcessCrashed() if self._crash.crashed else self._inner.error

    async def wait_uncancellable(self) -> BaseException | None:
        error = await self._inner.wait_uncancellable()
        self._crash.step()
        return error
