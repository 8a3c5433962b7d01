"""The parts of the client that have a subject of their own: `client.projects.list()` and so on."""

import builtins
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, Literal, ParamSpec, TypeVar

from sessionary.actions import access, credentials, inbox, outbox, questions, schedules
from sessionary.actions.schedules import ScheduleSpec
from sessionary.actions.sessions import projects, read, routing
from sessionary.actions.sessions.routing import Binding, NextReset
from sessionary.app.context import user_name
from sessionary.client.async_pages import AsyncPage
from sessionary.client.async_paginator import AsyncPaginator
from sessionary.client.async_runtime import (
    AsyncChangeSignal,
    finish,
    paginate,
    run_async,
    run_blocking,
)
from sessionary.client.operations import (
    POLL_SECONDS,
    SessionReference,
    SessionTarget,
    list_questions,
    question_for,
    read_zone,
    reply_of,
    source_of,
)
from sessionary.client.values import Content, InputMessage, Reply
from sessionary.errors import BadInput, NotFound, RetryLater
from sessionary.model.access import PairingRequest, Permit, Scope, Token
from sessionary.model.policy import StandingApproval
from sessionary.model.question import Always, Answer, Decision, Question
from sessionary.model.schedule import Run, Schedule, Timing
from sessionary.model.session import Project, SessionHead
from sessionary.model.source import Channel, Person, SessionKey, Source
from sessionary.model.turn import Arrival, Delivery, DeliveryState
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals

if TYPE_CHECKING:
    from sessionary.actions.transfer.jsonl_import import ImportReport
    from sessionary.actions.verify import Checked
    from sessionary.app.context import AppContext
    from sessionary.app.imports import Discovery, ImportResult
    from sessionary.client.async_client import AsyncSessionary
    from sessionary.store.backup import BackupFile, BackupReport

P = ParamSpec("P")
T = TypeVar("T")
DeliveryStateName = DeliveryState | Literal["waiting", "sending", "sent", "abandoned", "redirected"]
ScopeName = Scope | Literal["read", "write", "admin"]
AlwaysName = Always | Literal["session", "person"]


class _AsyncResource:
    """A part of the client that belongs to one subject."""

    def __init__(self, client: "AsyncSessionary") -> None:
        self._client = client

    @property
    def _app(self) -> "AppContext":
        return self._client.app

    async def _read(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await finish(self._app.store.read(action, *args, **kwargs))

    async def _write(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await finish(self._app.store.write(action, *args, **kwargs))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._client!r}>"


class AsyncProjectsResource(_AsyncResource):
    """The projects of the profile; a project is named by its name or id."""

    async def list(self) -> list[Project]:
        """Return the projects, with the number of sessions in each."""
        return await self._read(projects.list_projects, profile=self._app.profile)

    async def get(self, name: str) -> Project:
        """Return one project; raise `NotFound` if there is none."""
        return await self._read(projects.get, name, profile=self._app.profile)

    async def add(self, name: str, *, colour: str | None = None) -> Project:
        """Make a project; raise `Conflict` if the name is taken. A colour is written `#336699`."""
        app = self._app
        return await self._write(
            projects.add, name, profile=app.profile, moment=app.moment(), colour=colour
        )

    async def change(
        self, name: str, *, new_name: str | None = None, colour: str | None = None
    ) -> Project:
        """Give a project another name or colour."""
        return await self._write(
            projects.change, name, profile=self._app.profile, new_name=new_name, colour=colour
        )

    async def remove(self, name: str) -> Project:
        """Delete a project; its sessions stay."""
        return await self._write(projects.remove, name, profile=self._app.profile)


class AsyncSchedulesResource(_AsyncResource):
    """Tasks that run by themselves while a server is running; a task is named by its name or id."""

    async def list(self) -> list[Schedule]:
        """Return the scheduled tasks."""
        return await self._read(schedules.list_schedules, profile=self._app.profile)

    async def get(self, name: str) -> Schedule:
        """Return one task; raise `NotFound` if there is none."""
        return await self._read(schedules.get, name, profile=self._app.profile)

    async def runs(self, name: str, *, limit: int = 20) -> builtins.list[Run]:
        """Return a task's latest runs, newest first."""
        return await self._read(schedules.list_runs, name, profile=self._app.profile, limit=limit)

    async def add(
        self,
        name: str,
        timing: str,
        prompt: str,
        *,
        zone: str | None = None,
        deliver_to: str = "local",
        agent: str | None = None,
        grace: timedelta | None = None,
    ) -> Schedule:
        """Make a task: `0 9 * * 1-5`, `@daily`, `every 15m` or `at 2026-12-24T18:00`, and what the agent is asked.

        `deliver_to` is `local`, a platform, or `platform:chat[:thread]`. A run that was missed by more than `grace`
        is skipped.
        """
        app = self._app
        where = app.config.zone if zone is None else read_zone(zone)
        plan = ScheduleSpec(name, Timing(timing, where), prompt, deliver_to, agent)
        if grace is not None:
            plan = ScheduleSpec(name, plan.timing, prompt, deliver_to, agent, None, grace)
        return await self._write(schedules.add, plan, profile=app.profile, moment=app.moment())

    async def pause(self, name: str) -> Schedule:
        """Let a task rest."""
        app = self._app
        return await self._write(
            schedules.pause, name, profile=app.profile, paused=True, now=app.clock.now()
        )

    async def resume(self, name: str) -> Schedule:
        """Let a task go on from now; what it missed is not run."""
        app = self._app
        return await self._write(
            schedules.pause, name, profile=app.profile, paused=False, now=app.clock.now()
        )

    async def run(self, name: str) -> Run:
        """Run a task once, now, in this process, and wait for its end."""
        from sessionary.app.engine import run_schedule  # an agent's libraries take 0.3 s to load

        app = self._app
        return await run_async(lambda: run_schedule(app, name))

    async def remove(self, name: str) -> Schedule:
        """Remove a task; its runs and their sessions stay."""
        app = self._app
        return await self._write(schedules.remove, name, profile=app.profile, now=app.clock.now())


class AsyncBindingsResource(_AsyncResource):
    """Which conversation is on which session."""

    def list(self, *, limit: int = 100, cursor: str | None = None) -> AsyncPaginator[Binding]:
        """Return the keys of conversations in order, each with its session."""

        async def fetch(cursor: str | None) -> AsyncPage[Binding]:
            found = await self._read(
                routing.list_bindings, profile=self._app.profile, limit=limit, cursor=cursor
            )
            return AsyncPage(found.items, found.next, fetch)

        return paginate(fetch, cursor)

    def key(self, name: str | Source) -> str:
        """Return the key of the conversation that a name or a source belongs to."""
        return str(self._app.key(source_of(name)))

    async def next_reset(self, key: str) -> NextReset:
        """Return when a conversation's session will be reset if nobody writes, and how the last one ended."""
        app = self._app
        parsed = SessionKey.parse(key)

        def look(tx: Tx) -> NextReset:
            head = routing.get_current(tx, parsed)
            if head is None:
                raise NotFound(f"No session is bound to {key}.")
            return routing.get_next_reset(tx, head, app.policies, now=app.clock.now())

        return await self._read(look)

    async def switch(self, key: str, session_id: str) -> SessionHead:
        """Point a conversation at another session, which is reopened; the old one ends."""
        app = self._app
        parsed, moment = SessionKey.parse(key), app.moment()

        def act(tx: Tx) -> SessionHead:
            target = read.get_head(tx, session_id, profile=app.profile)
            return routing.switch(tx, parsed, target, moment=moment)

        return await self._write(act)

    async def reset(self, key: str) -> SessionHead | None:
        """End a conversation's session, so that its next message opens a new one; return the old one."""
        app = self._app
        return await self._write(routing.reset, SessionKey.parse(key), moment=app.moment())


class AsyncDeliveriesResource(_AsyncResource):
    """The outbox: what was sent to platforms, what waits, and what could not be delivered."""

    def list(
        self,
        *,
        state: DeliveryStateName | None = None,
        channel: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> AsyncPaginator[Delivery]:
        """Return deliveries, newest first. `channel` is a platform, or `platform:chat[:thread]`."""

        async def fetch(cursor: str | None) -> AsyncPage[Delivery]:
            found = await self._read(
                outbox.list_deliveries,
                profile=self._app.profile,
                limit=limit,
                state=None if state is None else DeliveryState(state),
                channel=channel,
                cursor=cursor,
            )
            return AsyncPage(found.items, found.next, fetch)

        return paginate(fetch, cursor)

    async def get(self, id: str) -> Delivery:
        """Return one delivery, by its id or a beginning that only one id has."""
        return await self._read(outbox.find, id, profile=self._app.profile)

    async def retry(self, id: str) -> Delivery:
        """Send what waits or was abandoned as soon as possible, under the same id."""
        app = self._app
        return await self._write(outbox.retry, id, profile=app.profile, moment=app.moment())

    async def redirect(self, id: str, channel: str | Channel) -> Delivery:
        """Send what waits or was abandoned to another channel of a configured platform; return the new delivery."""
        from sessionary.config.engine import read_engine  # only this call needs it

        app = self._app
        target = channel if isinstance(channel, Channel) else Channel.parse(channel)
        return await self._write(
            outbox.redirect,
            id,
            target,
            profile=app.profile,
            moment=app.moment(),
            platforms=frozenset(read_engine(app.config).channels),
        )

    async def abandon(self, id: str, *, reason: str = outbox.GIVEN_UP) -> Delivery:
        """Give up what waits: it is not sent, and the next for its channel goes on."""
        app = self._app
        return await self._write(
            outbox.abandon_by_owner, id, profile=app.profile, moment=app.moment(), reason=reason
        )


class AsyncArrivalsResource(_AsyncResource):
    """The inbox: messages from people for the agent of a running server."""

    async def send(
        self,
        source: str | Source,
        content: Content,
        *,
        idempotency_key: str | None = None,
    ) -> Arrival:
        """Leave a person's message for the agent; durable when this returns.

        The message id of the source's platform makes it unique, or else the idempotency key.
        """
        where = source_of(source)
        target = SessionTarget(where, key=self._app.key(where))
        return await self._submit(target, content, idempotency_key=idempotency_key)

    async def get(self, id: str) -> Arrival:
        """Return what became of a message: its state, its session, its turn."""
        app = self._app

        def look(tx: Tx) -> Arrival:
            found = arrivals.get(tx, id, profile=app.profile)
            if found is None:
                raise NotFound(f"There is no arrival {id}.")
            return found

        return await self._read(look)

    async def reply(self, id: str, *, timeout: float | None = None) -> Reply:
        """Wait until a message is answered, in whatever process, and return the reply.

        If the turn waits for people, the reply has the state `waiting` and the `questions`: answer them with
        `client.questions.answer`, and call this again. Raises `AgentFailed` if the turn fails, `NotAllowed` if the
        message was refused, and `RetryLater` after `timeout` seconds.
        """
        from sessionary.app import ask  # the engine takes 0.2 s to load

        app = self._app
        deadline = None if timeout is None else time.monotonic() + timeout
        signal = AsyncChangeSignal(app.store)
        try:
            while True:
                answer = await self._read(ask.look_up, id, profile=app.profile)
                if answer is not None:
                    return reply_of(answer)
                left = POLL_SECONDS if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    raise RetryLater("The agent did not answer in time; the message is stored.")
                await signal.wait(min(left, POLL_SECONDS))
        finally:
            signal.close()

    async def rewrite(self, id: str, content: Content) -> Arrival:
        """Replace a message that waits for its turn; only one that was sent to a session by its id."""
        message, _ = InputMessage("user", content).read()
        app = self._app
        return await self._write(
            inbox.rewrite, id, message, profile=app.profile, moment=app.moment()
        )

    async def withdraw(self, id: str) -> Arrival:
        """Take a message back that waits for its turn."""
        return await self._write(inbox.withdraw, id, profile=self._app.profile)

    async def _submit(
        self,
        target: SessionTarget,
        content: Content,
        *,
        idempotency_key: str | None,
    ) -> Arrival:
        from sessionary.app import ask  # the engine takes 0.2 s to load

        app = self._app
        if target.key is None and target.id is None:
            raise BadInput("Append the first message of a new session, or give the session a name.")
        question = question_for(app, target, content, idempotency_key=idempotency_key)
        return await run_async(lambda: ask.leave(app, question))


class AsyncQuestionsResource(_AsyncResource):
    """What turns ask people: may a tool be called, which of these, a text, several values."""

    def list(
        self,
        *,
        state: Literal["open", "all"] = "open",
        session: SessionReference | str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> AsyncPaginator[Question]:
        """Return questions, newest first: those that wait for an answer, or all; of one session, or of all."""
        if state not in ("open", "all"):
            raise BadInput(f"There is no state {state!r}: use open or all.")

        async def fetch(cursor: str | None) -> AsyncPage[Question]:
            found = await self._read(
                list_questions,
                profile=self._app.profile,
                session=session,
                only_open=state == "open",
                limit=limit,
                cursor=cursor,
            )
            return AsyncPage(found.items, found.next, fetch)

        return paginate(fetch, cursor)

    async def get(self, id: str) -> Question:
        """Return one question, by its id, a beginning that only one id has, or its code while it is open."""
        return await self._read(questions.find, id, profile=self._app.profile)

    async def answer(
        self,
        id: str,
        *,
        approve: bool | None = None,
        reason: str | None = None,
        text: str | None = None,
        arguments: Mapping[str, object] | None = None,
        values: Mapping[str, object] | None = None,
        always: AlwaysName | None = None,
        by: Person | None = None,
    ) -> Question:
        """Answer a question as an owner, once; return it as it is then. The turn goes on after its last answer.

        Whether a tool may be called is answered with `approve`; `arguments` are those that it is called with instead,
        and `always` approves its later calls too, in this session or for the person who asked. Any other question is
        answered with a `text`, an option of it for example, or with the `values` of a form. `approve=False` with a
        `reason` denies. `by` is who answers; by default the user whose program this is.

        Raises `NotFound`; `BadInput` if it is no answer to the question; `Conflict` if it was decided before, or if its
        time is over.
        """
        if reason is not None and (approve is not False or text is not None):
            raise BadInput("A `reason` is for a denial: use it with `approve=False`, without text.")
        if always is not None and always not in set(Always):
            raise BadInput(
                f"An approval counts always in a session or for a person, not {always!r}."
            )
        from sessionary.app import ask  # the engine takes 0.2 s to load
        from sessionary.formats.answer_input import read_answer

        app = self._app
        decision = None if approve is None else Decision.APPROVE if approve else Decision.DENY

        def read(question: Question) -> Answer:
            return read_answer(
                question,
                decision=decision,
                text=reason if text is None else text,
                arguments=arguments,
                values=values,
                always=None if always is None else Always(always),
            )

        person = by or Person(user_name())
        return await run_async(lambda: ask.answer_question(app, id, read, by=person))


class AsyncPolicyResource(_AsyncResource):
    """The rules that people have made with their answers: a tool needs no approval in a session, or for a person."""

    def approvals(
        self, *, limit: int = 50, cursor: str | None = None
    ) -> AsyncPaginator[StandingApproval]:
        """Return the rules, newest first."""

        async def fetch(cursor: str | None) -> AsyncPage[StandingApproval]:
            found = await self._read(
                questions.list_approvals, profile=self._app.profile, limit=limit, cursor=cursor
            )
            return AsyncPage(found.items, found.next, fetch)

        return paginate(fetch, cursor)

    async def revoke(self, id: str) -> None:
        """Delete a rule: the tool needs an approval again. Raises `NotFound` if there is none."""
        await self._write(questions.revoke_approval, id, profile=self._app.profile)


class AsyncAccessResource(_AsyncResource):
    """Who may write to the agent, platform by platform."""

    async def list(self) -> list[Permit]:
        """Return everyone who was let in."""
        return await self._read(access.list_permits, profile=self._app.profile)

    async def waiting(self) -> builtins.list[PairingRequest]:
        """Return the strangers who asked to be let in."""
        app = self._app
        return await self._read(access.list_pairings, profile=app.profile, now=app.clock.now())

    async def allow(self, platform: str, person_id: str, *, name: str | None = None) -> Permit:
        """Let a person in."""
        app = self._app
        return await self._write(
            access.permit,
            platform,
            access.check_person(person_id),
            profile=app.profile,
            moment=app.moment(),
            name=name,
        )

    async def approve(self, code: str) -> Permit:
        """Let the person in who was given this code; raise `NotFound` for a wrong one."""
        app = self._app
        found = await self._write(
            access.approve_pairing, code, profile=app.profile, moment=app.moment()
        )
        if found is None:
            raise NotFound("Nobody waits under that code.")
        return found

    async def revoke(self, platform: str, person_id: str) -> None:
        """Let a person in no longer; raise `NotFound` if they were not let in."""
        if not await self._write(access.revoke, platform, person_id, profile=self._app.profile):
            raise NotFound("There is no such permit.")


class AsyncTokensResource(_AsyncResource):
    """The tokens with which programs use the HTTP interface and MCP."""

    async def list(self) -> list[Token]:
        """Return the tokens, revoked ones too; their secrets are not stored."""
        return await self._read(credentials.list_tokens, profile=self._app.profile)

    async def add(self, *, name: str = "", scope: ScopeName = "write") -> tuple[Token, str]:
        """Make a token; return its record, and the secret, which is shown this once."""
        app = self._app
        secret = credentials.make_secret(secrets.token_bytes(credentials.SECRET_BYTES))
        made = await self._write(
            credentials.add_token,
            secret,
            profile=app.profile,
            scope=Scope(scope),
            moment=app.moment(),
            name=name,
        )
        return made, secret

    async def revoke(self, id: str) -> Token:
        """Revoke a token."""
        app = self._app
        return await self._write(
            credentials.revoke_token, id, profile=app.profile, moment=app.moment()
        )


class AsyncImportsResource(_AsyncResource):
    """Records of other tools, and exports of Sessionary."""

    async def discover(self) -> "list[Discovery]":
        """Return the records of other tools that are on this machine, and how many of them are new."""
        from sessionary.app import imports  # the importers take 70 ms to load

        app = self._app
        return await run_blocking(
            lambda: imports.discover(app, imports.this_user(), now=app.clock.now())
        )

    async def run(
        self,
        tools: Sequence[str] = (),
        *,
        path: str | os.PathLike[str] | None = None,
        dry_run: bool = False,
    ) -> "ImportResult":
        """Import the records of these tools, or of all, from where they keep them; or from a path.

        Only what is new is imported. With `dry_run` nothing is changed.
        """
        from sessionary.app import imports  # the importers take 70 ms to load

        app = self._app

        def work() -> "ImportResult":
            if path is None:
                requests = imports.default_requests(imports.this_user(), tools)
            else:
                if len(tools) > 1:
                    raise BadInput("A path belongs to one tool.")
                found = imports.request_for(Path(path), tools[0] if tools else None)
                if found is None:
                    raise BadInput(f"No importer recognises {path}.")
                requests = [found]
            if dry_run:
                return imports.preview(app, requests, is_profile_chosen=True)
            return imports.run(app, requests, is_profile_chosen=True)

        return await run_blocking(work)

    async def jsonl(self, path: str | os.PathLike[str]) -> "ImportReport":
        """Import an export of Sessionary: what is there already is left as it is."""
        from sessionary.actions.transfer import jsonl_import  # loads msgspec

        app = self._app

        def work() -> "ImportReport":
            try:
                with Path(path).open("rb") as file:
                    return jsonl_import.import_jsonl(
                        app.store,
                        jsonl_import.lines_of(file),
                        moment=app.moment(),
                        profile=app.profile,
                    )
            except OSError as error:
                raise BadInput(f"{path} cannot be read ({error.strerror}).") from error

        return await run_blocking(work)


class AsyncUpkeepResource(_AsyncResource):
    """Backups, checks and disk space of the store, with all its profiles."""

    async def backup(
        self, file: str | os.PathLike[str], *, overwrite: bool = False
    ) -> "BackupReport":
        """Write a consistent backup of all profiles while the store is in use, and check it."""
        from sessionary.store import backup  # only this call needs it

        app = self._app
        return await run_blocking(
            lambda: backup.backup(
                app.store, os.fspath(file), clock=app.clock, ids=app.ids, overwrite=overwrite
            )
        )

    async def backups(self, folder: str | os.PathLike[str]) -> "list[BackupFile]":
        """Return the backups in a directory, as `sessionary backup` and the server name them."""
        from sessionary.store import backup  # only this call needs it

        return await run_blocking(lambda: list(backup.list_backups(Path(folder))))

    async def verify(self) -> "Checked":
        """Check every session of every profile; `broken` lists what does not hold."""
        from sessionary.actions import verify  # only this call needs it

        app = self._app
        return await run_blocking(lambda: verify.verify(app.store))

    async def shrink(self) -> None:
        """Return the disk space of deleted content to the operating system."""
        app = self._app
        await run_blocking(app.store.shrink)
