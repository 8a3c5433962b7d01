"""What every command is given: where the store is, and where its answer goes."""

import importlib
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hansard import config
from hansard.errors import BadInput, NotFound
from hansard.model.terminal import safe_terminal

if TYPE_CHECKING:
    from hansard.app.house import House

FALLBACK_WIDTH = 80
HOW_TO_BEGIN = 'Begin one with: hansard sessions append new --role user "hello"'


@dataclass(slots=True)
class Console:
    """The global options of one call. A later option overrules an earlier one."""

    home: str | None = None
    database: str | None = None
    profile: str | None = None
    json: bool = False
    debug: bool = False
    _shows_progress: bool = field(default=False, init=False, repr=False)

    def house(self, *, create: bool = False) -> "House":
        """The open house. Without `create` nothing is made: a missing store is not found."""
        # The rest of the program is loaded here, after the command line was found to make sense.
        app = importlib.import_module("hansard.app.house")
        try:
            house: House = app.open_house(
                self.database, home=self.home, profile=self.profile, create=create
            )
        except NotFound as error:
            raise NotFound(f"{error} {HOW_TO_BEGIN}") from error
        return house

    def answer(self, value: Any, text: str) -> None:
        """Give the answer: the value as JSON when that was asked for, else the text."""
        if self.json:
            self.emit(value)
        else:
            self.print(text)

    def emit(self, value: Any) -> None:
        """Print the one JSON document; in plain ASCII, so that no terminal obeys it."""
        sys.stdout.write(json.dumps(value, indent=2 if self.is_terminal else None) + "\n")

    def emit_items(self, items: Iterable[Any], *, before: Mapping[str, Any]) -> None:
        """Print a list as one JSON document, item by item: it may be long."""
        write = sys.stdout.write
        head = json.dumps(dict(before))[:-1]
        write(f'{head}{", " if before else ""}"items": [')
        for number, item in enumerate(items):
            write(f"{',' if number else ''}\n{json.dumps(item)}")
        write('], "next": null}\n')

    def print(self, text: str = "") -> None:
        """Print lines for people. Whatever would steer a terminal is shown as a sign."""
        sys.stdout.write(safe_terminal(text, keep_newlines=True) + "\n")

    def flush(self) -> None:
        """Let whoever reads the answer have it now: the command goes on."""
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Say something beside the answer, on standard error."""
        sys.stderr.write(safe_terminal(text, keep_newlines=True) + "\n")

    def progress(self, text: str) -> None:
        """Show how far a long command is: on a terminal, and nowhere else."""
        if sys.stderr.isatty() and not config.is_plain_terminal():
            self._shows_progress = True
            sys.stderr.write(f"\r{safe_terminal(text)}\x1b[K")
            sys.stderr.flush()

    def end_progress(self) -> None:
        """Take the line of progress away."""
        if self._shows_progress:
            self._shows_progress = False
            sys.stderr.write("\r\x1b[K")

    def confirm(self, question: str, *, yes: bool) -> None:
        """Go on only after a yes: typed on a terminal, or given as `--yes`."""
        if yes:
            return
        if self.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise BadInput(f"{question} Nothing was changed. Add --yes to do it.")
        sys.stderr.write(f"{safe_terminal(question)} Type yes to go on: ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise BadInput("Nothing was changed.")

    @property
    def is_terminal(self) -> bool:
        """Whether a person reads along."""
        return sys.stdout.isatty()

    @property
    def width(self) -> int:
        """The columns there are."""
        try:
            return os.get_terminal_size(sys.stdout.fileno()).columns or FALLBACK_WIDTH
        except (OSError, ValueError):
            return FALLBACK_WIDTH


def shown_url(url: str) -> str:
    """A database's address without its password."""
    return re.sub(r"(?<=//)([^/@:]*):[^/@]*@", r"\1:***@", url)


def read_input() -> str:
    """The text on standard input, exactly as it came."""
    data = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"Standard input is not UTF-8 text (byte 0x{data[error.start]:02x} at {error.start}); "
            "nothing was written."
        ) from error
