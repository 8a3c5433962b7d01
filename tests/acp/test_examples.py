"""The example client of the protocol's Python package drives Sessionary, whose agent is the package's example agent."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sessionary import Sessionary
from sessionary.model.session import SessionHead
from sessionary.store.database import Tx
from sessionary.store.tables import sessions
from tests.support import acp_examples
from tests.support.acp_editor import (
    TIMEOUT_SECONDS,
    editor,
    environment,
    eventually,
    texts,
)

# Each process writes its id into a file of the home before it begins.
SETTINGS = """
agent = "example"
[engine]
poll_seconds = 0.05
sweep_seconds = 0.2
[agents.example]
kind = "acp"
command = ["/bin/sh", "-c", 'echo $$ > agent.pid; exec "$0" "$1"', "{python}", "{agent}"]
folder = "{home}"
send_prompt = false
"""
SERVER = 'echo $$ > server.pid; exec "$0" -m sessionary acp "$@"'


@pytest.fixture
def examples() -> Path:
    return acp_examples.folder()


@pytest.fixture
def home(tmp_path: Path, examples: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir(mode=0o700)
    settings = SETTINGS.format(python=sys.executable, agent=examples / "agent.py", home=made)
    (made / "sessionary.toml").write_text(settings)
    return made


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str | None:
    """The store of the home, or one on a real server."""
    return None if request.param == "sqlite" else request.getfixturevalue("postgres_url")


class Console:
    """A person at the example client, which reads lines and prints what the agent says."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.stdin, self._stdout = process.stdin, process.stdout
        self._read = ""

    async def write(self, line: str) -> None:
        self.stdin.write(f"{line}\n".encode())
        await self.stdin.drain()

    async def until(self, text: str) -> None:
        """Read on until the client has printed a text."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while text not in self._read:
                chunk = await self._stdout.read(65536)
                assert chunk, f"the client has ended; it printed: {self._read}"
                self._read += chunk.decode()
        self._read = self._read.partition(text)[2]


@asynccontextmanager
async def example_client(
    home: Path, examples: Path, database: str | None
) -> AsyncIterator[Console]:
    place = [] if database is None else ["--database", database]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(examples / "client.py"), "/bin/sh", "-c", SERVER),
        *(sys.executable, *place),
        cwd=home,
        env=environment(home),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    console = Console(process)
    try:
        yield console
        console.stdin.close()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def pid(home: Path, name: str) -> int:
    return int((home / f"{name}.pid").read_text())


def running_session(home: Path, database: str | None) -> str | None:
    """The id of the session in which a turn runs."""
    with Sessionary(database, home=str(home)) as client:
        return next((each.id for each in client.sessions() if each.running), None)


def told_session(home: Path, name: str) -> str | None:
    """The id of the session whose running turn has taken the process of the agent, and is about to prompt it."""

    def kept_by(tx: Tx, head: SessionHead) -> object:
        kept = sessions.details(tx, head.no).extra.get(sessions.AGENT_STATE, {})
        return kept.get(name, {}).get("turn_id")

    with Sessionary(home=str(home)) as client:
        for head in client.sessions():
            if head.running_turn and client.store.read(kept_by, head).result() == head.running_turn:
                return head.id
    return None


def said(*prompts: str) -> list[str]:
    """What people and the example agent say: it repeats each prompt."""
    return [text for each in prompts for text in (each, f"Client sent:{each}")]


async def test_the_examples_talk_and_a_kill_of_our_process_in_the_middle_loses_nothing(
    home: Path, examples: Path, database: str | None
) -> None:
    async with example_client(home, examples, database) as console:
        await console.write("hello")
        await console.until("| Agent: Client sent:")
        await console.until("| Agent: hello\n> ")
        # The agent takes the prompt only when our process is gone.
        os.kill(pid(home, "agent"), signal.SIGSTOP)
        await console.write("go on")
        id = await eventually(lambda: running_session(home, database))
        os.kill(pid(home, "server"), signal.SIGKILL)
        os.kill(pid(home, "agent"), signal.SIGCONT)
        await console.until("Prompt failed: Connection closed")

    place = [] if database is None else ["--database", database]
    async with editor(home, *place) as ed:
        await ed.connection.load_session(cwd=str(home), session_id=id)
        await ed.until(lambda: ed.text().endswith("go on"))
        assert (await ed.say(id, "thanks")).stop_reason == "end_turn"

    stored = texts(home, id, database=database)
    # A new process of the agent was told what was said before: the example keeps nothing.
    assert "hello" in stored[3]
    assert stored[3].startswith("Client sent:")
    assert stored[3].endswith("go on")
    assert [*stored[:3], *stored[4:]] == [*said("hello"), "go on", *said("thanks")]


async def test_an_example_agent_that_is_killed_in_the_middle_fails_the_turn_which_is_asked_again(
    home: Path, examples: Path
) -> None:
    async with example_client(home, examples, None) as console:
        await console.write("hello")
        await console.until("| Agent: hello\n> ")
        os.kill(pid(home, "agent"), signal.SIGSTOP)
        await console.write("go on")
        id = await eventually(lambda: told_session(home, "example"))
        os.kill(pid(home, "agent"), signal.SIGKILL)
        await console.until("Prompt failed: The turn failed: The agent /bin/sh ended with code -9")
        await console.until("> ")
        await console.write("/retry")
        await console.until("go on\n> ")

    stored = texts(home, id)
    assert len(stored) == 4
    assert stored[:3] == [*said("hello"), "go on"]
    assert stored[3].endswith("go on")
