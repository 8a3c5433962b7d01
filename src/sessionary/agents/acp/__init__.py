"""Agents that speak the Agent Client Protocol: coding agents, programs that are asked over standard streams."""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from sessionary.agents.model import ToolServer
from sessionary.agents.program import ProgramOptions, program_environment
from sessionary.agents.registry import AgentContext, AgentKind
from sessionary.config.setting import MAX_SECONDS, Seconds, Setting, TextTable
from sessionary.errors import BadInput

if TYPE_CHECKING:
    from sessionary.agents.acp.runner import AcpRunner

LIBRARY = "acp"


class FileAccess(StrEnum):
    """What an agent may do with the files of its workspace through us, besides what it can do by itself."""

    NONE = "none"
    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpOptions(ProgramOptions):
    """The program, the workspace in which it works, what it may ask of us, and its limits."""

    workspace: Annotated[
        str | None,
        Setting(
            "the directory in which the agent works; default: that of the editor's project, or its folder",
            example="/src/app",
        ),
    ] = None
    mode: Annotated[str | None, Setting("one of the modes that it offers", example="plan")] = None
    model: Annotated[str | None, Setting("one of the models that it offers", example="opus")] = None
    choices: Annotated[
        TextTable, Setting("values of other options that it offers, by their ids")
    ] = field(default_factory=dict)
    auth: Annotated[
        str | None,
        Setting(
            "the id of one of its ways to log in, used when it asks for a login",
            example="api-key",
        ),
    ] = None
    send_prompt: Annotated[
        bool,
        Setting(
            "begin each session of it with the prompt of the agent and what is known of the chat"
        ),
    ] = True
    files: Annotated[
        FileAccess,
        Setting("whether it may read or write files of the workspace through Sessionary"),
    ] = FileAccess.NONE
    terminals: Annotated[
        bool,
        Setting("whether it may run programs through Sessionary; the policy decides about each"),
    ] = False
    records: Annotated[
        str | None,
        Setting(
            "the tool whose records it writes, so that an import knows its sessions; default: known by its name",
            example="claude-code",
        ),
    ] = None
    timeout_seconds: Annotated[Seconds, Setting("how long to wait for its next message")] = 600.0
    start_seconds: Annotated[
        Seconds, Setting("how long to wait until it has started, and has its session")
    ] = 60.0
    question_seconds: Annotated[
        Seconds, Setting("how long it waits for an approval or an answer")
    ] = 600.0
    keep_seconds: Annotated[
        float,
        Setting(
            "how long it keeps running after a turn, for the next one of the session",
            ge=0,
            le=MAX_SECONDS,
        ),
    ] = 300.0
    most_kept: Annotated[int, Setting("how many of its processes keep running", ge=0)] = 4
    handover_tokens: Annotated[
        int,
        Setting("how much of a conversation it is told when it begins a session of its own", ge=0),
    ] = 20_000
    most_bytes: Annotated[int, Setting("how much it may write in one turn", ge=1)] = (
        64 * 1024 * 1024
    )
    tools: Annotated[
        tuple[ToolServer, ...], Setting("MCP servers that it is given", name="mcp")
    ] = ()
    # Not in the file.
    close_seconds: float = 1.0
    most_line_bytes: int = 32 * 1024 * 1024
    most_rubbish_lines: int = 1000
    cancel_seconds: float = 2.0


def create(options: AcpOptions, context: AgentContext) -> "AcpRunner":
    """Return the runner; raise `BadInput` if the protocol's package is not installed."""
    if importlib.util.find_spec(LIBRARY) is None:
        raise BadInput(
            f"The agent {' '.join(options.command[:1])} speaks ACP; install what that needs: "
            f"pip install '{AGENT.extra}'."
        )
    # The protocol's package takes half a second to load, which commands that run no turn need not wait for.
    from sessionary.agents.acp.runner import AcpRunner

    passed: Mapping[str, str] = program_environment(
        context.environ, names=options.pass_env, added=options.env
    )
    return AcpRunner(replace(options, environ=passed))


AGENT = AgentKind(
    name="acp",
    title="A coding agent that speaks ACP",
    settings=AcpOptions,
    create=create,
    extra="sessionary[acp]",
    documentation="docs/agents.md",
    resumes=True,
)
