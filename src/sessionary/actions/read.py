"""Reading one session: its head, windows of its transcript, what the model sees."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sessionary.actions import fold, refusals, resolve
from sessionary.actions.listing import check_limit
from sessionary.model import transcript
from sessionary.model.message import Compaction, Entry, Message, Retraction
from sessionary.model.session import Segment, SessionFolder, SessionHead
from sessionary.store.database import Tx
from sessionary.store.tables import blobs, entries, sessions


@dataclass(frozen=True, slots=True)
class TranscriptWindow:
    """A stretch of a transcript, and whether there is more on either side."""

    entries: tuple[Entry, ...]
    more_before: bool
    more_after: bool


def head(tx: Tx, id: str, *, profile: str) -> SessionHead:
    """The head of one session."""
    found = sessions.get(tx, id, profile=profile)
    if found is None:
        raise refusals.missing(tx, id, profile=profile)
    return found


@dataclass(frozen=True, slots=True)
class SessionOrigin:
    """Where a session was held: the directory and branch, and the tool it was imported from."""

    workspace: Mapping[str, Any] | None = None
    # The tool by its name (`from`) and as people call it (`tool`), and its own id of the session.
    imported: Mapping[str, Any] | None = None


def origin(tx: Tx, id: str, *, profile: str) -> SessionOrigin:
    """Where a session was held, as far as that is known."""
    found = sessions.details(tx, head(tx, id, profile=profile).no)
    imported = found.extra.get("import")
    return SessionOrigin(
        found.workspace if isinstance(found.workspace, dict) else None,
        imported if isinstance(imported, dict) else None,
    )


def find(tx: Tx, ref: str, *, profile: str) -> SessionHead:
    """The session a person means."""
    return resolve.resolve(tx, ref, profile=profile)


def window(
    tx: Tx,
    id: str,
    *,
    profile: str,
    limit: int = 60,
    before: int | None = None,
    after: int | None = None,
    around: int | None = None,
) -> TranscriptWindow:
    """What people read, around an entry, before it, after it, or at the end."""
    check_limit(limit)
    segments = _segments(tx, id, profile=profile)
    reader = _Visible(tx, segments)
    if around is not None:
        older = reader.backwards(around - 1, limit // 2 + 1)
        newer = reader.forwards(around, limit - limit // 2 + 1)
        more_before, more_after = len(older) > limit // 2, len(newer) > limit - limit // 2
        shown = older[-(limit // 2) :] if limit // 2 else []
        return TranscriptWindow((*shown, *newer[: limit - limit // 2]), more_before, more_after)
    if after is not None:
        newer = reader.forwards(after + 1, limit + 1)
        return TranscriptWindow(tuple(newer[:limit]), after >= 1, len(newer) > limit)
    last = reader.last if before is None else before - 1
    older = reader.backwards(last, limit + 1)
    return TranscriptWindow(tuple(older[-limit:]), len(older) > limit, last < reader.last)


def transcript_of(tx: Tx, id: str, *, profile: str, through: int | None = None) -> list[Entry]:
    """The whole of what people read. Long sessions are better read by `window`."""
    segments = _segments(tx, id, profile=profile, through=through)
    return transcript.transcript(list(entries.walk(tx, segments)))


def log_of(tx: Tx, id: str, *, profile: str, after: int = 0, limit: int = 500) -> list[Entry]:
    """A page of the raw log, retracted entries and marks included."""
    check_limit(limit)
    found: list[Entry] = []
    for segment in _segments(tx, id, profile=profile):
        if segment.last > after and len(found) < limit:
            rest = replace(segment, first=max(segment.first, after + 1))
            found.extend(entries.read(tx, rest, limit=limit - len(found)))
    return found


def context(tx: Tx, id: str, *, profile: str) -> list[transcript.Chat]:
    """What the model reads: from the last compaction on, repaired so that providers accept it."""
    return transcript.context(since_compaction(tx, head(tx, id, profile=profile)))


def since_compaction(tx: Tx, found: SessionHead) -> list[Entry]:
    """The part of the log that the model's context is folded from."""
    segments = sessions.segments(tx, found.no)
    marks = entries.marks(tx, segments)
    compaction = transcript.latest_compaction(marks)
    first = (
        compaction.body.through + 1 if compaction and isinstance(compaction.body, Compaction) else 1
    )
    said = [
        entry
        for entry in entries.walk(tx, _from(segments, first))
        if isinstance(entry.body, Message)
    ]
    return sorted((*said, *marks), key=lambda entry: entry.seq)


def settings(tx: Tx, head: SessionHead) -> Mapping[str, Any]:
    """What the agent shall do otherwise in this session: its model and that model's settings."""
    found = sessions.settings(tx, head.no)
    return found if isinstance(found, dict) else {}


def system_prompt(tx: Tx, head: SessionHead) -> str | None:
    """The system prompt a session was begun with."""
    found = sessions.details(tx, head.no).prompt_hash
    return None if found is None else blobs.get_text(tx, found)


def children(tx: Tx, head: SessionHead) -> list[SessionHead]:
    """The sessions that came from this one."""
    return [
        sessions.get_by_no(tx, row[0])
        for row in tx.all("children", no=head.no)
        if row[4] != SessionFolder.GONE
    ]


def branches(tx: Tx, id: str, *, profile: str) -> list[tuple[int, int]]:
    """The stretches that were taken back; fork at the end of one to have it again."""
    marks = entries.marks(tx, _segments(tx, id, profile=profile))
    return [(m.body.after + 1, m.seq - 1) for m in marks if isinstance(m.body, Retraction)]


def counts(tx: Tx, head: SessionHead) -> fold.LogCounts:
    """The head's counts, made anew from the log."""
    return fold.counts(tx, sessions.segments(tx, head.no))


class _Visible:
    """Reads what was not taken back, in either direction, a page at a time."""

    def __init__(self, tx: Tx, segments: Sequence[Segment]) -> None:
        self._tx = tx
        self._segments = segments
        self._stretches = transcript.retracted(entries.marks(tx, segments))
        self.last = segments[-1].last if segments else 0

    def backwards(self, last: int, limit: int) -> list[Entry]:
        found: list[Entry] = []
        for segment in reversed(self._segments):
            upper = min(segment.last, last)
            while upper >= segment.first and len(found) < limit:
                part = replace(segment, last=upper)
                page = entries.read(self._tx, part, limit=limit - len(found) + 8, backwards=True)
                found[:0] = self._shown(page)
                if not page:
                    break
                upper = page[0].seq - 1
        return found[-limit:]

    def forwards(self, first: int, limit: int) -> list[Entry]:
        found: list[Entry] = []
        for segment in self._segments:
            lower = max(segment.first, first)
            while lower <= segment.last and len(found) < limit:
                page = entries.read(
                    self._tx, replace(segment, first=lower), limit=limit - len(found) + 8
                )
                found += self._shown(page)
                if not page:
                    break
                lower = page[-1].seq + 1
        return found[:limit]

    def _shown(self, page: Sequence[Entry]) -> Iterator[Entry]:
        for entry in page:
            if not isinstance(entry.body, Retraction) and not transcript.is_retracted(
                entry.seq, self._stretches
            ):
                yield entry


def _segments(tx: Tx, id: str, *, profile: str, through: int | None = None) -> list[Segment]:
    return sessions.segments(tx, head(tx, id, profile=profile).no, through=through)


def _from(segments: Sequence[Segment], first: int) -> list[Segment]:
    return [replace(each, first=max(each.first, first)) for each in segments if each.last >= first]
