"""Merges the events of an import into the log of a session, and makes the session's record."""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from sessionary.actions.transfer import merge
from sessionary.actions.transfer.merge import ParentSession, WriteBatch
from sessionary.clock import Moment, encode_id, from_micros, to_micros
from sessionary.importers.base.content import RecentEntries
from sessionary.importers.base.events import (
    FOLLOWS,
    Compacted,
    Facts,
    Retracted,
    SessionBegin,
)
from sessionary.importers.base.prepared import PreparedBranch, PreparedMessage, PreparedUsage
from sessionary.model import codec
from sessionary.model.codec import storable_text
from sessionary.model.record import ProjectFact, SessionLine
from sessionary.model.session import Lineage, Segment, TitleBy
from sessionary.model.terminal import one_line
from sessionary.model.title import MAX_TITLE, clean_title, derive_title, preview
from sessionary.store.database import Store
from sessionary.store.tables import imports
from sessionary.store.tables.blobs import hash_of
from sessionary.store.tables.entries import MAX_BODY, LogRow
from sessionary.store.tables.imports import Added, Imported, ReadUnit
from sessionary.store.tables.usage import UsageRow

# The fields that `Facts` may have.
FIELDS = frozenset(
    {
        *("title", "source", "model", "settings", "system_prompt", "workspace", "project"),
        *("pinned", "archived", "labels", "extra", "draft", "key", "active_at", "ended_at"),
        *("end_reason",),
    }
)


_PREVIEWED = 400


@dataclass(frozen=True, slots=True)
class ImportTarget:
    """Where sessions are imported to: a profile of a store, and the tool they come from."""

    store: Store
    profile: str
    tool: str
    title: str
    moment: Moment
    # Whether a person chose the profile: then the tool's own profiles are ignored.
    is_profile_chosen: bool = False
    # Our version: units in which an older version found nothing are read again.
    version: str = ""


# A command of a tool: one word after a slash. Paths have more slashes.
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
# How texts begin that a program writes in the user's name.
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


def is_placeholder_title(title: str) -> bool:
    """Whether a title is a command, a placeholder, or a text of the program's."""
    text = title.strip()
    return not text or _is_command(text) or _PLACEHOLDER.match(text) is not None


def _is_command(text: str) -> bool:
    return text.startswith(_OF_THE_PROGRAM) or _COMMAND.match(text) is not None


# The tool's id of an entry, and a digest of its content.
Key = tuple[str, int]


class Branches:
    """A whole log with its branches, for a source that left something out."""

    def __init__(self, rows: Iterable[LogRow], first: int) -> None:
        # From which seq on entries can still be repeated.
        self._first = first
        self._latest: dict[Key, int] = {}
        self._keys: dict[int, Key] = {}
        self._before: dict[int, int] = {}
        tip = 0
        for row in rows:
            key = key_of(row)
            if row.seq >= first:
                self._latest[key] = row.seq
            if row.kind == "retraction":
                after = _retracted_after(row)
                while tip > after:
                    tip = self._before[tip]
                continue
            self._keys[row.seq], self._before[row.seq] = key, tip
            tip = row.seq

    def latest(self, key: Key) -> int:
        """Return the seq of the last entry with that key; 0 without one."""
        return self._latest.get(key, 0)

    def find_after(self, position: int, key: Key) -> int | None:
        """Return the last entry with that key whose branch leads through the same entries."""
        found = self._latest.get(key, 0)
        if found <= position:
            return None
        at = self._before[found] if position else 0
        while at != position and not self._have_same_path(at, position):
            if at == 0:
                return None
            at = self._before[at]
        return found

    def _have_same_path(self, one: int, other: int) -> bool:
        """Whether the entries before two positions are the same."""
        while one != other:
            if self._keys.get(one) != self._keys.get(other):
                return False
            one, other = self._before.get(one, 0), self._before.get(other, 0)
        return True


def key_of(row: LogRow) -> Key:
    """Return the key of an entry."""
    return row.native_id or "", digest(row.kind, row.role, row.text)


def digest(kind: str, role: str | None, text: str) -> int:
    """Return a hash of an entry's content; of a compaction only its summary counts."""
    content = codec.decode(text)["summary"] if kind == "compaction" else text
    return hash((kind, role, content))


class KnownHistory:
    """Follows a source that repeats the log; after a gap, entries are searched further on."""

    def __init__(self, store: Store, segments: Sequence[Segment]) -> None:
        self._store = store
        self._segments = segments
        self._page: deque[LogRow] = deque()
        self._read_through = 0
        self._branches: Branches | None = None

    def find(
        self, position: int, kind: str, role: str | None, text: str, id: str | None
    ) -> int | None:
        """Return the seq of the entry that says the same: the next one, or one further on."""
        if self._branches is None:
            row = self._next()
            if row is not None and (row.kind, row.role, row.text) == (kind, role, text):
                self._page.popleft()
                return row.seq
            # The source has left something out: read the whole log.
            first = self._read_through + 1 if row is None else row.seq
            self._branches = Branches(self._from_the_first(), first)
        return self._branches.find_after(position, (id or "", digest(kind, role, text)))

    def consume_retraction(self, before: int, position: int) -> bool:
        """Return whether the log was rewound to an earlier entry here, and consume the retraction."""
        if self._branches is not None:
            text = codec.encode({"after": position, "reason": "branch"})
            return self._branches.latest(("", digest("retraction", None, text))) > before
        row = self._next()
        if row is None or row.kind != "retraction" or _retracted_after(row) != position:
            return False
        self._page.popleft()
        return True

    def remaining(self) -> Iterator[LogRow]:
        """Yield the entries that were not repeated yet."""
        while (row := self._next()) is not None:
            self._page.popleft()
            yield row

    def _next(self) -> LogRow | None:
        """Return the next entry without consuming it."""
        if not self._page:
            rows = self._read(self._read_through)
            if not rows:
                return None
            self._read_through = rows[-1].seq
            self._page.extend(rows)
        return self._page[0]

    def _from_the_first(self) -> Iterator[LogRow]:
        after = 0
        while rows := self._read(after):
            yield from rows
            after = rows[-1].seq

    def _read(self, after: int) -> list[LogRow]:
        return self._store.read(merge.page, self._segments, after).result()


def _retracted_after(row: LogRow) -> int:
    """Return the seq of the last entry that a retraction keeps."""
    return int(codec.decode(row.text)["after"])


MAX_BATCH_ROWS = 4000
MAX_BATCH_BYTES = 4 * 1024 * 1024
MAX_LOOKUPS = 20


class SessionMerger:
    """Merges the events of one session into the log that the store has of it.

    The log only grows. What a tool repeats is recognised and not written again; what it changed is
    retracted and appended again; what it no longer has stays. So a file can be read from its beginning
    at any time, and a tree of messages becomes one log in which each branch was once the current one.
    """

    def __init__(self, target: ImportTarget, begin: SessionBegin, *, is_resumed: bool) -> None:
        self._target = target
        self._begin = begin
        self.fields: dict[str, Any] = {}
        self.skipped = 0
        self.messages = 0
        # Whether there is a message of a person or a model: notices of programs do not count.
        self.has_conversation = False
        # The first prompt that is no command, and whether a command came before it.
        self._first_prompt: str | None = None
        self._begins_with_command = False
        self.notes: list[str] = []
        self._began_at: datetime | None = begin.began_at
        self._last_active = 0
        self._added = Added()
        self._rows: list[LogRow] = []
        self._usage: list[UsageRow] = []
        self._blobs: dict[str, bytes] = {}
        self._bytes = 0
        self._recent_seqs = RecentEntries[int]()
        self._is_resumed = is_resumed
        self._lookups_left = MAX_LOOKUPS
        self._session = self._find(begin.native_id)
        # The list columns of a session that an earlier import left unfinished are derived again.
        self._needs_rebuild = self._session is not None and self._session.is_hidden
        self._origin = None if self._session else self._find_origin()
        self._history_left = self._open_known_history(is_resumed=is_resumed)
        self._position = self._tip if self._history_left is None else 0
        # The current branch of a tree: id, digest and seq of each entry.
        self._path: list[tuple[str, int, int]] | None = None
        self._known_keys: set[tuple[str, int]] = set()
        # The entries of the other branches in this import.
        self._side_keys: set[tuple[str, int]] = set()

    @property
    def native_id(self) -> str:
        """The tool's id of the session."""
        return self._begin.native_id

    @property
    def is_purged(self) -> bool:
        """Whether someone deleted the session here: it is not imported again."""
        return self._session is not None and self._session.is_purged

    @property
    def is_own(self) -> bool:
        """Whether the session was recorded here while its tool ran as an agent of ours: nothing is added to it."""
        return self._session is not None and self._session.is_own

    @property
    def is_shown(self) -> bool:
        """Whether people can see the session."""
        return self._session is not None and not self._session.is_hidden

    @property
    def is_new(self) -> bool:
        """Whether nothing of the session was stored before."""
        return self._session is None

    def add(
        self,
        event: PreparedMessage | Compacted | Retracted | PreparedBranch | PreparedUsage | Facts,
    ) -> None:
        """Merge an event."""
        match event:
            case PreparedMessage():
                self.add_message(event)
            case Compacted():
                self._add_compaction(event)
            case Retracted():
                self._retract(event)
            case PreparedBranch(items=items, is_current=is_current):
                self._follow_branch(items, is_current=is_current)
            case PreparedUsage(usage=usage):
                self._usage.extend(usage)
            case Facts(fields=fields):
                self.fields.update((n, value) for n, value in fields.items() if n in FIELDS)

    def add_message(self, message: PreparedMessage) -> None:
        """Append a message after its parent, unless it is stored already."""
        position = self._place_of(message.parent)
        role, text = message.role, message.text
        if role != "system" and role != "tool":
            self.has_conversation = True
            if role == "user" and self._first_prompt is None:
                self._note_prompt(message)
        micros = message.at
        if self._began_at is None:
            self._began_at = from_micros(micros)
        if micros > self._last_active and (role == "user" or role == "assistant"):
            self._last_active = micros
        if message.usage:
            self._usage.extend(message.usage)
        is_new = self._history_left is None and position == self._position
        if not is_new and self._recognise(position, "message", role, text, message.id):
            return
        if len(text) > MAX_BODY >> 2 and len(text.encode()) > MAX_BODY:
            self.skipped += 1
            self.notes.append(f"a message of more than {MAX_BODY >> 20} MiB was left out")
            return
        for data in message.blobs:
            self._blobs[hash_of(data)] = data
            self._bytes += len(data)
        self._append("message", role, micros, text, message.id)
        self._count(message)

    def _add_compaction(self, mark: Compacted) -> None:
        """Append a compaction, unless it is stored already."""
        self.has_conversation = True
        through = self._position
        if mark.keeps is not None and (kept := self._seq_of(mark.keeps)) is not None:
            through = kept - 1
        if not mark.summary or through < 1:
            return
        text = codec.encode({"summary": mark.summary, "through": through})
        if self._recognise(self._position, "compaction", None, text, mark.id):
            return
        self._append("compaction", None, to_micros(mark.at), text, mark.id)
        self._added.compacted_seq = self._position

    def _retract(self, taken: Retracted) -> None:
        """Retract everything after a message."""
        position = 0 if taken.after is None else self._seq_of(taken.after)
        if position is None or position == self._position or self._rewind_to(position):
            return
        self._leave_known_history()
        if self._position != self._tip:
            self._start_branch(to_micros(taken.at))

    def _follow_branch(
        self, items: Sequence[PreparedMessage | Compacted], *, is_current: bool
    ) -> None:
        """Make a branch of a tree the current one, unless all of it is stored already."""
        path = self._current_path()
        if is_current:
            # The first prompt is that of the current branch.
            self._first_prompt, self._begins_with_command = None, False
            for item in items:
                if isinstance(item, Compacted) or item.role != "user":
                    continue
                if self._note_prompt(item):
                    break
        keyed = [(self._key(item), item) for item in items]
        if not is_current:
            self._side_keys.update(key for key, _ in keyed)
            if all(key in self._known_keys for key, _ in keyed):
                return
        shared = 0
        for known, (key, _) in zip(path, keyed, strict=False):
            if known[:2] != key:
                break
            shared += 1
        is_known = shared == len(keyed)
        if is_known and (shared == len(path) or path[shared][:2] not in self._side_keys):
            return
        del path[shared:]
        self._position = path[-1][2] if path else self._base
        if is_known and path:
            last = items[-1]
            self._start_branch(to_micros(last.at) if isinstance(last, Compacted) else last.at)
        for key, item in keyed[shared:]:
            before = self._position
            if isinstance(item, PreparedMessage):
                item.parent = FOLLOWS
                self.add_message(item)
            else:
                self._add_compaction(item)
            if self._position != before:
                path.append((*key, self._position))
            self._known_keys.add(key)

    def flush(self, *, is_last: bool, unit: tuple[str, ReadUnit] | None = None) -> bool:
        """Write what is collected in one transaction; return whether the session is stored then."""
        if self._session is None and not self._rows:
            return False
        if not (self._rows or self._usage or is_last):
            return True
        if is_last and self._position not in (0, self._tip):
            self._start_branch(self._last_active, only_if_lost=True)
        resumable = None if unit is None else (unit[0], self.resumable(unit[1]))
        batch = self._batch(is_last=is_last, unit=resumable)
        result = self._target.store.write(merge.put, batch, moment=self._target.moment).result()
        self._session = result.session
        self.notes.extend(result.notes)
        self._rows, self._usage, self._blobs, self._bytes = [], [], {}, 0
        if not result.session.is_hidden:
            self._added, self._needs_rebuild = Added(), False
        return True

    @property
    def last_seq(self) -> int:
        """The seq of the session's last entry, including those that are not written yet."""
        return self._next_seq() - 1

    def resumable(self, read: ReadUnit) -> ReadUnit:
        """Return how far a unit was read, if the next import can resume there: at the end of the log.

        Another file of the session may have added more, or this one may have lost its end.
        """
        if read.place <= 0:
            return read
        if self._position != self._tip:
            return ReadUnit(read.stamp, 0)
        return replace(read, note={**read.note, "seq": self.last_seq})

    @property
    def is_full(self) -> bool:
        """Whether enough is collected for a transaction."""
        return len(self._rows) >= MAX_BATCH_ROWS or self._bytes >= MAX_BATCH_BYTES

    # The stored log

    @property
    def _base(self) -> int:
        if self._session is not None:
            return self._session.base_seq
        return 0 if self._origin is None else self._origin.base_seq

    def _find(self, native_id: str) -> Imported | None:
        to = self._target
        return to.store.read(
            imports.find_session, native_id, profile=to.profile, tool=to.tool
        ).result()

    def _find_origin(self) -> ParentSession | None:
        """Return the session it came from: the tool names it, or it begins with the same message."""
        named, lineage = self._begin.parent, self._begin.lineage
        for id in self._begin.aliases if named is None else (named,):
            parent = self._find(id)
            if parent is not None and not parent.is_purged and not parent.is_hidden:
                how = Lineage.FORK if named is None else lineage
                # Of a session that was recorded here the tool's copies have other words.
                if not (parent.is_own and how.inherits):
                    return ParentSession(parent, how)
        return None

    def _open_known_history(self, *, is_resumed: bool) -> KnownHistory | None:
        """Return the stored log that may be repeated: the session's own, or that of its origin."""
        self._segments: list[Segment] = []
        self._tip = 0
        source = self._session
        if source is None and self._origin is not None and self._origin.lineage.inherits:
            source = self._origin.parent
        if source is None or source.is_purged:
            return None
        store = self._target.store
        self._segments = store.read(merge.history, source).result()
        self._tip = store.read(merge.tip, self._segments).result()
        return None if is_resumed else KnownHistory(store, self._segments)

    def _recognise(
        self, position: int, kind: str, role: str | None, text: str, id: str | None
    ) -> bool:
        """Move to the stored entry that says the same; return whether there is one."""
        self._rewind_to(position)
        if self._history_left is None:
            return False
        found = self._history_left.find(self._position, kind, role, text, id)
        if found is None:
            return False
        self._move_to(found, id)
        return True

    def _current_path(self) -> list[tuple[str, int, int]]:
        if self._path is not None:
            return self._path
        path: list[tuple[str, int, int]] = []
        for row in () if self._history_left is None else self._history_left.remaining():
            if row.kind == "retraction":
                after = _retracted_after(row)
                path = [each for each in path if each[2] <= after]
                continue
            key = key_of(row)
            path.append((*key, row.seq))
            self._known_keys.add(key)
        self._history_left, self._path = None, path
        return path

    def _key(self, item: PreparedMessage | Compacted) -> tuple[str, int]:
        if isinstance(item, PreparedMessage):
            return item.id or "", digest("message", item.role, item.text)
        return "", digest("compaction", None, codec.encode({"summary": item.summary}))

    # The position in the log

    def _rewind_to(self, position: int) -> bool:
        """Move to a stored entry; return whether the stored log was rewound to it, too.

        That retraction is consumed.
        """
        if position == self._position:
            return False
        before, self._position = self._position, position
        return self._history_left is not None and self._history_left.consume_retraction(
            before, position
        )

    def _move_to(self, seq: int, id: str | None) -> None:
        self._position = seq
        if id is not None:
            self._recent_seqs.put(id, seq)

    def _place_of(self, parent: str | None) -> int:
        if parent is FOLLOWS or parent == FOLLOWS:
            return self._position
        if parent is None:
            # A second root: the conversation started over.
            return 0
        found = self._seq_of(parent)
        return self._position if found is None else found

    def _seq_of(self, native_id: str) -> int | None:
        found = self._recent_seqs.get(native_id)
        if found is not None or self._session is None or self._lookups_left <= 0:
            return found
        self._lookups_left -= 1
        found = next((r.seq for r in reversed(self._rows) if r.native_id == native_id), None)
        if found is None:
            found = self._target.store.read(merge.seq_of, self._history(), native_id).result()
        if found is not None:
            self._recent_seqs.put(native_id, found)
        return found

    def _history(self) -> list[Segment]:
        """Return the written log, including what the session shares with its origin."""
        if self._session is not None:
            return self._target.store.read(merge.history, self._session).result()
        return [
            replace(each, last=min(each.last, self._base))
            for each in self._segments
            if each.first <= self._base
        ]

    # New entries

    def _append(self, kind: str, role: str | None, at: int, text: str, id: str | None) -> None:
        rows = self._rows
        if not rows or self._history_left is not None:
            self._leave_known_history()
        if self._position != self._tip:
            self._start_branch(at)
        seq = rows[-1].seq + 1 if rows else self._next_seq()
        rows.append(LogRow(seq, kind, role, at, text))
        self._bytes += len(text)
        self._tip = self._position = seq
        if id is not None:
            self._recent_seqs.put(id, seq)

    def _leave_known_history(self) -> None:
        """Stop recognising entries: the first new one is appended here. A fork begins here."""
        self._history_left = None
        origin = self._origin
        if self._session is not None or self._rows or origin is None:
            return
        if origin.lineage.inherits:
            self._origin = ParentSession(origin.parent, origin.lineage, self._position)
            self._tip = self._position
            self._needs_rebuild = self._position > 0

    def _start_branch(self, at: int, *, only_if_lost: bool = False) -> None:
        """Continue after an earlier entry; entries before it that were retracted are repeated."""
        base, lost = self._target.store.read(
            merge.way_to, self._history(), self._rows, self._position
        ).result()
        if only_if_lost and not lost:
            return
        self._position, self._needs_rebuild = base, True
        if base != self._tip:
            text = codec.encode({"after": base, "reason": "branch"})
            self._rows.append(LogRow(self._next_seq(), "retraction", None, at, text))
            self._tip = base
        for row in merge.renumbered(lost, self._next_seq()):
            self._rows.append(row)
            self._bytes += len(row.text)
            self._tip = row.seq
            self._move_to(row.seq, row.native_id)

    def _next_seq(self) -> int:
        if self._rows:
            return self._rows[-1].seq + 1
        return (self._base if self._session is None else self._session.last_seq) + 1

    def _count(self, message: PreparedMessage) -> None:
        self.messages += 1
        added = self._added
        added.messages += 1
        added.tool_calls += message.tool_calls
        if message.role == "assistant":
            added.last_reply_seq = self._position
        elif message.role == "user" and added.preview is None:
            added.preview = preview((message.words or "")[:_PREVIEWED]) or None
        added.active_at = self._last_active
        if message.model is not None:
            self.fields["model"] = message.model

    def _note_prompt(self, message: PreparedMessage) -> bool:
        """Note the first prompt; return whether it is one, and no command."""
        text = (message.words or "").strip()
        is_prompt = bool(text) and not _is_command(text)
        self._first_prompt = text[:_LOOKED_AT] if is_prompt else None
        self._begins_with_command = self._begins_with_command or not is_prompt
        return is_prompt

    def _fields_with_title(self) -> dict[str, Any]:
        """Return the fields, with the first prompt as title if the tool's is a placeholder."""
        given = self.fields.get("title")
        if isinstance(given, str):
            if not is_placeholder_title(given):
                return self.fields
        elif not self._begins_with_command:
            return self.fields
        made = None if self._first_prompt is None else derive_title(self._first_prompt)
        if made is not None and self._is_resumed and self._session is not None:
            # This is not the beginning of the session: a good title stays.
            known = self._target.store.read(merge.title_of, self._session).result()
            made = made if known is None or is_placeholder_title(known) else None
        return {**self.fields, "title": made}

    def _batch(self, *, is_last: bool, unit: tuple[str, ReadUnit] | None) -> WriteBatch:
        return WriteBatch(
            profile=self._target.profile,
            tool=self._target.tool,
            native_id=self._begin.native_id,
            line=self._line(),
            found=self._session,
            descent=self._origin,
            aliases=self._begin.aliases,
            rows=self._rows,
            usage=self._usage,
            blobs=list(self._blobs.values()),
            added=self._added,
            is_involved=self._needs_rebuild,
            is_whole=is_last,
            is_resumed=self._is_resumed,
            unit=unit,
        )

    def _line(self) -> SessionLine:
        """Return the session's record: read-only, and marked with where it came from."""
        begin, to, origin = self._begin, self._target, self._origin
        began_at = self._began_at or to.moment.now
        if self._session is not None:
            id = self._session.id
        else:
            assert self._began_at is not None
            # The same in every store that imports the session.
            name = f"{to.tool}\n{begin.native_id}".encode("utf-8", "surrogatepass")
            id = encode_id(max(0, to_micros(began_at) // 1000), int(hash_of(name)[:20], 16))
        fields = self._fields_with_title()
        title = _clean_title(fields.get("title"))
        # By the tool's clock a session may begin after its last message.
        last = from_micros(self._last_active) if self._last_active else began_at
        active = max(began_at, last, fields.get("active_at") or began_at)
        ended_at, end_reason = fields.get("ended_at"), fields.get("end_reason")
        if ended_at is not None:
            ended_at, end_reason = max(ended_at, began_at), end_reason or "ended"
        model, project = fields.get("model"), fields.get("project")
        if not isinstance(project, ProjectFact):
            name_of = _clean_title(project)
            project = None if name_of is None else ProjectFact(name_of)
        source: dict[str, Any] = {"from": to.tool, "tool": to.title, "id": begin.native_id}
        if self.skipped:
            source["skipped"] = self.skipped
        return SessionLine(
            id=id,
            profile=to.profile,
            kind=begin.kind,
            began_at=began_at,
            source=fields.get("source") or {"platform": to.tool},
            title=title,
            title_by=None if title is None else TitleBy.IMPORT,
            model=storable_text(model) if isinstance(model, str) else None,
            settings=fields.get("settings"),
            system_prompt=fields.get("system_prompt"),
            workspace=fields.get("workspace"),
            project=project,
            pinned=bool(fields.get("pinned")),
            archived=bool(fields.get("archived")),
            read_only=True,
            labels=fields.get("labels") or [],
            draft=fields.get("draft"),
            extra={"import": source, **(fields.get("extra") or {})},
            parent_id=None if origin is None else origin.parent.id,
            lineage=None if origin is None else origin.lineage,
            base_seq=0 if origin is None else origin.base_seq,
            last_active_at=active,
            ended_at=ended_at,
            end_reason=None if ended_at is None else end_reason,
            # The other tool did whatever follows an end.
            finalized_at=ended_at,
        )


def _clean_title(given: object) -> str | None:
    return clean_title(one_line(given)[:MAX_TITLE]) if isinstance(given, str) else None
