"""The values of the Agent Client Protocol, and our parts that stand for them.

Content blocks, tool calls, plans and usage are read and made as the JSON objects that the protocol has: what we do not
know is kept, and nothing here needs the protocol's package.
"""

import base64
import binascii
import difflib
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from sessionary.formats.coerce import Json
from sessionary.model import codec
from sessionary.model.message import Attachment, Part, Text, ToolCall, ToolResult, Unknown
from sessionary.model.terminal import one_line
from sessionary.model.transcript import cut_middle
from sessionary.model.usage import CostStatus, Usage

# Under which name the parts of a message keep what the protocol says besides what our parts have.
EXTRA = "acp"
UPDATE = "acp:update"
LONGEST_OUTPUT = 100_000
# What is kept of a value that nobody bounds: a title, a file that is shown as a diff.
_LONGEST_TITLE = 500
_LONGEST_DIFF = 200_000
# The time of a comparison can grow with the square of the lines; these take a quarter of a second at most.
_MOST_DIFF_LINES = 10_000
_LONGEST_RAW = 20_000
_TEXT_TYPES = ("application/json", "application/xml", "application/toml", "application/yaml")
# Where tools of known adapters say their own names.
_TOOL_NAMES = (("claudeCode", "toolName"), ("codex", "toolName"))
_COUNTS = (
    *("inputTokens", "outputTokens", "totalTokens"),
    *("thoughtTokens", "cachedReadTokens", "cachedWriteTokens"),
)
_MARKS = {"completed": "[x]", "in_progress": "[~]"}


# Content blocks.


def text_block(text: str) -> Json:
    """Return a block of text."""
    return {"type": "text", "text": text}


def link_block(uri: str, name: str, media_type: str | None = None, size: int | None = None) -> Json:
    """Return a link to a file that the other side can read by itself."""
    made: Json = {"type": "resource_link", "uri": uri, "name": name}
    if media_type is not None:
        made["mimeType"] = media_type
    if size is not None:
        made["size"] = size
    return made


def file_block(
    data: bytes, media_type: str, *, uri: str, accepts: Mapping[str, Any]
) -> Json | None:
    """Return a file as a block, if the prompt capabilities `accepts` allow it in one; else None: it must be linked."""
    kind = media_type.partition("/")[0]
    encoded = {"data": "", "mimeType": media_type}
    if kind in ("image", "audio") and accepts.get(kind) is True:
        return {"type": kind, **encoded, "data": base64.b64encode(data).decode()}
    if accepts.get("embeddedContext") is not True:
        return None
    text = _as_text(data, media_type)
    if text is not None:
        contents: Json = {"uri": uri, "mimeType": media_type, "text": text}
    else:
        contents = {"uri": uri, "mimeType": media_type, "blob": base64.b64encode(data).decode()}
    return {"type": "resource", "resource": contents}


def _as_text(data: bytes, media_type: str) -> str | None:
    if not media_type.startswith("text/") and media_type not in _TEXT_TYPES:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def part_of_block(block: Any) -> tuple[Part, bytes | None]:
    """Return the part that a content block stands for, and the bytes of its file if it has one."""
    match block:
        case {"type": "text", "text": str(text)}:
            return Text(text), None
        case {"type": "image" | "audio", "data": str(data)}:
            return _file(block, data, block.get("mimeType"), block.get("uri"))
        case {"type": "resource_link", "uri": str(uri)}:
            name = block.get("title") or block.get("name")
            label = name if isinstance(name, str) and name else uri
            return Text(f"[{label}]({uri})" if label != uri else uri, extra={EXTRA: block}), None
        case {"type": "resource", "resource": {"text": str(text), "uri": str(uri)}}:
            return Text(f'<file uri="{uri}">\n{text}\n</file>', extra={EXTRA: {"uri": uri}}), None
        case {"type": "resource", "resource": {"blob": str(data), "uri": str(uri), **rest}}:
            return _file(block, data, rest.get("mimeType"), uri)
    return Unknown({"type": "acp:block", "block": block}), None


def _file(block: Any, data: str, media_type: Any, uri: Any) -> tuple[Part, bytes | None]:
    try:
        found = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return Unknown({"type": "acp:block", "block": block}), None
    name = uri.rsplit("/", 1)[-1] if isinstance(uri, str) and uri else None
    kind = media_type if isinstance(media_type, str) and media_type else "application/octet-stream"
    return Attachment(hashlib.sha256(found).hexdigest(), kind, name or None, len(found)), found


def block_text(block: Any) -> str:
    """Return what a content block says; a file is named."""
    part, data = part_of_block(block)
    if isinstance(part, Text):
        return part.text
    if isinstance(part, Attachment):
        return f"[{part.name or 'a file'}, {part.media_type}, {len(data or b''):,} bytes]"
    return codec.encode(block)[:_LONGEST_RAW]


# Tool calls.


class FileDiff(Struct, frozen=True):
    """The change of a file that a tool call tells of; without an old text the file is new."""

    path: str
    old_text: str | None
    new_text: str

    def unified(self) -> str:
        """Return the change as a unified diff; of a file that is too long for that, only its name."""
        before, after = (self.old_text or "").splitlines(), self.new_text.splitlines()
        name = one_line(self.path, _LONGEST_TITLE)
        length = len(self.old_text or "") + len(self.new_text)
        if length > _LONGEST_DIFF or len(before) + len(after) > _MOST_DIFF_LINES:
            return f"[{name} was changed; the change is too long to be shown]"
        source = "/dev/null" if self.old_text is None else name
        return "\n".join(difflib.unified_diff(before, after, source, name, lineterm=""))


class ToolCallState:
    """A tool call as far as its updates have told: each replaces what it has of the ones before."""

    def __init__(self, id: str) -> None:
        self.id = id
        self._known: Json = {}

    def update(self, given: Mapping[str, Any]) -> None:
        """Take what an update says."""
        for name in (
            "title",
            "kind",
            "status",
            "content",
            "locations",
            "rawInput",
            "rawOutput",
            "_meta",
        ):
            value = given.get(name)
            if value is not None and not (name == "rawInput" and value == {}):
                self._known[name] = value

    @property
    def kind(self) -> str:
        """What sort of tool it is: `read`, `edit`, `execute` or another word of the protocol; `other` if unknown."""
        kind = self._known.get("kind")
        return kind if isinstance(kind, str) and kind else "other"

    @property
    def title(self) -> str:
        """What the agent says that the call does."""
        title = self._known.get("title")
        return one_line(title, _LONGEST_TITLE) if isinstance(title, str) else ""

    @property
    def name(self) -> str:
        """The name for rules and for people: the tool's own if the agent tells it, else its kind, else the title."""
        meta = self._known.get("_meta")
        for owner, field in _TOOL_NAMES:
            own = meta.get(owner) if isinstance(meta, Mapping) else None
            name = own.get(field) if isinstance(own, Mapping) else None
            if isinstance(name, str) and name.strip():
                return one_line(name, 120)
        return self.kind if self.kind != "other" else one_line(self.title, 120) or "other"

    @property
    def is_pending(self) -> bool:
        """Whether it has not begun, as far as is known."""
        return self._known.get("status") in (None, "pending")

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._known.get("status") in ("completed", "failed")

    @property
    def has_input(self) -> bool:
        """Whether it is known what the tool is called with."""
        return "rawInput" in self._known or bool(self.diffs)

    @property
    def diffs(self) -> list[FileDiff]:
        """The changes of files that it tells of."""
        return [
            FileDiff(each["path"], _text(each.get("oldText")), each["newText"])
            for each in self._content
            if each.get("type") == "diff"
            and isinstance(each.get("path"), str)
            and isinstance(each.get("newText"), str)
        ]

    @property
    def paths(self) -> list[str]:
        """The files that it is about."""
        locations = self._known.get("locations")
        found = [each.path for each in self.diffs]
        for each in locations if isinstance(locations, list) else ():
            path = each.get("path") if isinstance(each, Mapping) else None
            if isinstance(path, str):
                found.append(path)
        return list(dict.fromkeys(found))

    @property
    def arguments(self) -> Json:
        """What the tool is called with, as far as it is told; a change of one file has its old and new text."""
        given = self._known.get("rawInput")
        arguments: Json = {}
        if isinstance(given, Mapping):
            arguments = dict(given)
        elif given is not None:
            arguments = {"input": given}
        diffs = self.diffs
        if len(diffs) == 1 and not _tells_a_change(arguments):
            old, new = diffs[0].old_text or "", diffs[0].new_text
            if len(old) + len(new) <= _LONGEST_DIFF:
                arguments = {"path": diffs[0].path} | arguments
                arguments |= {"old_text": old, "new_text": new}
        if not arguments:
            arguments = {"title": self.title} if self.title else {}
            if self.paths:
                arguments["paths"] = self.paths
        return arguments

    def call(self) -> ToolCall:
        """Return the part of an assistant's message that stands for the call."""
        return ToolCall(self.id, self.name, self.arguments, extra={EXTRA: self._facts()})

    def result(
        self, *, shown: Mapping[str, str], called_with: Mapping[str, Any]
    ) -> tuple[tuple[Part, ...], tuple[bytes, ...]]:
        """Return the parts of the message with the result of the call, and the bytes of its files.

        `shown` is what its terminals show, by their ids. A change that is among the arguments `called_with` is not
        repeated.
        """
        texts: list[str] = []
        files: list[tuple[Attachment, bytes]] = []
        for each in self._content:
            if each.get("type") == "content":
                part, data = part_of_block(each.get("content"))
                if isinstance(part, Attachment) and data is not None:
                    files.append((part, data))
                else:
                    texts.append(block_text(each.get("content")))
            elif each.get("type") == "terminal":
                texts.append(shown.get(str(each.get("terminalId")), ""))
        if not _tells_a_change(called_with):
            texts += [each.unified() for each in self.diffs]
        said = "\n".join(filter(None, texts))
        if not said and not files:
            said = _raw_text(self._known.get("rawOutput"))
        result = ToolResult(
            self.id,
            cut_middle(said, LONGEST_OUTPUT),
            self.name,
            is_error=self._known.get("status") == "failed",
            extra={EXTRA: self._facts()},
        )
        return (result, *(part for part, _ in files)), tuple(data for _, data in files)

    @property
    def _content(self) -> list[Mapping[str, Any]]:
        content = self._known.get("content")
        found = content if isinstance(content, list) else []
        return [each for each in found if isinstance(each, Mapping)]

    def _facts(self) -> Json:
        """Return what our parts have no place for."""
        facts: Json = {"kind": self.kind, "title": self.title}
        locations = self._known.get("locations")
        if isinstance(locations, list) and len(codec.encode(locations)) <= _LONGEST_RAW:
            facts["locations"] = locations
        return facts


def _tells_a_change(arguments: Mapping[str, Any]) -> bool:
    """Whether arguments have the old and the new text of a file under a name that is shown as a change."""
    return any(
        isinstance(arguments.get(old), str) and isinstance(arguments.get(new), str)
        for old, new in (("old_string", "new_string"), ("old_text", "new_text"))
    )


def _raw_text(raw: Any) -> str:
    if raw is None:
        return ""
    return raw if isinstance(raw, str) else codec.encode(raw)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


# Plans.


def plan_text(entries: Any) -> str:
    """Return a plan as a list with a mark for each entry: `[ ]`, `[~]` for what is being done, `[x]`."""
    lines = [
        f"{_MARKS.get(str(each.get('status')), '[ ]')} {one_line(str(each.get('content', '')), 1_000)}"
        for each in (entries if isinstance(entries, Sequence) else ())
        if isinstance(each, Mapping)
    ]
    return "\n".join(lines)


# Usage.


def usage_of(
    given: Any, *, cost_microusd: int | None = None, model: str | None = None, **facts: Any
) -> Usage | None:
    """Return the usage of a prompt as its response reports it, with the cost if that is known; None for neither."""
    counts = {
        name: value
        for name in _COUNTS
        if isinstance(given, Mapping)
        and isinstance(value := given.get(name), int)
        and not isinstance(value, bool)
        and value >= 0
    }
    if not counts and cost_microusd is None:
        return None
    sent, made = counts.get("inputTokens", 0), counts.get("outputTokens", 0)
    thought = counts.get("thoughtTokens", 0)
    read, written = counts.get("cachedReadTokens", 0), counts.get("cachedWriteTokens", 0)
    total = counts.get("totalTokens")
    if read + written and read + written <= sent and total in (sent + made, sent + made + thought):
        sent -= read + written  # some providers count what was cached among the input
    if thought and total == sent + made + thought + read + written:
        made += thought  # reasoning is a part of our output
    return Usage(
        model=model,
        input_tokens=sent,
        output_tokens=made,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=min(thought, made),
        cost_microusd=cost_microusd,
        cost_status=CostStatus.UNKNOWN if cost_microusd is None else CostStatus.REPORTED,
        **facts,
    )


def usage_of_meta(meta: Mapping[str, Any]) -> Json | None:
    """Return the counts that an agent tells in `_meta` of its response, in the form of the protocol.

    Gemini CLI has them there: `quota.token_count` with `input_tokens` and `output_tokens`.
    """
    match meta:
        case {"quota": {"token_count": {"input_tokens": int(sent), "output_tokens": int(made)}}}:
            return {"inputTokens": sent, "outputTokens": made, "totalTokens": sent + made}
    return None
