"""Files that messages carry inside them, so that people see them as attachments."""

import base64
import binascii
import re
from typing import Any

from hansard.model.part import Attachment
from hansard.store import blobs
from hansard.store.database import Tx

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w=.+-]+)*;base64,", re.IGNORECASE)
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

    def add_base64(self, text: Any, media_type: Any, name: Any = None) -> Attachment | None:
        """The same from base64; None when it is none."""
        try:
            data = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
        except (binascii.Error, ValueError):
            return None
        kind = media_type if isinstance(media_type, str) else None
        return self.add(data, kind, name if isinstance(name, str) else None) if data else None

    def add_url(self, url: Any, name: Any = None) -> Attachment | None:
        """The same from a `data:` address; None for any other."""
        found = _DATA_URL.match(url) if isinstance(url, str) else None
        return None if found is None else self.add_base64(url[found.end() :], found[1], name)

    def keep(self, tx: Tx) -> None:
        """Put the bytes into the store; the messages follow in the same transaction."""
        for data in self._found.values():
            blobs.add(tx, data)
