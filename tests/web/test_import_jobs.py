"""Other tools' records, looked at and imported over HTTP: one at a time, with progress events."""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sessionary.app.context import AppContext
from sessionary.app.server import WebImports
from sessionary.clock import RandomIds, SystemClock
from sessionary.config import Config
from sessionary.errors import BadInput
from sessionary.model.access import Scope
from sessionary.web.context import FaultInfo, FoundRecords, ImportOutcome, ImportProgressInfo
from tests.cli.test_import import a_session
from tests.support.import_reports import found_records, import_outcome, import_progress
from tests.web.conftest import Client, Served
from tests.web.test_events import listening


class Machine:
    """A machine with records that a test made up; an import goes on when the test lets it."""

    def __init__(self, found: list[FoundRecords] | None = None) -> None:
        self.found = found or []
        self.go_on = threading.Event()
        self.runs = 0
        self.error: Exception | None = None

    def discover(self) -> list[FoundRecords]:
        return self.found

    def run(
        self, tools: Sequence[str], *, dry_run: bool, tell: Callable[[ImportProgressInfo], None]
    ) -> list[ImportOutcome]:
        if dry_run:
            return [import_outcome(added=2)]
        self.runs += 1
        tell(import_progress())
        assert self.go_on.wait(60)
        tell(import_progress(read=2))
        if self.error is not None:
            raise self.error
        fault: FaultInfo = {"unit": "a", "where": "line 3", "why": "it is no JSON"}
        return [import_outcome(added=1, skipped=1, faults=[fault])]


async def at_end(client: Client, id: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while (job := await client.get(f"/imports/{id}"))["state"] == "running":
            pass
    return dict(job)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
async def server(servers: Any, machine: Machine) -> Served:
    made: Served = await servers(imports=machine)
    return made


async def test_a_dry_run_reports_what_is_there_and_changes_nothing(
    server: Served, client: Client, machine: Machine
) -> None:
    machine.found = [found_records(units=3, new_units=1)]

    found = await client.get("/imports")
    begun = await client.post("/imports", {"dry_run": True}, status=202)
    done = await at_end(client, begun["id"])

    assert (found["items"], found["jobs"]) == (machine.found, [])
    assert (done["state"], done["outcomes"][0]["added"], machine.runs) == ("done", 2, 0)


async def test_an_import_reports_its_progress_and_its_result(
    server: Served, client: Client, machine: Machine
) -> None:
    async with listening(client, "topics=imports") as listener:
        begun = await client.post("/imports", {"tools": ["sample"]}, status=202)
        progress = [(await listener.until("import"))[-1][1]]
        while progress[-1]["progress"] is None:
            progress.append((await listener.until("import"))[-1][1])
        machine.go_on.set()
        while progress[-1]["state"] == "running":
            progress.append((await listener.until("import"))[-1][1])

    assert {each["id"] for each in progress} == {begun["id"]}
    assert progress[-1]["outcomes"][0]["faults"][0]["why"] == "it is no JSON"
    assert progress[-1] == await client.get(f"/imports/{begun['id']}")
    assert progress[-1] == await client.get("/imports/last")
    assert (await client.get("/imports"))["jobs"] == [progress[-1]]


async def test_one_import_runs_at_a_time_and_the_same_request_is_the_same_import(
    server: Served, client: Client, machine: Machine
) -> None:
    key = {"Idempotency-Key": "import-1"}

    first = await client.post("/imports", status=202, headers=key)
    again = await client.post("/imports", status=202, headers=key)
    other = await client.call("POST", "/imports", json={})
    machine.go_on.set()
    await at_end(client, first["id"])

    assert first["id"] == again["id"]
    assert (other.status_code, machine.runs) == (409, 1)
    assert (await client.post("/imports", status=202))["id"] != first["id"]


async def test_an_import_can_be_stopped_and_what_was_read_stays(
    server: Served, client: Client, machine: Machine
) -> None:
    begun = await client.post("/imports", status=202)

    await client.call("DELETE", f"/imports/{begun['id']}")
    machine.go_on.set()

    done = await at_end(client, begun["id"])
    assert (done["state"], done["error"]) == ("stopped", None)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (BadInput("There is nothing at /x."), "There is nothing at /x."),
        (RuntimeError("inside"), "Something went wrong here; the log says what."),
    ],
)
async def test_an_import_that_fails_says_so(
    server: Served, client: Client, machine: Machine, error: Exception, expected: str
) -> None:
    machine.error = error
    machine.go_on.set()

    begun = await client.post("/imports", status=202)

    done = await at_end(client, begun["id"])
    assert (done["state"], done["error"]) == ("failed", expected)


async def test_a_stopping_server_stops_its_import(servers: Any) -> None:
    machine = Machine()
    server: Served = await servers(imports=machine)
    await (await server.client()).post("/imports", status=202)

    await server.stop()
    machine.go_on.set()
    async with asyncio.timeout(60):
        await server.stopped.wait()


async def test_who_may_not_administer_sees_nothing_of_it(server: Served) -> None:
    writer = await server.client(Scope.WRITE)

    answers = [
        await writer.call("GET", "/imports"),
        await writer.call("POST", "/imports", json={}),
        await writer.call("GET", "/events?topics=imports"),
    ]

    assert [each.status_code for each in answers] == [403, 403, 403]


async def test_a_real_machine_is_looked_at_and_imported(
    servers: Any, store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in os.environ if each.endswith(("_CONFIG_DIR", "_HOME", "_DIR"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    a_session(tmp_path, days=26)
    app = AppContext(store, Config(tmp_path, store.url), clock=SystemClock(), ids=RandomIds())
    server: Served = await servers(imports=WebImports(app))
    client = await server.client()

    (found,) = (await client.get("/imports"))["items"]
    begun = await client.post("/imports", {"tools": ["claude-code"]}, status=202)
    done = await at_end(client, begun["id"])
    unknown = await client.post("/imports", {"tools": ["../../etc"]}, status=202)

    assert (found["tool"], found["new_units"], found["expiring"]) == ("claude-code", 1, 1)
    assert found["expires_at"].endswith("Z")
    assert (done["state"], done["outcomes"][0]["added"]) == ("done", 1)
    assert (await client.get("/search?q=leeks"))["total"] == 1
    assert "There is no importer" in (await at_end(client, unknown["id"]))["error"]
