"""Other tools' records are read as they grow."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessionary import Sessionary
from sessionary.app import import_watch, server
from sessionary.app.imports import ImportProgress, ImportRequest, ToolImport
from sessionary.errors import SessionaryError, StoreUnavailable
from sessionary.importers.base import session_merger
from tests.importers.write_claude_code import Tape, new_uuid, text


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "mia"))
    (tmp_path / "sessionary").mkdir()
    (tmp_path / "sessionary" / "sessionary.toml").write_text('[imports]\nwatch = ["claude-code"]\n')
    return tmp_path / "mia"


@pytest.fixture
def client(home: Path, tmp_path: Path) -> Iterator[Sessionary]:
    with Sessionary(home=str(tmp_path / "sessionary")) as opened:
        yield opened


@pytest.fixture
def tape(home: Path) -> Tape:
    id = new_uuid()
    tape = Tape(home / ".claude" / "projects" / "-garden" / f"{id}.jsonl", id)
    tape.prompt("What grows in bed 3?")
    tape.write()
    return tape


def test_what_is_added_while_it_watches_is_read(client: Sessionary, tape: Tape) -> None:
    stop = threading.Event()
    reports: list[ToolImport] = []

    def on_import(outcome: ToolImport) -> None:
        reports.append(outcome)
        if len(reports) == 3:
            stop.set()
            return
        tape.answer(text(f"Answer {len(reports)}"))
        tape.write()

    import_watch.watch(
        client.app, [ImportRequest("claude-code", tape.path.parent)], stop=stop, on_import=on_import
    )

    assert [(each.added, each.messages) for each in reports] == [(1, 1), (0, 1), (0, 1)]


def test_an_import_is_left_in_the_middle_and_gone_on_with_later(
    client: Sessionary, tape: Tape, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_merger, "MAX_BATCH_ROWS", 1000)
    for number in range(1500):
        tape.prompt(f"Line {number} " + "x" * 300)
    tape.write()
    stop, request = threading.Event(), ImportRequest("claude-code", tape.path.parent)

    def interrupt(on_progress: ImportProgress) -> None:
        stop.set()

    import_watch.watch(
        client.app, [request], stop=stop, on_import=lambda _: None, on_progress=interrupt
    )
    after = [head.message_count for head in client.sessions().items]
    again = threading.Event()
    import_watch.watch(client.app, [request], stop=again, on_import=lambda _: again.set())

    assert after == []
    assert [head.message_count for head in client.sessions().items] == [1501]


def test_a_failure_is_reported_and_retried(client: Sessionary, tape: Tape) -> None:
    stop = threading.Event()
    failures: list[SessionaryError] = []

    def refuse(on_progress: ImportProgress) -> None:
        raise StoreUnavailable("the disk is away")

    def on_failure(error: SessionaryError) -> None:
        failures.append(error)
        stop.set()

    import_watch.watch(
        client.app,
        [ImportRequest("claude-code", tape.path.parent)],
        stop=stop,
        on_import=lambda _: None,
        on_progress=refuse,
        on_failure=on_failure,
    )

    assert [str(error) for error in failures] == ["the disk is away"]


async def test_serve_watches_what_the_configuration_names(client: Sessionary, tape: Tape) -> None:
    done, loop = asyncio.Event(), asyncio.get_running_loop()

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            loop.call_soon_threadsafe(done.set)

    importer = Heard()
    logger = logging.getLogger("sessionary.app.import_watch")
    logger.addHandler(importer)
    logger.setLevel(logging.INFO)
    try:
        async with server.import_watcher(client.app):
            await done.wait()
    finally:
        logger.removeHandler(importer)
        logger.setLevel(logging.NOTSET)

    assert len(client.sessions().items) == 1
