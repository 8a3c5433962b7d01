"""What an importer knows of a session, as a session's line."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from sessionary.clock import from_micros
from sessionary.importers.base.content import ledger_rows
from sessionary.importers.base.events import SessionBegin
from sessionary.model.codec import storable_text
from sessionary.model.record import ProjectFact, SessionLine
from sessionary.model.session import TitleBy
from sessionary.model.terminal import one_line
from sessionary.model.title import MAX_TITLE, clean_title

if TYPE_CHECKING:
    from sessionary.actions.transfer.merge import ParentSession
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from sessionary.actions.transfer import merge
from sessionary.actions.transfer.merge import ParentSession, WriteBatch
from sessionary.clock import Moment, encode_id, to_micros
from sessionary.importers.base.content import RecentEntries
from sessionary.importers.base.events import (
    FOLLOWS,
    Compacted,
    MessageEvent,
    Retracted,
    TokenUsage,
)
from sessionary.importers.base.known_history import KnownHistory, digest, key_of
from sessionary.model import codec
from sessionary.model.session import Lineage, Segment
from sessionary.model.title import derive_title, preview
from sessionary.model.usage import Usage
from sessionary.store.database import Store
from sessionary.store.tables import imports
from sessionary.store.tables.blobs import hash_of
from sessionary.store.tables.entries import MAX_BODY, LogRow
from sessionary.store.tables.imports import Added, Imported, ReadUnit

# What an importer may say with `Facts`.
FIELDS = frozenset(
    {
        "title",
        "source",
        "model",
        "settings",
        "system_prompt",
        "workspace",
        "project",
        "pinned",
        "archived",
        "labels",
        "extra",
        "draft",
        "key",
        "active_at",
        "ended_at",
        "end_reason",
    }
)


def line_of(
    begin: SessionBegin,
    fields: dict[str, Any],
    *,
    id: str,
    to: "ImportTarget",
    began_at: datetime,
    active_at: int,
    descent: "ParentSession | None",
    skipped: int,
) -> SessionLine:
    """The session's line: read-only, and marked with where it came from."""
    # A tool's clock may say that a session began after its last word.
    active = max(began_at, from_micros(active_at)) if active_at else began_at
    if fields.get("active_at") is not None:
        active = max(active, fields["active_at"])
    ended_at, end_reason = fields.get("ended_at"), fields.get("end_reason")
    if ended_at is not None:
        ended_at, end_reason = max(ended_at, began_at), end_reason or "ended"
    return SessionLine(
        id=id,
        profile=to.profile,
        kind=begin.kind,
        began_at=began_at,
        source=fields.get("source") or {"platform": to.tool},
        title=_title(fields.get("title")),
        title_by=None if _title(fields.get("title")) is None else TitleBy.IMPORT,
        model=_name(fields.get("model")),
        settings=fields.get("settings"),
        system_prompt=fields.get("system_prompt"),
        workspace=fields.get("workspace"),
        project=_project(fields.get("project")),
        pinned=bool(fields.get("pinned")),
        archived=bool(fields.get("archived")),
        read_only=True,
        labels=fields.get("labels") or [],
        draft=fields.get("draft"),
        extra=_extra(begin, fields, to=to, skipped=skipped),
        parent_id=None if descent is None else descent.parent.id,
        lineage=None if descent is None else descent.lineage,
        base_seq=0 if descent is None else descent.base_seq,
        last_active_at=active,
        ended_at=ended_at,
        end_reason=None if ended_at is None else end_reason,
        # What must follow an end was the other tool's business.
        finalized_at=ended_at,
    )


def _title(given: object) -> str | None:
    if not isinstance(given, str):
        return None
    return clean_title(one_line(given)[:MAX_TITLE])


def _name(given: object) -> str | None:
    """A name as a column holds it."""
    return storable_text(given) if isinstance(given, str) else None


def _project(given: object) -> ProjectFact | None:
    if isinstance(given, ProjectFact):
        return given
    name = _title(given)
    return None if name is None else ProjectFact(name)


def _extra(
    begin: SessionBegin, fields: dict[str, Any], *, to: "ImportTarget", skipped: int
) -> dict[str, Any]:
    origin: dict[str, Any] = {"from": to.tool, "tool": to.title, "id": begin.native_id}
    if skipped:
        origin["skipped"] = skipped
    return {"import": origin, **(fields.get("extra") or {})}


_PREVIEWED = 400


class _Body(msgspec.Struct, omit_defaults=True, gc=False):
    """The fields of a message in their order; what says nothing is left out."""

    parts: list[dict[str, Any]]
    person: dict[str, Any] | None = None
    model: str | None = None
    finish_reason: str | None = None
    token_count: int | None = None
    platform_message_id: str | None = None
    extra: dict[str, Any] | None = None


_encode = msgspec.json.Encoder().encode


def body_text(said: MessageEvent, tool: str) -> str:
    """A message as the log keeps it."""
    extra = said.extra
    if said.role == "system":
        # Words of a system that is not ours: people read them, no model takes them for orders.
        extra = {"imported": tool} | (extra or {})
    body = _Body(
        said.parts,
        said.person,
        said.model,
        said.finish_reason,
        said.token_count,
        said.id,
        extra or None,
    )
    try:
        return _encode(body).decode()
    except UnicodeEncodeError:
        # Half of a surrogate pair.
        known = ((name, getattr(body, name)) for name in body.__struct_fields__)
        return codec.encode({name: value for name, value in known if value is not None})


def preview_of(parts: Sequence[dict[str, Any]]) -> str | None:
    """The first words of a message; None when it has none."""
    words = "\n".join(part["text"] for part in parts if part["type"] == "text")
    return preview(words[:_PREVIEWED]) or None


@dataclass(frozen=True, slots=True)
class ImportTarget:
    """A profile of a store, and by which tool's names sessions are known there."""

    store: Store
    profile: str
    tool: str
    title: str
    moment: Moment
    # Whether a person named the profile: then even what its tool keeps in another goes there.
    is_asked_for: bool = False
    # Which version reads: what an older one could make nothing of is read again.
    version: str = ""


# A command of a tool: one word behind a slash. A path has more slashes, and is no command.
_COMMAND = re.compile(r"/[A-Za-z][\w:.-]*(?=\s|\Z)")
_PLACEHOLDER = re.compile(
    r"""
    (?: (?:new|untitled|unnamed|child|cli)
        (?:\ (?:session|chat|conversation|thread|task|agent|composer))?
        (?:\s*[-–:#(]?\s*[\d#][\dTZ:.,+()\ /-]*)?
      | (?:session|chat|conversation|thread)\s*[-–:#]?\s*\d[\dTZ:.,+\ /-]*
      | [0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}
      | \d{4}-\d\d-\d\d[\dTZ:.+\ -]*
      | \d{8}_\d{1,6}
    )\Z
    """,
    re.IGNORECASE | re.VERBOSE,
)
# What a program writes in a person's name.
_OF_THE_PROGRAM = (
    "<command-",
    "<local-command",
    "<environment_context",
    "<session_context",
    "<system-reminder",
    "Caveat: The messages below were generated",
    "[Request interrupted",
)
_LOOKED_AT = 4096


def says_nothing(title: str) -> bool:
    """Whether a title is a command, a placeholder, or the program's own words."""
    text = title.strip()
    return not text or _is_command(text) or _PLACEHOLDER.match(text) is not None


def words_of(parts: Sequence[dict[str, Any]]) -> str | None:
    """What a person said in a message; None when it is a command or nothing."""
    text = "\n".join(part["text"] for part in parts if part["type"] == "text").strip()
    return None if not text or _is_command(text) else text[:_LOOKED_AT]


def _is_command(text: str) -> bool:
    return text.startswith(_OF_THE_PROGRAM) or _COMMAND.match(text) is not None


ROWS = 4000
BYTES = 4 * 1024 * 1024
SEARCHES = 20


class SessionMerger:
    """One session on its way into the store."""

    def __init__(self, target: ImportTarget, begin: SessionBegin, *, is_resumed: bool) -> None:
        self._target, self._tool = target, target.tool
        self._begin = begin
        self.fields: dict[str, Any] = {}
        self.skipped = 0
        self.messages = 0
        # Whether a person or a model said something: what a program notes is no conversation.
        self.has_words = False
        # What a person said first, but for commands; and whether a command came before it.
        self._first_words: str | None = None
        self._begins_with_command = False
        self.notes: list[str] = []
        self._began: datetime | None = begin.began_at
        self._active = 0
        self._added = Added()
        self._rows: list[LogRow] = []
        self._usage: list[Usage | TokenUsage] = []
        self._blobs: dict[str, bytes] = {}
        self._bytes = 0
        self._seqs = RecentEntries[int]()
        self._is_resumed = is_resumed
        self._searches = SEARCHES
        self._session = self._find(begin.native_id)
        # A head that an earlier reading began to fill is made from the whole log.
        self._is_involved = self._session is not None and self._session.is_hidden
        self._descent = None if self._session else self._descend()
        self._log = self._known_log(is_resumed=is_resumed)
        self._here = self._tip if self._log is None else 0
        # The way that people read now, when the session is a tree: key, digest and number of each.
        self._way: list[tuple[str, int, int]] | None = None
        self._heard: set[tuple[str, int]] = set()
        # What the tool has in this reading beside its current way: that is not forgotten.
        self._aside: set[tuple[str, int]] = set()

    @property
    def native_id(self) -> str:
        """What the session's own tool calls it."""
        return self._begin.native_id

    @property
    def is_purged(self) -> bool:
        """Whether someone deleted the session here: it does not come back by itself."""
        return self._session is not None and self._session.is_purged

    @property
    def is_shown(self) -> bool:
        """Whether people can see the session."""
        return self._session is not None and not self._session.is_hidden

    @property
    def is_new(self) -> bool:
        """Whether no part of the session was here before."""
        return self._session is None

    def say(self, said: MessageEvent) -> None:
        """Add a message behind the one it answers to, unless it is there."""
        parent = said.parent
        here = self._here if parent is FOLLOWS or parent == FOLLOWS else self._place_of(parent)
        role, text = said.role, body_text(said, self._tool)
        if role != "system" and role != "tool":
            self.has_words = True
            if role == "user" and self._first_words is None:
                self._note_words(said)
        micros = to_micros(said.at)
        self._note_time(said, micros)
        if said.usage:
            self._usage.extend(said.usage)
        is_new = self._log is None and here == self._here
        if not is_new and self._recognise(here, "message", role, text, said.id):
            return
        if len(text) > MAX_BODY >> 2 and len(text.encode()) > MAX_BODY:
            self.skipped += 1
            self.notes.append(f"a message of more than {MAX_BODY >> 20} MiB was left out")
            return
        for data in said.blobs:
            self._blobs[hash_of(data)] = data
            self._bytes += len(data)
        self._append("message", role, micros, text, said.id)
        self._count(said)

    def compact(self, mark: Compacted) -> None:
        """Note that the model read a summary from here on."""
        self.has_words = True
        through = self._here
        if mark.keeps is not None and (kept := self._seq_of(mark.keeps)) is not None:
            through = kept - 1
        if not mark.summary or through < 1:
            return
        text = codec.encode({"summary": mark.summary, "through": through})
        if self._recognise(self._here, "compaction", None, text, mark.id):
            return
        self._append("compaction", None, to_micros(mark.at), text, mark.id)
        self._added.compacted_seq = self._here

    def take_back(self, taken: Retracted) -> None:
        """Take back everything after a message."""
        here = 0 if taken.after is None else self._seq_of(taken.after)
        if here is None or here == self._here or self._go(here):
            return
        self._leave_known_log()
        if self._here != self._tip:
            self._branch(to_micros(taken.at))

    def follow(self, items: Sequence[MessageEvent | Compacted], *, is_current: bool) -> None:
        """Make a way through a tree the one that people read, unless all of it is known."""
        way = self._known_way()
        if is_current:
            # The first words are those of the way that people read.
            self._first_words, self._begins_with_command = None, False
            for item in items:
                if (
                    isinstance(item, MessageEvent)
                    and item.role == "user"
                    and self._first_words is None
                ):
                    self._note_words(item)
        keyed = [(self._key(item), item) for item in items]
        if not is_current:
            self._aside.update(key for key, _ in keyed)
            if all(key in self._heard for key, _ in keyed):
                return
        shared = 0
        for known, (key, _) in zip(way, keyed, strict=False):
            if known[:2] != key:
                break
            shared += 1
        is_whole = shared == len(keyed)
        if is_whole and (shared == len(way) or way[shared][:2] not in self._aside):
            return
        del way[shared:]
        self._here = way[-1][2] if way else self._base
        if is_whole and way:
            self._branch(to_micros(items[-1].at))
        for key, item in keyed[shared:]:
            before = self._here
            if isinstance(item, MessageEvent):
                item.parent = FOLLOWS
                self.say(item)
            else:
                self.compact(item)
            if self._here != before:
                way.append((*key, self._here))
            self._heard.add(key)

    def pay(self, usage: Sequence[Usage | TokenUsage]) -> None:
        """Count model calls."""
        self._usage.extend(usage)

    def flush(self, *, is_whole: bool, unit: tuple[str, ReadUnit] | None = None) -> bool:
        """Write what is waiting; say whether the session is there afterwards."""
        if self._session is None and not self._rows:
            return False
        if not (self._rows or self._usage or is_whole):
            return True
        if is_whole and self._here not in (0, self._tip):
            self._branch(self._active, only_if_lost=True)
        placed = None if unit is None else (unit[0], self.placed(unit[1]))
        sheaf = self._sheaf(is_whole=is_whole, unit=placed)
        woven = self._target.store.write(merge.put, sheaf, moment=self._target.moment).result()
        self._session = woven.session
        self.notes.extend(woven.notes)
        self._rows, self._usage, self._blobs, self._bytes = [], [], {}, 0
        if not woven.session.is_hidden:
            self._added, self._is_involved = Added(), False
        return True

    @property
    def last_seq(self) -> int:
        """The number of the session's last entry, what waits included."""
        return self._next_seq() - 1

    def placed(self, read: ReadUnit) -> ReadUnit:
        """How far a unit was read, if the next reading can go on there: at the end of the log.

        Another file of the same session may have said more, or this one may have lost its end.
        """
        if read.place <= 0:
            return read
        if self._here != self._tip:
            return ReadUnit(read.stamp, 0)
        return replace(read, note={**read.note, "seq": self.last_seq})

    @property
    def is_full(self) -> bool:
        """Whether enough is waiting for a transaction."""
        return len(self._rows) >= ROWS or self._bytes >= BYTES

    # What is known already

    @property
    def _base(self) -> int:
        if self._session is not None:
            return self._session.base_seq
        return 0 if self._descent is None else self._descent.base_seq

    def _find(self, native_id: str) -> Imported | None:
        to = self._target
        return to.store.read(
            imports.find_session, native_id, profile=to.profile, tool=to.tool
        ).result()

    def _descend(self) -> ParentSession | None:
        """The session it came from: named by the tool, or one that begins with the same message."""
        named = self._begin.parent
        if named is not None:
            parent = self._find(named.native_id)
            if parent is None or parent.is_purged or parent.is_hidden:
                return None
            return ParentSession(parent, named.lineage)
        for alias in self._begin.aliases:
            parent = self._find(alias)
            if parent is not None and not parent.is_purged and not parent.is_hidden:
                return ParentSession(parent, Lineage.FORK)
        return None

    def _known_log(self, *, is_resumed: bool) -> KnownHistory | None:
        """What may be said again: the session's own history, or that of the one it came from."""
        self._segments: list[Segment] = []
        self._tip = 0
        source = self._session
        if source is None and self._descent is not None and self._descent.lineage.inherits:
            source = self._descent.parent
        if source is None or source.is_purged:
            return None
        store = self._target.store
        self._segments = store.read(merge.history, source).result()
        self._tip = store.read(merge.tip, self._segments).result()
        return None if is_resumed else KnownHistory(store, self._segments)

    def _recognise(self, here: int, kind: str, role: str | None, text: str, id: str | None) -> bool:
        """Whether the log says the same in its next line, or further on."""
        self._go(here)
        if self._log is None:
            return False
        found = self._log.find(self._here, kind, role, text, id)
        if found is None:
            return False
        self._stand_on(found, id)
        return True

    def _known_way(self) -> list[tuple[str, int, int]]:
        if self._way is not None:
            return self._way
        way: list[tuple[str, int, int]] = []
        for row in () if self._log is None else self._log.rest():
            if row.kind == "retraction":
                after = int(codec.decode(row.text)["after"])
                way = [each for each in way if each[2] <= after]
                continue
            key = key_of(row)
            way.append((*key, row.seq))
            self._heard.add(key)
        self._log, self._way = None, way
        return way

    def _key(self, item: MessageEvent | Compacted) -> tuple[str, int]:
        if isinstance(item, MessageEvent):
            text = body_text(item, self._target.tool)
            return item.id or "", digest("message", item.role, text)
        return "", digest("compaction", None, codec.encode({"summary": item.summary}))

    # Where we are

    def _go(self, here: int) -> bool:
        """Stand on an entry. Going back in a log that is said again uses up its retraction.

        Say whether there was one.
        """
        if here == self._here:
            return False
        before, self._here = self._here, here
        return self._log is not None and self._log.takes_back(before, here)

    def _stand_on(self, seq: int, id: str | None) -> None:
        self._here = seq
        if id is not None:
            self._seqs.put(id, seq)

    def _place_of(self, parent: str | None) -> int:
        if parent is None:
            # A second root: the conversation was begun anew.
            return 0
        found = self._seq_of(parent)
        return self._here if found is None else found

    def _seq_of(self, native_id: str) -> int | None:
        found = self._seqs.get(native_id)
        if found is not None or self._session is None or self._searches <= 0:
            return found
        self._searches -= 1
        found = next((r.seq for r in reversed(self._rows) if r.native_id == native_id), None)
        if found is None:
            found = self._target.store.read(merge.seq_of, self._history(), native_id).result()
        if found is not None:
            self._seqs.put(native_id, found)
        return found

    def _history(self) -> list[Segment]:
        """What is written of the log, with what the session shares of another's."""
        if self._session is not None:
            return self._target.store.read(merge.history, self._session).result()
        return [
            replace(each, last=min(each.last, self._base))
            for each in self._segments
            if each.first <= self._base
        ]

    # What is new

    def _append(self, kind: str, role: str | None, at: int, text: str, id: str | None) -> None:
        rows = self._rows
        if not rows or self._log is not None:
            self._leave_known_log()
        if self._here != self._tip:
            self._branch(at)
        seq = rows[-1].seq + 1 if rows else self._next_seq()
        rows.append(LogRow(seq, kind, role, at, text))
        self._bytes += len(text)
        self._tip = self._here = seq
        if id is not None:
            self._seqs.put(id, seq)

    def _leave_known_log(self) -> None:
        """From the first new line on nothing is recognised; a fork begins here."""
        self._log = None
        descent = self._descent
        if self._session is not None or self._rows or descent is None:
            return
        if descent.lineage.inherits:
            self._descent = ParentSession(descent.parent, descent.lineage, self._here)
            self._tip = self._here
            self._is_involved = self._here > 0

    def _branch(self, at: int, *, only_if_lost: bool = False) -> None:
        """Go on behind an earlier entry; the way to it is said again if it was taken back since."""
        standing, lost = self._target.store.read(
            merge.way_to, self._history(), self._rows, self._here
        ).result()
        if only_if_lost and not lost:
            return
        self._here, self._is_involved = standing, True
        if standing != self._tip:
            self._retract(at)
        for row in merge.renumbered(lost, self._next_seq()):
            self._rows.append(row)
            self._bytes += len(row.text)
            self._tip = row.seq
            self._stand_on(row.seq, row.native_id)

    def _retract(self, at: int) -> None:
        text = codec.encode({"after": self._here, "reason": "branch"})
        seq = self._next_seq()
        self._rows.append(LogRow(seq, "retraction", None, at, text))
        self._tip = self._here
        self._is_involved = True

    def _next_seq(self) -> int:
        if self._rows:
            return self._rows[-1].seq + 1
        return (self._base if self._session is None else self._session.last_seq) + 1

    def _count(self, said: MessageEvent) -> None:
        self.messages += 1
        added = self._added
        added.messages += 1
        for part in said.parts:
            if part["type"] == "tool_call":
                added.tool_calls += 1
        if said.role == "assistant":
            added.last_reply_seq = self._here
        elif said.role == "user" and added.preview is None:
            added.preview = preview_of(said.parts)
        added.active_at = self._active
        if said.model is not None:
            self.fields["model"] = said.model

    def _note_words(self, said: MessageEvent) -> None:
        self._first_words = words_of(said.parts)
        if self._first_words is None:
            self._begins_with_command = True

    def _titled(self) -> dict[str, Any]:
        """The facts, with the first words as title where the tool's own says nothing."""
        given = self.fields.get("title")
        if isinstance(given, str):
            if not says_nothing(given):
                return self.fields
        elif not self._begins_with_command:
            return self.fields
        made = None if self._first_words is None else derive_title(self._first_words)
        if made is not None and self._is_resumed and self._session is not None:
            # What is read now is not the beginning: a title that says something stays.
            known = self._target.store.read(merge.title_of, self._session).result()
            made = made if known is None or says_nothing(known) else None
        return {**self.fields, "title": made}

    def _note_time(self, said: MessageEvent, micros: int) -> None:
        if self._began is None:
            self._began = said.at
        if micros > self._active and said.role in ("user", "assistant"):
            self._active = micros

    def _sheaf(self, *, is_whole: bool, unit: tuple[str, ReadUnit] | None) -> WriteBatch:
        return WriteBatch(
            profile=self._target.profile,
            tool=self._target.tool,
            native_id=self._begin.native_id,
            line=self._line(),
            found=self._session,
            descent=self._descent,
            aliases=self._begin.aliases,
            rows=self._rows,
            usage=ledger_rows(self._usage, now=self._target.moment.now),
            blobs=list(self._blobs.values()),
            added=self._added,
            is_involved=self._is_involved,
            is_whole=is_whole,
            is_resumed=self._is_resumed,
            unit=unit,
        )

    def _line(self) -> SessionLine:
        assert self._began is not None or self._session is not None
        return line_of(
            self._begin,
            self._titled(),
            id=self._id(),
            to=self._target,
            began_at=self._began or self._target.moment.now,
            active_at=self._active,
            descent=self._descent,
            skipped=self.skipped,
        )

    def _id(self) -> str:
        """The same session of the same tool has the same id in every store."""
        if self._session is not None:
            return self._session.id
        name = f"{self._target.tool}\n{self._begin.native_id}".encode("utf-8", "surrogatepass")
        assert self._began is not None
        return encode_id(max(0, to_micros(self._began) // 1000), int(hash_of(name)[:20], 16))
