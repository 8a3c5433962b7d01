"""The store behind `SessionDB` and `SessionStore`, for programs that call and wait."""

import asyncio
import inspect
import logging
import os
import secrets
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from functools import wraps
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar

from sessionary import config
from sessionary.clock import Moment, SystemClock
from sessionary.store.database import Tx
from sessionary.store.open import open_store, sqlite_path

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
_logger = logging.getLogger(__name__)
_logged: set[tuple[str, str]] = set()
_recording: set[str] = set()


def log_unknown(
    call: str, further: Mapping[str, object], *, kept: bool = True, known: Iterable[str] = ()
) -> None:
    """Log keywords that this version of the interface does not know, each once for a call."""
    for name in sorted(further.keys() - set(known)):
        if (call, name) not in _logged:
            _logged.add((call, name))
            what = "its value is kept with the row" if kept else "it is ignored"
            _logger.warning(
                "%s does not know the argument %r of a later version: %s.", call, name, what
            )


def recorded(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[S, P], T]:
    """Log a call that could not record what it was given: programs often catch the error and go on."""
    _recording.add(method.__qualname__)

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            # A plain ValueError is an answer of this interface: a title that is taken, a topic that is bound.
            if type(error) is not ValueError:
                _logger.exception(
                    "%s failed: nothing of this call was recorded", method.__qualname__
                )
            raise

    return call


def takes_any_keyword(kind: type[T]) -> type[T]:
    """Let every public method take keywords that it does not know: none raises a TypeError.

    They are logged once; a method that records gives them to `_keep_unknown` with the id of its session.
    """
    for name, method in [*vars(kind).items()]:
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        signature = inspect.signature(method)
        if not any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values()):
            setattr(kind, name, _tolerant(method, signature))
    return kind


def _tolerant(method: Callable[..., T], signature: inspect.Signature) -> Callable[..., T]:
    known = frozenset(signature.parameters)
    records = method.__qualname__ in _recording and "session_id" in known

    @wraps(method)
    def call(self: KeepsUnknown, /, *args: object, **given: object) -> T:
        if known.issuperset(given):
            return method(self, *args, **given)
        further = {name: given.pop(name) for name in [*given] if name not in known}
        log_unknown(method.__qualname__, further, kept=records)
        answer = method(self, *args, **given)
        if records:
            session_id = signature.bind_partial(self, *args, **given).arguments.get("session_id")
            self._keep_unknown(session_id, further)
        return answer

    return call


class KeepsUnknown(Protocol):
    """What keeps the keywords that a method does not know."""

    def _keep_unknown(self, session_id: object, further: Mapping[str, object]) -> None: ...


class Awaiting(Generic[S]):
    """What the asynchronous classes are made of: the blocking object, and its methods in a thread each."""

    def __init__(self, sync: S) -> None:
        self.sync = sync


def awaited(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[Awaiting[S], P], Coroutine[None, None, T]]:
    """The same call to await; it runs in a thread, so the event loop goes on."""

    @wraps(method)
    async def call(self: Awaiting[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, self.sync, *args, **kwargs)

    return call


class HermesIds:
    """Session ids in Hermes' form: the time in UTC, then random digits."""

    def new(self, at: datetime) -> str:
        return f"{at:%Y%m%d_%H%M%S}_{secrets.token_hex(4)}"


class HermesStore:
    """A store with the clock, the ids and the profile that go with it."""

    def __init__(self, database: str) -> None:
        settings = config.load(database=database)
        path = sqlite_path(database)
        if path is not None and not path.startswith(":"):
            folder = os.path.dirname(os.path.abspath(path))
            os.makedirs(folder, mode=0o700, exist_ok=True)
        self._clock = SystemClock()
        self._ids = HermesIds()
        self.profile = settings.profile
        self.zone = settings.zone
        self.store = open_store(database, create=True, clock=self._clock, ids=self._ids)

    def moment(self) -> Moment:
        """Now, and where fresh ids come from."""
        return Moment(self._clock.now(), self._ids)

    def read(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run an action that only reads, and wait for its answer."""
        return self.store.read(action, *args, **kwargs).result()

    def write(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run an action in a transaction, and wait until it is durable."""
        return self.store.write(action, *args, **kwargs).result()

    def close(self) -> None:
        """Close the store; closing twice is fine."""
        self.store.close()


def default_database() -> str:
    """The database that the environment or sessionary.toml names, or the default one."""
    return config.load().database


def database_of(path: str | os.PathLike[str]) -> str:
    """The address of a database: a file's path, or a URL as it stands."""
    text = os.fspath(path)
    return text if "://" in text or text.startswith("sqlite:") else f"sqlite:///{text}"
