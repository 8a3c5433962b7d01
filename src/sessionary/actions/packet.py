"""A session on its way from a file into the store."""

from collections.abc import Iterator
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Self

from sessionary.model import record
from sessionary.model.record import BlobLine, EntryLine, Line, SessionLine, TurnLine, UsageLine

SMALL_ENTRIES = 1000
SMALL_BYTES = 1024 * 1024
BATCH_LINES = 200
BATCH_BYTES = 512 * 1024
PLACED = 100

_FIELDS: dict[type, str] = {
    EntryLine: "entries",
    TurnLine: "turns",
    UsageLine: "usage",
    BlobLine: "blobs",
}


class Packet:
    """A whole session as it was read: its facts, and its lines in files of their own.

    What is large waits on the disk; whoever writes reads only the lines that are missing.
    """

    def __init__(self, session: SessionLine, in_memory: int) -> None:
        self.session = session
        self.counts = dict.fromkeys(_FIELDS.values(), 0)
        self.bytes = 0
        # Closed by `close`.
        self._log: SpooledTemporaryFile[bytes] = SpooledTemporaryFile(in_memory)  # noqa: SIM115
        self._rest: SpooledTemporaryFile[bytes] = SpooledTemporaryFile(in_memory)  # noqa: SIM115
        # Where every so many entries begin.
        self._places = [0]

    def add(self, line: Line, text: bytes) -> None:
        """Keep one line."""
        self.counts[_FIELDS[type(line)]] += 1
        self.bytes += len(text)
        spool = self._log if isinstance(line, EntryLine | BlobLine) else self._rest
        spool.write(text.rstrip(b"\r\n") + b"\n")
        if isinstance(line, EntryLine) and self.counts["entries"] % PLACED == 0:
            self._places.append(spool.tell())

    def lines(self, *, after: int = 0) -> Iterator[Line]:
        """What was kept, without at least most of the entries up to one."""
        for line, _ in self._sized(after):
            yield line

    def batches(self) -> Iterator[list[Line]]:
        """What was kept, in pieces that a short transaction can take."""
        batch: list[Line] = []
        size = 0
        for line, length in self._sized(0):
            batch.append(line)
            size += length
            if len(batch) == BATCH_LINES or size > BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _sized(self, after: int) -> Iterator[tuple[Line, int]]:
        skipped = min(max(0, after - self.session.base_seq) // PLACED, len(self._places) - 1)
        for spool, place in ((self._rest, 0), (self._log, self._places[skipped])):
            spool.seek(place)
            for text in spool:
                line = record.read(text)
                assert not isinstance(line, record.Header)
                yield line, len(text)

    @property
    def last_seq(self) -> int:
        """The number of its last entry."""
        return self.session.base_seq + self.counts["entries"]

    @property
    def is_small(self) -> bool:
        """Whether one short transaction can take it."""
        return self.last_seq <= SMALL_ENTRIES and self.bytes <= SMALL_BYTES

    def close(self) -> None:
        """Let go of the files."""
        self._log.close()
        self._rest.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()
