"""Reads the lines of one Claude Code session as events.

An answer of the model is written as several lines, one for each block or ever longer ones, with
the results of its tools between them: they are held until the answer is complete. Lines name the
line they follow; those that are no messages are skipped in between. The results of tools that
ran in parallel name their own calls: they are no branches. A file in which no line names another
is read in its order.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sessionary.formats import anthropic_blocks, parts
from sessionary.importers.base import files
from sessionary.importers.base.content import MessageContent, RecentEntries
from sessionary.importers.base.events import (
    FOLLOWS,
    Checkpoint,
    Compacted,
    Event,
    Facts,
    IgnoredRecord,
    Json,
    MessageEvent,
    Parent,
    Resume,
    SessionBegin,
    Skipped,
    SourceRewritten,
    TokenUsage,
    UsageEvent,
)
from sessionary.importers.claude_code.lines import (
    IGNORED_KINDS,
    NOTES,
    REMINDERS,
    AnswerMessage,
    TranscriptLine,
    UnreadableLine,
    content_of,
    is_result,
    line_of,
    merged,
    raw_of,
    split_program_text,
    words_of,
)
from sessionary.model.session import Kind, Lineage
from sessionary.model.usage import MAX_TOKENS

CHECKPOINT_EVERY = 1024 * 1024
MOST_HELD = 8 * 1024 * 1024
NOTED = 50


TOOL = "claude-code"
_SYNTHETIC = "<synthetic>"
_EMPTY = AnswerMessage()


class PartialAnswer:
    """An answer that is not complete yet, and the messages that came meanwhile."""

    __slots__ = (
        "_at",
        "_blocks",
        "_call",
        "_last",
        "_parent",
        "_used",
        "followers",
        "id",
        "line",
        "message_id",
        "size",
        "start",
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
        self.followers: list[MessageEvent] = []
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
        if _output(message) > 0:
            self._used = line

    def to_message(self) -> MessageEvent:
        """Return the answer as one message."""
        message = self._last.message or _EMPTY
        content = MessageContent()
        for block in self._blocks:
            anthropic_blocks.add_block(content, block)
        # Texts that the program writes in place of the model are not the model's, errors excepted.
        is_system = message.model == _SYNTHETIC and not self._last.isApiErrorMessage
        return MessageEvent(
            role="system" if is_system else "assistant",
            parts=content.parts,
            blobs=content.blobs,
            at=self._at,
            id=self.id,
            parent=self._parent,
            model=None if message.model == _SYNTHETIC else message.model,
            finish_reason="error" if self._last.isApiErrorMessage else message.stop_reason,
            usage=_usage(self._used, self._at, self._call),
        )


def call_ids(message: AnswerMessage) -> list[tuple[str, str]]:
    """Return id and name of the tools that a line calls."""
    blocks: Any = message.content
    found: list[tuple[str, str]] = []
    for block in blocks if type(blocks) is list else ():
        if type(block) is dict and block.get("type") in ("tool_use", "server_tool_use"):
            id = block.get("id")
            if isinstance(id, str):
                found.append((id, str(block.get("name"))))
    return found


def _usage(line: TranscriptLine, at: datetime, name: str) -> Sequence[TokenUsage]:
    """Return the usage of a call, with the same id in every file and line that has it."""
    message = line.message or _EMPTY
    tokens, model = message.usage, message.model
    if tokens is None or model is None or model == _SYNTHETIC:
        return ()
    written, kept = _whole(tokens.cache_creation_input_tokens), tokens.cache_creation
    used = TokenUsage(
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


def _output(message: AnswerMessage) -> int:
    return 0 if message.usage is None else message.usage.output_tokens or 0


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
        resume: Resume | None = None,
        *,
        at: datetime,
        is_settled: bool = True,
        has_places: bool = True,
        copied: Set[str] = frozenset(),
    ) -> None:
        """Without places there are no checkpoints. Lines with the ids `copied` are ignored."""
        note: Json = resume.note if resume is not None and isinstance(resume.note, dict) else {}
        self._who = who
        self._native_id: str | None = note.get("session")
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
        self._checkpoint: Checkpoint | None = None
        # Where an answer begins that is held back because it may not be complete.
        self.held_at: int | None = None
        self._waiting: list[Event] = []
        self._ignored: Counter[str] = Counter()
        self._out: list[Event] = []
        # Offsets of the lines of agents that old versions wrote among the others.
        self.sidechains: dict[str, array[int]] = {}

    @property
    def last_checkpoint(self) -> Resume | None:
        """Where the next import could resume."""
        return (
            None
            if self._checkpoint is None
            else Resume(self._checkpoint.place, self._checkpoint.note)
        )

    @property
    def native_id(self) -> str | None:
        """The session's id, once it is known."""
        return self._native_id

    def events(self, lines: Iterable[tuple[int, int, bytes | None]]) -> Iterator[Event]:
        """Yield the events of the lines."""
        out = self._out
        if self._has_begun:
            yield SessionBegin(native_id=self._native_id or "")
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
                self._take_sidechain(line, begin)
                return
            if line.uuid in self._copied:
                self._ignored["lines that an agent copied from its session"] += 1
                return
            if line.parentUuid:
                self._is_linked = True
            if line.timestamp is not None:
                self._at = line.timestamp
            if self._workspace is None or self._titles.awaited:
                self._note_facts(line)
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
            self._skip(Skipped(where=f"line {self._number}", why=str(error)))

    def _note_facts(self, line: TranscriptLine) -> None:
        if line.uuid is not None:
            self._titles.meet(line.uuid)
        if self._workspace is None and line.cwd:
            self._workspace = _workspace(line)

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
        for call, tool in call_ids(message):
            self._calls.put(call, tool)
        if answer.size > MOST_HELD:
            self._close()

    def _open(self, line: TranscriptLine, name: str, begin: int) -> PartialAnswer:
        """Begin an answer: the one before it is complete."""
        if name == self._noted_answer:
            raise SourceRewritten
        self._close()
        if begin - self._marked > CHECKPOINT_EVERY:
            # An agent may work for long without any other message.
            self._put_checkpoint(begin, before=1)
        id = line.uuid or f"{name}@{self._number}"
        message_id = None if line.message is None else line.message.id
        # A part that comes after other messages is a message of its own.
        parent = FOLLOWS if name == self._last_answer else self._parent(line)
        # Files of other programs may have ids of neither calls nor lines: use their place.
        session = self._who.session_id or line.sessionId or self._native_id or "session"
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
        results = [each for each in blocks if is_result(each)]
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
        self._put(
            line,
            MessageEvent(
                role="tool",
                parts=content.parts,
                blobs=content.blobs,
                at=self._at,
                id=line.uuid,
                parent=FOLLOWS if is_awaited else self._parent(line),
            ),
        )

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
        if not self._has_begun:
            # The beginning of the conversation is in another file, or deleted.
            self._place(line, self._tip)
            message = MessageEvent(
                role="system", parts=[parts.text(summary)], at=self._at, id=line.uuid
            )
            self._emit_message(message, line)
            return
        self._place(line, self._tip)
        id = line.uuid if boundary is None else boundary.uuid
        keeps = None if boundary is None else _first_kept(boundary)
        if keeps is not None:
            keeps = self._places.get(keeps)
        self._out.append(Compacted(summary=summary, at=self._at, id=id, keeps=keeps))

    def _take_sidechain(self, line: TranscriptLine, begin: int) -> None:
        """Note a line of an agent among those of its session: it is read afterwards."""
        key = line.agentId or self._agents.get(line.parent or "") or line.uuid or "agent"
        if line.uuid is not None:
            self._agents.put(line.uuid, key)
        self.sidechains.setdefault(key, array("q")).append(begin)

    # Places

    def _put(self, line: TranscriptLine, message: MessageEvent) -> None:
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
        message = MessageEvent(role="system", parts=made, at=self._at, id=line.uuid)
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
            self._out.append(UsageEvent(usage=message.usage))
        for follower in answer.followers:
            self._emit_message(follower, answer.line)

    def _emit_message(self, message: MessageEvent, line: TranscriptLine) -> None:
        if self._answer is not None:
            self._answer.followers.append(message)
            return
        if not self._has_begun:
            self._has_begun = True
            self._out.append(self._begin(message, line))
            self._out += self._waiting
            self._waiting = []
        self._out.append(message)

    def _begin(self, message: MessageEvent, line: TranscriptLine) -> SessionBegin:
        session_id = self._who.session_id or line.sessionId or message.id or "session"
        if self._who.agent is not None:
            self._native_id = f"{session_id}/{self._who.agent}"
            parent = Parent(native_id=session_id, lineage=Lineage.SUBAGENT)
            return SessionBegin(native_id=self._native_id, kind=Kind.SUBAGENT, parent=parent)
        self._native_id = session_id
        origin = _origin(line)
        aliases = [f"first:{message.id}"] if message.id is not None else []
        if origin is None or origin == session_id:
            return SessionBegin(native_id=session_id, aliases=aliases)
        parent = Parent(native_id=origin, lineage=Lineage.FORK)
        return SessionBegin(native_id=session_id, parent=parent, aliases=aliases)

    def _parent(self, line: TranscriptLine) -> str | None:
        """Return the message that a line follows, if it is not the last one."""
        named = line.parent
        if named is None:
            # A prompt without a parent starts the conversation over.
            is_root = self._is_linked and line.parentUuid is None
            is_anew = (
                is_root and line.type == "user" and not line.isMeta and line.uuid and self._tip
            )
            return None if is_anew and self._boundary is None else FOLLOWS
        place = self._places.get(named, named)
        if place is None or place == self._tip:
            return FOLLOWS
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
        out.extend(IgnoredRecord(what=what, count=count) for what, count in self._ignored.items())
        if not self._has_begun:
            system_messages = [each for each in self._waiting if isinstance(each, MessageEvent)]
            if system_messages:
                out.append(
                    IgnoredRecord(
                        what="lines of files without any words", count=len(system_messages)
                    )
                )
            out += [each for each in self._waiting if not isinstance(each, MessageEvent)]
            return
        out.append(Facts(fields=self._facts()))
        if self.held_at is None:
            self._put_checkpoint(self._end)

    def _facts(self) -> Json:
        title = self._who.title or self._titles.title
        return {
            name: value
            for name, value in (("title", title), ("workspace", self._workspace))
            if value is not None
        }

    def checkpoint_at(
        self, place: int, lines: Iterable[tuple[int, int, bytes | None]]
    ) -> Iterator[Event]:
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
        note = {
            "session": self._native_id,
            "linked": self._is_linked,
            "line": self._number - before,
            "title": self._titles.note,
            "tip": self._tip,
            "answer": self._last_answer,
            "calls": self._calls.latest(NOTED),
            "places": self._noted_places(),
        }
        self._marked = place
        self._checkpoint = Checkpoint(place=place, note=note)
        self._out.append(self._checkpoint)

    def _noted_places(self) -> dict[str, str | None]:
        return {
            name: place if place is None or place == self._tip else self._message_at(place)
            for name, place in self._places.latest(NOTED).items()
        }

    def _message_at(self, place: str) -> str:
        return self._last_results.get(place) or place

    def _skip(self, event: Event) -> None:
        """Report what could not be read, once there is a session."""
        (self._out if self._has_begun else self._waiting).append(event)


def _workspace(line: TranscriptLine) -> Json:
    return {"path": line.cwd} | ({"branch": line.gitBranch} if line.gitBranch else {})


def _origin(line: TranscriptLine) -> str | None:
    """Return the session that this one was copied from, if its lines name it."""
    forked = line.forkedFrom
    if isinstance(forked, dict) and isinstance(forked.get("sessionId"), str):
        return str(forked["sessionId"])
    return line.sessionId


def _first_kept(boundary: TranscriptLine) -> str | None:
    """Return the first message that a compaction keeps."""
    given = boundary.compactMetadata
    segment = given.get("preservedSegment") if isinstance(given, dict) else None
    head = segment.get("headUuid") if isinstance(segment, dict) else None
    return head if isinstance(head, str) else None
