"""Secrets of the configuration: used, never printed."""

from collections.abc import Mapping
from pathlib import Path

from sessionary.errors import BadInput


class Secret:
    """A text that is never printed."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return "Secret(…)"

    def __str__(self) -> str:
        return "…"

    def __reduce__(self) -> str:
        raise TypeError("a secret cannot be pickled")

    def reveal(self) -> str:
        """Return the text."""
        return self._text


def find(
    where: str, *, variable: str | None, path: str | None, environ: Mapping[str, str]
) -> Secret | None:
    """Return the secret in an environment variable or a file; None if neither is named."""
    if variable is not None:
        if not environ.get(variable):
            raise BadInput(f"{where}: the environment variable {variable} is not set.")
        return Secret(environ[variable].strip())
    return None if path is None else Secret(_first_line(where, Path(path).expanduser()))


def _first_line(where: str, path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise BadInput(f"{where}: the secret in {path} cannot be read: {reason}.") from error
    if not text:
        raise BadInput(f"{where}: the file {path} is empty.")
    return text.splitlines()[0].strip()
