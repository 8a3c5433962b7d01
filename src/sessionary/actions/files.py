"""Uploaded files and stored bytes: kept once, read by whoever may read the session."""

from collections.abc import Iterable
from datetime import timedelta

from sessionary.clock import Moment, to_micros
from sessionary.errors import BadInput, NotFound
from sessionary.model import codec
from sessionary.model.message import Attachment, Message
from sessionary.store.database import Tx
from sessionary.store.tables import blobs, entries

KEPT = timedelta(days=7)
_BATCH = 50


def upload(tx: Tx, data: bytes, *, profile: str, moment: Moment) -> str:
    """Keep bytes that a message is going to have; their name."""
    if not data:
        raise BadInput("The file is empty; nothing was kept.")
    name = blobs.add(tx, data)
    blobs.note_upload(tx, name, profile=profile, at=moment.now)
    return name


def keep_files(
    tx: Tx, said: Message, files: Iterable[bytes], *, profile: str, moment: Moment
) -> None:
    """Keep the files that came with a message; refuse one that names files this profile has not."""
    for data in files:
        upload(tx, data, profile=profile, moment=moment)
    check_attachments(tx, said, profile=profile)


def check_attachments(tx: Tx, said: Message, *, profile: str) -> None:
    """Refuse a file that this profile has not: what another one keeps looks like nothing."""
    for part in said.parts:
        if isinstance(part, Attachment) and not _is_own(tx, part.blob, profile=profile):
            raise BadInput(
                f"The bytes of attachment {part.blob[:64]!a} are not in the store; "
                "nothing was written. Upload them first."
            )


def delete_old_uploads(tx: Tx, *, moment: Moment) -> int:
    """Let go of what was brought in long ago; how many. What an entry refers to stays with it."""
    old = tx.all("old_uploads", before=to_micros(moment.now - KEPT), limit=_BATCH)
    for profile, name in old:
        tx.run("delete_upload", hash=name, profile=profile)
        tx.run("delete_blob_if_unused", hash=name)
    return len(old)


def _is_own(tx: Tx, name: str, *, profile: str) -> bool:
    known = codec.storable_text(name)
    return tx.one("profile_has_blob", hash=known, profile=profile) is not None


def read_blob(tx: Tx, name: str, *, session_no: int) -> bytes:
    """The bytes of an attachment, if an entry of this session or of its history has it."""
    for own_no, *_ in tx.all("ancestors", no=session_no):
        first, last = entries.entry_no(own_no, 0), entries.entry_no(own_no + 1, 0) - 1
        if tx.one("entry_has_blob", hash=name, first=first, last=last) is not None:
            return blobs.get(tx, name)
    raise NotFound(f"There is no attachment {name[:64]!a} in this session.")


def link_blob(tx: Tx, data: bytes) -> str:
    """Keep bytes that an entry is about to refer to; their name."""
    return blobs.add(tx, data)
