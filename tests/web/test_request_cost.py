"""What a request costs besides its own work: no thread of the framework, one read of the store."""

import threading
from typing import Any

import pytest

from sessionary.store.database import Store
from sessionary.store.sqlite.store import SqliteStore
from sessionary.web.app import Application, create_app
from sessionary.web.context import WebContext
from sessionary.web.routing import ApiRoute
from tests.web.conftest import Client, Served
from tests.web.test_arrivals import ADA


async def test_no_request_is_handed_to_a_thread_of_the_framework(
    server: Served, client: Client
) -> None:
    told = await client.post("/arrivals", {"source": ADA, "text": "hello"}, status=202)
    await client.get(f"/arrivals/{told['arrival_id']}?wait=60")
    await client.get("/sessions")
    await client.get(f"/sessions/{told['session_id']}/entries?limit=5")
    await client.get("/search?q=hello")

    names = [each.name for each in threading.enumerate()]

    assert [name for name in names if "AnyIO" in name or "asyncio_" in name] == []


async def test_the_caller_and_the_arrival_are_found_by_one_read(
    server: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = await client.post("/arrivals", {"source": ADA, "text": "hello"}, status=202)
    await server.settle()
    reads: list[Any] = []
    read = SqliteStore.read

    def counted(store: SqliteStore, action: Any, /, *args: Any, **kwargs: Any) -> Any:
        reads.append(action)
        return read(store, action, *args, **kwargs)

    assert server.engine is not None
    await server.engine.stop()  # its loops read too
    monkeypatch.setattr(SqliteStore, "read", counted)
    await client.get(f"/arrivals/{told['arrival_id']}?wait=60")

    assert len(reads) == 1


async def test_every_route_runs_without_the_layers_of_the_framework(store: Store) -> None:
    app = create_app(WebContext(store))

    assert isinstance(app, Application)
    assert [each for each in app.routes if not isinstance(each, ApiRoute)] == []
