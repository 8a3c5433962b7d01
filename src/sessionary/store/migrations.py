"""Migrations: files applied by name, each in one transaction, with their checksum."""

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sessionary.errors import StoreUnavailable
from sessionary.store.database import Tx


class Migration(NamedTuple):
    """One step of the schema."""

    name: str
    text: str
    checksum: str


@cache
def known(dialect: str) -> tuple[Migration, ...]:
    """The migrations this program carries, in order."""
    folder = Path(__file__).parent / "sql" / "migrations" / dialect
    found = []
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        if file.name.endswith(".sql"):
            text = file.read_text(encoding="utf-8")
            found.append(Migration(file.name[:-4], text, hashlib.sha256(text.encode()).hexdigest()))
    return tuple(found)


def pending(tx: Tx, dialect: str) -> Sequence[Migration]:
    """What is still to be applied; refuses a schema that is newer than this program, or not as it was."""
    if tx.one("has_migrations") is None:
        return known(dialect)
    applied: dict[str, str] = dict(tx.all("list_migrations"))
    carried = {step.name: step for step in known(dialect)}
    newer = sorted(applied.keys() - carried.keys())
    if newer:
        raise StoreUnavailable(
            f"The store was made by a newer Sessionary (it has {newer[-1]}); it was left as it is. Update this program."
        )
    for name, checksum in applied.items():
        if carried[name].checksum != checksum:
            raise StoreUnavailable(
                f"The store's {name} is not the one this program knows; it was left as it is."
            )
    return [step for step in known(dialect) if step.name not in applied]


def apply(tx: Tx, dialect: str, *, now_micros: int, store_id: str) -> int:
    """Bring the schema up to date; say how many steps it took. Killed half-way, nothing has happened."""
    steps = pending(tx, dialect)
    if steps and tx.one("has_migrations") is None:
        tx.run("create_migrations")
    for step in steps:
        tx.script(step.text)
        tx.run("record_migration", name=step.name, checksum=step.checksum, applied_at=now_micros)
    tx.run("set_meta_once", name="store_id", value=store_id)
    return len(steps)
