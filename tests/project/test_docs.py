"""Links lead somewhere, examples run, and generated parts of the pages are current."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from sessionary import errors
from sessionary.actions import turns
from sessionary.actions.retention import purge
from sessionary.actions.sessions import edit, lists, log
from sessionary.agents.demo import SCENES, Says
from sessionary.channels import registry
from sessionary.client.operations import LEASE_SECONDS
from sessionary.clock import RandomIds, SystemClock
from sessionary.config.reader import settings_of
from sessionary.model import title
from sessionary.model.message import MAX_SEQ
from sessionary.model.turn import ArrivalState, DeliveryState, TurnState
from sessionary.store import migrations
from sessionary.store.database import Tx
from sessionary.store.open import open_store
from sessionary.store.postgres.store import CONNECTIONS
from sessionary.store.sqlite.store import WAIT_SECONDS
from sessionary.store.tables import blobs, entries
from tests.project.code import ROOT, Module, modules
from tools import schema_page, settings_page

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def rows(name: str) -> list[list[str]]:
    """The rows of all tables of a page, heads and rules left out."""
    lines = [line for line in read(name).splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if row[0] not in {"what", "error"}]


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESSIONARY_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SESSIONARY_DATABASE", raising=False)


def run_examples(text: str, name: str) -> None:
    """Run all Python blocks of a text, one after the other, with shared names."""
    names: dict[str, object] = {"__name__": "example"}
    examples = EXAMPLE.findall(text)
    assert examples
    for number, example in enumerate(examples, 1):
        exec(compile(example, f"{name} example {number}", "exec"), names)


def anchors(page: Path) -> set[str]:
    headings = HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_schema_page_is_what_the_migrations_say() -> None:
    assert read("internals/schema.md") == schema_page.page(read("internals/schema.md")), (
        "run ./dev schema"
    )


def test_the_tables_of_settings_and_the_example_are_what_the_code_declares() -> None:
    guides = {path: path.read_text(encoding="utf-8") for path in settings_page.GUIDES}
    made = {
        settings_page.PAGE: settings_page.page(),
        settings_page.EXAMPLE: settings_page.example(),
    } | {path: settings_page.guide(text) for path, text in guides.items()}
    channels = {f"channels.{path.stem}" for path in settings_page.GUIDES if path.stem != "agents"}
    shown = set(re.findall(r"<!-- settings of (\S+) -->", "".join(guides.values())))

    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, (
            "run .venv/bin/python -m tools.settings_page"
        )
    assert channels | {"agents.model", "agents.model.mcp", "agents.command", "agents.acp"} <= shown


@pytest.mark.parametrize("platform", sorted(path.stem for path in (DOCS / "channels").iterdir()))
def test_the_page_of_a_channel_has_all_its_settings(platform: str) -> None:
    text = read(f"channels/{platform}.md")
    declared = settings_of(registry.CHANNELS.load(platform).settings)

    assert [each.name for each in declared if each.name not in text] == []


def test_the_schema_page_reads_migrations_as_sqlite_does() -> None:
    store = open_store("sqlite::memory:", create=True, clock=SystemClock(), ids=RandomIds())
    read_by_us = schema_page.tables([step.text for step in migrations.known("sqlite")])

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
    diagrams = "".join(re.findall(r"```mermaid\n(.*?)```", read("internals/schema.md"), re.DOTALL))

    assert re.search(rf"--> {state}\b", diagrams)


@pytest.mark.parametrize(
    "page", [DOCS / "python.md", ROOT / "README.md"], ids=lambda page: page.name
)
@pytest.mark.usefixtures("empty_home")
def test_the_examples_run(page: Path) -> None:
    run_examples(page.read_text(encoding="utf-8"), page.name)


@pytest.mark.usefixtures("empty_home")
def test_the_code_that_the_demo_agent_shows_runs() -> None:
    shown = [act.text for scene in SCENES for act in scene.acts if isinstance(act, Says)]

    run_examples("\n".join(shown), "demo agent")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    lost = []
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if "://" in target:
            continue
        if not file.exists() or (anchor and anchor not in anchors(file)):
            lost.append(target)

    assert lost == []


def test_every_page_is_in_an_index() -> None:
    listed = {
        (index.parent / target).resolve()
        for index in DOCS.rglob("README.md")
        for target in LINK.findall(index.read_text(encoding="utf-8"))
    }

    assert set(DOCS.rglob("*.md")) - listed - {DOCS / "README.md"} == set()


def _has_errors(module: Module) -> bool:
    """Whether a module has classes below those of `errors`."""
    bases = [
        base.id
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if isinstance(base, ast.Name)
    ]
    return any(hasattr(errors, base) for base in bases)


def test_every_error_is_explained() -> None:
    # Whatever other tests have loaded.
    for module in filter(_has_errors, modules()):
        importlib.import_module(module.name)
    direct = errors.SessionaryError.__subclasses__()
    below = [each for one in direct for each in one.__subclasses__()]
    # The benchmarks have errors of their own.
    tree = [each for each in (*direct, *below) if each.__module__.startswith("sessionary.")]
    explained = {(row[0], row[1]) for row in rows("operate.md")}

    missing = [one for one in tree if (f"`{one.__name__}`", f"`{one.kind}`") not in explained]

    assert missing == []


@pytest.mark.parametrize(
    ("what", "limit"),
    [
        ("a message, as JSON", f"{entries.MAX_BODY // 2**20} MiB"),
        ("entries in a session", f"{MAX_SEQ:,}"),
        ("a title", f"{title.MAX_TITLE} characters"),
        ("a preview", f"{title.MAX_PREVIEW} characters"),
        ("a label", f"{edit.MAX_LABEL} characters"),
        ("a draft", f"{edit.MAX_DRAFT:,} characters"),
        ("an idempotency key", f"{log.MAX_IDEMPOTENCY_KEY} characters"),
        ("a page of a list or transcript", f"{lists.MAX_LIMIT:,} items"),
        ("messages that one turn takes", f"{turns.MOST_ARRIVALS}"),
        ("a text stored inside its entry", f"{blobs.LARGE // 1024} KiB"),
        ("days in the trash", f"{purge.TRASH_DAYS}"),
        ("the lease of a turn, in Python", f"{LEASE_SECONDS:.0f} s"),
        ("waiting for the write lock", f"{WAIT_SECONDS:.0f} s"),
        ("connections to PostgreSQL", f"{CONNECTIONS} per process"),
    ],
)
def test_every_limit_is_as_the_code_has_it(what: str, limit: str) -> None:
    shown = {row[0]: row[1] for row in rows("operate.md")}

    assert re.match(rf"{re.escape(limit)}(\W|$)", shown[what])
