"""Files that messages carry inside them, so that people see them as attachments."""

from sessionary.model.message import Attachment
from sessionary.store.database import Tx
from sessionary.store.tables import blobs

_ANY_TYPE = "application/octet-stream"


class Files:
    """Bytes on their way into the store: they are kept in the transaction of their messages."""

    def __init__(self) -> None:
        self._found: dict[str, bytes] = {}

    def add(self, data: bytes, media_type: str | None, name: str | None = None) -> Attachment:
        """A file as a part of a message."""
        blob = blobs.hash_of(data)
        self._found[blob] = data
        return Attachment(blob, media_type or _ANY_TYPE, name, len(data))

    def keep(self, tx: Tx) -> None:
        """Put the bytes into the store; the messages follow in the same transaction."""
        for data in self._found.values():
            blobs.add(tx, data)
