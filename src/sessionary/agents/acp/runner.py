"""Turns of an agent that speaks ACP: its session is found again, and what it tells becomes steps of ours."""

import asyncio
import logging
import mimetypes
import os
import shutil
import tempfile
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from acp.schema import PromptResponse

from sessionary.agents.acp import AcpOptions
from sessionary.agents.acp.connection import AgentConnection, LoginNeeded, RefusedByAgent
from sessionary.agents.acp.requests import AskedPermission, TurnRequests
from sessionary.agents.acp.updates import UpdateReader, call_id, number
from sessionary.engine.ports import Event, KeptState, NativeSession, Step, TurnRequest
from sessionary.errors import AgentFailed, BadInput, SessionaryError
from sessionary.formats import acp as formats
from sessionary.formats.acp import ToolCallState
from sessionary.model.handover.text import conversation_text
from sessionary.model.message import Message, Role, ToolResult
from sessionary.model.terminal import one_line
from sessionary.model.transcript import Chat, chat_text, has_answer

log = logging.getLogger(__name__)
# Tools that write records of their own, by what their agents call themselves; their ids of a session are those of ACP.
_RECORDS = (
    ("claude", "claude-code"),
    ("codex", "codex"),
    ("gemini", "gemini-cli"),
    ("opencode", "opencode"),
)
_INTERRUPTED_TOKENS = 4_000
_CONTINUE = (
    "[The connection was interrupted while you were working. Go on from where you stopped, "
    "without doing again what is done.]"
)
_UNKNOWN_RESULT = (
    "The turn was interrupted before this call had a result that was recorded. "
    "It is not known whether it ran."
)


class _Kept:
    """A process that waits for the next turn of its session."""

    def __init__(self, connection: AgentConnection, session: str, turn_id: str) -> None:
        self.connection = connection
        self.session = session
        self.turn_id = turn_id
        self.timer: asyncio.TimerHandle | None = None


class AcpRunner:
    """Runs turns of one agent. Its process is kept running for a while; nothing depends on that."""

    def __init__(self, options: AcpOptions) -> None:
        if not options.command:
            raise BadInput("An agent that speaks ACP needs a program to run.")
        self._options = options
        # By our session, the one that ran last at the end.
        self._kept: dict[str, _Kept] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def check(self) -> None:
        """Refuse a program that cannot be started, without starting it."""
        self._options.check_program()
        workspace = self._options.workspace
        if workspace is not None and not os.path.isdir(workspace):
            raise BadInput(f"The workspace {workspace} of the agent is not there.")

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        """Yield what the agent tells; a turn that has its answer already needs nothing more."""
        if has_answer(request.steps) and not _prompts(request.context):
            return
        options = await self._options_for(request)
        state = await request.services.kept_state()
        kept = await self._take_kept(request, state)
        connection = await AgentConnection.open(options) if kept is None else kept.connection
        turn = _AcpTurn(request, options, connection, state, is_warm=kept is not None)
        try:
            async with aclosing(turn.events()) as events:
                async for event in events:
                    yield event
        finally:
            if turn.is_clean and turn.session and connection.is_alive:
                self._keep(request, _Kept(connection, turn.session, request.turn_id))
            else:
                await connection.close()

    async def _options_for(self, request: TurnRequest) -> AcpOptions:
        """Return the options with the directory in which the agent works in a session."""
        if self._options.workspace is not None:
            return self._options
        directory = await request.services.directory()
        if directory is not None and not await asyncio.to_thread(os.path.isdir, directory):
            raise AgentFailed(
                f"The directory {directory}, which an editor has opened this session for, is not on this machine. "
                "Nothing was done."
            )
        return replace(self._options, workspace=directory)

    async def close(self) -> None:
        """End the processes that wait for a turn."""
        kept, self._kept = list(self._kept.values()), {}
        for each in kept:
            self._end(each)
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _take_kept(self, request: TurnRequest, state: KeptState | None) -> _Kept | None:
        """Return the process of the session, if it is as the last turn has left it."""
        found = self._kept.pop(request.session.id, None)
        if found is None:
            return None
        if found.timer is not None:
            found.timer.cancel()
        if (
            state is not None
            # Another process may have taken a turn since.
            and state.turn_id == found.turn_id
            and state.data.get("session") == found.session
            and not (state.is_rewound or state.is_inherited)
            and found.connection.is_alive
        ):
            return found
        await found.connection.close()
        return None

    def _keep(self, request: TurnRequest, kept: _Kept) -> None:
        seconds, most = self._options.keep_seconds, self._options.most_kept
        before = self._kept.pop(request.session.id, None)
        self._kept[request.session.id] = kept
        if before is not None:
            self._end(before)
        while len(self._kept) > (most if seconds > 0 else 0):
            self._end(self._kept.pop(next(iter(self._kept))))
        if request.session.id in self._kept:
            loop = asyncio.get_running_loop()
            kept.timer = loop.call_later(seconds, self._expire, request.session.id, kept)

    def _expire(self, session_id: str, kept: _Kept) -> None:
        if self._kept.get(session_id) is kept:
            del self._kept[session_id]
            self._end(kept)

    def _end(self, kept: _Kept) -> None:
        if kept.timer is not None:
            kept.timer.cancel()
        task = asyncio.ensure_future(kept.connection.close())
        self._ending.add(task)
        task.add_done_callback(self._note_ended)

    def _note_ended(self, task: "asyncio.Task[None]") -> None:
        self._ending.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("an agent was not ended properly", exc_info=task.exception())


class _AcpTurn:
    """One turn: the session at the agent, the prompts, and the steps that come of what the agent tells."""

    def __init__(
        self,
        request: TurnRequest,
        options: AcpOptions,
        connection: AgentConnection,
        state: KeptState | None,
        *,
        is_warm: bool,
    ) -> None:
        self._request = request
        self._options = options
        self._connection = connection
        self._agent = connection.agent
        self._state = state
        self._is_warm = is_warm
        self._requests = TurnRequests(request, options, connection.inbox)
        self.session = ""
        # Whether the agent's session goes on, instead of a new one.
        self._knows = False
        # What the agent has repeated of its session, if it was loaded.
        self._has_loaded = False
        self._replayed: list[Mapping[str, Any]] = []
        # Whether the process can take another turn.
        self.is_clean = False
        cost = number(None if state is None else state.data.get("cost"))
        self._reader = UpdateReader(
            request.turn_id,
            self._requests.terminals.shown,
            cost=cost,
            answers=sum(each.finish_reason is not None for each in request.steps),
        )
        self._cost_kept = cost
        self._model_option: str | None = None
        self._files: Path | None = None

    async def events(self) -> AsyncGenerator[Event]:
        """Yield the steps and deltas of the turn."""
        self._connection.begin_turn(self._requests)
        try:
            response = await self._enter_session()
            self._reader.begin(self.session, is_new=not self._knows)
            self._read_offers(response)
            await self._choose(response)
            await self._keep_state()
            await self._record_request()
            for step in self._unfinished_results():
                yield step
            blocks = await self._first_prompt()
            while blocks:
                async with aclosing(self._prompt(blocks)) as events:
                    async for event in events:
                        yield event
                if self._reader.cost != self._cost_kept:
                    await self._keep_state()  # it is in the ledger: no later turn counts it again
                blocks = await self._next_prompt()
            self.is_clean = True
        finally:
            self._connection.begin_turn(None)
            await self._requests.close()
            if self._files is not None:
                await asyncio.to_thread(shutil.rmtree, self._files, ignore_errors=True)

    # The session at the agent.

    async def _enter_session(self) -> Any:
        """Find the agent's session again, or begin one; return the response, None if its process still has it."""
        state, can = self._state, self._connection.can
        own = "" if state is None else str(state.data.get("session") or "")
        is_continued = self._is_continued
        sessions = can.session_capabilities
        if self._is_warm:
            self._knows, self.session = True, own
            return None
        place: dict[str, Any] = {"cwd": self._folder, "mcp_servers": self._servers()}
        if state is not None and own and not state.is_rewound:
            ask: Any = None
            what = ""
            if state.is_inherited:
                if sessions is not None and sessions.fork is not None:
                    ask, what = self._agent.fork_session, "session/fork"
            elif (
                sessions is not None
                and sessions.resume is not None
                and not (is_continued and can.load_session)
            ):
                ask, what = self._agent.resume_session, "session/resume"
            elif can.load_session:
                # What it repeats says whether the prompt of this turn has reached it.
                ask, what = self._agent.load_session, "session/load"
            if ask is not None:
                work = self._call(partial(ask, session_id=own, **place), what)
                try:
                    response = await self._replayed_during(work)
                except RefusedByAgent as error:
                    log.warning("the session at an agent cannot go on: %s", error)
                else:
                    self._knows, self._has_loaded = True, what == "session/load"
                    self.session = getattr(response, "session_id", None) or own
                    return response
            if is_continued and self._request.steps:
                # What it has done besides what is recorded, nobody could tell a new session.
                raise AgentFailed(
                    f"The turn was interrupted, and the agent {self._connection.name} cannot go on with its session. "
                    "Write «continue» to begin a new one with what is recorded here."
                )
        response = await self._call(partial(self._agent.new_session, **place), "session/new")
        self.session = response.session_id
        return response

    @property
    def _is_continued(self) -> bool:
        """Whether this turn was begun in another process, which the agent knew."""
        state = self._state
        return state is not None and state.turn_id == self._request.turn_id

    async def _call(self, ask: Callable[[], Awaitable[Any]], what: str) -> Any:
        """Return the answer to a request; log in and ask once more if the agent wants that and the settings say how."""
        try:
            return await self._connection.call(ask(), what)
        except LoginNeeded:
            method = self._options.auth
            if method is None:
                raise
        await self._connection.call(self._agent.authenticate(method_id=method), "authenticate")
        return await self._connection.call(ask(), what)

    async def _replayed_during(self, work: Any) -> Any:
        """Await a request, and collect the history that the agent repeats meanwhile."""
        inbox = self._connection.inbox
        task = asyncio.ensure_future(work)
        task.add_done_callback(inbox.wake)
        try:
            while True:
                item = inbox.take()
                if item is not None:
                    update = item.get("update") if isinstance(item, Mapping) else None
                    if isinstance(update, Mapping):
                        self._replayed.append(update)
                elif task.done():
                    return task.result()
                else:
                    await inbox.changed(None)
        finally:
            task.cancel()

    @property
    def _folder(self) -> str:
        return os.path.abspath(self._options.workspace or self._options.folder or os.curdir)

    def _servers(self) -> list[dict[str, Any]]:
        """Return the MCP servers that the agent is given; refuse those that it cannot use."""
        can = self._connection.can.mcp_capabilities
        made: list[dict[str, Any]] = []
        for each in self._options.tools:
            name = each.name or each.label
            if each.url is None:
                program, *arguments = each.command
                env = [{"name": key, "value": value} for key, value in each.environ.items()]
                made.append({"name": name, "command": program, "args": arguments, "env": env})
                continue
            if can is None or not can.http:
                raise AgentFailed(
                    f"The agent {self._connection.name} cannot use the MCP server {each.label} by its address: "
                    "give it a program instead."
                )
            headers = [{"name": key, "value": value} for key, value in each.headers.items()]
            if each.key is not None:
                headers.append({"name": "Authorization", "value": f"Bearer {each.key.reveal()}"})
            made.append({"type": "http", "name": name, "url": each.url, "headers": headers})
        return made

    def _read_offers(self, response: Any) -> None:
        """Note the mode and the model that the session has."""
        for each in getattr(response, "config_options", None) or ():
            if each.category == "model" or each.id == "model":
                self._reader.model = str(each.current_value)
        modes = getattr(response, "modes", None)
        self._reader.mode = None if modes is None else modes.current_mode_id
        if response is None and self._state is not None:
            self._reader.model, self._reader.mode = (
                self._state.data.get("model"),
                self._state.data.get("mode"),
            )

    async def _choose(self, response: Any) -> None:
        """Set the mode, the model and the other options of the session that are wanted and are not set."""
        options, name = self._options, self._connection.name
        if response is None:
            # Only the model may have changed since the turn before.
            model = self._request.settings.get("model") or options.model
            id = None if self._state is None else self._state.data.get("model_option")
            if model and isinstance(id, str) and model != self._reader.model:
                await self._set_option(id, str(model))
                self._reader.model = str(model)
            return
        modes = getattr(response, "modes", None)
        offered = {each.id: each for each in getattr(response, "config_options", None) or ()}
        if options.mode is not None and options.mode != self._reader.mode:
            known = [] if modes is None else [each.id for each in modes.available_modes]
            if options.mode not in known:
                raise _not_offered(name, "mode", options.mode, known)
            await self._connection.call(
                self._agent.set_session_mode(mode_id=options.mode, session_id=self.session),
                "session/set_mode",
            )
            self._reader.mode = options.mode
        wanted = dict(options.choices)
        by_model = [id for id, each in offered.items() if each.category == "model" or id == "model"]
        self._model_option = by_model[0] if by_model else None
        model = self._request.settings.get("model") or options.model
        if model:
            if self._model_option is None:
                raise AgentFailed(f"The agent {name} offers no choice of a model: remove `model`.")
            wanted[self._model_option] = str(model)
        for id, value in wanted.items():
            option = offered.get(id)
            if option is None:
                raise _not_offered(name, "option", id, list(offered))
            values = _values(option)
            if values is not None and value not in values:
                raise _not_offered(name, f"value of {id}", value, values)
            if str(option.current_value) != value:
                is_set = value.casefold() == "true"
                await self._set_option(id, is_set if values is None else value)
            if id == self._model_option:
                self._reader.model = value

    async def _set_option(self, id: str, value: str | bool) -> None:  # noqa: FBT001 - its value
        await self._connection.call(
            self._agent.set_config_option(config_id=id, session_id=self.session, value=value),
            "session/set_config_option",
        )

    async def _keep_state(self) -> None:
        """Keep what a later turn needs to find the session again; from now on an import knows it too."""
        known = {} if self._state is None else self._state.data
        data = {
            "session": self.session,
            "agent": self._connection.agent_name,
            "cost": self._reader.cost,
        }
        data |= {"model": self._reader.model, "mode": self._reader.mode}
        data["model_option"] = self._model_option or known.get("model_option")
        tool = self._options.records or _records_of(self._connection.agent_name)
        native = None if tool is None else NativeSession(tool, self.session)
        await self._request.services.keep_state(data, native=native)
        self._cost_kept = self._reader.cost

    async def _record_request(self) -> None:
        info = self._connection.info.agent_info
        settings: dict[str, Any] = {"session": self.session, "workspace": self._folder}
        if info is not None:
            settings["agent"] = f"{info.name} {info.version}"
        if self._reader.mode is not None:
            settings["mode"] = self._reader.mode
        await self._request.services.record_request(
            model=self._reader.model, tools=(), settings=settings
        )

    # What the agent is told.

    async def _first_prompt(self) -> list[dict[str, Any]]:
        request, state = self._request, self._state
        knows = self._knows
        if knows and self._is_continued:
            prompts = _prompts(request.context[: self._length_before_steps()])
            told = [formats.text_block(_CONTINUE)]
            if not self._has_loaded:
                # Nobody knows whether the message of this turn has reached it.
                return [*told, formats.text_block("The message was:"), *await self._blocks(prompts)]
            is_begun = bool(request.steps) and not _prompts(request.context)
            if is_begun or self._has_reached(prompts):
                return told
            if self._replayed:
                return await self._blocks(prompts)
            knows = False
        if knows and state is not None:
            known: Sequence[Chat] = state.since
            told = []
            if not state.is_finished and not self._is_warm:
                told = self._interrupted_blocks()
            heading = "What was said in this conversation since"
        else:
            known = request.context
            told = []
            if self._options.send_prompt and request.system_prompt.strip():
                told = [
                    formats.text_block(
                        f"<instructions>\n{request.system_prompt.strip()}\n</instructions>"
                    )
                ]
            heading = "The conversation so far, in which you take over"
        prompts = _prompts(known)
        before = known[: len(known) - len(prompts)]
        text = conversation_text(before, most_tokens=self._options.handover_tokens)
        if text:
            told.append(formats.text_block(f"{heading}:\n<conversation>\n{text}\n</conversation>"))
        blocks = [*told, *await self._blocks(prompts)]
        return blocks or [formats.text_block(_CONTINUE)]

    def _length_before_steps(self) -> int:
        """Return how many messages of the context were there before the turn wrote its first step."""
        context, count = self._request.context, len(self._request.context)
        if self._request.steps:
            while count and context[count - 1]["role"] != "user":
                count -= 1
        return count

    def _has_reached(self, prompts: Sequence[Chat]) -> bool:
        """Whether the agent has repeated the message of this turn as the last one that it was sent."""
        last: list[str] = []
        is_user = False
        for update in self._replayed:
            was_user, is_user = is_user, update.get("sessionUpdate") == "user_message_chunk"
            if is_user:
                last = [*(last if was_user else ()), formats.block_text(update.get("content"))]
        wanted = chat_text(prompts[-1]["content"]).strip() if prompts else ""
        return wanted in "".join(last)

    def _interrupted_blocks(self) -> list[dict[str, Any]]:
        """Return what is recorded of the turn before, which was interrupted: the agent may not know all of it."""
        context = list(self._request.context)
        end = len(context) - len(_prompts(context))
        first = end
        while first and context[first - 1]["role"] != "user":
            first -= 1
        while first and context[first - 1]["role"] == "user":
            first -= 1
        text = conversation_text(context[first:end], most_tokens=_INTERRUPTED_TOKENS)
        if not text:
            return []
        return [
            formats.text_block(
                "[The turn before this message was interrupted. This is recorded of it:]\n"
                f"<conversation>\n{text}\n</conversation>"
            )
        ]

    async def _next_prompt(self) -> list[dict[str, Any]]:
        """Return what people have sent meanwhile, and why calls were refused; nothing if the turn is over."""
        notes, self._requests.notes = self._requests.notes, []
        told = [formats.text_block("\n".join(f"[{each}]" for each in notes))] if notes else []
        return [*told, *await self._blocks(await self._request.services.new_messages())]

    async def _blocks(self, chats: Sequence[Chat]) -> list[dict[str, Any]]:
        """Return messages of people as blocks that the agent can take."""
        blocks: list[dict[str, Any]] = []
        for chat in chats:
            content = chat["content"]
            if isinstance(content, str):
                blocks.append(formats.text_block(content))
                continue
            for part in content:
                if part["type"] == "attachment":
                    blocks.append(await self._file_block(part))
                elif part["text"]:
                    blocks.append(formats.text_block(part["text"]))
        return blocks

    async def _file_block(self, part: Any) -> dict[str, Any]:
        data = await self._request.blob(part["blob"])
        name = os.path.basename(part["name"] or "") or _default_name(part)
        can = self._connection.can.prompt_capabilities
        accepts = {} if can is None else can.model_dump(mode="json", by_alias=True)
        uri = f"attachment:///{part['blob'][:16]}/{name}"
        made = formats.file_block(data, part["media_type"], uri=uri, accepts=accepts)
        if made is not None:
            return made
        path = await asyncio.to_thread(self._write_file, data, name)
        return formats.link_block(path.as_uri(), name, part["media_type"], len(data))

    def _write_file(self, data: bytes, name: str) -> Path:
        """Write a file where only this user, and so the agent, can read it; it is deleted with the turn."""
        if self._files is None:
            self._files = Path(tempfile.mkdtemp(prefix="sessionary-acp-"))
        safe = name.replace("/", "_").replace("\0", "_").lstrip(".") or "file"
        path = self._files / safe[:100]
        number = 1
        while path.exists():
            number += 1
            path = self._files / f"{number}-{safe[:100]}"
        path.write_bytes(data)
        return path

    # What the agent tells.

    async def _prompt(self, blocks: list[dict[str, Any]]) -> AsyncGenerator[Event]:
        """Send a prompt, and yield what comes of it until its end."""
        inbox = self._connection.inbox
        while inbox.take() is not None:
            pass  # what was told between the turns
        self._reader.begin_answer()
        prompt: Any = blocks
        work = self._agent.prompt(session_id=self.session, prompt=prompt)
        # The time limit is for each message, not for the whole answer.
        task = asyncio.ensure_future(self._connection.call(work, "session/prompt", seconds=1e9))
        task.add_done_callback(inbox.wake)
        try:
            while True:
                item = inbox.take()
                if item is not None:
                    for event in self._events_of(item):
                        yield event
                    if isinstance(item, AskedPermission) and not item.recorded.done():
                        item.recorded.set_result(self._reader.call(item.given))
                elif task.done():
                    break
                else:
                    await self._wait(inbox)
            response: PromptResponse = task.result()
            for event in self._reader.finish(response):
                yield event
        finally:
            if not task.done():
                await self._cancel(task)
            elif not task.cancelled():
                task.exception()

    def _events_of(self, item: Any) -> list[Event]:
        if isinstance(item, SessionaryError):
            raise item
        if isinstance(item, AskedPermission):
            return self._reader.read_call(item.given, must_tell=True)
        return self._reader.read(item)

    async def _wait(self, inbox: Any) -> None:
        """Wait for the next message; while people are asked, as long as it takes."""
        is_waiting = self._requests.waiting > 0
        limit = None if is_waiting else self._options.timeout_seconds
        if not await inbox.changed(limit) and not self._requests.waiting:
            raise AgentFailed(
                f"The agent {self._connection.name} said nothing for {self._options.timeout_seconds:g} seconds and was "
                f"stopped.{self._connection.last_words()}"
            )

    async def _cancel(self, task: "asyncio.Task[PromptResponse]") -> None:
        """Ask the agent to stop, and give it some time for that; its process is ended after it."""
        inbox = self._connection.inbox
        await self._requests.close()
        try:
            async with asyncio.timeout(self._options.cancel_seconds):
                await self._agent.cancel(session_id=self.session)
                while not task.done():
                    while inbox.take() is not None:
                        pass
                    await inbox.changed(None)
        except (TimeoutError, ConnectionError, OSError) as error:
            log.info("an agent did not stop in time: %r", error)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def _unfinished_results(self) -> list[Step]:
        """Return results for the calls of a continued turn that have none, as the agent repeats them."""
        repeated: dict[str, ToolCallState] = {}
        for update in self._replayed:
            if str(update.get("sessionUpdate", "")).startswith("tool_call"):
                id = call_id(update)
                repeated.setdefault(id, ToolCallState(id)).update(update)
        steps = []
        for call in self._request.unfinished:
            self._reader.skip(call.id)
            state = repeated.get(call.id)
            if state is not None and state.is_over:
                known = call.arguments if isinstance(call.arguments, Mapping) else {}
                parts, files = state.result(shown={}, called_with=known)
                steps.append(Step(Message(Role.TOOL, parts), files=files))
                continue
            unknown = ToolResult(
                call.id, _UNKNOWN_RESULT, call.name, is_error=True, extra={"outcome": "unknown"}
            )
            steps.append(Step(Message(Role.TOOL, (unknown,))))
        return steps


def _prompts(chats: Sequence[Chat]) -> Sequence[Chat]:
    """Return the messages of people at the end of a conversation, which nobody has answered."""
    first = len(chats)
    while first and chats[first - 1]["role"] == "user":
        first -= 1
    return chats[first:]


def _values(option: Any) -> list[str] | None:
    """Return the values of an option of a session; None if it is true or false."""
    if getattr(option, "options", None) is None:
        return None
    values: list[str] = []
    for each in option.options:
        values += [value.value for value in getattr(each, "options", [each])]
    return values


def _not_offered(agent: str, what: str, wanted: str, known: Sequence[str]) -> AgentFailed:
    offered = ", ".join(one_line(each, 60) for each in known) or "none"
    return AgentFailed(
        f"The agent {agent} has no {what} {one_line(wanted, 60)!r}; it offers: {one_line(offered, 300)}."
    )


def _records_of(agent: str) -> str | None:
    """Return the tool whose records an agent of this name writes, if that is known."""
    name = agent.casefold()
    return next((tool for part, tool in _RECORDS if part in name), None)


def _default_name(part: Any) -> str:
    return f"file{mimetypes.guess_extension(part['media_type']) or ''}"
