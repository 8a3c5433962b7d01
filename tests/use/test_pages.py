"""The examples of «Use it with …» run as they stand, with the programs that they are about."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sessionary import Sessionary
from tests.project.code import ROOT
from tests.support import node_clients
from tests.support.environment import installed
from tests.support.model_server import Ask, Call, ModelServer, Reply

PAGES = ROOT / "docs" / "use"
OPEN_WEBUI = "open-webui==0.12.4"
# What the part of Open WebUI that calls models imports; all that it depends on are some gigabytes.
NEEDED_BY_OPEN_WEBUI = (
    "aiocache",
    "aiofiles",
    "aiohttp",
    "aiosqlite",
    "alembic",
    "authlib",
    "bcrypt",
    "beautifulsoup4",
    "fastapi",
    "httpx",
    "langchain-core",
    "markdown",
    "mcp",
    "orjson",
    "pillow",
    "pyjwt",
    "python-mimeparse",
    "python-socketio",
    "pytz",
    "redis",
    "requests",
    "sqlalchemy[asyncio]",
    "typer",
    "uvicorn",
    "validators",
)
SECONDS = 120


def blocks(page: str, language: str) -> str:
    """All examples of a page in one language, one after the other."""
    text = (PAGES / page).read_text(encoding="utf-8")
    found = re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no example in {language}"
    return "\n".join(found)


def answer(ask: Ask) -> Reply:
    """What the model answers: it asks for the weather if it can, and otherwise repeats what it was told."""
    last = ask.messages[-1]
    text = last.get("content")
    if isinstance(text, list):
        text = " ".join(str(part.get("text", part.get("content", ""))) for part in text)
    if last["role"] == "user" and "weather" in str(text) and ask.body.get("tools"):
        return Reply(calls=(Call("get_weather", {"city": "Lisbon"}),))
    return Reply(f"Heard: {text}")


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        server.otherwise = answer
        yield server


@pytest.fixture
def home(tmp_path: Path, model: ModelServer) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "sessionary.toml").write_text(
        f'[agents.assistant]\nkind = "model"\nmodel = "openai-chat:gpt-5-mini"\n'
        f'base_url = "{model.openai_url}"\n'
    )
    return folder


async def run(
    *command: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> str:
    """Run a program to its end; return what it printed."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=None if env is None else dict(env),
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def sessionary(home: Path, *args: str) -> Any:
    """Run a command; return what it answered."""
    command = [sys.executable, "-m", "sessionary", "--home", str(home), "--json", *args]
    return json.loads(await run(*command))


@asynccontextmanager
async def started(home: Path, *args: str) -> AsyncIterator[dict[str, Any]]:
    """Run a server until the end of the block; gives what it said when it was ready."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sessionary", "--home", str(home), "--json", *args),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), SECONDS)
        yield json.loads(line)
    finally:
        process.terminate()
        await process.communicate()


@pytest.fixture
async def variables(home: Path) -> AsyncIterator[dict[str, str]]:
    """The environment of a program that talks to a running server."""
    token = await sessionary(home, "tokens", "add", "--scope", "write", "--name", "my-program")
    async with started(home, "serve", "--port", "0") as ready:
        yield {
            **node_clients.environment(),
            "OPENAI_BASE_URL": f"{ready['address']}/v1",
            "OPENAI_API_KEY": token["token"],
        }


def transcripts(home: Path) -> list[list[str]]:
    """What was said in each session, the oldest session first."""
    with Sessionary(home=str(home)) as client:
        heads = sorted(client.sessions().items, key=lambda head: head.began_at)
        return [
            [each.text for each in client.find(head.id).messages() if each.role != "system"]
            for head in heads
        ]


def heard(*texts: str) -> list[str]:
    """A conversation in which the model repeats what it was told."""
    return [line for text in texts for line in (text, f"Heard: {text}")]


CAPITALS = heard("What is the capital of Portugal?", "And of Spain?")
PLANS = heard("We have two weeks in May.", "Where should we go?")
FERRY = heard("Suggest a name for a ferry.", "A shorter one.")
# The call and its result have no text of their own; the answer shows that the model was given the result.
WEATHER = ["What is the weather in Lisbon?", "", "", "Heard: Sunny, 24 degrees."]


async def test_the_page_of_openai_for_python(home: Path, variables: Mapping[str, str]) -> None:
    said = await run(sys.executable, "-c", blocks("openai-python.md", "python"), env=variables)

    assert said.splitlines() == [
        *CAPITALS[1::2],
        *PLANS[1::2],
        FERRY[-1],
        "completed Heard: Write a long report.",
        WEATHER[-1],
    ]
    assert transcripts(home) == [
        CAPITALS,
        PLANS,
        FERRY,
        heard("Write a long report."),
        WEATHER,
        heard("Order the tickets."),
    ]
    with Sessionary(home=str(home)) as client:
        [plans] = [head for head in client.sessions().items if head.id == "holiday-plans"]
    assert plans.source.person is not None
    assert plans.source.person.id == "anna"


async def test_the_page_of_openai_for_node(home: Path, variables: Mapping[str, str]) -> None:
    said = await run_node(blocks("openai-node.md", "js"), variables)

    assert said.splitlines() == [*CAPITALS[1::2], *PLANS[1::2], FERRY[-1]]
    assert transcripts(home) == [CAPITALS, PLANS, FERRY]


async def test_the_page_of_curl(home: Path, variables: Mapping[str, str]) -> None:
    said = await run("sh", "-ec", blocks("curl.md", "sh"), env=variables)

    assert all(part in said for part in ('"id":"assistant"', '"chat.completion"', "data: [DONE]"))
    assert transcripts(home) == [
        heard("Where do the ferries leave?", "And how often?", "The daily report, please.")
    ]


async def test_the_page_of_langchain(home: Path, variables: Mapping[str, str]) -> None:
    said = await run(sys.executable, "-c", blocks("langchain.md", "python"), env=variables)

    weather = [*WEATHER[:3], "Heard: Sunny in Lisbon, 24 degrees."]
    assert said.splitlines() == [*CAPITALS[1::2], *PLANS[1::2], weather[-1]]
    assert transcripts(home) == [CAPITALS, PLANS, weather]


async def test_the_page_of_the_vercel_ai_sdk(home: Path, variables: Mapping[str, str]) -> None:
    said = await run_node(blocks("vercel-ai-sdk.md", "js"), variables)

    assert said.splitlines() == [f"{CAPITALS[1]} 15", CAPITALS[3], PLANS[1], FERRY[1]]
    assert transcripts(home) == [CAPITALS, PLANS[:2], FERRY[:2]]


@pytest.mark.timeout(900)
async def test_the_page_of_open_webui(
    home: Path, variables: Mapping[str, str], tmp_path: Path
) -> None:
    page = (PAGES / "open-webui.md").read_text(encoding="utf-8")
    found = re.search(r"^\| Headers \| `(.+)` \|$", page, re.MULTILINE)
    assert found is not None
    python = await asyncio.to_thread(
        installed,
        ROOT / ".tools",
        "open-webui",
        NEEDED_BY_OPEN_WEBUI,
        without_dependencies=[OPEN_WEBUI],
    )
    (tmp_path / "webui" / "static").mkdir(parents=True)
    environment = {
        "PATH": os.environ["PATH"],
        "DATA_DIR": str(tmp_path / "webui"),
        "FRONTEND_BUILD_DIR": str(tmp_path / "webui"),
        "STATIC_DIR": str(tmp_path / "webui" / "copied"),
        "WEBUI_SECRET_KEY": "for this test",
        # It needs neither a vector database nor models of its own here.
        "USE_SLIM": "true",
        "VECTOR_DB": "pgvector",
        "PGVECTOR_DB_URL": "postgresql://localhost/none",
        "OFFLINE_MODE": "true",
    }

    said = await run(
        python,
        Path(__file__).with_name("open_webui_client.py"),
        *(variables["OPENAI_BASE_URL"], variables["OPENAI_API_KEY"], found[1]),
        env=environment,
        cwd=tmp_path,
    )

    answers = json.loads(said.splitlines()[-1])
    assert "assistant" in answers["models"]
    assert (answers["whole"], "Spain" in answers["streamed"]) == (CAPITALS[1], True)
    assert transcripts(home) == [CAPITALS, heard("Find a title for this chat.")]


async def test_the_page_of_anthropic(home: Path, model: ModelServer) -> None:
    async with started(
        home, "proxy", "--port", "0", "--upstream", f"anthropic={model.url}"
    ) as ready:
        variables = {
            **node_clients.environment(),
            "ANTHROPIC_BASE_URL": ready["bases"]["anthropic"],
            "ANTHROPIC_API_KEY": "sk-ant-of-the-provider",
        }
        said = await run(sys.executable, "-c", blocks("anthropic.md", "python"), env=variables)
        node = await run_node(blocks("anthropic.md", "js"), variables)

    assert (said + node).splitlines() == [*CAPITALS[1::2], CAPITALS[1]]
    assert transcripts(home) == [CAPITALS, CAPITALS[:2]]
    assert b"sk-ant-of-the-provider" not in everything_in(home)


def everything_in(folder: Path) -> bytes:
    """The bytes of all files of a directory."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def run_node(script: str, variables: Mapping[str, str]) -> str:
    """Run a module that imports the clients of `tests/node_clients`."""
    node = await asyncio.to_thread(node_clients.node)
    options = ("--input-type=module", "--eval", script)
    return await run(node, *options, env=variables, cwd=node_clients.FOLDER)
