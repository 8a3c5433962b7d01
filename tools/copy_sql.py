"""The queries of a copy, made from the schema: `python -m tools.copy_sql` writes them."""

from pathlib import Path

from sessionary.clock import RandomIds, SystemClock
from sessionary.store import copy_store
from sessionary.store.database import Tx
from sessionary.store.open import open_store
from sessionary.store.sqlite.db_file import SqliteTx

FILE = Path(copy_store.__file__).parent / "sql" / "queries" / "copy.sql"
# Every column of every table with its type, and its place in the primary key.
COLUMNS = """\
SELECT t.name, c.name, c.type, c.pk FROM sqlite_master t JOIN pragma_table_info(t.name) c
WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%' ORDER BY t.name, c.cid"""
REFERENCES = """\
SELECT t.name, f."table" FROM sqlite_master t JOIN pragma_foreign_key_list(t.name) f
WHERE t.type = 'table'"""
HEAD = """\
-- Every table, a page at a time by its key. Made from the schema by tools/copy_sql.py.
"""


def text() -> str:
    """What the file must say."""
    store = open_store("sqlite::memory:", create=True, clock=SystemClock(), ids=RandomIds())
    try:
        return store.read(_text).result()
    finally:
        store.close()


def _text(tx: Tx) -> str:
    assert isinstance(tx, SqliteTx)
    execute = tx.connection.execute
    known: dict[str, list[tuple[str, str, int]]] = {}
    for table, column, kind, place in execute(COLUMNS):
        known.setdefault(table, []).append((column, kind, place))
    references = {(table, other) for table, other in execute(REFERENCES) if table != other}
    wanted = sorted(known.keys() - copy_store.NOT_COPIED)
    ordered: list[str] = []
    while wanted:
        ready = [t for t in wanted if all(o in ordered for s, o in references if s == t)]
        ordered += ready
        wanted = [table for table in wanted if table not in ready]
    return HEAD + "".join(_queries(table, known[table]) for table in ordered)


def _queries(table: str, columns: list[tuple[str, str, int]]) -> str:
    names = [name for name, _, _ in columns]
    key = sorted((place, name, kind) for name, kind, place in columns if place)
    after = ", ".join(f":after_{name}" for _, name, _ in key)
    order = ", ".join(name for _, name, _ in key)
    kinds = ", ".join(f"{name} {kind}" for _, name, kind in key)
    beyond = f"({order}) > ({after})" if len(key) > 1 else f"{order} > {after}"
    values = ", ".join(f":{name}" for name in names)
    return f"""
-- name: copy_key_{table}
{kinds}

-- name: copy_columns_{table}
{", ".join(names)}

-- name: copy_page_{table}
SELECT {{{{copy_columns_{table}}}}} FROM {table} WHERE {beyond} ORDER BY {order} LIMIT :limit;

-- name: copy_row_{table}
INSERT INTO {table} ({{{{copy_columns_{table}}}}}) VALUES ({values});
"""  # noqa: S608


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
