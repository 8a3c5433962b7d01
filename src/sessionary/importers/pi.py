"""Pi, and Oh-My-Pi: one file of JSON lines a session."""

from collections.abc import Iterator
from pathlib import Path

from sessionary.errors import BadInput
from sessionary.formats import shape
from sessionary.importers import files
from sessionary.importers.base import Event, Json, Mark, Resume, Skipped, Unit, Where
from sessionary.importers.json_lines import lines
from sessionary.importers.pi_events import Events, is_header


class Pi:
    """Reads the sessions of Pi."""

    name = "pi"
    title = "Pi"

    def places(self, where: Where) -> list[Path]:
        """The directories of its sessions."""
        agent = where.path("PI_CODING_AGENT_DIR", ".pi/agent")
        return [
            where.path("PI_CODING_AGENT_SESSION_DIR", str(agent / "sessions")),
            where.home / ".omp/agent/sessions",
        ]

    def recognises(self, path: Path) -> bool:
        """Whether the first line is a session's."""
        return path.suffix == ".jsonl" and header_of(path) is not None

    def find(self, place: Path) -> Iterator[Unit]:
        """One unit a file, the oldest first: a copy comes after its original."""
        found = [place] if files.is_file(place) else files.walk(place, suffixes=(".jsonl",))
        for path in sorted(found, key=lambda each: (each.name, each)):
            yield Unit(str(path), path, files.stamp_of(path), files.size_of(path))

    def read(self, unit: Unit, resume: Resume | None) -> Iterator[Event]:
        """The session of a file."""
        header = header_of(unit.path)
        if header is None:
            raise BadInput(f"{unit.path} does not begin as a session of Pi does.")
        note = None if resume is None else resume.note
        events = Events(self.name, header, otherwise=files.changed_at(unit.path), note=note)
        yield from events.begin(header["id"])
        yield from read_lines(events, unit.path, resume)


def header_of(path: Path) -> Json | None:
    """The first line of a session's file; None when it is something else."""
    first = files.head(path, 64 * 1024).partition(b"\n")[0]
    found = shape.parsed(first.removeprefix(b"\xef\xbb\xbf"))
    return found if is_header(found) else None


def read_lines(events: Events, path: Path, resume: Resume | None) -> Iterator[Event]:
    """The events of a file, from where the last reading ended."""
    start = 0 if resume is None else resume.place
    yield Mark(place=start, note=events.note)
    with files.opened(path) as file:
        for line in lines(file, start):
            if line.data is None:
                yield Skipped(where=f"byte {line.start}", why=line.why or "")
            else:
                yield from events.take(line.data)
            yield Mark(place=line.end, note=events.note)


IMPORTER = Pi()
