"""Standard input that ends when its client is gone, or when someone presses Ctrl-C.

The library reads it in a thread. One that waits for a line cannot be cancelled, and would hold up
the end of the process for as long as anyone keeps the other side open.
"""

import io
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class _Endable(io.RawIOBase):
    """Reads until the input ends, nobody reads the output, or something comes through a third."""

    def __init__(self, given: int, output: int, end: int) -> None:
        self._given, self._ends = given, {output, end}
        self._poll = select.poll()
        self._poll.register(given, select.POLLIN)
        self._poll.register(end, select.POLLIN)
        self._poll.register(output, 0)  # errors alone: that its reader is gone

    def readable(self) -> bool:
        return True

    def readinto(self, into: "WriteableBuffer") -> int:
        view = memoryview(into).cast("B")
        ready = {number for number, _ in self._poll.poll()}
        data = b"" if ready & self._ends else os.read(self._given, len(view))
        view[: len(data)] = data
        return len(data)


@contextmanager
def endable() -> Iterator[Callable[[], None]]:
    """Put such an input in the place of the standard one; calling what this gives ends it."""
    before = sys.stdin
    output = os.dup(sys.stdout.fileno())
    come, go = os.pipe()
    reader = io.BufferedReader(_Endable(before.fileno(), output, come))
    sys.stdin = io.TextIOWrapper(reader, encoding="utf-8", errors="replace")
    try:
        yield lambda: _end(go)
    finally:
        sys.stdin = before
        _end(go)  # whoever still reads
        for number in (go, come, output):
            os.close(number)


def _end(descriptor: int) -> None:
    os.write(descriptor, b"\n")
