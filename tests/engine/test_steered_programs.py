"""A program that asks for new messages is steered; one that does not reads them in its next turn."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sessionary.agents.command import CommandOptions, CommandRunner
from sessionary.config.engine import WhileRunning
from sessionary.model.turn import TurnState
from tests.faults.server import Served, wait_until
from tests.support.engine_world import QUICK, EngineWorld

# Makes a step, waits for the test, makes another one, asks if it can, waits again, and says what it was given.
PROGRAM = """
import json, os, sys, time

def write(line):
    print(json.dumps(line), flush=True)

def ask():
    if not request.get("keep_input_open"):
        return []
    write({"new_messages": True})
    return [chat["content"] for chat in json.loads(sys.stdin.readline())["messages"]]

def wait(moment):
    while not os.path.exists(os.path.join(sys.argv[1], f"{moment} {prompt}")):
        time.sleep(0.005)

request = json.loads(sys.stdin.readline())
prompt = request["context"][-1]["content"]
write({"step": {"content": f"one of {prompt}"}})
wait("before")
write({"step": {"content": f"two of {prompt}"}})
given = ask()
write({"step": {"content": f"three of {prompt}"}})
wait("after")
write({"reply": json.dumps([prompt, given])})
"""
# Asks again and again, and reads no answer.
NEVER_READS = """
import time
print('{"step": {"content": "one"}}', flush=True)
while True:
    print('{"new_messages": true}', flush=True)
    time.sleep(0.005)
"""
# Does not end by itself in its first run: its turn is killed before.
UNTIL_KILLED = """
import json, sys

def write(line):
    print(json.dumps(line), flush=True)

request = json.loads(sys.stdin.readline())
if request.get("resumed"):
    steps = [step["content"] for step in request["steps"]]
    context = [chat["content"] for chat in request["context"] if chat["role"] == "user"]
    write({"new_messages": True})
    write({"reply": json.dumps([context, steps, json.loads(sys.stdin.readline())["messages"]])})
else:
    write({"step": {"content": "one"}})
    new = []
    while not new:
        write({"new_messages": True})
        new = json.loads(sys.stdin.readline())["messages"]
    write({"step": {"content": f"given {new[0]['content']}"}})
    sys.stdin.read()
"""


class GatedProgram:
    """The runner of the program, and the files that it waits for."""

    def __init__(self, folder: Path, *, keep_input_open: bool = True) -> None:
        self._folder = folder
        self.runner = CommandRunner(
            CommandOptions(
                command=(sys.executable, "-S", "-c", PROGRAM, str(folder)),
                keep_input_open=keep_input_open,
            )
        )

    def let_ask(self, *prompts: str) -> None:
        """Let the turns that answer these messages make their second step, and ask."""
        for prompt in prompts:
            (self._folder / f"before {prompt}").touch()

    def let_end(self, *prompts: str) -> None:
        """Let the turns that answer these messages go on to their end."""
        self.let_ask(*prompts)
        for prompt in prompts:
            (self._folder / f"after {prompt}").touch()


async def until_said(world: EngineWorld, text: str) -> None:
    """Wait until a message is in the log."""

    async def is_said() -> bool:
        return bool(await world.sessions()) and text in await world.texts()

    await world.eventually(is_said)


def replies(world: EngineWorld) -> list[list[Any]]:
    """What the program has answered: which message, and what it was given meanwhile."""
    sent = world.adapter.texts("loopback:1")
    return [json.loads(text) for text in sent if text.startswith("[")]


async def test_a_program_is_steered_at_its_step(world: EngineWorld, tmp_path: Path) -> None:
    """Two messages come in their order, after the step before; /queue keeps one for the next turn."""
    world.settings = replace(QUICK, while_running=WhileRunning.STEER)
    program = GatedProgram(tmp_path)
    engine = await world.started(runner=program.runner)
    await world.says(engine, "count", number="1")
    await until_said(world, "one of count")
    await world.says(engine, "only the red ones", number="2")
    await world.says(engine, "/queue go home", number="3")
    await world.says(engine, "quickly", number="4")
    program.let_end("count", "go home")

    await world.settle(engine)
    await engine.stop()

    assert replies(world) == [["count", ["only the red ones", "quickly"]], ["go home", []]]
    assert await world.texts() == [
        "count",
        "one of count",
        "two of count",
        "only the red ones",
        "quickly",
        "three of count",
        json.dumps(["count", ["only the red ones", "quickly"]]),
        "go home",
        "one of go home",
        "two of go home",
        "three of go home",
        json.dumps(["go home", []]),
    ]
    assert [turn.state for turn in await world.turns()] == [TurnState.DONE] * 2


async def test_steer_reaches_a_program_whatever_the_settings_say(
    world: EngineWorld, tmp_path: Path
) -> None:
    program = GatedProgram(tmp_path)
    engine = await world.started(runner=program.runner)
    await world.says(engine, "count", number="1")
    await until_said(world, "one of count")
    await world.says(engine, "go home", number="2")
    await world.says(engine, "/steer only the red ones", number="3")
    program.let_end("count", "go home")

    await world.settle(engine)
    await engine.stop()

    assert replies(world) == [["count", ["only the red ones"]], ["go home", []]]


async def test_what_comes_after_a_program_has_last_asked_is_read_in_the_next_turn(
    world: EngineWorld, tmp_path: Path
) -> None:
    world.settings = replace(QUICK, while_running=WhileRunning.STEER)
    program = GatedProgram(tmp_path)
    engine = await world.started(runner=program.runner)
    await world.says(engine, "count", number="1")
    program.let_ask("count")
    await until_said(world, "three of count")
    await world.says(engine, "go home", number="2")
    program.let_end("count", "go home")

    await world.settle(engine)
    await engine.stop()

    assert replies(world) == [["count", []], ["go home", []]]
    texts = await world.texts()
    assert texts.index("go home") == texts.index(json.dumps(["count", []])) + 1
    assert len(await world.turns()) == 2


async def test_a_program_whose_input_is_closed_reads_it_in_its_next_turn(
    world: EngineWorld, tmp_path: Path
) -> None:
    world.settings = replace(QUICK, while_running=WhileRunning.STEER)
    program = GatedProgram(tmp_path, keep_input_open=False)
    engine = await world.started(runner=program.runner)
    await world.says(engine, "count", number="1")
    await until_said(world, "one of count")
    await world.says(engine, "only the red ones", number="2")
    program.let_end("count", "only the red ones")

    await world.settle(engine)
    await engine.stop()

    assert replies(world) == [["count", []], ["only the red ones", []]]
    assert len(await world.turns()) == 2


async def test_a_turn_whose_program_does_not_read_its_answer_can_be_stopped(
    world: EngineWorld,
) -> None:
    """The answer is longer than a pipe holds; the message is in the log all the same."""
    world.settings = replace(QUICK, while_running=WhileRunning.STEER)
    command = (sys.executable, "-S", "-c", NEVER_READS)
    runner = CommandRunner(CommandOptions(command=command, keep_input_open=True))
    engine = await world.started(runner=runner)
    await world.says(engine, "count", number="1")
    await until_said(world, "one")
    long = "red " * 40_000 + "ones"
    await world.says(engine, long, number="2")
    await until_said(world, long)

    await world.says(engine, "/stop", number="3")
    await world.settle(engine)
    await engine.stop()

    (turn,) = await world.turns()
    assert (turn.state, turn.reason) == (TurnState.INTERRUPTED, "stopped by you")


@pytest.fixture(params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    is_file = request.param == "sqlite"
    url = str(tmp_path / "store.db") if is_file else request.getfixturevalue("migrated_url")
    made = Served(tmp_path / "home", url)
    yield made
    made.close()


def test_a_message_that_steered_a_killed_turn_is_read_once_when_it_goes_on(server: Served) -> None:
    """With kill -9, after the program was given it."""
    program = server.home / "program.py"
    program.write_text(UNTIL_KILLED)
    command = json.dumps([sys.executable, "-S", str(program)])
    (server.home / "sessionary.toml").write_text(
        f'[agents.program]\nkind = "command"\ncommand = {command}\n'
        "keep_input_open = true\nresume = true\n"
        '[engine]\nlease_seconds = 2\nwhile_running = "steer"\n'
    )
    server.start()
    _, opened = server.ask("POST", "/sessions", {"text": "count", "run": True})
    session = opened["session_id"]

    def said() -> list[str]:
        _, page = server.ask("GET", f"/sessions/{session}/entries")
        return [each["text"] for each in page["items"]]

    wait_until(lambda: "one" in said())
    status, _ = server.ask("POST", f"/sessions/{session}/turns", {"text": "the red ones"})
    assert status < 300
    wait_until(lambda: "given the red ones" in said())
    server.kill()
    server.start()
    wait_until(lambda: said()[-1].startswith("["))

    reply: Any = json.loads(said()[-1])
    assert reply == [["count", "the red ones"], ["one", "given the red ones"], []]
    assert said().count("the red ones") == 1
    _, found = server.ask("GET", f"/sessions/{session}/turns")
    assert [(turn["state"], turn["resumed"]) for turn in found["items"]] == [("done", 1)]
