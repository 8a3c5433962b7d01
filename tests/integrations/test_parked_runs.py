"""Runs of an SDK that stop for approvals, stored with a turn of the program, and resumed by the SDK itself."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import DeferredToolRequests, RunContext

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from sessionary import AsyncSessionary, BadInput, Conflict, Question, Sessionary
from sessionary.integrations.openai_agents import park_run, resume_run
from sessionary.integrations.pydantic_ai import deferred_results, message_history, park_requests
from sessionary.model.turn import TurnState
from tests.integrations.sdk_programs import MODEL, ROOT, broken, environ
from tests.support.model_script import Call, Reply
from tests.support.model_server import ModelServer

FARO = "How is the weather in Faro?"


def only_question(client: Sessionary) -> Question:
    (question,) = client.questions.list()
    return question


def last_answer(client: Sessionary) -> str:
    return list(client.session("alice").messages())[-1].text


# The OpenAI Agents SDK.


@dataclass
class Guide:
    """An agent whose tool must be approved, as a program makes it anew each time."""

    model: OpenAIChatCompletionsModel
    cities: list[str] = field(default_factory=list)

    def agent(self) -> Agent[Any]:
        @function_tool(needs_approval=True)
        def weather(city: str, day: str = "today") -> str:
            """The weather in a city."""
            self.cities.append(f"{city} {day}")
            return f"{city}: 21 degrees"

        return Agent(name="guide", model=self.model, tools=[weather])

    async def ask(self, client: Sessionary, prompt: str = FARO) -> None:
        with client.session("alice").turn(prompt) as turn:
            result = await Runner.run(self.agent(), prompt)
            await park_run(turn, result)

    async def go_on(self, client: Sessionary) -> bool:
        """Return whether the run has ended."""
        with client.session("alice").resume_turn() as turn:
            agent = self.agent()
            result = await Runner.run(agent, await resume_run(turn, agent))
            if result.interruptions:
                await park_run(turn, result)
                return False
            turn.append("assistant", str(result.final_output))
            return True


@pytest.fixture
async def guide(model: ModelServer) -> AsyncIterator[Guide]:
    set_tracing_disabled(True)
    async with AsyncOpenAI(base_url=model.openai_url, api_key="none") as openai_client:
        yield Guide(OpenAIChatCompletionsModel(MODEL, openai_client))


async def test_an_approved_tool_runs_once(client: Sessionary, guide: Guide) -> None:
    await guide.ask(client)
    question = only_question(client)
    assert (question.asked.tool, question.asked.arguments) == ("weather", {"city": "Faro"})
    assert guide.cities == []

    client.questions.answer(question.id, approve=True)
    assert await guide.go_on(client)

    assert guide.cities == ["Faro today"]
    assert last_answer(client) == "The report says Faro: 21 degrees"
    assert broken(client) == []


async def test_a_denied_tool_never_runs_and_the_model_reads_why(
    client: Sessionary, guide: Guide
) -> None:
    await guide.ask(client)
    client.questions.answer(only_question(client).id, approve=False, reason="I have a window")

    assert await guide.go_on(client)

    assert guide.cities == []
    assert "I have a window" in last_answer(client)


async def test_a_tool_with_other_arguments_is_rejected_and_asked_about_again(
    client: Sessionary, model: ModelServer, guide: Guide
) -> None:
    await guide.ask(client)
    first = only_question(client)
    client.questions.answer(first.id, approve=True, arguments={"city": "Lagos"})
    model.will(Reply(calls=(Call("weather", {"city": "Lagos"}, id="again"),)))

    assert not await guide.go_on(client)

    second = only_question(client)
    assert (second.asked.arguments, guide.cities) == ({"city": "Lagos"}, [])
    assert '{"city": "Lagos"}' in str(model.requests[-1].messages[-1]["content"])
    client.questions.answer(second.id, approve=True)
    assert await guide.go_on(client)
    assert guide.cities == ["Lagos today"]


async def test_two_calls_are_decided_each_by_its_own_answer(
    client: Sessionary, model: ModelServer, guide: Guide
) -> None:
    cities = ("Faro", "Lagos", "Porto")
    calls = tuple(
        Call("weather", {"city": city}, id=f"c{number}") for number, city in enumerate(cities)
    )
    model.will(Reply(calls=calls))
    await guide.ask(client, "Everywhere?")
    for question in list(client.questions.list()):
        is_lagos = question.asked.arguments == {"city": "Lagos"}
        client.questions.answer(question.id, approve=not is_lagos)

    assert await guide.go_on(client)

    assert sorted(guide.cities) == ["Faro today", "Porto today"]


async def test_a_stored_run_that_asks_for_another_call_is_not_resumed(
    client: Sessionary, guide: Guide
) -> None:
    await guide.ask(client)
    client.questions.answer(only_question(client).id, approve=True)

    with client.session("alice").resume_turn() as turn:
        changed = Changed(turn.questions, str(turn.state).replace("Faro", "Lagos"))
        with pytest.raises(Conflict, match="nobody was asked about this call"):
            await resume_run(changed, guide.agent())

    assert guide.cities == []


@dataclass
class Changed:
    """A turn with a state that somebody has changed."""

    questions: tuple[Question, ...]
    state: str

    def wait_for(self, questions: Any, *, state: str | None = None) -> tuple[Question, ...]:
        raise AssertionError


async def test_the_call_of_an_agent_that_is_a_tool_is_asked_about(
    client: Sessionary, model: ModelServer, guide: Guide
) -> None:
    def outer() -> Agent[Any]:
        tool = guide.agent().as_tool("ask_guide", "Asks the guide.")
        return Agent(name="clerk", model=guide.model, tools=[tool])

    model.will(Reply(calls=(Call("ask_guide", {"input": FARO}, id="outer"),)))
    with client.session("alice").turn("Ask the guide.") as turn:
        result = await Runner.run(outer(), "Ask the guide.")
        await park_run(turn, result)
    question = only_question(client)
    assert (question.asked.tool, guide.cities) == ("weather", [])
    client.questions.answer(question.id, approve=True)

    with client.session("alice").resume_turn() as turn:
        agent = outer()
        result = await Runner.run(agent, await resume_run(turn, agent))

    assert guide.cities == ["Faro today"]
    assert "Faro: 21 degrees" in str(result.final_output)


async def test_a_run_that_asks_nothing_is_not_parked(client: Sessionary, guide: Guide) -> None:
    with client.session("alice").turn("Hello") as turn:
        result = await Runner.run(guide.agent(), "Hello")
        with pytest.raises(BadInput, match="nothing to ask"):
            await park_run(turn, result)
        with pytest.raises(BadInput, match="has no run of openai-agents"):
            await resume_run(turn, guide.agent())
    (newest,) = client.session("alice").turns()
    assert newest.turn.state is TurnState.DONE


@pytest.mark.parametrize(
    ("die", "runs", "state"),
    [
        ("while it waits", 1, TurnState.DONE),
        ("before the tool", 0, TurnState.INTERRUPTED),
        ("after the tool", 1, TurnState.INTERRUPTED),
    ],
)
async def test_a_program_that_is_killed_runs_an_approved_tool_at_most_once(
    url: str, model: ModelServer, tmp_path: Path, die: str, runs: int, state: TurnState
) -> None:
    ran = tmp_path / "ran.txt"

    async def program(point: str) -> int:
        task = {"url": url, "model": model.url, "ran": str(ran), "die": point}
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.integrations.programs.openai_approvals",
            json.dumps(task),
            cwd=ROOT,
            env=environ(),
        )
        return await child.wait()

    killed = -signal.SIGKILL
    assert await program(die) == (killed if die == "while it waits" else 0)
    async with AsyncSessionary(url) as client:
        (question,) = [each async for each in client.questions.list()]
        await client.questions.answer(question.id, approve=True)
        assert not ran.exists()

        assert await program(die) == (0 if die == "while it waits" else killed)
        if die != "while it waits":
            with pytest.raises(Conflict, match="has ended"):
                await client.session("alice").resume_turn().__aenter__()

        (newest,) = [each async for each in client.session("alice").turns()]
    lines = ran.read_text().splitlines() if ran.exists() else []
    assert (lines, newest.turn.state) == (["Faro"] * runs, state)


# pydantic-ai.


@dataclass
class Keeper:
    """An agent of pydantic-ai whose tool must be approved, as a program makes it anew each time."""

    model: Any
    deleted: list[tuple[str, int]] = field(default_factory=list)
    read: list[str] = field(default_factory=list)

    def agent(self) -> PydanticAgent[None, str | DeferredToolRequests]:
        agent = PydanticAgent(self.model, output_type=[str, DeferredToolRequests])

        @agent.tool_plain(requires_approval=True)
        def delete(path: str, days: int = 30) -> str:
            """Delete a file."""
            self.deleted.append((path, days))
            return f"{path} is deleted"

        @agent.tool
        def read(ctx: RunContext[object], path: str) -> str:
            """Read a file; those of others only with an approval."""
            if path.startswith("/") and not ctx.tool_call_approved:
                raise ApprovalRequired
            self.read.append(path)
            return f"contents of {path}"

        return agent

    async def ask(self, client: Sessionary) -> None:
        prompt = "Delete old.log."
        with client.session("alice").turn(prompt) as turn:
            result = await self.agent().run(prompt)
            assert isinstance(result.output, DeferredToolRequests)
            await park_requests(turn, result.output, result.all_messages())

    async def go_on(self, client: Sessionary) -> bool:
        """Return whether the run has ended."""
        with client.session("alice").resume_turn() as turn:
            result = await self.agent().run(
                message_history=message_history(turn), deferred_tool_results=deferred_results(turn)
            )
            if isinstance(result.output, DeferredToolRequests):
                await park_requests(turn, result.output, result.all_messages())
                return False
            turn.append("assistant", result.output)
            return True


def delete_then(*calls: ToolCallPart) -> FunctionModel:
    """A model that makes these calls, and then repeats what became of them."""

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        results = [
            str(part.content)
            for message in messages
            for part in message.parts
            if isinstance(part, ToolReturnPart)
        ]
        return ModelResponse(parts=[TextPart("; ".join(results))] if results else list(calls))

    return FunctionModel(answer)


@pytest.fixture
def keeper() -> Keeper:
    return Keeper(delete_then(ToolCallPart("delete", '{"path": "old.log"}', "c1")))


async def test_pydantic_ai_runs_an_approved_tool_once(client: Sessionary, keeper: Keeper) -> None:
    await keeper.ask(client)
    question = only_question(client)
    assert (question.asked.tool, question.asked.arguments) == ("delete", {"path": "old.log"})

    client.questions.answer(question.id, approve=True)
    assert await keeper.go_on(client)

    assert keeper.deleted == [("old.log", 30)]
    assert last_answer(client) == "old.log is deleted"
    assert broken(client) == []


async def test_pydantic_ai_reads_why_a_tool_was_denied(client: Sessionary, keeper: Keeper) -> None:
    await keeper.ask(client)
    client.questions.answer(only_question(client).id, approve=False, reason="keep it")

    assert await keeper.go_on(client)

    assert keeper.deleted == []
    assert "keep it" in last_answer(client)


async def test_pydantic_ai_runs_the_tool_with_the_arguments_that_were_approved(
    client: Sessionary, keeper: Keeper
) -> None:
    await keeper.ask(client)
    changed = {"path": "older.log", "days": 90}
    client.questions.answer(only_question(client).id, approve=True, arguments=changed)

    assert await keeper.go_on(client)

    assert keeper.deleted == [("older.log", 90)]


async def test_pydantic_ai_decides_each_call_by_its_own_answer_and_runs_the_others_at_once(
    client: Sessionary,
) -> None:
    keeper = Keeper(
        delete_then(
            ToolCallPart("delete", {"path": "a.log"}, "c1"),
            ToolCallPart("read", {"path": "own.txt"}, "c2"),
            ToolCallPart("read", {"path": "/etc/hosts"}, "c3"),
        )
    )
    await keeper.ask(client)
    for question in list(client.questions.list()):
        client.questions.answer(question.id, approve=question.asked.tool == "read")

    assert await keeper.go_on(client)

    assert (keeper.deleted, keeper.read) == ([], ["own.txt", "/etc/hosts"])


async def test_pydantic_ai_asks_again_about_a_call_with_the_same_id(client: Sessionary) -> None:
    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        rounds = sum(isinstance(message, ModelResponse) for message in messages)
        if rounds == 2:
            return ModelResponse(parts=[TextPart("enough")])
        return ModelResponse(parts=[ToolCallPart("delete", {"path": f"{rounds}.log"}, "c1")])

    keeper = Keeper(FunctionModel(answer))
    await keeper.ask(client)
    client.questions.answer(only_question(client).id, approve=True)
    assert not await keeper.go_on(client)
    client.questions.answer(only_question(client).id, approve=False)
    assert await keeper.go_on(client)

    assert keeper.deleted == [("0.log", 30)]


async def test_pydantic_ai_refuses_what_does_not_belong_together(
    client: Sessionary, keeper: Keeper
) -> None:
    agent = keeper.agent()
    with client.session("alice").turn("Delete old.log.") as turn:
        result = await agent.run("Delete old.log.")
        assert isinstance(result.output, DeferredToolRequests)
        changed = ToolCallPart("delete", '{"path": "new.log"}', "c1")
        for requests, messages, why in (
            (result.output, [], "not the messages"),
            (DeferredToolRequests(approvals=[changed]), result.all_messages(), "not the messages"),
            (DeferredToolRequests(), result.all_messages(), "nothing to ask"),
        ):
            with pytest.raises(BadInput, match=why):
                await park_requests(turn, requests, messages)
        await park_requests(turn, result.output, result.all_messages())
    client.questions.answer(only_question(client).id, approve=True)
    with (
        client.session("alice").resume_turn() as turn,
        pytest.raises(BadInput, match="has a run of pydantic-ai"),
    ):
        await resume_run(turn, Agent(name="guide"))


async def test_every_message_of_pydantic_ai_comes_back(client: Sessionary) -> None:
    keeper = Keeper(TestModel(call_tools=["delete"]))
    prompt = "Delete a file."
    with client.session("alice").turn(prompt) as turn:
        result = await keeper.agent().run(prompt)
        assert isinstance(result.output, DeferredToolRequests)
        await park_requests(turn, result.output, result.all_messages())
    client.questions.answer(only_question(client).id, approve=False)
    with client.session("alice").resume_turn() as turn:
        assert message_history(turn) == result.all_messages()
