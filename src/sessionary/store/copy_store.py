"""Copy a whole store into another database, row by row with all its numbers, and compare both.

The copy is the same store: it keeps the identity, and its generation is one higher, so that an index
or a reader of the feed begins again. Until the copy is complete and compared, the target is marked
and `open_store` refuses it; an interrupted copy continues where it stopped. Nobody may write to the
source meanwhile: the comparison at the end would find the difference.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from sessionary.errors import Conflict
from sessionary.model import codec
from sessionary.store import queries
from sessionary.store.database import Row, Store, Tx
from sessionary.store.sqlite import db_file
from sessionary.store.sqlite.store import SqliteStore
from sessionary.store.tables.meta import PUSH_KEY, REDACTION_SALT
from sessionary.store.tables.meta import get as get_meta

# Tables that describe the store itself, or are derived from the others.
NOT_COPIED = frozenset({"meta", "schema_migrations", "session_orders"}) | {
    "search_state",
    "search_taken",
    "search_docs",
    "search_titles",
    "search_blocks",
    "search_places",
}
# Named values that a copy keeps: the same people are hidden in the same way, and browsers stay subscribed.
KEPT = (REDACTION_SALT, PUSH_KEY)
MARKER = "copy"
GENERATION = "generation"
PAGE = 500
PAGE_BYTES = 4 * 1024 * 1024
# Tables with rows of any size: a page of them is measured before it is read.
LARGE = frozenset({"blobs", "checkpoints", "checkpoint_values", "checkpoint_writes", "stored_runs"})
_LEAST = {"INTEGER": -(2**62), "TEXT": ""}

T = TypeVar("T")


class CopyReport(Struct, frozen=True):
    """What was copied: rows by table."""

    store_id: str
    generation: int
    rows: Mapping[str, int]
    resumed: bool = False


class ReadPage(Protocol):
    """How a copy reads its source: each page in its own transaction, or all on one snapshot."""

    def __call__(self, action: Callable[..., T], /, *args: Any) -> T: ...


class CopiedTable(Struct, frozen=True):
    """A table to copy: its columns, the key by which it is read, and the key's smallest value."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    least: tuple[Any, ...]

    def key_of(self, row: Row) -> list[Any]:
        """The key of a row."""
        return [row[self.columns.index(name)] for name in self.key]


def copy_store(
    source: Store,
    target: Store,
    *,
    progress: Callable[[str, int], None] = lambda table, rows: None,  # noqa: ARG005
) -> CopyReport:
    """Copy everything into an empty target, or continue a copy of the same source."""
    running = source.read(_count_running).result()
    if running:
        raise Conflict(
            f"{running} turns are running in the source; nothing was copied. Stop it first."
        )
    return copy_rows(_reader(source), target, progress=progress, generations=1)


def copy_rows(
    read: ReadPage,
    target: Store,
    *,
    progress: Callable[[str, int], None],
    generations: int,
) -> CopyReport:
    """Copy what `read` sees; the copy's generation is `generations` above the source's."""
    store_id = read(get_meta, "store_id")
    assert store_id is not None
    kept = {name: value for name in KEPT if (value := read(get_meta, name)) is not None}
    resumed = target.write(_begin, store_id).result()
    done: dict[str, int] = {}
    for table in tables():
        done[table.name] = _copy_table(read, target, table, progress)
    after = 0
    while late := read(_late_parents, after):
        target.write(_set_parents, late).result()
        after = late[-1][0]
    for table in tables():
        progress(f"{table.name} (check)", done[table.name])
        if _digest(read, table) != _digest(_reader(target), table):
            raise Conflict(
                f"The {table.name} of the source changed while they were copied: the copy is not "
                "whole and stays unusable. Stop what uses the source, empty the target, try again."
            )
    generation = int(read(get_meta, GENERATION) or 0) + generations
    _finish(target, store_id, generation, kept)
    return CopyReport(store_id, generation, done, resumed)


@cache
def tables() -> tuple[CopiedTable, ...]:
    """Every table that is copied, those that others refer to first."""
    texts = queries.load("sqlite")
    found = []
    for name in texts:
        if name.startswith("copy_key_"):
            table = name.removeprefix("copy_key_")
            key = [column.split(" ") for column in texts[name].split(", ")]
            found.append(
                CopiedTable(
                    table,
                    tuple(texts[f"copy_columns_{table}"].split(", ")),
                    tuple(column for column, _ in key),
                    tuple(_LEAST[kind] for _, kind in key),
                )
            )
    return tuple(found)


def _begin(tx: Tx, store_id: str) -> bool:
    """Mark the target as an unfinished copy; say whether it was one already."""
    marker = get_meta(tx, MARKER)
    if marker is not None:
        if codec.decode(marker)["source"] != store_id:
            raise Conflict("The target is half a copy of another store; it was left as it is.")
        return True
    if tx.one("has_content") is not None:
        raise Conflict("The target is not empty; it was left as it is. Name an empty database.")
    _mark(tx, {"source": store_id, "tables": {}})
    return False


def _copy_table(
    read: ReadPage, target: Store, table: CopiedTable, progress: Callable[[str, int], None]
) -> int:
    after, rows = target.read(_progress_of, table).result()
    while page := read(_page, table, after):
        after, rows = table.key_of(page[-1]), rows + len(page)
        target.write(_put, table, page, after, rows).result()
        progress(table.name, rows)
    return rows


def _progress_of(tx: Tx, table: CopiedTable) -> tuple[list[Any], int]:
    """The key where the copy of a table stopped, and how many rows it has."""
    marker = get_meta(tx, MARKER)
    assert marker is not None
    after, rows = codec.decode(marker)["tables"].get(table.name) or (list(table.least), 0)
    return after, rows


def _page(tx: Tx, table: CopiedTable, after: list[Any]) -> list[Row]:
    beyond = {f"after_{name}": value for name, value in zip(table.key, after, strict=True)}
    limit = _page_size(tx, table.name, beyond) if table.name in LARGE else PAGE
    return tx.all(f"copy_page_{table.name}", limit=limit, **beyond)


def _page_size(tx: Tx, table: str, beyond: Mapping[str, Any]) -> int:
    """How many rows fit in memory together; at least one."""
    room = PAGE_BYTES
    count = 0
    for (size,) in tx.all(f"copy_sizes_{table}", limit=PAGE, **beyond):
        room -= size
        if room < 0:
            break
        count += 1
    return max(1, count)


def _put(tx: Tx, table: CopiedTable, page: list[Row], after: list[Any], rows: int) -> None:
    """Write a page, and note how far the copy has come, in one transaction."""
    named = [dict(zip(table.columns, row, strict=True)) for row in page]
    if table.name == "sessions":
        for row in named:
            if row["parent_no"] is not None and row["parent_no"] > row["no"]:
                row["parent_no"] = row["lineage"] = None  # its parent is not there yet
    tx.many(f"copy_row_{table.name}", named)
    marker = codec.decode(get_meta(tx, MARKER) or "")
    marker["tables"][table.name] = [after, rows]
    _mark(tx, marker)


def _late_parents(tx: Tx, after: int) -> list[Row]:
    return tx.all("late_parents", after=after, limit=PAGE)


def _set_parents(tx: Tx, late: list[Row]) -> None:
    for no, parent_no, lineage in late:
        tx.run("set_parent", no=no, parent_no=parent_no, lineage=lineage)


def _digest(read: ReadPage, table: CopiedTable) -> tuple[int, str]:
    """How many rows a table has, and a hash of all that is in them."""
    total = hashlib.sha256()
    count = 0
    for row in _rows(read, table):
        plain = [hashlib.sha256(v).hexdigest() if isinstance(v, bytes) else v for v in row]
        total.update(codec.encode(plain).encode() + b"\n")
        count += 1
    return count, total.hexdigest()


def _rows(read: ReadPage, table: CopiedTable) -> Iterator[Row]:
    after = list(table.least)
    while page := read(_page, table, after):
        yield from page
        after = table.key_of(page[-1])


def _reader(store: Store) -> ReadPage:
    def read(action: Callable[..., T], /, *args: Any) -> T:
        return store.read(action, *args).result()

    return read


def _finish(target: Store, store_id: str, generation: int, kept: Mapping[str, str]) -> None:
    """Give the copy its identity and remove the mark."""
    path = target.path if isinstance(target, SqliteStore) else db_file.MEMORY
    if path != db_file.MEMORY:
        # After a crash between these steps the file is missing, and the next start writes it.
        db_file.identity_file(path).unlink(missing_ok=True)
    target.write(_close, store_id, generation, kept).result()
    if path != db_file.MEMORY:
        db_file.write_identity(path, store_id)


def _close(tx: Tx, store_id: str, generation: int, kept: Mapping[str, str]) -> None:
    tx.all("restart_numbers")
    tx.run("set_meta", name="store_id", value=store_id)
    tx.run("set_meta", name=GENERATION, value=str(generation))
    for name, value in kept.items():
        tx.run("set_meta", name=name, value=value)
    tx.run("delete_meta", name=MARKER)


def _mark(tx: Tx, marker: dict[str, Any]) -> None:
    tx.run("set_meta", name=MARKER, value=codec.encode(marker))


def _count_running(tx: Tx) -> int:
    row = tx.one("count_running")
    return 0 if row is None else row[0]
