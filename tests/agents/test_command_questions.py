"""A program with an open input: it asks for the messages that people have sent meanwhile."""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sessionary.agents.command import CommandOptions, CommandRunner
from sessionary.engine.ports import Event, NoServices, Runner, Step
from sessionary.errors import AgentFailed
from sessionary.model.transcript import Chat
from sessionary.testing.runner_suite import (
    PROMPT_SECONDS,
    RunnerSuite,
    SlowRunnerSuite,
    events_of,
    steps_of,
    turn_request,
)
from tests.project.code import ROOT

BEGIN = """
import json, os, sys

def write(line):
    print(json.dumps(line), flush=True)

def ask():
    write({"new_messages": True})
    return json.loads(sys.stdin.readline())

request = json.loads(sys.stdin.readline())
"""


def program(code: str, **options: Any) -> CommandRunner:
    given: dict[str, Any] = {"keep_input_open": True} | options
    command = (sys.executable, "-S", "-c", BEGIN + code)
    return CommandRunner(CommandOptions(command=command, **given))


class Inbox(NoServices):
    """Gives the messages that a test has put in, all of them at the first question."""

    def __init__(self, *texts: str) -> None:
        self.waiting: list[Chat] = [{"role": "user", "content": text} for text in texts]
        self.questions = 0

    async def new_messages(self) -> Sequence[Chat]:
        self.questions += 1
        taken, self.waiting = self.waiting, []
        return taken


def texts_of(events: Sequence[Event]) -> list[str]:
    return [step.message.text for step in steps_of(events)]


class TestCommandWithOpenInput(RunnerSuite, SlowRunnerSuite):
    @pytest.fixture
    def runner(self) -> Runner:
        return program('write({"delta": "You "}); ask(); write({"reply": "You said it"})')

    @pytest.fixture
    def slow_runner(self) -> Runner:
        return program("ask(); sys.stdin.readline()")


async def test_a_question_is_answered_with_one_line_that_has_all_new_messages() -> None:
    inbox = Inbox("only the red ones", "and\nhurry")
    code = 'write({"reply": json.dumps([ask(), ask(), request["keep_input_open"]])})'

    (text,) = texts_of(await events_of(program(code), turn_request("count", services=inbox)))

    both = [
        {"role": "user", "content": "only the red ones"},
        {"role": "user", "content": "and\nhurry"},
    ]
    assert json.loads(text) == [{"messages": both}, {"messages": []}, True]


async def test_the_step_before_a_question_is_given_away_before_messages_are_taken() -> None:
    seen: list[str] = []

    class Watching(Inbox):
        async def new_messages(self) -> Sequence[Chat]:
            seen.append("question")
            return await super().new_messages()

    # All in one piece, as a program writes that does not wait for its answers.
    code = """
lines = [{"step": {"content": "one"}}, {"new_messages": True}, {"step": {"content": "two"}}]
print("\\n".join(map(json.dumps, lines)), flush=True)
sys.stdin.readline()
"""
    async for event in program(code).run(turn_request("hello", services=Watching())):
        assert isinstance(event, Step)
        await asyncio.sleep(0)
        seen.append(event.message.text)

    assert seen == ["one", "question", "two"]


async def test_after_its_reply_a_program_gets_no_messages() -> None:
    """Nobody would answer them: they wait for the next turn."""
    inbox = Inbox("only the red ones")
    code = 'write({"reply": "done"}); write({"usage": {"model": json.dumps(ask())}})'

    (step,) = steps_of(await events_of(program(code), turn_request("hello", services=inbox)))

    assert step.usage is not None
    assert step.usage.model == '{"messages": []}'
    assert inbox.questions == 0


async def test_without_the_setting_a_question_is_rubbish_and_the_input_ends() -> None:
    inbox = Inbox("only the red ones")
    code = """
write({"new_messages": True})
write({"reply": json.dumps([sys.stdin.readline(), "keep_input_open" in request])})
"""
    runner = program(code, keep_input_open=False)

    (step,) = steps_of(await events_of(runner, turn_request("hello", services=inbox)))

    assert json.loads(step.message.text) == ["", False]
    assert step.message.extra == {"rubbish_lines": 1}
    assert inbox.questions == 0


async def test_a_question_that_is_not_asked_properly_is_rubbish() -> None:
    code = 'write({"new_messages": False}); write({"new_messages": 1}); write({"reply": "done"})'

    (step,) = steps_of(await events_of(program(code), turn_request("hello")))

    assert step.message.extra == {"rubbish_lines": 2}


async def test_a_program_that_does_not_read_a_long_answer_still_finishes() -> None:
    inbox = Inbox("x" * 5_000_000)
    code = 'write({"new_messages": True}); write({"reply": "done"})'

    texts = texts_of(await events_of(program(code), turn_request("hello", services=inbox)))

    assert texts == ["done"]


@pytest.mark.parametrize("answer", ["", "x" * 5_000_000], ids=["short", "long"])
async def test_a_program_that_does_not_read_its_input_is_ended_with_its_turn(answer: str) -> None:
    code = """
import time
write({"new_messages": True})
write({"step": {"content": str(os.getpid())}})
time.sleep(60)
"""
    events = program(code).run(turn_request("hello", services=Inbox(answer)))
    step = await anext(events)
    assert isinstance(step, Step)

    began = time.monotonic()
    await events.aclose()  # type: ignore[attr-defined]

    assert time.monotonic() - began < PROMPT_SECONDS
    with pytest.raises(ProcessLookupError):
        os.kill(int(step.message.text), 0)


async def test_a_program_that_asks_on_and_on_and_reads_nothing_is_stopped() -> None:
    """It is not waited for, and what people write meanwhile is not taken from the queue any more."""
    code = 'while True: write({"new_messages": True})'

    with pytest.raises(AgentFailed, match="did not read the answers, and was stopped"):
        await events_of(program(code), turn_request("hello", services=Inbox("x" * 2_000_000)))


async def test_a_program_that_has_closed_its_input_takes_no_messages(tmp_path: Path) -> None:
    inbox = Inbox("only the red ones")
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    code = f"""
os.close(0)
write({{"step": {{"content": "closed"}}}})
open({str(gate)!r}).read()
write({{"new_messages": True}})
write({{"reply": "done"}})
"""
    texts = []
    async for event in program(code).run(turn_request("hello", services=inbox)):
        assert isinstance(event, Step)
        texts.append(event.message.text)
        if event.message.text == "closed":
            # Meanwhile the runner learns that the input is closed.
            await asyncio.to_thread(gate.write_text, "go")

    assert texts == ["closed", "done"]
    assert inbox.questions == 0


async def test_a_program_may_end_while_it_is_answered() -> None:
    """Its code says whether it succeeded."""
    code = 'write({"step": {"content": "done"}}); write({"new_messages": True}); os._exit(0)'

    for size in (1, 5_000_000):
        request = turn_request("hello", services=Inbox("x" * size))
        assert texts_of(await events_of(program(code), request)) == ["done"]


async def test_the_input_ends_when_the_turn_is_stopped(tmp_path: Path) -> None:
    note = tmp_path / "note"
    code = f"""
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
write({{"step": {{"content": "one"}}}})
open({str(note)!r}, "w").write(repr(sys.stdin.read()))
"""
    events = program(code, kill_after_seconds=PROMPT_SECONDS).run(turn_request("hello"))
    await anext(events)

    await events.aclose()  # type: ignore[attr-defined]

    assert note.read_text() == "''"


async def test_the_input_ends_when_the_program_can_ask_no_more() -> None:
    """Otherwise a program that reads its input to the end would wait for us, and we for it."""
    code = 'write({"reply": "done"}); os.close(1); sys.stdin.read(); os._exit(0)'
    runner = program(code, timeout_seconds=PROMPT_SECONDS)

    assert texts_of(await events_of(runner, turn_request("hello"))) == ["done"]


async def test_a_process_that_left_the_program_keeps_no_pipe_of_ours_open() -> None:
    """Not even if it holds the program's input, of which there is more than fits into a pipe."""
    code = """
import subprocess
rest = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
silent = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
left = subprocess.Popen(rest, start_new_session=True, **silent)
write({"step": {"content": str(left.pid)}})
write({"new_messages": True})
write({"reply": "done"})
"""
    before = pipes_of_this_process()

    events = await events_of(program(code), turn_request("hello", services=Inbox("x" * 5_000_000)))
    await asyncio.sleep(0)
    left, done = texts_of(events)
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(left), signal.SIGKILL)

    assert done == "done"
    assert pipes_of_this_process() == before


def pipes_of_this_process() -> set[str]:
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            target = str(each.readlink())
            if target.startswith("pipe:"):
                found.add(target)
    return found


async def test_the_program_of_the_page_reads_new_messages(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    section = page.partition("### Messages for a running program")[2]
    example = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert example is not None
    assert example[1].count("time.sleep(5)") == 1
    path = tmp_path / "worker.py"
    path.write_text(example[1].replace("time.sleep(5)", "time.sleep(0)"))
    command = (sys.executable, str(path))
    parts = [f"Part {number} of 3 is done." for number in (1, 2, 3)]

    for keeps, said in ((True, "count; the red ones; quickly"), (False, "count")):
        runner = CommandRunner(CommandOptions(command=command, keep_input_open=keeps))
        request = turn_request("count", services=Inbox("the red ones", "quickly"))
        texts = texts_of(await events_of(runner, request))
        assert texts == [*parts, f"Done, as you said: {said}"]
