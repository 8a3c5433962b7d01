"""The examples of docs/integrations.md run as they stand."""

import asyncio
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from sessionary import Sessionary
from tests.integrations.sdk_programs import ROOT, environ
from tests.support.model_server import ModelServer

PAGE = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"^## ([^\n]+)\n+```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
# Other ways to use an SDK, each with one example after a sentence.
OTHERS = dict(
    re.findall(
        r"^### (A run|Only)[^\n]+\n\n[^\n]+\n\n```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL
    )
)
APPROVALS = dict(
    re.findall(
        r"^### Approvals with (?:the )?([^\n]+)\n\n[^\n]+\n\n```python\n(.*?)^```",
        PAGE,
        re.MULTILINE | re.DOTALL,
    )
)
PLATFORMS = {
    "OpenAI Agents SDK": "openai-agents",
    "Claude Agent SDK": "claude-agent-sdk",
    "pydantic-ai": "pydantic-ai",
    "Google ADK": "google-adk",
    "Microsoft Agent Framework": "agent-framework",
    "LangChain": "langchain",
    "LangGraph": "langgraph",
}


@pytest.mark.timeout(600)
async def test_the_examples_run_and_leave_a_session(
    model: ModelServer, tmp_path: Path, adk_python: Path
) -> None:
    assert set(EXAMPLES) == set(PLATFORMS)
    google = {"Google ADK"}

    outputs = await asyncio.gather(
        _run(sys.executable, _without(google), model, tmp_path),
        _run(adk_python, {name: EXAMPLES[name] for name in google}, model, tmp_path),
    )

    assert outputs[0] | outputs[1] == dict.fromkeys(EXAMPLES, "")
    for name, platform in PLATFORMS.items():
        with Sessionary(home=str(tmp_path / name)) as client:
            (head,) = client.sessions().items
            assert (head.source.platform, head.message_count >= 2) == (platform, True)
            assert client.search("Alice").items


@pytest.mark.timeout(300)
async def test_the_examples_of_approvals_run_and_the_tool_is_called_after_the_answer(
    model: ModelServer, tmp_path: Path
) -> None:
    assert set(APPROVALS) == {"OpenAI Agents SDK", "pydantic-ai"}

    assert await _run(sys.executable, APPROVALS, model, tmp_path) == dict.fromkeys(APPROVALS, "")

    for name in APPROVALS:
        with Sessionary(home=str(tmp_path / name)) as client:
            (question,) = client.questions.list(state="all")
            (head,) = client.sessions().items
            *_, last = client.find(head.id).messages()
            assert (question.is_approved, last.text) == (
                True,
                "The report says Lisbon: 21 degrees",
            )


@pytest.mark.timeout(300)
async def test_the_other_examples_run_and_leave_a_session(
    model: ModelServer, tmp_path: Path
) -> None:
    names = {"A run": "OpenAI, a run", "Only": "LangGraph, only the recorder"}
    assert set(OTHERS) == set(names)
    examples = {names[each]: text for each, text in OTHERS.items()}

    assert await _run(sys.executable, examples, model, tmp_path) == dict.fromkeys(examples, "")

    with Sessionary(home=str(tmp_path / names["A run"])) as client:
        (head,) = client.sessions().items
        *_, last = client.find(head.id).messages()
        assert last.text == "The report says Lisbon: 21 degrees"
    with Sessionary(home=str(tmp_path / names["Only"])) as client:
        assert client.search("Alice").items


def _without(names: set[str]) -> dict[str, str]:
    return {name: text for name, text in EXAMPLES.items() if name not in names}


async def _run(
    python: str | Path, examples: Mapping[str, str], model: ModelServer, folder: Path
) -> dict[str, str]:
    given = {name: (text, str(folder / name)) for name, text in examples.items()}
    (folder / "work").mkdir(exist_ok=True)
    child = await asyncio.create_subprocess_exec(
        python,
        "-m",
        "tests.integrations.programs.examples",
        cwd=folder / "work",
        env=environ() | _providers(model, folder),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await child.communicate(json.dumps(given).encode())
    assert child.returncode == 0, err.decode()
    found: dict[str, str] = json.loads(out.decode().splitlines()[-1])
    return found


def _providers(model: ModelServer, folder: Path) -> dict[str, str]:
    """Where the SDKs look for their models, by the variables that each of them reads."""
    return {
        "HOME": str(folder),
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": model.openai_url,
        "OPENAI_API_BASE": model.openai_url,
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_BASE_URL": model.url,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "GOOGLE_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": model.url,
    }
