"""Named queries, read from `sql/queries`. Python contains no SQL."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
# Every line that is a comment, but for those with a name; each command reads all queries.
_COMMENT = re.compile(r"^[ \t]*--(?! name: \w+$).*(?:\n|\Z)", re.MULTILINE)
_FRAGMENT = re.compile(r"\{\{(\w+)\}\}")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")

DIALECTS = ("sqlite", "postgres")


@cache
def load(dialect: str) -> dict[str, str]:
    """Return every query of a dialect by name.

    A query or a part of one that only the other database needs is empty; a transaction skips it.
    """
    root = Path(__file__).parent / "sql" / "queries"
    common = _read(root)
    own = {each: _read(root / each) for each in DIALECTS}
    for queries in own.values():
        for doubled in common.keys() & queries.keys():
            raise RuntimeError(f"query {doubled!r} is defined twice")
    absent = {name: "" for queries in own.values() for name in queries}
    texts = absent | common | own[dialect]
    return {name: _expand(text, texts) for name, text in texts.items()}


@cache
def load_for_psycopg() -> dict[str, str]:
    """The queries of PostgreSQL with parameters in psycopg's notation."""
    return {
        name: _PARAMETER.sub(r"%(\1)s", text.replace("%", "%%"))
        for name, text in load("postgres").items()
    }


@cache
def only_reading() -> frozenset[str]:
    """The names of PostgreSQL's queries that change nothing; they may take locks."""
    return frozenset(name for name, text in load("postgres").items() if text.startswith("SELECT"))


@cache
def external() -> dict[str, str]:
    """The queries for another program's file, by name."""
    return _read(Path(__file__).parent / "sql" / "external")


def parameters(text: str) -> set[str]:
    """The names of a query's parameters."""
    return set(_PARAMETER.findall(text))


@cache
def order(dialect: str, name: str) -> tuple[str, ...]:
    """The names of a query's parameters, in the order of their first use."""
    return tuple(dict.fromkeys(_PARAMETER.findall(load(dialect)[name])))


def pg_array_literal(numbers: Iterable[int]) -> str:
    """Return numbers as one parameter, in the form that `among_numbers` takes on both databases."""
    return f"{{{','.join(map(str, numbers))}}}"


def _read(folder: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        if not file.name.endswith(".sql"):
            continue
        pieces = _NAME.split(_COMMENT.sub("", file.read_text(encoding="utf-8")))[1:]
        for name, text in zip(pieces[::2], pieces[1::2], strict=True):
            if name in found:
                raise RuntimeError(f"query {name!r} is defined twice")
            found[name] = text.strip().rstrip(";")
    return found


def _expand(text: str, texts: dict[str, str]) -> str:
    """Replace {{name}} by the text of that name, such as a list of columns."""
    while "{{" in text:
        text = _FRAGMENT.sub(lambda found: texts[found[1]], text)
    return text
