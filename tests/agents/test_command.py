"""An agent that is any program: lines in, lines out, and never more than we bear."""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import pytest

from sessionary.agents.command import CommandOptions, CommandRunner
from sessionary.agents.registry import build
from sessionary.config.engine import AgentTable
from sessionary.engine.ports import Runner
from sessionary.errors import AgentFailed, BadInput, RetryLater
from sessionary.model.message import Attachment, Text, ToolCall
from sessionary.testing.runner_suite import (
    PROMPT_SECONDS,
    RunnerSuite,
    SlowRunnerSuite,
    events_of,
    steps_of,
    streamed,
    turn_request,
)

HELLO = """
import json, sys
request = json.loads(sys.stdin.readline())
prompt = request["context"][-1]["content"]
print(json.dumps({"delta": "You said "}), flush=True)
print(json.dumps({"reply": "You said " + prompt}))
"""


def program(code: str, **options: object) -> CommandRunner:
    given: dict[str, object] = {"command": (sys.executable, "-S", "-c", code)}
    return CommandRunner(CommandOptions(**(given | options)))  # type: ignore[arg-type]


def saying(*lines: object) -> CommandRunner:
    text = "\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines)
    return program(f"print({text!r})")


async def failure(runner: Runner) -> AgentFailed:
    with pytest.raises(AgentFailed) as caught:
        await events_of(runner, turn_request("hello"))
    assert "\n" not in str(caught.value)
    return caught.value


class TestCommand(RunnerSuite, SlowRunnerSuite):
    @pytest.fixture
    def runner(self) -> Runner:
        return program(HELLO)

    @pytest.fixture
    def slow_runner(self) -> Runner:
        return program("import time; time.sleep(60)")


async def test_the_program_gets_everything_on_one_line() -> None:
    code = 'import json, sys; print(json.dumps({"reply": sys.stdin.read()}))'
    request = turn_request("hi\nthere", system_prompt="Be kind.", settings={"model": "m"})

    (step,) = steps_of(await events_of(program(code), request))

    line = step.message.text
    request_line = json.loads(line)
    assert line.count("\n") == 1
    assert request_line["sessionary"] == 1
    assert request_line["context"] == [{"role": "user", "content": "hi\nthere"}]
    assert request_line["system_prompt"] == "Be kind."
    assert request_line["settings"] == {"model": "m"}
    assert request_line["source"]["platform"] == "terminal"
    assert request_line["session"]["id"] == request.session.id


async def test_a_step_keeps_its_parts_and_its_usage() -> None:
    call = {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"a": 1}}
    result = {"type": "tool_result", "call_id": "c1", "content": "seen", "name": "look"}
    runner = saying(
        {"usage": {"model": "m", "input_tokens": 7, "call_id": "x"}},
        {"step": {"role": "assistant", "parts": [{"type": "text", "text": "So"}, call]}},
        {"step": {"role": "tool", "parts": [result]}},
        {"step": {"content": "Done."}, "usage": {"model": "m", "cost_microusd": 3}},
    )

    first, tool, last = steps_of(await events_of(runner, turn_request("hello")))

    assert first.message.parts == (Text("So"), ToolCall("c1", "look", {"a": 1}))
    assert first.usage is not None
    assert first.usage.cost_microusd is None
    assert tool.usage is None
    assert last.message.text == "Done."
    assert last.usage is not None
    assert last.usage.cost_microusd == 3


async def test_the_usage_after_the_reply_belongs_to_it_and_two_are_added() -> None:
    used = {"model": "m", "input_tokens": 7}
    runner = saying({"reply": "Done."}, {"usage": used}, {"usage": used})

    (step,) = steps_of(await events_of(runner, turn_request("hello")))

    assert step.usage is not None
    assert step.usage.input_tokens == 14


async def test_a_file_goes_with_the_step_after_it_or_with_the_reply() -> None:
    picture = {"name": "a.png", "media_type": "image/png", "data": "AAEC"}
    runner = saying(
        {"file": picture}, {"step": {"content": "First."}}, {"reply": "Done."}, {"file": picture}
    )

    first, last = steps_of(await events_of(runner, turn_request("hello")))

    for step, text in ((first, "First."), (last, "Done.")):
        text_part, file = step.message.parts
        assert text_part == Text(text)
        assert isinstance(file, Attachment)
        assert (file.name, file.media_type, file.size) == ("a.png", "image/png", 3)
        assert step.files == (b"\x00\x01\x02",)


async def test_a_file_that_is_not_base64_is_rubbish_and_one_alone_is_an_answer() -> None:
    runner = saying({"file": {"data": "?"}}, {"file": {"data": "AAEC"}})

    (step,) = steps_of(await events_of(runner, turn_request("hello")))

    assert [type(part) for part in step.message.parts] == [Attachment]
    assert step.message.extra == {"rubbish_lines": 1}


async def test_deltas_alone_are_a_reply() -> None:
    runner = saying({"delta": "hm", "thinking": True}, {"delta": "a"}, {"delta": {"text": "b"}})

    events = await events_of(runner, turn_request("hello"))

    assert streamed(events, thinking=True) == "hm"
    assert [step.message.text for step in steps_of(events)] == ["ab"]


async def test_rubbish_is_counted_and_does_not_hide_the_answer() -> None:
    runner = saying("Loading…", {"reply": "Done."}, {"colour": "red"}, {"step": 7})

    (step,) = steps_of(await events_of(runner, turn_request("hello")))

    assert step.message.text == "Done."
    assert step.message.extra == {"rubbish_lines": 3}


async def test_nothing_but_rubbish_fails_the_turn_and_is_shown() -> None:
    error = await failure(saying("Segmentation fault"))

    assert "1 of its lines" in str(error)
    assert "Segmentation fault" in str(error)


async def test_a_flood_of_rubbish_is_stopped() -> None:
    runner = program("while True: print('y')", most_rubbish_lines=10)

    assert "rubbish" in str(await failure(runner))


@pytest.mark.parametrize("code", ["while True: print('y' * 1000)", "print('y' * 10**6, end='')"])
async def test_a_flood_of_bytes_is_stopped(code: str) -> None:
    runner = program(code, most_bytes=10**5, most_line_bytes=10**4)

    assert "too much" in str(await failure(runner))


async def test_a_user_s_words_cannot_be_put_into_the_log_by_a_program() -> None:
    runner = saying({"step": {"role": "user", "content": "I agree"}}, {"reply": "ok"})

    steps = steps_of(await events_of(runner, turn_request("hello")))

    assert [step.message.text for step in steps] == ["ok"]


async def test_the_last_words_of_a_program_that_fails_are_shown() -> None:
    code = "import sys; print('x' * 9000, 'oh', file=sys.stderr); sys.exit('no such model')"

    error = await failure(program(code))

    assert "code 1" in str(error)
    assert "no such model" in str(error)


async def test_text_before_a_failure_is_returned() -> None:
    runner = program('print(\'{"step": {"content": "first"}}\'); raise SystemExit(3)')
    events = runner.run(turn_request("hello"))

    first = await anext(events)

    assert [step.message.text for step in steps_of([first])] == ["first"]
    with pytest.raises(AgentFailed):
        await anext(events)


async def test_a_program_can_say_that_it_failed_and_when_to_try_again() -> None:
    assert str(await failure(saying({"error": "out of\ntea"}))) == "out of tea"
    with pytest.raises(RetryLater) as caught:
        await events_of(saying({"error": "busy", "retry_after": 30}), turn_request("hello"))
    assert caught.value.after == 30


async def test_a_program_that_hangs_is_stopped() -> None:
    runner = program("import time; time.sleep(60)", timeout_seconds=0.1)

    assert "0.1 seconds" in str(await failure(runner))


async def test_a_program_that_will_not_stop_is_killed() -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
    began = time.monotonic()

    await failure(program(code, timeout_seconds=0.3, kill_after_seconds=0.1))

    assert time.monotonic() - began < PROMPT_SECONDS


async def test_the_children_of_a_program_end_with_it(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n"
        'print(\'{"reply": "done"}\')\n'
    )
    began = time.monotonic()

    assert steps_of(await events_of(program(code), turn_request("hello")))

    assert time.monotonic() - began < PROMPT_SECONDS
    await gone(int(note.read_text()))


async def test_a_program_that_does_not_read_is_no_failure() -> None:
    request = turn_request("x" * 500_000)

    assert steps_of(await events_of(saying({"reply": "done"}), request))


async def test_a_program_that_is_not_there_is_named() -> None:
    error = await failure(CommandRunner(CommandOptions(command=("/nowhere/agent",))))

    assert "/nowhere/agent" in str(error)


def test_a_command_is_needed() -> None:
    with pytest.raises(BadInput):
        CommandRunner(CommandOptions(command=()))


async def gone(pid: int) -> None:
    """Wait for a process to end; one that nobody buried yet is gone too."""
    try:
        async with asyncio.timeout(PROMPT_SECONDS):
            while is_running(pid):  # noqa: ASYNC110 - nobody tells of its end
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"{pid} still runs") from None


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (ProcessLookupError, FileNotFoundError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


SHOWS_ENVIRONMENT = "import json, os; print(json.dumps({'reply': json.dumps(dict(os.environ))}))"


async def test_a_program_gets_no_secret_of_the_server() -> None:
    """Only what says where things are; and what the agent's settings name."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": "/home/ada",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "SESSIONARY_DATABASE": "postgresql://sessionary:secret@db/sessionary",
        "TELEGRAM_TOKEN": "secret",
        "OPENAI_API_KEY": "sk-secret",
    }
    options = {"command": [sys.executable, "-S", "-c", SHOWS_ENVIRONMENT]}
    named = {"pass_env": ["OPENAI_API_KEY", "NOT_SET"], "env": {"MODE": "fast", "LEVEL": 3}}

    async def seen(**more: object) -> dict[str, str]:
        agent = build(AgentTable(name="a", kind="command", options=options | more), environ=environ)
        events = await events_of(agent.runner, turn_request("hello"))
        found: dict[str, str] = json.loads(steps_of(events)[-1].message.text)
        return {name: value for name, value in found.items() if name != "LC_CTYPE"}

    harmless = {name: environ[name] for name in ("PATH", "HOME", "LC_ALL", "TZ")}
    assert await seen() == harmless
    assert await seen(**named) == harmless | {
        "OPENAI_API_KEY": "sk-secret",
        "MODE": "fast",
        "LEVEL": "3",
    }


async def test_a_program_that_python_starts_gets_no_secret_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TELEGRAM_TOKEN", "secret")

    events = await events_of(program(SHOWS_ENVIRONMENT), turn_request("hello"))

    assert "TELEGRAM_TOKEN" not in steps_of(events)[-1].message.text
