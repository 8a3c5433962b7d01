"""Named queries, read from `sql/queries`. Python contains no SQL."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_FRAGMENT = re.compile(r"\{\{(\w+)\}\}")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")

DIALECTS = ("sqlite", "postgres")


@cache
def load(dialect: str) -> dict[str, str]:
    """Return every query of a dialect by name.

    A query that only the other database needs is an empty text, which a transaction does not run.
    """
    root = Path(__file__).parent / "sql" / "queries"
    common = _read(root)
    own = {each: _read(root / each) for each in DIALECTS}
    for queries in own.values():
        for doubled in common.keys() & queries.keys():
            raise RuntimeError(f"query {doubled!r} stands twice")
    absent = {name: "" for queries in own.values() for name in queries}
    texts = absent | common | own[dialect]
    return {name: _expand(text, texts) for name, text in texts.items()}


@cache
def load_for_psycopg() -> dict[str, str]:
    """The queries of PostgreSQL with psycopg's notation of parameters."""
    return {
        name: _PARAMETER.sub(r"%(\1)s", text.replace("%", "%%"))
        for name, text in load("postgres").items()
    }


@cache
def only_reading() -> frozenset[str]:
    """The names of PostgreSQL's queries that leave no trace but locks."""
    return frozenset(name for name, text in load("postgres").items() if text.startswith("SELECT"))


@cache
def foreign() -> dict[str, str]:
    """What may be asked of another program's file, by name."""
    return _read(Path(__file__).parent / "sql" / "foreign")


def parameters(text: str) -> set[str]:
    """The names a query wants."""
    return set(_PARAMETER.findall(text))


@cache
def order(dialect: str, name: str) -> tuple[str, ...]:
    """The names a query wants, in the order in which it first says them."""
    return tuple(dict.fromkeys(_PARAMETER.findall(load(dialect)[name])))


def pg_array_literal(numbers: Iterable[int]) -> str:
    """Return numbers as one parameter, in the form that `among_numbers` takes on both databases."""
    return f"{{{','.join(map(str, numbers))}}}"


def _read(folder: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        if not file.name.endswith(".sql"):
            continue
        pieces = _NAME.split(file.read_text(encoding="utf-8"))[1:]
        for name, text in zip(pieces[::2], pieces[1::2], strict=True):
            if name in found:
                raise RuntimeError(f"query {name!r} stands twice")
            found[name] = _without_comments(text)
    return found


def _without_comments(text: str) -> str:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(lines).strip().rstrip(";")


def _expand(text: str, texts: dict[str, str]) -> str:
    """Replace {{name}} by the query of that name: shared lists of columns."""
    while _FRAGMENT.search(text):
        text = _FRAGMENT.sub(lambda found: texts[found[1]], text)
    return text
