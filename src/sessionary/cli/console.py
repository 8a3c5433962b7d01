"""What every command is given: where the store is, and where its answer goes."""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import IO, TYPE_CHECKING, Any

from sessionary import config
from sessionary.cli import times
from sessionary.errors import BadInput, NotFound
from sessionary.model.terminal import safe_terminal

if TYPE_CHECKING:
    from sessionary.client.client import Sessionary

FALLBACK_WIDTH = 80
FALLBACK_HEIGHT = 24
BOLD, DIM = "1", "2"
HOW_TO_BEGIN = 'Begin one with: sessionary sessions append new --role user "hello"'


@dataclass(slots=True)
class Console:
    """The global options of one call. A later option overrules an earlier one."""

    home: str | None = None
    database: str | None = None
    profile: str | None = None
    json: bool = False
    debug: bool = False
    utc: bool = False
    _shows_progress: bool = field(default=False, init=False, repr=False)
    _pager: "IO[str] | None" = field(default=None, init=False, repr=False)
    _notes: list[str] = field(default_factory=list, init=False, repr=False)

    def client(self, *, create: bool = False) -> "Sessionary":
        """Open the store. Without `create` a missing store raises NotFound."""
        # The store is loaded only for a valid command line: help and usage errors start without it.
        from sessionary.client.client import connect

        try:
            return connect(self.database, home=self.home, profile=self.profile, create=create)
        except NotFound as error:
            raise NotFound(f"{error} {HOW_TO_BEGIN}") from error

    def zone(self, client: "Sessionary") -> tzinfo | None:
        """The zone that times are shown in: the configured one, else (None) this machine's."""
        if self.utc:
            return UTC
        return client.config.zone if "zone" in client.config.file else None

    def time_cell(self, at: datetime, client: "Sessionary") -> str:
        """A time in a table: for people in their zone, in a pipe RFC 3339 in UTC."""
        if not self.is_terminal:
            return times.second(at)
        return at.astimezone(self.zone(client)).strftime("%Y-%m-%d %H:%M:%S")

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
        self.print_styled(safe_terminal(text, keep_newlines=True))

    def print_styled(self, text: str) -> None:
        """Print lines with styles of ours; whatever came from others is harmless already."""
        (self._pager or sys.stdout).write(text + "\n")

    def style(self, text: str, code: str) -> str:
        """Put a style around text that is harmless already, where the reader wants styles."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.has_styles else text

    @property
    def has_styles(self) -> bool:
        """Whether colours and other styles are shown."""
        return self.is_terminal and not config.is_plain_terminal()

    @contextmanager
    def paged(self) -> Iterator[None]:
        """Show what is printed inside in the person's pager, on a terminal and only there."""
        command = config.pager() if self.is_terminal and not self.json else []
        if not command or shutil.which(command[0]) is None:
            yield
            return
        # A late import: subprocess costs a command that shows nothing 10 ms.
        import subprocess

        env = config.pager_environment()
        process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, env=env)
        self._pager = process.stdin
        try:
            yield
        except BrokenPipeError:
            pass  # The person has read enough.
        finally:
            if process.stdin is not None:
                with suppress(BrokenPipeError):
                    process.stdin.close()
            while True:
                try:
                    process.wait()
                    break
                except KeyboardInterrupt:
                    continue  # Ctrl-C is the pager's own key.
            self._pager = None
            for text in self._notes:
                self.note(text)
            self._notes.clear()

    def flush(self) -> None:
        """Let whoever reads the answer have it now: the command goes on."""
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Say something beside the answer, on standard error; after the pager, not across it."""
        if self._pager is not None:
            self._notes.append(text)
            return
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
    def height(self) -> int:
        """The rows there are."""
        try:
            return os.get_terminal_size(sys.stdout.fileno()).lines or FALLBACK_HEIGHT
        except (OSError, ValueError):
            return FALLBACK_HEIGHT

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
