"""Damaged files, and databases with a wrong value."""

import contextlib
import random
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

from sessionary.testing.importer_world import check_damaged, spoilt_json


def spoil_cell(path: Path, rng: random.Random) -> None:
    """Replace a value in a database."""
    base = sqlite3.connect(path)
    with base:
        tables = [
            name
            for (name,) in base.execute("SELECT name FROM sqlite_schema WHERE type='table'")
            if "_fts" not in name
        ]
        table = rng.choice(tables)
        rows = base.execute(f'SELECT rowid, * FROM "{table}"').fetchall()
        columns = [row[1] for row in base.execute(f"PRAGMA table_info('{table}')")]
        if rows:
            row, column = rng.choice(rows), rng.randrange(len(columns))
            value = _spoilt_cell(row[column + 1], rng)
            # A number that is the row's own can be nothing else.
            with contextlib.suppress(sqlite3.IntegrityError):
                base.execute(
                    f'UPDATE OR IGNORE "{table}" SET "{columns[column]}"=? WHERE rowid=?',
                    (value, row[0]),
                )
    base.close()


def _spoilt_cell(value: Any, rng: random.Random) -> Any:
    try:
        return spoilt_json(value, rng)
    except (ValueError, TypeError):
        return rng.choice([None, -1, 1.5, "x", "\x00", b"\xff\xfe", "[]", '{"a":[1]}', 2**53])


survives = partial(check_damaged, database=spoil_cell)
