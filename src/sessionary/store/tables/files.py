"""The table of files that programs keep by an id."""

from datetime import datetime

from msgspec import Struct

from sessionary.clock import from_micros, to_micros
from sessionary.store.database import Row, Tx
from sessionary.store.tables import blobs
from sessionary.store.tables.sessions import column, moment

_LAST = 2**62


class StoredFile(Struct, frozen=True):
    """A file that a program keeps: its bytes are the blob with this hash."""

    id: str
    profile: str
    hash: str
    name: str
    media_type: str
    size: int
    purpose: str
    token_id: str
    created_at: datetime
    expires_at: datetime | None = None


def insert(tx: Tx, file: StoredFile) -> None:
    """Write a file whose bytes are stored."""
    tx.run(
        "insert_file",
        id=file.id,
        profile=file.profile,
        hash=file.hash,
        name=column(file.name),
        media_type=file.media_type,
        size=file.size,
        purpose=column(file.purpose),
        token_id=file.token_id,
        at=to_micros(file.created_at),
        expires_at=None if file.expires_at is None else to_micros(file.expires_at),
    )


def get(tx: Tx, id: str, *, profile: str) -> StoredFile | None:
    """A file of this profile."""
    row = tx.one("get_file", id=column(id), profile=profile)
    return None if row is None else _file(row)


def count(tx: Tx, *, profile: str) -> tuple[int, int]:
    """How many files a profile has, and their bytes together."""
    row = tx.one("count_files", profile=profile)
    assert row is not None
    return row[0], row[1]


def page(
    tx: Tx,
    *,
    profile: str,
    now: datetime,
    limit: int,
    after: StoredFile | None = None,
    purpose: str = "",
    newest_first: bool = True,
) -> list[StoredFile]:
    """The files of a profile that have not expired, behind one of them."""
    start = (_LAST, "") if newest_first else (-_LAST, "")
    at, id = start if after is None else (to_micros(after.created_at), after.id)
    rows = tx.all(
        "list_files_down" if newest_first else "list_files_up",
        profile=profile,
        purpose=column(purpose),
        after_at=at,
        after_id=id,
        now=to_micros(now),
        limit=limit,
    )
    return [_file(row) for row in rows]


def delete(tx: Tx, file: StoredFile) -> None:
    """Delete a file, and its bytes if nothing else needs them."""
    tx.run("delete_file", id=file.id, profile=file.profile)
    blobs.delete_if_unused(tx, file.hash)


def delete_of_blob(tx: Tx, name: str, *, profile: str) -> None:
    """Delete the files of a profile that have these bytes; the bytes are left to the caller."""
    tx.run("delete_files_of_blob", hash=name, profile=profile)


def delete_expired(tx: Tx, *, now: datetime, limit: int) -> int:
    """Delete files whose time is over; return how many."""
    rows = tx.all("expired_files", now=to_micros(now), limit=limit)
    for id, profile, name in rows:
        tx.run("delete_file", id=id, profile=profile)
        blobs.delete_if_unused(tx, name)
    return len(rows)


def _file(row: Row) -> StoredFile:
    id, profile, name_of_bytes, name, media_type, size, purpose, token_id, *times = row
    created_at, expires_at = times
    return StoredFile(
        id=id,
        profile=profile,
        hash=name_of_bytes,
        name=name,
        media_type=media_type,
        size=size,
        purpose=purpose,
        token_id=token_id,
        created_at=from_micros(created_at),
        expires_at=moment(expires_at),
    )
