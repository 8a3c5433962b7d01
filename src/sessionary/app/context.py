"""An open store with its configuration, clock and rules: what commands, servers and the public client work with."""

import getpass
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sessionary import config as configuration
from sessionary.clock import Clock, Ids, Moment, RandomIds, ShiftedClock, SystemClock
from sessionary.config import Config
from sessionary.config.reset import ResetSettings
from sessionary.model.choice import ChoiceCatalog
from sessionary.model.reset import Policies, ResetMode, ResetPolicy
from sessionary.model.source import Isolation, SessionKey, Source, key_for, validate_profile
from sessionary.model.usage import Usage
from sessionary.processes import process_name
from sessionary.store.database import Store
from sessionary.store.open import open_store, sqlite_path
from sessionary.store.tables import meta

if TYPE_CHECKING:
    from sessionary.actions.budgets import Budgets
    from sessionary.engine.context import LiveEvent

LEAST_SHIFT = timedelta(seconds=1)


@cache
def load_prices() -> None:
    """Load the table of prices, once: it takes 3 ms of CPU, so nobody does it without need."""
    from sessionary import prices

    prices.load()


class AppContext:
    """An open store, its configuration, and the rules that follow from it. Leaving a `with` block closes the store."""

    def __init__(self, store: Store, config: Config, *, clock: Clock, ids: Ids) -> None:
        self.store = store
        self.config = config
        self.clock = clock
        self.ids = ids
        self.profile = validate_profile(config.profile)
        self.policies = _policies(config)
        self.isolation = Isolation(
            config.settings.isolation.people_in_groups,
            config.settings.isolation.people_in_threads,
        )
        self.holder = process_name()
        # While a server runs on this store in this process: publishes an event to its event streams, from any thread.
        self.live: Callable[[LiveEvent], None] | None = None

    def moment(self) -> Moment:
        """Return the current time, with the source of new ids."""
        return Moment(self.clock.now(), self.ids)

    def key(self, source: Source) -> SessionKey:
        """Return the key of the conversation that a source belongs to."""
        return key_for(source, profile=self.profile, isolation=self.isolation)

    @cached_property
    def catalog(self) -> ChoiceCatalog:
        """What sessions may choose from: the configured agents with their models, and the personas."""
        from sessionary.agents import registry  # few programs choose
        from sessionary.config.engine import read_engine

        return registry.catalog_of(read_engine(self.config))

    def priced(self, used: Usage | None, *, at: datetime | None = None) -> Usage | None:
        """Return the usage with its cost, as far as the price is known."""
        if used is None or used.model is None or used.cost_microusd is not None:
            return used
        from sessionary import prices  # as in `load_prices`

        return prices.priced(used, at=at or self.clock.now())

    def budgets(self) -> "Budgets":
        """Return the budgets of the settings."""
        from sessionary.config.engine import read_engine  # few programs need the engine's settings

        return read_engine(self.config).engine.budgets

    def close(self) -> None:
        """Finish pending writes and close the store."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_app(
    database: str | os.PathLike[str] | None = None,
    *,
    home: str | os.PathLike[str] | None = None,
    profile: str | None = None,
    create: bool = True,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> AppContext:
    """Open the store at a path or URL, by default the one in the home directory."""
    given = None if database is None else os.fspath(database)
    config = configuration.load(
        home=None if home is None else os.fspath(home), database=given, profile=profile
    )
    own_clock, own_ids = clock or SystemClock(), ids or RandomIds()
    path = sqlite_path(config.database)
    if create and given is None and path is not None and Path(path).parent == config.home:
        config.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = open_store(config.database, create=create, clock=own_clock, ids=own_ids)
    if clock is None:
        own_clock = _agreed(own_clock, store)
    return AppContext(store, config, clock=own_clock, ids=own_ids)


def user_name() -> str:
    """Return the name of the user whose program this is, or their number if they have none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


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

    reset = config.settings.reset
    return Policies(
        made(reset),
        {name: made(each) for name, each in reset.type.items()},
        {name: made(each) for name, each in reset.platform.items()},
    )
