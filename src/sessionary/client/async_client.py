"""The asynchronous client. The blocking one is generated from this file by `tools/make_sync_client.py`."""

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Concatenate, Literal, ParamSpec, TypeVar

from sessionary.actions import files, usage
from sessionary.actions.sessions import lists, read
from sessionary.actions.sessions.lists import SessionCounts, SessionFilters, SortOrder
from sessionary.client import operations
from sessionary.client.async_changes import AsyncSubscription
from sessionary.client.async_pages import AsyncHitPage, AsyncPage
from sessionary.client.async_paginator import AsyncHitPaginator, AsyncPaginator
from sessionary.client.async_resources import (
    AsyncAccessResource,
    AsyncArrivalsResource,
    AsyncBindingsResource,
    AsyncDeliveriesResource,
    AsyncImportsResource,
    AsyncPolicyResource,
    AsyncProjectsResource,
    AsyncQuestionsResource,
    AsyncSchedulesResource,
    AsyncTokensResource,
    AsyncUpkeepResource,
)
from sessionary.client.async_runtime import (
    AsyncOpenStore,
    finish,
    iterate,
    paginate,
    paginate_hits,
    run_async,
    run_blocking,
    stream_async,
)
from sessionary.client.async_session import AsyncSession
from sessionary.client.async_transaction import AsyncTransaction
from sessionary.client.feed import last_position
from sessionary.client.operations import SessionReference, SessionTarget, source_of
from sessionary.client.values import (
    Content,
    FolderName,
    Handover,
    KindName,
    Reply,
    StoredMessage,
)
from sessionary.errors import BadInput
from sessionary.model.access import BudgetStatus
from sessionary.model.choice import AgentOffer, Persona
from sessionary.model.message import Attachment
from sessionary.model.session import Kind, SessionFolder, SessionHead
from sessionary.model.source import Source
from sessionary.model.usage import UsageTotal
from sessionary.store.database import Tx

if TYPE_CHECKING:
    from sessionary.engine.ports import AgentFunction, Delta
    from sessionary.formats.message_input import File
    from sessionary.web.server import Ready

P = ParamSpec("P")
T = TypeVar("T")


class AsyncSessionary(AsyncOpenStore):
    """A store of sessions, for asynchronous programs.

    `AsyncSessionary(database=None, *, home=None, profile=None, create=True)`: the database is a path, a
    `sqlite:///path` or a `postgresql://…` URL; by default the one of the home directory's settings. Nothing is opened
    before `async with AsyncSessionary() as s:` or `s = await AsyncSessionary.connect()`.
    """

    @property
    def projects(self) -> AsyncProjectsResource:
        """Projects: groups of sessions with a name."""
        return AsyncProjectsResource(self)

    @property
    def schedules(self) -> AsyncSchedulesResource:
        """Tasks that run by themselves."""
        return AsyncSchedulesResource(self)

    @property
    def bindings(self) -> AsyncBindingsResource:
        """Which conversation is on which session."""
        return AsyncBindingsResource(self)

    @property
    def deliveries(self) -> AsyncDeliveriesResource:
        """The outbox."""
        return AsyncDeliveriesResource(self)

    @property
    def arrivals(self) -> AsyncArrivalsResource:
        """The inbox."""
        return AsyncArrivalsResource(self)

    @property
    def questions(self) -> AsyncQuestionsResource:
        """What turns ask people."""
        return AsyncQuestionsResource(self)

    @property
    def policy(self) -> AsyncPolicyResource:
        """Which tool calls need no approval any more."""
        return AsyncPolicyResource(self)

    @property
    def access(self) -> AsyncAccessResource:
        """Who may write to the agent."""
        return AsyncAccessResource(self)

    @property
    def tokens(self) -> AsyncTokensResource:
        """Tokens for programs that use HTTP or MCP."""
        return AsyncTokensResource(self)

    @property
    def imports(self) -> AsyncImportsResource:
        """Records of other tools."""
        return AsyncImportsResource(self)

    @property
    def upkeep(self) -> AsyncUpkeepResource:
        """Backups and checks."""
        return AsyncUpkeepResource(self)

    def session(
        self,
        name: str | Source,
        *,
        agent: str | None = None,
        model: str | None = None,
        persona: str | None = None,
        tools: Sequence[str] | None = None,
    ) -> AsyncSession:
        """Return the conversation with this name, or of this source; its first message creates its session.

        It follows resets: each call finds the session that the conversation is on now. `agent`, `model`, `persona` and
        `tools` are chosen for each session that a message creates here; one that is open keeps its own: use
        `AsyncSession.choose`. Raises `BadInput` for a name that the settings do not have.
        """
        source = source_of(name)
        chosen = operations.chosen_for(
            self.app, source, agent=agent, model=model, persona=persona, tools=tools
        )
        return AsyncSession(self, SessionTarget(source, key=self.app.key(source), chosen=chosen))

    async def find(self, ref: str) -> AsyncSession:
        """Return the session with this id, beginning of an id, or title.

        Raises `NotFound`, or `Ambiguous` if it is the beginning of several ids.
        """
        head = await self.head(ref)
        return AsyncSession(self, SessionTarget(head.source, id=head.id))

    def new_session(
        self,
        source: Source | None = None,
        *,
        title: str | None = None,
        kind: KindName = Kind.CHAT,
        model: str | None = None,
        settings: Mapping[str, object] | None = None,
        system_prompt: str | None = None,
        labels: Sequence[str] = (),
        agent: str | None = None,
        persona: str | None = None,
        tools: Sequence[str] | None = None,
    ) -> AsyncSession:
        """Return a new session, which its first message creates; no name and no source leads to it.

        `model` and `settings` are what its agent uses instead of its own. `agent`, `persona` and `tools` are those of
        the settings of Sessionary; with one of them the model is checked, too, and the log begins with what was chosen.
        """
        source = source or Source(platform="api")
        chosen = operations.chosen_for(self.app, source, agent=agent, persona=persona, tools=tools)
        if chosen and model is not None:
            chosen = operations.chosen_for(self.app, source, **chosen, model=model)
        target = SessionTarget(
            source,
            chosen=chosen,
            title=title,
            kind=Kind(kind),
            model=model,
            settings=settings,
            system_prompt=system_prompt,
            labels=tuple(labels),
        )
        return AsyncSession(self, target)

    async def head(self, ref: str) -> SessionHead:
        """Return the head of the session with this id, beginning of an id, or title."""
        return await self._read(read.find, ref, profile=self.app.profile)

    def sessions(
        self,
        *,
        folder: FolderName = SessionFolder.CHATS,
        source: str | Sequence[str] = (),
        kind: KindName | None = None,
        project: str | None = None,
        model: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        is_open: bool | None = None,
        pinned: bool = False,
        text: str | None = None,
        read_only: bool | None = None,
        label: str | None = None,
        sort: SortOrder | Literal["activity", "created", "title", "cost"] = SortOrder.ACTIVITY,
        limit: int = 50,
        cursor: str | None = None,
    ) -> AsyncPaginator[SessionHead]:
        """Return the sessions of a folder, newest activity first; `limit` is the size of a page."""
        if folder not in {*SessionFolder, "all"}:
            known = ", ".join([*SessionFolder, "all"])
            raise BadInput(f"There is no folder {folder!r}: use one of {known}.")
        filters = SessionFilters(
            folder=SessionFolder.CHATS if folder == "all" else SessionFolder(folder),
            and_automation=folder == "all",
            platforms=(source,) if isinstance(source, str) else tuple(source),
            kind=None if kind is None else Kind(kind),
            project=project,
            model=model,
            since=since,
            until=until,
            is_open=is_open,
            pinned=pinned,
            text=text,
            read_only=read_only,
            label=label,
            order=SortOrder(sort),
        )

        async def fetch(cursor: str | None) -> AsyncPage[SessionHead]:
            found = await self._read(
                lists.list_sessions,
                filters,
                profile=self.app.profile,
                limit=limit,
                cursor=cursor,
            )
            return AsyncPage(found.items, found.next, fetch)

        return paginate(fetch, cursor)

    async def count_sessions(self, *, folder: FolderName = SessionFolder.CHATS) -> SessionCounts:
        """Count the sessions of a folder by source, and those of every folder."""
        folders = (
            (SessionFolder.CHATS, SessionFolder.AUTOMATION)
            if folder == "all"
            else (SessionFolder(folder),)
        )
        return await self._read(lists.count_sessions, folders, profile=self.app.profile)

    def agents(self) -> list[AgentOffer]:
        """Return the configured agents, with the models that a session may choose for each."""
        return list(self.app.catalog.agents.values())

    def personas(self) -> list[Persona]:
        """Return the configured personas."""
        return list(self.app.catalog.personas.values())

    async def models(self) -> list[str]:
        """Return every model that a session of this profile has."""
        return await self._read(lists.list_models, profile=self.app.profile)

    def search(
        self,
        text: str,
        *,
        source: str | Sequence[str] = (),
        session: SessionReference | str | None = None,
        sort: Literal["relevance", "newest"] = "relevance",
        all_hits: bool = False,
        steps: bool = False,
        limit: int = 20,
        cursor: str | None = None,
    ) -> AsyncHitPaginator:
        """Search with the syntax that people type: words, `"phrases"`, `-without`, `source:`, `role:`, `after:` ….

        The best hit of each session, or with `all_hits` every one; with `steps` also in tool output and reasoning.
        """
        session_id = session.id if isinstance(session, SessionReference) else session
        sources = (source,) if isinstance(source, str) else tuple(source)

        # The search takes 40 ms to load, and many programs never search.
        from sessionary.actions.search import search

        async def fetch(cursor: str | None) -> AsyncHitPage:
            app = self.app
            options = search.SearchOptions(
                sort=sort,
                limit=limit,
                cursor=cursor,
                all_hits=all_hits,
                steps=steps,
                session=session_id,
                sources=sources,
            )
            found = await finish(
                app.store.search(
                    search.search,
                    text,
                    profile=app.profile,
                    options=options,
                    now=app.clock.now(),
                )
            )
            return AsyncHitPage(found, fetch)

        return paginate_hits(fetch, cursor)

    async def usage(
        self,
        by: Literal["day", "model", "provider", "source", "project", "session"] = "day",
        *,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[UsageTotal]:
        """Return tokens and cost, summed by day, model, provider, source, project or session."""
        return list(
            await self._read(
                usage.sum_usage, by, profile=self.app.profile, since=since, until=until
            )
        )

    async def budgets(self) -> list[BudgetStatus]:
        """Return the budgets of the settings with what was used of them, those nearest to their limit first.

        One for each person, channel, schedule, session, agent or model is listed once for each that has used something.
        """
        from sessionary.actions import budgets  # few programs have budgets

        app = self.app
        return await self._read(
            budgets.list_status, app.budgets(), profile=app.profile, now=app.clock.now()
        )

    async def upload(self, file: "File") -> Attachment:
        """Store a file for a message that is to follow; return the part to append with it."""
        data, media_type, name = file.read()
        app = self.app
        blob = await finish(
            app.store.write(files.upload, data, profile=app.profile, moment=app.moment())
        )
        return Attachment(blob, media_type, name, len(data))

    def transaction(self) -> AsyncTransaction:
        """Begin a transaction: `async with s.transaction() as t: t.append(chat, "user", "hello")`."""
        return AsyncTransaction(self)

    def subscribe(
        self,
        *,
        after: int | None = None,
        session: SessionReference | str | None = None,
        timeout: float | None = None,
    ) -> AsyncSubscription:
        """Yield what changes, in any process, after a position or from now on, and wait for more.

        Each change has the `position` to go on from, at least once. With `timeout` the iteration ends when nothing has
        changed for that many seconds.
        """
        session_id = session.id if isinstance(session, SessionReference) else session
        return AsyncSubscription(self, after=after, session_id=session_id, timeout=timeout)

    async def position(self) -> int:
        """Return where the feed of changes ends now."""
        return await self._read(last_position)

    def export(
        self,
        sessions: Sequence[SessionReference | str] | None = None,
        *,
        format: Literal["jsonl", "md", "html"] = "jsonl",
        tools: bool = True,
        reasoning: bool = True,
        redact: bool = False,
        mask_secrets: bool = False,
    ) -> AsyncIterator[str]:
        """Return sessions, or all of the profile, as pieces of a file: lossless JSON lines, Markdown, or HTML."""
        app = self.app
        ids = None if sessions is None else [operations.id_of(each) for each in sessions]
        options = operations.export_options(
            tools=tools, reasoning=reasoning, redact=redact, mask_secrets=mask_secrets
        )
        make = operations.exporter(format)
        return iterate(lambda: make(app.store, ids, profile=app.profile, options=options))

    async def export_hermes_state(
        self,
        path: str | os.PathLike[str],
        sessions: Sequence[SessionReference | str] | None = None,
        *,
        overwrite: bool = False,
        tools: bool = True,
        reasoning: bool = True,
        redact: bool = False,
        mask_secrets: bool = False,
    ) -> int:
        """Write sessions, or all of the profile but the trash, as a SQLite file with Hermes' tables; return how many.

        Raises `Conflict` if the file exists, unless `overwrite`.
        """
        app = self.app
        ids = None if sessions is None else [operations.id_of(each) for each in sessions]
        options = operations.export_options(
            tools=tools, reasoning=reasoning, redact=redact, mask_secrets=mask_secrets
        )
        return await run_blocking(
            lambda: operations.write_state(app, path, ids, options=options, overwrite=overwrite)
        )

    async def handover(
        self,
        session: SessionReference | str,
        tool: Literal["claude-code", "codex", "openai", "open-webui", "hermes"],
        *,
        budget: int | None = None,
        tools: bool = True,
        reasoning: bool = True,
        redact: bool = False,
        mask_secrets: bool = False,
    ) -> Handover:
        """Return the newest part of a session as a file that another tool goes on from."""
        app, id = self.app, operations.id_of(session)
        options = operations.export_options(
            tools=tools, reasoning=reasoning, redact=redact, mask_secrets=mask_secrets
        )
        return await run_blocking(
            lambda: operations.make_handover(app, id, tool, budget=budget, options=options)
        )

    async def ask(
        self,
        content: Content,
        *,
        agent: "AgentFunction | str | None" = None,
        session: "SessionReference | Source | str | None" = None,
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> Reply:
        """Ask an agent, in this process, and return its reply; stored like every turn.

        `agent` is the name of one of the settings, or a function that is called with the `TurnRequest`. `session` is a
        session, a name or a source; without one a new session is opened. Raises `AgentFailed` if the turn fails, and
        `RetryLater` if it takes longer than `timeout` seconds.

        A turn that asks people something waits for them, in no process: `reply.state` is `waiting`, and
        `reply.questions` says what it asks. Answer with `client.questions.answer`; a running server goes on with the
        turn then, or `ask` does with the same `idempotency_key`. A text that answers the question can also be asked
        in the session.
        """
        from sessionary.app import ask  # an agent's libraries take 0.3 s to load

        app, target = self.app, self._target_of(session)
        question = operations.question_for(app, target, content, idempotency_key=idempotency_key)
        answer = await run_async(lambda: ask.ask(app, question, agent=agent, seconds=timeout))
        target.id = answer.session_id or target.id
        return operations.reply_of(answer)

    def ask_stream(
        self,
        content: Content,
        *,
        agent: "AgentFunction | str | None" = None,
        session: "SessionReference | Source | str | None" = None,
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> "AsyncGenerator[Delta | StoredMessage | Reply]":
        """Ask an agent as `ask` does, and yield what it writes: `async for event in s.ask_stream("hello"): …`.

        A `Delta` is a piece of text or reasoning, a `StoredMessage` a finished message of the agent or a tool, and the
        last event is the `Reply`, also if the turn waits for people. The question is sent when the first event is
        asked for; closing the generator before its end stops the turn.
        """
        app, target = self.app, self._target_of(session)
        question = operations.question_for(app, target, content, idempotency_key=idempotency_key)
        return stream_async(
            lambda: operations.reply_events(app, target, question, agent=agent, seconds=timeout)
        )

    async def serve(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 8741,
        channels: bool = True,
        exposed: bool = False,
        on_ready: "Callable[[Ready], None] | None" = None,
    ) -> None:
        """Run the server until it is asked to stop: workbench, HTTP, channels, outbox and schedules.

        `on_ready` is called with the address and a login link. A host that other machines can reach needs `exposed`
        and a password.
        """
        from sessionary.app import server  # the web server takes 0.7 s to load

        app = self.app
        address = server.ListenAddress(host, port, exposed)
        adapters = server.channels_of(app) if channels else {}
        await run_async(lambda: server.serve(app, address, adapters=adapters, on_ready=on_ready))

    def _target_of(self, session: "SessionReference | Source | str | None") -> SessionTarget:
        """Return where to ask: in a session, in the conversation with a name or of a source, or in a new session."""
        if session is None:
            return self.new_session(Source("web"))._target
        if isinstance(session, SessionReference):
            return session._target
        return self.session(session)._target

    async def _read(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await finish(self.app.store.read(action, *args, **kwargs))
