"""The description of the interface is true: whatever it allows gets an answer, and no 500."""

import json
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from starlette.testclient import TestClient

from hansard.actions import tokens
from hansard.actions.tokens import Scope
from hansard.clock import Occasion, RandomIds, SystemClock
from hansard.store.opening import open_store
from hansard.testing.world import World
from hansard.web.app import create_app
from hansard.web.parts import WebParts

SECRET = tokens.secret(bytes(tokens.SECRET_BYTES))
BASE = "http://localhost"
HEADERS = {"Authorization": f"Bearer {SECRET}", "Host": "localhost"}
EXAMPLES = 25


@pytest.fixture(scope="module")
def app() -> Iterator[Any]:
    store = open_store("sqlite::memory:", create=True, clock=SystemClock(), ids=RandomIds())
    when = Occasion(SystemClock().now(), RandomIds())
    store.write(tokens.add, SECRET, profile="main", scope=Scope.ADMIN, when=when).result()
    World(store).session("hello", "hi")
    yield create_app(WebParts(store))
    store.close()


@pytest.fixture(scope="module")
def description(app: Any) -> dict[str, Any]:
    with TestClient(app, base_url=BASE) as client:
        found: dict[str, Any] = client.get("/api/v1/openapi.json", headers=HEADERS).json()
    return found


CONTRACT = """
post /arrivals · get /arrivals/{arrival_id} · get /sessions · post /sessions
get /sessions/{session_id} · patch /sessions/{session_id} · delete /sessions/{session_id}
get /sessions/{session_id}/entries · post /sessions/{session_id}/messages
post /sessions/{session_id}/turns · post /sessions/{session_id}/fork
post /sessions/{session_id}/retract · post /sessions/{session_id}/compact
post /sessions/{session_id}/end · post /sessions/{session_id}/reopen
post /sessions/{session_id}/restore · post /sessions/{session_id}/stop
get /events · get /search · get /usage · get /bindings · get /export
get /projects · post /projects · patch /projects/{project} · delete /projects/{project}
get /schedules · post /schedules · get /access · post /access
get /healthz · get /readyz · get /metrics
"""


def test_the_description_has_every_path_of_the_contract(description: dict[str, Any]) -> None:
    found = {
        f"{method} {path.removeprefix('/api/v1')}"
        for path, methods in description["paths"].items()
        for method in methods
    }

    wanted = {each.strip() for line in CONTRACT.splitlines() for each in line.split("·")}
    assert wanted - {""} - found == set()


def test_every_change_may_carry_an_idempotency_key(description: dict[str, Any]) -> None:
    without = [
        (method, path)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
        if method in ("post", "patch", "put", "delete")
        and not operation.get("x-public")
        and "Idempotency-Key" not in json.dumps(operation)
    ]

    assert without == []


@pytest.mark.timeout(180)
def test_nothing_that_the_description_allows_breaks_the_server(
    app: Any,
) -> None:
    loaded = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app, headers=HEADERS)
    tried = []
    for found in loaded.exclude(path_regex="/events$").get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()

        @hypothesis.given(case=operation.as_strategy())
        @hypothesis.settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[hypothesis.Phase.generate],
        )
        def ask(case: Any) -> None:
            case.call_and_validate(headers=HEADERS, checks=[not_a_server_error])

        ask()
        tried.append(operation.label)

    assert len(tried) > 40
