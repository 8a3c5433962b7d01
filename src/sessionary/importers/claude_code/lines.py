"""One line of a Claude Code file: the fields that are read of it."""

import re
from datetime import datetime
from typing import Annotated, Any

import msgspec

from sessionary.formats import anthropic_blocks, coerce
from sessionary.importers.base.content import MessageContent, is_plausible_time, parse_time

_BOM = b"\xef\xbb\xbf"


class CacheWrites(msgspec.Struct, gc=False):
    """Tokens written to the cache, by how long they are cached."""

    ephemeral_1h_input_tokens: int | None = 0


class TokenCounts(msgspec.Struct, gc=False):
    """The usage of a call, as in Anthropic's API."""

    input_tokens: int | None = 0
    output_tokens: int | None = 0
    cache_read_input_tokens: int | None = 0
    cache_creation_input_tokens: int | None = 0
    cache_creation: CacheWrites | None = None


class AnswerMessage(msgspec.Struct, gc=False):
    """The message of a line, as in Anthropic's API."""

    id: str | None = None
    model: str | None = None
    content: Any = None
    stop_reason: str | None = None
    usage: TokenCounts | None = None


class TranscriptLine(msgspec.Struct, gc=False):
    """The fields of all kinds of lines."""

    type: str = ""
    uuid: str | None = None
    # Null begins a conversation; files of other programs may lack it.
    parentUuid: str | msgspec.UnsetType | None = msgspec.UNSET  # noqa: N815
    sessionId: str | None = None  # noqa: N815
    # A time without a zone is read by the slower parser.
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
        """The id of the line that this one follows, if it names one."""
        return None if self.parentUuid is msgspec.UNSET else self.parentUuid


class UnreadableLine(Exception):
    """Why a line cannot be read."""


_decode = msgspec.json.Decoder(TranscriptLine).decode


def line_of(text: bytes) -> TranscriptLine | None:
    """Return a line; None if it is blank. Fields of the wrong type are ignored."""
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
    """Return everything in a line."""
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
    """Return an object with the fields that have the right type."""
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


# Lines that the program writes for itself.
IGNORED_KINDS = frozenset(
    {
        *("agent-color", "agent-name", "agent-setting", "attribution-snapshot"),
        *("content-replacement", "file-history-delta", "file-history-snapshot", "last-prompt"),
        *("mode", "permission-mode", "pr-link", "progress", "queue-operation"),
        *("speculation-accept", "tag", "teleported-from", "worktree-state"),
    }
)
# `system` lines about the course of a turn.
NOTES = frozenset({"away_summary", "microcompact_boundary", "stop_hook_summary", "turn_duration"})
# How the kinds of attachments begin that only give the model context.
REMINDERS = (
    *("agent_listing", "async_hook", "compact_file_reference", "critical_system_reminder"),
    *("date_change", "deferred_tools", "diagnostics", "directory", "edited_text_file", "file"),
    *("hook_", "invoked_skills", "mcp_", "nested_memory", "opened_file", "output_style"),
    *("plan_", "relevant_memories", "selected_lines", "skill_", "task_", "team_", "todo"),
    *("token_usage",),
)

# What the program puts around or beside a prompt.
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
_PROGRAM_TEXTS = ("<task-notification>", "<local-command-caveat>", "<teammate-message")


def split_program_text(text: str) -> tuple[str, str]:
    """Return role and text of a user's line: the program may have written it in the user's name."""
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
    if text.startswith(_PROGRAM_TEXTS):
        return "system", text
    return "user", _BESIDE.sub("", text).strip() if _BESIDE.search(text) else text


def content_of(given: Any) -> list[Any]:
    """Return the blocks of a message; a plain text is one block."""
    if isinstance(given, str):
        return [{"type": "text", "text": given}]
    return given if isinstance(given, list) else []


def is_result(block: Any) -> bool:
    """Whether a block is the result of a tool."""
    if type(block) is not dict or block.get("type") != "tool_result":
        return False
    return isinstance(block.get("tool_use_id"), str)


def words_of(blocks: list[Any], *, is_meta: bool) -> tuple[str, MessageContent]:
    """Return role and content of a user's line, without what the program put around it."""
    content = MessageContent()
    role = "system" if is_meta else "user"
    for block in blocks:
        is_text = isinstance(block, dict) and block.get("type") == "text"
        if is_meta or not is_text or not isinstance(block.get("text"), str):
            anthropic_blocks.add_block(content, block)
            continue
        who, words = split_program_text(block["text"])
        content.add_text(words)
        if who == "system" and len(blocks) == 1:
            role = who
    return role, content


def merged(known: list[Any], more: list[Any]) -> list[Any]:
    """Return an answer's blocks after another line of it: a new block, or all blocks, longer."""
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
    """Whether a block is an earlier one, perhaps longer."""
    if not isinstance(old, dict) or not isinstance(new, dict) or old.get("type") != new.get("type"):
        return bool(old == new)
    if old.get("type") == "tool_use":
        return old.get("id") == new.get("id")
    for name in ("text", "thinking"):
        before, after = old.get(name), new.get(name)
        if isinstance(before, str) and isinstance(after, str):
            return after.startswith(before)
    return bool(old == new)
