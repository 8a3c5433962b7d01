"""A coding agent made with the official package, as its example is: what it does is in the words of the prompt.

Its sessions are files in the folder ACP_HOME, so that another process of it can load them; `log.jsonl` there has what
it was sent. ACP_CAN names what it can do besides the least: load, resume, fork, image, embed, modes.
"""

import asyncio
import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any

from acp.helpers import plan_entry, text_block, tool_terminal_ref, update_plan
from acp.schema import (
    AgentCapabilities,
    AuthMethodAgent,
    Cost,
    ElicitationFormSessionMode,
    ElicitationSchema,
    ForkSessionResponse,
    Implementation,
    InitializeResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PermissionOption,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionForkCapabilities,
    SessionMode,
    SessionModeState,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    ToolCallLocation,
    ToolCallUpdate,
    Usage,
    UsageUpdate,
)

from acp import (
    PROTOCOL_VERSION,
    RequestError,
    run_agent,
    start_tool_call,
    tool_content,
    tool_diff_content,
    update_agent_message_text,
    update_agent_thought_text,
    update_tool_call,
    update_user_message_text,
)

HOME = Path(os.environ["ACP_HOME"])
CAN = os.environ.get("ACP_CAN", "").split(",")
NAME = os.environ.get("ACP_NAME", "example-agent")
OPTIONS = [
    PermissionOption(option_id="always", name="Always", kind="allow_always"),
    PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
    PermissionOption(option_id="no", name="No", kind="reject_once"),
]


class ExampleAgent:
    """Answers each prompt according to its last line."""

    def __init__(self) -> None:
        self._cancelled: dict[str, asyncio.Event] = {}
        self._cost = 0.0
        self._model = "small"
        self._conn: Any = None

    def on_connect(self, conn: Any) -> None:
        self._conn = conn

    async def initialize(self, protocol_version: int, **given: Any) -> InitializeResponse:
        note("initialize", pid=os.getpid())
        if "old" in CAN:
            return InitializeResponse(protocol_version=7)
        sessions = SessionCapabilities(
            resume=SessionResumeCapabilities() if "resume" in CAN else None,
            fork=SessionForkCapabilities() if "fork" in CAN else None,
        )
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(
                load_session="load" in CAN,
                prompt_capabilities=PromptCapabilities(
                    image="image" in CAN, embedded_context="embed" in CAN
                ),
                mcp_capabilities=McpCapabilities(http="http" in CAN),
                session_capabilities=sessions,
            ),
            auth_methods=[AuthMethodAgent(id="key", name="A key")] if "login" in CAN else [],
            agent_info=Implementation(name=NAME, version="1.2"),
        )

    async def authenticate(self, method_id: str, **_: Any) -> None:
        note("authenticate", way=method_id)
        (HOME / "login").touch()

    async def new_session(self, cwd: str, mcp_servers: Any = None, **_: Any) -> NewSessionResponse:
        if "login" in CAN and not (HOME / "login").exists():
            raise RequestError.auth_required()
        id = str(uuid.uuid4())
        servers = [each.model_dump(mode="json", by_alias=True) for each in mcp_servers or ()]
        note("new", session=id, cwd=cwd, servers=servers)
        save(id, [])
        return NewSessionResponse(session_id=id, **self._offers())

    async def load_session(self, session_id: str, **_: Any) -> LoadSessionResponse:
        note("load", session=session_id)
        for said in history(session_id):
            if said["role"] == "call":
                await self._conn.session_update(
                    session_id, start_tool_call(said["id"], said["text"], kind="execute")
                )
                if said.get("result"):
                    await self._conn.session_update(
                        session_id,
                        update_tool_call(
                            said["id"],
                            status="completed",
                            content=[tool_content(text_block(said["result"]))],
                        ),
                    )
                continue
            make = update_user_message_text if said["role"] == "user" else update_agent_message_text
            await self._conn.session_update(session_id, make(said["text"]))
        return LoadSessionResponse(**self._offers())

    async def resume_session(self, session_id: str, **_: Any) -> ResumeSessionResponse:
        note("resume", session=session_id)
        history(session_id)
        return ResumeSessionResponse(**self._offers())

    async def fork_session(self, session_id: str, cwd: str, **_: Any) -> ForkSessionResponse:
        id = str(uuid.uuid4())
        save(id, history(session_id))
        note("fork", session=session_id, fork=id, cwd=cwd)
        return ForkSessionResponse(session_id=id, **self._offers())

    async def set_session_mode(self, mode_id: str, session_id: str, **_: Any) -> None:
        note("mode", mode=mode_id)

    async def set_config_option(
        self, config_id: str, session_id: str, value: Any, **_: Any
    ) -> SetSessionConfigOptionResponse:
        note("option", id=config_id, value=value)
        self._model = value
        return SetSessionConfigOptionResponse(config_options=self._offers()["config_options"])

    async def cancel(self, session_id: str, **_: Any) -> None:
        note("cancel", session=session_id)
        self._cancelled.setdefault(session_id, asyncio.Event()).set()

    async def prompt(self, prompt: list[Any], session_id: str, **_: Any) -> PromptResponse:
        self._cancelled[session_id] = asyncio.Event()
        blocks = [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in prompt]
        texts: list[str] = [each["text"] for each in blocks if each["type"] == "text"]
        note("prompt", session=session_id, blocks=blocks)
        wish = texts[-1] if texts else ""
        if wish.startswith("[The connection was interrupted"):
            # It does what it was told before, as an agent that goes on does.
            said = [each["text"] for each in history(session_id) if each["role"] == "user"]
            wish = said[-1].splitlines()[-1]
        add(session_id, role="user", text="\n".join(texts))
        word, __, rest = wish.strip().partition(" ")
        act = getattr(self, f"_do_{word.strip('.').lower()}", None)
        if act is None:
            return await self._say(session_id, f"You said: {' '.join(texts)}")
        done = await act(session_id, rest)
        return done if isinstance(done, PromptResponse) else PromptResponse(stop_reason="end_turn")

    async def _say(self, session: str, text: str, **more: Any) -> PromptResponse:
        await self._conn.session_update(session, update_agent_message_text(text))
        add(session, role="agent", text=text)
        return PromptResponse(stop_reason=more.pop("stop", "end_turn"), **more)

    async def _do_think(self, session: str, rest: str) -> PromptResponse:
        await self._conn.session_update(session, update_agent_thought_text(f"About {rest}."))
        for piece in ("It ", "is ", "done."):
            await self._conn.session_update(session, update_agent_message_text(piece))
        return PromptResponse(stop_reason="end_turn")

    async def _do_remember(self, session: str, rest: str) -> PromptResponse:
        known = " | ".join(each["text"].strip().splitlines()[-1] for each in history(session))
        return await self._say(session, f"I know: {known}")

    async def _do_read(self, session: str, rest: str) -> PromptResponse:
        return await self._tried(session, self._conn.read_text_file(session_id=session, path=rest))

    async def _do_write(self, session: str, rest: str) -> PromptResponse:
        path, _, text = rest.partition(" ")
        work = self._conn.write_text_file(session_id=session, path=path, content=text)
        return await self._tried(session, work)

    async def _tried(self, session: str, work: Any) -> PromptResponse:
        try:
            found = await work
        except RequestError as error:
            return await self._say(session, f"refused: {error}")
        return await self._say(session, f"done: {getattr(found, 'content', '')}")

    async def _do_terminal(self, session: str, rest: str) -> PromptResponse:
        conn = self._conn
        try:
            made = await conn.create_terminal(
                session_id=session, command="/bin/sh", args=["-c", rest]
            )
        except RequestError as error:
            return await self._say(session, f"refused: {error}")
        id = made.terminal_id
        await conn.session_update(
            session,
            start_tool_call(
                "t1", rest, kind="execute", content=[tool_terminal_ref(id)], raw_input={"c": rest}
            ),
        )
        ended = await conn.wait_for_terminal_exit(session_id=session, terminal_id=id)
        shown = await conn.terminal_output(session_id=session, terminal_id=id)
        await conn.release_terminal(session_id=session, terminal_id=id)
        await conn.session_update(session, update_tool_call("t1", status="completed"))
        return await self._say(session, f"exit {ended.exit_code}: {shown.output}")

    async def _do_edit(self, session: str, rest: str) -> PromptResponse:
        conn, path = self._conn, rest or "/src/a.py"
        await conn.session_update(session, update_agent_message_text("I change it."))
        await conn.session_update(
            session,
            start_tool_call("e1", "Edit a file", kind="edit", status="pending", raw_input={}),
        )
        diff = tool_diff_content(path, "a = 2\n", "a = 1\n")
        call = ToolCallUpdate(
            tool_call_id="e1", content=[diff], locations=[ToolCallLocation(path=path)]
        )
        allowed = await self._permitted(session, call)
        await conn.session_update(
            session,
            update_tool_call("e1", status="completed" if allowed else "failed", content=[diff]),
        )
        return await self._say(session, "changed" if allowed else "not changed")

    async def _do_run(self, session: str, rest: str) -> PromptResponse:
        """Run a command after a permission; what it runs is counted in a file."""
        conn, id = self._conn, f"r-{uuid.uuid4().hex[:6]}"
        await conn.session_update(
            session,
            start_tool_call(id, f"`{rest}`", kind="execute", raw_input={"command": rest}),
        )
        allowed = await self._permitted(session, ToolCallUpdate(tool_call_id=id))
        if allowed:
            with (HOME / "runs").open("a") as runs:
                runs.write(f"{rest}\n")
        await conn.session_update(
            session,
            update_tool_call(
                id,
                status="completed" if allowed else "failed",
                content=[tool_content(text_block("ran" if allowed else "refused"))],
            ),
        )
        return await self._say(session, "ran it" if allowed else "did not run it")

    async def _permitted(self, session: str, call: ToolCallUpdate) -> bool:
        answer = await self._conn.request_permission(
            session_id=session, tool_call=call, options=OPTIONS
        )
        outcome = answer.outcome
        note("permission", outcome=outcome.model_dump(mode="json", by_alias=True))
        return outcome.outcome == "selected" and outcome.option_id in ("yes", "always")

    async def _do_doubt(self, session: str, rest: str) -> PromptResponse:
        """Ask for a permission, and take that back when the file `gate` is there."""
        call = {
            "toolCallId": "d1",
            "title": "doubt",
            "kind": "execute",
            "rawInput": {"command": "d"},
        }
        options = [each.model_dump(mode="json", by_alias=True) for each in OPTIONS]
        params = {"sessionId": session, "toolCall": call, "options": options}
        asked = {"id": "doubt", "method": "session/request_permission", "params": params}
        print(json.dumps({"jsonrpc": "2.0", **asked}), flush=True)
        await gate_opened()
        taken_back = {"method": "$/cancel_request", "params": {"requestId": "doubt"}}
        print(json.dumps({"jsonrpc": "2.0", **taken_back}), flush=True)
        return await self._say(session, "never mind")

    async def _do_chatter(self, session: str, rest: str) -> PromptResponse:
        """Answer, and go on to tell something when the turn is over."""

        async def chatter() -> None:
            await gate_opened()
            for number in range(1_000):
                await self._conn.session_update(session, update_agent_thought_text(f"{number}."))
            note("chattered")

        self._chatter = asyncio.create_task(chatter())
        return await self._say(session, "for now")

    async def _do_work(self, session: str, rest: str) -> PromptResponse:
        """Work until the file `gate` is there; the call is in the history with its result, if it has one."""
        conn, id = self._conn, f"w-{uuid.uuid4().hex[:6]}"
        await conn.session_update(session, update_agent_message_text("I begin."))
        await conn.session_update(
            session,
            start_tool_call(
                id, "work", kind="execute", status="in_progress", raw_input={"command": "work"}
            ),
        )
        add(session, role="call", id=id, text="work")
        note("working")
        while not (HOME / "gate").exists():
            if self._cancelled[session].is_set():
                return PromptResponse(stop_reason="cancelled")
            await asyncio.sleep(0.01)
        if (HOME / "gate").read_text() == "die":
            said = history(session)
            said[-1]["result"] = "worked"
            save(session, said)
            os._exit(3)
        await conn.session_update(
            session,
            update_tool_call(id, status="completed", content=[tool_content(text_block("worked"))]),
        )
        return await self._say(session, "All is done.")

    async def _do_plan(self, session: str, rest: str) -> PromptResponse:
        for status in ("pending", "in_progress", "completed"):
            plan = update_plan(
                [plan_entry("Look", status="completed"), plan_entry("Change", status=status)]
            )
            await self._conn.session_update(session, plan)
        return await self._say(session, "planned")

    async def _do_cost(self, session: str, rest: str) -> PromptResponse:
        self._cost += 0.25
        await self._conn.session_update(
            session,
            UsageUpdate(
                session_update="usage_update",
                used=10,
                size=100,
                cost=Cost(amount=self._cost, currency="USD"),
            ),
        )
        used = Usage(
            input_tokens=3,
            output_tokens=20,
            cached_read_tokens=100,
            cached_write_tokens=5,
            total_tokens=128,
        )
        return await self._say(session, "paid", usage=used)

    async def _do_files(self, session: str, rest: str) -> PromptResponse:
        *_, last = [json.loads(each) for each in (HOME / "log.jsonl").read_text().splitlines()]
        found = []
        for block in last["blocks"]:
            kind = block["type"]
            if kind == "resource_link":
                kind += ":" + read(block["uri"])
            elif kind == "resource":
                kind += ":" + block["resource"].get("text", "bytes")
            found.append(kind)
        return await self._say(session, " ".join(found))

    async def _do_form(self, session: str, rest: str) -> PromptResponse:
        schema = ElicitationSchema.model_validate(
            {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        )
        mode = ElicitationFormSessionMode(session_id=session, requested_schema=schema)
        answer = await self._conn.create_elicitation(message="Where to?", mode=mode)
        return await self._say(session, f"{answer.action}: {getattr(answer, 'content', None)}")

    async def _do_stop(self, session: str, rest: str) -> PromptResponse:
        return PromptResponse(stop_reason=rest or "end_turn")  # type: ignore[arg-type]

    async def _do_nothing(self, session: str, rest: str) -> PromptResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async def _do_die(self, session: str, rest: str) -> PromptResponse:
        print("out of ideas", file=sys.stderr, flush=True)
        os._exit(3)

    async def _do_raw(self, session: str, rest: str) -> PromptResponse:
        """Write lines as they are; SESSION stands for the session."""
        print(rest.replace("SESSION", session), flush=True)
        return await self._say(session, "written")

    async def _do_flood(self, session: str, rest: str) -> PromptResponse:
        os.write(1, b"x" * int(rest))
        await asyncio.Event().wait()
        raise AssertionError

    async def _do_refuse(self, session: str, rest: str) -> PromptResponse:
        raise RequestError.internal_error({"details": "the model is away"})

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return {}

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        pass

    def _offers(self) -> dict[str, Any]:
        if "modes" not in CAN:
            return {}
        modes = [SessionMode(id=each, name=each) for each in ("code", "plan")]
        models = [SessionConfigSelectOption(value=each, name=each) for each in ("small", "large")]
        option = SessionConfigOptionSelect(
            id="model",
            name="Model",
            category="model",
            type="select",
            current_value=self._model,
            options=models,
        )
        state = SessionModeState(current_mode_id="code", available_modes=modes)
        return {"modes": state, "config_options": [option]}


def note(method: str, /, **facts: Any) -> None:
    """Note what was called."""
    with (HOME / "log.jsonl").open("a") as log:
        log.write(json.dumps({**facts, "method": method}) + "\n")


async def gate_opened() -> None:
    """Wait until a test makes the file `gate`."""
    while not (HOME / "gate").exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.01)


def read(uri: str) -> str:
    """The text of a linked file."""
    return Path(uri.removeprefix("file://")).read_text(errors="replace")


def history(session: str) -> list[dict[str, Any]]:
    """What was said in a session."""
    path = HOME / f"{session}.json"
    if not path.exists():
        raise RequestError.resource_not_found(session)
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return found


def save(session: str, said: list[dict[str, Any]]) -> None:
    """Write what was said."""
    path = HOME / f"{session}.json.new"
    path.write_text(json.dumps(said))
    path.rename(HOME / f"{session}.json")


def add(session: str, **said: Any) -> None:
    """Add to what was said."""
    save(session, [*history(session), said])


if __name__ == "__main__":
    made: Any = ExampleAgent()  # the package calls what is there with keyword arguments
    asyncio.run(run_agent(made, use_unstable_protocol=True))
