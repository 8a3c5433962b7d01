"""What an import finds, tells and reports, with every field: a test names those that it means."""

from collections.abc import Sequence

from sessionary.web.context import FaultInfo, FoundRecords, ImportOutcome, ImportProgressInfo


def found_records(
    tool: str = "sample", *, place: str = "somewhere", units: int = 2, new_units: int = 2
) -> FoundRecords:
    return {
        "tool": tool,
        "title": tool.title(),
        "place": place,
        "units": units,
        "bytes": 20,
        "new_units": new_units,
        "new_bytes": 10,
        "expiring": 0,
        "expires_at": None,
    }


def import_progress(tool: str = "sample", *, read: int = 1) -> ImportProgressInfo:
    return {
        "tool": tool,
        "place": "a",
        "bytes": read,
        "all_bytes": 2,
        "sessions": 1,
        "messages": 1,
    }


def import_outcome(
    tool: str = "sample", *, added: int = 0, skipped: int = 0, faults: Sequence[FaultInfo] = ()
) -> ImportOutcome:
    return {
        "tool": tool,
        "title": tool.title(),
        "places": [],
        "units": 0,
        "imported_units": 0,
        "unchanged_units": 0,
        "omitted_units": 0,
        "omissions": [],
        "added": added,
        "extended": 0,
        "unchanged": 0,
        "messages": 0,
        "bytes": 0,
        "skipped": skipped,
        "faults": [*faults],
        "left_out": {},
        "wordless": [],
        "held_back": 0,
        "held_back_until": None,
        "notes": [],
    }
