"""A disk that forgets: what a process wrote, in order, and what is left of it after a power cut.

What was synced is there. Of what was written since, each piece may be there, or not, or in part.
"""

import random
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HEAD = struct.Struct("<cHQI")
SECTOR = 512


@dataclass(frozen=True)
class DiskOperation:
    """One operation on a file."""

    what: str
    path: str
    offset: int
    data: bytes


def build(folder: Path) -> Path:
    """Compile the recorder."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None, "the test of power cuts needs a C compiler: apt install gcc"
    library = folder / "disk_recorder.so"
    source = Path(__file__).with_name("disk_recorder.c")
    subprocess.run(
        [compiler, "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl", "-lpthread"],
        check=True,
    )
    return library


def read_journal(journal: Path) -> list[DiskOperation]:
    """What was recorded, in order."""
    return list(_read(journal.read_bytes()))


def _read(record: bytes) -> Iterator[DiskOperation]:
    at = 0
    while at + HEAD.size <= len(record):
        what, path_size, offset, size = HEAD.unpack_from(record, at)
        at += HEAD.size
        path = record[at : at + path_size].decode()
        at += path_size
        yield DiskOperation(what.decode(), path, offset, record[at : at + size])
        at += size


class Disk:
    """The files as a power cut leaves them."""

    def __init__(self, done: Sequence[DiskOperation], rng: random.Random) -> None:
        self._chance = rng
        self.files: dict[str, bytearray] = {}
        last_sync = {
            operation.path: at for at, operation in enumerate(done) if operation.what == "s"
        }
        for at, operation in enumerate(done):
            self._take(operation, is_safe=at < last_sync.get(operation.path, -1))

    def write(self, origin: Path, folder: Path) -> None:
        """Lay the files out in another directory."""
        for path, content in self.files.items():
            target = folder / Path(path).relative_to(origin)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

    def _take(self, operation: DiskOperation, *, is_safe: bool) -> None:
        match operation.what:
            case "w":
                self._write(operation, is_safe=is_safe)
            case "t" if is_safe or self._chance.random() < 0.5:
                content = self.files.setdefault(operation.path, bytearray())
                del content[operation.offset :]
                content.extend(bytes(operation.offset - len(content)))
            case "u":
                self.files.pop(operation.path, None)
            case "r" if operation.path in self.files:
                self.files[operation.data.decode()] = self.files.pop(operation.path)

    def _write(self, operation: DiskOperation, *, is_safe: bool) -> None:
        for start in range(0, len(operation.data), SECTOR):
            if is_safe or self._chance.random() < 0.5:
                content = self.files.setdefault(operation.path, bytearray())
                first = operation.offset + start
                content.extend(bytes(max(0, first - len(content))))
                piece = operation.data[start : start + SECTOR]
                content[first : first + len(piece)] = piece
