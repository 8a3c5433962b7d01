"""Backups, checks and shrinking over HTTP: for the owner alone, one at a time, with progress events."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from sessionary import Sessionary
from sessionary.actions.retention import purge
from sessionary.app.server import WebUpkeep
from sessionary.config.server import WebSettings
from sessionary.model.access import Scope
from sessionary.store import backup
from tests.web.conftest import Client, Served, served
from tests.web.test_sessions import opened


@pytest.fixture
def store_client(tmp_path: Path) -> Iterator[Sessionary]:
    with Sessionary(home=str(tmp_path / "home"), create=True) as made:
        yield made


@pytest.fixture
async def kept(store_client: Sessionary, tmp_path: Path) -> AsyncIterator[Served]:
    """A server that looks after its store, and keeps two backups."""
    folder = tmp_path / "safe"
    upkeep = WebUpkeep(store_client.app, WebSettings(backup_folder=folder, keep_backups=2))
    async with served(store_client.store, upkeep=upkeep) as made:
        yield made


async def done(client: Client, task: str) -> dict[str, Any]:
    """A task from its beginning to its end."""
    id = (await client.post("/upkeep", {"task": task}, status=202))["id"]
    async with asyncio.timeout(60):
        while (job := await client.get(f"/upkeep/{id}"))["state"] == "running":
            pass
    return dict(job)


async def test_a_backup_is_written_checked_and_listed(kept: Served, tmp_path: Path) -> None:
    client = await kept.client()
    await opened(client)

    job = await done(client, "backup")

    outcome, found = job["outcome"], await client.get("/upkeep")
    assert (job["state"], job["error"]) == ("done", None)
    assert backup.inspect(outcome["file"]).sessions == outcome["sessions"] == 1
    assert [each["name"] for each in found["backups"]] == [Path(outcome["file"]).name]
    assert found["folder"] == str(tmp_path / "safe")
    assert (tmp_path / "safe").stat().st_mode & 0o777 == 0o700
    [file] = (tmp_path / "safe").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


async def test_only_the_newest_are_kept_and_nothing_that_is_not_ours_goes(
    kept: Served, tmp_path: Path
) -> None:
    (tmp_path / "safe").mkdir()
    for name in ("sessionary-20200101T000000Z.db", "sessionary-20200102T000000Z.db", "mine.db"):
        (tmp_path / "safe" / name).write_text("old")

    job = await done(await kept.client(), "backup")

    assert job["outcome"]["deleted"] == ["sessionary-20200101T000000Z.db"]
    assert (tmp_path / "safe" / "mine.db").exists()


async def test_a_check_says_what_it_looked_at_and_what_is_broken(kept: Served) -> None:
    client = await kept.client()
    await opened(client)

    outcome = (await done(client, "verify"))["outcome"]

    assert outcome == {"sessions": 1, "entries": 1, "broken": [], "broken_count": 0}


async def test_a_store_that_lost_much_is_shrunk_while_it_is_used(
    kept: Served, store_client: Sessionary
) -> None:
    client = await kept.client()
    for count in range(30):
        await opened(client, "x" * 100_000 + str(count))
    for head in (await client.get("/sessions?limit=200"))["items"]:
        await store_client.store.write(
            purge.purge, head["id"], profile="main", moment=store_client.moment()
        )

    outcome = (await done(client, "shrink"))["outcome"]

    assert outcome["bytes"] < outcome["before"] - 2_000_000
    assert (await client.post("/sessions", {"text": "still here"}, status=201))["id"]


async def test_what_cannot_be_written_is_described_in_words(
    store_client: Sessionary, tmp_path: Path
) -> None:
    folder = tmp_path / "nowhere" / "safe"
    upkeep = WebUpkeep(store_client.app, WebSettings(backup_folder=folder))
    async with served(store_client.store, upkeep=upkeep) as server:
        job = await done(await server.client(), "backup")

    assert job["state"] == "failed"
    assert str(folder) in job["error"]
    assert "no backup was made" in job["error"]


class Slow:
    """Upkeep that goes on when the test lets it."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def overview(self) -> dict[str, Any]:
        return {"tasks": ["backup", "verify"]}

    def run(self, task: str, tell: Any) -> dict[str, Any]:
        tell({"done": 1, "whole": 2})
        assert self.go_on.wait(60)
        tell({"done": 2, "whole": 2})
        return {}


async def test_one_task_runs_at_a_time_and_can_be_stopped(servers: Any) -> None:
    slow = Slow()
    client = await (await servers(upkeep=slow)).client()
    job = await client.post("/upkeep", {"task": "backup"}, status=202)

    refused = await client.call("POST", "/upkeep", json={"task": "verify"})
    unknown = await client.call("POST", "/upkeep", json={"task": "shrink"})
    await client.call("DELETE", f"/upkeep/{job['id']}")
    slow.go_on.set()
    async with asyncio.timeout(60):
        while (last := await client.get("/upkeep/last"))["state"] == "running":
            pass

    assert (refused.status_code, unknown.status_code) == (409, 422)
    assert last["state"] == "stopped"


async def test_only_the_owner_looks_after_the_store(kept: Served) -> None:
    writer = await kept.client(Scope.WRITE)
    stranger = await kept.client(Scope.ADMIN, profile="other")

    for client, status in ((writer, 403), (stranger, 409)):
        looked = await client.call("GET", "/upkeep")
        begun = await client.call("POST", "/upkeep", json={"task": "backup"})
        assert (looked.status_code, begun.status_code) == (status, status)
    assert (await stranger.call("GET", "/upkeep/last")).status_code == 404
