"""What an agent asks of us during a turn: whether it may call a tool, files, terminals, and values from people."""

import asyncio
import logging
import shlex
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from acp import RequestError
from sessionary.agents.acp import AcpOptions, FileAccess
from sessionary.agents.acp.connection import Inbox
from sessionary.agents.acp.files import Workspace
from sessionary.agents.acp.terminals import Terminals
from sessionary.agents.elicitation import read_elicitation
from sessionary.agents.program import ProgramOptions
from sessionary.config.engine import ToolDecision
from sessionary.engine.ports import ProposedCall, TurnRequest
from sessionary.errors import AgentFailed, BadInput, NotAllowed, NotFound, SessionaryError
from sessionary.formats.acp import ToolCallState
from sessionary.model.question import NewQuestion, Question, QuestionKind, outcome_text
from sessionary.model.question_data import approved_arguments
from sessionary.model.terminal import one_line

log = logging.getLogger(__name__)
T = TypeVar("T")
# The kinds of options with which a permission is given or refused, in the order of preference. What people allow for
# ever is a rule of ours, which they can see and revoke: the agent goes on asking.
_ALLOWING = ("allow_once", "allow_always")
_REFUSING = ("reject_once", "reject_always")
# The names of the tools for rules of the policy.
READ, WRITE, RUN = "read_text_file", "write_text_file", "terminal"
_LONGEST_NAME = 190


class AskedPermission:
    """A call that an agent asks about: it goes on when the log has the call."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = given
        self.recorded: asyncio.Future[ToolCallState] = asyncio.get_running_loop().create_future()


class TurnRequests:
    """Answers the requests of an agent during one turn.

    What cannot be answered with an error of the protocol, such as a lost lease, is put into the inbox as an exception
    and ends the turn.
    """

    def __init__(self, request: TurnRequest, options: AcpOptions, inbox: Inbox) -> None:
        self._request = request
        self._options = options
        self._inbox = inbox
        self._workspace = Workspace(options.workspace or options.folder or ".")
        self.terminals = Terminals()
        # What was refused with a reason, or for other arguments: the agent is told after its answer.
        self.notes: list[str] = []
        # How many answers of people are waited for.
        self.waiting = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False
        # What was approved in this turn: files that may be written, programs that may be run.
        self._approved_paths: set[str] = set()
        self._approved_commands: set[str] = set()
        # Approvals of the turn before it was continued, which no call has used.
        self._stored = [
            each for each in request.questions if each.asked.kind is QuestionKind.APPROVAL
        ]

    async def close(self) -> None:
        """Withdraw the questions that are open, and end the programs that run."""
        self._is_closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.terminals.close()

    # Permissions.

    async def permission(self, call: dict[str, Any], options: list[dict[str, Any]]) -> str | None:
        """Return the option that the policy or a person selects; None if nobody does before the turn is over."""
        try:
            allowed = await self._guarded(self._decide_permission(call, options))
        except asyncio.CancelledError:
            if not self._is_closed:
                raise
            return None
        except NotAllowed as error:
            log.info("an agent may not call a tool: %s", error)
            allowed = False
        return _option(options, _ALLOWING if allowed else _REFUSING)

    async def _decide_permission(
        self, given: dict[str, Any], options: list[dict[str, Any]]
    ) -> bool:
        pending = AskedPermission(given)
        self._inbox.put(pending)
        call = await pending.recorded
        # As they are shown: the agent may tell other ones later.
        arguments = call.arguments
        text = call.title if call.title != call.name else ""
        if _option(options, _ALLOWING[:1]) is None:
            offered = ", ".join(one_line(str(each.get("name", "")), 80) for each in options)
            text = f"{text} The agent offers only: {offered}."
        is_allowed = await self._is_allowed(
            call.name,
            arguments,
            text=text.strip(),
            name=f"permission:{call.id}",
            needs_approval=True,
        )
        if is_allowed:
            # Only what people could see is approved besides: the file to write, and the program to run.
            shown = [each for each in arguments.values() if isinstance(each, str)]
            self._approved_paths.update(path for path in call.paths if path in shown)
            if isinstance(command := arguments.get("command"), str):
                self._approved_commands.add(command)
        return is_allowed

    async def _is_allowed(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        text: str,
        name: str,
        is_safe: bool = False,
        needs_approval: bool = False,
    ) -> bool:
        """Return whether a call may be made: as the policy says, or a person."""
        services = self._request.services
        proposed = ProposedCall(tool, arguments, is_safe=is_safe, needs_approval=needs_approval)
        (verdict,) = await services.decide([proposed])
        if verdict.decision is not ToolDecision.ASK:
            return verdict.decision is ToolDecision.ALLOW
        decided = self._take_stored(tool, arguments)
        if decided is not None and await services.start_approved(decided.asked.name):
            return True
        if decided is not None:
            text = f"{text} It was approved and begun before the turn was interrupted; it is not known whether it ran."
        question = NewQuestion(
            name=name[:_LONGEST_NAME],
            kind=QuestionKind.APPROVAL,
            text=text,
            tool=tool,
            arguments=arguments,
            rule=verdict.rule,
        )
        answered = await self._ask(question)
        approved = approved_arguments(answered)
        if approved is None:
            reason = "" if answered.answered is None else answered.answered.answer.text
            if reason:
                self._note(tool, outcome_text(answered))
            return False
        if dict(approved) != dict(arguments):
            changed = ", ".join(f"{key} = {value!r}" for key, value in approved.items())
            self._note(tool, f"It may be called with other arguments: {changed}")
            return False
        return await services.start_approved(answered.asked.name)

    def _take_stored(self, tool: str, arguments: Mapping[str, Any]) -> Question | None:
        """Return an approval of just this call, given while the process before was gone, and forget it."""
        for each in self._stored:
            is_same = each.asked.tool == tool and each.asked.arguments == arguments
            if is_same and each.is_approved and approved_arguments(each) == arguments:
                self._stored.remove(each)
                return each
        return None

    def _note(self, tool: str, what: str) -> None:
        self.notes.append(f"The call of {one_line(tool, 120)} was refused. {one_line(what, 2_000)}")

    async def _ask(self, question: NewQuestion) -> Question:
        """Ask people something; the time in which the agent must say something does not run meanwhile."""
        self.waiting += 1
        self._inbox.wake()
        try:
            return await self._request.services.ask_now(
                question, seconds=self._options.question_seconds
            )
        finally:
            self.waiting -= 1
            self._inbox.wake()

    # Files.

    async def read_file(self, path: str, line: int | None, limit: int | None) -> str:
        """Return a text file of the workspace, or some of its lines."""
        if self._options.files is FileAccess.NONE:
            raise RequestError.method_not_found("fs/read_text_file")
        return await self._answered(self._read_file(path, line, limit))

    async def _read_file(self, path: str, line: int | None, limit: int | None) -> str:
        self._workspace.find(path)
        if not await self._is_allowed(
            READ, {"path": path}, text="", name=f"{READ}:{path}", is_safe=True
        ):
            raise NotAllowed(f"A rule forbids to read {path}.")
        return await asyncio.to_thread(self._workspace.read, path, line=line, limit=limit)

    async def write_file(self, path: str, content: str) -> None:
        """Write a text file of the workspace, if the policy allows it or the agent was allowed to edit this file."""
        if self._options.files is not FileAccess.WRITE:
            raise RequestError.method_not_found("fs/write_text_file")
        await self._answered(self._write_file(path, content))

    async def _write_file(self, path: str, content: str) -> None:
        self._workspace.find(path)
        if path in self._approved_paths:
            self._approved_paths.discard(path)
        elif not await self._is_allowed(
            WRITE, {"path": path, "content": content}, text="", name=f"{WRITE}:{path}"
        ):
            raise NotAllowed(f"{path} may not be written.")
        await asyncio.to_thread(self._workspace.write, path, content)

    # Terminals.

    async def create_terminal(self, given: Mapping[str, Any]) -> str:
        """Start a program in the workspace, if the policy allows it or the agent was allowed to run just this."""
        if not self._options.terminals:
            raise RequestError.method_not_found("terminal/create")
        return await self._answered(self._create_terminal(given))

    async def _create_terminal(self, given: Mapping[str, Any]) -> str:
        command = (str(given["command"]), *map(str, given.get("args") or ()))
        folder = self._workspace.find(str(given.get("cwd") or self._workspace.folder))
        line = shlex.join(command) if len(command) > 1 else command[0]
        env = {str(each["name"]): str(each["value"]) for each in given.get("env") or ()}
        arguments: dict[str, Any] = {"command": line, "folder": folder}
        if env:
            arguments["env"] = env
        if not env and line in self._approved_commands:
            self._approved_commands.discard(line)
        elif not await self._is_allowed(RUN, arguments, text="", name=f"{RUN}:{line}"):
            raise NotAllowed(f"{one_line(line, 200)} may not be run.")
        options = ProgramOptions(
            command=command,
            folder=folder,
            environ={**self._options.environ, **env},
            kill_after_seconds=self._options.kill_after_seconds,
        )
        if self._is_closed:
            raise NotAllowed("The turn is over.")
        return await self.terminals.create(options, most_output=given.get("output_byte_limit"))

    def terminal_output(self, terminal_id: str) -> dict[str, Any]:
        """Return what a terminal shows."""
        try:
            return self.terminals.output(terminal_id)
        except NotFound as error:
            raise _refused(error) from error

    async def terminal_exit(self, terminal_id: str) -> dict[str, Any]:
        """Return how the program of a terminal has ended, when it has."""
        return await self._answered(self.terminals.wait(terminal_id))

    async def end_terminal(self, terminal_id: str, *, forget: bool) -> None:
        """End the program of a terminal."""
        await self._answered(self.terminals.end(terminal_id, forget=forget))

    # Values from people.

    async def elicit(self, message: str, schema: dict[str, Any] | None) -> dict[str, Any]:
        """Return what people answer to a form; to open a page for an agent is declined."""
        name = one_line(self._options.command[0], 100)
        if schema is None:
            self.notes.append("A person was to open a page: that is not possible here.")
            return {"action": "decline"}
        try:
            asked = read_elicitation(name, message, schema, name="elicitation", what="agent")
            decided = await self._guarded(self._ask(asked.question))
        except asyncio.CancelledError:
            if not self._is_closed:
                raise
            return {"action": "cancel"}
        except (BadInput, NotAllowed) as error:
            log.warning("what an agent asks cannot be asked: %s", error)
            return {"action": "cancel"}
        if decided.answered is None:
            return {"action": "cancel"}
        content = asked.content(decided)
        return (
            {"action": "decline"} if content is None else {"action": "accept", "content": content}
        )

    async def _answered(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a request, or refuse it in the words of the protocol."""
        try:
            return await self._guarded(work)
        except NotFound as error:
            raise _refused(error) from error
        except (BadInput, NotAllowed, AgentFailed) as error:
            raise RequestError(-32602, str(error)) from error
        except asyncio.CancelledError:
            if not self._is_closed:
                raise
            raise RequestError(-32603, "The turn is over.") from None

    async def _guarded(self, work: Coroutine[Any, Any, T]) -> T:
        """Await something that ends with the turn; what nobody can answer ends the turn."""
        if self._is_closed:
            work.close()
            raise asyncio.CancelledError
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        try:
            return await task
        except (BadInput, NotAllowed, NotFound, AgentFailed):
            raise
        except SessionaryError as error:
            self._inbox.put(error)
            raise NotAllowed("The turn cannot go on.") from error
        finally:
            self._tasks.discard(task)


def _refused(error: NotFound) -> RequestError:
    return RequestError(-32002, str(error))


def _option(options: list[dict[str, Any]], kinds: tuple[str, ...]) -> str | None:
    """Return the option of the first of these kinds that is offered."""
    for kind in kinds:
        for each in options:
            if each.get("kind") == kind and isinstance(each.get("optionId"), str):
                found: str = each["optionId"]
                return found
    return None
