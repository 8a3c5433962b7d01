"""Check that the store agrees with itself; `rebuild` derives heads from their logs again."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from sessionary.actions.sessions import log
from sessionary.errors import Damaged
from sessionary.model.session import Kind, Segment, SessionFolder, SessionHead, folder_of
from sessionary.store.database import Store, Tx
from sessionary.store.open import sqlite_path
from sessionary.store.tables import entries, sessions, turns, upkeep, usage

PAGE = 50


class Broken(Struct, frozen=True):
    """One thing that does not hold."""

    invariant: str
    where: str
    what: str


class Checked(Struct, frozen=True):
    """How much was looked at, and what is broken."""

    sessions: int
    entries: int
    broken: tuple[Broken, ...]


def verify(store: Store, *, progress: Callable[[int], None] = lambda _: None) -> Checked:
    """Check every session of every profile, a page at a time; writers are not disturbed."""
    broken = [*store.read(check_database).result(), *_check_index(store)]
    seen = counted = 0
    after = 0
    while page := store.read(_check_page, after).result():
        for no, found, size in page:
            broken.extend(found)
            seen, counted, after = seen + 1, counted + size, no
        progress(seen)
    return Checked(seen, counted, tuple(broken))


def rebuild(store: Store, *, progress: Callable[[int], None] = lambda _: None) -> int:
    """Derive every head from its log again, one transaction each; return how many were wrong."""
    wrong = store.write(upkeep.delete_strays).result()
    seen = after = 0
    while page := store.read(_page_of_numbers, after).result():
        for no in page:
            wrong += store.write(rebuild_head, no).result()
            seen, after = seen + 1, no
        progress(seen)
    return wrong


def rebuild_head(tx: Tx, no: int) -> bool:
    """Derive one head from its session's log; say whether that changed anything."""
    sessions.lock_session_no(tx, no)
    head = sessions.get_by_no(tx, no)
    is_moved = upkeep.is_out_of_order(tx, no)
    if is_moved:
        upkeep.put_in_order(tx, no)
    if head.folder is SessionFolder.GONE:
        return is_moved  # a tombstone has no log to derive anything from
    found = list(check_session(tx, head))
    if not found or any(each.invariant == "readable" for each in found):
        return is_moved
    end = _end_of_log(tx, head)
    active_at = end.active_at
    if head.kind is Kind.IMPORT:
        active_at = max(active_at, head.last_active_at)
    upkeep.set_end_of_log(tx, no, last_seq=end.last, active_at=active_at)
    sessions.set_folder(tx, no, _folder(head), archived=head.archived, trashed_at=head.trashed_at)
    sessions.set_counts(tx, no, log.count_log(tx, sessions.segments(tx, no)))
    usage.set_total(tx, no, usage.total_of_session(tx, no))
    upkeep.set_running_turn(tx, no, next(iter(turns.running_ids(tx, no)), None))
    return True


def check_database(tx: Tx) -> list[Broken]:
    """What the database itself says about its files, references and indexes."""
    found = [Broken("file", "the database", what) for what in upkeep.check_integrity(tx)]
    found += [
        Broken("references", table, f"row {row} refers to nothing")
        for table, row in upkeep.check_references(tx)
    ]
    found += [
        Broken("one open", key, "binding of a purged session") for key in upkeep.stray_bindings(tx)
    ]
    found += [
        Broken("order", f"session number {no}", "it has a place in lists, but is not there")
        for no in upkeep.stray_orders(tx)
    ]
    found += [
        Broken("budget", budget, f"turn {turn} reserves from it, but does not run")
        for turn, budget in upkeep.stray_reservations(tx)
    ]
    return found


def _check_index(store: Store) -> Iterator[Broken]:
    """Whether the search index is sound and has every message that it has seen."""
    # Saves the tokenizer's patterns, which take longer to compile than a store to open.
    from sessionary.store.search import health as index_health

    problem = index_health.examine(store, sqlite_path(store.url)).problem
    if problem is not None:
        what = f"damaged ({problem}); make it again with `{index_health.REBUILD}`"
        yield Broken("search", "the search index", what)


def check_session(tx: Tx, head: SessionHead) -> Iterator[Broken]:
    """Compare one session's head with its log, its ledger and its turns."""
    yield from _check_sequence(tx, head)
    if head.folder is not _folder(head):
        what = f"the head stands in {head.folder}, not in {_folder(head)}"
        yield Broken("folder", head.id, what)
    yield from _check_order(tx, head)
    try:
        yield from _check_counts(tx, head)
    except Damaged as error:
        yield Broken("readable", head.id, str(error))
    yield from _check_usage(tx, head)
    yield from _check_turns(tx, head)
    yield from _check_lineage(tx, head)


def _check_sequence(tx: Tx, head: SessionHead) -> Iterator[Broken]:
    end = _end_of_log(tx, head)
    if end.size != end.last - head.base_seq or end.first != head.base_seq + 1:
        what = f"{end.size} entries from {end.first} to {end.last}"
        yield Broken("sequence", head.id, f"{what}, expected from {head.base_seq + 1} without gaps")
    if end.last != head.last_seq:
        what = f"the head ends at {head.last_seq}, the log at {end.last}"
        yield Broken("sequence", head.id, what)
    # An import knows of activity that left no entry.
    if head.last_active_at < end.active_at or (
        head.last_active_at > end.active_at and head.kind is not Kind.IMPORT
    ):
        what = f"the head was last active at {head.last_active_at}, the log at {end.active_at}"
        yield Broken("activity", head.id, what)


def _check_order(tx: Tx, head: SessionHead) -> Iterator[Broken]:
    if upkeep.is_out_of_order(tx, head.no):
        what = "lists by creation, name or cost show it in a wrong place, or not at all"
        yield Broken("order", head.id, what)


def _check_counts(tx: Tx, head: SessionHead) -> Iterator[Broken]:
    counted = log.count_log(tx, _segments_there(tx, head))
    stored = sessions.LogCounts(
        head.message_count,
        head.tool_call_count,
        head.last_reply_seq,
        head.preview,
        sessions.details(tx, head.no).compacted_seq,
    )
    for name in sessions.LogCounts.__struct_fields__:
        if getattr(counted, name) != getattr(stored, name):
            what = f"{name} says {getattr(stored, name)!r}, the log {getattr(counted, name)!r}"
            yield Broken("counters", head.id, what)


def _check_usage(tx: Tx, head: SessionHead) -> Iterator[Broken]:
    total = usage.total_of_session(tx, head.no)
    if total != head.usage:
        yield Broken("usage", head.id, f"the head's sums {head.usage} are not the ledger's {total}")


def _check_turns(tx: Tx, head: SessionHead) -> Iterator[Broken]:
    running = turns.running_ids(tx, head.no)
    if running != ([] if head.running_turn is None else [head.running_turn]):
        yield Broken(
            "one turn", head.id, f"the head runs {head.running_turn}, the turns say {running}"
        )


def _check_lineage(tx: Tx, head: SessionHead) -> Iterator[Broken]:
    line = sessions.ancestors(tx, head.no)
    if len({ancestor.no for ancestor in line}) != len(line):
        yield Broken("lineage", head.id, "the session is its own ancestor")
    if head.ended_at is not None and head.ended_at < head.began_at:
        yield Broken("times", head.id, "the session ended before it began")


def _check_page(tx: Tx, after: int) -> list[tuple[int, list[Broken], int]]:
    page: list[tuple[int, list[Broken], int]] = []
    for no in _page_of_numbers(tx, after):
        head = sessions.get_by_no(tx, no)
        if head.folder is SessionFolder.GONE:
            page.append((no, list(_check_order(tx, head)), 0))
        else:
            page.append((no, list(check_session(tx, head)), head.last_seq - head.base_seq))
    return page


def _page_of_numbers(tx: Tx, after: int) -> list[int]:
    return [each.no for each in sessions.page(tx, profile=None, after=after, limit=PAGE)]


def _segments_there(tx: Tx, head: SessionHead) -> list[Segment]:
    """The session's stretches of log, its own only as far as it is there: the head may claim more."""
    last = _end_of_log(tx, head).last
    found = [
        replace(each, last=min(each.last, last)) if each.no == head.no else each
        for each in sessions.segments(tx, head.no)
    ]
    return [each for each in found if each.first <= each.last]


class _LogEnd(NamedTuple):
    size: int
    first: int
    last: int
    active_at: datetime


def _end_of_log(tx: Tx, head: SessionHead) -> _LogEnd:
    """What a session's own log says about its extent; of an empty one, where it would begin."""
    found = entries.extent(tx, head.no)
    active_at = max(head.began_at, found.active_at or head.began_at)
    if found.size == 0:
        return _LogEnd(0, head.base_seq + 1, head.base_seq, active_at)
    return _LogEnd(found.size, found.first, found.last, active_at)


def _folder(head: SessionHead) -> SessionFolder:
    is_trashed = head.trashed_at is not None
    return folder_of(kind=head.kind, archived=head.archived, trashed=is_trashed, purged=False)
