"""Does the record agree with itself? `verify` says where not; `rebuild` makes the folds again."""

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from sessionary.actions.sessions import log
from sessionary.clock import from_micros, to_micros
from sessionary.errors import Damaged
from sessionary.model.message import MAX_SEQ
from sessionary.model.session import Kind, Segment, SessionFolder, SessionHead, folder_of
from sessionary.model.turn import TurnState
from sessionary.store.database import Store, Tx
from sessionary.store.open import sqlite_path
from sessionary.store.tables import entries, sessions, usage

PAGE = 50


@dataclass(frozen=True, slots=True)
class Broken:
    """One thing that does not hold."""

    invariant: str
    where: str
    what: str


@dataclass(frozen=True, slots=True)
class Checked:
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
    """Make every head again from its log; how many were wrong. Each session is its own transaction."""
    wrong = store.write(_forget_stray_orders).result()
    wrong += store.write(_forget_stray_reservations).result()
    seen = after = 0
    while page := store.read(_page_of_numbers, after).result():
        for no in page:
            wrong += store.write(rebuild_head, no).result()
            seen, after = seen + 1, no
        progress(seen)
    return wrong


def rebuild_head(tx: Tx, no: int) -> bool:
    """Fold one session's log into its head; say whether that changed anything."""
    tx.one("lock_session_no", no=no)
    head = sessions.get_by_no(tx, no)
    is_moved = _rebuild_order(tx, head)
    if head.folder is SessionFolder.GONE:
        return is_moved  # a tombstone has no head to speak of
    found = list(check_session(tx, head))
    if not found or any(each.invariant == "I0 readable" for each in found):
        return is_moved
    _rebuild_end(tx, head)
    _rebuild_shelf(tx, head)
    log.put(tx, no, log.counts(tx, sessions.segments(tx, no)))
    usage.set_total(tx, no, usage.total_of_session(tx, no))
    tx.run("set_running_turn", no=no, turn_id=_running(tx, head))
    return True


def check_database(tx: Tx) -> list[Broken]:
    """What the database itself says about its files, references and indexes."""
    found = [
        Broken("I22 file", "the database", str(row[0]))
        for row in tx.all("check_integrity")
        if row[0] != "ok"
    ]
    found += [
        Broken("I22 references", str(row[0]), f"row {row[1]} refers to nothing")
        for row in tx.all("check_references")
    ]
    found += [
        Broken("I8 one open", str(row[0]), "binding of a purged session")
        for row in tx.all("stray_bindings")
    ]
    found += [
        Broken("I6 order", f"session number {row[0]}", "it has a place in lists, but is not there")
        for row in tx.all("stray_orders")
    ]
    found += [
        Broken("I6 budget", str(row[1]), f"turn {row[0]} reserves from it, but does not run")
        for row in tx.all("stray_reservations")
    ]
    return found


def _check_index(store: Store) -> Iterator[Broken]:
    """Whether the search index is sound and has every message that it has seen."""
    # Loaded here: the words' patterns take longer to make than a store to open.
    index_health = importlib.import_module("sessionary.store.search.health")
    problem = index_health.examine(store, sqlite_path(store.url)).problem
    if problem is not None:
        what = f"damaged ({problem}); make it again with `{index_health.REBUILD}`"
        yield Broken("I7 search", "the search index", what)


def check_session(tx: Tx, head: SessionHead) -> Iterator[Broken]:
    """Compare one session's head with its log, its ledger and its turns."""
    yield from _check_sequence(tx, head)
    yield from _check_shelf(head)
    yield from _check_order(tx, head)
    try:
        yield from _check_counts(tx, head)
    except Damaged as error:
        yield Broken("I0 readable", head.id, str(error))
    yield from _check_usage(tx, head)
    yield from _check_turns(tx, head)
    yield from _check_lineage(tx, head)


def _check_sequence(tx: Tx, head: SessionHead) -> Iterator[Broken]:
    end = _end_of_log(tx, head)
    if end.size != end.last - head.base_seq or end.first != head.base_seq + 1:
        what = f"{end.size} entries from {end.first} to {end.last}"
        yield Broken(
            "I5 sequence", head.id, f"{what}, expected from {head.base_seq + 1} without gaps"
        )
    if end.last != head.last_seq:
        what = f"the head ends at {head.last_seq}, the log at {end.last}"
        yield Broken("I5 sequence", head.id, what)
    # An import knows of activity that left no entry.
    if head.last_active_at < end.active_at or (
        head.last_active_at > end.active_at and head.kind is not Kind.IMPORT
    ):
        what = f"the head was last active at {head.last_active_at}, the log at {end.active_at}"
        yield Broken("I6 activity", head.id, what)


def _check_shelf(head: SessionHead) -> Iterator[Broken]:
    expected = _shelf(head)
    if head.folder is not expected:
        yield Broken("I6 shelf", head.id, f"the head stands in {head.folder}, not in {expected}")


def _check_order(tx: Tx, head: SessionHead) -> Iterator[Broken]:
    if tx.one("out_of_order", no=head.no) is not None:
        what = "lists by creation, name or cost show it in a wrong place, or not at all"
        yield Broken("I6 order", head.id, what)


def _check_counts(tx: Tx, head: SessionHead) -> Iterator[Broken]:
    made = log.counts(tx, _segments_there(tx, head))
    said = log.LogCounts(
        head.message_count,
        head.tool_call_count,
        head.last_reply_seq,
        head.preview,
        sessions.details(tx, head.no).compacted_seq,
    )
    for name in log.LogCounts.__dataclass_fields__:
        if getattr(made, name) != getattr(said, name):
            what = f"{name} says {getattr(said, name)!r}, the log {getattr(made, name)!r}"
            yield Broken("I6 counters", head.id, what)


def _check_usage(tx: Tx, head: SessionHead) -> Iterator[Broken]:
    total = usage.total_of_session(tx, head.no)
    if total != head.usage:
        yield Broken(
            "I6 usage", head.id, f"the head's sums {head.usage} are not the ledger's {total}"
        )


def _check_turns(tx: Tx, head: SessionHead) -> Iterator[Broken]:
    running = [
        row[0] for row in tx.all("turns_of_session", no=head.no) if row[2] == TurnState.RUNNING
    ]
    if running != ([] if head.running_turn is None else [head.running_turn]):
        yield Broken(
            "I11 one turn", head.id, f"the head runs {head.running_turn}, the turns say {running}"
        )


def _check_lineage(tx: Tx, head: SessionHead) -> Iterator[Broken]:
    line = tx.all("ancestors", no=head.no)
    if len({row[0] for row in line}) != len(line):
        yield Broken("I14 lineage", head.id, "the session is its own ancestor")
    if head.ended_at is not None and head.ended_at < head.began_at:
        yield Broken("I17 times", head.id, "the session ended before it began")


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
    return [row[0] for row in tx.all("page_of_all_sessions", after=after, limit=PAGE)]


def _segments_there(tx: Tx, head: SessionHead) -> list[Segment]:
    """The session's stretches of log, its own only as far as it is there: the head may claim more."""
    last = _end_of_log(tx, head).last
    found = [
        replace(each, last=min(each.last, last)) if each.no == head.no else each
        for each in sessions.segments(tx, head.no)
    ]
    return [each for each in found if each.first <= each.last]


class _End(NamedTuple):
    """What a session's own log says about its extent."""

    size: int
    first: int
    last: int
    active_at: datetime


def _end_of_log(tx: Tx, head: SessionHead) -> _End:
    lowest, highest = entries.entry_no(head.no, 0), entries.entry_no(head.no, MAX_SEQ)
    row = tx.one("count_entries", first=lowest, last=highest)
    size, first, last, active = row if row is not None else (0, 0, 0, None)
    began = to_micros(head.began_at)
    active_at = from_micros(began if active is None else max(began, active))
    if size == 0:
        return _End(0, head.base_seq + 1, head.base_seq, active_at)
    return _End(size, first & MAX_SEQ, last & MAX_SEQ, active_at)


def _shelf(head: SessionHead) -> SessionFolder:
    is_trashed = head.trashed_at is not None
    return folder_of(kind=head.kind, archived=head.archived, trashed=is_trashed, purged=False)


def _running(tx: Tx, head: SessionHead) -> str | None:
    rows = tx.all("turns_of_session", no=head.no)
    return next((row[0] for row in rows if row[2] == TurnState.RUNNING), None)


def _rebuild_order(tx: Tx, head: SessionHead) -> bool:
    """Put a session where lists look for it; say whether it stood elsewhere."""
    is_wrong = tx.one("out_of_order", no=head.no) is not None
    if is_wrong:
        tx.run("put_in_order", no=head.no)
    return is_wrong


def _forget_stray_orders(tx: Tx) -> int:
    return tx.run("delete_stray_orders")


def _forget_stray_reservations(tx: Tx) -> int:
    return tx.run("delete_stray_reservations")


def _rebuild_end(tx: Tx, head: SessionHead) -> None:
    end = _end_of_log(tx, head)
    active_at = end.active_at
    if head.kind is Kind.IMPORT:
        active_at = max(active_at, head.last_active_at)
    at = to_micros(active_at)
    tx.run("set_end_of_log", no=head.no, last_seq=end.last, last_active_at=at)


def _rebuild_shelf(tx: Tx, head: SessionHead) -> None:
    at = None if head.trashed_at is None else to_micros(head.trashed_at)
    tx.run("set_shelf", no=head.no, shelf=_shelf(head), archived=int(head.archived), trashed_at=at)
