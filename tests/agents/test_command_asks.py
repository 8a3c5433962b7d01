"""A program that asks people something: its last line, and what it reads when it is started again."""

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sessionary.agents.command import CommandOptions, CommandRunner, request_line
from sessionary.engine.ports import Ask, Event, Runner
from sessionary.errors import AgentFailed
from sessionary.model.message import message
from sessionary.model.question import Answer, Decision, NewQuestion, QuestionKind
from sessionary.testing.runner_suite import (
    PROMPT_SECONDS,
    AskingRunnerSuite,
    asked_in,
    continued,
    decided_question,
    events_of,
    steps_of,
    streamed,
    turn_request,
)
from tests.agents.test_command import failure, program, saying
from tests.project.code import ROOT

WHERE = {"name": "where", "text": "Where to?", "options": ["Rome", "Oslo"]}
DEPLOY = {"name": "deploy", "tool": "deploy", "arguments": {"to": "prod"}, "text": "It is Friday."}
ASKS = """
import json, sys

def write(line):
    print(json.dumps(line), flush=True)

request = json.loads(sys.stdin.readline())
answers = {each["name"]: each["answer"] for each in request.get("questions", [])}
if "where" not in answers:
    write({"step": {"content": "I look."}})
    write({"ask": [{"name": "where", "text": "Where to?", "options": ["Rome", "Oslo"]},
                   {"name": "book", "tool": "book", "arguments": {"nights": 2}}]})
elif not answers["where"]:
    write({"reply": "Then not."})
else:
    nights = answers["book"]["arguments"]["nights"]
    write({"reply": f"{nights} nights in {answers['where']['text']}."})
"""


class TestAskingCommand(AskingRunnerSuite):
    @pytest.fixture
    def asking_runner(self) -> Runner:
        return program(ASKS)


async def test_the_answers_are_in_the_line_of_the_program_that_is_started_again() -> None:
    runner, request = program(ASKS), turn_request("hello")
    events = await events_of(runner, request)
    where, book = asked_in(events)
    chosen = Answer(decision=Decision.APPROVE, text="Oslo")
    changed = Answer(decision=Decision.APPROVE, arguments={"nights": 1})
    again = continued(
        request, events, decided_question(where, chosen), decided_question(book, changed)
    )

    (step,) = steps_of(await events_of(runner, again))

    assert step.message.text == "1 nights in Oslo."


def test_the_line_says_what_became_of_each_question() -> None:
    where = NewQuestion(name="where", kind=QuestionKind.TEXT, text="Where to?")
    deploy = NewQuestion(
        name="deploy", kind=QuestionKind.APPROVAL, text="", tool="deploy", arguments={"to": "prod"}
    )
    denied = Answer(decision=Decision.DENY, text="not on Fridays")
    questions = [
        decided_question(where),
        decided_question(deploy, Answer(decision=Decision.APPROVE)),
        decided_question(deploy, denied),
    ]
    events: list[Event] = []
    request = continued(turn_request("hello"), events, *questions)

    line = json.loads(request_line(request))

    assert line["resumed"] == 1
    call = {"tool": "deploy", "arguments": {"to": "prod"}, "kind": "approval", "text": ""}
    assert line["questions"] == [
        {
            "name": "where",
            "kind": "text",
            "text": "Where to?",
            "state": "expired",
            "outcome": "Nobody answered in time.",
            "answer": None,
        },
        {
            "name": "deploy",
            **call,
            "state": "answered",
            "outcome": "Approved by Ann.",
            "answer": {
                "decision": "approve",
                "text": "",
                "arguments": {"to": "prod"},
                "values": None,
                "by": "Ann",
            },
        },
        {
            "name": "deploy",
            **call,
            "state": "answered",
            "outcome": "Denied by Ann: not on Fridays.",
            "answer": {
                "decision": "deny",
                "text": "not on Fridays",
                "arguments": None,
                "values": None,
                "by": "Ann",
            },
        },
    ]


@pytest.mark.parametrize(
    ("asked", "question"),
    [
        (
            {"name": "who", "text": "Who?"},
            NewQuestion(name="who", kind=QuestionKind.TEXT, text="Who?"),
        ),
        (
            WHERE | {"kind": "choice"},
            NewQuestion(
                name="where", kind=QuestionKind.CHOICE, text="Where to?", options=("Rome", "Oslo")
            ),
        ),
        (
            DEPLOY,
            NewQuestion(
                name="deploy",
                kind=QuestionKind.APPROVAL,
                text="It is Friday.",
                tool="deploy",
                arguments={"to": "prod"},
            ),
        ),
        (
            {"name": "f", "text": "F", "schema": {"properties": {"n": {"type": "integer"}}}},
            NewQuestion(
                name="f",
                kind=QuestionKind.FORM,
                text="F",
                schema={"properties": {"n": {"type": "integer"}}},
            ),
        ),
    ],
    ids=["text", "choice", "approval", "form"],
)
async def test_the_kind_of_a_question_follows_from_what_it_has(
    asked: dict[str, Any], question: NewQuestion
) -> None:
    events = await events_of(saying({"ask": asked}), turn_request("hello"))

    assert events == [Ask((question,))]


async def test_what_was_written_before_is_kept() -> None:
    used = {"model": "m", "input_tokens": 7}
    runner = saying(
        {"step": {"content": "One."}}, {"delta": "Two"}, {"usage": used}, {"ask": WHERE}
    )

    events = await events_of(runner, turn_request("hello"))

    one, two = steps_of(events)
    assert (one.message, two.message.text) == (message("assistant", "One."), "Two")
    assert two.usage is not None
    assert streamed(events) == "Two"
    assert isinstance(events[-1], Ask)


async def test_a_model_call_that_led_only_to_a_question_is_paid_for() -> None:
    used = {"model": "m", "input_tokens": 7}
    events = await events_of(saying({"usage": used}, {"ask": WHERE}), turn_request("hello"))

    (step,) = steps_of(events)
    assert step.usage is not None
    assert step.usage.input_tokens == 7


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ("Where?", "Expected object, got str."),
        ([], "asked nothing"),
        ([WHERE, 7], "Expected object, got int."),
        ({"text": "Where?"}, "A question needs a name"),
        ({"name": "where"}, "A question needs a text."),
        ({"name": "where", "text": "Where?", "option": []}, "unknown field option"),
        ({"name": "where", "text": "Where?", "kind": "riddle"}, "'riddle' - at $.kind"),
        ({"name": "where", "text": "Where?", "options": ["Rome"]}, "2 to 20"),
        ({"name": "where", "text": "Where?", "kind": "choice"}, "2 to 20"),
        ({"name": "x", "kind": "approval", "text": "May I?"}, "An approval names its tool."),
        ({"name": "x", "tool": "deploy", "arguments": "prod"}, "got str - at $.arguments"),
        ({"name": "x", "text": "X", "arguments": {"a": 1}}, "Only a question of the kind approval"),
        ({"name": "x", "text": "X", "schema": {"properties": {"a": {}}}}, "'a' of a form"),
        ({"name": "x\u0000", "text": "X"}, "cannot be stored"),
    ],
)
async def test_a_question_that_cannot_be_asked_fails_the_turn_and_says_why(
    asked: object, problem: str
) -> None:
    error = await failure(saying({"step": {"content": "One."}}, {"ask": asked}))

    assert problem in str(error)


@pytest.mark.parametrize(
    "line", [{"reply": "Done."}, {"delta": "more"}, {"ask": DEPLOY}, "some words", {"usage": {}}]
)
async def test_nothing_may_come_after_a_question(line: object) -> None:
    error = await failure(saying({"ask": WHERE}, line))

    assert "wrote more after its question, which must be its last line" in str(error)


async def test_nothing_can_be_asked_after_the_reply() -> None:
    error = await failure(saying({"reply": "Done."}, {"ask": WHERE}))

    assert "asked something after its reply" in str(error)


async def test_a_program_that_fails_after_its_question_has_failed() -> None:
    code = f"import sys; print({json.dumps(json.dumps({'ask': WHERE}))}); sys.exit('no tea')"
    error = await failure(program(code))

    assert "ended with code 1" in str(error)
    assert "no tea" in str(error)


async def test_a_program_that_does_not_end_after_its_question_is_ended() -> None:
    code = f"""
import time
print({json.dumps(json.dumps({"ask": WHERE}))}, flush=True)
time.sleep(600)
"""
    runner: CommandRunner = program(code, kill_after_seconds=0.1)

    began = time.monotonic()
    events = await events_of(runner, turn_request("hello"))

    assert [each.name for each in asked_in(events)] == ["where"]
    assert time.monotonic() - began < PROMPT_SECONDS


async def test_a_program_with_an_open_input_may_ask_people_too() -> None:
    """Its input ends then, and whoever waits for a line goes on."""
    code = f"""
import sys
sys.stdin.readline()
print({json.dumps(json.dumps({"ask": WHERE}))}, flush=True)
sys.exit(len(sys.stdin.readline()))
"""
    runner = program(code, keep_input_open=True, kill_after_seconds=PROMPT_SECONDS)

    events = await events_of(runner, turn_request("hello"))

    assert [each.name for each in asked_in(events)] == ["where"]


async def test_what_is_asked_is_neither_shown_nor_counted_as_rubbish() -> None:
    events = await events_of(saying("Loading…", {"ask": WHERE}), turn_request("hello"))

    assert streamed(events) == ""
    assert not steps_of(events)
    with pytest.raises(AgentFailed, match="ended without an answer"):
        await events_of(saying("Loading…"), turn_request("hello"))


async def test_the_program_of_the_page_asks_and_books(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    example = re.search(
        r"```python\n(.*?)```", page.partition("### Programs that ask")[2], re.DOTALL
    )
    assert example is not None
    path = tmp_path / "clerk.py"
    path.write_text(example[1])
    runner = CommandRunner(CommandOptions(command=(sys.executable, str(path))))
    approve, deny = Decision.APPROVE, Decision.DENY
    rounds: dict[str, list[Answer | None]] = {
        "Booked: 1 nights in Oslo.": [
            Answer(decision=approve, text="Oslo"),
            Answer(decision=approve, arguments={"city": "Oslo", "nights": 1}),
        ],
        "Not booked. Denied by Ann: too hot.": [
            Answer(decision=approve, text="Rome"),
            Answer(decision=deny, text="too hot"),
        ],
        "Then another time.": [None],
    }

    for reply, answers in rounds.items():
        request = turn_request("hello")
        for answer in answers:
            events = await events_of(runner, request)
            (asked,) = asked_in(events)
            request = continued(request, events, decided_question(asked, answer))
        (step,) = steps_of(await events_of(runner, request))
        assert step.message.text == reply
