"""Codex: a file of JSON lines for each thread, perhaps compressed; old releases wrote one document."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, cast

from sessionary.clock import Clock, SystemClock
from sessionary.errors import BadInput
from sessionary.formats import coerce, openai_items, parts
from sessionary.formats.coerce import Json
from sessionary.importers.base import archives, events, files
from sessionary.importers.base.content import (
    MessageContent,
    first_time,
    is_plausible_time,
    parse_time,
)
from sessionary.importers.base.files import JsonLine
from sessionary.model.session import Kind, Lineage
from sessionary.model.usage import Usage
from sessionary.store.tables.blobs import hash_of

# Answers are written in pieces; the last answer of a file that is quiet for longer is complete.
QUIET = timedelta(minutes=2)
MAX_DOCUMENT = 64 * 1024 * 1024
_SUFFIXES = (".jsonl", ".jsonl.zst", ".json")
_ROLLOUT = "rollout-"
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_MARKS = (b'"session_meta"', b'"response_item"', b'"turn_context"')
_ARCHIVED = "archived_sessions"
# The instructions of a session come before its first message.
_HEAD = 256 * 1024
_UNSETTLED = "~"

CHECKPOINT_EVERY = 256 * 1024
NEAR_END = 1024 * 1024
# The copy of another thread is written at once, when the new thread begins.
AT_ONCE = timedelta(seconds=1)
NOTED = 50
# How messages begin that the program writes in the user's name.
_INJECTED = (
    "<environment_context>",
    "<user_instructions>",
    "<INSTRUCTIONS>",
    "# AGENTS.md instructions",
    "<permissions instructions>",
    "<skill>",
    "<turn_aborted>",
    "<subagent_notification>",
    "<user_shell_command>",
)
_REPEATED = frozenset({"user_message", "agent_message", "agent_reasoning", "item_completed"})
_NOTICES = {"error": "message", "stream_error": "message", "turn_aborted": "reason"}


class RolloutReader:
    """Reads one thread."""

    def __init__(
        self,
        resume: events.Resume | None,
        *,
        name: str | None,
        title: str | None,
        at: datetime,
        is_archived: bool,
        is_settled: bool,
        settles_at: datetime,
        size: int | None,
    ) -> None:
        note: Json = resume.note if resume is not None and isinstance(resume.note, dict) else {}
        self._name: str | None = note.get("thread") or name
        self._indexed, self._named, self._prompt = title, note.get("named"), note.get("prompt")
        self._at, self._size, self._is_settled = at, size, is_settled
        self._settles_at = settles_at
        self._number, self._count = int(note.get("line", 0)), int(note.get("count", 0))
        self._turns: list[int] = list(note.get("turns") or ())
        self._tokens = TokenCounter(note.get("tokens"))
        # Whether the last answer was taken for complete because nothing followed it.
        self._may_grow = bool(note.get("open"))
        self._has_begun = resume is not None
        self._meta: Json | None = {} if resume is not None else None
        self._is_agent = bool(note.get("agent"))
        self._began: datetime | None = None
        # Whether the current lines are copied from another thread.
        self._is_copy = False
        self._is_dated = False
        self._answer = MessageContent()
        self._answer_at = at
        self._start = 0
        self._facts: Json = {"archived": True} if is_archived else {}
        self._end = self._marked = 0 if resume is None else resume.place
        self._checkpoint: events.Checkpoint | None = None
        self._waiting: list[events.Event] = []
        self._ignored: Counter[str] = Counter()
        self._out: list[events.Event] = []

    def read(self, lines: Iterable[JsonLine]) -> Iterator[events.Event]:
        """Yield the events of the lines."""
        out = self._out
        if self._has_begun:
            yield events.SessionBegin(native_id=self._name or "")
        for line in lines:
            self._number += 1
            self._take(line)
            self._end = line.end
            if line.end - self._marked > CHECKPOINT_EVERY and not self._answer:
                self._put_checkpoint(line.end)
            if out:
                yield from out
                out.clear()
        self._finish()
        yield from out

    def _take(self, line: JsonLine) -> None:
        if line.data is None:
            event = events.Skipped(where=f"line {self._number}", why=line.why or "unreadable")
            (self._out if self._has_begun else self._waiting).append(event)
            return
        kind, payload = line.data.get("type"), line.data.get("payload")
        self._at = parse_time(line.data.get("timestamp")) or self._at
        if not isinstance(payload, dict):
            # A line of an old release: an item, a state, or the thread's header.
            payload, is_state = line.data, "record_type" in line.data
            is_item = isinstance(kind, str)
            kind = "response_item" if is_item else "state" if is_state else "session_meta"
        match kind:
            case "response_item":
                self._take_item(payload, line.start)
            case "event_msg":
                self._take_event(payload)
            case "turn_context":
                self._close()
                turn_id = coerce.name(payload.get("turn_id"))
                self._tokens.begin(turn_id, coerce.name(payload.get("model")))
                if self._is_copy and self._began is not None:
                    made = _time_in(turn_id)
                    self._is_dated = made is not None
                    self._is_copy = made < self._began if made is not None else self._is_copying()
                if "workspace" not in self._facts:
                    self._work_in(payload.get("cwd"))
            case "session_meta":
                self._take_meta(payload)
            case "compacted":
                self._close()
                summary = coerce.text(payload.get("message"))
                self._emit(events.Compacted(summary=summary, at=self._at))
            case _:
                self._ignored[f"{coerce.name(kind) or 'other'} lines"] += 1

    # Lines

    def _take_meta(self, payload: Json) -> None:
        if self._meta is not None:
            # The second one belongs to the thread that this one is a copy of.
            return
        self._meta = payload
        self._name = coerce.name(payload.get("id")) or self._name
        self._began = first_time(payload.get("timestamp"), self._at)
        self._is_copy = _origin(payload) is not None
        self._work_in(payload.get("cwd"), coerce.record(payload.get("git")).get("branch"))
        info = coerce.record(payload.get("base_instructions")).get("text")
        prompt = coerce.first_name(info, payload.get("instructions"))
        if prompt is not None:
            self._facts["system_prompt"] = prompt
        self._tokens.provider = coerce.name(payload.get("model_provider"))

    def _is_copying(self) -> bool:
        if not self._is_copy or self._began is None:
            return False
        return self._is_dated or self._at - self._began <= AT_ONCE

    def _take_item(self, item: Json, start: int) -> None:
        if item.get("type") in ("compaction", "compaction_summary", "ghost_snapshot"):
            self._ignored[f"{item['type']} items"] += 1
            return
        content = MessageContent()
        role = openai_items.add_item(content, item)
        if not content:
            return
        if role == "assistant":
            # The model's reasoning, texts and calls are one message.
            if self._may_grow:
                raise events.SourceRewritten
            if not self._answer:
                self._answer_at, self._start = self._at, start
                if self._size is not None and start > self._size - NEAR_END:
                    self._put_checkpoint(start, before=1)
            self._answer.parts += content.parts
            self._answer.blobs += content.blobs
            return
        self._close()
        if role == "user" and _words(content).startswith(_INJECTED):
            role = "system"
        if role == "user":
            self._turns = [*self._turns[-999:], self._count]
            self._prompt = self._prompt or _words(content)[:400]
        self._emit(content.to_message(role, self._at))

    def _take_event(self, payload: Json) -> None:
        kind = coerce.text(payload.get("type"))
        if kind in _REPEATED:
            return
        self._close()
        if kind == "token_count":
            info, thread, is_copy = payload.get("info"), self._name or "", self._is_copying()
            used = self._tokens.take(info, thread=thread, at=self._at, is_copy=is_copy)
            if used is not None:
                self._emit(events.UsageEvent(usage=[used]))
        elif kind == "thread_name_updated":
            self._named = coerce.name(payload.get("thread_name")) or self._named
        elif kind == "thread_rolled_back":
            turns = coerce.count(payload.get("num_turns"))
            if 0 < turns <= len(self._turns):
                before = self._turns[-turns]
                del self._turns[-turns:]
                self._emit(events.Retracted(after=_id(before) if before else None, at=self._at))
        elif kind in _NOTICES:
            words = coerce.name(payload.get(_NOTICES[kind])) or "unknown"
            text_part = parts.text(f"{kind.replace('_', ' ')}: {words}")
            self._emit(events.MessageEvent(role="system", parts=[text_part], at=self._at))
        else:
            self._ignored[f"{kind} events"] += 1

    # Events

    def _close(self) -> None:
        """Emit the answer: something else follows it."""
        self._may_grow = False
        if self._answer:
            answer, self._answer = self._answer, MessageContent()
            self._emit(answer.to_message("assistant", self._answer_at, model=self._tokens.model))

    def _emit(
        self, event: events.MessageEvent | events.Compacted | events.Retracted | events.UsageEvent
    ) -> None:
        if self._is_copying() and _agent_of(self._meta or {}) is not None:
            self._ignored["messages copied from the thread that began an agent"] += 1
            return
        if isinstance(event, events.MessageEvent):
            self._count += 1
            event.id = _id(self._count)
        if not self._has_begun:
            if not isinstance(event, events.MessageEvent):
                return
            self._has_begun = True
            self._out.append(self._begin())
            self._out += self._waiting
            self._waiting = []
        self._out.append(event)

    def _begin(self) -> events.SessionBegin:
        meta = self._meta or {}
        name = self._name or f"rollout {self._at.isoformat()}"
        self._name = name
        agent = _agent_of(meta)
        if agent is not None:
            self._is_agent = True
            parent, title = agent
            self._named = self._named or title
            return events.begin_session(name, self._began, parent=parent, kind=Kind.SUBAGENT)
        return events.begin_session(name, self._began, parent=_origin(meta), lineage=Lineage.FORK)

    def _work_in(self, path: object, branch: object = None) -> None:
        if (found := events.workspace(path, branch=branch)) is not None:
            self._facts["workspace"] = found

    # The end

    def _finish(self) -> None:
        is_held = bool(self._answer) and not self._is_settled
        is_open = bool(self._answer)
        if not is_held:
            self._close()
        out = self._out
        out.extend(
            events.IgnoredRecord(what=what, count=count) for what, count in self._ignored.items()
        )
        if not self._has_begun:
            out += self._waiting
            return
        title = self._named or self._indexed or self._prompt
        out.append(events.Facts(fields=self._facts | ({"title": title} if title else {})))
        if is_held:
            out.append(events.HeldBack(until=self._settles_at))
        if not is_held:
            self._may_grow = is_open
            self._put_checkpoint(self._end)
        elif self._checkpoint is not None and self._checkpoint.place == self._start:
            out.append(self._checkpoint)

    def _put_checkpoint(self, place: int, *, before: int = 0) -> None:
        if self._size is None or not self._has_begun:
            return
        note = {
            "thread": self._name,
            "named": self._named,
            "prompt": self._prompt,
            "line": self._number - before,
            "count": self._count,
            "turns": self._turns[-NOTED:],
            "tokens": self._tokens.note,
            "open": self._may_grow,
            "agent": self._is_agent,
        }
        self._marked = place
        self._checkpoint = events.Checkpoint(place=place, note=note)
        self._out.append(self._checkpoint)


def _id(number: int) -> str:
    """Return a message's id: a copy of a thread numbers its messages in the same way."""
    return f"m{number}"


def _words(content: MessageContent) -> str:
    return " ".join(part["text"] for part in content.parts if part["type"] == "text").strip()


def _origin(meta: Json) -> str | None:
    forked = coerce.name(meta.get("forked_from_id"))
    agent = _agent_of(meta)
    return forked if agent is None else agent[0]


def _agent_of(meta: Json) -> tuple[str | None, str | None] | None:
    """Return the thread that started this one as its agent, and the agent's name."""
    source: Any = meta.get("source")
    inner = source.get("subagent") if isinstance(source, dict) else None
    if inner is None and meta.get("thread_source") != "subagent":
        return None
    spawn = coerce.record(coerce.record(inner).get("thread_spawn"))
    parent = coerce.first_name(spawn.get("parent_thread_id"), meta.get("parent_thread_id"))
    role = coerce.name(spawn.get("agent_role"))
    title = coerce.name(spawn.get("agent_nickname")) or role or coerce.name(inner)
    return parent, title


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# In milliseconds: such an id can hold times beyond every calendar.
_LATEST = 10**14
_FIELDS = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens")


class TokenCounter:
    """The calls so far.

    A count is written after each call and again when nothing has changed: it is a call only when the
    total has grown. A call is named by its turn and its number in it, so that a copy of a thread has
    the same names and is paid once.
    """

    def __init__(self, noted: Any = None) -> None:
        note = coerce.record(noted)
        self.model = coerce.name(note.get("model"))
        self.provider = coerce.name(note.get("provider"))
        self._turn = coerce.name(note.get("turn"))
        self._number = coerce.count(note.get("number"))
        self._total = tuple(map(coerce.count, coerce.items(note.get("total"))))

    @property
    def note(self) -> Json:
        """The state for the next import."""
        return {
            "model": self.model,
            "provider": self.provider,
            "turn": self._turn,
            "number": self._number,
            "total": list(self._total),
        }

    def begin(self, turn_id: str | None, model: str | None) -> None:
        """Begin a turn, or note its settings again."""
        self.model = model or self.model
        is_name = turn_id is not None and _UUID.fullmatch(turn_id) is not None
        turn = turn_id if is_name else None
        if turn != self._turn:
            self._turn, self._number = turn, 0 if turn is not None else self._number

    def take(self, info: object, *, thread: str, at: datetime, is_copy: bool) -> Usage | None:
        """Return the call that a count describes; None if nothing was added."""
        info = coerce.record(info)
        total = _counts(info.get("total_token_usage"))
        if not info or (total == self._total and any(total)):
            return None
        if isinstance(info.get("last_token_usage"), dict):
            used = _counts(info["last_token_usage"])
        else:
            before = self._total or (0,) * len(total)
            used = tuple(max(0, n - then) for n, then in zip(total, before, strict=False))
        self._total = total
        self._number += 1
        if not any(used) or (is_copy and self._turn is None):
            return None
        sent, cached, output, reasoning = used
        return Usage(
            model=self.model,
            provider=self.provider,
            input_tokens=max(0, sent - cached),
            output_tokens=output,
            cache_read_tokens=min(cached, sent),
            reasoning_tokens=min(reasoning, output),
            call_id=f"codex:{self._turn or thread}:{self._number}",
            at=at,
        )


def _time_in(turn_id: str | None) -> datetime | None:
    """Return when a turn began, if its id is one of those that begin with milliseconds."""
    if turn_id is None or not _UUID.fullmatch(turn_id) or turn_id[14] != "7":
        return None
    at = _EPOCH + timedelta(milliseconds=min(int(turn_id.replace("-", "")[:12], 16), _LATEST))
    return at if is_plausible_time(at) else None


def _counts(info: object) -> tuple[int, ...]:
    counted = coerce.record(info)
    return tuple(coerce.count(counted.get(name)) for name in _FIELDS)


class Codex(events.Importer):
    """Reads the rollouts of Codex."""

    name = "codex"
    title = "Codex"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def places(self, user: events.UserEnvironment) -> list[Path]:
        """Return `CODEX_HOME` or `~/.codex`."""
        return [user.path("CODEX_HOME", ".codex")]

    def recognises(self, path: Path) -> bool:
        """Return whether it is a rollout, compressed or not, or a document of an old release."""
        if not files.is_file(path) or not path.name.endswith(_SUFFIXES):
            return False
        is_named = path.name.startswith(_ROLLOUT)
        head = _packed_head(path) if path.suffix == ".zst" else files.head(path, _HEAD)
        if path.suffix == ".json":
            has_thread = b'"session"' in head and b'"items"' in head
            return has_thread and (is_named or b'"instructions"' in head)
        if b'"payload"' in head and any(mark in head for mark in _MARKS):
            return True
        # The lines of the first releases have no envelope.
        is_bare = path.suffix == ".jsonl" and is_named
        first = next(files.first_objects(path), {}) if is_bare else {}
        return isinstance(first.get("id"), str) and "timestamp" in first and "instructions" in first

    def find(self, place: Path) -> Iterator[events.Unit]:
        """Yield the oldest rollouts first: a copy comes after its original."""
        if files.is_file(place):
            yield self._unit(place, {})
            return
        titles = _titles(place / "session_index.jsonl")
        found = files.walk(place, suffixes=_SUFFIXES)
        rollouts = [each for each in found if each.name.startswith(_ROLLOUT)]
        for path in sorted(rollouts, key=lambda each: each.name):
            yield self._unit(path, titles)

    def read(self, unit: events.Unit, resume: events.Resume | None) -> Iterator[events.Event]:
        reader = RolloutReader(
            resume,
            name=_thread_of(unit.path),
            title=unit.hint if isinstance(unit.hint, str) else None,
            at=files.changed_at(unit.path),
            is_archived=_ARCHIVED in unit.path.parts,
            is_settled=not unit.stamp.endswith(_UNSETTLED),
            settles_at=files.changed_at(unit.path) + QUIET,
            # A compressed file no longer grows, and cannot be resumed.
            size=None if unit.path.suffix != ".jsonl" else unit.size,
        )
        with files.opened(unit.path) as file:
            if unit.path.suffix == ".json":
                lines = _items(file, unit.path)
            elif unit.path.suffix == ".zst":
                lines = files.json_lines(archives.decompressed(file))
            else:
                lines = files.json_lines(file, 0 if resume is None else resume.place)
            yield from reader.read(lines)

    def _unit(self, path: Path, titles: dict[str, str]) -> events.Unit:
        title = titles.get(_thread_of(path) or "")
        stamp = files.stamp_of(path)
        if title is not None:
            stamp += f";{hash_of(title.encode('utf-8', 'surrogatepass'))[:16]}"
        if abs(self._clock.now() - files.changed_at(path)) < QUIET:
            stamp += _UNSETTLED
        return events.Unit(str(path), path, stamp, files.size_of(path), hint=title)


def _packed_head(path: Path) -> bytes:
    """Return the first bytes of a compressed file; none if it is damaged."""
    try:
        with files.opened(path) as packed:
            return archives.decompressed(packed).read(_HEAD)
    except (BadInput, OSError):
        return b""


def _thread_of(path: Path) -> str | None:
    found = _UUID.findall(path.name)
    return found[-1] if found else None


def _titles(index: Path) -> dict[str, str]:
    """Return the titles of threads from the list that some releases wrote; the last one counts."""
    found: dict[str, str] = {}
    # Most releases have no such list; a thread may contain its title, too.
    with suppress(BadInput):
        for line in files.read_json_lines(index):
            info = line.data or {}
            id, title = coerce.name(info.get("id")), coerce.name(info.get("thread_name"))
            if id is not None and title is not None:
                found[id] = title
    return found


def _items(file: BinaryIO, path: Path) -> Iterator[JsonLine]:
    """Yield the document of an old release as lines of today's format."""
    text = file.read(MAX_DOCUMENT + 1)
    if len(text) > MAX_DOCUMENT:
        raise BadInput(f"{path} is larger than {MAX_DOCUMENT:,} bytes; it was left alone.")
    try:
        document = coerce.record(coerce.decode_json(text))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not JSON ({str(error)[:100]}).") from error
    if coerce.is_deep(document):
        raise BadInput(f"{path} is nested too deeply; it was left alone.")
    yield JsonLine(0, 0, coerce.record(document.get("session")))
    for item in cast(list[object], coerce.items(document.get("items"))):
        yield JsonLine(0, 0, item if isinstance(item, dict) else None, "not an object")


IMPORTER = Codex(SystemClock())
