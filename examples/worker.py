"""A worker that follows what changes, and goes on where it stopped: `python examples/worker.py position.txt`.

It prints each new message of every conversation. The position is stored after each change, so a change is handled at
least once.
"""

import argparse
from pathlib import Path

from sessionary import Change, Sessionary


def handle(change: Change) -> None:
    """Do something with a change."""
    if change.message is not None and change.session is not None:
        name = change.session.title or change.session_id
        print(f"{name}: {change.message.role}: {change.message.text}", flush=True)


def main() -> None:
    """Follow the feed of changes until there is nothing new for a while, or forever."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="where the position is stored")
    parser.add_argument("--database", default=None, help="a path or a URL")
    parser.add_argument("--quiet-seconds", type=float, default=None, help="stop after this long")
    given = parser.parse_args()
    file: Path = given.file
    database: str | None = given.database
    seconds: float | None = given.quiet_seconds

    position = int(file.read_text()) if file.exists() else 0
    with Sessionary(database) as s, s.subscribe(after=position, timeout=seconds) as changes:
        for change in changes:
            handle(change)
            file.write_text(str(change.position))


if __name__ == "__main__":
    main()
