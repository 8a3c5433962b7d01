"""What an editor shows of a session: messages as updates of the Agent Client Protocol, in plain JSON."""

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sessionary.errors import BadInput
from sessionary.formats.acp import EXTRA, UPDATE, part_of_block, text_block
from sessionary.formats.coerce import Json
from sessionary.model import codec
from sessionary.model.message import (
    Attachment,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from sessionary.model.question import file_edits
from sessionary.model.terminal import one_line
from sessionary.model.transcript import chat_text, cut_middle

LONGEST_TITLE = 120
LONGEST_OUTPUT = 100_000
# Longer arguments, and the changes in them, are not shown.
LONGEST_ARGUMENTS = 1_000_000
# A larger file is only named: an editor would hold all of them.
MOST_FILE_BYTES = 8_000_000
# The kind of a call that stands for a plan in the record.
PLAN = "plan"
_MARK = "[ ] "
_MARKED = {_MARK: "pending", "[~] ": "in_progress", "[x] ": "completed"}
KINDS = (
    *("read", "edit", "delete", "move", "search"),
    *("execute", "think", "fetch", "switch_mode", "other"),
)


# What an editor sends.


def read_blocks(blocks: Iterable[Mapping[str, Any]]) -> tuple[tuple[Part, ...], tuple[bytes, ...]]:
    """Return the parts of a message that consists of blocks of content, and the bytes of its files.

    Raise `BadInput` for a block that cannot be read.
    """
    parts: list[Part] = []
    files: list[bytes] = []
    for block in blocks:
        part, data = part_of_block(block)
        if isinstance(part, Unknown):
            kind = one_line(str(block.get("type")), 60)
            raise BadInput(f"A block of the type {kind} cannot be read; nothing was sent.")
        if isinstance(part, Text) and not part.text:
            continue
        if isinstance(part, Attachment) and not data:
            continue
        parts.append(part)
        if data is not None:
            files.append(data)
    return tuple(parts), tuple(files)


# What an editor is shown.


def chunk(kind: str, block: Json, *, id: str | None = None) -> Json:
    """Return a piece of a message: of the user, of the agent, or of its thoughts; `id` tells messages apart."""
    made: Json = {"sessionUpdate": f"{kind}_chunk", "content": block}
    if id is not None:
        made["messageId"] = id
    return made


def agent_text(text: str, *, id: str | None = None) -> Json:
    """Return a piece of what the agent says."""
    return chunk("agent_message", text_block(text), id=id)


def thought(text: str, *, id: str | None = None) -> Json:
    """Return a piece of what the agent thinks."""
    return chunk("agent_thought", text_block(text), id=id)


class OpenCall(Struct, frozen=True):
    """A tool call that is shown and has no result yet: its id for the editor, and the changes that it makes."""

    id: str
    name: str
    arguments: Any
    content: tuple[Json, ...] = ()
    facts: Mapping[str, Any] = {}


class MessageReader:
    """Turns the messages of a session, in their order, into what an editor shows."""

    def __init__(self, folder: str) -> None:
        """`folder` is where relative paths of tool calls begin."""
        self._folder = PurePath(folder)
        # The calls without a result, by the ids that the model gave them.
        self.open_calls: dict[str, OpenCall] = {}

    def updates(
        self, message: Message, seq: int, *, id: str, files: Mapping[str, bytes]
    ) -> Iterator[Json]:
        """Yield the updates for one message, which is the entry `seq`; `files` has the bytes of its attachments."""
        kind = "user_message" if message.role is Role.USER else "agent_message"
        calls = 0
        for part in message.parts:
            match part:
                case Text(text=text) if text:
                    yield chunk(kind, _block_of_text(part), id=id)
                case Reasoning(text=text) if text:
                    yield thought(text, id=id)
                case Attachment():
                    yield chunk(kind, _block_of_file(part, files.get(part.blob)), id=id)
                case ToolCall():
                    calls += 1
                    yield from self._begin_call(part, f"{seq}.{calls}")
                case ToolResult():
                    calls += 1
                    yield from self._end_call(part, f"{seq}.{calls}")
                case Unknown(data={"type": str(type), "update": dict(update)}) if type == UPDATE:
                    if update.get("sessionUpdate") == "plan":
                        yield update

    def _begin_call(self, call: ToolCall, place: str) -> Iterator[Json]:
        # Ids of models may repeat in a session; the number of the entry does not.
        if len(codec.encode(call.arguments)) > LONGEST_ARGUMENTS:
            call = replace(call, arguments=None)
        content = self._diffs(call)
        facts = call.extra.get(EXTRA)  # what an agent that speaks the protocol has told
        if isinstance(facts, Mapping) and facts.get("kind") == PLAN:
            # Such an agent's plan: its call and its result were made for the record.
            self.open_calls[call.id] = OpenCall("", call.name, None)
            yield {"sessionUpdate": "plan", "entries": _read_plan(call.arguments)}
            return
        opened = OpenCall(
            f"call-{place}",
            call.name,
            call.arguments,
            tuple(content),
            facts if isinstance(facts, Mapping) else {},
        )
        self.open_calls[call.id] = opened
        yield {"sessionUpdate": "tool_call", **self.describe(opened), "status": "pending"}
        entries = _plan_entries(call.arguments)
        if entries:
            yield {"sessionUpdate": "plan", "entries": entries}

    def describe(self, call: OpenCall) -> Json:
        """Return what an editor shows of a tool call, without its state."""
        kind, title = call.facts.get("kind"), call.facts.get("title")
        described: Json = {
            "toolCallId": call.id,
            "title": title if title else tool_title(call.name, call.arguments),
            "kind": kind if kind in KINDS else tool_kind(call.name),
        }
        if call.arguments is not None:
            described["rawInput"] = call.arguments
        if call.content:
            described["content"] = list(call.content)
        locations = call.facts.get("locations") or self._locations(call.arguments)
        if locations:
            described["locations"] = locations
        return described

    def _end_call(self, result: ToolResult, place: str) -> Iterator[Json]:
        call = self.open_calls.pop(result.call_id, None)
        if call is not None and not call.id:
            return
        status = "failed" if result.is_error else "completed"
        words = cut_middle(_output_text(result.content), LONGEST_OUTPUT)
        content = [] if call is None or result.is_error else list(call.content)
        if words:
            content.append({"type": "content", "content": text_block(words)})
        if call is None:  # its call is not in this session: it may have been taken back
            yield {
                "sessionUpdate": "tool_call",
                "toolCallId": f"call-{place}",
                "title": tool_title(result.name or "a tool", None),
                "kind": tool_kind(result.name or ""),
                "status": status,
                "content": content,
            }
            return
        update: Json = {
            "sessionUpdate": "tool_call_update",
            "toolCallId": call.id,
            "status": status,
        }
        yield update | {"content": content} if content else update

    def _diffs(self, call: ToolCall) -> list[Json]:
        """Return the changes to files that a call makes, as an editor shows them."""
        arguments = call.arguments if isinstance(call.arguments, Mapping) else {}
        found = [
            {
                "type": "diff",
                "path": self._path(edit.path),
                "oldText": edit.before,
                "newText": edit.after,
            }
            for edit in file_edits(arguments)
            if edit.path
        ]
        if found or tool_kind(call.name) != "edit":
            return found
        path, content = _first(arguments, _PATHS), _first(arguments, ("content", "file_text"))
        if path is None or content is None:
            return []
        return [{"type": "diff", "path": self._path(path), "newText": content}]

    def _locations(self, arguments: Any) -> list[Json]:
        given = arguments if isinstance(arguments, Mapping) else {}
        path = _first(given, _PATHS)
        if path is None:
            return []
        lines = (given.get(name) for name in ("line", "start_line", "offset"))
        line = next((each for each in lines if type(each) is int and each > 0), None)
        return [{"path": self._path(path)} | ({} if line is None else {"line": line})]

    def _path(self, path: str) -> str:
        return str(self._folder / path)


_PATHS = ("path", "file_path", "filename", "file", "notebook_path")
# What says best what a call does, from the first on.
_TELLING = (
    *_PATHS,
    "command",
    "cmd",
    "query",
    "pattern",
    "url",
    "description",
    "name",
    "prompt",
)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_KIND_WORDS: Mapping[str, frozenset[str]] = {
    kind: frozenset(words.split())
    for kind, words in {
        "edit": "edit write create patch replace insert apply update multiedit",
        "delete": "delete remove rm unlink",
        "move": "move rename mv",
        "execute": "bash shell exec execute run terminal command python eval",
        "fetch": "fetch web http browse browser download url curl",
        "search": "search grep glob find list ls",
        "think": "think plan todo todos reason",
        "read": "read view cat open get show",
    }.items()
}


def tool_kind(name: str) -> str:
    """Return the kind of a tool as far as its name says it; editors choose an icon by it."""
    own = name.rpartition("__")[2]  # without the name of an MCP server
    words = {word.lower() for word in _WORD.findall(own)}
    if words & _KIND_WORDS["think"]:
        return "think"
    return next((kind for kind, known in _KIND_WORDS.items() if words & known), "other")


def tool_title(name: str, arguments: Any) -> str:
    """Return one line about a call: the tool, and what says best what it does."""
    given = arguments if isinstance(arguments, Mapping) else {}
    what = _first(given, _TELLING)
    return one_line(name if not what else f"{name}: {what}", LONGEST_TITLE)


def _first(given: Mapping[str, Any], names: Iterable[str]) -> str | None:
    found = (given.get(name) for name in names)
    return next((each for each in found if isinstance(each, str) and each), None)


_TEXT_OF_STEP = ("content", "step", "text", "title")
_STATES = {
    "pending": "pending",
    "in_progress": "in_progress",
    "completed": "completed",
    "done": "completed",
}


def _plan_entries(arguments: Any) -> list[Json]:
    """Return the plan that a call writes down, as tools for plans and to-do lists do."""
    given = arguments if isinstance(arguments, Mapping) else {}
    lists = (given.get(name) for name in ("todos", "plan", "entries"))
    steps = next((each for each in lists if isinstance(each, list)), [])
    entries = []
    for step in steps:
        words = _first(step, _TEXT_OF_STEP) if isinstance(step, Mapping) else None
        status = _STATES.get(str(step.get("status"))) if words is not None else None
        if words is None or status is None:
            return []
        priority = step.get("priority")
        if priority not in ("high", "medium", "low"):
            priority = "medium"
        entries.append({"content": words, "priority": priority, "status": status})
    return entries


def _read_plan(arguments: Any) -> list[Json]:
    """Return the entries of a plan that was written as a list with marks: the inverse of `plan_text`."""
    text = arguments.get(PLAN) if isinstance(arguments, Mapping) else None
    lines = text.splitlines() if isinstance(text, str) else []
    return [
        {
            "content": line[len(_MARK) :] if line[: len(_MARK)] in _MARKED else line,
            "priority": "medium",
            "status": _MARKED.get(line[: len(_MARK)], "pending"),
        }
        for line in lines
    ]


def _output_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    words = chat_text(content)
    return words or ("" if content in (None, [], {}) else codec.encode(content))


def _block_of_text(part: Text) -> Json:
    """Return the block that a text was made of, or a block of text."""
    match part.extra.get(EXTRA):
        case {"type": "resource_link", "name": str(name), "uri": str(uri), **rest}:
            link = {str(key): value for key, value in rest.items()}
            return {**link, "type": "resource_link", "name": name, "uri": uri}
        case {"uri": str(uri)}:
            before, after = f'<file uri="{uri}">\n', "\n</file>"
            if part.text.startswith(before) and part.text.endswith(after):
                words = part.text[len(before) : -len(after)]
                return {"type": "resource", "resource": {"uri": uri, "text": words}}
    return text_block(part.text)


def _block_of_file(part: Attachment, data: bytes | None) -> Json:
    kind = part.media_type.partition("/")[0]
    if data is None or kind not in ("image", "audio"):
        name = part.name or "file"
        return text_block(f"[{one_line(name, LONGEST_TITLE)}, {part.media_type}]")
    encoded = base64.b64encode(data).decode("ascii")
    return {"type": kind, "data": encoded, "mimeType": part.media_type}


def is_shown_file(part: Attachment) -> bool:
    """Whether the bytes of an attachment are needed to show it."""
    kind = part.media_type.partition("/")[0]
    return kind in ("image", "audio") and (part.size or 0) <= MOST_FILE_BYTES
