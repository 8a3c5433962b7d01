"""Conversations that another program keeps under a name of its own, as our sessions.

A binding leads from the name to the session. The session itself has no key, so that no reset
policy ends it: its program decides when it is over. If a person ends it or moves it to the trash,
the program begins a new one under the same name."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sessionary.actions import turns, usage
from sessionary.actions.sessions import append as new_message
from sessionary.actions.sessions import edit, log, read, revise, routing
from sessionary.actions.sessions.append import NewMessage
from sessionary.clock import Moment
from sessionary.errors import BadInput, Conflict
from sessionary.model import transcript
from sessionary.model.message import Compaction, Entry, Message, Role, Text, Unknown
from sessionary.model.session import (
    Kind,
    Lineage,
    Opening,
    Segment,
    SessionFolder,
    SessionHead,
    clip,
)
from sessionary.model.source import SessionKey, Source, key_for
from sessionary.model.turn import Lease
from sessionary.model.usage import Usage
from sessionary.store.database import Tx
from sessionary.store.tables import entries
from sessionary.store.tables import sessions as rows
from sessionary.store.tables.sessions import Inheritance

PAGE = 200
# Sorts after every character of a printed key.
_LAST = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class ExternalThread:
    """A conversation of another program, and what is known when its session is opened."""

    profile: str
    source: Source
    kind: Kind = Kind.CHAT
    model: str | None = None
    workspace: dict[str, Any] | None = field(default=None, hash=False)
    # The key and its printed form: made once, used with every message.
    key: SessionKey = field(init=False, compare=False)
    printed: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        key = key_for(self.source, profile=self.profile)
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "printed", str(key))


def source_for(platform: str, name: Any, **facts: Any) -> Source:
    """The source of a conversation with this name."""
    if not isinstance(name, str) or not name:
        raise BadInput(f"A session of {platform} needs a name that is not empty, not {name!r}.")
    return Source(platform=platform, chat_id=name, **facts)


def find_session(tx: Tx, thread: ExternalThread) -> SessionHead | None:
    """The open session of a thread, if there is one."""
    return _if_open(routing.get_current(tx, thread.key))


def lock_session(tx: Tx, thread: ExternalThread) -> SessionHead | None:
    """The open session of a thread, locked until the transaction ends."""
    return _if_open(routing.lock_and_get_current(tx, thread.key))


def get_or_open(
    tx: Tx,
    thread: ExternalThread,
    *,
    moment: Moment,
    parent: SessionHead | None = None,
    note: str | None = None,
) -> SessionHead:
    """Return the thread's session, or open one; the caller appends in the same transaction.

    `parent` is the session whose agent started this one. A session has at least one message: `note`
    is its type if the caller appends none yet.
    """
    found = lock_session(tx, thread)
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
        message = Message(Role.SYSTEM, (Unknown({"type": note}),))
        log.append(tx, head.id, message, profile=thread.profile, at=moment.now)
    return head


def append(
    tx: Tx,
    thread: ExternalThread,
    new_messages: Sequence[NewMessage],
    *,
    moment: Moment,
    lease: Lease | None = None,
) -> list[log.Appended]:
    """Append messages to a thread, all or none; with a lease, to the session of its turn."""
    if lease is not None:
        return _append_to(
            tx, lease.session_id, new_messages, profile=thread.profile, moment=moment, lease=lease
        )
    found = rows.open_session_on(tx, thread.printed, profile=thread.profile)
    if found is not None:
        try:
            return _append_to(tx, found[1], new_messages, profile=thread.profile, moment=moment)
        except Conflict:
            # It may have ended just now; if it is still open, the conflict is raised again.
            pass
    head = get_or_open(tx, thread, moment=moment)
    return _append_to(tx, head.id, new_messages, profile=thread.profile, moment=moment)


def _append_to(
    tx: Tx,
    id: str,
    new_messages: Sequence[NewMessage],
    *,
    profile: str,
    moment: Moment,
    lease: Lease | None = None,
) -> list[log.Appended]:
    return [
        new_message.append_to_session(tx, id, each, profile=profile, moment=moment, lease=lease)
        for each in new_messages
    ]


def begin_turn(
    tx: Tx, thread: ExternalThread, *, holder: str, seconds: float, note: str, moment: Moment
) -> Lease:
    """Begin a turn in a thread's session, opened with `note` if there is none; `Conflict` if one runs."""
    head = get_or_open(tx, thread, moment=moment, note=note)
    claim = turns.Claim(holder, seconds)
    return turns.take_lease(tx, head.no, head.id, claim=claim, moment=moment)


def visible_entries(tx: Tx, thread: ExternalThread, *, limit: int | None = None) -> list[Entry]:
    """The messages that a model reads: without retracted ones, and with a summary for what it replaces.

    With `limit`, only that many of the latest.
    """
    head = find_session(tx, thread)
    if head is None:
        return []
    if limit is not None:
        return _last_entries(tx, head, limit)
    shown = read.read_transcript(tx, head.id, profile=thread.profile)
    return _with_summary(shown, transcript.latest_compaction(shown))


def native_messages(
    tx: Tx, thread: ExternalThread, name: str, read: entries.ReadExtra, *, limit: int | None = None
) -> list[Any]:
    """Like `visible_entries`, but of each message only what `read` makes of its extra field `name`.

    A message without a readable field is returned as an entry.
    """
    found = rows.open_session_on(tx, thread.printed, profile=thread.profile)
    if found is None:
        return []
    segments = rows.segments(tx, found[0])
    marks = entries.marks(tx, segments)
    gone, mark = transcript.retracted(marks), transcript.latest_compaction(marks)
    first = _through(mark) + 1
    if limit is not None:
        # Marks are entries too, so as many more are read.
        first = max(first, _first_of_last(limit + len(marks), segments, gone))
    shown = [
        native
        for seq, native in entries.walk_extra(tx, clip(segments, first), name, read)
        if not (gone and transcript.is_retracted(seq, gone))
        and not (isinstance(native, Entry) and not isinstance(native.body, Message))
    ]
    given = shown if mark is None else [_summary(mark), *shown]
    return given if limit is None else given[-limit:]


def _first_of_last(
    wanted: int, segments: Sequence[Segment], gone: Sequence[tuple[int, int]]
) -> int:
    """The seq at which the last `wanted` entries begin, not counting retracted ones."""
    upper = segments[-1].last if segments else 0
    for first, last in reversed(gone):
        if upper - last >= wanted:
            break
        wanted -= max(0, upper - last)
        upper = min(upper, first - 1)
    return upper - wanted + 1


def all_messages(tx: Tx, head: SessionHead) -> list[Message]:
    """All messages that were not retracted, also those that a summary replaces."""
    shown = read.read_transcript(tx, head.id, profile=head.profile)
    return [entry.body for entry in shown if isinstance(entry.body, Message)]


def entry_message(entry: Entry) -> Message:
    """The message of an entry of `visible_entries`."""
    assert isinstance(entry.body, Message)
    return entry.body


def record_usage(tx: Tx, thread: ExternalThread, calls: Sequence[Usage], *, moment: Moment) -> None:
    """Record model calls, each once."""
    head = find_session(tx, thread) if calls else None
    if head is not None:
        for call in calls:
            usage.record(tx, head.no, call, profile=thread.profile, moment=moment)


def clear(tx: Tx, thread: ExternalThread, *, moment: Moment, lease: Lease | None = None) -> None:
    """Retract all messages of a thread; they stay in the log."""
    head = lock_session(tx, thread)
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


def retract_from(
    tx: Tx,
    thread: ExternalThread,
    entry: Entry,
    *,
    moment: Moment,
    reason: str = "pop",
    lease: Lease | None = None,
) -> None:
    """Retract an entry of `visible_entries` and everything after it.

    A compaction after the entry, of what is before it, is written again.
    """
    profile, id = thread.profile, entry.session_id
    head = read.get_head(tx, id, profile=profile)
    mark = transcript.latest_compaction(entries.marks_in_effect(tx, rows.segments(tx, head.no)))
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


def trash(tx: Tx, thread: ExternalThread, *, moment: Moment) -> None:
    """Move a thread's session to the trash, if it has one."""
    head = lock_session(tx, thread)
    if head is not None:
        trash_session(tx, head, moment=moment)


def trash_session(tx: Tx, head: SessionHead, *, moment: Moment) -> None:
    """Move a session to the trash, from where a person can restore it."""
    edit.trash(tx, head.id, profile=head.profile, moment=moment)


def key_prefix(platform: str, beginning: str, *, profile: str) -> str:
    """The prefix of the keys of threads whose names begin so."""
    return str(key_for(source_for(platform, beginning), profile=profile))


def platform_prefix(platform: str, *, profile: str) -> str:
    """The prefix of the keys of all threads of a platform."""
    return key_prefix(platform, "-", profile=profile).removesuffix("-")


def sessions_with_prefix(
    tx: Tx, beginning: str, *, profile: str
) -> Iterator[tuple[SessionKey, SessionHead]]:
    """The open sessions whose keys have this prefix, in the order of the keys."""
    after, beyond = beginning, beginning + _LAST
    while True:
        page = rows.bindings_between(tx, profile=profile, after=after, beyond=beyond, limit=PAGE)
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


def _with_summary(shown: Sequence[Entry], mark: Entry | None) -> list[Entry]:
    """The messages, with the summary for what a compaction replaces."""
    through = _through(mark)
    new_messages = [
        entry for entry in shown if entry.seq > through and isinstance(entry.body, Message)
    ]
    return new_messages if mark is None else [_summary(mark), *new_messages]


def _last_entries(tx: Tx, head: SessionHead, limit: int) -> list[Entry]:
    mark = transcript.latest_compaction(entries.marks_in_effect(tx, rows.segments(tx, head.no)))
    through = _through(mark)
    shown: list[Entry] = []
    before: int | None = None
    while len(shown) < limit:
        size = min(PAGE, limit + 8)
        window = read.read_window(tx, head.id, profile=head.profile, limit=size, before=before)
        shown = [*(entry for entry in window.entries if isinstance(entry.body, Message)), *shown]
        if not window.more_before or window.entries[0].seq <= through:
            break
        before = window.entries[0].seq
    return _with_summary(shown, mark)[-limit:] if limit > 0 else []


def _through(mark: Entry | None) -> int:
    return mark.body.through if mark is not None and isinstance(mark.body, Compaction) else 0


def _summary(mark: Entry) -> Entry:
    assert isinstance(mark.body, Compaction)
    text = f"{transcript.SUMMARY_HEADING}\n{mark.body.summary}"
    return Entry(mark.session_id, mark.seq, mark.at, Message(Role.USER, (Text(text),)))
