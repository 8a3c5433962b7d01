"""Session services of Google's Agent Development Kit, in an environment of its own."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessionary import Sessionary
from tests.integrations.sdk_programs import ROOT, Urls, environ, kept, tell_kill_and_continue
from tests.support.model_server import ModelServer
from tests.support.postgres import Server

CHECKS = re.findall(
    r"^async def (check_\w+)",
    (Path(__file__).parent / "programs" / "adk_checks.py").read_text(encoding="utf-8"),
    re.MULTILINE,
)


@pytest.fixture(scope="session")
def outcomes(
    adk_python: Path, postgres: Server, migrated: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """What became of every check, on both databases."""
    url = postgres.create_database(template=migrated)
    file = tmp_path_factory.mktemp("adk") / "sessionary.db"
    done = subprocess.run(
        [adk_python, "-m", "tests.integrations.programs.adk_checks", f"sqlite:///{file}", url],
        cwd=ROOT,
        env=environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    yield found
    postgres.drop_database(url)


@pytest.mark.timeout(600)
async def test_an_agent_that_is_killed_goes_on_in_another_process(
    urls: Urls, model: ModelServer, adk_python: Path
) -> None:
    asks = await tell_kill_and_continue("google_adk", urls, model, python=adk_python)

    for ask in asks:
        roles = [message["role"] for message in ask.messages]
        assert roles[:6] == ["user", "assistant", "user", "assistant", "tool", "assistant"]
        assert ask.messages[6]["content"] == "And the weather in Porto?"
    for url in urls:
        found = kept(url)
        assert "The report says Lisbon: 21 degrees and sunny" in found.texts
        assert "And the weather in Porto?" in found.texts
        assert (found.platform, bool(found.cost), found.tool_calls) == ("google-adk", True, 2)
        with Sessionary(url) as client:
            assert client.search('"name = Ada"').items


@pytest.mark.timeout(600)
@pytest.mark.parametrize("place", [0, 1], ids=["sqlite", "postgres"])
@pytest.mark.parametrize("check", CHECKS)
def test_a_promise_is_kept(outcomes: dict[str, str], check: str, place: int) -> None:
    assert outcomes[f"{check}/{place}"] == ""
