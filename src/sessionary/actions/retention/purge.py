"""Purge: the only deletion. What other sessions inherit is kept for them."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from sessionary.actions.sessions import edit, log, routing
from sessionary.actions.sessions.log import lock_session
from sessionary.clock import Moment
from sessionary.errors import Damaged, NotFound
from sessionary.model.message import MAX_SEQ
from sessionary.model.session import SessionFolder, SessionHead
from sessionary.store.database import Store, Tx
from sessionary.store.tables import entries, retention, sessions

TRASH_DAYS = 30
PAGE = 200


class PurgeResult(Struct, frozen=True):
    """How many entries a purge deleted, of subagents too, and up to which entry the log was kept for others."""

    session_id: str
    entries: int
    kept_for_others: int


class Prunable(Struct, frozen=True):
    """A session that may be pruned, and what is deleted with it: its subagents, their entries and bytes."""

    session_id: str
    sessions: int
    entries: int
    size: int


def purge(
    tx: Tx, id: str, *, profile: str, moment: Moment, with_subagents: bool = True
) -> PurgeResult:
    """Delete the words of a session and of its subagents for ever. A tombstone of each and its costs stay.

    Of a session in the trash, a subagent that was restored by itself is left alone.
    """
    head = lock_session(tx, id, profile=profile)
    family = [
        each
        for each in (edit.lock_subagents(tx, head) if with_subagents else ())
        if head.trashed_at is None or each.trashed_at is not None
    ]
    for each in (head, *family):
        if each.running:
            raise log.running_error(each.id)
    deleted = sum(_purge_alone(tx, each, moment=moment).entries for each in family)
    purged = _purge_alone(tx, head, moment=moment)
    return replace(purged, entries=purged.entries + deleted)


def _purge_alone(tx: Tx, head: SessionHead, *, moment: Moment) -> PurgeResult:
    needed = _needed_by_children(tx, head.no)
    if needed:
        # A pack may hold words that others need beside words that are deleted.
        retention.unpack(tx, head.no)
    else:
        retention.delete_packs(tx, head.no)
    retention.bury(tx, head, at=moment.now)
    deleted = retention.delete_log(tx, head.no, keep_through=needed, profile=head.profile)
    if needed < head.base_seq:
        _release_ancestors(tx, head.no, needed=needed, profile=head.profile)
    entries.insert_feed(tx, head.no, "gone")
    return PurgeResult(head.id, deleted, needed)


def expired_trash(tx: Tx, *, now: datetime, limit: int = 100) -> list[str]:
    """The ids of sessions that have been in the trash for `TRASH_DAYS`."""
    return retention.expired_trash(tx, before=now - timedelta(days=TRASH_DAYS), limit=limit)


def purge_trash(tx: Tx, id: str, *, moment: Moment) -> bool:
    """Purge a session that has been in the trash long enough; say whether it was purged.

    It may have been restored or purged since it was listed. One that is damaged and needed by
    others is left alone.
    """
    try:
        head = lock_session(tx, id, profile=sessions.profile_of(tx, id) or "")
        expired = moment.now - timedelta(days=TRASH_DAYS)
        if head.trashed_at is None or head.trashed_at >= expired:
            return False
        purge(tx, id, profile=head.profile, moment=moment)
    except (NotFound, Damaged):
        return False
    return True


def find_prunable(
    store: Store,
    *,
    profile: str,
    before: datetime,
    platform: str | None = None,
    with_subagents: bool = True,
) -> Iterator[Prunable]:
    """The sessions that `prune` deletes. A subagent that is deleted with its parent is not named again."""
    after, counted = 0, set[int]()
    while page := store.read(
        _prunable_page, profile=profile, before=before, platform=platform, after=after
    ).result():
        for after, session_id in page:  # the last number is where the next page begins
            if after in counted:
                counted.remove(after)
            elif family := store.read(
                _prunable_family, after, with_subagents=with_subagents
            ).result():
                counted.update(family.subagents)
                yield Prunable(session_id, len(family.subagents) + 1, *family.size)


def prune(
    tx: Tx,
    session_id: str,
    *,
    profile: str,
    before: datetime,
    moment: Moment,
    with_subagents: bool = True,
) -> PurgeResult | None:
    """Purge a session if it ended before a time; None if not: it may have been reopened.

    One whose subagent is pinned or running is left alone.
    """
    try:
        head = lock_session(tx, session_id, profile=profile)
    except NotFound:
        return None
    family = (head, *(edit.lock_subagents(tx, head) if with_subagents else ()))
    if head.ended_at is None or head.ended_at >= before:
        return None
    if _has_to_stay(family):
        return None
    return purge(tx, session_id, profile=profile, moment=moment, with_subagents=with_subagents)


def _prunable_page(
    tx: Tx, *, profile: str, before: datetime, platform: str | None, after: int
) -> list[tuple[int, str]]:
    return retention.prunable(
        tx, profile=profile, before=before, platform=platform, after=after, limit=PAGE
    )


class _Family(Struct, frozen=True):
    subagents: tuple[int, ...]
    size: tuple[int, int]


def _prunable_family(tx: Tx, no: int, *, with_subagents: bool) -> _Family | None:
    """What is deleted with a session; None if it has to stay."""
    below = sessions.subagents_below(tx, no) if with_subagents else []
    heads = sessions.by_numbers(tx, (no, *below))
    family = [each for each in heads.values() if each.folder is not SessionFolder.GONE]
    if not family or _has_to_stay(family):
        return None
    sizes = [retention.log_size(tx, each.no) for each in family]
    return _Family(
        tuple(each.no for each in family if each.no != no),
        (sum(size.entries for size in sizes), sum(size.bytes for size in sizes)),
    )


def _has_to_stay(family: Sequence[SessionHead]) -> bool:
    """Whether a session or one of its subagents is pinned or running."""
    return any(each.pinned or each.running for each in family)


def _needed_by_children(tx: Tx, no: int, known: Mapping[int, int] = MappingProxyType({})) -> int:
    """The last entry of this log that a session which is not purged still reads.

    `known` has the results for purged descendants that were looked at already.
    """
    needed, waiting, seen = 0, [(no, MAX_SEQ)], {no}
    while waiting:
        at, limit = waiting.pop()
        for child in sessions.children(tx, at):
            through = min(limit, child.base_seq)
            if not child.inherits or through <= needed or child.no in seen:
                continue
            if child.folder != SessionFolder.GONE:
                needed = through
            elif child.no in known:
                needed = max(needed, min(through, known[child.no]))
            else:
                seen.add(child.no)
                waiting.append((child.no, through))
    return needed


def _release_ancestors(tx: Tx, no: int, *, needed: int, profile: str) -> None:
    """Delete what purged ancestors had kept only for this session."""
    known = {no: needed}
    for ancestor in sessions.ancestors(tx, no)[1:]:
        # Locked before it is judged: two purges at once would each leave it to the other.
        if routing.lock_and_reload(tx, ancestor.no).folder is not SessionFolder.GONE:
            return  # it reads all that its own ancestors have kept
        known[ancestor.no] = needed = _needed_by_children(tx, ancestor.no, known)
        retention.delete_log(tx, ancestor.no, keep_through=needed, profile=profile)
        if needed >= ancestor.base_seq:
            return  # a session that needs it also reads its ancestors
