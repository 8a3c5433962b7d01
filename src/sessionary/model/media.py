"""Media types from the bytes themselves; what a sender declares is only a hint."""

BYTES = "application/octet-stream"
TEXT = "text/plain"
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_LOOKED_AT = 4096
# Magic numbers: the offset, the bytes, the media type.
_SIGNS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (0, b"%PDF-", "application/pdf"),
    (0, b"PK\x03\x04", "application/zip"),
    (0, b"\x1f\x8b", "application/gzip"),
    (0, b"OggS", "audio/ogg"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (8, b"WAVE", "audio/wav"),
    (0, b"fLaC", "audio/flac"),
    (4, b"ftypM4A", "audio/mp4"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1a\x45\xdf\xa3", "video/webm"),
)
# Office documents are zip files; only the declared type says which.
_INSIDE_ZIP = "application/vnd."
# Text types that are kept as declared; none that a browser would run.
_TEXTS = frozenset(
    {"text/plain", "text/markdown", "text/csv", "text/tab-separated-values", "application/json"}
)


def media_type_of(data: bytes, declared: str = "") -> str:
    """The media type of a file; markup that could run in a browser is plain text."""
    start = data[:_LOOKED_AT]
    hint = declared.split(";", maxsplit=1)[0].strip().lower()
    found = next((kind for place, sign, kind in _SIGNS if start.startswith(sign, place)), None)
    if found == "application/zip" and hint.startswith(_INSIDE_ZIP) and hint.isascii():
        return hint[:200]
    if found is not None:
        return found
    if not _is_text(start):
        return BYTES
    return hint if hint in _TEXTS else TEXT


def browser_type(data: bytes) -> str:
    """The media type to serve bytes to a browser with: only pictures are shown, the rest is downloaded."""
    found = media_type_of(data)
    return found if found in PICTURES else BYTES


def _is_text(start: bytes) -> bool:
    if b"\x00" in start:
        return False
    try:
        start.decode("utf-8")
    except UnicodeDecodeError as error:
        # A character may be cut in two where we stopped to look.
        return len(start) == _LOOKED_AT and error.start >= _LOOKED_AT - 4
    return True
