"""What the tests of integrations share: stores on both databases, and a model that answers."""

import tomllib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from sessionary import Sessionary
from tests.integrations.sdk_programs import ROOT, Urls, weather_model
from tests.support.environment import installed
from tests.support.external_server import ServerUnavailable
from tests.support.model_server import ModelServer
from tests.support.postgres import Server
from tests.support.shared_database import delete_all_rows

KINDS = ("sqlite", "postgres")


@pytest.fixture
def new_url(postgres: Server, migrated: str, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Gives the address of an empty store."""
    given: list[str] = []

    def new(kind: str) -> str:
        if kind == "sqlite":
            return f"sqlite:///{tmp_path}/{len(list(tmp_path.iterdir()))}.db"
        given.append(postgres.create_database(template=migrated))
        return given[-1]

    yield new
    for url in given:
        postgres.drop_database(url)


@pytest.fixture(scope="session")
def shared(postgres: Server, migrated: str) -> Iterator[str]:
    """A database that is emptied for each test."""
    url = postgres.create_database(template=migrated)
    yield url
    postgres.drop_database(url)


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store on each database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/sessionary.db"
    return delete_all_rows(request.getfixturevalue("shared"))


@pytest.fixture
def urls(new_url: Callable[[str], str]) -> Urls:
    """An empty store on each database, for programs that use both."""
    return tuple(new_url(kind) for kind in KINDS)


@pytest.fixture
def client(url: str) -> Iterator[Sessionary]:
    with Sessionary(url) as opened:
        yield opened


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        server.otherwise = weather_model
        yield server


@pytest.fixture(scope="session")
def adk_python() -> Path:
    """An interpreter that has the kit and what Sessionary itself needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["google-adk"], *extras["postgres"]]
    try:
        return installed(ROOT / ".tools", "google-adk", wanted)
    except ServerUnavailable as error:
        pytest.fail(str(error), pytrace=False)
