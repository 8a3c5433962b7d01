"""A conversation that another program keeps under a name of its own, as one of our sessions.

A binding leads from the name to the session. The session itself has no key, so that no reset
policy ends it: its program says when it is over. A person who ends it or puts it into the trash
lets the program begin afresh under the same name.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sessionary.actions import turns, usage
from sessionary.actions.sessions import append as new_message
from sessionary.actions.sessions import edit, log, read, revise, routing
from sessionary.actions.sessions.append import NewMessage
from sessionary.clock import Moment
from sessionary.errors import BadInput, Conflict
from sessionary.model import transcript
from sessionary.model.key import SessionKey, key_for
from sessionary.model.message import Compaction, Entry, Message, Role, Text, Unknown
from sessionary.model.session import Kind, Lineage, Opening, Segment, SessionFolder, SessionHead
from sessionary.model.source import Source
from sessionary.model.turn import Lease
from sessionary.model.usage import Usage
from sessionary.store.database import Tx
from sessionary.store.tables import bindings, entries
from sessionary.store.tables import sessions as rows
from sessionary.store.tables.sessions import Inheritance

PAGE = 200
# Sorts behind every sign that a printed key may hold.
_LAST = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class Thread:
    """Whose conversation, and what is known when its session is opened."""

    profile: str
    source: Source
    kind: Kind = Kind.CHAT
    model: str | None = None
    workspace: dict[str, Any] | None = field(default=None, hash=False)
    # What leads to the session, and how it is printed: made once, asked for with every message.
    key: SessionKey = field(init=False, compare=False)
    printed: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        key = key_for(self.source, profile=self.profile)
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "printed", str(key))


def named(platform: str, name: Any, **facts: Any) -> Source:
    """The source of a conversation with this name."""
    if not isinstance(name, str) or not name:
        raise BadInput(f"A session of {platform} needs a name that is not empty, not {name!r}.")
    return Source(platform=platform, chat_id=name, **facts)


def current(tx: Tx, thread: Thread) -> SessionHead | None:
    """The open session of a thread, if there is one."""
    return _if_open(routing.current(tx, thread.key))


def held(tx: Tx, thread: Thread) -> SessionHead | None:
    """The open session of a thread, which nobody else changes until the transaction ends."""
    return _if_open(routing.lock_and_get_current(tx, thread.key))


def opened(
    tx: Tx,
    thread: Thread,
    *,
    moment: Moment,
    parent: SessionHead | None = None,
    note: str | None = None,
) -> SessionHead:
    """The thread's session, opened if need be; the caller appends in the same transaction.

    `parent`: the session whose agent sent this one's. `note`: nothing may be said for now, and a
    session has a message from the beginning; this is what it says.
    """
    found = held(tx, thread)
    if found is not None:
        return found
    opening = Opening(
        thread.profile,
        thread.source,
        kind=thread.kind,
        model=thread.model,
        workspace=thread.workspace,
    )
    inherited = None if parent is None else Inheritance(parent.no, Lineage.SUBAGENT)
    no = rows.insert(tx, moment.new_id(), opening, at=moment.now, inherited=inherited)
    routing.bind(tx, thread.key, no, moment=moment)
    head = rows.get_by_no(tx, no)
    if note is not None:
        said = Message(Role.SYSTEM, (Unknown({"type": note}),))
        log.append(tx, head.id, said, profile=thread.profile, at=moment.now)
    return head


def append(
    tx: Tx,
    thread: Thread,
    said: Sequence[NewMessage],
    *,
    moment: Moment,
    lease: Lease | None = None,
) -> list[log.Appended]:
    """Add messages to a thread, all or none; those of a turn go where its lease is."""
    if lease is not None:
        return _say(tx, lease.session_id, said, profile=thread.profile, moment=moment, lease=lease)
    found = bindings.open_session(tx, thread.printed, profile=thread.profile)
    if found is not None:
        try:
            return _say(tx, found[1], said, profile=thread.profile, moment=moment)
        except Conflict:
            # It may have ended a moment ago; if it is still open, the conflict is raised again.
            pass
    head = opened(tx, thread, moment=moment)
    return _say(tx, head.id, said, profile=thread.profile, moment=moment)


def _say(
    tx: Tx,
    id: str,
    said: Sequence[NewMessage],
    *,
    profile: str,
    moment: Moment,
    lease: Lease | None = None,
) -> list[log.Appended]:
    return [
        new_message.append_to(tx, id, each, profile=profile, moment=moment, lease=lease)
        for each in said
    ]


def begin_turn(
    tx: Tx, thread: Thread, *, holder: str, seconds: float, note: str, moment: Moment
) -> Lease:
    """Take the lease of a thread's session, opened with `note` if need be; `Conflict` if it is taken."""
    head = opened(tx, thread, moment=moment, note=note)
    claim = turns.Claim(holder, seconds)
    return turns.take(tx, head.no, head.id, claim=claim, moment=moment)


def visible(tx: Tx, thread: Thread, *, limit: int | None = None) -> list[Entry]:
    """The messages a model is to read: not taken back, a summary for what it stands for.

    With `limit` only the last so many.
    """
    head = current(tx, thread)
    if head is None:
        return []
    if limit is not None:
        return _last(tx, head, limit)
    shown = read.transcript_of(tx, head.id, profile=thread.profile)
    return _folded(shown, transcript.latest_compaction(shown))


def natives(
    tx: Tx, thread: Thread, name: str, read: entries.ReadExtra, *, limit: int | None = None
) -> list[Any]:
    """The same as `visible`, but of each message only what `read` makes of what it has under `name`.

    A message that has nothing there that can be read is given as an entry.
    """
    found = bindings.open_session(tx, thread.printed, profile=thread.profile)
    if found is None:
        return []
    segments = rows.segments(tx, found[0])
    marks = entries.marks(tx, segments)
    gone, mark = transcript.retracted(marks), transcript.latest_compaction(marks)
    first = _through(mark) + 1
    if limit is not None:
        # Marks are entries too: as many more are looked at.
        first = max(first, _first_of_last(limit + len(marks), segments, gone))
    shown = [
        native
        for seq, native in entries.walk_extra(tx, _from(segments, first), name, read)
        if not (gone and transcript.is_retracted(seq, gone))
        and not (isinstance(native, Entry) and not isinstance(native.body, Message))
    ]
    given = shown if mark is None else [_summary(mark), *shown]
    return given if limit is None else given[-limit:]


def _first_of_last(
    wanted: int, segments: Sequence[Segment], gone: Sequence[tuple[int, int]]
) -> int:
    """Where the last so many entries begin that were not taken back."""
    upper = segments[-1].last if segments else 0
    for first, last in reversed(gone):
        if upper - last >= wanted:
            break
        wanted -= max(0, upper - last)
        upper = min(upper, first - 1)
    return upper - wanted + 1


def _from(segments: Sequence[Segment], first: int) -> list[Segment]:
    return [replace(each, first=max(each.first, first)) for each in segments if each.last >= first]


def everything(tx: Tx, head: SessionHead) -> list[Message]:
    """What was said and not taken back, whatever a summary stands for."""
    shown = read.transcript_of(tx, head.id, profile=head.profile)
    return [entry.body for entry in shown if isinstance(entry.body, Message)]


def message(entry: Entry) -> Message:
    """What an entry of `visible` says."""
    assert isinstance(entry.body, Message)
    return entry.body


def count(tx: Tx, thread: Thread, calls: Sequence[Usage], *, moment: Moment) -> None:
    """Write model calls into the ledger, each once."""
    head = current(tx, thread) if calls else None
    if head is not None:
        for call in calls:
            usage.record(tx, head.no, call, profile=thread.profile, moment=moment)


def clear(tx: Tx, thread: Thread, *, moment: Moment, lease: Lease | None = None) -> None:
    """Take back everything said in a thread; it stays in the log."""
    head = held(tx, thread)
    if head is not None and head.message_count:
        revise.retract(
            tx,
            head.id,
            profile=thread.profile,
            after=0,
            at=moment.now,
            reason="clear",
            lease=lease,
        )


def take_back(
    tx: Tx,
    thread: Thread,
    entry: Entry,
    *,
    moment: Moment,
    reason: str = "pop",
    lease: Lease | None = None,
) -> None:
    """Take back an entry of `visible` and what follows it.

    A compaction that was written behind the entry, for what stands before it, goes on to hold.
    """
    profile, id = thread.profile, entry.session_id
    head = read.head(tx, id, profile=profile)
    mark = transcript.latest_compaction(entries.marks(tx, rows.segments(tx, head.no)))
    is_summary = mark is not None and mark.seq == entry.seq
    after = 0 if is_summary else entry.seq - 1
    revise.retract(tx, id, profile=profile, after=after, at=moment.now, reason=reason, lease=lease)
    if mark is not None and not is_summary and mark.seq > after:
        assert isinstance(mark.body, Compaction)
        revise.compact(
            tx,
            id,
            mark.body.summary,
            profile=profile,
            through=mark.body.through,
            at=moment.now,
            lease=lease,
        )


def trash(tx: Tx, thread: Thread, *, moment: Moment) -> None:
    """Put a thread's session into the trash; a thread without one is as it should be."""
    head = held(tx, thread)
    if head is not None:
        trash_session(tx, head, moment=moment)


def trash_session(tx: Tx, head: SessionHead, *, moment: Moment) -> None:
    """Put a session into the trash, from where a person may take it back."""
    edit.trash(tx, head.id, profile=head.profile, moment=moment)


def prefix(platform: str, beginning: str, *, profile: str) -> str:
    """How the keys of threads begin whose names begin so."""
    return str(key_for(named(platform, beginning), profile=profile))


def everywhere(platform: str, *, profile: str) -> str:
    """How the keys of all threads of a platform begin."""
    return prefix(platform, "-", profile=profile).removesuffix("-")


def beginning_with(
    tx: Tx, beginning: str, *, profile: str
) -> Iterator[tuple[SessionKey, SessionHead]]:
    """The open sessions whose keys begin alike, in the order of the keys."""
    after, beyond = beginning, beginning + _LAST
    while True:
        page = bindings.page_between(tx, profile=profile, after=after, beyond=beyond, limit=PAGE)
        for key, no in page:
            head = _if_open(rows.get_by_no(tx, no))
            if head is not None:
                yield SessionKey.parse(key), head
        if len(page) < PAGE:
            return
        after = page[-1][0]


def _if_open(head: SessionHead | None) -> SessionHead | None:
    return (
        head
        if head is not None and head.is_open and head.folder is not SessionFolder.GONE
        else None
    )


def _folded(shown: Sequence[Entry], mark: Entry | None) -> list[Entry]:
    """The messages; what a compaction stands for is replaced by its summary."""
    through = _through(mark)
    said = [entry for entry in shown if entry.seq > through and isinstance(entry.body, Message)]
    return said if mark is None else [_summary(mark), *said]


def _last(tx: Tx, head: SessionHead, limit: int) -> list[Entry]:
    mark = transcript.latest_compaction(entries.marks(tx, rows.segments(tx, head.no)))
    through = _through(mark)
    shown: list[Entry] = []
    before: int | None = None
    while len(shown) < limit:
        size = min(PAGE, limit + 8)
        window = read.window(tx, head.id, profile=head.profile, limit=size, before=before)
        shown = [*(entry for entry in window.entries if isinstance(entry.body, Message)), *shown]
        if not window.more_before or window.entries[0].seq <= through:
            break
        before = window.entries[0].seq
    return _folded(shown, mark)[-limit:] if limit > 0 else []


def _through(mark: Entry | None) -> int:
    return mark.body.through if mark is not None and isinstance(mark.body, Compaction) else 0


def _summary(mark: Entry) -> Entry:
    assert isinstance(mark.body, Compaction)
    text = f"{transcript.SUMMARY_HEADING}\n{mark.body.summary}"
    return Entry(mark.session_id, mark.seq, mark.at, Message(Role.USER, (Text(text),)))
