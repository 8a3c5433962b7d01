"""Files that commands write: private, whole or not there at all."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from sessionary.errors import BadInput, Conflict, NotFound, SessionaryError
from sessionary.store import filesystem


def write_pieces(path: Path, pieces: Iterable[str], *, force: bool) -> int:
    """Write text to a file only we can read; how many bytes. Nothing half-written stays."""
    refuse_to_overwrite(path, force=force)
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        return _write(draft, path, pieces)
    except OSError as error:
        raise SessionaryError(
            f"{path} was not written: {error.strerror}. Nothing of it is left."
        ) from error


def _write(draft: Path, path: Path, pieces: Iterable[str]) -> int:
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(pieces)
            file.flush()
            filesystem.sync(file.fileno())
            written = file.tell()
        os.replace(draft, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(draft)
        raise
    return written


def refuse_to_overwrite(path: Path, *, force: bool) -> None:
    """Say so before any work is done."""
    if path.is_dir():
        raise BadInput(f"{path} is a directory; name a file.")
    if path.exists() and not force:
        raise Conflict(f"There is a file {path} already; it was left as it is. Add --force.")
    if not path.absolute().parent.is_dir():
        raise NotFound(f"There is no directory {path.absolute().parent}; nothing was written.")
