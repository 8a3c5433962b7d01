"""The copy of an exchange that is kept while it passes: bounded, decoded, and without the caller's keys."""

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sessionary.proxy.reading import Interface
from sessionary.store.tables.exchanges import DONE, OPEN, StoredExchange

# What is kept of a body that is longer than a copy may be.
KEPT_BYTES = 64 * 1024
# Shorter values are no keys, and would be found everywhere. With other characters they are no keys either: without a
# piece of JSON, the body that has it could not be read.
_SECRET = re.compile(rb"[^\s\"'\\{}\[\]<>]{8,}")
_HIDDEN = b"[key]"
_LEVEL = 1
# How far back compressed data may refer: more memory than any client needs.
_LARGEST_WINDOW = 32 * 1024 * 1024
# Before a body that is not compressed; no compressed one begins like this.
_PLAIN = b"\0"
_LONGEST_MARK = 64
_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LONGEST_END = 4
# How the last event of a stream begins. What a model says is in JSON, where a line never begins like this.
_LAST_EVENT = {
    Interface.CHAT: re.compile(rb"(?:^|[\r\n])data: ?\[DONE\][\r\n]"),
    Interface.RESPONSES: re.compile(
        rb"(?:^|[\r\n])event: ?response\.(?:completed|incomplete|failed|cancelled)[\r\n]"
    ),
    Interface.MESSAGES: re.compile(rb"(?:^|[\r\n])event: ?message_stop[\r\n]"),
}


# The content codings that can be read here. Clients are not to ask for others: their record would be unreadable.
KNOWN_CODINGS = (b"gzip", b"deflate")


class Decoder:
    """Undoes a content coding, piece by piece, up to a limit: a few bytes may unpack to very many."""

    def __init__(self, coding: bytes, first: bytes, limit: int) -> None:
        self._left = limit
        match coding:
            case b"gzip" | b"x-gzip":
                self._object = zlib.decompressobj(wbits=31)
            case b"deflate":
                # Some servers leave the wrapper out.
                is_wrapped = first[:1] != b"" and first[0] & 0x0F == zlib.DEFLATED
                self._object = zlib.decompressobj(wbits=15 if is_wrapped else -15)
            case _:
                raise zlib.error("this content coding is not known")

    def decode(self, data: bytes) -> bytes:
        """Return what the next bytes contain; raises `zlib.error` if that is not known, or too much."""
        found = self._object.decompress(data, self._left + 1)
        self._left -= len(found)
        if self._left < 0:
            raise zlib.error("it is too long")
        return found


class Memory:
    """How many bytes all copies may take together."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def take(self, size: int) -> bool:
        """Take this many bytes; return False if they are not there."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give_back(self, size: int) -> None:
        """Free bytes that were taken."""
        self._left += size


class BodyCopy:
    """A body as far as it came. If it becomes too long, only its beginning is kept."""

    def __init__(self, memory: Memory, limit: int) -> None:
        self._memory = memory
        self.limit = limit
        self._pieces: list[bytes] = []
        self._taken = 0
        self.size = 0
        self.is_cut = False

    def add(self, data: bytes) -> None:
        """Add the next bytes."""
        self.size += len(data)
        if self.is_cut or not data:
            return
        if self.size > self.limit or not self._memory.take(len(data)):
            self.is_cut = True
            kept = b"".join((*self._pieces, data))[:KEPT_BYTES]
            self._memory.give_back(self._taken)
            # So little is kept even when there is no room for it.
            self._pieces, self._taken = [kept], 0
            return
        self._taken += len(data)
        self._pieces.append(data)

    def replace(self, data: bytes) -> None:
        """Have these bytes in place of what there is."""
        self.release()
        self.size = 0
        self.add(data)

    @property
    def held(self) -> int:
        """How many bytes it holds; of one that is too long, fewer than came."""
        return KEPT_BYTES if self.is_cut else self.size

    def bytes(self) -> bytes:
        """What there is of it."""
        if len(self._pieces) > 1:
            self._pieces = [b"".join(self._pieces)]
        return self._pieces[0] if self._pieces else b""

    def release(self) -> None:
        """Forget it."""
        self._memory.give_back(self._taken)
        self._pieces, self._taken = [], 0


@dataclass(slots=True)
class ExchangeCopy:
    """A request and its response as they pass, and what is known of them besides."""

    id: str
    profile: str
    interface: Interface
    client: str
    facts: dict[str, Any]
    began_at: datetime
    request: BodyCopy
    response: BodyCopy
    # The content coding of the request, until it is undone.
    request_coding: bytes = b""
    # Values of the request's headers and query that are hidden wherever they stand.
    secrets: tuple[bytes, ...] = ()
    person: str | None = None
    status: int = 0
    is_stream: bool = False
    is_whole: bool = False
    # Why it ended before the response did.
    broken: str | None = None
    _coding: bytes = b""
    _decoder: Decoder | None = None
    _tail: bytes = b""
    _is_last: bool = False
    # Whether its request is complete; whether its client has its last bytes before it is durable.
    is_begun: bool = False
    is_released: bool = False

    def decode_request(self) -> None:
        """Undo the content coding of the whole request; what cannot be decoded is not kept."""
        coding, self.request_coding = self.request_coding, b""
        if not coding:
            return
        try:
            if self.request.is_cut:
                raise zlib.error("it is too long")
            self.request.replace(_decoded(coding, self.request.bytes(), self.request.limit))
        except zlib.error as error:
            self.request.release()
            self.facts["undecoded_request"] = f"{coding.decode('ascii', 'replace')}: {error}"

    def begin_response(self, status: int, media_type: bytes, codings: list[bytes]) -> None:
        """Note what the head of the response says."""
        self.status = status
        self.is_stream = media_type.lower().startswith(b"text/event-stream")
        self._coding = b",".join(each for each in codings if each != b"identity")

    def add(self, data: bytes) -> bool:
        """Add the next bytes of the response; return whether the last event of a stream ends in them."""
        if self.is_stream and self._coding:
            data = self._decoded(data)
        self.response.add(data)
        if not self.is_stream or self.status >= 400:
            return False
        return self._ends_in(data)

    def _ends_in(self, data: bytes) -> bool:
        """Whether the last event of the stream ends in these bytes: with the empty line behind it."""
        seen = self._tail + data
        if not self._is_last:
            found = _LAST_EVENT[self.interface].search(seen)
            if found is None:
                self._tail = seen[-_LONGEST_MARK:]
                return False
            self._is_last = True
            seen = seen[found.end() - 1 :]
        self._tail = seen[-_LONGEST_END:]
        return _EVENT_END.search(seen) is not None

    def _decoded(self, data: bytes) -> bytes:
        """What bytes of the response contain; nothing after those that could not be decoded."""
        if "undecoded" in self.facts:
            return b""
        try:
            if self._decoder is None:
                self._decoder = Decoder(self._coding, data, self.response.limit)
            return self._decoder.decode(data)
        except zlib.error as error:
            self.facts["undecoded"] = f"{self._coding.decode('ascii', 'replace')}: {error}"
            return b""

    def end_request(self, person: str | None) -> StoredExchange:
        """Return what is stored while the response is awaited."""
        self.person = person
        return self._stored(OPEN, self.began_at, response=b"")

    def end(self, now: datetime) -> StoredExchange:
        """Return what is stored at its end. Takes CPU time if the bodies are large."""
        self.facts |= {
            "status": self.status,
            "is_stream": self.is_stream,
            "is_whole": self.is_whole,
        }
        for name, body in (("request", self.request), ("response", self.response)):
            if body.is_cut:
                self.facts[f"{name}_bytes"] = body.size
        if self.broken is not None:
            self.facts["broken"] = self.broken
        return self._stored(DONE, now, response=self._whole_response())

    def _whole_response(self) -> bytes:
        data = self.response.bytes()
        return self._decoded(data) if self._coding and data and not self.is_stream else data

    def _stored(self, state: str, done_at: datetime, *, response: bytes) -> StoredExchange:
        return StoredExchange(
            id=self.id,
            profile=self.profile,
            state=state,
            holder="",
            began_at=self.began_at,
            done_at=done_at,
            facts=dict(self.facts),
            request=pack(hide(self.request.bytes(), self.secrets)),
            response=pack(hide(response, self.secrets)),
            person_id=self.person,
        )

    @property
    def held(self) -> int:
        """How many bytes of bodies it holds."""
        return self.request.held + self.response.held

    def release(self) -> None:
        """Forget the bodies."""
        self.request.release()
        self.response.release()


def _decoded(coding: bytes, data: bytes, limit: int) -> bytes:
    """What a whole body contains; raises `zlib.error` if that is not known, or too much."""
    if coding != b"zstd":
        return Decoder(coding, data, limit).decode(data)
    import zstandard  # few clients compress their requests

    try:
        unpacker = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW)
        with unpacker.stream_reader(data) as reader:
            found = reader.read(limit + 1)
    except zstandard.ZstdError as error:
        raise zlib.error(str(error)) from error
    if len(found) > limit:
        raise zlib.error("it is too long")
    return found


def hide(body: bytes, secrets: Iterable[bytes]) -> bytes:
    """The body without these values."""
    for each in secrets:
        if each in body:
            body = body.replace(each, _HIDDEN)
    return body


def secret_parts(values: Iterable[bytes]) -> tuple[bytes, ...]:
    """What is secret in the values of headers: all of it, the word after «Bearer», the values of cookies."""
    found: set[bytes] = set()
    for value in values:
        for item in (value, *re.split(rb"[;,]", value)):
            words = (item, item.rpartition(b" ")[2], item.partition(b"=")[2])
            found.update(each.strip(b' "') for each in words)
    secrets = {each for each in found if _SECRET.fullmatch(each)}
    # Some write a slash in JSON with a backslash before it.
    secrets.update([each.replace(b"/", rb"\/") for each in secrets])
    # The longest first: one may be a part of another.
    return tuple(sorted(secrets, key=len, reverse=True))


def pack(body: bytes) -> bytes:
    """Return a body for the table, compressed if it is large: its row is there for a moment only."""
    if len(body) < KEPT_BYTES:
        return _PLAIN + body if body else b""
    return zlib.compress(body, _LEVEL)


def unpack(stored: bytes) -> bytes:
    """The inverse of `pack`."""
    if stored.startswith(_PLAIN):
        return stored[len(_PLAIN) :]
    return zlib.decompress(stored) if stored else b""
