"""An editor: the client of the protocol's own library, connected to `sessionary acp` in a process of its own."""

import asyncio
import itertools
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acp.client.connection import ClientSideConnection
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    Implementation,
    RequestPermissionResponse,
    TextContentBlock,
)

from acp import spawn_agent_process
from sessionary import Sessionary

Json = dict[str, Any]
TIMEOUT_SECONDS = 60

# An agent that is a function, in the folder of sessionary.toml.
AGENT = '''
import asyncio
import pathlib

from sessionary import Delta, Reasoning, Step, Text, ToolCall, ToolResult
from sessionary.model.message import message

GATE = pathlib.Path(__file__).with_name("gate")


async def wait():
    """Wait until a test opens the gate."""
    while not GATE.exists():
        await asyncio.sleep(0.01)


async def answer(request):
    content = request.context[-1]["content"]
    text = content if isinstance(content, str) else " ".join(
        each.get("text") or str(each.get("media_type")) for each in content)
    first = next(c for c in reversed(request.context) if c["role"] == "user")["content"]
    if "count" in str(first):
        done = len([each for each in request.steps if each.role == "assistant"])
        for number in range(done, 5):
            yield Delta(f"part ")
            if number == 2:
                await wait()
            yield Delta(f"{number}. ")
            yield Step(message("assistant", [Text(f"part {number}. ")]))
    elif "fail" in text:
        yield Delta("I begin")
        raise RuntimeError("no power")
    elif "edit" in text:
        call = ToolCall("1", "edit_file", {"path": "a.py", "old_string": "a", "new_string": "b"})
        yield Delta("Hm.", thinking=True)
        yield Step(message("assistant", [Reasoning("Hm."), Text("I edit."), call]))
        yield Step(message("tool", [ToolResult("1", "edited", "edit_file")]))
        todos = [{"content": "Edit", "status": "completed"}, {"content": "Test", "status": "pending"}]
        yield Step(message("assistant", [ToolCall("1", "todo_write", {"todos": todos})]))
        yield Step(message("tool", [ToolResult("1", "no room", "todo_write", is_error=True)]))
        yield Step(message("assistant", "Done."))
    else:
        print("this must not reach the editor")
        yield Delta("You said: ")
        yield Step(message("assistant", f"You said: {text}"))
'''
SETTINGS = """
agent = "own"
[engine]
poll_seconds = 0.05
sweep_seconds = 0.2
[agents.own]
kind = "python"
function = "editor_agent:answer"
resume = true
[agents.other]
kind = "script"
models = ["small", "large"]
[personas.pirate]
prompt = "Speak like a pirate."
title = "A pirate"
"""


def texts(home: Path, session_id: str, *, database: str | None = None) -> list[str]:
    """What people and the agent have said in a session, as the record has it."""
    with Sessionary(database, home=str(home)) as client:
        found = client.find(session_id).messages()
        return [each.text for each in found if each.text and each.role in ("user", "assistant")]


async def eventually(is_true: Callable[[], Any]) -> Any:
    """Wait until something outside of the editor is so; return it."""
    found = None
    async with asyncio.timeout(TIMEOUT_SECONDS):
        for _ in itertools.count():
            found = await asyncio.to_thread(is_true)
            if found:
                break
            await asyncio.sleep(0.02)
    return found


async def open_gate(home: Path) -> None:
    """Let the agents that count go on."""
    await asyncio.to_thread((home / "gate").touch)


class Editor:
    """A person at an editor: what it was shown, and how the person decides."""

    def __init__(self) -> None:
        self.connection: ClientSideConnection
        self.process: asyncio.subprocess.Process
        self.updates: list[tuple[str, Json]] = []
        self.permissions: list[Json] = []
        self.forms: list[Json] = []
        # The id of the option that the person chooses, or None: they leave the dialog open.
        self.decide: Callable[[Json], str | None] = lambda asked: asked["options"][0]["optionId"]
        self._changed = asyncio.Event()

    def on_connect(self, connection: Any) -> None:
        """Nothing is needed."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        """Note what is shown."""
        self._note(self.updates, (session_id, _json(update)))

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **_: Any
    ) -> RequestPermissionResponse:
        """Decide as the person does."""
        asked = {
            "session": session_id,
            "call": _json(tool_call),
            "options": [_json(each) for each in options],
        }
        self._note(self.permissions, asked)
        chosen = self.decide(asked)
        if chosen is None:
            await asyncio.Event().wait()
        if chosen == "":
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        outcome = AllowedOutcome(outcome="selected", option_id=str(chosen))
        return RequestPermissionResponse(outcome=outcome)

    async def until(self, is_true: Callable[[], Any]) -> Any:
        """Wait until something was shown; return it."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not (found := is_true()):
                self._changed.clear()
                await self._changed.wait()
        return found

    async def say(self, session_id: str, text: str) -> Any:
        """Send a prompt; return its response."""
        blocks: list[Any] = [TextContentBlock(type="text", text=text)]
        return await self.connection.prompt(session_id=session_id, prompt=blocks)

    def shown(self, kind: str, session_id: str | None = None) -> list[Json]:
        """The updates of a kind, in their order."""
        return [
            update
            for id, update in self.updates
            if update["sessionUpdate"] == kind and session_id in (None, id)
        ]

    def text(self, session_id: str | None = None, *, kind: str = "agent_message_chunk") -> str:
        """What the agent has said, one piece after the other."""
        chunks = self.shown(kind, session_id)
        return "".join(each["content"].get("text", "") for each in chunks)

    def forget(self) -> None:
        """Forget what was shown."""
        self.updates.clear()

    def _note(self, notes: list[Any], note: Any) -> None:
        notes.append(note)
        self._changed.set()


def _json(model: Any) -> Json:
    found: Json = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return found


def make_home(folder: Path, settings: str = SETTINGS) -> Path:
    """Make a home with the agents above."""
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "sessionary.toml").write_text(settings)
    (folder / "editor_agent.py").write_text(AGENT)
    return folder


def environment(home: Path, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a process that works on a home."""
    return {**os.environ, "SESSIONARY_HOME": str(home), "LOGNAME": "ada", **(environ or {})}


@asynccontextmanager
async def editor(
    home: Path,
    *arguments: str,
    capabilities: ClientCapabilities | None = None,
    handlers: Mapping[str, Any] | None = None,
) -> AsyncIterator[Editor]:
    """Start `sessionary acp` as an editor does, and initialize the connection."""
    made = Editor()
    for name, handler in (handlers or {}).items():
        setattr(made, name, handler)
    async with spawn_agent_process(
        made,  # type: ignore[arg-type]  # an editor without files and terminals
        sys.executable,
        "-m",
        "sessionary",
        "acp",
        *arguments,
        env=environment(home),
        cwd=home,
        transport_kwargs={"stderr": None},
        use_unstable_protocol=True,
    ) as (connection, process):
        made.connection, made.process = connection, process
        await connection.initialize(
            protocol_version=1,
            client_capabilities=capabilities,
            client_info=Implementation(name="tester", title="The tester", version="1"),
        )
        yield made
