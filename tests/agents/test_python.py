"""An agent that is a function."""

import asyncio
import re
from typing import Any

import pytest

from sessionary.agents.python import PythonRunner, load
from sessionary.engine.ports import NoServices, Runner, TurnRequest
from sessionary.errors import AgentFailed, BadInput, Conflict, NotAllowed
from sessionary.model.question import Answer, Decision, QuestionKind
from sessionary.testing.runner_suite import (
    PROMPT_SECONDS,
    AskingRunnerSuite,
    RunnerSuite,
    SlowRunnerSuite,
    asked_in,
    continued,
    decided_question,
    events_of,
    steps_of,
    streamed,
    turn_request,
)
from tests.agents import functions
from tests.project.code import ROOT

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


class TestAskingPython(AskingRunnerSuite):
    @pytest.fixture(
        params=["asks", "asks_between_steps", "asks_at_once", "asks_in_tasks", "approves"]
    )
    def asking_runner(self, request: pytest.FixtureRequest) -> Runner:
        return runner_of(f"{HERE}:{request.param}")


def say(text: str) -> Answer:
    return Answer(decision=Decision.APPROVE, text=text)


async def goes_on(
    name: str, *rounds: Answer | tuple[Answer, ...] | None, services: NoServices | None = None
) -> list[str]:
    """Call a function until all that it asks is answered, in each round with the next answers; return its steps."""
    runner, request = runner_of(f"{HERE}:{name}"), turn_request("hello")
    if services is not None:
        request = turn_request("hello", services=services)
    for answers in rounds:
        events = await events_of(runner, request)
        given = answers if isinstance(answers, tuple) else (answers,)
        pairs = zip(asked_in(events), given, strict=True)
        decided = [decided_question(asked, answer) for asked, answer in pairs]
        request = continued(request, events, *decided)
    events = await events_of(runner, request)
    assert asked_in(events) == ()
    steps = [*request.steps, *(step.message for step in steps_of(events))]
    return [step.text for step in steps]


async def test_a_function_gets_its_answers_one_after_the_other() -> None:
    nights = Answer(decision=Decision.APPROVE, values={"nights": 3})

    assert await goes_on("asks", say("Rome"), say("on foot"), nights) == [
        "To Rome on foot for 3 nights."
    ]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(decision=Decision.DENY, text="none of your business"), "Denied by Ann: none of"),
        (None, "Nobody answered in time."),
    ],
)
async def test_a_question_that_is_not_answered_raises_why(answer: Answer | None, why: str) -> None:
    (text,) = await goes_on("asks", answer)

    assert text.startswith(f"Then not. {why}")


async def test_what_a_function_yields_again_is_recorded_once() -> None:
    assert await goes_on("asks_between_steps", say("Bob")) == ["First.", "Let me see, Bob."]


async def test_several_questions_are_asked_at_once() -> None:
    events = await events_of(runner_of(f"{HERE}:asks_at_once"), turn_request("hello"))
    where, book = asked_in(events)
    assert (where.kind, book.kind) == (QuestionKind.TEXT, QuestionKind.APPROVAL)
    assert (book.tool, book.arguments) == ("book", {"nights": 2})

    changed = Answer(decision=Decision.APPROVE, arguments={"nights": 1})
    assert await goes_on("asks_at_once", (say("Rome"), changed)) == ["Booked 1 nights in Rome."]


async def test_tasks_of_a_function_ask_together() -> None:
    assert await goes_on("asks_in_tasks", (say("Bob"), say("here"))) == ["Bob here"]


async def test_a_denied_approval_raises_why() -> None:
    denied = Answer(decision=Decision.DENY, text="not on Fridays")

    assert await goes_on("approves", denied) == ["Then not: Denied by Ann: not on Fridays."]


class Started(NoServices):
    """Notes which approvals were started, as a turn does."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    async def start_approved(self, name: str) -> bool:
        is_new = name not in self.names
        self.names.add(name)
        return is_new


async def test_an_approval_is_returned_once() -> None:
    approve = Answer(decision=Decision.APPROVE)

    with pytest.raises(Conflict, match="it is not known whether it ran"):
        await goes_on("approves_then_asks", approve, say("nothing"), services=Started())


async def test_what_may_be_done_twice_is_approved_each_time() -> None:
    services, request = Started(), turn_request("hello")
    asked = asked_in(await events_of(runner_of(f"{HERE}:approves"), request))
    question = decided_question(asked[0], Answer(decision=Decision.APPROVE))
    again = turn_request("hello", questions=(question,), services=services)
    name = question.asked.name

    first = await again.approve("deploy", {"to": "prod"}, name=name, is_safe=True)
    second = await again.approve("deploy", {"to": "prod"}, name=name, is_safe=True)

    assert first == second == {"to": "prod"}


async def test_another_question_of_the_same_name_is_refused() -> None:
    with pytest.raises(AgentFailed, match="has asked something else as question '1'"):
        await goes_on("changes_its_mind", say("a"))


async def test_an_approval_does_not_count_for_other_arguments() -> None:
    asked = asked_in(await events_of(runner_of(f"{HERE}:approves"), turn_request("hello")))
    question = decided_question(asked[0], Answer(decision=Decision.APPROVE))
    request: TurnRequest = turn_request("hello", questions=(question,))

    with pytest.raises(AgentFailed, match="has asked something else"):
        await request.approve("deploy", {"to": "staging"}, name="1")


async def test_a_question_that_nobody_could_answer_is_refused_at_once() -> None:
    request: TurnRequest = turn_request("hello")
    with pytest.raises(BadInput, match="2 to 20"):
        await request.ask("Which?", options=["only this"])
    with pytest.raises(BadInput, match="JSON"):
        await request.approve("deploy", {"to": object()})


async def test_there_is_nobody_to_ask_outside_a_turn() -> None:
    (asked,) = asked_in(await events_of(runner_of(f"{HERE}:approves"), turn_request("hello")))

    with pytest.raises(NotAllowed):
        await NoServices().ask_now(asked, seconds=1)


async def test_the_function_of_the_page_asks_and_books() -> None:
    page = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    section = page.partition("### Functions that ask")[2]
    example = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert example is not None
    names: dict[str, Any] = {}
    exec(example[1], names)
    runner, request = PythonRunner(names["answer"], name="page"), turn_request("hello")
    nights = Answer(decision=Decision.APPROVE, values={"nights": 2})
    for answer in (say("Oslo"), nights, Answer(decision=Decision.APPROVE)):
        events = await events_of(runner, request)
        (asked,) = asked_in(events)
        request = continued(request, events, decided_question(asked, answer))

    (step,) = steps_of(await events_of(runner, request))
    assert step.message.text == "Booked: 2 nights in Oslo."
