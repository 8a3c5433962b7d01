"""Checkpoints of LangGraph: threads that go on until their session is over, and what is kept of each.

Bodies are opaque to the tables; where a rule depends on what is in one, its owner's `loads` reads it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from sessionary.errors import Conflict
from sessionary.store.database import Tx
from sessionary.store.tables import checkpoints
from sessionary.store.tables.checkpoints import CheckpointPlace, CheckpointRow, Serialized, WriteRow

Loads = Callable[[Serialized], Any]
# How many checkpoints are read at once.
PAGE = 32
_CHAIN_PAGE = 200
_THREADS_PAGE = 100


class ThreadNamespace(Struct, frozen=True):
    """A thread by its name, and one of its namespaces: the graph itself has the empty one."""

    profile: str
    thread: str
    namespace: str = ""


class NewCheckpoint(Struct, frozen=True):
    """A checkpoint to be written, and the values that its channels have got with it.

    `inherited` returns those that it has from its parent.
    """

    id: str
    parent_id: str | None
    run_id: str | None
    body: Serialized
    metadata: Serialized
    values: tuple[tuple[str, Serialized], ...]
    inherited: Callable[[], list[tuple[str, Serialized]]]


class StoredCheckpoint(NamedTuple):
    """A checkpoint as it was read: its body without values, the values by channel, and the writes that follow it."""

    where: ThreadNamespace
    row: CheckpointRow
    body: dict[str, Any]
    values: dict[str, Serialized]
    writes: list[WriteRow]


class DeltaHistory(NamedTuple):
    """The writes that a channel is rebuilt from, the oldest first, and the value that they begin with."""

    writes: list[WriteRow]
    seed: Serialized | None


def find_place(tx: Tx, where: ThreadNamespace) -> CheckpointPlace | None:
    """Return the thread of a name while it goes on; None if there is none, or if its session is over."""
    place = checkpoints.find_place(tx, where.thread, where.namespace, profile=where.profile)
    return None if place is None or place.is_over else place


def open_namespace(
    tx: Tx,
    where: ThreadNamespace,
    *,
    session_no: int | None = None,
    known: CheckpointPlace | None = None,
) -> tuple[int, int]:
    """Return the numbers of a thread and a namespace, and begin them if necessary; link the thread to its session.

    `known` is what `find_place` has returned in this transaction.
    """
    place = known or find_place(tx, where)
    if place is None:
        checkpoints.lock_thread_name(tx, where.thread, profile=where.profile)
        place = find_place(tx, where)
    if place is None:
        thread_no = checkpoints.insert_thread(tx, where.thread, session_no, profile=where.profile)
        return thread_no, checkpoints.insert_namespace(tx, thread_no, where.namespace)
    if session_no is not None and session_no != place.session_no:
        checkpoints.link_session(tx, place.thread_no, session_no)
    if place.namespace_no is not None:
        return place.thread_no, place.namespace_no
    return place.thread_no, checkpoints.insert_namespace(tx, place.thread_no, where.namespace)


def put(
    tx: Tx,
    where: ThreadNamespace,
    new: NewCheckpoint,
    *,
    session_no: int | None = None,
    known: CheckpointPlace | None = None,
) -> None:
    """Write a checkpoint and its new values."""
    thread_no, namespace_no = open_namespace(tx, where, session_no=session_no, known=known)
    row = CheckpointRow(namespace_no, new.id, new.parent_id, *new.body, *new.metadata)
    if not checkpoints.put(tx, row, thread_no=thread_no, run_id=new.run_id, values=new.values):
        # The parent was deleted while the graph ran, and the values that only it had were deleted with it.
        checkpoints.put_values(tx, namespace_no, new.inherited())


def put_writes(tx: Tx, where: ThreadNamespace, writes: Sequence[WriteRow]) -> None:
    """Write what a task has written; the same again changes nothing."""
    _, namespace_no = open_namespace(tx, where)
    checkpoints.put_writes(tx, namespace_no, writes)


def get(tx: Tx, where: ThreadNamespace, id: str | None, *, loads: Loads) -> StoredCheckpoint | None:
    """Return a checkpoint, the newest one without an id."""
    place = find_place(tx, where)
    if place is None or place.namespace_no is None:
        return None
    no = place.namespace_no
    row = checkpoints.newest(tx, no) if id is None else checkpoints.get(tx, no, id)
    if row is None:
        return None
    [stored] = _with_contents(tx, [(where, row)], loads)
    return stored


def list_page(
    tx: Tx,
    where: ThreadNamespace,
    *,
    after: CheckpointRow | None,
    before: str | None,
    limit: int,
    all_namespaces: bool,
    matches: Callable[[CheckpointRow], bool],
    loads: Loads,
) -> tuple[list[StoredCheckpoint], CheckpointRow | None]:
    """Return those of the next checkpoints that match, the newest first, and where the page after them begins.

    `after` is where this page begins, `before` the id that all of them come before.
    """
    place = find_place(tx, where)
    if place is None or (place.namespace_no is None and not all_namespaces):
        return [], None
    if all_namespaces:
        names = {each.no: each.name for each in checkpoints.namespaces(tx, place.thread_no)}
        bounds = {"before": after.id, "before_no": after.namespace_no} if after else {}
        if after is None and before is not None:
            bounds = {"before": before, "before_no": -1}
        rows = checkpoints.page_of_thread(tx, place.thread_no, limit=limit, **bounds)  # type: ignore[arg-type]
    else:
        assert place.namespace_no is not None
        names = {place.namespace_no: where.namespace}
        first = after.id if after else (before or checkpoints.LAST_ID)
        rows = checkpoints.page(tx, place.namespace_no, before=first, limit=limit)
    placed = [
        (ThreadNamespace(where.profile, where.thread, names[row.namespace_no]), row)
        for row in rows
        if matches(row)
    ]
    return _with_contents(tx, placed, loads), rows[-1] if len(rows) == limit else None


def thread_names(tx: Tx, *, profile: str, after: int) -> list[tuple[int, str]]:
    """Numbers and names of the next threads that go on."""
    return checkpoints.page_of_threads(tx, profile=profile, after=after, limit=_THREADS_PAGE)


def _with_contents(
    tx: Tx, placed: Sequence[tuple[ThreadNamespace, CheckpointRow]], loads: Loads
) -> list[StoredCheckpoint]:
    bodies = [loads((row.form, row.body)) for _, row in placed]
    names = [_value_names(body) for body in bodies]
    wanted: dict[int, tuple[set[str], list[str]]] = {}
    for (_, row), by_channel in zip(placed, names, strict=True):
        value_names, ids = wanted.setdefault(row.namespace_no, (set(), []))
        value_names.update(by_channel.values())
        ids.append(row.id)
    found = {
        no: checkpoints.contents(tx, no, sorted(value_names), ids)
        for no, (value_names, ids) in wanted.items()
    }
    stored = []
    for (where, row), body, by_channel in zip(placed, bodies, names, strict=True):
        values_of, writes = found[row.namespace_no]
        values = {
            channel: value
            for channel, name in by_channel.items()
            if (value := values_of.get(name, checkpoints.EMPTY)) != checkpoints.EMPTY
        }
        own = [write for write in writes if write.checkpoint_id == row.id]
        stored.append(StoredCheckpoint(where, row, body, values, sorted(own, key=_order)))
    return stored


def _order(write: WriteRow) -> tuple[str, str, int]:
    return write.task_path, write.task_id, write.idx


def _value_names(body: Mapping[str, Any]) -> dict[str, str]:
    """What the values of a checkpoint are called, by their channels."""
    versions = body.get("channel_versions") or {}
    return {
        channel: checkpoints.value_name(channel, version) for channel, version in versions.items()
    }


def delete_thread(tx: Tx, thread: str, *, profile: str) -> None:
    """Delete the checkpoints that were ever kept under a name."""
    for thread_no in checkpoints.threads_of_name(tx, thread, profile=profile):
        checkpoints.delete_thread(tx, thread_no)


def delete_of_runs(tx: Tx, run_ids: Iterable[str], *, profile: str, loads: Loads) -> None:
    """Delete the checkpoints that runs have made.

    Raise `Conflict` if a later checkpoint has a channel that is rebuilt from what they have written.
    """
    for namespace_no, ids in checkpoints.of_runs(tx, run_ids, profile=profile).items():
        checkpoints.lock_namespace(tx, namespace_no)
        gone = frozenset(ids)
        left = _Chains(tx, namespace_no, loads)
        if left.need(gone):
            raise Conflict(
                "Later checkpoints are rebuilt from what these runs have written (a DeltaChannel); nothing was "
                "deleted. Delete or prune the thread instead."
            )
        checkpoints.delete(tx, namespace_no, ids)
        checkpoints.keep_only_values(tx, namespace_no, left.names(but=gone))


def prune(tx: Tx, thread: str, *, profile: str, keep_latest: bool, loads: Loads) -> None:
    """Delete a thread's checkpoints, but for the newest of each namespace and what that is rebuilt from."""
    place = find_place(tx, ThreadNamespace(profile, thread))
    if place is None:
        return
    if not keep_latest:
        checkpoints.delete_checkpoints_of_thread(tx, place.thread_no)
        return
    for namespace in checkpoints.namespaces(tx, place.thread_no):
        checkpoints.lock_namespace(tx, namespace.no)
        row = checkpoints.newest(tx, namespace.no)
        if row is None:
            continue
        kept = {row.id: row}
        body = loads((row.form, row.body))
        names = _value_names(body)
        deltas = _delta_channels(row, loads)
        there = checkpoints.values_there(tx, namespace.no, [names[c] for c in deltas if c in names])
        missing = {c for c in deltas if names.get(c) not in there}
        values = set(names.values())
        for ancestor, _, ancestor_names in _ancestors_until(
            tx, namespace.no, row.id, missing, loads
        ):
            kept[ancestor.id] = ancestor
            values.update(ancestor_names.values())
        checkpoints.keep_only(tx, namespace.no, list(kept))
        checkpoints.keep_only_values(tx, namespace.no, values)


def copy_thread(tx: Tx, source: str, target: str, *, profile: str, session_no: int | None) -> None:
    """Copy all checkpoints of a thread to another name; raise `Conflict` if that has some.

    `session_no` is the session with the messages of the new thread.
    """
    found = find_place(tx, ThreadNamespace(profile, source))
    spaces = [] if found is None else checkpoints.namespaces(tx, found.thread_no)
    if not spaces:
        return
    checkpoints.lock_thread_name(tx, target, profile=profile)
    there = find_place(tx, ThreadNamespace(profile, target))
    if there is not None and checkpoints.page_of_thread(tx, there.thread_no, limit=1):
        raise Conflict(
            f"The thread {target!r:.80} has checkpoints already; nothing was copied. Delete it first, or choose "
            "another name."
        )
    if there is not None:
        checkpoints.delete_thread(tx, there.thread_no)
    thread_no = checkpoints.insert_thread(tx, target, session_no, profile=profile)
    for space in spaces:
        checkpoints.lock_namespace(tx, space.no)
        checkpoints.copy_namespace(tx, space, thread_no)


# Channels that are rebuilt from what was written since their last snapshot.


def delta_history(
    tx: Tx, where: ThreadNamespace, id: str | None, channels: Sequence[str], *, loads: Loads
) -> dict[str, DeltaHistory]:
    """Return what each channel has to be rebuilt from, for the checkpoint with this id or the newest one."""
    place = find_place(tx, where)
    no = None if place is None else place.namespace_no
    if no is None:
        return {channel: DeltaHistory([], None) for channel in channels}
    if id is None:
        newest = checkpoints.newest(tx, no)
        id = "" if newest is None else newest.id
    chains: dict[str, list[str]] = {channel: [] for channel in channels}
    seeds: dict[str, str] = {}
    for row, seeded, names in _ancestors_until(tx, no, id, set(channels), loads):
        for channel in channels:
            if channel not in seeds:
                chains[channel].append(row.id)
        seeds.update({channel: names[channel] for channel in seeded})
    ids = sorted({each for chain in chains.values() for each in chain})
    values, writes = checkpoints.contents(tx, no, sorted(set(seeds.values())), ids)
    by_place: dict[tuple[str, str], list[WriteRow]] = {}
    for write in sorted(writes, key=_order):
        by_place.setdefault((write.checkpoint_id, write.channel), []).append(write)
    return {
        channel: DeltaHistory(
            [w for each in reversed(chains[channel]) for w in by_place.get((each, channel), ())],
            values[seeds[channel]] if channel in seeds else None,
        )
        for channel in channels
    }


def _ancestors_until(
    tx: Tx, namespace_no: int, id: str, channels: set[str], loads: Loads
) -> Iterator[tuple[CheckpointRow, set[str], dict[str, str]]]:
    """Yield the ancestors of a checkpoint until all channels have had a value, the nearest first.

    With each come the channels that have their first value there, and the names of its values.
    """
    missing, seen = set(channels), {id}
    while missing:
        page = checkpoints.ancestors(tx, namespace_no, id, limit=_CHAIN_PAGE + 1)[1:]
        names = [_value_names(loads((row.form, row.body))) for row in page]
        asked = {each[c] for each in names for c in missing if c in each}
        there = checkpoints.values_there(tx, namespace_no, asked)
        for row, each in zip(page, names, strict=True):
            if row.id in seen:
                return
            seen.add(row.id)
            found = {c for c in missing if each.get(c) in there}
            yield row, found, each
            missing -= found
            if not missing:
                return
        if len(page) < _CHAIN_PAGE:
            return
        id = page[-1].id


def _delta_channels(row: CheckpointRow, loads: Loads) -> set[str]:
    """The channels of a checkpoint that may have no value of their own in it."""
    metadata = loads((row.metadata_form, row.metadata))
    return set(metadata.get("counters_since_delta_snapshot") or ())


class _Chains:
    """All checkpoints of a namespace, and which of them others are rebuilt from."""

    def __init__(self, tx: Tx, namespace_no: int, loads: Loads) -> None:
        self._parents: dict[str, str | None] = {}
        self._names: dict[str, dict[str, str]] = {}
        self._deltas: dict[str, set[str]] = {}
        before = checkpoints.LAST_ID
        while page := checkpoints.page(tx, namespace_no, before=before, limit=_CHAIN_PAGE):
            for row in page:
                self._parents[row.id] = row.parent_id
                self._names[row.id] = _value_names(loads((row.form, row.body)))
                if deltas := _delta_channels(row, loads):
                    self._deltas[row.id] = deltas
            before = page[-1].id
        channels = {channel for deltas in self._deltas.values() for channel in deltas}
        asked = [each[c] for each in self._names.values() for c in channels if c in each]
        self._there = checkpoints.values_there(tx, namespace_no, asked)

    def need(self, gone: frozenset[str]) -> bool:
        """Whether a checkpoint that stays is rebuilt from one of these."""
        known: set[tuple[str, str]] = set()
        return any(
            self._reaches(id, channel, gone, known)
            for id, deltas in self._deltas.items()
            if id not in gone
            for channel in deltas
        )

    def names(self, *, but: frozenset[str]) -> set[str]:
        """The names of the values of all checkpoints but these."""
        return {
            name
            for id, by_channel in self._names.items()
            if id not in but
            for name in by_channel.values()
        }

    def _reaches(
        self, id: str, channel: str, gone: frozenset[str], known: set[tuple[str, str]]
    ) -> bool:
        at: str | None = id
        while at is not None and at in self._names and (at, channel) not in known:
            known.add((at, channel))
            if at in gone:
                return True
            if self._names[at].get(channel) in self._there:
                return False
            at = self._parents[at]
        return False
