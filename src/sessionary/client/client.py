"""The client: an open store with its configuration and its clock."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, cast

from sessionary import config as configuration
from sessionary.actions.sessions import lists, read
from sessionary.clock import (
    Clock,
    Ids,
    Moment,
    RandomIds,
    ShiftedClock,
    SystemClock,
)
from sessionary.config import Config
from sessionary.config.reset import ResetSettings
from sessionary.errors import BadInput
from sessionary.model.reset import Policies, ResetMode, ResetPolicy
from sessionary.model.session import Kind, SessionFolder, SessionHead
from sessionary.model.source import Isolation, SessionKey, Source, key_for, validate_profile
from sessionary.model.usage import Usage, UsageTotal
from sessionary.store.database import Pending, Store, Tx, running_loop
from sessionary.store.open import open_store, sqlite_path
from sessionary.store.tables import meta

if TYPE_CHECKING:
    from sessionary.actions.search.search import SearchResult
    from sessionary.client.session import Session
    from sessionary.model.session import Project

P = ParamSpec("P")
T = TypeVar("T")


LEAST_SHIFT = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Machine:
    """The clock and the source of ids that a client uses."""

    clock: Clock
    ids: Ids

    @classmethod
    def real(cls) -> Self:
        """Return the system's clock and random ids."""
        return cls(SystemClock(), RandomIds())


class Sessionary:
    """An open store. Under `with` the calls block; under `async with` they are awaited."""

    def __init__(self, store: Store, config: Config, machine: Machine) -> None:
        self.store = store
        self.config = config
        self.profile = validate_profile(config.profile)
        self.policies = _policies(config)
        self.isolation = Isolation(
            config.isolate_people_in_groups, config.isolate_people_in_threads
        )
        self.holder = f"{os.uname().nodename}/{os.getpid()}"
        self.machine = machine
        self._blocking = True

    def session(self, source: Source) -> "Session":
        """Return the conversation that a source belongs to; its first message creates it."""
        if not isinstance(source, Source):
            raise BadInput(
                f"A session is found by a sessionary.Source, not by {source!r}; `find` takes a name."
            )
        return self._session(key=self.key(source), source=source)

    def find(self, ref: str) -> "Session":
        """Return the session with this id, beginning of an id, or title."""
        found = self.reading(read.find, ref, profile=self.profile)
        return self.answer(found.map(lambda head: self._session(id=head.id, source=head.source)))

    def new_session(
        self, source: Source | None = None, *, title: str | None = None, kind: Kind = Kind.CHAT
    ) -> "Session":
        """Return a new session, which its first message creates; no source leads to it."""
        return self._session(source=source or Source(platform="api"), title=title, kind=kind)

    def sessions(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        folder: SessionFolder = SessionFolder.CHATS,
        **filters: Any,
    ) -> lists.SessionPage:
        """Return a page of session heads, newest activity first; `filters` are the fields of `SessionFilters`."""
        if folder not in set(SessionFolder):
            raise BadInput(f"There is no folder {folder!r}: use one of {', '.join(SessionFolder)}.")
        wanted = lists.SessionFilters(folder=SessionFolder(folder), **filters)
        return self.answer(
            self.reading(
                lists.list_sessions, wanted, profile=self.profile, limit=limit, cursor=cursor
            )
        )

    def head(self, ref: str) -> SessionHead:
        """Return the head of the session with this id, beginning of an id, or title."""
        return self.answer(self.reading(read.find, ref, profile=self.profile))

    def usage(
        self, by: str = "day", *, since: datetime | None = None, until: datetime | None = None
    ) -> list[UsageTotal]:
        """Return tokens and cost by day, model, provider, source, project or session."""
        from sessionary.actions import usage  # a list of sessions does not need it

        found = self.reading(usage.sum_usage, by, profile=self.profile, since=since, until=until)
        return self.answer(found.map(list))

    def search(self, text: str, **options: Any) -> "SearchResult":
        """Search with the syntax that people type; `options` are the fields of `SearchOptions`."""
        from sessionary.actions.search import search  # a list of sessions does not need it

        now = self.machine.clock.now()
        found = self.store.search(
            search.search,
            text,
            profile=self.profile,
            options=search.SearchOptions(**options),
            now=now,
        )
        return self.answer(found)

    def projects(self) -> "list[Project]":
        """Return the projects of this profile."""
        from sessionary.actions.sessions import projects  # a list of sessions does not need it

        return self.answer(self.reading(projects.list_projects, profile=self.profile))

    def priced(self, used: Usage | None, *, at: datetime | None) -> Usage | None:
        """Return the usage with its cost, as far as the price is known."""
        if used is None or used.model is None or used.cost_microusd is not None:
            return used
        from sessionary import prices  # loads the table of prices

        return prices.priced(used, at=at or self.machine.clock.now())

    def key(self, source: Source) -> SessionKey:
        """Return the key of the conversation that a source belongs to."""
        return key_for(source, profile=self.profile, isolation=self.isolation)

    def moment(self) -> Moment:
        """Return the current time, with the source of new ids."""
        return Moment(self.machine.clock.now(), self.machine.ids)

    def reading(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        """Run an action that only reads."""
        return self.store.read(action, *args, **kwargs)

    def writing(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        """Run an action in a transaction."""
        return self.store.write(action, *args, **kwargs)

    def answer(self, pending: Pending[T]) -> T:
        """Return the result from a blocking client, and an awaitable from an asynchronous one."""
        return pending.result() if self._blocking else cast(T, pending)

    def _session(self, **facts: Any) -> "Session":
        # A list of sessions does not need the actions of one session.
        from sessionary.client.session import Session

        return Session(self, **facts)

    def close(self) -> None:
        """Finish pending writes and close the store."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Any:
        try:
            running_loop(committed="no")
        except BadInput:
            self.close()
            raise
        self._blocking = False
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def connect(
    database: str | os.PathLike[str] | None = None,
    *,
    home: str | None = None,
    profile: str | None = None,
    create: bool = True,
    machine: Machine | None = None,
) -> Sessionary:
    """Open the store at a path or URL, by default the one in the home directory."""
    given = None if database is None else os.fspath(database)
    config = configuration.load(home=home, database=given, profile=profile)
    here = machine or Machine.real()
    path = sqlite_path(config.database)
    if create and given is None and path is not None and Path(path).parent == config.home:
        config.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = open_store(config.database, create=create, clock=here.clock, ids=here.ids)
    if machine is None:
        here = Machine(_agreed(here.clock, store), here.ids)
    return Sessionary(store, config, here)


def _agreed(clock: Clock, store: Store) -> Clock:
    """The clock by which all machines on one server agree when a lease is over: the server's.

    A machine that is only a little off keeps its own.
    """
    before = clock.now()
    server_time = store.read(meta.server_time).result()
    if server_time is None:
        return clock
    after = clock.now()
    shift = server_time - (before + (after - before) / 2)
    return clock if abs(shift) < LEAST_SHIFT else ShiftedClock(clock, shift)


def _policies(config: Config) -> Policies:
    def made(settings: ResetSettings) -> ResetPolicy:
        return ResetPolicy(
            mode=ResetMode(settings.mode),
            idle=settings.idle,
            daily_at=settings.daily_at,
            zone=config.zone,
            notify=settings.notify,
            notify_exclude=frozenset(settings.notify_exclude),
        )

    return Policies(
        made(config.reset),
        {name: made(each) for name, each in config.reset_by_type.items()},
        {name: made(each) for name, each in config.reset_by_platform.items()},
    )
