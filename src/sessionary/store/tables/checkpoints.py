"""The tables of LangGraph's checkpoints: threads, their namespaces, checkpoints, channel values and writes.

Bodies are opaque here: a form says how their owner has serialized them.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple

from sessionary.errors import BadInput
from sessionary.model import codec
from sessionary.store.database import Statement, Tx

Serialized = tuple[str, bytes]
EMPTY: Serialized = ("empty", b"")
# Sorts after every id.
LAST_ID = "\U0010ffff"
LAST_NO = 2**62
MAX_ID_BYTES = 500
_MAX_NAME = 400


class CheckpointPlace(NamedTuple):
    """A thread, and one of its namespaces if that exists; the thread is over when its session is."""

    thread_no: int
    namespace_no: int | None
    session_no: int | None
    is_over: int


class CheckpointRow(NamedTuple):
    """A checkpoint without the values of its channels."""

    namespace_no: int
    id: str
    parent_id: str | None
    form: str
    body: bytes
    metadata_form: str
    metadata: bytes


class WriteRow(NamedTuple):
    """What a task has written to a channel."""

    checkpoint_id: str
    task_id: str
    idx: int
    task_path: str
    channel: str
    value: Serialized


class Namespace(NamedTuple):
    """A namespace of a thread."""

    no: int
    digest: str
    name: str


def digest_of(text: str) -> str:
    """A hash of a text that may have any length and any characters."""
    return sha256(codec.encode(text).encode()).hexdigest()


def value_name(channel: str, version: str | float) -> str:
    """What the value that a channel has in this version is called."""
    name = codec.encode([channel, version])
    return name if len(name) <= _MAX_NAME else digest_of(name)


def check_id(id: str, what: str) -> str:
    """Return an id that an index can hold; `BadInput` if it is none."""
    if not id or codec.storable_text(id) != id or len(id.encode()) > MAX_ID_BYTES:
        raise BadInput(
            f"The {what} has to be 1 to {MAX_ID_BYTES} bytes of plain text, not {id!r:.80}; nothing was written."
        )
    return id


def find_place(tx: Tx, thread: str, namespace: str, *, profile: str) -> CheckpointPlace | None:
    """The newest thread of a name, and its namespace if it has one like that."""
    row = tx.one(
        "find_checkpoint_thread",
        profile=profile,
        digest=digest_of(thread),
        namespace=digest_of(namespace),
    )
    return None if row is None else CheckpointPlace(*row)


def insert_thread(tx: Tx, thread: str, session_no: int | None, *, profile: str) -> int:
    """Begin a thread; return its number."""
    row = tx.one(
        "insert_checkpoint_thread",
        profile=profile,
        digest=digest_of(thread),
        name=codec.encode(thread),
        session_no=session_no,
    )
    assert row is not None
    number: int = row[0]
    return number


def insert_namespace(tx: Tx, thread_no: int, namespace: str) -> int:
    """Add a namespace to a thread, unless it has it; return its number."""
    row = tx.one(
        "insert_checkpoint_namespace",
        thread_no=thread_no,
        digest=digest_of(namespace),
        name=codec.encode(namespace),
    )
    assert row is not None
    number: int = row[0]
    return number


def lock_thread_name(tx: Tx, thread: str, *, profile: str) -> None:
    """Let nobody else begin a thread of this name until the transaction ends."""
    tx.one("lock_key", profile=profile, key=f"checkpoints/{digest_of(thread)}")


def link_session(tx: Tx, thread_no: int, session_no: int) -> None:
    """Note that a thread's messages are in this session."""
    tx.run("link_checkpoint_thread", no=thread_no, session_no=session_no)


def threads_of_name(tx: Tx, thread: str, *, profile: str) -> list[int]:
    """The numbers of all threads that have had a name."""
    return [no for (no,) in tx.all("threads_of_name", profile=profile, digest=digest_of(thread))]


def page_of_threads(tx: Tx, *, profile: str, after: int, limit: int) -> list[tuple[int, str]]:
    """Numbers and names of the threads that go on, in the order in which they began."""
    rows = tx.all("page_of_checkpoint_threads", profile=profile, after=after, limit=limit)
    return [(no, codec.decode(name)) for no, name in rows]


def namespaces(tx: Tx, thread_no: int) -> list[Namespace]:
    """The namespaces of a thread, in the order in which they began."""
    rows = tx.all("namespaces_of_thread", thread_no=thread_no)
    return [Namespace(no, digest, codec.decode(name)) for no, digest, name in rows]


def lock_namespace(tx: Tx, namespace_no: int) -> None:
    """Let nobody else write into a namespace until the transaction ends."""
    tx.one("lock_checkpoint_namespace", no=namespace_no)


def newest(tx: Tx, namespace_no: int) -> CheckpointRow | None:
    """The newest checkpoint of a namespace."""
    row = tx.one("newest_checkpoint", namespace_no=namespace_no)
    return None if row is None else CheckpointRow(*row)


def get(tx: Tx, namespace_no: int, id: str) -> CheckpointRow | None:
    """A checkpoint by its id."""
    row = tx.one("get_checkpoint", namespace_no=namespace_no, id=codec.storable_text(id))
    return None if row is None else CheckpointRow(*row)


def page(tx: Tx, namespace_no: int, *, before: str = LAST_ID, limit: int) -> list[CheckpointRow]:
    """The checkpoints of a namespace before an id, the newest first."""
    rows = tx.all(
        "page_of_checkpoints",
        namespace_no=namespace_no,
        before=codec.storable_text(before),
        limit=limit,
    )
    return [CheckpointRow(*row) for row in rows]


def page_of_thread(
    tx: Tx, thread_no: int, *, before: str = LAST_ID, before_no: int = LAST_NO, limit: int
) -> list[CheckpointRow]:
    """The checkpoints of all namespaces of a thread before an id, the newest first."""
    rows = tx.all(
        "page_of_thread",
        thread_no=thread_no,
        before=codec.storable_text(before),
        before_no=before_no,
        limit=limit,
    )
    return [CheckpointRow(*row) for row in rows]


def ancestors(tx: Tx, namespace_no: int, id: str, *, limit: int) -> list[CheckpointRow]:
    """A checkpoint and those that it comes from, the nearest first."""
    ids = [
        each
        for (each,) in tx.all(
            "checkpoint_ancestors",
            namespace_no=namespace_no,
            id=codec.storable_text(id),
            limit=limit,
        )
    ]
    rows = tx.all("checkpoints_among", namespace_no=namespace_no, names=codec.encode(ids))
    found = {row.id: row for row in (CheckpointRow(*each) for each in rows)}
    return [found[each] for each in ids]


def contents(
    tx: Tx, namespace_no: int, value_names: Sequence[str], ids: Sequence[str]
) -> tuple[dict[str, Serialized], list[WriteRow]]:
    """The values with these names, and the writes that follow these checkpoints."""
    values, writes = tx.batch(
        (
            (
                "checkpoint_values_among",
                {"namespace_no": namespace_no, "names": codec.encode(value_names)},
            ),
            (
                "checkpoint_writes_among",
                {"namespace_no": namespace_no, "names": codec.encode(ids)},
            ),
        )
    )
    return (
        {name: (form, body) for name, form, body in values},
        [
            WriteRow(id, task, idx, codec.decode(path), codec.decode(channel), (form, body))
            for id, task, idx, path, channel, form, body in writes
        ],
    )


def values_there(tx: Tx, namespace_no: int, value_names: Iterable[str]) -> set[str]:
    """Which of these values exist and are not empty."""
    names = codec.encode(sorted(set(value_names)))
    rows = tx.all("checkpoint_values_there", namespace_no=namespace_no, names=names)
    return {name for (name,) in rows}


def put(
    tx: Tx,
    row: CheckpointRow,
    *,
    thread_no: int,
    run_id: str | None,
    values: Sequence[tuple[str, Serialized]],
) -> bool:
    """Write a checkpoint and the values that are new in it; say whether the one that it comes from is there.

    One with the same id is replaced.
    """
    statements = _putting_values(row.namespace_no, values)
    run_digest = None if run_id is None else digest_of(run_id)
    fields = {**row._asdict(), "thread_no": thread_no, "run_digest": run_digest}
    statements.append(("put_checkpoint", fields))
    if row.parent_id is not None:
        # After the writes: now nobody can delete it until the transaction ends.
        which = {"namespace_no": row.namespace_no, "id": row.parent_id}
        statements.append(("has_checkpoint", which))
    *_, found = tx.batch(statements)
    return row.parent_id is None or bool(found)


def put_values(tx: Tx, namespace_no: int, values: Sequence[tuple[str, Serialized]]) -> None:
    """Write values of channels by their names."""
    tx.batch(_putting_values(namespace_no, values))


def _putting_values(namespace_no: int, values: Sequence[tuple[str, Serialized]]) -> list[Statement]:
    return [
        (
            "put_checkpoint_value",
            {"namespace_no": namespace_no, "name": name, "form": form, "body": body},
        )
        for name, (form, body) in sorted(values)
    ]


def put_writes(tx: Tx, namespace_no: int, writes: Sequence[WriteRow]) -> None:
    """Write what a task has written. What is there stays, except under a negative index, which is replaced."""
    tx.batch(
        [
            (
                "add_checkpoint_write" if write.idx >= 0 else "put_checkpoint_write",
                {
                    "namespace_no": namespace_no,
                    "checkpoint_id": write.checkpoint_id,
                    "task_id": write.task_id,
                    "idx": write.idx,
                    "task_path": codec.encode(write.task_path),
                    "channel": codec.encode(write.channel),
                    "form": write.value[0],
                    "body": write.value[1],
                },
            )
            for write in writes
        ]
    )


def of_runs(tx: Tx, run_ids: Iterable[str], *, profile: str) -> dict[int, list[str]]:
    """The ids of the checkpoints that runs have made, by the number of their namespace."""
    names = codec.encode([digest_of(each) for each in run_ids])
    found: dict[int, list[str]] = {}
    for namespace_no, id in tx.all("checkpoints_of_runs", names=names, profile=profile):
        found.setdefault(namespace_no, []).append(id)
    return found


def delete(tx: Tx, namespace_no: int, ids: Sequence[str]) -> None:
    """Delete checkpoints and the writes that follow them."""
    which = {"namespace_no": namespace_no, "names": codec.encode(ids)}
    tx.run("delete_checkpoints_among", **which)
    tx.run("delete_checkpoint_writes_among", **which)


def keep_only(tx: Tx, namespace_no: int, ids: Sequence[str]) -> None:
    """Delete all other checkpoints of a namespace, and the writes of all up to the last of these."""
    which = {"namespace_no": namespace_no, "names": codec.encode(ids)}
    tx.run("delete_other_checkpoints", **which)
    tx.run("delete_other_checkpoint_writes", **which, through=max(ids, default=LAST_ID))


def keep_only_values(tx: Tx, namespace_no: int, value_names: Iterable[str]) -> None:
    """Delete all other values of a namespace."""
    names = codec.encode(sorted(set(value_names)))
    tx.run("delete_other_checkpoint_values", namespace_no=namespace_no, names=names)


def delete_checkpoints_of_thread(tx: Tx, thread_no: int) -> None:
    """Delete the checkpoints of a thread, and all that belongs to them."""
    for namespace in namespaces(tx, thread_no):
        keep_only(tx, namespace.no, ())
        keep_only_values(tx, namespace.no, ())
        tx.run("delete_checkpoint_namespace", namespace_no=namespace.no)


def delete_thread(tx: Tx, thread_no: int) -> None:
    """Delete a thread with its checkpoints."""
    delete_checkpoints_of_thread(tx, thread_no)
    tx.run("delete_checkpoint_thread", no=thread_no)


def delete_of_session(tx: Tx, session_no: int) -> None:
    """Delete the threads whose messages are in a session, and the runs that are stored with it."""
    for (thread_no,) in tx.all("threads_of_session", session_no=session_no):
        delete_thread(tx, thread_no)
    tx.run("delete_stored_runs", session_no=session_no)


def copy_namespace(tx: Tx, source: Namespace, thread_no: int) -> None:
    """Copy the checkpoints of a namespace into another thread that does not have it."""
    target_no = insert_namespace(tx, thread_no, source.name)
    which = {"namespace_no": source.no, "target_no": target_no}
    tx.run("copy_checkpoint_values", **which)
    tx.run("copy_checkpoints", **which, thread_no=thread_no)
    tx.run("copy_checkpoint_writes", **which)


def put_run(tx: Tx, session_no: int, sdk: str, run: str, *, at: int) -> None:
    """Store a run of an SDK with a session, in the place of an earlier one."""
    tx.run("put_stored_run", session_no=session_no, sdk=sdk, at=at, run=run)


def get_run(tx: Tx, session_no: int, sdk: str) -> str | None:
    """The run that is stored with a session."""
    row = tx.one("get_stored_run", session_no=session_no, sdk=sdk)
    return None if row is None else row[0]


def delete_run(tx: Tx, session_no: int, sdk: str) -> bool:
    """Delete the run that is stored with a session; say whether there was one."""
    return tx.run("delete_stored_run", session_no=session_no, sdk=sdk) > 0
