"""Uploaded files: stored once, readable by everyone who may read a session that has them."""

from collections.abc import Iterable
from datetime import timedelta

from sessionary.clock import Moment
from sessionary.errors import BadInput, NotFound
from sessionary.model.message import Attachment, Message
from sessionary.store.database import Tx
from sessionary.store.tables import blobs, sessions

KEPT = timedelta(days=7)
_BATCH = 50


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
    """Delete old uploads that no entry refers to; return how many were looked at."""
    return blobs.delete_old_uploads(tx, before=moment.now - KEPT, limit=_BATCH)


def read_blob(tx: Tx, name: str, *, session_no: int) -> bytes:
    """The bytes of an attachment that an entry of this session or of its history has."""
    for ancestor in sessions.ancestors(tx, session_no):
        if blobs.session_has(tx, name, session_no=ancestor.no):
            return blobs.get(tx, name)
    raise NotFound(f"There is no attachment {name[:64]!a} in this session.")
