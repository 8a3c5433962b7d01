"""Secrets of the configuration: used, never printed."""

import re
from collections.abc import Mapping
from pathlib import Path

from sessionary.errors import BadInput

# Names of settings whose values are not repeated in messages.
SECRET_NAME = re.compile(r"token|secret|password|key|auth", re.IGNORECASE)


class Secret:
    """A text that is never printed: given, or in an environment variable or a file until it is used."""

    __slots__ = ("_environ", "_path", "_text", "_variable", "_where")

    def __init__(self, text: str | None) -> None:
        self._text = text
        self._variable: str | None = None
        self._path: str | None = None
        self._environ: Mapping[str, str] = {}
        self._where = ""

    @classmethod
    def named(
        cls, where: str, *, variable: str | None, path: str | None, environ: Mapping[str, str]
    ) -> "Secret":
        """Return a secret that is looked up when it is used; `where` names the setting in errors."""
        made = cls(None)
        made._where, made._variable, made._path, made._environ = where, variable, path, environ
        return made

    def __repr__(self) -> str:
        return "Secret(…)"

    def __str__(self) -> str:
        return "…"

    def __reduce__(self) -> str:
        raise TypeError("a secret cannot be pickled")

    @property
    def origin(self) -> str:
        """Where it is: the name of a variable or a path, never the secret."""
        if self._variable is not None:
            return f"the environment variable {self._variable}"
        return "the configuration" if self._path is None else f"the file {self._path}"

    def reveal(self) -> str:
        """Return the text; raise BadInput if the variable is not set or the file cannot be read."""
        if self._text is None:
            self._text = self._find()
        return self._text

    def _find(self) -> str:
        if self._variable is None:
            return _first_line(self._where, Path(self._path or "").expanduser())
        found = self._environ.get(self._variable)
        if not found:
            name = _printable(self._variable)
            raise BadInput(f"{self._where}: the environment variable {name} is not set.")
        return found.strip()


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text[:200])


def _first_line(where: str, path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        name = _printable(str(path))
        raise BadInput(f"{where}: the secret in {name} cannot be read: {reason}.") from error
    if not text:
        raise BadInput(f"{where}: the file {_printable(str(path))} is empty.")
    return text.splitlines()[0].strip()
