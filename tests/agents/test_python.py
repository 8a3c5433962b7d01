"""An agent that is a function."""

import asyncio

import pytest

from sessionary.agents.python import PythonRunner, load
from sessionary.engine.ports import Runner
from sessionary.errors import AgentFailed, BadInput
from sessionary.testing.runner_suite import (
    PROMPT_SECONDS,
    RunnerSuite,
    SlowRunnerSuite,
    events_of,
    steps_of,
    streamed,
    turn_request,
)
from tests.agents import functions

HERE = "tests.agents.functions"
SHAPES = ["returns", "returns_later", "gives_a_message", "yields", "yields_steps", "Made.inside"]


def runner_of(entry_point: str) -> PythonRunner:
    return PythonRunner(load(entry_point), name=entry_point)


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> Runner:
    return runner_of(f"{HERE}:{request.param}")


class TestPython(RunnerSuite):
    @pytest.fixture
    def runner(self, shape: Runner) -> Runner:
        return shape

    async def test_the_answer_is_what_the_function_gave(self, runner: Runner) -> None:
        steps = steps_of(await events_of(runner, turn_request("hello")))

        assert steps[-1].message.text == "You said hello"


class TestSlowPython(SlowRunnerSuite):
    @pytest.fixture(params=["hangs", "hangs_politely"])
    def slow_runner(self, request: pytest.FixtureRequest) -> Runner:
        return runner_of(f"{HERE}:{request.param}")


async def test_what_a_generator_yields_is_streamed() -> None:
    events = await events_of(runner_of(f"{HERE}:yields_steps"), turn_request("hello"))

    assert streamed(events, thinking=True) == "hm"
    assert streamed(events) == "You said hello"
    assert [step.message.text for step in steps_of(events)] == ["First.", "You said hello"]


async def test_leaving_closes_a_generator_that_runs_in_a_thread() -> None:
    functions.closed.clear()
    events = runner_of(f"{HERE}:yields").run(turn_request("hello"))
    await anext(events)

    await events.aclose()  # type: ignore[attr-defined]

    assert await asyncio.to_thread(functions.closed.wait, PROMPT_SECONDS)


async def test_an_error_of_the_function_fails_the_turn_as_it_is() -> None:
    with pytest.raises(LookupError, match="no tea"):
        await events_of(runner_of(f"{HERE}:fails"), turn_request("hello"))


@pytest.mark.parametrize("name", ["silent", "numbers"])
async def test_an_agent_that_says_nothing_of_use_fails(name: str) -> None:
    with pytest.raises(AgentFailed, match=name):
        await events_of(runner_of(f"{HERE}:{name}"), turn_request("hello"))


@pytest.mark.parametrize(
    "entry_point", ["", "json", ":x", "no.such.module:run", "json:nothing", "json:__name__"]
)
def test_an_entry_point_that_leads_nowhere_is_refused(entry_point: str) -> None:
    with pytest.raises(BadInput):
        runner_of(entry_point)
