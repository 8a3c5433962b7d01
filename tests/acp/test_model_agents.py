"""`sessionary acp`: an agent that asks a model, with the MCP servers of the editor."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from acp.schema import AcpMcpServer, EnvVariable, McpServerStdio

from tests.support.acp_editor import editor, make_home, texts
from tests.support.model_script import Call, Reply
from tests.support.model_server import ModelServer

ROOT = Path(__file__).parents[2]
SERVER = ROOT / "tests" / "support" / "lines_server.py"
SETTINGS = """
agent = "coder"
[engine]
poll_seconds = 0.05
[agents.coder]
kind = "model"
model = "m"
provider = "openai"
base_url = "{url}"
api_key_env = "EDITOR_TEST_KEY"
window = 100000
[[policy]]
decision = "ask"
tool = "*lines*"
"""


async def test_the_agent_calls_the_tools_of_the_editor_once_the_person_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR_TEST_KEY", "k")
    servers: list[Any] = [
        McpServerStdio(
            name="lines",
            command=sys.executable,
            args=[str(SERVER)],
            env=[EnvVariable(name="WHO", value="ada")],
        ),
        AcpMcpServer(type="acp", name="inside", server_id="1"),
    ]
    async with ModelServer() as model:
        home = make_home(tmp_path / "home", SETTINGS.format(url=model.openai_url))
        model.will(
            Reply(text="I look.", calls=(Call("lines_read_lines", {"count": 2}),)),
            Reply(text="Two lines."),
            Reply(text="A title"),
            Reply(text="Nothing more."),
        )
        async with editor(home) as ed:
            made = await ed.connection.new_session(cwd=str(home), mcp_servers=servers)
            answered = await ed.say(made.session_id, "How many lines?")

            assert ed.text() == "I look.Two lines."
            (asked,) = ed.permissions
            (call,) = ed.shown("tool_call")
            # The dialog belongs to the call that is shown.
            assert asked["call"]["toolCallId"] == call["toolCallId"]
            assert asked["call"]["rawInput"] == {"count": 2}
            states = [each["status"] for each in ed.shown("tool_call_update")]
            assert states == ["in_progress", "completed"]
            assert answered.usage is not None
            assert answered.usage.input_tokens > 0
            (usage,) = ed.shown("usage_update")
            assert usage["size"] == 100_000
            assert 0 < usage["used"] < 100_000
            await ed.until(
                lambda: [
                    each for each in ed.shown("session_info_update") if each["title"] == "A title"
                ]
            )

            other = await ed.connection.new_session(cwd=str(home))
            await ed.say(other.session_id, "And here?")
            asked_for = [each for each in model.requests if "And here?" in str(each.body)]
            assert "tools" not in asked_for[0].body
    assert texts(home, made.session_id)[0] == "How many lines?"


ACP_SETTINGS = """
agent = "coder"
[engine]
poll_seconds = 0.05
[agents.coder]
kind = "acp"
command = {command}
env = {{ACP_HOME = "{folder}"}}
[[policy]]
decision = "ask"
tool = "execute"
"""


async def test_an_agent_that_speaks_the_protocol_itself_asks_in_the_editor(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.support.acp_agent"]
    folder = tmp_path / "agent"
    folder.mkdir()
    settings = ACP_SETTINGS.format(command=json.dumps(program), folder=folder)
    settings = settings.replace("env = {", f'env = {{PYTHONPATH = "{ROOT}", ')
    home = make_home(tmp_path / "home", settings)
    async with editor(home) as ed:
        made = await ed.connection.new_session(cwd=str(home))
        await ed.say(made.session_id, "run ls -l")

        (asked,) = ed.permissions
        (call,) = ed.shown("tool_call")
        assert (call["kind"], call["title"]) == ("execute", "`ls -l`")
        assert asked["call"]["toolCallId"] == call["toolCallId"]
        assert ed.text() == "ran it"
        ed.forget()
        await ed.say(made.session_id, "plan")
        assert ed.shown("tool_call") == []
        live = ed.shown("plan")
        assert [each["status"] for each in live[-1]["entries"]] == ["completed", "completed"]
        ed.forget()
        await ed.connection.load_session(cwd=str(home), session_id=made.session_id)
        assert ed.shown("plan") == live
    assert (folder / "runs").read_text() == "ls -l\n"
