"""The store behind `SessionDB` and `SessionStore`, for programs that call and wait."""

import os
import secrets
from collections.abc import Callable
from datetime import datetime
from typing import Concatenate, ParamSpec, TypeVar

from sessionary import config
from sessionary.clock import Moment, SystemClock
from sessionary.store.database import Tx
from sessionary.store.open import open_store, sqlite_path

P = ParamSpec("P")
T = TypeVar("T")


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
