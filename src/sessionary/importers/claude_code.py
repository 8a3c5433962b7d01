"""Claude Code: one file of JSON lines for each session, and those of its agents in a folder beside it.

The program deletes its files after a while: what was read here stays.

An answer of the model is written as several lines, one for each block or ever longer ones, with
the results of its tools between them: they are held until the answer is complete. Lines name the
line they follow; those that are no messages are skipped in between. The results of tools that
ran in parallel name their own calls: they are no branches. A file in which no line names another
is read in its order.
"""

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec

from sessionary.clock import Clock, SystemClock
from sessionary.formats import anthropic_blocks, coerce, parts
from sessionary.formats.coerce import Json
from sessionary.importers.base import events, files
from sessionary.importers.base.content import (
    MessageContent,
    RecentEntries,
    is_plausible_time,
    parse_time,
)
from sessionary.model.session import Lineage
from sessionary.model.usage import MAX_TOKENS

_BOM = b"\xef\xbb\xbf"


class CacheWrites(msgspec.Struct, gc=False):
    """Tokens written to the cache, by how long they are cached."""

    ephemeral_1h_input_tokens: int | None = 0


# The fields stand in the order in which the program writes them: msgspec looks for the next one first.
class TokenCounts(msgspec.Struct, gc=False):
    """The usage of a call, as in Anthropic's API."""

    input_tokens: int | None = 0
    cache_creation_input_tokens: int | None = 0
    cache_read_input_tokens: int | None = 0
    cache_creation: CacheWrites | None = None
    output_tokens: int | None = 0


class AnswerMessage(msgspec.Struct, gc=False):
    """The message of a line, as in Anthropic's API."""

    model: str | None = None
    id: str | None = None
    content: Any = None
    stop_reason: str | None = None
    usage: TokenCounts | None = None


class TranscriptLine(msgspec.Struct, gc=False):
    """The fields of all kinds of lines."""

    # Null begins a conversation; files of other programs may lack it.
    parentUuid: str | msgspec.UnsetType | None = msgspec.UNSET  # noqa: N815
    isSidechain: bool | None = None  # noqa: N815
    cwd: str | None = None
    sessionId: str | None = None  # noqa: N815
    gitBranch: str | None = None  # noqa: N815
    agentId: str | None = None  # noqa: N815
    type: str = ""
    message: AnswerMessage | None = None
    requestId: str | None = None  # noqa: N815
    uuid: str | None = None
    # A time without a zone is read by the slower parser.
    timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    isMeta: bool | None = None  # noqa: N815
    isCompactSummary: bool | None = None  # noqa: N815
    isApiErrorMessage: bool | None = None  # noqa: N815
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
    message = line.message
    for given in (line.content, line.attachment) if message is None else (message.content,):
        # Counting the brackets of a line takes three times as long as looking at its few values.
        if given is None or _is_shallow(given):
            continue
        if text.count(b"{") + text.count(b"[") > coerce.MAX_DEPTH:
            _check_depth(given)
    return line


def _is_shallow(given: Any) -> bool:
    """Whether a content has the few levels that nearly all have: blocks, and the arguments of a tool."""
    if type(given) is not list:
        return type(given) is not dict
    for block in given:
        if type(block) is not dict:
            return False
        for value in block.values():
            if type(value) is dict:
                for inner in value.values():
                    if type(inner) is dict or type(inner) is list:
                        return False
            elif type(value) is list:
                return False
    return True


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
    """Return a line without the fields of the wrong type; None if it is blank."""
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


CHECKPOINT_EVERY = 1024 * 1024
MOST_HELD = 8 * 1024 * 1024
NOTED = 50


TOOL = "claude-code"
_SYNTHETIC = "<synthetic>"
_EMPTY = AnswerMessage()


class PartialAnswer:
    """An answer that is not complete yet, and the messages that came meanwhile."""

    __slots__ = (
        *("_at", "_blocks", "_call", "_last", "_parent", "_used"),
        *("followers", "id", "line", "message_id", "size", "start"),
    )

    def __init__(
        self,
        line: TranscriptLine,
        id: str,
        message_id: str,
        *,
        call: str,
        parent: str | None,
        at: datetime,
        start: int,
    ) -> None:
        self.id, self.message_id, self.start = id, message_id, start
        self._call, self._parent, self._at = call, parent, at
        self._blocks = content_of((line.message or _EMPTY).content)
        self.line = self._last = self._used = line
        self.followers: list[events.MessageEvent] = []
        self.size = 0

    @property
    def is_finished(self) -> bool:
        """Whether the answer has a stop reason."""
        return (self._last.message or _EMPTY).stop_reason is not None

    def grow(self, line: TranscriptLine, size: int) -> None:
        """Add another line of the same answer."""
        self.size += size
        message = line.message or _EMPTY
        self._blocks = merged(self._blocks, content_of(message.content))
        self._last = line
        # Earlier lines were written during the output: only the last one counts all of it.
        if message.usage is not None and (message.usage.output_tokens or 0) > 0:
            self._used = line

    def to_message(self) -> events.MessageEvent:
        """Return the answer as one message."""
        message = self._last.message or _EMPTY
        content = MessageContent()
        for block in self._blocks:
            anthropic_blocks.add_block(content, block)
        # Texts that the program writes in place of the model are not the model's, errors excepted.
        is_error, is_synthetic = self._last.isApiErrorMessage, message.model == _SYNTHETIC
        return events.MessageEvent(
            role="system" if is_synthetic and not is_error else "assistant",
            parts=content.parts,
            blobs=content.blobs,
            at=self._at,
            id=self.id,
            parent=self._parent,
            model=None if is_synthetic else message.model,
            finish_reason="error" if is_error else message.stop_reason,
            usage=_usage(self._used, self._at, self._call),
        )


def _usage(line: TranscriptLine, at: datetime, name: str) -> Sequence[events.TokenUsage]:
    """Return the usage of a call, with the same id in every file and line that has it."""
    message = line.message or _EMPTY
    tokens, model = message.usage, message.model
    if tokens is None or model is None or model == _SYNTHETIC:
        return ()
    written, kept = _whole(tokens.cache_creation_input_tokens), tokens.cache_creation
    used = events.TokenUsage(
        call_id=f"{TOOL}:{name}:{line.requestId}" if line.requestId else f"{TOOL}:{name}",
        model=model,
        at=at,
        input_tokens=_whole(tokens.input_tokens),
        output_tokens=_whole(tokens.output_tokens),
        cache_read_tokens=_whole(tokens.cache_read_input_tokens),
        cache_write_tokens=written,
        cache_write_1h_tokens=min(_whole(kept.ephemeral_1h_input_tokens), written) if kept else 0,
    )
    return (used,)


def _whole(number: int | None) -> int:
    return number if number is not None and 0 <= number <= MAX_TOKENS else 0


_PROMPT, _SUMMARY, _AI, _CUSTOM = range(4)
_MOST_SUMMARIES = 100


class Titles:
    """The best title so far, and its rank."""

    def __init__(self, noted: Any = None) -> None:
        is_noted = isinstance(noted, list) and len(noted) == 2
        self._level: int = noted[0] if is_noted else -1
        self.title: str | None = noted[1] if is_noted else None
        # Summaries by the last line of their conversation, which may be this one.
        self.awaited: dict[str, str] = {}

    @property
    def note(self) -> list[Any] | None:
        """The state for the next import."""
        return None if self.title is None else [self._level, self.title]

    def take(self, line: TranscriptLine, seen: RecentEntries[str | None]) -> None:
        """Take the title of a line."""
        if line.type == "custom-title":
            self._raise(_CUSTOM, line.customTitle)
        elif line.type == "ai-title":
            self._raise(_AI, line.aiTitle)
        elif line.summary and line.leafUuid:
            if seen.get(line.leafUuid) is not None:
                self._raise(_SUMMARY, line.summary)
            elif len(self.awaited) < _MOST_SUMMARIES:
                self.awaited[line.leafUuid] = line.summary

    def meet(self, uuid: str) -> None:
        """Use the summary that ends with this line, if there is one."""
        self._raise(_SUMMARY, self.awaited.pop(uuid, None))

    def take_prompt(self, made: list[Json]) -> None:
        """Take the first prompt as title, if there is no better one."""
        if self._level >= _PROMPT:
            return
        words = " ".join(part["text"] for part in made if part["type"] == "text").strip()
        if words and not words.startswith(("/", "!", "[Request interrupted")):
            self._raise(_PROMPT, words[:400])

    def _raise(self, level: int, title: str | None) -> None:
        if title and title.strip() and level >= self._level:
            self._level, self.title = level, title


@dataclass(frozen=True, slots=True)
class SessionIdentity:
    """Which session is read; without an id it has that of its lines."""

    session_id: str | None = None
    # The name of the agent whose conversation this is.
    agent: str | None = None
    title: str | None = None


class TranscriptReader:
    """Reads one session."""

    def __init__(
        self,
        who: SessionIdentity,
        resume: events.Resume | None = None,
        *,
        at: datetime,
        is_settled: bool = True,
        has_places: bool = True,
        copied: Set[str] = frozenset(),
    ) -> None:
        """Without places there are no checkpoints. Lines with the ids `copied` are ignored."""
        note: Json = resume.note if resume is not None and isinstance(resume.note, dict) else {}
        self._who = who
        # The session's id, once it is known.
        self.native_id: str | None = note.get("session")
        self._at, self._is_settled, self._has_places = at, is_settled, has_places
        self._copied = copied
        # Whether any line names the one it follows.
        self._is_linked: bool = note.get("linked", resume is not None)
        self._end = self._marked = 0 if resume is None else resume.place
        self._number = int(note.get("line", 0))
        self._titles = Titles(note.get("title"))
        self._tip: str | None = note.get("tip")
        # The answer that was taken for complete when the last import ended.
        self._noted_answer = self._last_answer = note.get("answer")
        self._calls = RecentEntries[str](note.get("calls"))
        # The message that a line is or follows, by the line's id.
        self._places = RecentEntries[str | None](note.get("places"))
        # The results of one answer share one place; the last message of each place.
        self._last_results = RecentEntries[str]()
        self._agents = RecentEntries[str]()
        self._has_begun = resume is not None
        self._answer: PartialAnswer | None = None
        self._boundary: TranscriptLine | None = None
        self._workspace: Json | None = None
        # Where the next import could resume.
        self.last_checkpoint: events.Resume | None = None
        # Where an answer begins that is held back because it may not be complete.
        self.held_at: int | None = None
        self._waiting: list[events.Event] = []
        self._ignored: Counter[str] = Counter()
        self._out: list[events.Event] = []
        # Offsets of the lines of agents that old versions wrote among the others.
        self.sidechains: dict[str, array[int]] = {}

    def read(self, lines: Iterable[tuple[int, int, bytes | None]]) -> Iterator[events.Event]:
        """Yield the events of the lines."""
        out = self._out
        if self._has_begun:
            yield events.SessionBegin(native_id=self.native_id or "")
        for begin, end, text in lines:
            self._number += 1
            self._take(begin, text)
            self._end = end
            if end - self._marked > CHECKPOINT_EVERY and self._answer is None:
                self._put_checkpoint(end)
            if out:
                yield from out
                out.clear()
        self._finish()
        yield from out

    def _take(self, begin: int, text: bytes | None) -> None:
        try:
            if text is None:
                raise UnreadableLine(f"longer than {files.MAX_LINE:,} bytes")
            line = line_of(text)
            if line is None:
                return
            if line.isSidechain and self._who.agent is None:
                # A line of an agent among those of its session: it is read afterwards.
                key = line.agentId or self._agents.get(line.parent or "") or line.uuid or "agent"
                if line.uuid is not None:
                    self._agents.put(line.uuid, key)
                self.sidechains.setdefault(key, array("q")).append(begin)
                return
            if line.uuid in self._copied:
                self._ignored["lines that an agent copied from its session"] += 1
                return
            if line.parentUuid:
                self._is_linked = True
            if line.timestamp is not None:
                self._at = line.timestamp
            if self._titles.awaited and line.uuid is not None:
                self._titles.meet(line.uuid)
            if self._workspace is None and line.cwd:
                self._workspace = events.workspace(line.cwd, branch=line.gitBranch)
            kind, message = line.type, line.message
            if message is None:
                self._take_other(line, text)
            elif kind == "assistant":
                self._take_answer(line, message, begin, len(text))
            elif kind == "user":
                self._take_user(line, message, len(text))
            else:
                self._take_other(line, text)
        except UnreadableLine as error:
            # It is reported once there is a session.
            skipped = events.Skipped(where=f"line {self._number}", why=str(error))
            (self._out if self._has_begun else self._waiting).append(skipped)

    def _take_other(self, line: TranscriptLine, text: bytes) -> None:
        match line.type:
            case "system":
                self._take_system(line)
            case "attachment":
                self._take_attachment(line, text)
            case "summary" | "ai-title" | "custom-title":
                self._titles.take(line, self._places)
            case kind if kind in IGNORED_KINDS:
                self._ignore(line, f"{kind} lines")
            case kind:
                self._put_system(line, [parts.unknown(raw_of(text), f"{TOOL}:{kind}")])

    # Messages

    def _take_answer(
        self, line: TranscriptLine, message: AnswerMessage, begin: int, size: int
    ) -> None:
        answer = self._answer
        name = message.id or line.uuid or f"line-{self._number}"
        if answer is not None and answer.message_id == name:
            answer.grow(line, size)
            self._place(line, answer.id)
        else:
            answer = self._open(line, name, begin)
        blocks: Any = message.content
        for block in blocks if type(blocks) is list else ():
            if type(block) is dict and block.get("type") in ("tool_use", "server_tool_use"):
                call = block.get("id")
                if isinstance(call, str):
                    self._calls.put(call, str(block.get("name")))
        if answer.size > MOST_HELD:
            self._close()

    def _open(self, line: TranscriptLine, name: str, begin: int) -> PartialAnswer:
        """Begin an answer: the one before it is complete."""
        if name == self._noted_answer:
            raise events.SourceRewritten
        self._close()
        if begin - self._marked > CHECKPOINT_EVERY:
            # An agent may work for long without any other message.
            self._put_checkpoint(begin, before=1)
        id = line.uuid or f"{name}@{self._number}"
        message_id = None if line.message is None else line.message.id
        # A part that comes after other messages is a message of its own.
        parent = events.FOLLOWS if name == self._last_answer else self._parent(line)
        # Files of other programs may have ids of neither calls nor lines: use their place.
        session = self._who.session_id or line.sessionId or self.native_id or "session"
        call = message_id or line.uuid or f"{session}:{self._who.agent or ''}:{name}"
        self._answer = answer = PartialAnswer(
            line, id, name, call=call, parent=parent, at=self._at, start=begin
        )
        self._place(line, id)
        self._tip = id
        return answer

    def _take_user(self, line: TranscriptLine, message: AnswerMessage, size: int) -> None:
        blocks = content_of(message.content)
        if line.isCompactSummary:
            self._take_summary(line, blocks)
            return
        # A plain text is most often a prompt, and a list the results of tools.
        results = (
            [] if type(message.content) is str else [each for each in blocks if is_result(each)]
        )
        if results:
            self._take_results(line, results)
            if self._answer is not None:
                self._answer.size += size
            if len(results) == len(blocks):
                return
            blocks = [each for each in blocks if not is_result(each)]
        self._take_words(line, blocks, is_second=bool(results))

    def _take_results(self, line: TranscriptLine, results: list[Any]) -> None:
        content = MessageContent()
        is_awaited = True
        for block in results:
            id, is_error = block["tool_use_id"], block.get("is_error") is True
            name = self._calls.pop(id)
            is_awaited = is_awaited and name is not None
            given = block.get("content")
            anthropic_blocks.add_result(content, id, given, name=name, is_error=is_error)
        parent = events.FOLLOWS if is_awaited else self._parent(line)
        message = events.MessageEvent(
            role="tool",
            parts=content.parts,
            blobs=content.blobs,
            at=self._at,
            id=line.uuid,
            parent=parent,
        )
        self._put(line, message)

    def _take_words(
        self, line: TranscriptLine, blocks: list[Any], *, is_second: bool = False
    ) -> None:
        role, content = words_of(blocks, is_meta=line.isMeta is True)
        if not content:
            self._ignore(line, "words of the program beside a prompt")
            return
        message = content.to_message(role, self._at)
        if role == "user":
            self._close()
            self._titles.take_prompt(message.parts)
        if is_second:
            message.id = None if line.uuid is None else f"{line.uuid}#words"
        else:
            message.parent = self._parent(line)
        self._put(line, message)

    def _take_system(self, line: TranscriptLine) -> None:
        if line.subtype == "compact_boundary":
            self._close()
            self._boundary = line
            self._place(line, self._tip)
            return
        text = line.content
        if line.subtype in NOTES or not isinstance(text, str) or not text.strip():
            self._ignore(line, f"system lines: {line.subtype or 'other'}")
            return
        self._put_system(line, [parts.text(split_program_text(text)[1])])

    def _take_attachment(self, line: TranscriptLine, text: bytes) -> None:
        given = line.attachment if isinstance(line.attachment, dict) else {}
        kind = given.get("type")
        if kind == "queued_command" and given.get("prompt"):
            self._take_words(line, content_of(given["prompt"]))
        elif isinstance(kind, str) and kind.startswith(REMINDERS):
            self._ignore(line, f"attachments: {kind}")
        else:
            self._put_system(line, [parts.unknown(raw_of(text), f"{TOOL}:attachment")])

    def _take_summary(self, line: TranscriptLine, blocks: list[Any]) -> None:
        self._close()
        boundary, self._boundary = self._boundary, None
        content = MessageContent()
        anthropic_blocks.add(content, blocks)
        summary = content.text
        self._place(line, self._tip)
        if not self._has_begun:
            # The beginning of the conversation is in another file, or deleted.
            made = [parts.text(summary)]
            message = events.MessageEvent(role="system", parts=made, at=self._at, id=line.uuid)
            self._emit_message(message, line)
            return
        id, keeps = line.uuid, None
        if boundary is not None:
            id = boundary.uuid
            segment = coerce.record(boundary.compactMetadata).get("preservedSegment")
            # The first message that the model still reads in full.
            head = coerce.record(segment).get("headUuid")
            keeps = self._places.get(head) if isinstance(head, str) else None
        self._out.append(events.Compacted(summary=summary, at=self._at, id=id, keeps=keeps))

    # Places

    def _put(self, line: TranscriptLine, message: events.MessageEvent) -> None:
        """Add a message after the last one; an answer that is not complete comes first."""
        message.id = message.id or line.uuid
        answer = self._answer
        place = message.id or self._tip
        if answer is not None and message.role == "tool":
            place = f"{answer.id}/results"
            self._last_results.put(place, message.id or answer.id)
        self._place(line, place)
        self._tip = place
        self._emit_message(message, line)

    def _put_system(self, line: TranscriptLine, made: list[Json]) -> None:
        """Add a message of the program; the next message does not follow it but the one before.

        It waits for the first words: by itself it is no conversation.
        """
        self._place(line, self._tip)
        message = events.MessageEvent(role="system", parts=made, at=self._at, id=line.uuid)
        if self._has_begun or self._answer is not None:
            self._emit_message(message, line)
        else:
            self._waiting.append(message)

    def _close(self) -> None:
        """Emit the complete answer, then the messages that came meanwhile."""
        answer, self._answer = self._answer, None
        if answer is None:
            return
        self._last_answer = answer.message_id
        message = answer.to_message()
        if message.parts:
            self._emit_message(message, answer.line)
        elif message.usage and self._has_begun:
            self._out.append(events.UsageEvent(usage=message.usage))
        for follower in answer.followers:
            self._emit_message(follower, answer.line)

    def _emit_message(self, message: events.MessageEvent, line: TranscriptLine) -> None:
        if self._answer is not None:
            self._answer.followers.append(message)
            return
        if not self._has_begun:
            self._has_begun = True
            self._out += [self._begin(message, line), *self._waiting]
            self._waiting = []
        self._out.append(message)

    def _begin(self, message: events.MessageEvent, line: TranscriptLine) -> events.SessionBegin:
        self.native_id = session_id = (
            self._who.session_id or line.sessionId or message.id or "session"
        )
        if self._who.agent is not None:
            self.native_id = f"{session_id}/{self._who.agent}"
            return events.begin_session(self.native_id, parent=session_id)
        # A copy's lines name the session that it was copied from.
        forked = coerce.record(line.forkedFrom).get("sessionId")
        origin = forked if isinstance(forked, str) else line.sessionId
        aliases = [f"first:{message.id}"] if message.id is not None else []
        return events.begin_session(
            session_id, parent=origin, lineage=Lineage.FORK, aliases=aliases
        )

    def _parent(self, line: TranscriptLine) -> str | None:
        """Return the message that a line follows, if it is not the last one."""
        named = line.parent
        if named is None:
            # A prompt without a parent starts the conversation over.
            is_root = self._is_linked and line.parentUuid is None
            is_anew = (
                is_root and line.type == "user" and not line.isMeta and line.uuid and self._tip
            )
            return None if is_anew and self._boundary is None else events.FOLLOWS
        place = self._places.get(named, named)
        if place is None or place == self._tip:
            return events.FOLLOWS
        return self._message_at(place)

    def _place(self, line: TranscriptLine, at: str | None) -> None:
        if line.uuid is not None:
            self._places.put(line.uuid, at)

    def _ignore(self, line: TranscriptLine, what: str) -> None:
        self._ignored[what] += 1
        if line.uuid is not None:
            named = line.parent
            self._places.put(line.uuid, self._tip if named is None else self._places.get(named))

    # The end

    def _finish(self) -> None:
        answer = self._answer
        if answer is not None and not (self._is_settled or answer.is_finished):
            self._answer, self.held_at = None, answer.start
        self._close()
        out = self._out
        out.extend(
            events.IgnoredRecord(what=what, count=count) for what, count in self._ignored.items()
        )
        if not self._has_begun:
            faults = [each for each in self._waiting if not isinstance(each, events.MessageEvent)]
            if silent := len(self._waiting) - len(faults):
                out.append(
                    events.IgnoredRecord(what="lines of files without any words", count=silent)
                )
            out += faults
            return
        title = self._who.title or self._titles.title
        out.append(events.facts(title=title, workspace=self._workspace))
        if self.held_at is None:
            self._put_checkpoint(self._end)

    def checkpoint_at(
        self, place: int, lines: Iterable[tuple[int, int, bytes | None]]
    ) -> Iterator[events.Event]:
        """Yield the checkpoint of a place; the events of the lines before it are dropped."""
        for begin, _, text in lines:
            if begin >= place:
                break
            self._number += 1
            self._take(begin, text)
        self._close()
        self._out.clear()
        self._put_checkpoint(place)
        yield from self._out

    def _put_checkpoint(self, place: int, *, before: int = 0) -> None:
        if not self._has_places or self.sidechains or not self._has_begun:
            return
        places = {
            name: place if place is None or place == self._tip else self._message_at(place)
            for name, place in self._places.latest(NOTED).items()
        }
        note = {
            "session": self.native_id,
            "linked": self._is_linked,
            "line": self._number - before,
            "title": self._titles.note,
            "tip": self._tip,
            "answer": self._last_answer,
            "calls": self._calls.latest(NOTED),
            "places": places,
        }
        self._marked = place
        self.last_checkpoint = events.Resume(place, note)
        self._out.append(events.Checkpoint(place=place, note=note))

    def _message_at(self, place: str) -> str:
        return self._last_results.get(place) or place


# Answers are written in pieces; the last answer of a file that is quiet for longer is complete.
QUIET = timedelta(minutes=2)
KEPT_DAYS = 30
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
# Kinds of lines that no other tool has.
_KINDS = IGNORED_KINDS | {"ai-title", "custom-title", "teleported-from"}
_MESSAGE_KINDS = frozenset({"user", "assistant", "system", "attachment"})
_SESSION_ID = re.compile(rb'"sessionId"\s*:\s*"([^"\\]+)"')
_HEAD = 16 * 1024
_BUFFER = 256 * 1024
_UNSETTLED = "~"


class _LineName(msgspec.Struct, gc=False):
    uuid: str | None = None
    isSidechain: bool | None = None  # noqa: N815


_decode_name = msgspec.json.Decoder(_LineName).decode


class ClaudeCode(events.Importer):
    """Reads the files of Claude Code."""

    name = TOOL
    title = "Claude Code"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # The session whose agents were read last: its stamp, and the ids of its lines.
        self._names: tuple[tuple[str, str], frozenset[str]] = ("", ""), frozenset()

    def places(self, user: events.UserEnvironment) -> list[Path]:
        """Return `CLAUDE_CONFIG_DIR` or `~/.claude`, and the directory of some versions."""
        return [
            user.path("CLAUDE_CONFIG_DIR", ".claude") / "projects",
            user.path("XDG_CONFIG_HOME", ".config") / "claude" / "projects",
        ]

    def recognises(self, path: Path) -> bool:
        """Return whether a line at the beginning is one of the program's."""
        if path.suffix != ".jsonl" or not files.is_file(path):
            return False
        is_known = False
        for line in files.first_objects(path):
            message = coerce.record(line.get("message"))
            if "parts" in message and "content" not in message:
                # Qwen Code's: its messages have the format of Google's API.
                return False
            is_known = is_known or _is_line(line)
            if is_known and isinstance(line.get("message"), dict):
                break
        return is_known

    def find(self, place: Path) -> Iterator[events.Unit]:
        """Yield the sessions, originals before copies, then their agents."""
        if files.is_file(place):
            yield self._unit(place, _retention(place))
            return
        root = place / "projects" if files.is_directory(place / "projects") else place
        keeps_for = _retention(root / "any")
        found = list(files.walk(root, suffixes=(".jsonl",)))
        for path in sorted((each for each in found if not _is_agent(each)), key=_order):
            yield self._unit(path, keeps_for)
        for path in found:
            if _is_agent(path):
                yield self._unit(path, keeps_for)

    def read(self, unit: events.Unit, resume: events.Resume | None) -> Iterator[events.Event]:
        """Yield the session, then the agents whose lines old versions wrote among its own."""
        at = files.changed_at(unit.path)
        with files.opened(unit.path, buffer=_BUFFER) as file:
            who = _identity_of(unit.path)
            is_settled = not unit.stamp.endswith(_UNSETTLED)
            copied = self._copied(unit.path) if resume is None else frozenset()
            reader = TranscriptReader(who, resume, at=at, is_settled=is_settled, copied=copied)
            yield from reader.read(_lines_from(file, resume))
            if reader.held_at is not None:
                yield events.HeldBack(until=at + QUIET)
                known = reader.last_checkpoint or resume
                before = TranscriptReader(who, known, at=at, copied=copied)
                yield from before.checkpoint_at(reader.held_at, _lines_from(file, known))
            for name, begins in reader.sidechains.items():
                session_id = reader.native_id or who.session_id
                agent = SessionIdentity(session_id, f"agent-{name}")
                inner = TranscriptReader(agent, at=at, has_places=False)
                yield from inner.read(next(files.raw_lines(file, each)) for each in begins)

    def _copied(self, path: Path) -> frozenset[str]:
        """Return the ids of the lines of the session that an agent belongs to.

        Some agents (those that compact a conversation, or answer a question beside it) begin with a
        copy of their session's lines, under the same names.
        """
        session = _session_of(path)
        if session is None:
            return frozenset()
        stamp = str(session), files.stamp_of(session)
        if self._names[0] == stamp:
            return self._names[1]
        names: set[str] = set()
        with files.opened(session, buffer=_BUFFER) as file:
            for _, _, text in files.raw_lines(file):
                try:
                    line = _decode_name(text or b"{}")
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    # It is reported when the session itself is read.
                    continue
                # Not the lines of other agents, which old versions wrote among the session's own.
                if line.uuid is not None and not line.isSidechain:
                    names.add(line.uuid)
        self._names = stamp, frozenset(names)
        return self._names[1]

    def _unit(self, path: Path, keeps_for: timedelta | None) -> events.Unit:
        beside = _meta(path)
        session = _session_of(path)
        stamp = files.stamp_of(path, *beside)
        changed = files.changed_at(path)
        if abs(self._clock.now() - changed) < QUIET:
            stamp += _UNSETTLED
        return events.Unit(
            name=str(path),
            path=path,
            stamp=stamp,
            size=files.size_of(path),
            beside=beside if session is None else (*beside, session),
            expires_at=None if keeps_for is None else changed + keeps_for,
        )


def _is_line(line: Json) -> bool:
    """Whether a line is Claude Code's; other tools write similar ones."""
    kind = line.get("type")
    if not isinstance(kind, str):
        return False
    if kind in _MESSAGE_KINDS:
        is_placed = isinstance(line.get("uuid"), str) or "parentUuid" in line
        return is_placed or ("message" in line and "sessionId" in line)
    if kind == "summary":
        return isinstance(line.get("leafUuid"), str)
    return kind in _KINDS and ("sessionId" in line or kind.startswith("file-history-"))


def _is_agent(path: Path) -> bool:
    return "subagents" in path.parts or path.name.startswith("agent-")


def _named_session(path: Path) -> str | None:
    """Return the session that the first lines of a file name."""
    named = _SESSION_ID.search(files.head(path, _HEAD))
    return None if named is None else named[1].decode("utf-8", "replace")


def _order(path: Path) -> tuple[bool, datetime, str]:
    """Return a key that sorts originals before copies, whose first lines name another session."""
    is_copy = _named_session(path) not in (None, path.stem)
    return is_copy, files.changed_at(path), path.name


def _identity_of(path: Path) -> SessionIdentity:
    if not _is_agent(path):
        return SessionIdentity(path.stem if _UUID.fullmatch(path.stem) else None)
    # The title of an agent is what it was asked to do, or its kind.
    meta = [_object(each) for each in _meta(path)]
    titles = (each.get(name) for each in meta for name in ("description", "agentType"))
    title = coerce.first_name(*titles)
    if "subagents" not in path.parts:
        return SessionIdentity(None, path.stem, title)
    at = len(path.parts) - 1 - path.parts[::-1].index("subagents")
    within = "/".join((*path.parts[at + 1 : -1], path.stem))
    return SessionIdentity(path.parts[at - 1] if at > 0 else None, within, title)


def _session_of(path: Path) -> Path | None:
    """Return the file of the session that an agent belongs to; None without one."""
    if "subagents" in path.parts:
        at = len(path.parts) - 1 - path.parts[::-1].index("subagents")
        folder = Path(*path.parts[:at])
        if not folder.name:
            return None
        found = folder.with_name(f"{folder.name}.jsonl")
    elif path.name.startswith("agent-"):
        name = _named_session(path)
        if name is None or not _UUID.fullmatch(name):
            return None
        found = path.with_name(f"{name}.jsonl")
    else:
        return None
    return found if found != path and files.is_file(found) else None


def _meta(path: Path) -> tuple[Path, ...]:
    if not path.name.startswith("agent-"):
        return ()
    beside = path.with_suffix(".meta.json")
    return (beside,) if files.is_file(beside) else ()


def _retention(path: Path) -> timedelta | None:
    """Return how long the program keeps a file; None for files outside its directories."""
    settings = next(
        (each.parent / "settings.json" for each in path.parents if each.name == "projects"), None
    )
    if settings is None:
        return None
    days = _object(settings).get("cleanupPeriodDays", KEPT_DAYS)
    is_number = isinstance(days, int | float) and not isinstance(days, bool)
    return timedelta(days=days) if is_number and 0 <= days < 36_500 else None


def _object(path: Path) -> Json:
    try:
        found: Any = coerce.decode_json(files.head(path, 256 * 1024))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _lines_from(
    file: BinaryIO, resume: events.Resume | None
) -> Iterator[tuple[int, int, bytes | None]]:
    return files.raw_lines(file, 0 if resume is None else resume.place)


IMPORTER = ClaudeCode(SystemClock())
