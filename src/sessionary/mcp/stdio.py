"""Standard input that ends when the client is gone, or on Ctrl-C.

The library reads it in a thread. A thread that waits for a line cannot be cancelled, and would
keep the process alive for as long as the other side is open.
"""

import io
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sessionary.formats.coerce import replace_lone_surrogates

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK = 1024 * 1024


class _InterruptibleInput(io.RawIOBase):
    """Reads until the input ends, the output is closed, or the end pipe is written to."""

    def __init__(self, given: int, output: int, end: int) -> None:
        self._given, self._ends = given, {output, end}
        self._poll = select.poll()
        self._poll.register(given, select.POLLIN)
        self._poll.register(end, select.POLLIN)
        self._poll.register(output, 0)  # errors alone: that its reader is gone
        # The pieces of an incomplete line, and complete lines that wait to be read.
        self._begun: list[bytes] = []
        self._lines = b""

    def readable(self) -> bool:
        return True

    def readinto(self, into: "WriteableBuffer") -> int:
        view = memoryview(into).cast("B")
        while not self._lines:
            data = self._more()
            whole, newline, rest = data.rpartition(b"\n")
            if data and not newline:
                self._begun.append(data)
                continue
            lines = b"".join([*self._begun, whole]).split(b"\n")
            self._begun = [rest] if rest else []
            self._lines = b"\n".join(map(replace_lone_surrogates, lines)) + newline
            if not data:
                break
        taken, self._lines = self._lines[: len(view)], self._lines[len(view) :]
        view[: len(taken)] = taken
        return len(taken)

    def _more(self) -> bytes:
        ready = {number for number, _ in self._poll.poll()}
        return b"" if ready & self._ends else os.read(self._given, CHUNK)


@contextmanager
def interruptible_stdin() -> Iterator[Callable[[], None]]:
    """Replace standard input by an interruptible one, and yield the function that ends it."""
    before = sys.stdin
    output = os.dup(sys.stdout.fileno())
    come, go = os.pipe()
    reader = io.BufferedReader(_InterruptibleInput(before.fileno(), output, come))
    sys.stdin = io.TextIOWrapper(reader, encoding="utf-8", errors="replace")
    try:
        yield lambda: _end(go)
    finally:
        sys.stdin = before
        _end(go)  # for threads that still read
        for number in (go, come, output):
            os.close(number)


def _end(descriptor: int) -> None:
    os.write(descriptor, b"\n")
