"""How an agent that asks a model is set up; no library is needed to say it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sessionary.agents.settings import Options
from sessionary.config.secret import Secret

# What a session may set for itself; the rest belongs to the configuration.
SESSION_SETTINGS = ("max_tokens", "seed", "temperature", "thinking", "top_p")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolServer:
    """An MCP server: a program that we start, or an address. Its name begins its tools' names."""

    command: tuple[str, ...] = ()
    url: str | None = None
    name: str | None = None
    folder: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    key: Secret | None = None

    @property
    def label(self) -> str:
        """What to call it in a sentence."""
        return self.name or self.url or " ".join(self.command[:2])


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Which model, where, with which tools, and how patient we are."""

    model: str
    provider: str | None = None
    base_url: str | None = None
    key: Secret | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[ToolServer, ...] = ()
    timeout_seconds: float = 120.0
    tool_timeout_seconds: float = 120.0
    attempts: int = 3
    first_wait_seconds: float = 0.5
    longest_wait_seconds: float = 30.0
    most_calls: int = 50
    most_malformed: int = 3
    most_tool_characters: int = 100_000
    requires_finish_reason: bool = True


def model_options(options: Options) -> ModelOptions:
    """Read the options of a model agent."""
    return ModelOptions(
        model=options.required("model"),
        provider=options.text("provider"),
        base_url=options.text("base_url"),
        key=options.secret("api_key"),
        settings=options.mapping("settings"),
        tools=tuple(_tool_server(each) for each in options.tables("mcp")),
        timeout_seconds=options.number("timeout_seconds", 120.0, least=0.001),
        tool_timeout_seconds=options.number("tool_timeout_seconds", 120.0, least=0.001),
        attempts=int(options.number("attempts", 3, least=1)),
        longest_wait_seconds=options.number("longest_wait_seconds", 30.0),
        most_calls=int(options.number("most_calls", 50, least=1)),
        requires_finish_reason=options.flag("requires_finish_reason", default=True),
    )


def _tool_server(options: Options) -> ToolServer:
    server = ToolServer(
        command=options.texts("command"),
        url=options.text("url"),
        name=options.text("name"),
        folder=options.text("folder"),
        environ=options.mapping("env"),
        headers=options.mapping("headers"),
        key=options.secret("api_key"),
    )
    options.refuse_unknown()
    if bool(server.command) == bool(server.url):
        raise options.bad("an MCP server has either a command or a url.")
    return server
