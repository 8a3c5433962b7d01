"""Bringing in other tools' records from the workbench."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

from sessionary.errors import BadInput
from sessionary.model.access import Scope
from sessionary.store.database import Store
from sessionary.web.context import FoundRecords, ImportOutcome, ImportProgressInfo
from tests.support.import_reports import found_records, import_outcome, import_progress
from tests.web.conftest import Client, served

FOUND = found_records("notes")


class SessionFolder:
    """A machine on which someone left records; an import waits until it may go on."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.began = threading.Event()
        self.wrong: str | None = None

    def discover(self) -> list[FoundRecords]:
        return [FOUND]

    def run(
        self, tools: Sequence[str], *, dry_run: bool, tell: Callable[[ImportProgressInfo], None]
    ) -> list[ImportOutcome]:
        tell(import_progress())
        self.began.set()
        self.may_go_on.wait(20)
        tell(import_progress(read=2))
        if self.wrong is not None:
            raise BadInput(self.wrong)
        return [import_outcome(tools[0] if tools else "all", added=0 if dry_run else 2)]


async def ended(client: Client) -> dict[str, Any]:
    while True:
        job: dict[str, Any] = await client.get("/imports/last")
        if job["state"] != "running":
            return job


async def test_what_is_found_is_imported_beside_everything_else(store: Store) -> None:
    folder = SessionFolder()
    async with served(store, imports=folder) as server:
        client = await server.client()
        assert (await client.get("/imports"))["items"] == [FOUND]

        begun = await client.post("/imports", {"tools": ["notes"]}, status=202)
        await asyncio.to_thread(folder.began.wait, 20)
        second = await client.call("POST", "/imports", json={})
        running = await client.get("/imports/last")
        folder.may_go_on.set()
        job = await ended(client)

    assert (begun["state"], second.status_code) == ("running", 409)
    assert running["progress"] == import_progress()
    assert (job["state"], job["outcomes"]) == ("done", [import_outcome("notes", added=2)])


async def test_an_import_is_stopped_between_two_records(store: Store) -> None:
    folder = SessionFolder()
    async with served(store, imports=folder) as server:
        client = await server.client()
        await client.post("/imports", {}, status=202)
        await asyncio.to_thread(folder.began.wait, 20)

        asked = await client.call("DELETE", "/imports/last")
        folder.may_go_on.set()
        job = await ended(client)
        again = await client.call("DELETE", "/imports/last")

    assert (asked.status_code, job["state"], again.status_code) == (200, "stopped", 404)


async def test_an_import_that_fails_says_why(store: Store) -> None:
    folder = SessionFolder()
    folder.wrong = "That is no record of notes."
    folder.may_go_on.set()
    async with served(store, imports=folder) as server:
        client = await server.client()
        await client.post("/imports", {"dry_run": True}, status=202)
        job = await ended(client)

    assert (job["state"], job["error"]) == ("failed", "That is no record of notes.")


async def test_only_who_may_do_everything_here_imports(store: Store) -> None:
    async with served(store, imports=SessionFolder()) as server:
        writer = await server.client(Scope.WRITE)
        elsewhere = await server.client(Scope.ADMIN, "another")
        refused = [
            (await each.call(method, "/imports", json={})).status_code
            for each in (writer, elsewhere)
            for method in ("GET", "POST")
        ]

    assert refused == [403, 403, 409, 409]


async def test_a_server_that_imports_nothing_says_so(client: Client) -> None:
    answer = await client.call("GET", "/imports")

    assert answer.status_code == 409
    assert "sessionary import" in answer.json()["detail"]
