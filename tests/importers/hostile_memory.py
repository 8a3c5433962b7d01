"""Reads places of several formats; prints after each how many MiB the process has held at most."""

import resource
import sys
import time
from pathlib import Path

from sessionary.errors import BadInput
from sessionary.importers import registry


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
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        sys.stdout.write(f"{name} {time.monotonic() - begun:.1f} s {most}\n")


main(Path(sys.argv[1]), sys.argv[2:])
