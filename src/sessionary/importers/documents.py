"""Files that are one JSON document, read whole: never more than a limit."""

from pathlib import Path
from typing import Any

from sessionary.errors import BadInput
from sessionary.formats import json_text, shape
from sessionary.importers import files

MOST = 256 * 1024 * 1024


def read(path: Path, *, most: int = MOST) -> Any:
    """What a file says; `BadInput` when it is too large or not JSON."""
    if files.size_of(path) > most:
        raise BadInput(f"{path} is larger than {most:,} bytes; it was left alone.")
    with files.opened(path) as file:
        text = file.read(most + 1)
    if json_text.is_heavy(text):
        raise BadInput(f"{path} holds too many values; it was left alone.")
    found = shape.parsed(text.removeprefix(b"\xef\xbb\xbf"))
    if found is None:
        raise BadInput(f"{path} is not JSON, or not all of it is there; it was left alone.")
    return found


def read_if_any(path: Path, *, most: int = MOST) -> Any:
    """What a file says; None when it is not there or not readable."""
    try:
        return read(path, most=most)
    except BadInput:
        return None
