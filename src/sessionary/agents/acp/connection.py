"""The connection to a running agent: its process, its messages within bounds, and its errors in one line.

The official package speaks the protocol. What the agent tells about its session comes past it: it would start a task
for each of these messages, and drop those that it does not know.
"""

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from acp.client import ClientSideConnection
from acp.schema import (
    AcceptElicitationResponse,
    AgentCapabilities,
    AllowedOutcome,
    AuthMethodAgent,
    CancelElicitationResponse,
    ClientCapabilities,
    CreateTerminalResponse,
    DeclineElicitationResponse,
    DeniedOutcome,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    EnvVarAuthMethod,
    FileSystemCapabilities,
    Implementation,
    InitializeResponse,
    ReadTextFileResponse,
    RequestPermissionResponse,
    TerminalAuthMethod,
    TerminalOutputResponse,
    WaitForTerminalExitResponse,
    WriteTextFileResponse,
)
from pydantic import BaseModel, TypeAdapter, ValidationError

from acp import PROTOCOL_VERSION, RequestError
from sessionary.agents.acp import AcpOptions, FileAccess
from sessionary.agents.program import READ_BYTES, Program, start_program
from sessionary.errors import AgentFailed
from sessionary.model.terminal import one_line
from sessionary.version import __version__

log = logging.getLogger(__name__)
T = TypeVar("T")
_AUTH_REQUIRED = -32000
# How many updates wait to be handled, and how many requests of the agent wait for our answer.
_MOST_WAITING = 256
_LONGEST = 300
_UPDATE = "session/update"
_TAKE_BACK = "$/cancel_request"
_TAKEN_BACK = -32800


class Inbox:
    """What has come from an agent and was not handled yet, in its order."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    def put(self, item: Any) -> None:
        """Add something, and wake the turn that waits."""
        self._items.append(item)
        if len(self._items) >= _MOST_WAITING:
            self._has_room.clear()
        self._changed.set()

    def wake(self, _: object = None) -> None:
        """Let the turn that waits check again whether it should."""
        self._changed.set()

    async def room(self) -> None:
        """Wait until the agent may say more."""
        await self._has_room.wait()

    def take(self) -> Any | None:
        """Return the next item; None if there is none."""
        if not self._items:
            self._changed.clear()
            return None
        item = self._items.popleft()
        if len(self._items) < _MOST_WAITING:
            self._has_room.set()
        return item

    def clear(self) -> None:
        """Forget what was not handled."""
        self._items.clear()
        self._has_room.set()

    async def changed(self, seconds: float | None) -> bool:
        """Wait until something has come; return whether it has before the time was over."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True


class _Lines:
    """The messages of an agent, one on each line; a transport for the protocol's package."""

    def __init__(
        self, program: Program, options: AcpOptions, inbox: Inbox, client: "_AcpClient"
    ) -> None:
        self._program = program
        self._options = options
        self._inbox = inbox
        self._client = client
        self._waiting = bytearray()
        self._lines: deque[bytes] = deque()
        self._unanswered = 0
        # Whether a turn runs. What is told between turns is passed over: nobody would make room for more of it.
        self.is_heard = False
        self.total = 0
        self.rubbish = 0
        self.example = ""
        # Why nothing more is read.
        self.problem: str | None = None

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message, and wait until the agent reads it; raise `ConnectionError` if it takes no more requests."""
        is_answer = "method" not in message
        if is_answer:
            self._unanswered -= 1
        try:
            if not self._program.is_listening:
                raise ConnectionError("Connection closed")
            self._program.stdin.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
            await self._program.stdin.drain()
        except OSError:
            if not is_answer:  # else nobody waits for it any more
                raise

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message that is no update; None when the agent has ended or was given up."""
        while self.problem is None and (line := await self._next_line()) is not None:
            message = self._read(line)
            if message is None:
                continue
            params = message.get("params")
            if message.get("method") == _TAKE_BACK and isinstance(params, dict):
                # When the package has begun to handle the requests before it.
                asyncio.get_running_loop().call_soon(
                    self._client.take_back, params.get("requestId")
                )
                continue
            if "id" not in message:
                await self._inbox.room()
                if self.is_heard:
                    self._inbox.put(_notified(message))
                continue
            if "method" in message:
                if isinstance(params, dict):
                    # The package passes on what is in it as further arguments.
                    params["_meta"] = {"request_id": message["id"]}
                self._unanswered += 1
                if self._unanswered > _MOST_WAITING:
                    self.problem = "asked too much at once"
                    return None
            return message
        return None

    async def close(self) -> None:
        """Do nothing: the program is ended where it was started."""

    async def _next_line(self) -> bytes | None:
        options = self._options
        while not self._lines:
            chunk = b"" if self.problem else await self._program.stdout.read(READ_BYTES)
            if not chunk:
                return None
            self.total += len(chunk)
            *finished, rest = chunk.split(b"\n")
            for part in finished:
                self._lines.append(bytes(self._waiting) + part)
                self._waiting.clear()
            self._waiting += rest
            if self.total > options.most_bytes or len(self._waiting) > options.most_line_bytes:
                self.problem = f"wrote too much ({self.total:,} bytes)"
                return None
        return self._lines.popleft()

    def _read(self, line: bytes) -> dict[str, Any] | None:
        if not line.strip():
            return None
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if _is_message(message):
            return message  # type: ignore[no-any-return]
        self.rubbish += 1
        if self.rubbish == 1:
            self.example = one_line(line[:_LONGEST].decode(errors="replace"), 80)
        if self.rubbish > self._options.most_rubbish_lines:
            self.problem = "wrote rubbish"
        return None

    def note(self) -> str:
        """Return a sentence about the lines that could not be understood, or an empty string."""
        if not self.rubbish:
            return ""
        return f" {self.rubbish} of its lines were not understood, the first: {self.example!r}."


def _notified(message: Mapping[str, Any]) -> Any:
    """Return the parameters of an update; any other notification in the form of an update."""
    method, params = message["method"], message.get("params")
    if method == _UPDATE:
        return params
    return {"update": {"sessionUpdate": method, "params": params}}


def _is_message(message: Any) -> bool:
    """Whether this is a message that the protocol's package can handle."""
    return (
        isinstance(message, dict)
        and isinstance(message.get("method", ""), str)
        and isinstance(message.get("id"), int | str | None)
        and isinstance(message.get("error", {}), dict | None)
        and ("method" in message or "id" in message)
    )


class Requests(Protocol):
    """Answers what an agent asks of us in a turn, with values of the protocol."""

    async def permission(self, call: dict[str, Any], options: list[dict[str, Any]]) -> str | None:
        """Return the id of the option that is selected; None if the turn is cancelled or nobody decides."""

    async def read_file(self, path: str, line: int | None, limit: int | None) -> str:
        """Return a text file of the workspace."""

    async def write_file(self, path: str, content: str) -> None:
        """Write a text file of the workspace."""

    async def create_terminal(self, given: Mapping[str, Any]) -> str:
        """Start a program; return the id of its terminal."""

    def terminal_output(self, terminal_id: str) -> dict[str, Any]:
        """Return what a terminal shows."""

    async def terminal_exit(self, terminal_id: str) -> dict[str, Any]:
        """Return how the program of a terminal has ended, when it has."""

    async def end_terminal(self, terminal_id: str, *, forget: bool) -> None:
        """End the program of a terminal."""

    async def elicit(self, message: str, schema: dict[str, Any] | None) -> dict[str, Any]:
        """Return the answer to a form; without a schema, a person was to open a page."""


class _AcpClient:
    """What the protocol's package calls when the agent asks something; between turns everything is refused."""

    def __init__(self) -> None:
        self.requests: Requests | None = None
        # What people are asked, by the ids of the requests.
        self._asked: dict[Any, asyncio.Task[Any]] = {}

    def take_back(self, request_id: Any) -> None:
        """Ask no more what the agent does not want to know any more."""
        if isinstance(request_id, int | str) and request_id in self._asked:
            self._asked.pop(request_id).cancel()

    async def _ask(self, request_id: Any, work: Coroutine[Any, Any, T]) -> T:
        """Return what people answer; raise `RequestError` if the agent takes its request back."""
        task = asyncio.ensure_future(work)
        self._asked[request_id] = task
        try:
            return await task
        except asyncio.CancelledError:
            if request_id in self._asked:
                raise
            raise RequestError(_TAKEN_BACK, "The request was taken back.") from None
        finally:
            self._asked.pop(request_id, None)

    def _current(self) -> Requests:
        if self.requests is None:
            raise RequestError.invalid_request({"details": "no prompt is being answered"})
        return self.requests

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], *, request_id: Any, **_: Any
    ) -> RequestPermissionResponse:
        """Ask whether a tool may be called."""
        selected = None
        if self.requests is not None:
            asked = self.requests.permission(_json(tool_call), [*map(_json, options)])
            selected = await self._ask(request_id, asked)
        if selected is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        chosen = AllowedOutcome(outcome="selected", option_id=selected)
        return RequestPermissionResponse(outcome=chosen)

    async def read_text_file(
        self,
        session_id: str,
        path: str,
        line: int | None = None,
        limit: int | None = None,
        **_: Any,
    ) -> ReadTextFileResponse:
        """Read a file of the workspace."""
        return ReadTextFileResponse(content=await self._current().read_file(path, line, limit))

    async def write_text_file(
        self, session_id: str, path: str, content: str, **_: Any
    ) -> WriteTextFileResponse:
        """Write a file of the workspace."""
        await self._current().write_file(path, content)
        return WriteTextFileResponse()

    async def create_terminal(self, session_id: str, **given: Any) -> CreateTerminalResponse:
        """Start a program."""
        known = {name: _plain(value) for name, value in given.items()}
        return CreateTerminalResponse(terminal_id=await self._current().create_terminal(known))

    async def terminal_output(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> TerminalOutputResponse:
        """Tell what a terminal shows."""
        return TerminalOutputResponse.model_validate(self._current().terminal_output(terminal_id))

    async def wait_for_terminal_exit(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> WaitForTerminalExitResponse:
        """Wait until the program of a terminal has ended."""
        ended = await self._current().terminal_exit(terminal_id)
        return WaitForTerminalExitResponse.model_validate(ended)

    async def kill_terminal(self, session_id: str, terminal_id: str, **_: Any) -> None:
        """End the program of a terminal."""
        await self._current().end_terminal(terminal_id, forget=False)

    async def release_terminal(self, session_id: str, terminal_id: str, **_: Any) -> None:
        """End the program of a terminal, which is not needed any more."""
        await self._current().end_terminal(terminal_id, forget=True)

    async def create_elicitation(
        self, message: str, mode: Any, *, request_id: Any, **_: Any
    ) -> Any:
        """Ask people for values."""
        asked = getattr(mode, "requested_schema", None)
        schema = None if asked is None else _json(asked)
        answer = await self._ask(request_id, self._current().elicit(message, schema))
        return _ELICITED.validate_python(answer)

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Refuse what is not in the protocol."""
        raise RequestError.method_not_found(f"_{method}")

    def on_connect(self, conn: Any) -> None:
        """Do nothing: the connection is known."""


_ELICITED: TypeAdapter[Any] = TypeAdapter(
    AcceptElicitationResponse | DeclineElicitationResponse | CancelElicitationResponse
)


def _json(value: Any) -> dict[str, Any]:
    """Return a value of the protocol as it is sent."""
    found: dict[str, Any] = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return _json(value) if isinstance(value, BaseModel) else value


class AgentConnection:
    """A running agent that has been greeted. Close it to end its process."""

    def __init__(self, program: Program, options: AcpOptions) -> None:
        self._program = program
        self._options = options
        self.inbox = Inbox()
        self._client = _AcpClient()
        self._lines = _Lines(program, options, self.inbox, self._client)
        client: Any = self._client  # its values are checked by the protocol's package
        self.agent = ClientSideConnection(client, self._lines, use_unstable_protocol=True)
        self.info = InitializeResponse(protocol_version=PROTOCOL_VERSION)

    @classmethod
    async def open(cls, options: AcpOptions) -> "AgentConnection":
        """Start an agent and greet it; raise `AgentFailed` if that is not possible."""
        program = await start_program(options)
        await program.__aenter__()
        connection = cls(program, options)
        try:
            await connection._greet()
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _greet(self) -> None:
        options = self._options
        can = ClientCapabilities(
            fs=FileSystemCapabilities(
                read_text_file=options.files is not FileAccess.NONE,
                write_text_file=options.files is FileAccess.WRITE,
            ),
            terminal=options.terminals,
            elicitation=ElicitationCapabilities(form=ElicitationFormCapabilities()),
        )
        us = Implementation(name="sessionary", title="Sessionary", version=__version__)
        self.info = await self.call(
            self.agent.initialize(
                protocol_version=PROTOCOL_VERSION, client_capabilities=can, client_info=us
            ),
            "initialize",
        )
        version = self.info.protocol_version
        if version != PROTOCOL_VERSION:
            raise AgentFailed(
                f"The agent {self.name} speaks version {version} of the Agent Client Protocol, and Sessionary version "
                f"{PROTOCOL_VERSION}: install another version of the agent."
            )

    @property
    def name(self) -> str:
        """The name of the program."""
        return self._options.command[0]

    @property
    def agent_name(self) -> str:
        """What the agent calls itself; empty if it does not say."""
        return "" if self.info.agent_info is None else self.info.agent_info.name

    @property
    def can(self) -> AgentCapabilities:
        """What the agent can do."""
        return self.info.agent_capabilities or AgentCapabilities()

    @property
    def is_alive(self) -> bool:
        """Whether the agent runs and is listened to, as far as is known."""
        return self._program.is_listening and self._lines.problem is None

    def begin_turn(self, requests: Requests | None) -> None:
        """Answer the agent with these requests from now on, and count from zero how much it writes."""
        self._client.requests = requests
        self._lines.is_heard = requests is not None
        self._lines.total = 0
        self.inbox.clear()

    async def call(self, work: Awaitable[T], what: str, *, seconds: float | None = None) -> T:
        """Return the answer to a request; translate whatever can go wrong into one line."""
        limit = self._options.start_seconds if seconds is None else seconds
        try:
            async with asyncio.timeout(limit):
                return await work
        except TimeoutError as error:
            raise AgentFailed(
                f"The agent {self.name} did not answer {what} in {limit:g} seconds and was stopped."
                f"{self.last_words()}"
            ) from error
        except RequestError as error:
            raise self.refusal(error, what) from error
        except (ConnectionError, OSError) as error:
            raise await self.gone() from error
        except ValidationError as error:
            raise AgentFailed(
                f"The agent {self.name} answered {what} with something that is not in the protocol: "
                f"{one_line(str(error), _LONGEST)}"
            ) from error

    def refusal(self, error: RequestError, what: str) -> AgentFailed:
        """Return the error for a request that the agent has refused."""
        if error.code == _AUTH_REQUIRED:
            return LoginNeeded(self._login_advice())
        data = error.data
        details = data.get("details") if isinstance(data, dict) else data
        more = f" ({one_line(str(details), _LONGEST)})" if details else ""
        return RefusedByAgent(
            f"The agent {self.name} refused {what}: {one_line(str(error), _LONGEST)}{more}"
            f"{self.last_words()}",
            error.code,
        )

    async def gone(self) -> AgentFailed:
        """Return the error for an agent that has ended or that was given up."""
        problem = self._lines.problem
        if problem is not None:
            return AgentFailed(
                f"The agent {self.name} {problem} and was stopped.{self._lines.note()}"
            )
        try:
            async with asyncio.timeout(self._options.kill_after_seconds):
                await self._program.gone()
        except TimeoutError:
            return AgentFailed(
                f"The agent {self.name} closed its output before the turn was over.{self.last_words()}"
            )
        await self._program.errors_read()
        return AgentFailed(
            f"The agent {self.name} ended with code {self._program.returncode} before the turn was over."
            f"{self.last_words()}"
        )

    def last_words(self) -> str:
        """Return what the agent last wrote that is no message, to append to a sentence."""
        return f"{self._lines.note()}{self._program.last_words()}"

    def _login_advice(self) -> str:
        """Return one line about how a person can log in."""
        ways = []
        for each in self.info.auth_methods or ():
            way = f'{each.name} (auth = "{each.id}")'
            match each:
                case TerminalAuthMethod():
                    line = " ".join([*self._options.command, *(each.args or ())])
                    way = f"run `{one_line(line, _LONGEST)}` at a terminal"
                case EnvVarAuthMethod():
                    way = f"set {', '.join(var.name for var in each.vars)} and name it in pass_env"
                case AuthMethodAgent() if each.description:
                    way += f": {each.description}"
            ways.append(one_line(way, _LONGEST))
        known = f" It offers: {'; '.join(ways)}." if ways else ""
        return (
            f"The agent {self.name} needs a login: log in with its own program at a terminal of this machine, as the "
            f"user that runs Sessionary.{known}"
        )

    async def close(self) -> None:
        """End the agent's process, with all that it has started."""
        self._client.requests = None
        try:
            await self.agent.close()
        finally:
            await self._program.__aexit__()


class RefusedByAgent(AgentFailed):
    """The agent has refused a request."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class LoginNeeded(AgentFailed):
    """The agent wants a person to log in first."""
