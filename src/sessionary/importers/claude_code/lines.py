"""One line of a Claude Code file: what we need of it, whatever else it has."""

import re
from datetime import datetime
from typing import Annotated, Any

import msgspec

from sessionary.formats import anthropic_blocks, coerce
from sessionary.importers.base.content import MessageContent, is_plausible_time, parse_time

_BOM = b"\xef\xbb\xbf"


class CacheWrites(msgspec.Struct, gc=False):
    """How long what was written to the cache is kept."""

    ephemeral_1h_input_tokens: int | None = 0


class TokenCounts(msgspec.Struct, gc=False):
    """What a call used, as the model's interface says it."""

    input_tokens: int | None = 0
    output_tokens: int | None = 0
    cache_read_input_tokens: int | None = 0
    cache_creation_input_tokens: int | None = 0
    cache_creation: CacheWrites | None = None


class AnswerMessage(msgspec.Struct, gc=False):
    """The message of a line, as the model's interface has it."""

    id: str | None = None
    model: str | None = None
    content: Any = None
    stop_reason: str | None = None
    usage: TokenCounts | None = None


class TranscriptLine(msgspec.Struct, gc=False):
    """What every line may have."""

    type: str = ""
    uuid: str | None = None
    # Null begins a conversation; files that others wrote may not have it at all.
    parentUuid: str | msgspec.UnsetType | None = msgspec.UNSET  # noqa: N815
    sessionId: str | None = None  # noqa: N815
    # One that has no zone is read in the slow way.
    timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    message: AnswerMessage | None = None
    requestId: str | None = None  # noqa: N815
    isSidechain: bool | None = None  # noqa: N815
    isMeta: bool | None = None  # noqa: N815
    isCompactSummary: bool | None = None  # noqa: N815
    isApiErrorMessage: bool | None = None  # noqa: N815
    agentId: str | None = None  # noqa: N815
    cwd: str | None = None
    gitBranch: str | None = None  # noqa: N815
    subtype: str | None = None
    content: Any = None
    attachment: Any = None
    summary: str | None = None
    leafUuid: str | None = None  # noqa: N815
    aiTitle: str | None = None  # noqa: N815
    customTitle: str | None = None  # noqa: N815
    compactMetadata: Any = None  # noqa: N815
    forkedFrom: Any = None  # noqa: N815

    @property
    def parent(self) -> str | None:
        """The line that this one follows, if it names one."""
        return None if self.parentUuid is msgspec.UNSET else self.parentUuid


class UnreadableLine(Exception):
    """A line that is none: why."""


_decode = msgspec.json.Decoder(TranscriptLine).decode


def line_of(text: bytes) -> TranscriptLine | None:
    """A line; None when it is blank. What has the wrong type in it is passed over."""
    try:
        line = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _lenient(text)
    if line.timestamp is not None and not is_plausible_time(line.timestamp):
        line.timestamp = None
    if text.count(b"{") + text.count(b"[") > coerce.MAX_DEPTH:
        message = line.message
        for given in (line.content, line.attachment) if message is None else (message.content,):
            _check_depth(given)
    return line


def raw_of(text: bytes) -> Any:
    """All that a line has."""
    stripped = text.removeprefix(_BOM).strip(b" \t\r\n\x00")
    try:
        data = coerce.decode_json(stripped)
    except (ValueError, RecursionError) as error:
        raise UnreadableLine(f"not JSON ({str(error)[:100]})") from error
    _check_depth(data)
    return data


def _lenient(text: bytes) -> TranscriptLine | None:
    if not text.removeprefix(_BOM).strip(b" \t\r\n\x00"):
        return None
    data = raw_of(text)
    if not isinstance(data, dict):
        raise UnreadableLine(f"not an object but {type(data).__name__}")
    line: TranscriptLine = _filled(TranscriptLine, data)
    line.timestamp = parse_time(data.get("timestamp"))
    message = data.get("message")
    if isinstance(message, dict):
        line.message = _filled(AnswerMessage, message)
        usage = message.get("usage")
        line.message.usage = _filled(TokenCounts, usage) if isinstance(usage, dict) else None
    return line


def _filled(kind: Any, data: dict[str, Any]) -> Any:
    """The fields that have the right type."""
    made = kind()
    for field in msgspec.structs.fields(kind):
        if field.name in data and field.name not in ("message", "usage", "timestamp"):
            try:
                setattr(made, field.name, msgspec.convert(data[field.name], field.type))
            except (msgspec.ValidationError, UnicodeError):
                continue
    return made


def _check_depth(data: Any) -> None:
    if coerce.is_deep(data):
        raise UnreadableLine(f"nested deeper than {coerce.MAX_DEPTH} levels")


# Marks of the program for itself.
ASIDE = frozenset(
    {
        "agent-color",
        "agent-name",
        "agent-setting",
        "attribution-snapshot",
        "content-replacement",
        "file-history-delta",
        "file-history-snapshot",
        "last-prompt",
        "mode",
        "permission-mode",
        "pr-link",
        "progress",
        "queue-operation",
        "speculation-accept",
        "tag",
        "teleported-from",
        "worktree-state",
    }
)
# `system` lines that say how something went.
NOTES = frozenset({"away_summary", "microcompact_boundary", "stop_hook_summary", "turn_duration"})
# Attachments that tell the model something beside what people say, by how their kind begins.
REMINDERS = (
    "agent_listing",
    "async_hook",
    "compact_file_reference",
    "critical_system_reminder",
    "date_change",
    "deferred_tools",
    "diagnostics",
    "directory",
    "edited_text_file",
    "file",
    "hook_",
    "invoked_skills",
    "mcp_",
    "nested_memory",
    "opened_file",
    "output_style",
    "plan_",
    "relevant_memories",
    "selected_lines",
    "skill_",
    "task_",
    "team_",
    "todo",
    "token_usage",
)

# What the program puts around or beside the words that a person typed.
_BESIDE = re.compile(
    r"<(system-reminder|ide_opened_file|ide_selection|ide_diagnostics)>.*?</\1>\s*", re.DOTALL
)
_COMMAND = re.compile(r"<command-name>\s*(.*?)\s*</command-name>", re.DOTALL)
_ARGUMENTS = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)
_TYPED = re.compile(r"<(bash-input|user-memory-input)>(.*?)</\1>", re.DOTALL)
_OUTPUT = re.compile(
    r"<(local-command-stdout|local-command-stderr|bash-stdout|bash-stderr)>(.*?)</\1>", re.DOTALL
)
_SIGNS = {"bash-input": "!", "user-memory-input": "#"}
_TOLD = ("<task-notification>", "<local-command-caveat>", "<teammate-message")


def spoken(text: str) -> tuple[str, str]:
    """Who said a text of a user's line, and what: the person, or the program in their name."""
    if "<" not in text:
        return "user", text
    if (command := _COMMAND.search(text)) is not None:
        arguments = _ARGUMENTS.search(text)
        words = [command[1], "" if arguments is None else arguments[1].strip()]
        return "user", " ".join(filter(None, words))
    if (typed := _TYPED.match(text)) is not None:
        return "user", f"{_SIGNS[typed[1]]} {typed[2].strip()}"
    if _OUTPUT.match(text) is not None:
        return "system", "\n".join(each[2] for each in _OUTPUT.finditer(text) if each[2])
    if text.startswith(_TOLD):
        return "system", text
    return "user", _BESIDE.sub("", text).strip() if _BESIDE.search(text) else text


def content_of(given: Any) -> list[Any]:
    """The blocks of a message; a text by itself is one."""
    if isinstance(given, str):
        return [{"type": "text", "text": given}]
    return given if isinstance(given, list) else []


def is_result(block: Any) -> bool:
    """Whether a block is a tool's answer."""
    if type(block) is not dict or block.get("type") != "tool_result":
        return False
    return isinstance(block.get("tool_use_id"), str)


def words_of(blocks: list[Any], *, is_meta: bool) -> tuple[str, MessageContent]:
    """Who said what a user's line says, and what: without what the program put around it."""
    content = MessageContent()
    role = "system" if is_meta else "user"
    for block in blocks:
        is_text = isinstance(block, dict) and block.get("type") == "text"
        if is_meta or not is_text or not isinstance(block.get("text"), str):
            anthropic_blocks.add_block(content, block)
            continue
        who, words = spoken(block["text"])
        content.say(words)
        if who == "system" and len(blocks) == 1:
            role = who
    return role, content


def merged(known: list[Any], more: list[Any]) -> list[Any]:
    """The blocks of an answer after another line of it: a new block, or all so far, grown."""
    if len(more) >= len(known) and all(map(_grows, known, more)):
        return more
    result = list(known)
    for block in more:
        if block in result:
            continue
        if result and _grows(result[-1], block):
            result[-1] = block
        else:
            result.append(block)
    return result


def _grows(old: Any, new: Any) -> bool:
    """Whether a block is an earlier one, perhaps with more in it."""
    if not isinstance(old, dict) or not isinstance(new, dict) or old.get("type") != new.get("type"):
        return bool(old == new)
    if old.get("type") == "tool_use":
        return old.get("id") == new.get("id")
    for name in ("text", "thinking"):
        before, after = old.get(name), new.get(name)
        if isinstance(before, str) and isinstance(after, str):
            return after.startswith(before)
    return bool(old == new)
