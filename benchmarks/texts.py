"""The SQL of floors and peers, by name. Python contains no SQL."""

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def sql() -> dict[str, str]:
    """Every statement of `sql/raw.sql`."""
    text = (files("benchmarks") / "sql" / "raw.sql").read_text(encoding="utf-8")
    pieces = _NAME.split(text)[1:]
    return dict(zip(pieces[::2], pieces[1::2], strict=True))
