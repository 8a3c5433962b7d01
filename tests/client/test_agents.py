"""Python agents: the example of the page runs, and a server's answer is waited for."""

import asyncio
import re
from pathlib import Path

import pytest

from sessionary import (
    AgentFailed,
    AsyncSessionary,
    BadInput,
    RetryLater,
    Sessionary,
    ToolCall,
    ToolResult,
)
from sessionary.app.engine import build_engine
from tests.project.code import ROOT
from tests.support.model_server import ModelServer, Reply, Tokens

PAGE = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """The first block of the section about functions."""
    section = PAGE.partition("## A function")[2]
    found = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_example_of_the_page_answers(home: Path, url: str) -> None:
    (home / "sessionary.toml").write_text(block("toml"))
    (home / "clerk.py").write_text(block("python"))

    with Sessionary(url, home=home) as s:
        first = s.ask("What is a plum?", session="alice", agent="clerk", timeout=120)
        reply = s.ask("And a prune?", session="alice", agent="clerk", timeout=120)

        assert first.text == "You have asked 1 questions so far."
        assert reply.text == "You have asked 2 questions so far."
        assert (reply.usage.calls, reply.usage.output_tokens) == (1, 7)
        parts = [part for message in reply.messages for part in message.parts]
        assert [type(part) for part in parts if isinstance(part, ToolCall | ToolResult)] == [
            ToolCall,
            ToolResult,
        ]


def test_the_example_is_that_of_the_bot() -> None:
    bot = (ROOT / "examples" / "bot" / "clerk.py").read_text(encoding="utf-8")

    assert block("python").partition("def answer")[2] == bot.partition("def answer")[2]


def test_an_agent_that_fails_or_is_not_there_is_an_error(home: Path) -> None:
    (home / "sessionary.toml").write_text(
        '[agents.broken]\nkind = "python"\nfunction = "broken_agent:answer"\n'
    )
    (home / "broken_agent.py").write_text(
        "def answer(request):\n    raise ValueError('no plums')\n"
    )
    with Sessionary() as s:
        with pytest.raises(AgentFailed, match="no plums"):
            s.ask("hello", session="alice", agent="broken", timeout=120)
        with pytest.raises(BadInput, match="There is no agent 'nobody'"):
            s.ask("hello", agent="nobody")
        assert s.session("alice").messages().items[0].text == "hello"


async def test_the_reply_of_another_process_is_waited_for(url: str) -> None:
    async with AsyncSessionary(url) as s:
        arrival = await s.arrivals.send("alice", "hello")
        with pytest.raises(RetryLater):
            await s.arrivals.reply(arrival.id, timeout=0)

        async with AsyncSessionary(url) as server:
            engine = build_engine(server.app)
            await engine.start()
            try:
                reply = await asyncio.wait_for(s.arrivals.reply(arrival.id), 120)
            finally:
                await engine.stop()

        assert reply.text
        assert (await s.arrivals.get(arrival.id)).session_id == reply.session_id


def test_a_new_session_has_its_own_model_and_labels(home: Path) -> None:
    with Sessionary() as s:
        chat = s.new_session(title="Plans", model="gpt-5", labels=["work"], settings={"seed": 1})
        chat.append("user", "hello")

        assert (chat.head().model, chat.head().labels) == ("gpt-5", ("work",))


async def test_what_a_summary_used_is_recorded(home: Path, url: str) -> None:
    async with ModelServer() as model:
        (home / "sessionary.toml").write_text(
            f'[agents.writer]\nkind = "model"\nmodel = "m"\nbase_url = "{model.openai_url}"\n'
        )
        model.will(Reply("They talked about plums.", tokens=Tokens(fresh=40, output=6)))
        async with AsyncSessionary(url, home=home) as s:
            chat = s.session("alice")
            await chat.append("user", "What is a plum? " * 100)
            await chat.append("assistant", "A fruit.")

            head = await chat.compact(agent="writer", focus="fruit")

            context, last = await chat.context()
            (total,) = await s.usage("model")
            with pytest.raises(BadInput, match="use `through` with a summary"):
                await chat.compact(through=1)
    assert str(context["content"]).endswith("They talked about plums.")
    assert last["content"] == "A fruit."
    assert (total.group, total.calls, total.input_tokens, total.output_tokens) == ("m", 1, 40, 6)
    assert (head.usage.input_tokens, head.usage.output_tokens) == (40, 6)
