"""A store on a PostgreSQL server, filled at once with all that a store in a file has.

The rows are those that the store's own actions wrote into the file, so the copy is a store that
`verify` accepts. One COPY for each table takes 6 to 20 µs a row; the same actions on the server
would take a millisecond for each message.
"""

from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.texts import sql
from sessionary.store.copy_store import tables
from sessionary.store.database import Store
from sessionary.store.sqlite import db_file


def fill(target: Store, connection: Any, source: Path) -> None:
    """Copy every table of the file into the empty target; `connection` commits by itself."""
    with closing(db_file.connect_reader(str(source))) as file:
        for table in tables():
            names = {"some_columns": ", ".join(table.columns), "some_table": table.name}
            rows: Any = file.execute(_named("rows_of_file", names))
            with connection.cursor() as cursor, cursor.copy(_named("copy_in", names)) as copy:
                for row in rows:
                    copy.write_row(row)
    # As a server does in time: statistics for the planner, and no first look at every row for the measured work.
    connection.execute(sql()["vacuum"])
    connection.execute(sql()["checkpoint"])
    target.write(lambda tx: tx.all("restart_numbers")).result()


def _named(name: str, names: dict[str, str]) -> str:
    text = sql()[name]
    for placeholder, value in names.items():
        text = text.replace(placeholder, value)
    return text
