"""The client: an open store with its configuration and its clock."""

import os
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from sessionary.actions.sessions import lists, read
from sessionary.app.context import AppContext, open_app
from sessionary.clock import (
    Clock,
    Ids,
)
from sessionary.config import Config
from sessionary.errors import BadInput
from sessionary.model.session import Kind, SessionFolder, SessionHead
from sessionary.model.source import Source
from sessionary.model.usage import UsageTotal
from sessionary.store.database import Pending, Store, Tx, running_loop

if TYPE_CHECKING:
    from sessionary.actions.search.search import SearchResult
    from sessionary.client.session import Session
    from sessionary.model.session import Project

P = ParamSpec("P")
T = TypeVar("T")


class Sessionary(AppContext):
    """An open store. Under `with` the calls block; under `async with` they are awaited."""

    def __init__(self, store: Store, config: Config, *, clock: Clock, ids: Ids) -> None:
        super().__init__(store, config, clock=clock, ids=ids)
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

        now = self.clock.now()
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
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> Sessionary:
    """Open the store at a path or URL, by default the one in the home directory."""
    app = open_app(database, home=home, profile=profile, create=create, clock=clock, ids=ids)
    return Sessionary(app.store, app.config, clock=app.clock, ids=app.ids)
