"""The table of sessions, whose rows are read as `SessionHead`; their locks, holds, drafts and keys."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import Struct

from sessionary.clock import from_micros, to_micros
from sessionary.errors import Damaged
from sessionary.model import codec
from sessionary.model.choice import ChoiceChange, apply_changes, change_from_json, change_json
from sessionary.model.session import (
    Kind,
    Lineage,
    Opening,
    Segment,
    SessionFolder,
    SessionHead,
    TitleBy,
    folder_of,
)
from sessionary.model.source import source_as_stored
from sessionary.model.usage import UsageTotal
from sessionary.store.database import REMEDY, Row, Tx
from sessionary.store.queries import pg_array_literal
from sessionary.store.tables import blobs

# Sorts after every character that a key is printed with.
BEYOND_KEYS = "\x7f"
# Above every seq and every time in microseconds.
FAR_FUTURE = 2**62
# Where the `extra` of a session has what agents keep with it, by their names.
AGENT_STATE = "agent_state"
_KINDS = {kind.value: kind for kind in Kind}
_FOLDERS = {folder.value: folder for folder in SessionFolder}
_INHERITING = {lineage.value for lineage in Lineage if lineage.inherits}


class LogCounts(Struct, frozen=True):
    """What a session's head says about its log."""

    message_count: int = 0
    tool_call_count: int = 0
    last_reply_seq: int = 0
    preview: str | None = None
    compacted_seq: int = 0


class Inheritance(Struct, frozen=True):
    """What a session takes over from its parent: the history up to `base_seq`, and its counts."""

    parent_no: int
    lineage: Lineage
    base_seq: int = 0
    counts: LogCounts = LogCounts()


class Details(Struct, frozen=True):
    """The columns of a session that are not part of its head."""

    settings: Any
    prompt_hash: str | None
    workspace: Any
    extra: dict[str, Any]
    draft: str | None
    finalized_at: datetime | None
    compacted_seq: int
    epoch: int


class SessionRef(NamedTuple):
    """A session on a page of all sessions, including purged ones."""

    no: int
    id: str
    folder: str


class ChildRow(NamedTuple):
    """A child of a session; `inherits`: it shares the parent's log up to `base_seq`."""

    no: int
    inherits: bool
    base_seq: int
    folder: str


class AncestorRow(NamedTuple):
    """A session, or an ancestor whose log it shares; `base_seq` is the last entry that it inherits in turn."""

    no: int
    id: str
    base_seq: int
    last_seq: int


class BindingRow(NamedTuple):
    """A key, and the number of the session it is on."""

    key: str
    session_no: int
    bound_at: datetime


class DueSession(NamedTuple):
    """An open session that has been inactive for longer than its policy allows."""

    no: int
    id: str
    profile: str
    key: str


class EndedSession(NamedTuple):
    """An ended session whose finalizers must still run, and how often they have failed."""

    no: int
    id: str
    profile: str
    reason: str
    tries: int
    ended_at: datetime


def insert(
    tx: Tx, id: str, opening: Opening, *, at: datetime, inherited: Inheritance | None = None
) -> int:
    """Insert a new session; return its number."""
    source = opening.source
    person = source.person
    counts = inherited.counts if inherited else LogCounts()
    chosen = opening.chosen
    row = tx.one(
        "insert_session",
        id=id,
        profile=opening.profile,
        key=opening.key,
        source=codec.encode(source.to_json()),
        platform=codec.storable_text(source.platform),
        chat_type=codec.storable_text(source.chat_type),
        chat_id=column(source.chat_id),
        person_id=column(None if person is None else person.stable_id),
        kind=opening.kind,
        folder=folder_of(kind=opening.kind, archived=False, trashed=False, purged=False),
        title=opening.title,
        title_by=opening.title_by,
        model=column(
            opening.model if chosen is None else chosen.changed.get("model", opening.model)
        ),
        settings=optional_json(_opening_settings(opening)),
        prompt_hash=None
        if opening.system_prompt is None
        else blobs.hash_of_text(opening.system_prompt),
        workspace=optional_json(opening.workspace),
        labels=codec.encode(opening.labels),
        extra=codec.encode(opening.extra),
        read_only=int(opening.read_only),
        parent_no=inherited and inherited.parent_no,
        lineage=inherited and inherited.lineage,
        base_seq=inherited.base_seq if inherited else 0,
        began_at=to_micros(at),
        preview=counts.preview,
        message_count=counts.message_count,
        tool_call_count=counts.tool_call_count,
        compacted_seq=counts.compacted_seq,
        last_reply_seq=counts.last_reply_seq,
    )
    assert row is not None
    no: int = row[0]
    if opening.system_prompt is not None:
        blobs.keep_text(tx, opening.system_prompt, entry_no=first_entry_no(no))
    return no


def _opening_settings(opening: Opening) -> Mapping[str, Any] | None:
    if opening.chosen is None:
        return opening.settings
    return apply_changes(opening.settings or {}, opening.chosen.changed) or None


def get(tx: Tx, id: str, *, profile: str) -> SessionHead | None:
    """Return the head of a session; None if there is none with this id in this profile."""
    row = tx.one("get_head", id=codec.storable_text(id), profile=profile)
    return None if row is None else head(row)


def get_by_no(tx: Tx, no: int) -> SessionHead:
    """Return the head of a session that must exist; raise `Damaged` if it does not."""
    return head(existing(tx.one("get_head_by_no", no=no), no))


def by_numbers(tx: Tx, numbers: Iterable[int]) -> dict[int, SessionHead]:
    """Return the heads of sessions that must exist, by number; raise `Damaged` if one does not."""
    wanted = set(numbers)
    rows = tx.all("get_heads_by_no", numbers=pg_array_literal(wanted))
    found = {row[0]: head(row) for row in rows}
    for no in wanted - found.keys():
        raise missing(no)
    return found


def missing(no: int) -> Damaged:
    """Return the error for a missing session that another row refers to: the rows of sessions are never deleted."""
    return Damaged(f"Session number {no} is missing: the store is damaged. {REMEDY}")


def existing(row: Row | None, no: int) -> Row:
    """Return the row of a session that must exist; raise `Damaged` if it is None."""
    if row is None:
        raise missing(no)
    return row


def purged_at(tx: Tx, id: str, *, profile: str) -> datetime | None:
    """Return when a session was purged; None if it was not."""
    row = tx.one("purged_at", id=codec.storable_text(id), profile=profile)
    return None if row is None else from_micros(row[0])


def ids_by_prefix(
    tx: Tx, beginning: str, *, profile: str, limit: int
) -> list[tuple[str, str | None]]:
    """Return the ids with this beginning, in order, each with its title."""
    beyond = beginning + "\U0010ffff"
    rows = tx.all("ids_by_prefix", profile=profile, first=beginning, beyond=beyond, limit=limit)
    return [(id, title) for id, title in rows]


def highest_titles(tx: Tx, beginning: str, *, profile: str, fewest: int, most: int) -> list[str]:
    """Return the highest of the titles with this beginning and a number, for each number of digits."""
    rows = tx.all("highest_titles", profile=profile, beginning=beginning, fewest=fewest, most=most)
    return [title for (title,) in rows if title is not None]


def settings_of(stored: str | None) -> Mapping[str, Any]:
    """Return the settings in a column; those of another form than ours are left out."""
    found = None if stored is None else codec.decode(stored)
    return found if isinstance(found, dict) else {}


def details(tx: Tx, no: int) -> Details:
    """Return the columns of a session that are not part of its head."""
    row = existing(tx.one("get_details", no=no), no)
    settings, prompt_hash, workspace, extra, draft, finalized_at, compacted_seq, epoch = row
    return Details(
        settings=None if settings is None else codec.decode(settings),
        prompt_hash=prompt_hash,
        workspace=None if workspace is None else codec.decode(workspace),
        extra=codec.decode(extra),
        draft=None if draft is None else codec.decode(draft),
        finalized_at=moment(finalized_at),
        compacted_seq=compacted_seq,
        epoch=epoch,
    )


def workspaces(tx: Tx, numbers: Iterable[int]) -> dict[int, Any]:
    """Return where these sessions were held, by number; those of which it is not known are left out."""
    rows = tx.all("get_workspaces", numbers=pg_array_literal(numbers))
    return {no: codec.decode(workspace) for no, workspace in rows}


def page(tx: Tx, *, profile: str | None, after: int, limit: int) -> list[SessionRef]:
    """Return sessions in the order of their numbers, of one profile or of all, including purged ones."""
    if profile is None:
        rows = tx.all("page_of_all_sessions", after=after, limit=limit)
    else:
        rows = tx.all("page_of_sessions", profile=profile, after=after, limit=limit)
    return [SessionRef(*row) for row in rows]


def children(tx: Tx, no: int) -> list[ChildRow]:
    """Return the children of a session, oldest first, including purged ones."""
    return [
        ChildRow(child_no, lineage in _INHERITING, base_seq, folder)
        for child_no, _, lineage, base_seq, folder in tx.all("children", no=no)
    ]


def ancestors(tx: Tx, no: int) -> list[AncestorRow]:
    """Return a session and the ancestors whose log it shares, nearest first."""
    return [AncestorRow(*row) for row in tx.all("ancestors", no=no)]


def profile_of(tx: Tx, id: str) -> str | None:
    """Return the profile of a session, purged or not; None if no session has this id."""
    row = tx.one("profile_of", id=id)
    return None if row is None else str(row[0])


def id_by_title(tx: Tx, title: str | None, *, profile: str) -> str | None:
    """Return the id of the session with exactly this title, or None."""
    row = tx.one("id_by_title", profile=profile, title=title)
    return None if row is None else str(row[0])


def numbered_titles(tx: Tx, title: str, *, profile: str) -> list[tuple[str, int]]:
    """Return titles that begin with this one and ` #`, with the numbers of their sessions."""
    first = f"{column(title)} #"
    # `$` is the character right after `#`.
    rows = tx.all("titles_from", profile=profile, first=first, beyond=f"{first[:-1]}$")
    return [(name, no) for name, _, no in rows]


def count(tx: Tx, *, profile: str, platform: str | None = None) -> int:
    """Return how many sessions a profile has, of one platform or of all; not those in the trash."""
    row = tx.one("count_sessions", profile=profile, platform=column(platform))
    return 0 if row is None else int(row[0])


def count_messages(tx: Tx, *, profile: str) -> int:
    """Return how many messages the sessions of a profile have, without those in the trash."""
    row = tx.one("sum_messages", profile=profile)
    return 0 if row is None else int(row[0])


def list_heads(
    tx: Tx,
    *,
    profile: str,
    platform: str | None,
    without: Iterable[str],
    roots_only: bool,
    by_activity: bool,
    limit: int,
    skip: int,
) -> list[SessionHead]:
    """Return heads, the latest begun or the latest active first; `without` leaves out platforms."""
    hidden = "".join(f"\n{column(each)}\n" for each in without)
    rows = tx.all(
        "list_by_last_active" if by_activity else "list_by_beginning",
        profile=profile,
        platform=column(platform),
        without=hidden or None,
        roots=1 if roots_only else None,
        limit=limit,
        skip=skip,
    )
    return [head(row) for row in rows]


def child_heads(tx: Tx, no: int) -> list[SessionHead]:
    """Return the children of a session, newest first, without those in the trash."""
    return [head(row) for row in tx.all("child_heads", no=no)]


def set_settings(tx: Tx, no: int, settings: Mapping[str, Any], *, model: str | None) -> None:
    """Write a session's own settings, and the model among them that lists show."""
    tx.run("set_settings", no=no, settings=optional_json(settings or None), model=column(model))


def set_model(tx: Tx, no: int, model: str) -> None:
    """Write the model that a session uses."""
    tx.run("set_model", no=no, model=column(model))


def set_title(tx: Tx, no: int, title: str | None, *, by: TitleBy | None) -> None:
    """Write a session's title and who gave it."""
    tx.run("set_title", no=no, title=title, title_by=by)


def set_folder(
    tx: Tx, no: int, folder: SessionFolder, *, archived: bool, trashed_at: datetime | None
) -> None:
    """Write the folder of a session, and the two facts from which it is derived."""
    tx.run(
        "set_folder",
        no=no,
        folder=folder,
        archived=int(archived),
        trashed_at=optional_micros(trashed_at),
    )


def set_read_through(tx: Tx, no: int, seq: int) -> None:
    """Mark a session as read up to an entry."""
    tx.run("set_read_through", no=no, read_through=seq)


def set_draft(tx: Tx, no: int, text: str, *, at: datetime) -> None:
    """Keep a text that was typed and not sent."""
    tx.run("set_draft", no=no, text=codec.encode(text), at=to_micros(at))


def delete_draft(tx: Tx, no: int) -> None:
    """Remove a session's draft."""
    tx.run("delete_draft", no=no)


def end(tx: Tx, no: int, *, reason: str, at: datetime) -> bool:
    """End a session, unless it has ended or a turn is running; return whether it was ended."""
    return bool(tx.run("end_session", no=no, at=to_micros(at), reason=column(reason)))


def reopen(tx: Tx, no: int, *, key: str | None) -> None:
    """Make a session open again, under this key or none."""
    tx.run("reopen_session", no=no, key=key)


def set_key(tx: Tx, no: int, key: str | None) -> None:
    """Write the key under which a session is open."""
    tx.run("set_key", no=no, key=key)


def open_session_of_key(tx: Tx, key: str, *, profile: str) -> int | None:
    """Return the number of the open session that holds a key, or None."""
    row = tx.one("open_session_of_key", profile=profile, key=key)
    return None if row is None else int(row[0])


def set_end(
    tx: Tx, no: int, *, ended_at: datetime | None, reason: str | None, key: str | None
) -> None:
    """Write when and why a session ended (None: it is open), and the key it holds."""
    tx.run("set_end", no=no, ended_at=optional_micros(ended_at), reason=reason, key=key)


def free_purged_id(tx: Tx, id: str, *, new_id: str) -> bool:
    """Rename a purged session, so that its id can be used again; return whether a purged session had it."""
    return bool(tx.run("rename_tombstone", id=id, new_id=new_id))


def set_pinned(tx: Tx, no: int, *, pinned: bool) -> None:
    """Mark a session as pinned, or not."""
    tx.run("set_pinned", no=no, pinned=int(pinned))


def set_read_only(tx: Tx, no: int) -> None:
    """Make a session read-only."""
    tx.run("set_read_only", no=no)


def set_labels(tx: Tx, no: int, labels: Sequence[str]) -> None:
    """Write a session's labels."""
    tx.run("set_labels", no=no, labels=codec.encode(labels))


def set_extra(tx: Tx, no: int, extra: Mapping[str, Any]) -> None:
    """Write the extra data that programs store with a session."""
    tx.run("set_extra", no=no, extra=codec.encode(extra))


def delete_agent_state(tx: Tx, no: int) -> None:
    """Delete what agents have kept with a session: their own sessions are not continued."""
    extra = details(tx, no).extra
    if AGENT_STATE in extra:
        set_extra(tx, no, {name: value for name, value in extra.items() if name != AGENT_STATE})


def set_system_prompt(tx: Tx, no: int, text: str | None) -> None:
    """Write a session's system prompt."""
    name = None if text is None else blobs.keep_text(tx, text, entry_no=first_entry_no(no))
    tx.run("set_prompt_hash", no=no, prompt_hash=name)


def set_preview(tx: Tx, no: int, preview: str) -> None:
    """Write a session's preview if it has none."""
    tx.run("set_preview", no=no, preview=preview)


def raise_epoch(tx: Tx, no: int) -> int:
    """Raise a session's epoch: its turn was taken over, or entries of its history were replaced; return it."""
    return int(existing(tx.one("raise_epoch", no=no), no)[0])


def set_compacted(tx: Tx, no: int, seq: int, *, context_tokens: int = 0) -> None:
    """Write the seq of the compaction that is in effect, and the estimated size of the context after it."""
    tx.run("set_compacted", no=no, compacted_seq=seq, context_tokens=context_tokens)


def set_counts(tx: Tx, no: int, counts: LogCounts) -> None:
    """Write what a session's head says about its log."""
    tx.run(
        "set_counts",
        no=no,
        message_count=counts.message_count,
        tool_call_count=counts.tool_call_count,
        last_reply_seq=counts.last_reply_seq,
        preview=counts.preview,
        compacted_seq=counts.compacted_seq,
    )


def open_platforms(tx: Tx) -> list[tuple[str, str]]:
    """Return the platforms and chat types for which a key has an open session."""
    return [(platform, kind) for platform, kind in tx.all("places_with_open_sessions")]


def due_for_reset(
    tx: Tx, platform: str, chat_type: str, *, cutoff: datetime, now: datetime, limit: int
) -> list[DueSession]:
    """Return open sessions that were last active before the cutoff and have no running turn and no hold."""
    rows = tx.all(
        "due_for_reset",
        platform=platform,
        chat_type=chat_type,
        cutoff=to_micros(cutoff),
        now=to_micros(now),
        limit=limit,
    )
    return [DueSession(no, id, profile, key) for no, id, profile, key, _ in rows]


def due_for_finalizing(tx: Tx, *, tries: int, limit: int) -> list[EndedSession]:
    """Return ended sessions whose finalizers have not succeeded, and have failed fewer than `tries` times."""
    rows = tx.all("due_for_finalizing", tries=tries, limit=limit)
    return [
        EndedSession(no, id, profile, reason, count, from_micros(ended_at))
        for no, id, profile, reason, count, ended_at in rows
    ]


def mark_finalized(tx: Tx, ended: EndedSession, *, at: datetime) -> None:
    """Record that the finalizers of this end have run; a later end of the same session is not marked."""
    tx.run("mark_finalized", no=ended.no, at=to_micros(at), ended_at=to_micros(ended.ended_at))


def mark_finalize_failed(
    tx: Tx, ended: EndedSession, *, error: str, at: datetime, tries: int
) -> None:
    """Count a failed run of the finalizers and store its error; after `tries` failures they are not run again."""
    tx.run(
        "mark_finalize_failed",
        no=ended.no,
        ended_at=to_micros(ended.ended_at),
        error=column(error),
        at=to_micros(at),
        tries=tries,
    )


def subagents_below(tx: Tx, no: int) -> list[int]:
    """Return the numbers of a session's subagents at any depth."""
    return [found for (found,) in tx.all("subagents_below", no=no)]


def segments(tx: Tx, no: int, *, through: int | None = None) -> list[Segment]:
    """Return the parts of the log that make up a session's history, oldest first."""
    found: list[Segment] = []
    upper = FAR_FUTURE if through is None else through
    chain = ancestors(tx, no)
    if not chain:
        raise missing(no)
    for own_no, id, base_seq, last_seq in chain:
        last = min(upper, last_seq)
        if last > base_seq:
            found.append(Segment(own_no, id, base_seq + 1, last))
        upper = min(upper, base_seq)
    if upper > 0:
        # A fork continues the numbers of its parent: if the first is not 1, an ancestor is missing.
        raise Damaged(
            f"The session that {chain[-1].id} continues is missing: the store is damaged. {REMEDY}"
        )
    found.reverse()
    return found


def head(row: Row) -> SessionHead:
    """Return the head in a row of `head_columns`; raise `Damaged` if it cannot be read."""
    try:
        return _head(row)
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise Damaged(
            f"The row of session number {row[0]} cannot be read ({error}): "
            f"the store is damaged. {REMEDY}"
        ) from error


def _head(row: Row) -> SessionHead:
    # fmt: off
    (
        no, id, profile, key, source, kind, folder, title, title_by, preview, model, project,
        pinned, archived, read_only, labels, began_at, last_active_at, ended_at, end_reason, trashed_at,
        last_seq, base_seq, read_through, last_reply_seq, message_count, tool_call_count,
        *sums, running_turn, parent_id, lineage, context_tokens, context_seq, settings, lease_until,
    ) = row
    # fmt: on
    return SessionHead(
        no,
        id,
        profile,
        key,
        source_as_stored(codec.decode(source)),
        _KINDS[kind],
        _FOLDERS[folder],
        title,
        None if title_by is None else TitleBy(title_by),
        preview,
        model,
        project,
        pinned == 1,
        archived == 1,
        read_only == 1,
        () if labels == "[]" else tuple(codec.decode(labels)),
        from_micros(began_at),
        from_micros(last_active_at),
        moment(ended_at),
        end_reason,
        moment(trashed_at),
        last_seq,
        base_seq,
        read_through,
        last_reply_seq,
        message_count,
        tool_call_count,
        UsageTotal(None, *sums),
        running_turn,
        parent_id,
        None if lineage is None else Lineage(lineage),
        context_tokens,
        context_seq,
        {} if settings is None else settings_of(settings),
        moment(lease_until),
    )


def first_entry_no(session_no: int) -> int:
    """Return the number before that of a session's first entry; references to system prompts have it."""
    return session_no << 24


def moment(micros: int | None) -> datetime | None:
    """Return a time from a column that may be NULL."""
    return None if micros is None else from_micros(micros)


def column(text: str | None) -> str | None:
    """Return a text in a form that a column of the database can hold."""
    return None if text is None else codec.storable_text(text)


def optional_json(value: Any) -> str | None:
    """Return a value for a column of JSON that may be NULL."""
    return None if value is None else codec.encode(value)


def optional_micros(at: datetime | None) -> int | None:
    """Return a time for a column that may be NULL."""
    return None if at is None else to_micros(at)


def lock_key(tx: Tx, key: str, *, profile: str) -> None:
    """Lock a name in a profile until the transaction ends: a session key, a budget, an id that is about to be used.

    Lock before reading what depends on it: on PostgreSQL two transactions may both find nothing, and both write.
    """
    tx.one("lock_key", profile=profile, key=key)


def lock_session(tx: Tx, id: str, *, profile: str) -> int | None:
    """Lock a session's row; return its number, or None if the profile has no such session."""
    row = tx.one("lock_session", id=codec.storable_text(id), profile=profile)
    return None if row is None else int(row[0])


def lock_session_no(tx: Tx, no: int) -> None:
    """Lock the row of a session that must exist, purged or not."""
    tx.one("lock_session_no", no=no)


def put_hold(tx: Tx, session_no: int, name: str, *, expires_at: datetime) -> None:
    """Write a hold; if there is one with this name, replace its end."""
    tx.run("insert_hold", no=session_no, name=name, expires_at=to_micros(expires_at))


def delete_hold(tx: Tx, session_no: int, name: str) -> None:
    """Remove a hold."""
    tx.run("delete_hold", no=session_no, name=name)


def delete_expired_holds(tx: Tx, session_no: int, *, now: datetime) -> None:
    """Remove the expired holds of a session."""
    tx.run("delete_expired_holds", no=session_no, now=to_micros(now))


def is_held(tx: Tx, session_no: int, *, now: datetime) -> bool:
    """Return whether a hold prevents the reset of a session now."""
    return tx.one("is_held", no=session_no, now=to_micros(now)) is not None


def holds_of_session(tx: Tx, session_no: int) -> list[tuple[str, datetime]]:
    """Return the names and ends of a session's holds, including expired ones."""
    return [(name, from_micros(at)) for name, at in tx.all("holds_of_session", no=session_no)]


def session_of_key(tx: Tx, key: str, *, profile: str) -> int | None:
    """Return the number of the session that a key is on, or None."""
    row = tx.one("get_binding", profile=profile, key=key)
    return None if row is None else int(row[0])


def bind_key(tx: Tx, key: str, session_no: int, *, profile: str, at: datetime) -> None:
    """Make a session the key's current one."""
    tx.run("set_binding", profile=profile, key=key, session_no=session_no, at=to_micros(at))


def page_of_bindings(
    tx: Tx, *, profile: str, after: str, limit: int, without: str | None = None
) -> list[BindingRow]:
    """Return the bindings of a profile by key, perhaps without the keys that begin with `without`."""
    rows = tx.all(
        "list_bindings",
        profile=profile,
        after=after,
        named=without or "",
        beyond="" if without is None else without + BEYOND_KEYS,
        limit=limit,
    )
    return [BindingRow(key, no, from_micros(at)) for key, no, at in rows]


def keys_with_prefix(tx: Tx, beginning: str, *, profile: str) -> list[str]:
    """Return the bound keys that begin so, in order."""
    rows = tx.all(
        "bindings_between", profile=profile, first=beginning, beyond=beginning + BEYOND_KEYS
    )
    return [key for key, _ in rows]


def has_keys_below(tx: Tx, key: str, *, profile: str) -> bool:
    """Return whether a key that continues this one behind a slash is bound."""
    # `0` is the character right after the slash.
    return bool(bindings_between(tx, profile=profile, after=f"{key}/", beyond=f"{key}0", limit=1))


def latest_keys(tx: Tx, beginning: str, *, profile: str, limit: int) -> list[str]:
    """Return the bound keys that begin so, those with the latest activity first."""
    rows = tx.all(
        "latest_bindings",
        profile=profile,
        first=beginning,
        beyond=beginning + BEYOND_KEYS,
        limit=limit,
    )
    return [key for (key,) in rows]


def bindings_between(
    tx: Tx, *, profile: str, after: str, beyond: str, limit: int
) -> list[tuple[str, int]]:
    """Return keys between two, in order, with the numbers of their sessions."""
    rows = tx.all("bindings_from", profile=profile, after=after, beyond=beyond, limit=limit)
    return [(key, no) for key, no in rows]


def open_session_on(tx: Tx, key: str, *, profile: str) -> tuple[int, str] | None:
    """Return number and id of the session that a key is on, while it is open."""
    row = tx.one("open_thread", profile=profile, key=key)
    return None if row is None else (row[0], row[1])


def keys_of_session(tx: Tx, session_no: int) -> list[str]:
    """Return every key that is on a session."""
    return [key for (key,) in tx.all("keys_of_session", session_no=session_no)]


def delete_binding(tx: Tx, key: str, *, profile: str) -> None:
    """Remove a binding; its session stays."""
    tx.run("delete_binding", profile=profile, key=key)


def rename_binding(tx: Tx, old: str, new: str, *, profile: str) -> bool:
    """Give a binding another key; say whether there was one."""
    return bool(tx.run("rename_binding", profile=profile, old=old, new=new))


class NextSession(Struct, frozen=True):
    """What a person wants for the next session of a key: its title, and what they chose for it."""

    title: str | None = None
    chosen: ChoiceChange | None = None


def set_next_session(tx: Tx, key: str, wanted: NextSession, *, profile: str) -> None:
    """Note what a person wants for the key's next session."""
    chosen = None if wanted.chosen is None else codec.encode(change_json(wanted.chosen))
    tx.run("set_next_session", profile=profile, key=key, title=wanted.title, chosen=chosen)


def get_next_session(tx: Tx, key: str, *, profile: str) -> NextSession:
    """Return what is wanted for the key's next session."""
    return _next_session(tx.one("get_next_session", profile=profile, key=key))


def take_next_session(tx: Tx, key: str, *, profile: str) -> NextSession:
    """Remove and return what is wanted for the key's next session."""
    return _next_session(tx.one("take_next_session", profile=profile, key=key))


def _next_session(row: Row | None) -> NextSession:
    if row is None:
        return NextSession()
    title, chosen = row
    return NextSession(title, None if chosen is None else change_from_json(codec.decode(chosen)))
