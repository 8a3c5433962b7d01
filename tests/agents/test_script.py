"""The agents that need nobody: echo and the demo."""

import pytest

from sessionary.agents.demo import SCENES, SIGNATURE, EchoRunner, ScriptRunner, scene_for
from sessionary.engine.ports import Runner
from sessionary.model.message import Role, ToolResult
from sessionary.model.usage import CostStatus
from sessionary.testing.runner_suite import (
    RunnerSuite,
    SlowRunnerSuite,
    events_of,
    steps_of,
    streamed,
    turn_request,
)

SAID = {
    "hello there": "a greeting",
    "What files are here?": "a tool",
    "please fix the greeting": "an edit",
    "let a tool fail": "a failing tool",
    "a long answer, please": "a long answer",
    "qwertz": "anything else",
}


class TestEcho(RunnerSuite):
    @pytest.fixture
    def runner(self) -> Runner:
        return EchoRunner()

    async def test_the_echo_agent_answers_with_the_last_prompt(self, runner: Runner) -> None:
        request = turn_request("one", {"role": "assistant", "content": "uno"}, "two")

        events = await events_of(runner, request)

        assert streamed(events) == "two"
        assert [step.message.text for step in steps_of(events)] == ["two"]


class TestScript(RunnerSuite, SlowRunnerSuite):
    @pytest.fixture
    def runner(self) -> Runner:
        return ScriptRunner(pace=0)

    @pytest.fixture
    def slow_runner(self) -> Runner:
        return ScriptRunner(pace=60)

    @pytest.mark.parametrize(("text", "scene"), SAID.items())
    def test_the_scene_is_chosen_by_the_prompt(self, text: str, scene: str) -> None:
        assert scene_for(text).name == scene

    def test_every_scene_can_be_reached(self) -> None:
        assert {scene.name for scene in SCENES} == set(SAID.values())

    @pytest.mark.parametrize("text", SAID)
    async def test_what_was_streamed_is_what_is_kept(self, runner: Runner, text: str) -> None:
        events = await events_of(runner, turn_request(text))

        texts = [step.message.text for step in steps_of(events) if step.message.text]
        assert streamed(events) == "".join(texts)

    @pytest.mark.parametrize("text", SAID)
    async def test_every_answer_says_that_it_is_a_demo(self, runner: Runner, text: str) -> None:
        last = steps_of(await events_of(runner, turn_request(text)))[-1]

        assert last.message.text.endswith(SIGNATURE)
        assert last.message.model == "demo"

    async def test_the_same_words_give_the_same_turn(self, runner: Runner) -> None:
        request = turn_request("fix it")

        assert await events_of(runner, request) == await events_of(runner, request)

    async def test_the_demo_costs_nothing_and_says_so(self, runner: Runner) -> None:
        steps = steps_of(await events_of(runner, turn_request("list files")))

        for usage in [step.usage for step in steps if step.message.role is Role.ASSISTANT]:
            assert usage is not None
            assert (usage.cost_status, usage.cost_microusd) == (CostStatus.INCLUDED, 0)

    async def test_a_tool_can_fail(self, runner: Runner) -> None:
        steps = steps_of(await events_of(runner, turn_request("fail")))

        results = [part for step in steps for part in step.message.parts]
        assert [part.is_error for part in results if isinstance(part, ToolResult)] == [True]
