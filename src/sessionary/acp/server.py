"""Answers the requests of an editor: sessions are listed, opened, forked and prompted; turns run in this process.

A session that the editor begins is stored with its first prompt; until then only its id is reserved, in this process.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from acp.agent.router import build_agent_router
from acp.connection import Connection
from acp.exceptions import RequestError
from acp.meta import AGENT_METHODS
from msgspec import Struct
from msgspec.structs import replace
from pydantic import ValidationError

from acp import schema
from sessionary.acp import choices
from sessionary.acp.questions import EditorRefused
from sessionary.acp.stdio import StdioTransport
from sessionary.acp.view import PromptResult, SessionView
from sessionary.actions import files as file_actions
from sessionary.actions import inbox, turns
from sessionary.actions.question_arrivals import find_turn_id
from sessionary.actions.sessions import choice, edit, lists, log, read
from sessionary.clock import Moment
from sessionary.engine import commands, intake
from sessionary.engine.context import EngineContext
from sessionary.engine.engine import Engine
from sessionary.engine.intake import Submission, SubmissionResult
from sessionary.engine.turn import loop
from sessionary.errors import BadInput, Conflict, NotFound, SessionaryError
from sessionary.formats.acp_updates import read_blocks
from sessionary.formats.coerce import Json
from sessionary.model.choice import ChoiceChange, chosen_in
from sessionary.model.message import Message, Role
from sessionary.model.session import Opening, SessionFolder, SessionHead
from sessionary.model.source import WEB, Person, SessionKey, Source, at_session
from sessionary.model.terminal import one_line
from sessionary.model.turn import ArrivalState, TurnState
from sessionary.model.usage import UsageTotal
from sessionary.model.view import time_text
from sessionary.store.database import Tx
from sessionary.store.tables import arrivals, sessions

logger = logging.getLogger(__name__)

VERSION = 1
PAGE_SIZE = 50
STOPPED = "stopped by you"
# Editors reserve a session whenever a panel is opened.
MOST_RESERVED = 1_000
# How long a turn may take to stop before its session is closed.
STOP_SECONDS = 10.0
NOT_FOUND = -32002
REFUSED = -32600
INVALID = -32602
FAILED = -32603
_LONGEST_NAME = 100
# How providers say that an answer was cut off, or refused.
_CUT_OFF = frozenset({"length", "max_tokens", "max_output_tokens", "model_context_window_exceeded"})
_REFUSALS = frozenset({"refusal", "content_filter", "safety"})


class _StoredPrompt(Struct, frozen=True):
    """What became of a prompt: where it is stored, and the message that the agent answers, if it answers one."""

    submitted: SubmissionResult
    head: SessionHead
    arrival_id: str | None
    is_copy: bool = False


@dataclass(slots=True)
class _OpenSession:
    """A session that the editor has open. Without a view it is not stored yet, or it is read-only."""

    id: str
    directory: str
    # The session of the record, if there is one: of a read-only one that was continued, the copy.
    session_id: str | None = None
    view: SessionView | None = None
    # What was chosen for a session that is not stored yet, or for the copy of a read-only one.
    chosen: dict[str, Any] = field(default_factory=dict)
    # The MCP servers that the editor has for it.
    servers: Sequence[Mapping[str, Any]] = ()
    # Prompts that are being stored, and whether the editor has cancelled them meanwhile.
    cancellations: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class SessionAgents(Protocol):
    """The agents, which can use the MCP servers that an editor has for a session."""

    def takes_servers(self, name: str | None, /) -> bool:
        """Whether an agent can use MCP servers besides those of its settings."""

    async def set_servers(self, session_id: str, servers: Sequence[Mapping[str, Any]], /) -> None:
        """Let agents use these in the turns of a session that this process runs, and no others."""


class EditorServer:
    """One editor, connected over standard input and output; it implements the agent of the protocol's library."""

    def __init__(
        self,
        engine: Engine,
        agents: SessionAgents,
        *,
        person: str,
        directory: str,
        version: str,
        agent: str | None = None,
    ) -> None:
        """`directory` is told for sessions that have none; `agent` answers in the sessions that the editor begins."""
        self._engine = engine
        self._context = engine.context
        self._agents = agents
        self._person = Person(person)
        self._directory = directory
        self._version = version
        self._agent = agent
        self._open: dict[str, _OpenSession] = {}
        self._keys: set[SessionKey] = set()
        self._has_started = False
        self._connection: Connection | None = None
        self._client = "editor"
        self._tasks: set[asyncio.Task[None]] = set()
        self.can_elicit = False

    async def serve(self, transport: StdioTransport) -> None:
        """Answer until the editor has gone. What still runs is left to other processes when the engine is stopped."""
        # The library's routes lack the newest methods; those that it calls unstable are part of the protocol by now.
        router = build_agent_router(self, use_unstable_protocol=True)  # type: ignore[arg-type]
        router.route_request(
            AGENT_METHODS["session_delete"], schema.DeleteSessionRequest, self, "delete_session"
        )

        async def handle(method: str, params: Any, is_notification: bool) -> Any:  # noqa: FBT001  # the library's
            if isinstance(params, dict):
                params.pop(
                    "_meta", None
                )  # the library would take its names for those of parameters
            try:
                return await router(method, params, is_notification)
            except ValidationError as error:
                raise RequestError(INVALID, _invalid(error)) from error
            except SessionaryError as error:
                raise _request_error(error) from error
            except RequestError as error:
                if not is_notification:
                    raise
                logger.info("a notification of the editor was passed over: %s", error)

        self._connection = Connection(handle, transport, listening=False)
        try:
            await self._connection.main_loop()
        finally:
            # The editor, which still waits for answers, has gone. The turns go on until the engine is stopped.
            for each in list(self._open.values()):
                if each.view is not None:
                    await each.view.close()
            await asyncio.shield(self._connection.close())

    # The editor, as `SessionView` and `QuestionAsker` see it.

    async def request(self, method: str, params: Json) -> Any:
        """Send a request to the editor and return its result."""
        assert self._connection is not None
        try:
            return await self._connection.send_request(method, params)
        except RequestError as error:
            raise EditorRefused(f"{method}: {error}") from error

    async def notify(self, method: str, params: Json) -> None:
        """Send a notification to the editor."""
        assert self._connection is not None
        await self._connection.send_notification(method, params)

    async def update(self, session_id: str, update: Json) -> None:
        """Show something in a session of the editor."""
        await self.notify("session/update", {"sessionId": session_id, "update": update})

    # What the editor asks for.

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: Any = None,
        client_info: Any = None,
        **_: Any,
    ) -> Json:
        """Say what this server can do."""
        elicitation = getattr(client_capabilities, "elicitation", None)
        self.can_elicit = getattr(elicitation, "form", None) is not None
        if client_info is not None:
            self._client = one_line(client_info.title or client_info.name, _LONGEST_NAME)
        return {
            "protocolVersion": min(max(protocol_version, 1), VERSION),
            "agentInfo": {"name": "sessionary", "title": "Sessionary", "version": self._version},
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": False},
                "sessionCapabilities": {
                    "list": {},
                    "fork": {},
                    "resume": {},
                    "close": {},
                    "delete": {},
                },
            },
            "authMethods": [],
        }

    async def authenticate(self, method_id: str, **_: Any) -> Json:
        """Nobody needs to log in: the user who runs this program may read the store."""
        logger.info("the editor authenticates by %s; nothing is needed", one_line(method_id, 60))
        return {}

    async def new_session(self, cwd: str, mcp_servers: Any = None, **_: Any) -> Json:
        """Reserve the id of a session; its first prompt makes it."""
        _check_directory(cwd)
        opened = _OpenSession(self._context.moment().new_id(), cwd)
        if self._agent is not None and self._agent != choices.current_agent(
            self._context.catalog, {}
        ):
            opened.chosen["agent"] = self._agent
        self._reserve(opened)
        await self._take_servers(opened, mcp_servers)
        return {"sessionId": opened.id, **self._describe_choices(opened.chosen)}

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> Json:
        """List the chats of the record, newest activity first."""
        if cwd is not None:
            _check_directory(cwd)
        places, after = await self._context.store.read(
            lists.list_by_directory,
            cwd,
            profile=self._context.profile,
            limit=PAGE_SIZE,
            cursor=cursor or None,
        )
        found: Json = {
            "sessions": [
                {
                    "sessionId": each.head.id,
                    "cwd": each.directory or self._directory,
                    "title": each.head.shown_title,
                    "updatedAt": time_text(each.head.last_active_at),
                }
                for each in places
            ]
        }
        return found if after is None else {**found, "nextCursor": after}

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Any = None, **_: Any
    ) -> Json:
        """Open a session and show it from its beginning."""
        opened = await self._attach(session_id, cwd)
        if opened.view is not None:
            await opened.view.replay()
        await self._take_servers(opened, mcp_servers)
        return await self._choices_of(opened)

    async def resume_session(
        self, session_id: str, cwd: str, mcp_servers: Any = None, **_: Any
    ) -> Json:
        """Open a session of which the editor knows what was said."""
        opened = await self._attach(session_id, cwd)
        await self._take_servers(opened, mcp_servers)
        if opened.view is not None:
            opened.view.wake()  # an open question is asked at once
        return await self._choices_of(opened)

    async def fork_session(
        self, session_id: str, cwd: str, mcp_servers: Any = None, **_: Any
    ) -> Json:
        """Open a new session with the history of another."""
        _check_directory(cwd)
        before = self._open.get(session_id)
        if before is not None and before.session_id is None:  # it has no history yet
            opened = _OpenSession(self._context.moment().new_id(), cwd, chosen=dict(before.chosen))
            self._reserve(opened)
        else:
            id = session_id if before is None else before.session_id or session_id
            head = await self._context.store.write(
                edit.fork,
                id,
                profile=self._context.profile,
                moment=self._context.moment(),
                workspace=self._workspace(cwd),
            )
            opened = await self._attach(head.id, cwd)
        made: Json = {"sessionId": opened.id, **await self._choices_of(opened)}
        # Last: what it begins to tell comes after the answer, from which the editor learns the id.
        await self._take_servers(opened, mcp_servers)
        return made

    async def close_session(self, session_id: str, **_: Any) -> Json:
        """Stop what the editor's prompts began in a session, and forget that it is open."""
        opened = self._open.get(session_id)
        if opened is not None:
            await self._end(opened)
        return {}

    async def delete_session(self, session_id: str, **_: Any) -> Json:
        """Move a session to the trash."""
        opened = self._open.get(session_id)
        id = session_id if opened is None else opened.session_id
        if opened is not None:
            await self._end(opened)
        if id is not None:
            await self._context.store.write(
                edit.trash, id, profile=self._context.profile, moment=self._context.moment()
            )
        return {}

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> Json:
        """Choose the agent of a session."""
        await self._choose(session_id, choices.read_choice(choices.AGENT, mode_id))
        return {}

    async def set_config_option(
        self, config_id: str, session_id: str, value: object, **_: Any
    ) -> Json:
        """Choose the agent, model or persona of a session."""
        chosen = await self._choose(session_id, choices.read_choice(config_id, value))
        return {"configOptions": choices.describe_options(self._context.catalog, chosen)}

    async def prompt(self, session_id: str, prompt: Sequence[Any], **_: Any) -> Json:
        """Store a prompt, let the agent answer it, and return when its turn has ended."""
        blocks = [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in prompt]
        parts, files = read_blocks(blocks)
        if not parts:
            raise BadInput("The prompt is empty; nothing was sent.")
        message = Message(Role.USER, parts)
        opened = self._open.get(session_id) or await self._attach(session_id, self._directory)
        call = commands.find(message.text)
        if call is not None and (
            call.name in choices.NOT_HERE or (opened.session_id is None and opened.view is None)
        ):
            await self._answer_here(opened, call)
            return {"stopReason": "end_turn"}
        cancellations = opened.cancellations
        async with opened.lock:
            accepted, done = await self._submit(opened, message, files)
        view = opened.view
        assert view is not None
        received = accepted.submitted.received
        if accepted.is_copy:
            await view.tell(
                f"This session cannot be changed: it goes on in a copy, {accepted.head.id}.\n\n"
            )
        if received.answer is not None:
            await view.tell(received.answer)
        if received.compaction is not None:
            asked = received.compaction
            await view.tell(
                await self._engine.compactor.compact(asked.session_id, focus=asked.focus)
            )
        if done is None:
            view.wake()
            return {"stopReason": "end_turn"}
        if opened.cancellations != cancellations:
            await self._cancel(opened)
        try:
            result = await done
        except asyncio.CancelledError:
            if not done.cancelled():
                raise
            return {"stopReason": "cancelled"}  # the editor has closed the session
        return _describe_result(result, accepted.head.usage)

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Stop the turns of the editor's prompts in a session."""
        opened = self._open.get(session_id)
        if opened is not None:
            opened.cancellations += 1
            await self._cancel(opened)

    # How it is done.

    def _reserve(self, opened: _OpenSession) -> None:
        """Note a session that has no prompt yet; of too many, the oldest is forgotten."""
        self._open[opened.id] = opened
        reserved = [each.id for each in self._open.values() if each.session_id is None]
        for id in reserved[:-MOST_RESERVED]:
            del self._open[id]

    async def _attach(self, session_id: str, directory: str) -> _OpenSession:
        """Return an open session; open it if it is in the record."""
        known = self._open.get(session_id)
        if known is not None:
            return known
        context = self._context
        head = await context.store.read(read.get_head, session_id, profile=context.profile)
        if head.folder is SessionFolder.TRASH:
            raise Conflict(f"Session {head.id} is in the trash. Restore it to open it.")
        await self._start_engine()
        known = self._open.setdefault(session_id, _OpenSession(session_id, directory))
        if known.view is None:
            self._make_view(known, head)
            if await context.store.read(turns.is_dead, head.no, moment=context.moment()):
                self._begin(self._engine.sweeper.sweep())
        return known

    async def _start_engine(self) -> None:
        """Start the engine, which takes no work of conversations that are not open here."""
        if not self._has_started:
            self._has_started = True
            await self._engine.start(only=self._keys, hands_over=True)

    def _make_view(self, opened: _OpenSession, head: SessionHead) -> SessionView:
        """Show a stored session in the editor from now on, and run its turns here."""
        opened.session_id = head.id
        opened.view = SessionView(
            self._context,
            self,
            head,
            shown_as=opened.id,
            directory=opened.directory,
            person=self._person,
        )
        self._keys.add(self._context.key(at_session(head.id)))
        self._engine.turns.wake()
        return opened.view

    async def _end(self, opened: _OpenSession) -> None:
        """Stop what the editor's prompts began, and forget that the session is open."""
        await self._cancel(opened)
        if opened.view is not None:
            await opened.view.settled(seconds=STOP_SECONDS)
        self._open.pop(opened.id, None)
        await self._close_view(opened)

    async def _close_view(self, opened: _OpenSession) -> None:
        if opened.view is not None:
            view, opened.view = opened.view, None
            await view.close()
        if opened.servers:
            await self._agents.set_servers(opened.session_id or opened.id, ())
        if opened.session_id is not None:
            self._keys.discard(self._context.key(at_session(opened.session_id)))

    async def _submit(
        self, opened: _OpenSession, message: Message, files: tuple[bytes, ...]
    ) -> "tuple[_StoredPrompt, asyncio.Future[PromptResult] | None]":
        """Store a prompt, and begin its turn; return what will be its result, if the agent answers it."""
        context, before = self._context, opened.view
        await self._start_engine()
        done: asyncio.Future[PromptResult] | None = None

        def take(accepted: _StoredPrompt) -> None:
            """Show the session before the turn runs, so that nothing of it is missed."""
            nonlocal done
            view = opened.view
            if view is None or accepted.is_copy:
                opened.chosen = {}
                # What the session has up to the prompt is shown already: it is new, or a copy of what is.
                shown = accepted.submitted.seq or accepted.head.last_seq
                view = self._make_view(opened, replace(accepted.head, last_seq=shown))
            if accepted.arrival_id is not None:
                done = view.add_prompt(accepted.arrival_id)
            if accepted.submitted.received.compaction is None:
                self._engine.run_submitted(accepted.submitted)

        # Else the prompt could be shown, as somebody else's, before it is known to be the editor's.
        async with nullcontext() if before is None else before.lock:
            write = context.store.write(
                accept,
                context,
                message,
                files,
                session_id=opened.session_id,
                opening=self._opening(opened),
                id=opened.id,
                moment=context.moment(),
            )
            accepted = await write.handoff(take)
        if before is not None and before is not opened.view:
            await before.close()
            if opened.servers:  # of the copy, from its next turn on
                await self._agents.set_servers(accepted.head.id, opened.servers)
        return accepted, done

    def _opening(self, opened: _OpenSession) -> Opening:
        return Opening(
            self._context.profile,
            Source(WEB, extra={"editor": self._client}),
            workspace=self._workspace(opened.directory),
            chosen=ChoiceChange(opened.chosen, self._person) if opened.chosen else None,
        )

    def _workspace(self, directory: str) -> Mapping[str, Any]:
        """What is stored of the directory that the editor has opened a session for: agents may work there."""
        return {"path": directory, "editor": self._client}

    async def _cancel(self, opened: _OpenSession) -> None:
        """Stop the turns of the editor's prompts, and take back those that wait for one."""
        view, context = opened.view, self._context
        if view is None or not view.waiting_prompts:
            return
        await context.store.write(
            cancel_prompts,
            context,
            view.session_id,
            view.waiting_prompts,
            moment=context.moment(),
        )
        view.wake()

    async def _choose(self, session_id: str, change: dict[str, Any]) -> Mapping[str, Any]:
        """Change what is chosen for a session; return all that is."""
        opened = self._open.get(session_id) or await self._attach(session_id, self._directory)
        context, catalog = self._context, self._context.catalog
        async with opened.lock:
            head = None
            if opened.session_id is not None:
                head = await context.store.read(
                    read.get_head, opened.session_id, profile=context.profile
                )
            if head is None or head.read_only:
                changed = catalog.check(opened.chosen, change, platform=WEB)
                opened.chosen |= changed
                own = {} if head is None else chosen_in(head.settings)
                chosen: Mapping[str, Any] = {**own, **opened.chosen}
            else:
                write = partial(
                    choice.choose,
                    by=self._person,
                    moment=context.moment(),
                    catalog=catalog,
                )
                head = await context.store.write(write, head, change)
                chosen = chosen_in(head.settings)
        if opened.view is not None:
            opened.view.wake()  # it tells what was chosen
        elif "agent" in change:
            self._begin(self._show_choices(opened))
        return chosen

    async def _show_choices(self, opened: _OpenSession) -> None:
        catalog = self._context.catalog
        options = choices.describe_options(catalog, opened.chosen)
        update = {"sessionUpdate": "config_option_update", "configOptions": options}
        await self.update(opened.id, update)

    async def _choices_of(self, opened: _OpenSession) -> Json:
        if opened.session_id is None:
            return self._describe_choices(opened.chosen)
        head = await self._context.store.read(
            read.get_head, opened.session_id, profile=self._context.profile
        )
        return self._describe_choices({**chosen_in(head.settings), **opened.chosen})

    def _describe_choices(self, chosen: Mapping[str, Any]) -> Json:
        catalog = self._context.catalog
        options = choices.describe_options(catalog, chosen)
        modes = choices.describe_modes(catalog, chosen)
        found: Json = {} if not options else {"configOptions": options}
        return found if modes is None else {**found, "modes": modes}

    async def _answer_here(self, opened: _OpenSession, call: commands.CommandCall) -> None:
        """Answer a command that has no session to work on, or no meaning in an editor."""
        text = choices.NOT_HERE.get(call.name)
        if (
            text is None
            and call.words
            and call.name
            in (
                choices.AGENT,
                choices.MODEL,
                choices.PERSONA,
            )
        ):
            word = None if call.words in ("default", "none") else call.words
            try:
                changed = self._context.catalog.check(
                    opened.chosen, {call.name: word}, platform=WEB
                )
                opened.chosen |= changed
                await self._show_choices(opened)
                text = f"This session uses {call.name} {changed[call.name] or call.words}."
            except BadInput as error:
                text = str(error)
        text = text or "There is no session here yet; write something first."
        update = {
            "sessionUpdate": "agent_message_chunk",
            "content": {"type": "text", "text": text},
        }
        await self.update(opened.id, update)

    async def _take_servers(self, opened: _OpenSession, servers: Any) -> None:
        """Let the agent use the MCP servers of the editor; after the answer, tell what the session offers."""
        usable = [found for each in servers or () if (found := _read_server(each)) is not None]
        unused = [each.name for each in servers or () if _read_server(each) is None]
        id = opened.session_id or opened.id
        await self._agents.set_servers(id, usable)
        opened.servers = usable
        chosen = opened.chosen
        if opened.session_id is not None:
            head = await self._context.store.read(
                read.get_head, opened.session_id, profile=self._context.profile
            )
            chosen = {**chosen_in(head.settings), **chosen}
        agent = choices.current_agent(self._context.catalog, chosen)
        if not self._agents.takes_servers(agent):
            unused = [each.name for each in servers or ()]
        self._begin(self._tell_offers(opened, unused, agent=agent or ""))

    async def _tell_offers(
        self, opened: _OpenSession, unused: Sequence[str], *, agent: str
    ) -> None:
        commands_here = choices.list_commands()
        await self.update(
            opened.id,
            {"sessionUpdate": "available_commands_update", "availableCommands": commands_here},
        )
        if unused:
            logger.warning(
                "the agent %s does not use the MCP servers of the editor: %s",
                agent,
                ", ".join(one_line(name, 60) for name in unused),
            )

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if task.cancelled() or task.exception() is None:
            return
        if not isinstance(task.exception(), ConnectionError):
            logger.error("something could not be shown", exc_info=task.exception())


# Transactions.


def accept(
    tx: Tx,
    context: EngineContext,
    message: Message,
    files: Sequence[bytes],
    *,
    session_id: str | None,
    opening: Opening,
    id: str,
    moment: Moment,
) -> _StoredPrompt:
    """Store a prompt in a session, in a new one with the promised id, or in a copy of a read-only one."""
    profile = context.profile
    file_actions.keep_files(tx, message, files, profile=profile, moment=moment)
    submission = Submission(message)
    is_copy = False
    if session_id is None:
        submitted = intake.submit_to_new_session(
            tx, context, opening, submission, moment=moment, id=id
        )
        head = read.get_head(tx, id, profile=profile)
        return _StoredPrompt(submitted, head, submitted.received.arrival_id)
    before = log.lock_session(tx, session_id, profile=profile)
    head = before
    if head.read_only:
        is_copy = True
        head = edit.fork(
            tx, session_id, profile=profile, moment=moment, workspace=opening.workspace
        )
        if opening.chosen is not None:
            head = choice.choose(
                tx,
                head,
                opening.chosen.changed,
                by=opening.chosen.by,
                moment=moment,
                catalog=context.catalog,
            )
    elif not head.is_open and head.folder is not SessionFolder.TRASH:
        head = edit.reopen(tx, session_id, profile=profile)
    submitted = intake.submit_to_session(tx, context, head.id, submission, moment=moment)
    received = submitted.received
    arrival_id = received.arrival_id
    if received.answer is not None and arrival_id is not None:
        arrival = arrivals.get(tx, arrival_id, profile=profile)
        assert arrival is not None
        intake.end_stopped(tx, context, before, reason=STOPPED, moment=moment)
        arrival_id = intake.asked_again(tx, arrival)
    return _StoredPrompt(submitted, sessions.get_by_no(tx, head.no), arrival_id, is_copy)


def cancel_prompts(
    tx: Tx,
    context: EngineContext,
    session_id: str,
    arrival_ids: Sequence[str],
    *,
    moment: Moment,
) -> None:
    """Take back the prompts that wait for a turn, and stop the turn of the others."""
    head = log.lock_session(tx, session_id, profile=context.profile)
    for id in arrival_ids:
        arrival = arrivals.get(tx, id, profile=context.profile)
        if arrival is None:
            continue
        if arrival.state is ArrivalState.WAITING:
            inbox.withdraw(tx, id, profile=context.profile)
            continue
        turn_id = find_turn_id(tx, arrival, profile=context.profile)
        if turn_id is not None and turn_id == head.running_turn:
            loop.stop_turn(tx, head.no, reason=STOPPED, context=context, moment=moment)


# Answers.


def _describe_result(result: PromptResult, before: UsageTotal) -> Json:
    """Return the response to a prompt; raise `RequestError` for a turn that has failed."""
    is_stopped = result.was_stopped and result.state == TurnState.INTERRUPTED
    if is_stopped or result.reason == inbox.TAKEN_BACK:
        return {"stopReason": "cancelled"}
    if result.state != TurnState.DONE:
        reason = result.reason or "no reason was given"
        what = {
            str(TurnState.FAILED): "The turn failed",
            str(TurnState.INTERRUPTED): "The turn was interrupted",
        }.get(result.state, "The prompt was refused")
        retry = "" if result.state == ArrivalState.REFUSED else " Send /retry to ask again."
        raise RequestError(FAILED, f"{what}: {reason.rstrip('.')}.{retry}")
    stop = "end_turn"
    if result.finish_reason in _CUT_OFF:
        stop = "max_tokens"
    elif result.finish_reason in _REFUSALS:
        stop = "refusal"
    used = result.usage
    given, made = used.input_tokens - before.input_tokens, used.output_tokens - before.output_tokens
    read_tokens = used.cache_read_tokens - before.cache_read_tokens
    written = used.cache_write_tokens - before.cache_write_tokens
    usage = {
        "totalTokens": given + made + read_tokens + written,
        "inputTokens": given,
        "outputTokens": made,
        "thoughtTokens": used.reasoning_tokens - before.reasoning_tokens,
        "cachedReadTokens": read_tokens,
        "cachedWriteTokens": written,
    }
    return {"stopReason": stop, "usage": usage} if any(usage.values()) else {"stopReason": stop}


def _request_error(error: SessionaryError) -> RequestError:
    """Return the error of the protocol for one of ours; its line is for people."""
    code = FAILED
    if isinstance(error, NotFound):
        code = NOT_FOUND
    elif isinstance(error, BadInput):
        code = INVALID
    elif isinstance(error, Conflict):
        code = REFUSED
    return RequestError(code, str(error), {"kind": error.kind})


def _invalid(error: ValidationError) -> str:
    """Return one line about parameters that do not fit."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(each) for each in first["loc"]) or "the parameters"
    return one_line(f"Invalid parameters: {where}: {first['msg']}. Nothing was done.", 500)


def _read_server(server: Any) -> dict[str, Any] | None:
    """Return an MCP server as the table of an agent has it; None for one that no agent can reach."""
    match server:
        case schema.McpServerStdio():
            made: dict[str, Any] = {"command": [server.command, *server.args]}
            if server.env:
                made["env"] = {each.name: each.value for each in server.env}
        case schema.HttpMcpServer():
            made = {"url": server.url}
            if server.headers:
                made["headers"] = {each.name: each.value for each in server.headers}
        case _:
            return None
    return {"name": server.name, **made}


def _check_directory(path: str) -> None:
    if not path.startswith("/") and path[1:3] not in (":\\", ":/"):
        raise BadInput(f"{one_line(path, 200)!r} is not an absolute path; nothing was done.")
