"""Read one session: its head, windows of its transcript, the model's context; find it by id or title."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sessionary.actions.sessions import log, titles
from sessionary.actions.sessions.lists import check_limit
from sessionary.errors import Ambiguous, BadInput, NotFound, Purged
from sessionary.model import codec, transcript
from sessionary.model.message import Attachment, Compaction, Entry, Message, Retraction, Role
from sessionary.model.session import Segment, SessionFolder, SessionHead, clip
from sessionary.model.title import matches_continuation
from sessionary.model.tokens import estimate
from sessionary.model.turn import Turn, TurnState
from sessionary.store.database import Tx
from sessionary.store.tables import blobs, entries, session_lists, sessions, turns
from sessionary.store.tables.sessions import LogCounts

# The setting of a session that lists its pinned entries.
PINNED = "pinned_messages"


class TranscriptWindow(Struct, frozen=True):
    """A part of a transcript, and whether there is more before and after it."""

    entries: tuple[Entry, ...]
    more_before: bool
    more_after: bool


def get_head(tx: Tx, id: str, *, profile: str) -> SessionHead:
    """The head of one session."""
    found = sessions.get(tx, id, profile=profile)
    if found is None:
        raise log.missing_error(tx, id, profile=profile)
    return found


class SessionOrigin(Struct, frozen=True):
    """Where a session was held: the directory and branch, and the tool it was imported from."""

    workspace: Mapping[str, Any] | None = None
    # The tool by its name (`from`) and as people call it (`tool`), and its own id of the session.
    imported: Mapping[str, Any] | None = None


def get_editor_directory(tx: Tx, no: int) -> str | None:
    """The directory that an editor has opened a session for; a session of another tool may have one too."""
    workspace = sessions.details(tx, no).workspace
    is_editors = isinstance(workspace, dict) and "editor" in workspace
    return str(workspace["path"]) if is_editors else None


def get_origin(tx: Tx, id: str, *, profile: str) -> SessionOrigin:
    """Where a session was held, as far as that is known."""
    found = sessions.details(tx, get_head(tx, id, profile=profile).no)
    imported = found.extra.get("import")
    return SessionOrigin(
        found.workspace if isinstance(found.workspace, dict) else None,
        imported if isinstance(imported, dict) else None,
    )


def read_window(
    tx: Tx,
    id: str,
    *,
    profile: str,
    limit: int = 60,
    before: int | None = None,
    after: int | None = None,
    around: int | None = None,
) -> TranscriptWindow:
    """A part of the transcript: around an entry, before it, after it, or at the end."""
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


def read_transcript(tx: Tx, id: str, *, profile: str, through: int | None = None) -> list[Entry]:
    """The whole transcript. Read long sessions by `read_window`."""
    segments = _segments(tx, id, profile=profile, through=through)
    return transcript.transcript(list(entries.walk(tx, segments)))


def read_log(tx: Tx, id: str, *, profile: str, after: int = 0, limit: int = 500) -> list[Entry]:
    """A page of the raw log, retracted entries and marks included."""
    check_limit(limit)
    found: list[Entry] = []
    for segment in clip(_segments(tx, id, profile=profile), after + 1):
        if len(found) < limit:
            found.extend(entries.read(tx, segment, limit=limit - len(found)))
    return found


def read_context(tx: Tx, id: str, *, profile: str) -> list[transcript.Chat]:
    """The model's context: from the last compaction on, repaired so that providers accept it."""
    return transcript.context(read_since_compaction(tx, get_head(tx, id, profile=profile)))


def fold_context(
    tx: Tx, head: SessionHead, known: transcript.ContextFold | None = None
) -> transcript.ContextFold:
    """The model's context; `known` is what this returned for an earlier state of the same log."""
    if known is not None and head.base_seq <= known.last_seq <= head.last_seq:
        newer = Segment(head.no, head.id, known.last_seq + 1, head.last_seq)
        extended = known.extended(list(entries.walk(tx, [newer])), last_seq=head.last_seq)
        if extended is not None:
            return extended
    return transcript.fold_context(read_since_compaction(tx, head), last_seq=head.last_seq)


def read_since_compaction(tx: Tx, found: SessionHead, *, through: int | None = None) -> list[Entry]:
    """The entries from which the model's context is made, now or as it was at the entry `through`."""
    segments = sessions.segments(tx, found.no, through=through)
    marks = entries.marks_in_effect(tx, segments)
    compaction = transcript.compaction_in_effect(marks)
    first = 1 if compaction is None else compaction.through + 1
    kept = () if compaction is None else compaction.kept
    parts = [part for seq in kept for part in clip(segments, seq, seq)]
    messages = [
        entry
        for entry in entries.walk(tx, [*parts, *clip(segments, first)])
        if isinstance(entry.body, Message)
    ]
    return sorted((*messages, *marks), key=lambda entry: entry.seq)


def count_rounds(tx: Tx, id: str, *, profile: str, since: int = 0) -> int:
    """How many rounds people see after an entry: one or more user messages, then at least one of the assistant.

    The database counts; no message is read.
    """
    if since < 0:
        raise BadInput(f"Entries are numbered from 1; rounds cannot be counted since {since}.")
    segments = _segments(tx, id, profile=profile)
    shown = clip(segments, since + 1)
    for first, last in transcript.retracted(entries.retractions(tx, segments)):
        shown = [*clip(shown, 1, first - 1), *clip(shown, last + 1)]
    return entries.count_rounds(tx, shown)


def get_compaction(tx: Tx, head: SessionHead) -> Compaction | None:
    """The compaction that is in effect, if any."""
    return transcript.compaction_in_effect(
        entries.marks_in_effect(tx, sessions.segments(tx, head.no))
    )


def list_pinned(head: SessionHead) -> tuple[int, ...]:
    """The entries that were pinned: a compaction keeps them word for word."""
    pinned = head.settings.get(PINNED, ())
    return tuple(seq for seq in pinned if isinstance(seq, int))


def measure_pinned(tx: Tx, head: SessionHead, marks: Sequence[Entry]) -> dict[int, int]:
    """The estimated tokens of each message that was pinned and not taken back; `marks` has every retraction."""
    pinned = list_pinned(head)
    if not pinned:
        return {}
    segments = sessions.segments(tx, head.no)
    retracted = transcript.retracted(marks)
    parts = [part for seq in sorted(set(pinned)) for part in clip(segments, seq, seq)]
    return {
        entry.seq: estimate(entry.body.text)
        for entry in entries.walk(tx, parts)
        if isinstance(entry.body, Message)
        and entry.body.role in (Role.USER, Role.ASSISTANT)
        and entry.body.text
        and not transcript.is_retracted(entry.seq, retracted)
    }


def read_tool_output(tx: Tx, id: str, seq: int, *, profile: str) -> str | None:
    """The output of a tool in an entry of a session, whole; None if there is none."""
    message = _tool_message(tx, id, seq, profile=profile)
    if message is None:
        return None
    return "\n".join(str(chat["content"]) for chat in transcript.chats_of(message))


def read_tool_files(tx: Tx, id: str, seq: int, *, profile: str) -> list[Attachment]:
    """The files that belong to the output of a tool in an entry of a session."""
    message = _tool_message(tx, id, seq, profile=profile)
    parts = () if message is None else message.parts
    return [part for part in parts if isinstance(part, Attachment)]


def _tool_message(tx: Tx, id: str, seq: int, *, profile: str) -> Message | None:
    for entry in entries.walk(tx, clip(_segments(tx, id, profile=profile), seq, seq)):
        if isinstance(entry.body, Message) and entry.body.role is Role.TOOL:
            return entry.body
    return None


def get_system_prompt(tx: Tx, head: SessionHead) -> str | None:
    """The session's system prompt."""
    found = sessions.details(tx, head.no).prompt_hash
    return None if found is None else blobs.get_text(tx, found)


def get_running_turn(tx: Tx, id: str, *, profile: str) -> Turn | None:
    """The turn that is running in a session."""
    head = get_head(tx, id, profile=profile)
    if head.running_turn is None:
        return None
    found = turns.get(tx, head.running_turn, profile=profile)
    return None if found is None else found[0]


def list_children(tx: Tx, head: SessionHead) -> list[SessionHead]:
    """The sessions that came from this one, purged ones left out."""
    numbers = [
        child.no for child in sessions.children(tx, head.no) if child.folder != SessionFolder.GONE
    ]
    heads = sessions.by_numbers(tx, numbers) if numbers else {}
    return [heads[no] for no in numbers]


def list_retracted(tx: Tx, id: str, *, profile: str) -> list[tuple[int, int]]:
    """The ranges that were retracted; a fork at the end of one brings it back."""
    marks = entries.retractions(tx, _segments(tx, id, profile=profile))
    return [(m.body.after + 1, m.seq - 1) for m in marks if isinstance(m.body, Retraction)]


def recount(tx: Tx, head: SessionHead) -> LogCounts:
    """Count the log again, for comparison with the head."""
    return log.count_log(tx, sessions.segments(tx, head.no))


class _Visible:
    """Reads the entries that were not retracted, in either direction, a page at a time."""

    def __init__(self, tx: Tx, segments: Sequence[Segment]) -> None:
        self._tx = tx
        self._segments = segments
        self._retracted = transcript.retracted(entries.retractions(tx, segments))
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
                entry.seq, self._retracted
            ):
                yield entry


def _segments(tx: Tx, id: str, *, profile: str, through: int | None = None) -> list[Segment]:
    return sessions.segments(tx, get_head(tx, id, profile=profile).no, through=through)


_UNFINISHED = (TurnState.FAILED, TurnState.INTERRUPTED)


class SessionStatus(Struct, frozen=True):
    """How many subagents worked for a session, and whether its last turn failed."""

    subagents: int = 0
    failed: bool = False


def get_statuses(tx: Tx, heads: Sequence[SessionHead]) -> dict[str, SessionStatus]:
    """The status of each of these sessions by its id, in one query."""
    if not heads:
        return {}
    rows = session_lists.list_statuses(tx, (head.no for head in heads))
    return {
        row.session_id: SessionStatus(row.subagents, row.last_turn in _UNFINISHED) for row in rows
    }


_SHOWN = 6
_ID_LIKE = re.compile(r"[A-Za-z0-9_-]+")


def find(tx: Tx, ref: str, *, profile: str) -> SessionHead:
    """The session that a person names.

    By its exact id, a prefix that only one id has, its exact title, or the title of which it is
    the latest numbered continuation.
    """
    if not ref.strip():
        raise BadInput("Name a session: its id, the beginning of its id, or its title.")
    ref = codec.storable_text(ref)
    head = sessions.get(tx, ref, profile=profile)
    if head is not None:
        return head
    found = find_by_prefix(tx, ref, profile=profile) if _ID_LIKE.fullmatch(ref) else None
    found = found or _find_by_title(tx, ref, profile=profile)
    head = None if found is None else sessions.get(tx, found, profile=profile)
    if head is None:
        error = log.missing_error(tx, ref, profile=profile)
        raise error if isinstance(error, Purged) else not_found_error(ref)
    return head


def not_found_error(ref: str) -> NotFound:
    """The error for a name that no session has, or none that the caller may see."""
    return NotFound(
        f"No session is called {ref!r}, by id or by title. Lists and searches show ids."
    )


def find_by_prefix(tx: Tx, text: str, *, profile: str) -> str | None:
    """The only id with this prefix, or None; raises `Ambiguous` when there are several."""
    ref = codec.storable_text(text)
    found = sessions.ids_by_prefix(tx, ref, profile=profile, limit=_SHOWN)
    if len(found) > 1:
        names = [f"{id} ({title})" if title else id for id, title in found]
        more = "" if len(found) < _SHOWN else " and more"
        raise Ambiguous(
            f"{ref!r} is the beginning of several ids: {', '.join(names)}{more}.",
            [id for id, _ in found],
        )
    return found[0][0] if found else None


def _find_by_title(tx: Tx, ref: str, *, profile: str) -> str | None:
    exact = sessions.id_by_title(tx, ref, profile=profile)
    if exact is not None:
        return exact
    numbered = [
        (number, title)
        for title in titles.highest_titles(tx, ref, profile=profile)
        if (number := matches_continuation(ref, title)) is not None
    ]
    return sessions.id_by_title(tx, max(numbered)[1], profile=profile) if numbered else None
