"""What both clients have in common: the open store, and one clear line if it is not open."""

import os
import re
from datetime import datetime

from sessionary.app.context import AppContext, open_app
from sessionary.clock import Moment
from sessionary.errors import BadInput, StoreUnavailable
from sessionary.model.usage import Usage
from sessionary.store.database import Store


class OpenStore:
    """An open store, or one that is still to be opened or was closed.

    `store`, `profile`, `holder`, `moment` and `priced` are for `sessionary.integrations`; they are not part of the
    public interface.
    """

    _app: AppContext | None = None
    _was_closed = False
    _profile: str | None = None

    def __init__(
        self,
        database: str | os.PathLike[str] | None = None,
        *,
        home: str | os.PathLike[str] | None = None,
        profile: str | None = None,
        create: bool = True,
    ) -> None:
        self._database = database
        self._home = home
        self._given_profile = profile
        self._create = create

    @property
    def app(self) -> AppContext:
        """The open store with its configuration; raises `StoreUnavailable` once it is closed."""
        if self._app is None:
            if self._was_closed:
                raise StoreUnavailable("The client is closed; open a new one.")
            raise BadInput(
                "The client is not open: use `async with AsyncSessionary() as s:`, or "
                "`s = await AsyncSessionary.connect()`."
            )
        return self._app

    @property
    def store(self) -> Store:
        """The database."""
        return self.app.store

    @property
    def profile(self) -> str:
        """The profile whose sessions this client reads and writes; also known after it was closed."""
        return self._profile or self.app.profile

    @property
    def holder(self) -> str:
        """Who holds the leases that are taken here."""
        return self.app.holder

    def moment(self) -> Moment:
        """Return the current time, with the source of new ids."""
        return self.app.moment()

    def priced(self, used: Usage | None, *, at: datetime | None = None) -> Usage | None:
        """Return the usage with its cost, as far as the price is known."""
        return self.app.priced(used, at=at)

    def _open(self) -> AppContext:
        return open_app(
            self._database, home=self._home, profile=self._given_profile, create=self._create
        )

    def _take_app(self) -> AppContext | None:
        """Mark the client as closed, and return what must be closed; None the second time."""
        app, self._app = self._app, None
        if app is not None:
            self._profile = app.profile
        self._was_closed = True
        return app

    def __repr__(self) -> str:
        name = type(self).__name__
        if self._app is None:
            return f"<{name}, {'closed' if self._was_closed else 'not open'}>"
        # The password of a database's URL is left out.
        where = re.sub(r"(?<=//)([^/@:]*):[^/@]*@", r"\1:***@", self._app.store.url)
        return f"<{name} {where!r}, profile {self._app.profile!r}>"
