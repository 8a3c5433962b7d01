"""A coding agent works in the project that the editor has opened, whichever process runs the turn."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from acp import RequestError
from sessionary import Sessionary
from sessionary.actions.sessions import edit
from tests.project.code import ROOT
from tests.support.acp_editor import editor, environment

AGENT = ROOT / "tests" / "support" / "acp_agent.py"
SETTINGS = """
agent = "coder"
[engine]
poll_seconds = 0.05
sweep_seconds = 0.2
[agents.coder]
kind = "acp"
command = ["{python}", "{agent}"]
folder = "{home}"
send_prompt = false
env = {{ ACP_HOME = "{home}", ACP_CAN = "load,fork" }}
{more}
"""


def make_home(folder: Path, more: str = "") -> Path:
    folder.mkdir(mode=0o700)
    settings = SETTINGS.format(python=sys.executable, agent=AGENT, home=folder, more=more)
    (folder / "sessionary.toml").write_text(settings)
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make_home(tmp_path / "home")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


def directories(home: Path) -> list[str]:
    """Where the agent was told to work, each time that it began a session or forked one."""
    lines = (home / "log.jsonl").read_text().splitlines()
    told = [json.loads(line) for line in lines]
    return [each["cwd"] for each in told if each["method"] in ("new", "fork")]


async def chat(home: Path, *arguments: str) -> None:
    """Talk to the agent at the terminal."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sessionary", "chat", *arguments), cwd=home, env=environment(home)
    )
    assert await process.wait() == 0


async def test_the_agent_works_in_the_directory_of_the_editor(home: Path, project: Path) -> None:
    elsewhere = project / "part"
    elsewhere.mkdir()
    async with editor(home) as ed:
        made = await ed.connection.new_session(cwd=str(project))
        await ed.say(made.session_id, "hello")
        fork = await ed.connection.fork_session(cwd=str(elsewhere), session_id=made.session_id)
        await ed.say(fork.session_id, "and here")

    assert directories(home) == [str(project), str(elsewhere)]


async def test_the_turns_of_another_process_work_there_too(home: Path, project: Path) -> None:
    async with editor(home) as ed:
        made = await ed.connection.new_session(cwd=str(project))
        await ed.say(made.session_id, "hello")
    with Sessionary(home=str(home)) as client:  # the agent must begin a session of its own again
        client.find(made.session_id).undo()

    await chat(home, "--session", made.session_id, "again")

    assert directories(home) == [str(project)] * 2


async def test_a_copy_of_a_read_only_session_is_in_the_directory_that_it_was_opened_for(
    home: Path, project: Path
) -> None:
    with Sessionary(home=str(home)) as client:
        old = client.session("imported")
        imported = old.append("user", "from another tool").session_id
        client.store.write(edit.seal, imported, profile=client.profile).result()
    async with editor(home) as ed:
        await ed.connection.load_session(cwd=str(project), session_id=imported)
        await ed.say(imported, "go on")

    assert directories(home) == [str(project)]


async def test_a_session_that_began_elsewhere_stays_where_it_was(home: Path, project: Path) -> None:
    await chat(home, "hello")
    with Sessionary(home=str(home)) as client:
        [begun] = client.sessions()
    async with editor(home) as ed:
        await ed.connection.load_session(cwd=str(project), session_id=begun.id)
        await ed.say(begun.id, "go on")

    assert directories(home) == [str(home)]


async def test_the_setting_wins(tmp_path: Path, project: Path) -> None:
    fixed = tmp_path / "fixed"
    fixed.mkdir()
    home = make_home(tmp_path / "home", f'workspace = "{fixed}"')
    async with editor(home) as ed:
        made = await ed.connection.new_session(cwd=str(project))
        await ed.say(made.session_id, "hello")

    assert directories(home) == [str(fixed)]


async def test_a_directory_that_is_gone_is_named(home: Path, project: Path) -> None:
    async with editor(home) as ed:
        made = await ed.connection.new_session(cwd=str(project))
        await asyncio.to_thread(project.rmdir)
        with pytest.raises(RequestError) as caught:
            await ed.say(made.session_id, "hello")

    assert f"The directory {project}" in str(caught.value)
    assert not (home / "log.jsonl").exists()
