"""Conversations of OpenAI's Chat Completions interface, read as messages; and our answers, written in its form."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from sessionary.errors import BadInput
from sessionary.formats import coerce
from sessionary.formats.coerce import Json
from sessionary.formats.message_input import MessageInput, read_message
from sessionary.model import codec
from sessionary.model.message import ToolCall
from sessionary.model.source import Person
from sessionary.model.turn_options import ClientTool, OutputFormat

_ROLES = ("system", "developer", "user", "assistant", "tool")
_MOST_TOOLS = 128
_LONGEST_NAME = 128


class BadParameter(BadInput):
    """A part of a request that cannot be used; `param` says which, as in `messages[3].content`."""

    kind = "bad-parameter"

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


class ChatInput(Struct, frozen=True):
    """A conversation as a program sends it: what it says in system messages, and all other messages in order."""

    instructions: str
    messages: tuple[MessageInput, ...]


def read_chat(items: Sequence[Any], *, person: Person | None = None) -> ChatInput:
    """Read the messages of a chat; `person` is who wrote those of the user.

    Files come as data; one that is only named by an address is a note in the text, and is never fetched. Raises
    `BadParameter`.
    """
    instructions: list[str] = []
    messages: list[MessageInput] = []
    names: dict[str, str] = {}
    for number, item in enumerate(items):
        param = f"messages[{number}]"
        if not isinstance(item, dict):
            raise BadParameter(f"{param} is no object; nothing was stored.", param)
        role = item.get("role")
        if role not in _ROLES:
            raise BadParameter(
                f"{param}.role is {str(role)[:40]!r}; use one of {', '.join(_ROLES)}. Nothing was stored.",
                f"{param}.role",
            )
        try:
            if role in ("system", "developer"):
                instructions.append(_text(item.get("content"), f"{param}.content"))
            elif role == "user":
                messages.append(_user_message(item, person))
            elif role == "assistant":
                messages.append(_assistant_message(item, names))
            else:
                messages.append(_tool_message(item, names, param))
        except BadParameter:
            raise
        except BadInput as error:
            raise BadParameter(f"{param}.content: {error}", f"{param}.content") from error
    return ChatInput("\n\n".join(filter(None, instructions)), tuple(messages))


def _user_message(item: Json, person: Person | None) -> MessageInput:
    content = item.get("content")
    if not isinstance(content, str | list) or content == []:
        raise BadInput("a message of a user has a text or a list of parts; nothing was stored.")
    name = coerce.name(item.get("name"))
    by = person if person is None or name is None else Person(person.id, person.alt_id, name)
    return read_message("user", content, person=by)


def _assistant_message(item: Json, names: dict[str, str]) -> MessageInput:
    parts: list[Any] = []
    content = item.get("content")
    if isinstance(content, str):
        parts += [{"type": "text", "text": content}] if content else []
    elif isinstance(content, list):
        parts += content
    elif content is not None:
        raise BadInput("it is a text, a list of parts or null; nothing was stored.")
    if isinstance(item.get("refusal"), str):
        parts.append({"type": "text", "text": item["refusal"]})
    for call in coerce.records(item.get("tool_calls")):
        function = coerce.record(call.get("function")) or coerce.record(call.get("custom"))
        id, name = coerce.name(call.get("id")), coerce.name(function.get("name"))
        if id is None or name is None:
            raise BadInput("a tool call needs an id and a name; nothing was stored.")
        arguments = function.get("arguments", function.get("input"))
        names[id] = name
        parts.append(
            {
                "type": "tool_call",
                "id": id,
                "name": name,
                "arguments": coerce.parse_json_or_keep(arguments),
            }
        )
    return read_message("assistant", parts)


def _tool_message(item: Json, names: Mapping[str, str], param: str) -> MessageInput:
    id = coerce.name(item.get("tool_call_id"))
    if id is None:
        raise BadParameter(
            f"{param} needs the tool_call_id that it answers; nothing was stored.",
            f"{param}.tool_call_id",
        )
    content = _text(item.get("content"), f"{param}.content")
    part = {"type": "tool_result", "call_id": id, "content": content}
    if id in names:
        part["name"] = names[id]
    return read_message("tool", [part])


def _text(content: object, param: str) -> str:
    """Return the text of a content: a text, or parts with texts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        found = [each.get("text") if isinstance(each, dict) else None for each in content]
        texts = [each for each in found if isinstance(each, str)]
        if len(texts) == len(content):
            return "\n".join(texts)
    raise BadParameter(f"{param} is a text, or a list of texts; nothing was stored.", param)


def read_tools(items: Sequence[Any] | None) -> tuple[ClientTool, ...]:
    """Read the tools that a program runs itself; raises `BadParameter`."""
    found: dict[str, ClientTool] = {}
    if len(items or ()) > _MOST_TOOLS:
        raise BadParameter(f"There are more than {_MOST_TOOLS} tools; nothing was stored.", "tools")
    for number, item in enumerate(items or ()):
        param = f"tools[{number}]"
        kind = item.get("type") if isinstance(item, dict) else None
        if kind != "function":
            raise BadParameter(
                f"{param} is of type {str(kind)[:40]!r}: only tools of type function can be given. Nothing was stored.",
                param,
            )
        function = coerce.record(item.get("function")) or item
        tool = read_function(function, param)
        if tool.name in found:
            raise BadParameter(f"Two tools are called {tool.name!r}; nothing was stored.", param)
        found[tool.name] = tool
    return tuple(found.values())


def read_function(function: Json, param: str) -> ClientTool:
    """Read the description of one function."""
    name, parameters = function.get("name"), function.get("parameters")
    strict = function.get("strict")
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
        raise BadParameter(f"{param} needs a name; nothing was stored.", f"{param}.function.name")
    if parameters is not None and not isinstance(parameters, dict):
        raise BadParameter(
            f"{param}: the parameters are a JSON schema; nothing was stored.",
            f"{param}.function.parameters",
        )
    return ClientTool(
        name,
        coerce.text(function.get("description")),
        parameters or {},
        strict if isinstance(strict, bool) else None,
    )


def read_tool_choice(
    choice: Any, tools: Sequence[ClientTool]
) -> tuple[str | tuple[str, ...], tuple[ClientTool, ...]]:
    """Return which tools must be called first, and those that are offered; raises `BadParameter`."""
    match choice:
        case None | "auto":
            return "auto", tuple(tools)
        case "none":
            return "auto", ()
        case "required":
            return "required", tuple(tools)
        case {"type": "allowed_tools", "allowed_tools": {"tools": [*_]} as allowed}:
            names = {_named(each) for each in allowed["tools"]}
            chosen = tuple(each for each in tools if each.name in names)
            return ("required" if allowed.get("mode") == "required" else "auto"), chosen
        case {"type": "function"}:
            name = _named(choice)
            if any(each.name == name for each in tools):
                return (str(name),), tuple(tools)
    raise BadParameter(
        'tool_choice is "auto", "none", "required", or one of the functions in `tools`; nothing was stored.',
        "tool_choice",
    )


def _named(item: Any) -> str | None:
    record = coerce.record(item)
    return coerce.name(coerce.record(record.get("function")).get("name")) or coerce.name(
        record.get("name")
    )


def read_output_format(given: Any, param: str = "response_format") -> OutputFormat | None:
    """Read the form in which the answer is to be; None for plain text. Raises `BadParameter`."""
    match given:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return OutputFormat()
        case {"type": "json_schema"}:
            described = coerce.record(given.get("json_schema")) or given
            schema, strict = described.get("schema"), described.get("strict")
            if isinstance(schema, dict):
                return OutputFormat(
                    schema,
                    coerce.name(described.get("name")),
                    coerce.name(described.get("description")),
                    strict if isinstance(strict, bool) else None,
                )
    raise BadParameter(
        f"{param} is of type text, json_object, or json_schema with a schema; nothing was stored.",
        param,
    )


def call_json(call: ToolCall) -> Json:
    """A tool call in the form of a chat message."""
    arguments = call.arguments
    text = arguments if isinstance(arguments, str) else codec.encode(arguments or {})
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": text}}
