"""Follows the lines of one Claude Code session and says what they say.

An answer of the model is written as several lines, one for each block or ever longer ones, with the
results of its tools between them: they are held until the answer is whole, and said in order. Lines
name the line they follow; those that are no message are followed through. The results of tools that
ran side by side each name their own call: they are no branches. A file in which no line names another is
read in its order.
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
    ASIDE,
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
    spoken,
    words_of,
)
from sessionary.model.session import Kind, Lineage
from sessionary.model.usage import MAX_TOKENS

MARK_EVERY = 1024 * 1024
MOST_HELD = 8 * 1024 * 1024
NOTED = 50


TOOL = "claude-code"
_SYNTHETIC = "<synthetic>"
_EMPTY = AnswerMessage()


class PartialAnswer:
    """An answer that is being written, and what was said while it was."""

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
        """Whether the model said why it stopped."""
        return (self._last.message or _EMPTY).stop_reason is not None

    def grow(self, line: TranscriptLine, size: int) -> None:
        """Another line of the same answer."""
        self.size += size
        message = line.message or _EMPTY
        self._blocks = merged(self._blocks, content_of(message.content))
        self._last = line
        # Earlier lines were written while the output came in: the last one has the whole of it.
        if _output(message) > 0:
            self._used = line

    def said(self) -> MessageEvent:
        """The whole of it."""
        message = self._last.message or _EMPTY
        content = MessageContent()
        for block in self._blocks:
            anthropic_blocks.add_block(content, block)
        # What the program says in the model's place is not the model's, unless it is its error.
        is_aside = message.model == _SYNTHETIC and not self._last.isApiErrorMessage
        return MessageEvent(
            role="system" if is_aside else "assistant",
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
    """The tools that a line calls: id and name."""
    blocks: Any = message.content
    found: list[tuple[str, str]] = []
    for block in blocks if type(blocks) is list else ():
        if type(block) is dict and block.get("type") in ("tool_use", "server_tool_use"):
            id = block.get("id")
            if isinstance(id, str):
                found.append((id, str(block.get("name"))))
    return found


def _usage(line: TranscriptLine, at: datetime, name: str) -> Sequence[TokenUsage]:
    """What the call used: billed once, in however many files and lines it stands."""
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
    """The best title so far, and how good it is."""

    def __init__(self, noted: Any = None) -> None:
        is_noted = isinstance(noted, list) and len(noted) == 2
        self._level: int = noted[0] if is_noted else -1
        self.title: str | None = noted[1] if is_noted else None
        # Summaries of conversations that may be this one: it is when their last line is here.
        self.awaited: dict[str, str] = {}

    @property
    def note(self) -> list[Any] | None:
        """What to remember until the next reading."""
        return None if self.title is None else [self._level, self.title]

    def take(self, line: TranscriptLine, seen: RecentEntries[str | None]) -> None:
        """A line that names the session."""
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
        """A line is here for which a summary may have been waiting."""
        self._raise(_SUMMARY, self.awaited.pop(uuid, None))

    def take_prompt(self, made: list[Json]) -> None:
        """What a person said: the first words are a title when there is no other."""
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
    """Which session is read; without a name it has the one that its lines give."""

    session_id: str | None = None
    # The name of an agent that the session ran, when this is its conversation.
    agent: str | None = None
    title: str | None = None


class TranscriptReader:
    """One session being read."""

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
        """Without places reading never goes on from the middle. Lines of the names `copied` are not said."""
        note: Json = resume.note if resume is not None and isinstance(resume.note, dict) else {}
        self._who = who
        self._native_id: str | None = note.get("session")
        self._at, self._is_settled, self._has_places = at, is_settled, has_places
        self._copied = copied
        # Whether any line has named the one it follows.
        self._is_linked: bool = note.get("linked", resume is not None)
        self._end = self._marked = 0 if resume is None else resume.place
        self._number = int(note.get("line", 0))
        self._titles = Titles(note.get("title"))
        self._tip: str | None = note.get("tip")
        # An answer that was taken for whole when reading stopped.
        self._noted_answer = self._last_answer = note.get("answer")
        self._calls = RecentEntries[str](note.get("calls"))
        # Where the message is that a line says or hangs on, by the name of the line.
        self._places = RecentEntries[str | None](note.get("places"))
        # The results of one answer are one place; its last message, by the name of the place.
        self._last_results = RecentEntries[str]()
        self._agents = RecentEntries[str]()
        self._has_begun = resume is not None
        self._growing: PartialAnswer | None = None
        self._boundary: TranscriptLine | None = None
        self._workspace: Json | None = None
        self._mark: Checkpoint | None = None
        # Where an answer begins that was not said because it may not be whole.
        self.held_at: int | None = None
        self._waiting: list[Event] = []
        self._left_out: Counter[str] = Counter()
        self._out: list[Event] = []
        # Where the lines of agents stand that older versions wrote among the others.
        self.sidechains: dict[str, array[int]] = {}

    @property
    def last_mark(self) -> Resume | None:
        """Where reading could go on."""
        return None if self._mark is None else Resume(self._mark.place, self._mark.note)

    @property
    def native_id(self) -> str | None:
        """What the session is called, once that is known."""
        return self._native_id

    def events(self, lines: Iterable[tuple[int, int, bytes | None]]) -> Iterator[Event]:
        """What the lines say."""
        out = self._out
        if self._has_begun:
            yield SessionBegin(native_id=self._native_id or "")
        for begin, end, text in lines:
            self._number += 1
            self._take(begin, text)
            self._end = end
            if end - self._marked > MARK_EVERY and self._growing is None:
                self._put_mark(end)
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
                self._take_aside(line, begin)
                return
            if line.uuid in self._copied:
                self._left_out["lines that an agent copied from its session"] += 1
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
                self._take_said(line, message, len(text))
            else:
                self._take_other(line, text)
        except UnreadableLine as error:
            self._tell(Skipped(where=f"line {self._number}", why=str(error)))

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
            case kind if kind in ASIDE:
                self._leave_out(line, f"{kind} lines")
            case kind:
                self._put_aside(line, [parts.unknown(raw_of(text), f"{TOOL}:{kind}")])

    # Messages

    def _take_answer(
        self, line: TranscriptLine, message: AnswerMessage, begin: int, size: int
    ) -> None:
        growing = self._growing
        name = message.id or line.uuid or f"line-{self._number}"
        if growing is not None and growing.message_id == name:
            growing.grow(line, size)
            self._place(line, growing.id)
        else:
            growing = self._open(line, name, begin)
        for call, tool in call_ids(message):
            self._calls.put(call, tool)
        if growing.size > MOST_HELD:
            self._close()

    def _open(self, line: TranscriptLine, name: str, begin: int) -> PartialAnswer:
        """An answer begins: the one before it is whole."""
        if name == self._noted_answer:
            raise SourceRewritten
        self._close()
        if begin - self._marked > MARK_EVERY:
            # An agent may work for long without a word from anyone.
            self._put_mark(begin, before=1)
        id = line.uuid or f"{name}@{self._number}"
        message_id = None if line.message is None else line.message.id
        # What comes late, after something else was said, is a message of its own.
        parent = FOLLOWS if name == self._last_answer else self._parent(line)
        # Files that others wrote may name neither calls nor lines: their place names them.
        session = self._who.session_id or line.sessionId or self._native_id or "session"
        call = message_id or line.uuid or f"{session}:{self._who.agent or ''}:{name}"
        self._growing = growing = PartialAnswer(
            line, id, name, call=call, parent=parent, at=self._at, start=begin
        )
        self._place(line, id)
        self._tip = id
        return growing

    def _take_said(self, line: TranscriptLine, message: AnswerMessage, size: int) -> None:
        blocks = content_of(message.content)
        if line.isCompactSummary:
            self._take_summary(line, blocks)
            return
        results = [each for each in blocks if is_result(each)]
        if results:
            self._take_results(line, results)
            if self._growing is not None:
                self._growing.size += size
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
            self._leave_out(line, "words of the program beside a prompt")
            return
        said = content.said(role, self._at)
        if role == "user":
            self._close()
            self._titles.take_prompt(said.parts)
        if is_second:
            said.id = None if line.uuid is None else f"{line.uuid}#words"
        else:
            said.parent = self._parent(line)
        self._put(line, said)

    def _take_system(self, line: TranscriptLine) -> None:
        if line.subtype == "compact_boundary":
            self._close()
            self._boundary = line
            self._place(line, self._tip)
            return
        text = line.content
        if line.subtype in NOTES or not isinstance(text, str) or not text.strip():
            self._leave_out(line, f"system lines: {line.subtype or 'other'}")
            return
        self._put_aside(line, [parts.text(spoken(text)[1])])

    def _take_attachment(self, line: TranscriptLine, text: bytes) -> None:
        given = line.attachment if isinstance(line.attachment, dict) else {}
        kind = given.get("type")
        if kind == "queued_command" and given.get("prompt"):
            self._take_words(line, content_of(given["prompt"]))
        elif isinstance(kind, str) and kind.startswith(REMINDERS):
            self._leave_out(line, f"attachments: {kind}")
        else:
            self._put_aside(line, [parts.unknown(raw_of(text), f"{TOOL}:attachment")])

    def _take_summary(self, line: TranscriptLine, blocks: list[Any]) -> None:
        self._close()
        boundary, self._boundary = self._boundary, None
        content = MessageContent()
        anthropic_blocks.add(content, blocks)
        summary = "\n".join(part["text"] for part in content.parts if part["type"] == "text")
        if not self._has_begun:
            # The beginning of the conversation is in another file, or nowhere any more.
            self._place(line, self._tip)
            said = MessageEvent(
                role="system", parts=[parts.text(summary)], at=self._at, id=line.uuid
            )
            self._say(said, line)
            return
        self._place(line, self._tip)
        id = line.uuid if boundary is None else boundary.uuid
        keeps = None if boundary is None else _kept(boundary)
        if keeps is not None:
            keeps = self._places.get(keeps)
        self._out.append(Compacted(summary=summary, at=self._at, id=id, keeps=keeps))

    def _take_aside(self, line: TranscriptLine, begin: int) -> None:
        """A line of an agent, among those of its session: it is read afterwards."""
        key = line.agentId or self._agents.get(line.parent or "") or line.uuid or "agent"
        if line.uuid is not None:
            self._agents.put(line.uuid, key)
        self.sidechains.setdefault(key, array("q")).append(begin)

    # Where we are

    def _put(self, line: TranscriptLine, said: MessageEvent) -> None:
        """Say something behind what was said last; while an answer grows, after it."""
        said.id = said.id or line.uuid
        growing = self._growing
        place = said.id or self._tip
        if growing is not None and said.role == "tool":
            place = f"{growing.id}/results"
            self._last_results.put(place, said.id or growing.id)
        self._place(line, place)
        self._tip = place
        self._say(said, line)

    def _put_aside(self, line: TranscriptLine, made: list[Json]) -> None:
        """Something that neither a person nor a model said: what follows it follows what was said.

        It waits for the first words: by itself it is no conversation.
        """
        self._place(line, self._tip)
        said = MessageEvent(role="system", parts=made, at=self._at, id=line.uuid)
        if self._has_begun or self._growing is not None:
            self._say(said, line)
        else:
            self._waiting.append(said)

    def _close(self) -> None:
        """Say the answer that is whole, then what came while it was written."""
        growing, self._growing = self._growing, None
        if growing is None:
            return
        self._last_answer = growing.message_id
        said = growing.said()
        if said.parts:
            self._say(said, growing.line)
        elif said.usage and self._has_begun:
            self._out.append(UsageEvent(usage=said.usage))
        for follower in growing.followers:
            self._say(follower, growing.line)

    def _say(self, said: MessageEvent, line: TranscriptLine) -> None:
        if self._growing is not None:
            self._growing.followers.append(said)
            return
        if not self._has_begun:
            self._has_begun = True
            self._out.append(self._begin(said, line))
            self._out += self._waiting
            self._waiting = []
        self._out.append(said)

    def _begin(self, said: MessageEvent, line: TranscriptLine) -> SessionBegin:
        session_id = self._who.session_id or line.sessionId or said.id or "session"
        if self._who.agent is not None:
            self._native_id = f"{session_id}/{self._who.agent}"
            parent = Parent(native_id=session_id, lineage=Lineage.SUBAGENT)
            return SessionBegin(native_id=self._native_id, kind=Kind.SUBAGENT, parent=parent)
        self._native_id = session_id
        origin = _origin(line)
        aliases = [f"first:{said.id}"] if said.id is not None else []
        if origin is None or origin == session_id:
            return SessionBegin(native_id=session_id, aliases=aliases)
        parent = Parent(native_id=origin, lineage=Lineage.FORK)
        return SessionBegin(native_id=session_id, parent=parent, aliases=aliases)

    def _parent(self, line: TranscriptLine) -> str | None:
        """The message that a line answers to, where it is not the last one."""
        named = line.parent
        if named is None:
            # A prompt that follows nothing begins the conversation anew.
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

    def _leave_out(self, line: TranscriptLine, what: str) -> None:
        self._left_out[what] += 1
        if line.uuid is not None:
            named = line.parent
            self._places.put(line.uuid, self._tip if named is None else self._places.get(named))

    # The end

    def _finish(self) -> None:
        growing = self._growing
        if growing is not None and not (self._is_settled or growing.is_finished):
            self._growing, self.held_at = None, growing.start
        self._close()
        out = self._out
        out.extend(IgnoredRecord(what=what, count=count) for what, count in self._left_out.items())
        if not self._has_begun:
            unsaid = [each for each in self._waiting if isinstance(each, MessageEvent)]
            if unsaid:
                out.append(
                    IgnoredRecord(what="lines of files without any words", count=len(unsaid))
                )
            out += [each for each in self._waiting if not isinstance(each, MessageEvent)]
            return
        out.append(Facts(fields=self._facts()))
        if self.held_at is None:
            self._put_mark(self._end)

    def _facts(self) -> Json:
        title = self._who.title or self._titles.title
        return {
            name: value
            for name, value in (("title", title), ("workspace", self._workspace))
            if value is not None
        }

    def mark_at(
        self, place: int, lines: Iterable[tuple[int, int, bytes | None]]
    ) -> Iterator[Event]:
        """The mark of a place: what the lines before it say is known already and not said again."""
        for begin, _, text in lines:
            if begin >= place:
                break
            self._number += 1
            self._take(begin, text)
        self._close()
        self._out.clear()
        self._put_mark(place)
        yield from self._out

    def _put_mark(self, place: int, *, before: int = 0) -> None:
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
        self._mark = Checkpoint(place=place, note=note)
        self._out.append(self._mark)

    def _noted_places(self) -> dict[str, str | None]:
        return {
            name: place if place is None or place == self._tip else self._message_at(place)
            for name, place in self._places.latest(NOTED).items()
        }

    def _message_at(self, place: str) -> str:
        return self._last_results.get(place) or place

    def _tell(self, event: Event) -> None:
        """Say what could not be read, when there is a session to say it of."""
        (self._out if self._has_begun else self._waiting).append(event)


def _workspace(line: TranscriptLine) -> Json:
    return {"path": line.cwd} | ({"branch": line.gitBranch} if line.gitBranch else {})


def _origin(line: TranscriptLine) -> str | None:
    """The session that this one was copied from, where its lines say so."""
    forked = line.forkedFrom
    if isinstance(forked, dict) and isinstance(forked.get("sessionId"), str):
        return str(forked["sessionId"])
    return line.sessionId


def _kept(boundary: TranscriptLine) -> str | None:
    """The first message that was kept in full at a compaction."""
    given = boundary.compactMetadata
    segment = given.get("preservedSegment") if isinstance(given, dict) else None
    head = segment.get("headUuid") if isinstance(segment, dict) else None
    return head if isinstance(head, str) else None
