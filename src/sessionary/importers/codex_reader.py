"""Follows the lines of one Codex rollout and says what they say.

What the model did stands in `response_item` lines; `event_msg` lines repeat it for the screen, and
are read only for what stands nowhere else: tokens, names, errors, what was rolled back.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

from sessionary.formats import openai_items, parts, shape
from sessionary.importers import times
from sessionary.importers.base import (
    Begin,
    Compacted,
    Event,
    Facts,
    HeldBack,
    Json,
    LeftOut,
    Mark,
    Parent,
    Regrown,
    Resume,
    Said,
    Skipped,
    Spent,
    TakenBack,
)
from sessionary.importers.codex_tokens import Tokens, time_in
from sessionary.importers.content import Content
from sessionary.importers.json_lines import Line
from sessionary.model.session import Kind, Lineage

MARK_EVERY = 256 * 1024
NEAR_END = 1024 * 1024
# A copy of another thread is written at one stroke, when the thread begins.
AT_ONCE = timedelta(seconds=1)
NOTED = 50
# What the program puts before a prompt, in the person's name.
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
_TOLD = {"error": "message", "stream_error": "message", "turn_aborted": "reason"}


class Reader:
    """One thread being read."""

    def __init__(
        self,
        resume: Resume | None,
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
        self._tokens = Tokens(note.get("tokens"))
        # The last answer was taken for whole because nothing came behind it.
        self._may_grow = bool(note.get("open"))
        self._has_begun = resume is not None
        self._meta: Json | None = {} if resume is not None else None
        self._is_agent = bool(note.get("agent"))
        self._began: datetime | None = None
        # Whether what is read now stands in the thread that this one was copied from.
        self._is_copy = False
        self._is_dated = False
        self._answer = Content()
        self._answer_at = at
        self._start = 0
        self._facts: Json = {"archived": True} if is_archived else {}
        self._end = self._marked = 0 if resume is None else resume.place
        self._mark: Mark | None = None
        self._waiting: list[Event] = []
        self._left_out: Counter[str] = Counter()
        self._out: list[Event] = []

    def events(self, lines: Iterable[Line]) -> Iterator[Event]:
        """What the lines say."""
        out = self._out
        if self._has_begun:
            yield Begin(native_id=self._name or "")
        for line in lines:
            self._number += 1
            self._take(line)
            self._end = line.end
            if line.end - self._marked > MARK_EVERY and not self._answer:
                self._put_mark(line.end)
            if out:
                yield from out
                out.clear()
        self._finish()
        yield from out

    def _take(self, line: Line) -> None:
        if line.data is None:
            event = Skipped(where=f"line {self._number}", why=line.why or "unreadable")
            (self._out if self._has_begun else self._waiting).append(event)
            return
        kind, payload = line.data.get("type"), line.data.get("payload")
        self._at = times.of(line.data.get("timestamp")) or self._at
        if not isinstance(payload, dict):
            kind, payload = _bare(line.data)
        match kind:
            case "response_item":
                self._take_item(payload, line.start)
            case "event_msg":
                self._take_event(payload)
            case "turn_context":
                self._close()
                self._take_turn(payload)
            case "session_meta":
                self._take_meta(payload)
            case "compacted":
                self._close()
                summary = shape.words(payload.get("message"))
                self._say(Compacted(summary=summary, at=self._at))
            case _:
                self._left_out[f"{shape.name(kind) or 'other'} lines"] += 1

    # Lines

    def _take_meta(self, payload: Json) -> None:
        if self._meta is not None:
            # Behind the thread's own: that of the thread it is a copy of.
            return
        self._meta = payload
        self._name = shape.name(payload.get("id")) or self._name
        self._began = times.first(payload.get("timestamp"), self._at)
        self._is_copy = _origin(payload) is not None
        git = shape.record(payload.get("git"))
        self._work_in(payload.get("cwd"), git.get("branch"))
        told = shape.record(payload.get("base_instructions")).get("text")
        prompt = shape.name(told) or shape.name(payload.get("instructions"))
        if prompt is not None:
            self._facts["system_prompt"] = prompt
        self._tokens.provider = shape.name(payload.get("model_provider"))

    def _take_turn(self, payload: Json) -> None:
        turn_id = shape.name(payload.get("turn_id"))
        self._tokens.begin(turn_id, shape.name(payload.get("model")))
        if self._is_copy and self._began is not None:
            made = time_in(turn_id)
            self._is_dated = made is not None
            self._is_copy = made < self._began if made is not None else self._is_copying()
        if "workspace" not in self._facts:
            self._work_in(payload.get("cwd"), None)

    def _is_copying(self) -> bool:
        if not self._is_copy or self._began is None:
            return False
        return self._is_dated or self._at - self._began <= AT_ONCE

    def _take_item(self, item: Json, start: int) -> None:
        if item.get("type") in ("compaction", "compaction_summary", "ghost_snapshot"):
            self._left_out[f"{item['type']} items"] += 1
            return
        content = Content()
        role = openai_items.add_item(content, item)
        if not content:
            return
        if role == "assistant":
            self._grow(content, start)
            return
        self._close()
        if role == "user" and _is_injected(content):
            role = "system"
        if role == "user":
            self._turns = [*self._turns[-999:], self._count]
            self._prompt = self._prompt or _words(content)[:400]
        self._say(content.said(role, self._at))

    def _grow(self, content: Content, start: int) -> None:
        """Add to the model's answer: its thoughts, words and calls are one message."""
        if self._may_grow:
            raise Regrown
        if not self._answer:
            self._answer_at, self._start = self._at, start
            if self._size is not None and start > self._size - NEAR_END:
                self._put_mark(start, before=1)
        self._answer.parts += content.parts
        self._answer.blobs += content.blobs

    def _take_event(self, payload: Json) -> None:
        kind = shape.words(payload.get("type"))
        if kind in _REPEATED:
            return
        self._close()
        if kind == "token_count":
            self._pay(payload)
        elif kind == "thread_name_updated":
            self._named = shape.name(payload.get("thread_name")) or self._named
        elif kind == "thread_rolled_back":
            self._roll_back(shape.count(payload.get("num_turns")))
        elif kind in _TOLD:
            words = shape.name(payload.get(_TOLD[kind])) or "unknown"
            said = parts.text(f"{kind.replace('_', ' ')}: {words}")
            self._say(Said(role="system", parts=[said], at=self._at))
        else:
            self._left_out[f"{kind} events"] += 1

    def _pay(self, payload: Json) -> None:
        used = self._tokens.take(
            payload.get("info"),
            thread=self._name or "",
            at=self._at,
            is_copy=self._is_copying(),
        )
        if used is not None:
            self._say(Spent(usage=[used]))

    def _roll_back(self, turns: int) -> None:
        if not 0 < turns <= len(self._turns):
            return
        before = self._turns[-turns]
        del self._turns[-turns:]
        self._say(TakenBack(after=_id(before) if before else None, at=self._at))

    # What is said

    def _close(self) -> None:
        """Say the answer: something else has come behind it."""
        self._may_grow = False
        if self._answer:
            answer, self._answer = self._answer, Content()
            self._say(answer.said("assistant", self._answer_at, model=self._tokens.model))

    def _say(self, event: Said | Compacted | TakenBack | Spent) -> None:
        if self._is_agent_copy():
            self._left_out["messages copied from the thread that began an agent"] += 1
            return
        if isinstance(event, Said):
            self._count += 1
            event.id = _id(self._count)
        if not self._has_begun:
            if not isinstance(event, Said):
                return
            self._has_begun = True
            self._out.append(self._begin())
            self._out += self._waiting
            self._waiting = []
        self._out.append(event)

    def _is_agent_copy(self) -> bool:
        return self._is_copying() and _agent_of(self._meta or {}) is not None

    def _begin(self) -> Begin:
        meta = self._meta or {}
        name = self._name or f"rollout {self._at.isoformat()}"
        self._name = name
        agent = _agent_of(meta)
        if agent is not None:
            self._is_agent = True
            parent_id, title = agent
            parent = None
            if parent_id is not None:
                parent = Parent(native_id=parent_id, lineage=Lineage.SUBAGENT)
            self._named = self._named or title
            return Begin(native_id=name, began_at=self._began, kind=Kind.SUBAGENT, parent=parent)
        origin = _origin(meta)
        parent = None if origin is None else Parent(native_id=origin, lineage=Lineage.FORK)
        return Begin(native_id=name, began_at=self._began, parent=parent)

    def _work_in(self, path: object, branch: object) -> None:
        if isinstance(path, str) and path:
            more = {"branch": branch} if isinstance(branch, str) and branch else {}
            self._facts["workspace"] = {"path": path} | more

    # The end

    def _finish(self) -> None:
        is_held = bool(self._answer) and not self._is_settled
        is_open = bool(self._answer)
        if not is_held:
            self._close()
        out = self._out
        out.extend(LeftOut(what=what, count=count) for what, count in self._left_out.items())
        if not self._has_begun:
            out += self._waiting
            return
        title = self._named or self._indexed or self._prompt
        out.append(Facts(fields=self._facts | ({"title": title} if title else {})))
        if is_held:
            out.append(HeldBack(until=self._settles_at))
        if not is_held:
            self._may_grow = is_open
            self._put_mark(self._end)
        elif self._mark is not None and self._mark.place == self._start:
            out.append(self._mark)

    def _put_mark(self, place: int, *, before: int = 0) -> None:
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
        self._mark = Mark(place=place, note=note)
        self._out.append(self._mark)


def _bare(line: Json) -> tuple[str, Json]:
    """A line of an older release: an item by itself, or what is known of the thread."""
    if isinstance(line.get("type"), str):
        return "response_item", line
    if "record_type" in line:
        return "state", line
    return "session_meta", line


def _id(number: int) -> str:
    """A copy of a thread counts as the thread does: so its messages are recognised."""
    return f"m{number}"


def _words(content: Content) -> str:
    return " ".join(part["text"] for part in content.parts if part["type"] == "text").strip()


def _is_injected(content: Content) -> bool:
    return _words(content).startswith(_INJECTED)


def _origin(meta: Json) -> str | None:
    forked = shape.name(meta.get("forked_from_id"))
    agent = _agent_of(meta)
    return forked if agent is None else agent[0]


def _agent_of(meta: Json) -> tuple[str | None, str | None] | None:
    """The thread that began this one as its agent, and what the agent is called."""
    source: Any = meta.get("source")
    inner = source.get("subagent") if isinstance(source, dict) else None
    if inner is None and meta.get("thread_source") != "subagent":
        return None
    spawn = shape.record(shape.record(inner).get("thread_spawn"))
    parent = shape.name(spawn.get("parent_thread_id")) or shape.name(meta.get("parent_thread_id"))
    role = shape.name(spawn.get("agent_role"))
    title = shape.name(spawn.get("agent_nickname")) or role or shape.name(inner)
    return parent, title
