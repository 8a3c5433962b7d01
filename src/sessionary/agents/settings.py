"""The settings of one agent, and how its secrets are kept."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sessionary.config import secret
from sessionary.config.secret import Secret
from sessionary.errors import BadInput

DEMO = "script"


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """A named agent as the configuration describes it; the options depend on its kind."""

    name: str = "demo"
    kind: str = DEMO
    prompt: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None


class Options:
    """The options of one agent; keeps track of which were read, to refuse a misspelt name."""

    def __init__(
        self,
        values: Mapping[str, Any],
        where: str,
        environ: Mapping[str, str] | None = None,
        *,
        folder: Path | None = None,
    ) -> None:
        self.environ = environ or {}
        self.folder = folder
        self._values = values
        self._where = where
        self._asked: list[str] = []

    def text(self, name: str) -> str | None:
        """Return a text, or None if it is not given."""
        value = self._get(name)
        if value is not None and not isinstance(value, str):
            raise self._bad(name, "a text")
        return value or None

    def required(self, name: str) -> str:
        """Return a required text."""
        value = self.text(name)
        if value is None:
            raise BadInput(f"{self._where}: {name} is missing.")
        return value

    def number(self, name: str, default: float, *, least: float = 0) -> float:
        """Return a number of at least `least`."""
        value = self._get(name)
        if value is None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool) or not value >= least:
            raise self._bad(name, f"a number from {least:g} up")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a boolean."""
        value = self._get(name)
        if value is not None and not isinstance(value, bool):
            raise self._bad(name, "true or false")
        return default if value is None else value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts; a single text is a list of one."""
        value = self._get(name)
        value = [value] if isinstance(value, str) else value or []
        if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
            raise self._bad(name, "a list of texts")
        return tuple(value)

    def mapping(self, name: str) -> dict[str, Any]:
        """Return a table."""
        value = self._get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise self._bad(name, "a table")
        return dict(value)

    def tables(self, name: str) -> "list[Options]":
        """Return a list of tables."""
        value = self._get(name) or []
        if not isinstance(value, list | tuple) or not all(isinstance(x, Mapping) for x in value):
            raise self._bad(name, "a list of tables")
        return [
            Options(each, f"{self._where}, {name} {no}", self.environ)
            for no, each in enumerate(value, 1)
        ]

    def secret(self, name: str) -> Secret | None:
        """Return the secret in the variable `<name>_env` or the file `<name>_file`."""
        variable, path = self.text(f"{name}_env"), self.text(f"{name}_file")
        return secret.find(self._where, variable=variable, path=path, environ=self.environ)

    def refuse_unknown(self) -> None:
        """Refuse options that were never read."""
        for name in self._values:
            if name not in self._asked:
                near = difflib.get_close_matches(name, self._asked, n=1)
                known = f"Known here: {', '.join(sorted(self._asked)) or 'none'}."
                hint = f"Did you mean {near[0]!r}?" if near else known
                raise BadInput(f"{self._where}: there is no option {name!r}. {hint}")

    def bad(self, problem: str) -> BadInput:
        """Return an error that names the option's place in the settings."""
        return BadInput(f"{self._where}: {problem}")

    def _get(self, name: str) -> Any:
        self._asked.append(name)
        return self._values.get(name)

    def _bad(self, name: str, wanted: str) -> BadInput:
        return self.bad(f"{name} must be {wanted}, not {type(self._values[name]).__name__}.")
