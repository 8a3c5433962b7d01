"""Items of OpenAI's Responses and Conversations APIs: read as messages, and written from them.

A message of ours may be several items: what the model thought, what it said, and each of its calls. An item's id says
where it comes from. What an assistant said in a turn is named by the turn and the number of the step in it, so that
the id is known while the text still streams; anything else by its entry of the log.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sessionary.errors import BadInput
from sessionary.formats import coerce, message_input, openai_items
from sessionary.formats.coerce import Json
from sessionary.formats.message_input import MessageInput
from sessionary.model import codec
from sessionary.model.media import PICTURES
from sessionary.model.message import (
    Attachment,
    Entry,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from sessionary.model.transcript import INTERRUPTED
from sessionary.model.turn_answer import SEPARATOR

# The field of an attachment that keeps the id by which a program named the file.
FILE_ID = "file_id"
# The type of an item for a call that the agent has made itself.
OWN_CALL = "mcp_call"
_CALLS = ("function_call", "custom_tool_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")
_LONGEST_ID = 300
# The ids of sessions that programs have chosen may have any characters.
_ITEM_ID = re.compile(
    r"(msg|rs|fc|fco|mcp)_(.+)([_-])(\d{1,10})(?:\.(\d{1,10}))?", re.ASCII | re.DOTALL
)


class ItemName(Struct, frozen=True):
    """What an item's id says: of which turn and step it is, or of which entry, and which of its calls."""

    kind: str
    # The turn's id, or the session's.
    owner: str
    # The step of the turn, or the number of the entry.
    number: int
    is_entry: bool
    call: int = 0


def parse_item_id(id: str) -> ItemName | None:
    """Read the id of an item that was written here; None for any other."""
    found = _ITEM_ID.fullmatch(id[:_LONGEST_ID])
    if found is None or len(id) > _LONGEST_ID:
        return None
    kind, owner, mark, number, call = found.groups()
    return ItemName(kind, owner, int(number), mark == "-", int(call or 0))


def item_id(kind: str, base: str, call: int | None = None) -> str:
    """The id of an item: `msg`, `rs`, or `fc`, `fco` and `mcp` with the number of the call.

    `base` is the id of an entry, or of a step of a turn: see `step_base`.
    """
    return f"{kind}_{base}" + ("" if call is None else f".{call}")


def step_base(turn_id: str, step: int) -> str:
    """The base of the ids of a step's items: the turn's id and the number of the step."""
    return f"{turn_id}_{step}"


@dataclass(slots=True)
class ResponsesInput:
    """Reads the items of an input, one after the other, as messages.

    All that an assistant says between two messages of others becomes one message, as `model.turn_answer` has it: a
    program that sends a whole conversation again is recognised by it.
    """

    messages: list[MessageInput] = field(default_factory=list)

    def add(self, item: Any) -> None:
        """Read one item; raises `BadInput` for one that a model would not read."""
        if not isinstance(item, Mapping):
            raise BadInput(f"An item is a JSON object, not {type(item).__name__}.")
        kind = item.get("type")
        if kind is None or kind == "message":
            self._add_message(item)
        elif kind in _CALLS:
            self.add_message(message_input.read_message("assistant", [dict(item)]))
        elif kind == "reasoning":
            # What another provider has encrypted is of no use to the agent's model.
            given = {**item, "encrypted_content": None}
            if _has_words(given):
                self.add_message(message_input.read_message("assistant", [given]))
        elif kind in _RESULTS:
            self.add_message(message_input.read_message("tool", [dict(item)]))
        elif kind != OWN_CALL:  # the record has what the agent's own tools did
            raise BadInput(
                f"An item of type {_named(kind)} cannot be read here; use message, function_call, "
                "function_call_output, reasoning or item_reference."
            )

    def add_message(self, made: MessageInput) -> None:
        """Add a message; what an assistant says goes on in its message before."""
        before = self.messages[-1] if self.messages else None
        if (
            before is None
            or before.message.role is not Role.ASSISTANT
            or made.message.role is not Role.ASSISTANT
        ):
            self.messages.append(made)
            return
        parts = _joined(before.message.parts, made.message.parts)
        joined = replace(before.message, parts=parts)
        self.messages[-1] = MessageInput(joined, (*before.files, *made.files))

    def _add_message(self, item: Mapping[str, Any]) -> None:
        role = item.get("role")
        if role not in ("user", "assistant", "system", "developer"):
            raise BadInput(
                f"The role of a message is user, assistant, system or developer, not {_named(role)}."
            )
        content = item.get("content")
        if not isinstance(content, str | list):
            raise BadInput("The content of a message is a text or a list of parts.")
        self.add_message(message_input.read_message(openai_items.role_of(role), content or ""))


def _joined(before: tuple[Part, ...], made: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts of both with one text, in which a blank line separates what was said apart."""
    parts = list(before)
    place = next((n for n, part in enumerate(parts) if isinstance(part, Text)), None)
    for part in made:
        if place is None or not isinstance(part, Text):
            place = len(parts) if isinstance(part, Text) else place
            parts.append(part)
            continue
        text = parts[place].text  # type: ignore[union-attr]
        is_apart = not text or not part.text or part.text.startswith(SEPARATOR)
        parts[place] = Text(text + ("" if is_apart else SEPARATOR) + part.text)
    return tuple(parts)


def _named(value: object) -> str:
    return repr(value)[:60]


def _has_words(item: Json) -> bool:
    given = [*coerce.records(item.get("summary")), *coerce.records(item.get("content"))]
    return any(coerce.text(each.get("text")) for each in given)


def map_content(items: Sequence[Any], change: Any) -> list[Any]:
    """The items with `change(part)` in the place of each part of their contents and outputs."""
    return [_mapped(item, change) for item in items]


def _mapped(item: Any, change: Any) -> Any:
    if not isinstance(item, dict):
        return item
    made = dict(item)
    for name in ("content", "output"):
        if isinstance(made.get(name), list):
            made[name] = [change(part) for part in made[name]]
    return made


def output_text(text: str) -> Json:
    """A text of an assistant."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def message_item(id: str, text: str, *, status: str = "completed") -> Json:
    """What an assistant said."""
    content = [output_text(text)] if text or status == "completed" else []
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
    }


def reasoning_item(id: str, texts: Sequence[str], *, encrypted: str | None = None) -> Json:
    """What a model thought."""
    made: Json = {
        "id": id,
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": text} for text in texts],
    }
    return made if encrypted is None else made | {"encrypted_content": encrypted}


def call_item(id: str, call: ToolCall, *, status: str = "completed") -> Json:
    """A call of a function of the program's."""
    return {
        "id": id,
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": arguments_of(call),
        "status": status,
    }


def own_call_item(id: str, call: ToolCall, result: ToolResult | None, *, server_label: str) -> Json:
    """A call that the agent has made itself, in the type that programs know for tools which run elsewhere."""
    is_error = result is not None and result.is_error
    shown = None if result is None else _shown(result.content)
    return {
        "id": id,
        "type": OWN_CALL,
        "name": call.name,
        "arguments": arguments_of(call),
        "server_label": server_label,
        "output": None if is_error else shown,
        "error": {"type": "mcp_tool_execution_error", "content": shown} if is_error else None,
        "status": "in_progress" if result is None else "failed" if is_error else "completed",
    }


def arguments_of(call: ToolCall) -> str:
    """The arguments of a call as JSON."""
    given = call.arguments
    if given is None:
        return "{}"
    return given if isinstance(given, str) else codec.encode(given)


def _shown(content: Any) -> str:
    return content if isinstance(content, str) else codec.encode(content)


def _words(message: Message) -> str:
    """What is said in a message, as it was streamed: without line breaks between the parts."""
    return "".join(part.text for part in message.parts if isinstance(part, Text))


def said_items(message: Message, base: str, *, text_before: str = "", **kept: bool) -> list[Json]:
    """What an assistant thought and said in one message, as items; `kept` is for `_thought`."""
    made = _thought(message, base, **kept)
    has_calls = any(isinstance(part, ToolCall) for part in message.parts)
    if (text := _words(message)) or not (made or has_calls):
        made.append(message_item(item_id("msg", base), text_before + text))
    return made


def _thought(message: Message, base: str, *, with_encrypted: bool = False) -> list[Json]:
    thoughts = [part for part in message.parts if isinstance(part, Reasoning)]
    encrypted = _encrypted(thoughts) if with_encrypted else None
    text = SEPARATOR.join(part.text for part in thoughts if part.text)
    if not (text or encrypted):
        return []
    texts = [text] if text else []
    return [reasoning_item(item_id("rs", base), texts, encrypted=encrypted)]


class TurnItems:
    """What an agent has said and done in a turn, as the output of a response, message by message.

    `tools` are those that the program runs; other calls are the agent's own. A text that follows another begins with a
    blank line, because programs join them.
    """

    def __init__(
        self,
        turn_id: str,
        *,
        tools: Collection[str],
        server_label: str,
        with_encrypted: bool = False,
    ) -> None:
        self._turn_id = turn_id
        self._tools = tools
        self._label = server_label
        self._with_encrypted = with_encrypted
        self._step = 0
        self._has_text = False
        self._goes_on = False
        self._own: dict[str, tuple[int, ToolCall]] = {}
        self.output: list[Json] = []

    @property
    def base(self) -> str:
        """The base of the ids of the items of the step that comes next."""
        return step_base(self._turn_id, self._step)

    @property
    def text_before(self) -> str:
        """What the next text begins with."""
        return SEPARATOR if self._has_text and not self._goes_on else ""

    def add(self, message: Message) -> list[int]:
        """Add the next message of the turn; return the places in `output` that are new or changed."""
        if message.role is Role.TOOL:
            results = (part for part in message.parts if isinstance(part, ToolResult))
            return [place for part in results for place in self._finish(part)]
        if message.role is not Role.ASSISTANT:
            return []
        before, base = len(self.output), self.base
        self.output += said_items(
            message, base, text_before=self.text_before, with_encrypted=self._with_encrypted
        )
        # Some providers use the same ids again in each of their answers.
        self._own.clear()
        calls = [part for part in message.parts if isinstance(part, ToolCall)]
        for number, call in enumerate(calls):
            if call.name in self._tools:
                self.output.append(call_item(item_id("fc", base, number), call))
            else:
                self._own[call.id] = len(self.output), call
                id = item_id("mcp", base, number)
                self.output.append(own_call_item(id, call, None, server_label=self._label))
        self._step += 1
        if _words(message):
            self._has_text = True
            self._goes_on = message.finish_reason == INTERRUPTED and not calls
        return list(range(before, len(self.output)))

    def _finish(self, result: ToolResult) -> list[int]:
        found = self._own.pop(result.call_id, None)
        if found is None:
            return []
        place, call = found
        id = self.output[place]["id"]
        self.output[place] = own_call_item(id, call, result, server_label=self._label)
        return [place]

    def add_notice(self, text: str) -> int:
        """Add what a program is told instead of the rest of the answer; return its place in `output`."""
        item = message_item(item_id("msg", self.base), self.text_before + text)
        self.output.append(item)
        return len(self.output) - 1

    def cut(self) -> None:
        """Note that the turn has ended before the agent had finished."""
        for number, item in enumerate(self.output):
            is_last = number == len(self.output) - 1
            if item.get("status") == "in_progress" or (is_last and item["type"] == "message"):
                self.output[number] = {**item, "status": "incomplete"}


def _encrypted(thoughts: Sequence[Reasoning]) -> str | None:
    details = (each.details for each in thoughts if isinstance(each.details, Mapping))
    found = (each.get("encrypted_content") for each in details)
    return next((each for each in found if isinstance(each, str) and each), None)


def entry_items(entry: Entry, step: int | None = None) -> list[Json]:
    """An entry as the items of a conversation; `step` is its number in its turn, if it is one of a turn's steps."""
    message = entry.body
    if not isinstance(message, Message):
        return []
    if message.role is Role.TOOL:
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        return [_result_item(entry, number, part) for number, part in enumerate(results)]
    if message.role is Role.ASSISTANT:
        base = entry.id
        if step is not None and entry.turn_id is not None:
            base = step_base(entry.turn_id, step)
        made = said_items(message, base)
        calls = [part for part in message.parts if isinstance(part, ToolCall)]
        made += [call_item(item_id("fc", base, n), call) for n, call in enumerate(calls)]
        files = [_file_content(part) for part in message.parts if isinstance(part, Attachment)]
        for item in made:
            if item["type"] == "message":
                item["content"] += files
        return made
    found = map(_input_content, message.parts)
    content = [each for each in found if each is not None]
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    items = [_result_item(entry, number, part) for number, part in enumerate(results)]
    if content or not items:
        items.append(
            {
                "id": item_id("msg", entry.id),
                "type": "message",
                "role": str(message.role),
                "status": "completed",
                "content": content,
            }
        )
    return items


def _result_item(entry: Entry, number: int, result: ToolResult) -> Json:
    return {
        "id": item_id("fco", entry.id, number),
        "type": "function_call_output",
        "call_id": result.call_id,
        "output": _shown(result.content),
        "status": "completed",
    }


def _input_content(part: Part) -> Json | None:
    match part:
        case Text(text=text, extra=extra):
            reference = coerce.record(extra.get("reference"))
            address = coerce.name(reference.get("image_url"))
            if reference.get("type") == "input_image" and address:
                return {"type": "input_image", "detail": "auto", "image_url": address}
            return {"type": "input_text", "text": text}
        case Attachment():
            return _file_content(part)
    return None


def _file_content(part: Attachment) -> Json:
    """A file as an item has it: its bytes are read with the id of the file, if it has one."""
    known = coerce.name(part.extra.get(FILE_ID))
    if part.media_type in PICTURES:
        return {"type": "input_image", "detail": "auto", "file_id": known, "image_url": None}
    return {"type": "input_file", "file_id": known, "filename": part.name or "file"}
