"""Reads places of several formats; prints after each how many MiB the process has held at most."""

import re
import sys
import time
from pathlib import Path

from sessionary.errors import BadInput
from sessionary.importers import registry


def most_mib() -> int:
    """The most this process has held. Not `ru_maxrss`: that begins with what its parent held."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) // 1024


def main(root: Path, names: list[str]) -> None:
    for name in names:
        begun = time.monotonic()
        importer = registry.importer(name)
        try:
            for place in (root / name, *(root / name).rglob("User")):
                for unit in importer.find(place):
                    try:
                        for _ in importer.read(unit, None):
                            pass
                    except BadInput:
                        pass
        except BadInput:
            pass
        sys.stdout.write(f"{name} {time.monotonic() - begun:.1f} s {most_mib()}\n")


main(Path(sys.argv[1]), sys.argv[2:])
