"""The examples of the page about this interface, run with the official client against a server."""

import asyncio
import json
from typing import Any

import pytest

from tests.project.code import ROOT
from tests.project.test_docs import run_examples
from tests.support.model_script import Call
from tests.support.model_server import Ask, ModelServer, Reply
from tests.support.openai_world import OpenAIWorld

PAGE = ROOT / "docs" / "openai.md"


def answer(asked: Ask) -> Reply:
    """What the model answers: it looks if it is given the tool, until it has the result."""
    has_tools = bool(asked.body.get("tools"))
    is_told = asked.messages[-1]["role"] == "tool"
    if has_tools and not is_told:
        return Reply(calls=(Call("look", {}, id="c1"),))
    return Reply("It is." if is_told else "Sencha.")


async def test_the_examples_of_the_page_run(
    server: OpenAIWorld, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.otherwise = answer
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", await server.token())

    await asyncio.to_thread(run_examples, PAGE.read_text(encoding="utf-8"), PAGE.name)

    sent: list[Any] = [each.body["messages"] for each in model.requests]
    assert "Sales rose by a third." in json.dumps(sent[-1])
    assert any("I am Ada." in json.dumps(each) for each in sent)
