"""What the tests of model agents share."""

import importlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sessionary.agents.model import ModelOptions, ModelRunner
from sessionary.config.secret import Secret
from sessionary.engine.ports import Runner
from sessionary.testing.fakes import FakeClock
from tests.agents.model_runs import KEY, MakeRunner
from tests.support.model_server import ModelServer


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture(scope="session")
def libraries() -> None:
    """Load them once, outside any test that looks at the time."""
    importlib.import_module("sessionary.agents.tools")
    importlib.import_module("pydantic_ai.models.anthropic")


@pytest.fixture(params=["openai", "anthropic"])
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def waited() -> list[float]:
    return []


@pytest.fixture
async def make(
    libraries: None, server: ModelServer, wire: str, waited: list[float]
) -> AsyncIterator[MakeRunner]:
    made: list[ModelRunner] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    def make(**options: Any) -> ModelRunner:
        url = server.url if wire == "anthropic" else server.openai_url
        given: dict[str, Any] = {
            "model": "m",
            "provider": wire,
            "base_url": url,
            "key": Secret(KEY),
        } | options
        runner = ModelRunner(ModelOptions(**given), clock=FakeClock(), sleep=sleep)
        made.append(runner)
        return runner

    yield make
    for runner in made:
        await runner.close()


@pytest.fixture
def runner(make: MakeRunner) -> Runner:
    return make()
