"""Opening a store: from a URL to a database with the right schema."""

import os
import re
from typing import Any

import apsw

from sessionary.clock import Clock, Ids, to_micros
from sessionary.errors import BadInput, StoreUnavailable
from sessionary.store import migrations
from sessionary.store.database import Store, Tx
from sessionary.store.sqlite import db_file
from sessionary.store.sqlite.db_file import SqliteTx, translate
from sessionary.store.sqlite.store import WAIT_SECONDS, SqliteStore
from sessionary.store.tables import meta

_SCHEME = re.compile(r"^([a-z][a-z0-9+.-]*):", re.IGNORECASE)


def sqlite_path(url: str) -> str | None:
    """The file a URL names, or None when it names a PostgreSQL server."""
    scheme = _SCHEME.match(url)
    if scheme is None:
        if not url.strip():
            raise BadInput("An empty address names no file: write sqlite:///path.")
        return url
    match scheme[1].lower():
        case "sqlite":
            rest = url[len("sqlite:") :]
            path = rest[3:] if rest.startswith("///") else rest
            if not path or path.startswith("//"):
                raise BadInput(
                    f"{url!r} names no file: write sqlite:///path or sqlite:////absolute/path."
                )
            return path
        case "postgresql" | "postgres":
            return None
    raise BadInput(f"Unknown database {scheme[1]!r}: use sqlite:///path or postgresql://…")


def open_store(
    url: str, *, create: bool, clock: Clock, ids: Ids, half_copied: bool = False
) -> Store:
    """Open the store at the URL and migrate its schema. Without `create` nothing is made.

    An unfinished copy is refused, unless the caller is about to finish it (`half_copied`).
    """
    now = clock.now()
    facts: dict[str, Any] = {"now_micros": to_micros(now), "store_id": ids.new(now)}
    path = sqlite_path(url)
    if path is None:
        return _open_postgres(url, create=create, facts=facts, half_copied=half_copied)
    if path != db_file.MEMORY:
        # One name for one file, whatever links lead to it and whatever the directory is later.
        path = os.path.realpath(path)
    store = SqliteStore(path)
    if path == db_file.MEMORY:
        store.write(migrations.apply, "sqlite", **facts).result()
    else:
        _prepare_file(path, create=create, facts=facts, half_copied=half_copied)
    return store


def _prepare_file(path: str, *, create: bool, facts: dict[str, Any], half_copied: bool) -> None:
    try:
        there = db_file.is_there(path, create=create)
        if not there or not _is_current(path, create=create, half_copied=half_copied):
            _make_current(path, create=create, facts=facts, half_copied=half_copied)
    except apsw.Error as error:
        raise translate(error, path) from error


def _make_current(path: str, *, create: bool, facts: dict[str, Any], half_copied: bool) -> None:
    """Create or migrate the file. Programs that start at once do so one after the other."""
    try:
        with db_file.write_lock(path, WAIT_SECONDS):
            if not db_file.is_there(path, create=create):
                db_file.create(path)
            if not _is_current(path, create=create, half_copied=half_copied):
                _migrate_file(path, facts, create=create)
    except OSError as error:
        raise StoreUnavailable(
            f"Cannot write beside {path}: {error.strerror}. Nothing was changed."
        ) from error


def _is_current(path: str, *, create: bool, half_copied: bool) -> bool:
    connection = db_file.connect_reader(path)
    try:
        tx = SqliteTx(connection)
        if create and db_file.is_unfinished(connection):
            return False
        db_file.check_is_ours(connection, path)
        if migrations.pending(tx, "sqlite"):
            return False
        if not half_copied:
            _refuse_half_copy(tx, path)
        _confirm(tx, path)
        return True
    finally:
        connection.close()


def _migrate_file(path: str, facts: dict[str, Any], *, create: bool) -> None:
    connection = db_file.connect_writer(path)
    try:
        if create and db_file.is_unfinished(connection):
            db_file.mark_as_ours(connection)
        db_file.check_is_ours(connection, path)
        tx = SqliteTx(connection)
        steps = migrations.pending(tx, "sqlite")
        if steps and tx.one("has_migrations") is not None:
            db_file.copy_aside(connection, f"{path}-before-{steps[0].name}")
        connection.execute("BEGIN IMMEDIATE")
        # On any failure the close below rolls back: killed half-way, nothing has happened.
        migrations.apply(tx, "sqlite", **facts)
        connection.execute("COMMIT")
        _confirm(tx, path)
    finally:
        connection.close()


def _confirm(tx: Tx, path: str) -> None:
    store_id = meta.get(tx, "store_id")
    if store_id is None:
        raise StoreUnavailable(f"{path} has no identity: it is not a Sessionary store, or damaged.")
    db_file.confirm_identity(path, store_id)


def _refuse_half_copy(tx: Tx, where: str) -> None:
    if meta.get(tx, "copy") is not None:
        raise StoreUnavailable(
            f"{where} is a copy of another store that is not whole; it was left as it is. "
            "Run `sessionary migrate` again to finish it."
        )


def _open_postgres(url: str, *, create: bool, facts: dict[str, Any], half_copied: bool) -> Store:
    try:
        # psycopg is an extra; without it a SQLite store opens 120 ms sooner.
        from sessionary.store.postgres.store import connect
    except ModuleNotFoundError as error:
        raise StoreUnavailable(
            "PostgreSQL needs an extra: install sessionary[postgres]."
        ) from error
    store = connect(url, create=create, facts=facts)
    try:
        if not half_copied:
            store.read(_refuse_half_copy, "This database").result()
    except BaseException:
        store.close()
        raise
    return store
