"""The documentation cannot lie about what a program can check."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from sessionary import errors
from sessionary.clock import RandomIds, SystemClock
from sessionary.model.arrival import ArrivalState
from sessionary.model.delivery import DeliveryState
from sessionary.model.turn import TurnState
from sessionary.store import migrate
from sessionary.store.database import Tx
from sessionary.store.opening import open_store
from tests.project.code import PACKAGE, ROOT
from tests.project.test_repository import NAMED, is_there
from tools import schema_page

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
DECISIONS = sorted((DOCS / "adr").glob("*.md"))

# The table of words that the house was planned with.
WORDS = """
Platform Channel Home Person Source Profile Agent Arrival Command SessionKey Isolation Binding
Session SessionHead Lineage Turn Lease Step Entry Part Transcript Context Surroundings Usage
ResetPolicy Hold Delivery Schedule Project Blob Hit Adapter Runner Store
receive open close bind resume begin append end interrupt reset fork compact retract deliver
redirect sweep finalize trash purge fold verify rebuild
"""
# Pages that are being written beside the ones that link to them.
EXPECTED = {"format.md"}

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
LIMIT = re.compile(r"`([\w/]+)\.(\w+) = ([\d.]+)`")


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def rows(name: str) -> list[list[str]]:
    """The rows of all tables of a page, heads and rules left out."""
    lines = [line for line in read(name).splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if row[0] not in {"word", "verb", "what", "error"}]


def words_explained() -> set[str]:
    return {word for row in rows("glossary.md") for word in row[0].split(", ")}


def public_classes(folder: Path) -> set[str]:
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in folder.glob("*.py"))
    classes = (node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    return {name for name in classes if not name.startswith("_")}


def anchors(page: Path) -> set[str]:
    headings = HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_class_of_the_model_is_in_the_glossary() -> None:
    assert public_classes(PACKAGE / "model") - words_explained() == set()


@pytest.mark.parametrize("word", WORDS.split())
def test_every_word_of_the_house_is_in_the_glossary(word: str) -> None:
    assert word in words_explained()


def test_the_glossary_explains_a_word_once() -> None:
    words = [word for row in rows("glossary.md") for word in row[0].split(", ")]

    assert [word for word in words if words.count(word) > 1] == []


def test_the_glossary_says_where_each_word_lives() -> None:
    homes = [row[-1] for row in rows("glossary.md")]

    assert [home for home in homes if home != "later" and not NAMED.search(home)] == []
    assert [name for home in homes for name in NAMED.findall(home) if not is_there(name)] == []


def test_the_schema_page_is_what_the_migrations_say() -> None:
    assert read("schema.md") == schema_page.page(read("schema.md")), "run ./dev schema"


def test_the_schema_page_reads_migrations_as_sqlite_does() -> None:
    store = open_store("sqlite::memory:", create=True, clock=SystemClock(), ids=RandomIds())
    read_by_us = schema_page.tables([step.text for step in migrate.known("sqlite")])

    def columns(tx: Tx) -> dict[str, list[str]]:
        return {name: _columns_of(tx, name) for name in read_by_us}

    in_sqlite = store.write(columns).result()
    store.close()

    assert {name: list(table.columns) for name, table in read_by_us.items()} == in_sqlite


def _columns_of(tx: Tx, table: str) -> list[str]:
    connection = getattr(tx, "_connection")  # noqa: B009
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


@pytest.mark.parametrize("text", ["DROP TABLE sessions;", "CREATE TABLE t (\n    !\n);"])
def test_the_schema_page_stops_at_what_it_cannot_show(text: str) -> None:
    with pytest.raises(ValueError, match=r"schema_page\.py cannot"):
        schema_page.tables([text])


@pytest.mark.parametrize("state", [*ArrivalState, *TurnState, *DeliveryState])
def test_every_state_is_in_a_diagram(state: str) -> None:
    diagrams = "".join(re.findall(r"```mermaid\n(.*?)```", read("schema.md"), re.DOTALL))

    assert re.search(rf"--> {state}\b", diagrams)


@pytest.mark.parametrize(
    "page", [DOCS / "python.md", ROOT / "README.md"], ids=lambda page: page.name
)
def test_the_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESSIONARY_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SESSIONARY_DATABASE", raising=False)
    names: dict[str, object] = {"__name__": "example"}

    examples = EXAMPLE.findall(page.read_text(encoding="utf-8"))

    assert examples
    for number, text in enumerate(examples, 1):
        exec(compile(text, f"{page.name} example {number}", "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    lost = []
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if "://" in target or file.name in EXPECTED:
            continue
        if not file.exists() or (anchor and anchor not in anchors(file)):
            lost.append(target)

    assert lost == []


def test_every_page_is_in_the_index() -> None:
    listed = {(DOCS / target).resolve() for target in LINK.findall(read("README.md"))}

    assert {page for page in DOCS.rglob("*.md") if page.name != "README.md"} - listed == set()


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.name[:4])
def test_a_decision_says_what_was_rejected_on_one_page(page: Path) -> None:
    text = page.read_text(encoding="utf-8")

    assert HEADING.findall(text)[1:] == ["Context", "Decision", "Rejected", "Consequences"]
    assert text.startswith(f"# {page.name[:4]} ")
    assert len(text.splitlines()) <= 40


def test_every_error_is_explained() -> None:
    direct = errors.SessionaryError.__subclasses__()
    tree = [*direct, *(below for one in direct for below in one.__subclasses__())]
    explained = {(row[0], row[1]) for row in rows("operate.md")}

    missing = [one for one in tree if (f"`{one.__name__}`", f"`{one.kind}`") not in explained]

    assert missing == []


def test_every_limit_is_as_the_code_has_it() -> None:
    limits = LIMIT.findall(read("operate.md"))
    modules = {path: f"sessionary.{path.replace('/', '.')}" for path, _, _ in limits}

    said = {(path, name): value for path, name, value in limits}
    real = {
        (path, name): str(getattr(importlib.import_module(modules[path]), name))
        for path, name, _ in limits
    }

    assert said
    assert said == real
