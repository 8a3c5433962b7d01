"""One table of sessionary.toml, with typed settings."""

import re
from collections.abc import Mapping
from typing import Any

from sessionary.config import secret
from sessionary.config.secret import Secret
from sessionary.errors import BadInput

_INFINITY = float("inf")
_SECRET = re.compile(r"token|secret|password|key|auth", re.IGNORECASE)
_KINDS = {dict: "table", list: "list", str: "text", int: "number", float: "number", bool: "flag"}


class Table:
    """One table of the file. It remembers which settings were read, so that a misspelt one is refused."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values = values
        self._where = where
        self._read: list[str] = []

    @property
    def values(self) -> Mapping[str, Any]:
        """The unchecked settings."""
        return self._values

    def text(self, name: str, default: str | None = None) -> str | None:
        """Return a text, or the default."""
        value = self._get(name, default)
        if value is not None and not isinstance(value, str):
            raise self._bad(name, "a text")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """Return true or false."""
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise self._bad(name, "true or false")
        return value

    def whole(self, name: str) -> int | None:
        """Return a whole number above 0, or None."""
        value = self._get(name, None)
        if value is not None and (type(value) is not int or value <= 0):
            raise self._bad(name, "a whole number above 0")
        return value

    def word(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        """Return one of the choices."""
        value = self.text(name, default) or default
        if value not in choices:
            raise self._bad(name, f"one of {', '.join(choices)}")
        return value

    def number(self, name: str, default: float) -> float:
        """Return a number above 0."""
        value = self._get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._bad(name, "a number above 0")
        if not 0 < value < _INFINITY:
            raise self._bad(name, "a number above 0")
        return value

    def texts(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """Return a list of texts."""
        value = self._get(name, list(default))
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self._bad(name, "a list of texts")
        return tuple(value)

    def table(self, name: str) -> "Table":
        """Return a table within this one."""
        value = self._get(name, {})
        if not isinstance(value, dict):
            raise self._bad(name, "a table")
        return Table(value, f"{self._where} [{name}]")

    def tables(self) -> "list[tuple[str, Table]]":
        """Return every table within this one."""
        return [(name, self.table(name)) for name in self._values]

    def secret(self, name: str, environ: Mapping[str, str]) -> Secret | None:
        """Return the secret that `<name>_env` (a variable) or `<name>_file` (a path) names."""
        variable, path = self.text(f"{name}_env"), self.text(f"{name}_file")
        return secret.find(self._where, variable=variable, path=path, environ=environ)

    def required_secret(self, name: str, environ: Mapping[str, str]) -> Secret:
        """Return a secret, or raise BadInput if none is named."""
        found = self.secret(name, environ)
        if found is None:
            raise BadInput(f"{self._where}: set {name}_env or {name}_file.")
        return found

    def leave(self, names: tuple[str, ...]) -> None:
        """Accept settings that another reader reads."""
        self._read.extend(names)

    def refuse_unknown(self) -> None:
        """Refuse a setting that was not read."""
        for name in self._values:
            if name not in self._read:
                import difflib  # only a mistyped setting needs it

                near = difflib.get_close_matches(name, self._read, n=1)
                hint = (
                    f" Did you mean {near[0]!r}?"
                    if near
                    else f" Known here: {', '.join(sorted(self._read))}."
                )
                raise BadInput(f"{self._where}: there is no setting {name!r}.{hint}")

    def _get(self, name: str, default: Any) -> Any:
        self._read.append(name)
        return self._values.get(name, default)

    def _bad(self, name: str, wanted: str) -> BadInput:
        value = self._values[name]
        # A value that may be or contain a secret is not repeated.
        is_hidden = _SECRET.search(name) or isinstance(value, dict | list)
        shown = f"a {_KINDS.get(type(value), 'value')}" if is_hidden else repr(value)
        return BadInput(f"{self._where}: {name} must be {wanted}, not {shown}.")
