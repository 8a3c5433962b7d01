"""Purge: the only deletion. What other sessions continue from is kept for them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType

from sessionary.actions.retention import pack
from sessionary.actions.sessions import log, routing
from sessionary.actions.sessions.log import lock_session
from sessionary.clock import Moment, to_micros
from sessionary.errors import Damaged, NotFound
from sessionary.model.message import MAX_SEQ
from sessionary.model.session import SessionFolder
from sessionary.store.database import Store, Tx
from sessionary.store.tables import entries, sessions

TRASH_DAYS = 30
NO_SOURCE = '{"platform":"purged"}'


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """What a purge took away, and what it had to keep for others."""

    session_id: str
    entries: int
    kept_for_others: int


def purge(tx: Tx, id: str, *, profile: str, moment: Moment) -> PurgeResult:
    """Delete a session's words for ever. A tombstone and the ledger of its cost stay."""
    head = lock_session(tx, id, profile=profile)
    if head.running:
        raise log.running(head.id)
    needed = _needed_by_children(tx, head.no)
    if needed:
        # A pack may hold words that others need beside words that go.
        pack.unpack(tx, head.no)
    else:
        # Not read: what is damaged can be deleted too.
        tx.run("delete_packs", session_no=head.no)
    tx.run("bury_session", no=head.no, at=to_micros(moment.now), source=NO_SOURCE)
    tx.run("delete_bindings", session_no=head.no)
    for forget in ("delete_draft", "delete_holds", "forget_arrivals", "forget_deliveries"):
        tx.run(forget, no=head.no)
    tx.run("forget_requests", id=head.id)
    purged = _delete_unneeded(tx, head.no, head.id, needed=needed, profile=profile)
    if needed < head.base_seq:
        _release_ancestors(tx, head.no, needed=needed, profile=profile)
    tx.run("insert_feed", session_no=head.no, seq=0, what="gone")
    return purged


def prunable(
    tx: Tx,
    *,
    profile: str,
    before: datetime,
    platform: str | None = None,
    limit: int = 500,
    after: int = 0,
) -> list[tuple[int, str]]:
    """Sessions that ended before a time: numbers and ids, a page at a time. Pinned ones stay."""
    rows = tx.all(
        "prunable",
        profile=profile,
        before=to_micros(before),
        platform=sessions.column(platform),
        limit=limit,
        after=after,
    )
    return [(no, id) for no, id in rows]


def size(tx: Tx, no: int) -> tuple[int, int]:
    """How many entries a session has of its own, and how many bytes they take."""
    row = tx.one(
        "session_bytes", first=entries.entry_no(no, 0), last=entries.entry_no(no + 1, 0) - 1
    )
    return (0, 0) if row is None else (row[0], row[1])


def expired_trash(tx: Tx, *, now: datetime, limit: int = 100) -> list[str]:
    """Sessions whose time in the trash is over."""
    rows = tx.all("expired_trash", before=to_micros(now - timedelta(days=TRASH_DAYS)), limit=limit)
    return [id for _, id in rows]


def purge_trash(tx: Tx, id: str, *, moment: Moment) -> bool:
    """Purge a session whose time in the trash is over, if it still is; say whether it was.

    Since someone looked it may have been restored, or purged by another. What is damaged and
    needed by others stays where it is, and in nobody's way.
    """
    row = tx.one("profile_of", id=id)
    try:
        head = lock_session(tx, id, profile="" if row is None else row[0])
        over = moment.now - timedelta(days=TRASH_DAYS)
        if head.trashed_at is None or head.trashed_at >= over:
            return False
        purge(tx, id, profile=head.profile, moment=moment)
    except (NotFound, Damaged):
        return False
    return True


def _delete_unneeded(tx: Tx, no: int, id: str, *, needed: int, profile: str) -> PurgeResult:
    prompt_no = sessions.first_entry_no(no)
    delete_blobs(tx, prompt_no, prompt_no, profile=profile)
    first = entries.entry_no(no, needed + 1) if needed else entries.entry_no(no, 0)
    last = entries.entry_no(no + 1, 0) - 1
    delete_blobs(tx, first, last, profile=profile)
    deleted = tx.run("delete_entries", first=first, last=last)
    tx.run("forget_partials" if needed else "delete_turns", no=no)
    return PurgeResult(id, deleted, needed)


def delete_blobs(
    tx: Tx, first: int, last: int, *, profile: str, but: frozenset[str] = frozenset()
) -> None:
    """Let go of what these entries refer to, but for some; what no other entry needs is deleted."""
    hashes = [row[0] for row in tx.all("blobs_of_entries", first=first, last=last)]
    tx.run("delete_blob_refs", first=first, last=last)
    for name in dict.fromkeys(each for each in hashes if each not in but):
        tx.run("delete_upload", hash=name, profile=profile)
        tx.run("delete_blob_if_unused", hash=name)


def _needed_by_children(tx: Tx, no: int, known: Mapping[int, int] = MappingProxyType({})) -> int:
    """The last entry that a living descendant still reads through this session.

    `known`: the same of purged descendants, where someone has asked already.
    """
    needed, waiting, seen = 0, [(no, MAX_SEQ)], {no}
    while waiting:
        at, limit = waiting.pop()
        for child_no, _, lineage, base_seq, shelf in tx.all("children", no=at):
            through = min(limit, base_seq)
            if lineage not in ("fork", "continuation") or through <= needed or child_no in seen:
                continue
            if shelf != SessionFolder.GONE:
                needed = through
            elif child_no in known:
                needed = max(needed, min(through, known[child_no]))
            else:
                seen.add(child_no)
                waiting.append((child_no, through))
    return needed


def _release_ancestors(tx: Tx, no: int, *, needed: int, profile: str) -> None:
    """Let go of what purged ancestors had kept only for this session."""
    known = {no: needed}
    for own_no, id, base_seq, _ in tx.all("ancestors", no=no)[1:]:
        # Held before it is judged: two purges at once would each leave it to the other.
        if routing.lock_and_reload(tx, own_no).folder is not SessionFolder.GONE:
            return  # it reads all that those before it have kept
        known[own_no] = needed = _needed_by_children(tx, own_no, known)
        _delete_unneeded(tx, own_no, id, needed=needed, profile=profile)
        if needed >= base_seq:
            return  # so does whoever needs it


PAGE = 200


@dataclass(frozen=True, slots=True)
class Prunable:
    """A session that may go, and what it holds of its own."""

    session_id: str
    entries: int
    size: int


def look(
    store: Store, *, profile: str, before: datetime, platform: str | None = None
) -> Iterator[Prunable]:
    """The sessions that ended before a time; open and pinned ones are never among them."""
    after = 0
    while page := store.read(
        _page, profile=profile, before=before, platform=platform, after=after
    ).result():
        for no, found in page:
            after = no
            yield found


def prune_one(
    tx: Tx, session_id: str, *, profile: str, before: datetime, moment: Moment
) -> PurgeResult | None:
    """Purge a session if it is still over since before that time; it may have been reopened."""
    try:
        head = lock_session(tx, session_id, profile=profile)
    except NotFound:
        return None
    if head.ended_at is None or head.ended_at >= before or head.pinned or head.running:
        return None
    return purge(tx, session_id, profile=profile, moment=moment)


def _page(
    tx: Tx, *, profile: str, before: datetime, platform: str | None, after: int
) -> list[tuple[int, Prunable]]:
    rows = prunable(tx, profile=profile, before=before, platform=platform, limit=PAGE, after=after)
    return [(no, Prunable(name, *size(tx, no))) for no, name in rows]
