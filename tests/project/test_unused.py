"""No SQL query is left that nothing uses."""

import re
from pathlib import Path

from sessionary.store import queries
from tests.project.code import modules

FOLDER = Path(queries.__file__).parent / "sql" / "queries"
# Asked by tests alone: what packs take.
OF_TESTS = {"size_of_packs"}

NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
PIECE = re.compile(r"\{\{(\w+)\}\}")
WRITTEN = re.compile(r'"(\w+)"')
# A name that is put together: `f"copy_page_{table}"`, or taken apart: `"copy_key_"`.
BEGUN = re.compile(r'"(\w+_)[{"]')


def test_every_query_is_asked_by_the_program_or_is_a_piece_of_one() -> None:
    files = [file.read_text(encoding="utf-8") for file in FOLDER.rglob("*.sql")]
    names = {name for text in files for name in NAME.findall(text)}
    pieces = {name for text in files for name in PIECE.findall(text)}
    written = {name for module in modules() for name in WRITTEN.findall(module.text)}
    begun = tuple(name for module in modules() for name in BEGUN.findall(module.text))

    left = names - pieces - written
    assert {name for name in left if not name.startswith(begun)} == OF_TESTS
