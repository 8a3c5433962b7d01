"""HTTP/1.1 as it is on the wire: heads are parsed strictly, bodies are followed without being changed.

What two parsers might read differently is refused: that is how requests are smuggled.
"""

import re
from collections.abc import Iterable
from enum import Enum

from msgspec import Struct

Headers = tuple[tuple[bytes, bytes], ...]
MOST_HEAD_BYTES = 64 * 1024
MOST_HEADERS = 200
# A chunk's size line with its extensions; all trailers.
_MOST_SIZE_LINE = 512
_MOST_TRAILER_BYTES = 16 * 1024
_MOST_SIZE_DIGITS = 15
_END = b"\r\n\r\n"

_REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]{1,32}) ([!-~]+) HTTP/(\d)\.(\d)")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9]\d\d)(?: ([\t -~\x80-\xff]*))?")
_HEADER = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\t -~\x80-\xff]*?)[ \t]*")
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,%d})(?:[ \t]*;[\t -~]*)?" % _MOST_SIZE_DIGITS)
_LENGTH = re.compile(rb"\d{1,%d}" % _MOST_SIZE_DIGITS)
# They concern one connection only (RFC 9110, section 7.6.1).
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"transfer-encoding",
        b"upgrade",
    }
)


class Malformed(Exception):
    """Bytes that are not HTTP as we accept it; `status` is what to answer a client that sent them."""

    def __init__(self, what: str, status: int = 400) -> None:
        super().__init__(what)
        self.status = status


class Framing(Enum):
    """How the end of a body is found, if it is not a length."""

    NONE = "none"
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until close"


class Head(Struct, frozen=True):
    """The headers of a request or a response, as they came."""

    headers: Headers

    def values(self, name: bytes) -> list[bytes]:
        """The values of a header; its name is given in lower case."""
        return [value for key, value in self.headers if key.lower() == name]

    def value(self, name: bytes) -> bytes | None:
        """The only value of a header; None if there is none. A header that must not be repeated may not be."""
        found = self.values(name)
        if len(found) > 1:
            raise Malformed(f"The header {name.decode()} is there {len(found)} times.")
        return found[0] if found else None

    def tokens(self, name: bytes) -> list[bytes]:
        """The items of a header that is a list, in lower case."""
        return [
            item.strip().lower()
            for value in self.values(name)
            for item in value.split(b",")
            if item.strip()
        ]

    def end_to_end(self, without: Iterable[bytes] = ()) -> list[tuple[bytes, bytes]]:
        """The headers that are passed on."""
        dropped = HOP_BY_HOP.union(self.tokens(b"connection"), without)
        return [each for each in self.headers if each[0].lower() not in dropped]


class RequestHead(Head, frozen=True, kw_only=True):
    """The head of a request in origin form."""

    method: bytes
    target: bytes
    minor: int

    @property
    def keeps_alive(self) -> bool:
        """Whether the client wants to send more requests on this connection."""
        given = self.tokens(b"connection")
        return b"close" not in given and (self.minor == 1 or b"keep-alive" in given)

    @property
    def framing(self) -> int | Framing:
        """The length of the body, or how its end is found."""
        found = _framing(self)
        return Framing.NONE if found is None else found


class ResponseHead(Head, frozen=True, kw_only=True):
    """The head of a response."""

    status: int
    reason: bytes
    minor: int

    @property
    def keeps_alive(self) -> bool:
        """Whether the connection can be used again."""
        given = self.tokens(b"connection")
        return b"close" not in given and (self.minor == 1 or b"keep-alive" in given)

    def framing(self, method: bytes) -> int | Framing:
        """The length of the body, or how its end is found."""
        if method == b"HEAD" or self.status in (204, 304):
            return Framing.NONE
        found = _framing(self)
        return Framing.UNTIL_CLOSE if found is None else found


def parse_request(head: bytes) -> RequestHead:
    """Parse the head of a request, up to and with the empty line."""
    first, headers = _split(head)
    line = _REQUEST_LINE.fullmatch(first)
    if line is None:
        raise Malformed("That is not the first line of an HTTP request.")
    method, target, major, minor = line.groups()
    if major != b"1" or minor not in (b"0", b"1"):
        raise Malformed("Only HTTP/1.0 and HTTP/1.1 are spoken here.", 505)
    if not target.startswith(b"/"):
        raise Malformed("Only paths are served here, no absolute addresses and no tunnels.")
    request = RequestHead(headers, method=method, target=target, minor=int(minor))
    _ = request.framing  # refuse at once what has no clear end
    return request


def parse_response(head: bytes) -> ResponseHead:
    """Parse the head of a response, up to and with the empty line."""
    first, headers = _split(head)
    line = _STATUS_LINE.fullmatch(first)
    if line is None:
        raise Malformed("That is not the first line of an HTTP response.")
    minor, status, reason = line.groups()
    return ResponseHead(headers, status=int(status), reason=reason or b"", minor=int(minor))


def _split(head: bytes) -> tuple[bytes, Headers]:
    first, *lines = head.removesuffix(_END).split(b"\r\n")
    if len(lines) > MOST_HEADERS:
        raise Malformed("There are too many headers.", 431)
    headers = []
    for line in lines:
        found = _HEADER.fullmatch(line)
        if found is None:
            raise Malformed("A header is malformed.")
        headers.append((found[1], found[2]))
    return first, tuple(headers)


def _framing(head: RequestHead | ResponseHead) -> int | Framing | None:
    codings, lengths = head.tokens(b"transfer-encoding"), head.values(b"content-length")
    if b"content-length" in head.tokens(b"connection"):
        # It would be left out as a header of this connection only; the body would be taken for the next message.
        raise Malformed("The end of the body is not clear.")
    if codings:
        if lengths or codings != [b"chunked"] or head.minor == 0:
            raise Malformed("The end of the body is not clear.")
        return Framing.CHUNKED
    if head.values(b"transfer-encoding"):
        raise Malformed("The end of the body is not clear.")
    if not lengths:
        return None
    if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
        raise Malformed("The end of the body is not clear.")
    return int(lengths[0])


def encode_head(first: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Write a head."""
    lines = [first, *(b": ".join(each) for each in headers)]
    return b"\r\n".join(lines) + _END


class Body:
    """Follows a body as its bytes come: says what they contain and where they end."""

    __slots__ = ("_framing", "_left", "_line", "_state", "consumed", "done")

    def __init__(self, framing: int | Framing) -> None:
        self._framing = framing
        self._left = framing if isinstance(framing, int) else 0
        self._state = "size"
        self._line = b""
        # How many of the bytes that were fed last belong to the body.
        self.consumed = 0
        self.done = framing is Framing.NONE or framing == 0

    @property
    def is_chunked(self) -> bool:
        """Whether the bytes are chunks with their sizes."""
        return self._framing is Framing.CHUNKED

    @property
    def is_until_close(self) -> bool:
        """Whether the connection's end is that of the body."""
        return self._framing is Framing.UNTIL_CLOSE

    @property
    def wanted(self) -> int:
        """How many bytes may be read without reading past its end."""
        return self._left if isinstance(self._framing, int) else MOST_HEAD_BYTES

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes from the connection; return those of the content among them."""
        if self.done:
            self.consumed = 0
            return b""
        if self._framing is Framing.CHUNKED:
            return self._feed_chunks(data)
        if self._framing is Framing.UNTIL_CLOSE:
            self.consumed = len(data)
            return data
        self.consumed = min(self._left, len(data))
        self._left -= self.consumed
        self.done = self._left == 0
        return data if self.consumed == len(data) else data[: self.consumed]

    def end(self) -> bool:
        """Note that the connection has ended; return whether that is the end of the body."""
        if self._framing is Framing.UNTIL_CLOSE:
            self.done = True
        return self.done

    def _feed_chunks(self, data: bytes) -> bytes:
        found, at = [], 0
        while at < len(data) and not self.done:
            if self._state == "data":
                piece = data[at : at + self._left]
                found.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if self._left == 0:
                    self._state = "after data"
                continue
            end = data.find(b"\n", at)
            part = data[at : len(data) if end < 0 else end + 1]
            self._line += part
            at += len(part)
            most = _MOST_TRAILER_BYTES if self._state == "trailer" else _MOST_SIZE_LINE
            if len(self._line) > most:
                raise Malformed("A chunk is malformed.")
            if end >= 0:
                line, self._line = self._line, b""
                if not line.endswith(b"\r\n"):
                    raise Malformed("A chunk is malformed.")
                self._take_line(line[:-2])
        self.consumed = at
        return found[0] if len(found) == 1 else b"".join(found)

    def _take_line(self, line: bytes) -> None:
        match self._state:
            case "size":
                size = _SIZE_LINE.fullmatch(line)
                if size is None:
                    raise Malformed("A chunk is malformed.")
                self._left = int(size[1], 16)
                self._state = "data" if self._left else "trailer"
            case "after data":
                if line:
                    raise Malformed("A chunk is malformed.")
                self._state = "size"
            case _:
                if not line:
                    self.done = True
                elif _HEADER.fullmatch(line) is None:
                    raise Malformed("A trailer is malformed.")


def chunk(data: bytes) -> bytes:
    """Write bytes as one chunk; the last one is empty."""
    return b"%x\r\n%b\r\n" % (len(data), data)
