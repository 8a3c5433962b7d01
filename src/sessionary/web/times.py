"""Times as callers write them: RFC 3339, with a zone."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from sessionary.errors import BadInput

TimeQuery = Annotated[
    str | None,
    Field(json_schema_extra={"format": "date-time"}, description="RFC 3339, with a zone."),
]
_FIRST, _LAST = 1900, 9000


def parse_time(text: str | None) -> datetime | None:
    """The time that a text names."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInput("A time is written like 2026-11-15T09:30:00Z.") from error
    if found.tzinfo is None or not _FIRST <= found.year <= _LAST:
        raise BadInput("A time is written like 2026-11-15T09:30:00Z, with its zone.")
    return found
