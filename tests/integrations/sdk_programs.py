"""Driving programs that are written with an SDK, and looking at what they left."""

import asyncio
import json
import os
import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sessionary import Sessionary
from sessionary.actions import verify
from sessionary.model.message import Message
from tests.support.model_script import Answer, Call, Reply
from tests.support.model_server import Ask, ModelServer

ROOT = Path(__file__).parents[2]
MODEL = "gpt-4o-mini"
Urls = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a program ended, and what it printed."""

    code: int
    answers: list[str]
    error: str


def weather_model(ask: Ask) -> Answer:
    """A model that asks the tool `weather` when it is asked for the weather, then repeats the result."""
    last = ask.messages[-1]
    words = _words(last.get("content"))
    if last["role"] == "tool" or "tool_result" in words:
        return Reply(f"The report says {_heard(last)}")
    if cities := re.findall(r"weather in (\w+)", words):
        city = cities[-1]
        return Reply(calls=(Call(_tool(ask), {"city": city}, id=f"call_{len(ask.messages)}"),))
    return Reply(f"I have read {len(ask.messages)} messages.")


def _tool(ask: Ask) -> str:
    """The tool for the weather, by the name that it has in this program."""
    names = re.findall(r'"name": "(\w*weather)"', json.dumps(ask.body.get("tools", ())))
    return names[0] if names else "weather"


def _words(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content)


def _heard(message: dict[str, Any]) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    results = [each for each in content if each.get("type") in ("tool_result", "text")]
    found = results[0].get("content", results[0].get("text"))
    return found if isinstance(found, str) else str(found[0]["text"])


def environ() -> dict[str, str]:
    """What a program may know of the machine: nothing of who runs the tests."""
    known = ("PATH", "LANG", "SESSIONARY_HOME")
    kept = {each: os.environ[each] for each in known if each in os.environ}
    return kept | {
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src"))),
        # Milliseconds that the Claude Agent SDK waits until its program has started; by default a minute.
        "CLAUDE_CODE_STREAM_CLOSE_TIMEOUT": "240000",
    }


async def run(
    program: str,
    urls: Urls,
    server: ModelServer,
    *prompts: str,
    name: str = "alice",
    die: bool = False,
    python: str | Path = sys.executable,
) -> Outcome:
    """Run a program of `programs`: on every store it has a conversation of these prompts.

    With `die` it is killed inside its second call of a tool, on all stores at once.
    """
    given = {"urls": urls, "model": server.url, "name": name, "prompts": prompts, "die": die}
    child = await asyncio.create_subprocess_exec(
        python,
        "-m",
        f"tests.integrations.programs.{program}",
        json.dumps(given),
        cwd=ROOT,
        env=environ(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await child.communicate()
    lines = out.decode().strip().splitlines()
    assert child.returncode is not None
    answers = json.loads(lines[-1]) if lines and child.returncode == 0 else []
    return Outcome(child.returncode, answers, err.decode())


async def tell_kill_and_continue(
    program: str, urls: Urls, server: ModelServer, *, python: str | Path = sys.executable
) -> list[Ask]:
    """Two turns, killed in the third, one more in another process; what the model read in that."""
    prompts = (
        "Good morning, this is Ada.",
        "How is the weather in Lisbon?",
        "And the weather in Porto?",
    )
    died = await run(program, urls, server, *prompts, die=True, python=python)
    assert died.code == -signal.SIGKILL, died.error
    server.requests.clear()

    went_on = await run(program, urls, server, "Do you remember me?", python=python)

    assert went_on.code == 0, went_on.error
    assert all(answer.startswith("I have read") for answer in went_on.answers)
    return [ask for ask in server.requests if ask.messages]


@dataclass(frozen=True, slots=True)
class Kept:
    """What one store has of the one session in it."""

    texts: list[str]
    tool_calls: int
    found: int
    tokens: int
    cost: int | None
    platform: str


def kept(url: str, *, find: str = "Lisbon") -> Kept:
    """Look at the only session as a person would, and see that the store is sound."""
    with Sessionary(url) as client:
        (head,) = client.sessions().items
        window = client.find(head.id).entries(limit=200)
        messages = [entry.body for entry in window.entries if isinstance(entry.body, Message)]
        assert broken(client) == []
        return Kept(
            texts=[one.text.strip() for one in messages],
            tool_calls=head.tool_call_count,
            found=len(client.search(find, all_hits=True).items),
            tokens=head.usage.input_tokens,
            cost=head.usage.cost_microusd,
            platform=head.source.platform,
        )


def broken(client: Sessionary) -> list[Any]:
    """The invariants that do not hold."""
    return list(verify.verify(client.store).broken)
