"""`sessionary acp` as a process: killed, left by its editor, fed with rubbish, and started quickly."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sessionary import Sessionary
from sessionary.acp import stdio
from tests.support import node_clients
from tests.support.acp_editor import (
    TIMEOUT_SECONDS,
    editor,
    environment,
    eventually,
    make_home,
    open_gate,
    texts,
)

PARTS = [f"part {number}. " for number in range(5)]
HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make_home(tmp_path / "home")


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, home: Path) -> Iterator[str | None]:
    """The store of the home, or one on a real server."""
    if request.param == "sqlite":
        yield None
    else:
        url: str = request.getfixturevalue("postgres_url")
        yield url


async def test_a_killed_turn_goes_on_in_the_next_process_and_nothing_is_lost_or_doubled(
    home: Path, database: str | None
) -> None:
    place = [] if database is None else ["--database", database]
    async with editor(home, *place) as ed:
        made = await ed.connection.new_session(cwd=str(home))
        id = made.session_id
        saying = asyncio.create_task(ed.say(id, "count"))
        await ed.until(lambda: "part 1. part " in ed.text())
        ed.process.kill()
        with pytest.raises(ConnectionError):
            await saying
    await open_gate(home)
    async with editor(home, *place) as ed:
        await ed.connection.load_session(cwd=str(home), session_id=id)
        await ed.until(lambda: ed.text().endswith("part 4. "))
        answered = await ed.say(id, "hello")

        assert answered.stop_reason == "end_turn"
        assert ed.text(kind="user_message_chunk") == "count"
        said = ed.text()
    stored = texts(home, id, database=database)
    # What had streamed of the third part when the process was killed is a piece of its own, or was not stored yet.
    whole = [each for each in stored if each in PARTS]
    assert whole == PARTS
    assert stored[0] == "count"
    assert stored[-2:] == ["hello", "You said: hello"]
    shown = "".join(each for each in stored if each not in ("count", "hello"))
    assert said.split() == shown.split()


async def test_a_killed_turn_that_cannot_go_on_is_told_as_interrupted(home: Path) -> None:
    path = home / "sessionary.toml"
    settings = path.read_text()
    path.write_text(settings.replace("resume = true", "resume = false"))
    async with editor(home) as ed:
        made = await ed.connection.new_session(cwd=str(home))
        saying = asyncio.create_task(ed.say(made.session_id, "count"))
        await ed.until(lambda: "part 1. part " in ed.text())
        ed.process.kill()
        with pytest.raises(ConnectionError):
            await saying
    async with editor(home) as ed:
        await ed.connection.load_session(cwd=str(home), session_id=made.session_id)
        await ed.until(lambda: "Interrupted" in ed.text())
        assert ed.text().startswith("part 0. part 1. ")
        await open_gate(home)
        assert (await ed.say(made.session_id, "/retry")).stop_reason == "end_turn"
        assert ed.text().endswith("part 4. ")
    async with editor(home) as ed:
        await ed.connection.load_session(cwd=str(home), session_id=made.session_id)
        assert "Interrupted" not in ed.text()


async def test_a_turn_whose_editor_has_gone_is_left_to_the_next_process(home: Path) -> None:
    async with editor(home) as ed:
        made = await ed.connection.new_session(cwd=str(home))
        saying = asyncio.create_task(ed.say(made.session_id, "count"))
        await ed.until(lambda: "part 1. part " in ed.text())
        saying.cancel()
    assert ed.process.returncode == 0
    await open_gate(home)
    async with editor(home) as ed:
        await ed.connection.load_session(cwd=str(home), session_id=made.session_id)
        await ed.until(lambda: ed.text().endswith("part 4. "))


async def test_a_turn_whose_editor_has_gone_goes_on_in_a_running_server(home: Path) -> None:
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sessionary", "serve", "--port", "0", "--json"),
        env=environment(home),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert server.stdout is not None
        assert json.loads(await server.stdout.readline())["address"]
        async with editor(home) as ed:
            made = await ed.connection.new_session(cwd=str(home))
            saying = asyncio.create_task(ed.say(made.session_id, "count"))
            await ed.until(lambda: "part 1. part " in ed.text())
            saying.cancel()
        await open_gate(home)
        await eventually(lambda: texts(home, made.session_id)[-1] == PARTS[-1])
        assert [each for each in texts(home, made.session_id) if each in PARTS] == PARTS
    finally:
        server.terminate()
        await server.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_it_as_if_the_editor_had_gone(
    home: Path, number: signal.Signals
) -> None:
    async with editor(home) as ed:
        ed.process.send_signal(number)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert await ed.process.wait() == 0


class RawEditor:
    """What is sent and what comes back, line by line."""

    def __init__(self, home: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sessionary", "acp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(home),
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout

    def send(self, line: bytes | dict[str, Any]) -> None:
        """Send a line."""
        self._stdin.write(line if isinstance(line, bytes) else json.dumps(line).encode())
        self._stdin.write(b"\n")
        self._stdin.flush()

    def answer(self, line: bytes | dict[str, Any]) -> Any:
        """Send a line; return the next one that comes back and is no notification."""
        self.send(line)
        while True:
            found = json.loads(self._stdout.readline())
            if "id" in found:
                return found

    def close(self) -> int:
        """Go away; return the exit code."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        code = self.process.wait(TIMEOUT_SECONDS)
        self._stdout.close()
        return code


@pytest.fixture
def raw(home: Path) -> Iterator[RawEditor]:
    made = RawEditor(home)
    yield made
    made.process.kill()
    made.close()


def test_rubbish_is_answered_with_an_error_and_the_connection_goes_on(raw: RawEditor) -> None:
    def code(line: bytes | dict[str, Any]) -> tuple[Any, int]:
        found = raw.answer(line)
        assert "Traceback" not in str(found)
        return found["id"], found["error"]["code"]

    assert code(b"rubbish") == (None, -32700)
    assert code(b"\xff\xfe{}") == (None, -32700)
    assert code(b"[" * 100_000) == (None, -32700)
    assert code(b"[1, 2]") == (None, -32600)
    assert code(b"42") == (None, -32600)
    assert code(b'{"id": {}, "method": "initialize"}') == (None, -32600)
    assert code({"id": 7, "method": 8}) == (7, -32600)
    assert code({"id": 8}) == (8, -32600)
    raw.send(b"")
    raw.send({"id": 99, "result": {}})  # an answer to nothing
    raw.send({"id": "x", "error": "odd"})
    raw.send({"method": "session/cancel", "params": {"sessionId": "unknown"}})
    raw.send({"method": "no/such/notification"})
    raw.send({"method": "session/cancel"})
    assert code({"id": 9, "method": "no/such/method"}) == (9, -32601)
    assert code({"id": 10, "method": "session/new", "params": {"cwd": 5}}) == (10, -32602)
    assert code({"id": 11, "method": "session/new"}) == (11, -32602)
    relative = {"cwd": "here", "mcpServers": []}
    assert code({"id": 12, "method": "session/new", "params": relative}) == (12, -32602)
    unknown = {"sessionId": "unknown", "prompt": [{"type": "text", "text": "hello"}]}
    assert code({"id": 13, "method": "session/prompt", "params": unknown}) == (13, -32002)
    half = {"sessionId": "\ud83d", "prompt": [{"type": "text", "text": "\ud83d"}]}
    assert code({"id": 14, "method": "session/prompt", "params": half}) == (14, -32002)
    assert raw.answer(HELLO)["result"]["protocolVersion"] == 1
    extra = {"cwd": "/", "mcpServers": [], "_meta": {"cwd": 5, "self": 6}}
    assert raw.answer({"id": 16, "method": "session/new", "params": extra})["result"]["sessionId"]
    nothing_needed = {"id": 15, "method": "authenticate", "params": {"methodId": "any"}}
    assert raw.answer(nothing_needed)["result"] == {}
    assert raw.close() == 0


def test_nothing_is_told_of_a_fork_before_the_editor_knows_its_id(raw: RawEditor) -> None:
    place = {"cwd": "/", "mcpServers": []}
    made = raw.answer({"id": 1, "method": "session/new", "params": place})["result"]["sessionId"]
    prompt = {"sessionId": made, "prompt": [{"type": "text", "text": "hello"}]}
    assert "result" in raw.answer({"id": 2, "method": "session/prompt", "params": prompt})
    raw.send({"id": 3, "method": "session/fork", "params": {"sessionId": made, **place}})
    before: list[Any] = []
    while (found := json.loads(raw._stdout.readline())).get("id") != 3:
        before.append(found)

    fork = found["result"]["sessionId"]
    assert fork not in json.dumps(before)
    told = json.loads(raw._stdout.readline())["params"]
    assert (told["sessionId"], told["update"]["sessionUpdate"]) == (
        fork,
        "available_commands_update",
    )


def test_a_line_that_is_too_long_is_refused_and_not_held(raw: RawEditor) -> None:
    assert raw.answer(HELLO)["id"] == 1
    piece = b" " * (1024 * 1024)
    for _ in range(stdio.LONGEST_LINE // len(piece) + 1):
        raw._stdin.write(piece)
    found = raw.answer(b"{}")
    assert (found["id"], found["error"]["code"]) == (None, -32600)
    assert raw.answer({**HELLO, "id": 2})["id"] == 2
    assert raw.close() == 0


def test_an_editor_that_reads_no_more_ends_the_process(raw: RawEditor) -> None:
    raw.send(HELLO)
    raw._stdout.close()
    raw.send({**HELLO, "id": 2})
    assert raw.process.wait(TIMEOUT_SECONDS) == 0


def test_what_is_left_unsaid_in_settings_and_arguments_is_one_clear_line(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sessionary", "acp", "--agent", "nobody"],
        env=environment(home),
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "sessionary: There is no agent 'nobody'. Configured: other, own.\n"

    without = (
        "import sys; sys.modules['acp'] = None; from sessionary.cli import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", without, "acp"],
        env=environment(home),
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("sessionary: ACP needs an extra: install sessionary[acp] (")
    assert len(done.stderr.splitlines()) == 1


NODE = """
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const [command, ...args] = JSON.parse(process.env.AGENT);
const home = process.env.SESSIONARY_HOME;
const agent = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const updates = [];
const { session } = acp.methods.agent;
const said = await acp
  .client({ name: "tester" })
  .onNotification(acp.methods.client.session.update, (ctx) => { updates.push(ctx.params.update); })
  .connectWith(stream, async (ctx) => {
    const hello = await ctx.request(acp.methods.agent.initialize, {
      protocolVersion: acp.PROTOCOL_VERSION,
      clientCapabilities: {},
    });
    const made = await ctx.request(session.new, { cwd: home, mcpServers: [] });
    const prompt = [{ type: "text", text: "edit it" }];
    const answered = await ctx.request(session.prompt, { sessionId: made.sessionId, prompt });
    const option = { sessionId: made.sessionId, configId: "persona", value: "pirate" };
    const chosen = await ctx.request(session.setConfigOption, option);
    const listed = await ctx.request(session.list, { cwd: home });
    const live = updates.length;
    await ctx.request(session.load, { sessionId: made.sessionId, cwd: home, mcpServers: [] });
    const replayed = updates.slice(live).map((update) => update.sessionUpdate);
    await ctx.request(session.close, { sessionId: made.sessionId });
    await ctx.request(session.delete, { sessionId: made.sessionId });
    const left = await ctx.request(session.list, {});
    const failure = await ctx
      .request(session.load, { sessionId: "unknown", cwd: home, mcpServers: [] })
      .catch((error) => ({ code: error.code, message: error.message }));
    return { hello, made, answered, chosen, listed, left, replayed, failure };
  });
console.log(JSON.stringify({ ...said, updates }));
process.exit(0);
"""


async def test_the_client_library_of_editors_lists_prompts_loads_and_deletes(home: Path) -> None:
    node = await asyncio.to_thread(node_clients.node)
    script = node_clients.FOLDER / f"acp-{os.getpid()}.mjs"
    script.write_text(NODE)
    try:
        process = await asyncio.create_subprocess_exec(
            str(node),
            str(script),
            env={
                **node_clients.environment(),
                **environment(home),
                "AGENT": json.dumps([sys.executable, "-m", "sessionary", "acp"]),
            },
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
    finally:
        script.unlink()

    found = json.loads(out)
    assert found["hello"]["agentInfo"]["name"] == "sessionary"
    assert found["answered"]["stopReason"] == "end_turn"
    kinds = [each["sessionUpdate"] for each in found["updates"]]
    # The library passes over what does not fit the protocol.
    assert {"tool_call", "tool_call_update", "plan", "agent_thought_chunk"} <= set(kinds)
    assert {each["id"]: each["currentValue"] for each in found["chosen"]["configOptions"]} == {
        "agent": "own",
        "persona": "pirate",
    }
    assert [each["sessionId"] for each in found["listed"]["sessions"]] == [
        found["made"]["sessionId"]
    ]
    assert "user_message_chunk" in found["replayed"]
    assert found["left"]["sessions"] == []
    assert found["failure"]["code"] == -32002
    with Sessionary(home=str(home)) as client:
        assert client.head(found["made"]["sessionId"]).trashed_at is not None


async def test_a_turn_that_a_program_begins_is_shown_while_the_editor_only_looks(
    home: Path,
) -> None:
    async with editor(home) as ed:
        made = await ed.connection.new_session(cwd=str(home))
        await ed.say(made.session_id, "hello")
        ed.forget()

        def ask() -> bool:
            with Sessionary(home=str(home)) as client:
                return bool(client.find(made.session_id).append("user", "from a program"))

        await eventually(ask)
        await ed.until(lambda: ed.shown("user_message_chunk"))
        assert ed.text(kind="user_message_chunk") == "from a program"
