"""What a program asks of one turn besides its message: instructions, its own tools, settings of the model."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from sessionary.model import codec
from sessionary.model.source import Source

# In the `extra` of a source: that its message came through an interface whose caller waits for the answer.
_AWAITED = "awaited"


class ClientTool(Struct, frozen=True, omit_defaults=True):
    """A tool that the program runs: a call of it ends the turn, and its result comes with the next message."""

    name: str
    description: str = ""
    # The JSON schema of its arguments.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    strict: bool | None = None


class OutputFormat(Struct, frozen=True, omit_defaults=True):
    """The answer is to be JSON; with a schema, of that form."""

    schema: Mapping[str, Any] | None = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class TurnOptions(Struct, frozen=True, omit_defaults=True):
    """What a program asks of one turn; stored with its message, so that any process can go on with the turn."""

    # They follow the agent's own prompt.
    instructions: str = ""
    tools: tuple[ClientTool, ...] = ()
    # For the first call of the model: "auto", "required", or the names of tools of which one must be called.
    tool_choice: str | tuple[str, ...] = "auto"
    parallel_tool_calls: bool | None = None
    # As in the settings of a session: temperature, max_tokens and so on.
    settings: Mapping[str, Any] = field(default_factory=dict)
    output: OutputFormat | None = None

    @property
    def tool_names(self) -> frozenset[str]:
        """The names of the tools that the program runs."""
        return frozenset(each.name for each in self.tools)

    def encode(self) -> str | None:
        """Return the options as they are stored; None if nothing is asked."""
        return None if self == TurnOptions() else codec.encode(msgspec.to_builtins(self))


def decode_options(text: str) -> TurnOptions:
    """The inverse of `TurnOptions.encode`."""
    return msgspec.convert(codec.decode(text), TurnOptions)


class AwaitedRequest(Struct, frozen=True, omit_defaults=True):
    """What is known of the request that a message came with: its hash, and the blob of its options.

    `asked` is what its interface repeats when it is asked for the answer later.
    """

    fingerprint: str
    options: str | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)


def awaited(source: Source, request: AwaitedRequest) -> Source:
    """Mark a source: the program that sent the message waits for the answer, so nothing is delivered to its channel."""
    return replace(source, extra={**source.extra, _AWAITED: msgspec.to_builtins(request)})


def awaited_by(source: Source) -> AwaitedRequest | None:
    """The request that waits for the answer to a message; None for a message of any other kind."""
    found = source.extra.get(_AWAITED)
    if not isinstance(found, Mapping) or not isinstance(found.get("fingerprint"), str):
        return None  # /arrivals takes any `extra`
    options, asked = found.get("options"), found.get("asked")
    return AwaitedRequest(
        found["fingerprint"],
        options if isinstance(options, str) else None,
        asked if isinstance(asked, Mapping) else {},
    )
