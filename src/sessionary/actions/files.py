"""Files: their bytes are stored once; an upload is for the message that follows, a kept file has an id of its own."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct

from sessionary.clock import Moment
from sessionary.errors import BadInput, Conflict, NotFound
from sessionary.model.message import Attachment, Message
from sessionary.store.database import Tx
from sessionary.store.tables import blobs, sessions
from sessionary.store.tables import files as kept_files
from sessionary.store.tables.files import StoredFile

KEPT = timedelta(days=7)
_BATCH = 50
# How many files a profile may keep, and how many bytes together: what programs keep is not deleted by itself.
MOST_FILES = 10_000
MOST_BYTES = 10 * 1024**3


def upload(tx: Tx, data: bytes, *, profile: str, moment: Moment) -> str:
    """Store a file for a message that is to follow; return its hash."""
    if not data:
        raise BadInput("The file is empty; nothing was kept.")
    name = blobs.add(tx, data)
    blobs.note_upload(tx, name, profile=profile, at=moment.now)
    return name


def keep_files(
    tx: Tx, message: Message, files: Iterable[bytes], *, profile: str, moment: Moment
) -> None:
    """Store the files that came with a message, and check all its attachments."""
    for data in files:
        upload(tx, data, profile=profile, moment=moment)
    check_attachments(tx, message, profile=profile)


def check_attachments(tx: Tx, message: Message, *, profile: str) -> None:
    """Refuse an attachment whose file this profile does not have, even if another profile does."""
    for part in message.parts:
        if isinstance(part, Attachment) and not blobs.profile_has(tx, part.blob, profile=profile):
            raise BadInput(
                f"The bytes of attachment {part.blob[:64]!a} are not in the store; "
                "nothing was written. Upload them first."
            )


def delete_old_uploads(tx: Tx, *, moment: Moment) -> int:
    """Delete old uploads that no entry refers to, and kept files that expired; return how many were looked at."""
    expired = kept_files.delete_expired(tx, now=moment.now, limit=_BATCH)
    return expired + blobs.delete_old_uploads(tx, before=moment.now - KEPT, limit=_BATCH)


class NewFile(Struct, frozen=True):
    """A file that a program wants to keep: its bytes, and what it says of them."""

    data: bytes
    name: str
    media_type: str
    purpose: str
    # How long it is kept; None until it is deleted.
    kept_for: timedelta | None = None


def keep_file(tx: Tx, new: NewFile, *, profile: str, token_id: str, moment: Moment) -> StoredFile:
    """Store a file under an id, until it is deleted or expires; refuse it if the profile has too many."""
    if not new.data:
        raise BadInput("The file is empty; nothing was kept.")
    count, size = kept_files.count(tx, profile=profile)
    if count >= MOST_FILES or size + len(new.data) > MOST_BYTES:
        raise Conflict(
            f"{count:,} files with {size:,} bytes are kept, and the most is {MOST_FILES:,} with {MOST_BYTES:,}; "
            "nothing was kept. Delete some first."
        )
    made = StoredFile(
        moment.new_id(),
        profile,
        blobs.add(tx, new.data),
        new.name,
        new.media_type,
        len(new.data),
        new.purpose,
        token_id,
        moment.now,
        None if new.kept_for is None else moment.now + new.kept_for,
    )
    kept_files.insert(tx, made)
    return made


def get_file(tx: Tx, id: str, *, profile: str, now: datetime) -> StoredFile:
    """Return a file that this profile keeps."""
    found = kept_files.get(tx, id, profile=profile)
    if found is None or (found.expires_at is not None and found.expires_at <= now):
        raise NotFound(f"There is no file {id[:64]!a}.")
    return found


def read_file(tx: Tx, id: str, *, profile: str, now: datetime) -> tuple[StoredFile, bytes]:
    """Return a file that this profile keeps, and its bytes."""
    found = get_file(tx, id, profile=profile, now=now)
    return found, blobs.get(tx, found.hash)


def delete_file(tx: Tx, id: str, *, profile: str, now: datetime) -> StoredFile:
    """Delete a file; messages that have it keep its bytes."""
    found = get_file(tx, id, profile=profile, now=now)
    kept_files.delete(tx, found)
    return found


def read_blob(tx: Tx, name: str, *, session_no: int) -> bytes:
    """The bytes of an attachment that an entry of this session or of its history has."""
    for ancestor in sessions.ancestors(tx, session_no):
        if blobs.session_has(tx, name, session_no=ancestor.no):
            return blobs.get(tx, name)
    raise NotFound(f"There is no attachment {name[:64]!a} in this session.")
