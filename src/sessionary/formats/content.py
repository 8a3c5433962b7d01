"""What one message says, put together part by part."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_to_bytes

from sessionary.formats import parts
from sessionary.formats.parts import Json


@dataclass(slots=True)
class Content:
    """Parts of a message, and the bytes of the attachments among them."""

    parts: list[Json] = field(default_factory=list)
    blobs: list[bytes] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.parts)

    def say(self, words: object) -> None:
        """Add words, if there are any."""
        if isinstance(words, str) and words:
            self.parts.append(parts.text(words))

    def think(self, words: object, details: Any = None) -> None:
        """Add what a model thought, if it is told."""
        said = words if isinstance(words, str) else ""
        if said or details:
            self.parts.append(parts.reasoning(said, details or None))

    def attach(self, data: bytes, media_type: object = None, name: object = None) -> None:
        """Add a file."""
        kind = media_type if isinstance(media_type, str) and media_type else None
        called = name if isinstance(name, str) and name else None
        self.parts.append(parts.attachment(data, kind, called))
        self.blobs.append(data)

    def attach_base64(self, text: object, media_type: object = None, name: object = None) -> bool:
        """Add a file that is written as text; say whether it could be read."""
        data = parts.decoded(text)
        if data is None or not data:
            return False
        self.attach(data, media_type, name)
        return True

    def attach_url(self, url: object, name: object = None) -> bool:
        """Add a file that is written as a `data:` address; nothing is fetched from any other."""
        if not isinstance(url, str) or not url.startswith("data:"):
            return False
        kind, comma, rest = url[5:].partition(",")
        if not comma:
            return False
        if kind.endswith(";base64"):
            return self.attach_base64(rest, kind.removesuffix(";base64"), name)
        self.attach(unquote_to_bytes(rest), kind.partition(";")[0], name)
        return True

    def add(self, *made: Json) -> None:
        """Add parts that are made already."""
        self.parts.extend(made)

    def keep(self, raw: Any) -> None:
        """Add something we have no part for, as it came."""
        self.parts.append(parts.unknown(raw))
