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
class Deed:
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


def deeds(journal: Path) -> list[Deed]:
    """What was recorded, in order."""
    return list(_read(journal.read_bytes()))


def _read(record: bytes) -> Iterator[Deed]:
    at = 0
    while at + HEAD.size <= len(record):
        what, path_size, offset, size = HEAD.unpack_from(record, at)
        at += HEAD.size
        path = record[at : at + path_size].decode()
        at += path_size
        yield Deed(what.decode(), path, offset, record[at : at + size])
        at += size


class Disk:
    """The files as a power cut leaves them."""

    def __init__(self, done: Sequence[Deed], rng: random.Random) -> None:
        self._chance = rng
        self.files: dict[str, bytearray] = {}
        last_sync = {deed.path: at for at, deed in enumerate(done) if deed.what == "s"}
        for at, deed in enumerate(done):
            self._take(deed, is_safe=at < last_sync.get(deed.path, -1))

    def write(self, origin: Path, folder: Path) -> None:
        """Lay the files out in another directory."""
        for path, content in self.files.items():
            target = folder / Path(path).relative_to(origin)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

    def _take(self, deed: Deed, *, is_safe: bool) -> None:
        match deed.what:
            case "w":
                self._write(deed, is_safe=is_safe)
            case "t" if is_safe or self._chance.random() < 0.5:
                content = self.files.setdefault(deed.path, bytearray())
                del content[deed.offset :]
                content.extend(bytes(deed.offset - len(content)))
            case "u":
                self.files.pop(deed.path, None)
            case "r" if deed.path in self.files:
                self.files[deed.data.decode()] = self.files.pop(deed.path)

    def _write(self, deed: Deed, *, is_safe: bool) -> None:
        for start in range(0, len(deed.data), SECTOR):
            if is_safe or self._chance.random() < 0.5:
                content = self.files.setdefault(deed.path, bytearray())
                first = deed.offset + start
                content.extend(bytes(max(0, first - len(content))))
                piece = deed.data[start : start + SECTOR]
                content[first : first + len(piece)] = piece
