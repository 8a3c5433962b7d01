"""What every command is given: its global options, and how it prints its answer."""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, tzinfo
from io import StringIO
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from sessionary import config
from sessionary.cli import times
from sessionary.errors import BadInput, NotFound
from sessionary.model.terminal import display_width, fit, one_line, safe_terminal

if TYPE_CHECKING:
    from sessionary.app.context import AppContext
    from sessionary.client.client import Sessionary

FALLBACK_WIDTH = 80
FALLBACK_HEIGHT = 24
BOLD, DIM = "1", "2"
GAP = "  "
# Longer texts are printed as they were written: rendering them takes seconds.
LONGEST_MARKDOWN = 50_000
HOW_TO_BEGIN = 'Begin one with: sessionary sessions append new --role user "hello"'


class Column(NamedTuple):
    """A column of a table: aligned right for numbers; a flexible one is cut when the line is too long."""

    heading: str
    right: bool = False
    flexible: bool = False


class Console:
    """The global options of one call; a later option overrides an earlier one."""

    def __init__(
        self,
        home: str | None = None,
        database: str | None = None,
        profile: str | None = None,
        *,
        json: bool = False,
        debug: bool = False,
        utc: bool = False,
    ) -> None:
        self.home = home
        self.database = database
        self.profile = profile
        self.json = json
        self.debug = debug
        self.utc = utc
        self._shows_progress = False
        self._pager: IO[str] | None = None
        self._notes: list[str] = []

    def open(self, *, create: bool = False) -> "AppContext":
        """Open the store. Without `create` a missing store raises NotFound."""
        # The store is loaded only for a valid command line: help and usage errors start without it.
        from sessionary.app.context import open_app

        try:
            return open_app(self.database, home=self.home, profile=self.profile, create=create)
        except NotFound as error:
            raise NotFound(f"{error} {HOW_TO_BEGIN}") from error

    def client(self, *, create: bool = False) -> "Sessionary":
        """Return the Python interface to the store that the options and the settings name; use it in a `with` block.

        Without `create` a missing store raises NotFound.
        """
        from sessionary.client.client import (
            Sessionary,
        )  # for plug-ins; our own commands open the store

        return Sessionary(self.database, home=self.home, profile=self.profile, create=create)

    def zone(self, app: "AppContext") -> tzinfo | None:
        """Return the zone to show times in: the configured one, or None for this machine's."""
        if self.utc:
            return UTC
        return app.config.zone if "zone" in app.config.file else None

    def time_cell(self, at: datetime, app: "AppContext") -> str:
        """Format a time for a table: on a terminal in the person's zone, in a pipe as RFC 3339 in UTC."""
        if not self.is_terminal:
            return times.second(at)
        return at.astimezone(self.zone(app)).strftime("%Y-%m-%d %H:%M:%S")

    def answer(self, value: Any, text: str) -> None:
        """Print the answer: with --json the value, else the text."""
        if self.json:
            self.emit(value)
        else:
            self.print(text)

    def emit(self, value: Any) -> None:
        """Print the one JSON document, in ASCII: it cannot contain control sequences."""
        import json  # saves 2 ms for everyone without --json

        sys.stdout.write(json.dumps(value, indent=2 if self.is_terminal else None) + "\n")

    def emit_items(self, items: Iterable[Any], *, before: Mapping[str, Any]) -> None:
        """Print a long list as one JSON document, item by item."""
        import json

        write = sys.stdout.write
        head = json.dumps(dict(before))[:-1]
        write(f'{head}{", " if before else ""}"items": [')
        for number, item in enumerate(items):
            write(f"{',' if number else ''}\n{json.dumps(item)}")
        write('], "next": null}\n')

    def print_list(
        self,
        items: Sequence[Any],
        columns: Sequence[Column],
        rows: Sequence[Sequence[str]],
        *,
        empty: str,
        cursor: str | None = None,
    ) -> None:
        """Print a list: `items` as JSON, or `rows` as a table, or a note that it is empty."""
        if self.json:
            self.emit({"items": items, "next": cursor})
        elif not rows:
            self.note(empty)
        else:
            self.print_table(columns, rows)
            self.note_more(cursor)

    def note_more(self, cursor: str | None) -> None:
        """Say how to get the next page, if there is one."""
        if cursor is not None:
            self.note(f"There is more: --cursor {cursor}")

    def print_table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        """Print a table: on a terminal cut to its width, in a pipe whole."""
        self.print(table(columns, rows, width=self.width if self.is_terminal else None))

    def print(self, text: str = "") -> None:
        """Print text for people; control characters are shown as symbols."""
        self.print_styled(safe_terminal(text, keep_newlines=True))

    def print_styled(self, text: str) -> None:
        """Print text that contains our own styles; everything else in it must be safe already."""
        (self._pager or sys.stdout).write(text + "\n")

    def style(self, text: str, code: str) -> str:
        """Put a style around safe text, where styles are shown."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.has_styles else text

    @property
    def has_styles(self) -> bool:
        """Whether colours and other styles are shown."""
        return self.is_terminal and not config.is_plain_terminal()

    @contextmanager
    def paged(self) -> Iterator[None]:
        """Show what is printed inside the block in the person's pager, if this is a terminal."""
        command = config.pager() if self.is_terminal and not self.json else []
        if not command:
            yield
            return
        import shutil  # saves 2 ms for every command that does not page

        if shutil.which(command[0]) is None:
            yield
            return
        import subprocess  # takes 10 ms, and most commands do not page

        env = config.pager_environment()
        process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, env=env)
        self._pager = process.stdin
        try:
            yield
        except BrokenPipeError:
            pass  # The person left the pager.
        finally:
            if process.stdin is not None:
                with suppress(BrokenPipeError):
                    process.stdin.close()
            while True:
                try:
                    process.wait()
                    break
                except KeyboardInterrupt:
                    continue  # Ctrl-C is for the pager.
            self._pager = None
            for text in self._notes:
                self.note(text)
            self._notes.clear()

    def flush(self) -> None:
        """Write out what was printed so far: the command goes on."""
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Print a remark on standard error; while a pager is open, after it."""
        if self._pager is not None:
            self._notes.append(text)
            return
        sys.stderr.write(safe_terminal(text, keep_newlines=True) + "\n")

    def progress(self, text: str) -> None:
        """Show the progress of a long command, on a terminal only."""
        if sys.stderr.isatty() and not config.is_plain_terminal():
            self._shows_progress = True
            sys.stderr.write(f"\r{safe_terminal(text)}\x1b[K")
            sys.stderr.flush()

    def end_progress(self) -> None:
        """Remove the progress line."""
        if self._shows_progress:
            self._shows_progress = False
            sys.stderr.write("\r\x1b[K")

    def confirm(self, question: str, *, yes: bool) -> None:
        """Continue only after a yes, typed on a terminal or given as `--yes`; else raise BadInput."""
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
        """Whether standard output is a terminal."""
        return sys.stdout.isatty()

    @property
    def height(self) -> int:
        """The number of rows of the terminal."""
        try:
            return os.get_terminal_size(sys.stdout.fileno()).lines or FALLBACK_HEIGHT
        except (OSError, ValueError):
            return FALLBACK_HEIGHT

    @property
    def width(self) -> int:
        """The number of columns of the terminal."""
        try:
            return os.get_terminal_size(sys.stdout.fileno()).columns or FALLBACK_WIDTH
        except (OSError, ValueError):
            return FALLBACK_WIDTH


def shown_url(url: str) -> str:
    """Return a database's URL without its password."""
    return re.sub(r"(?<=//)([^/@:]*):[^/@]*@", r"\1:***@", url)


def read_input() -> str:
    """Return the text on standard input, unchanged."""
    data = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"Standard input is not UTF-8 text (byte 0x{data[error.start]:02x} at {error.start}); "
            "nothing was written."
        ) from error


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int | None) -> str:
    """Align rows under headings. With a width lines are cut to it; without, nothing is cut."""
    cells = [[safe_terminal(one_line(text)) for text in row] for row in rows]
    lines = [[column.heading for column in columns], *cells]
    # Nothing follows the last column: it is measured only to be cut or aligned right.
    is_ragged = width is None and not columns[-1].right
    widths = [
        0
        if is_ragged and column is columns[-1]
        else max(display_width(line[index]) for line in lines)
        for index, column in enumerate(columns)
    ]
    if width is not None:
        widths = _squeezed(columns, widths, width)
    return "\n".join(_line(columns, line, widths, cut=width is not None) for line in lines)


def _squeezed(columns: Sequence[Column], widths: list[int], width: int) -> list[int]:
    over = sum(widths) + len(GAP) * (len(widths) - 1) - width
    for place, column in enumerate(columns):
        if column.flexible and over > 0:
            taken = min(over, max(0, widths[place] - 8))
            widths[place] -= taken
            over -= taken
    return widths


def _line(
    columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int], *, cut: bool
) -> str:
    out = []
    for column, cell, width in zip(columns, cells, widths, strict=True):
        text = fit(cell, width) if cut else cell
        padding = " " * (width - display_width(text.rstrip())) if width else ""
        out.append(padding + text.rstrip() if column.right else text.rstrip() + padding)
    return GAP.join(out).rstrip()


def count(number: int, what: str) -> str:
    """`1 session`, `2 sessions`."""
    plural = what[:-1] + "ies" if what.endswith("ry") else f"{what}s"
    return f"{number:,} {what if number == 1 else plural}"


def size(number: int) -> str:
    """`1.5 MB`."""
    amount = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def money(microusd: int | None) -> str:
    """`$0.0123`; an unknown cost is `?`, not zero."""
    if microusd is None:
        return "?"
    decimals = 2 if microusd >= 1_000_000 or microusd == 0 else 4 if microusd >= 1_000 else 6
    return f"${microusd / 1_000_000:,.{decimals}f}"


def share(done: int, whole: int) -> str:
    """`42%`, or the number of rows if the total is unknown."""
    return f"{done / whole:.0%}" if whole else f"{done:,} rows"


def render_markdown(text: str, *, width: int) -> str:
    """Render Markdown for a terminal; control characters in it are shown as symbols."""
    safe = safe_terminal(text, keep_newlines=True)
    if len(safe) > LONGEST_MARKDOWN or not safe.strip():
        return safe
    # rich takes 60 ms to load, and most commands show no Markdown.
    from rich.console import Console
    from rich.markdown import Markdown

    out = StringIO()
    console = Console(
        file=out, width=width, force_terminal=True, color_system="standard", legacy_windows=False
    )
    # No hyperlinks: a terminal would hide where a link leads.
    console.print(Markdown(safe, hyperlinks=False, code_theme="ansi_dark"))
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip("\n").split("\n"))


def split_blocks(text: str) -> tuple[str, str]:
    """Split a Markdown text that is still being written into its complete blocks and the last one.

    A blank line ends a block, except in a fenced block or when a list continues after it.
    """
    lines = text.split("\n")
    end = 0
    fence = ""
    for index, line in enumerate(lines[:-1]):
        stripped = line.lstrip()
        if fence:
            if stripped.startswith(fence) and not stripped.strip("`~ "):
                fence = ""
        elif stripped.startswith(("```", "~~~")):
            fence = stripped[:3]
        elif not stripped and index > 0 and _begins_block(lines[index + 1]):
            end = index + 1
    return "\n".join(lines[:end]).rstrip("\n"), "\n".join(lines[end:]) if end else text


def _begins_block(line: str) -> bool:
    """Whether a line after a blank one begins a new block: it is not empty, indented or a list item."""
    if not line.strip() or line[0].isspace():
        return False
    mark = line.split(maxsplit=1)[0]
    return not (mark in ("-", "*", "+") or (mark[:-1].isdigit() and mark[-1] in ".)"))


def rows_shown(text: str, *, width: int) -> int:
    """Count the rows of a terminal that a text takes unrendered."""
    lines = safe_terminal(text, keep_newlines=True).split("\n")
    return sum(max(1, -(-display_width(line) // max(1, width))) for line in lines)
