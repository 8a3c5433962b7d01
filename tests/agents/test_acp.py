"""Agents that speak ACP, driven by one that is made with the official package, and by programs that behave badly."""

import asyncio
import base64
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sessionary.agents import registry
from sessionary.agents.acp import AcpOptions, FileAccess, terminals
from sessionary.agents.acp.files import Workspace
from sessionary.agents.acp.runner import AcpRunner
from sessionary.agents.model import ToolServer
from sessionary.agents.program import ProgramOptions, start_program
from sessionary.config.engine import AgentTable, ToolDecision
from sessionary.engine.ports import (
    Delta,
    Event,
    KeptState,
    NativeSession,
    NoServices,
    ProposedCall,
    Step,
)
from sessionary.errors import AgentFailed, BadInput, NotAllowed, NotFound, SessionaryError
from sessionary.formats import acp as formats
from sessionary.model.message import (
    Attachment,
    Message,
    Reasoning,
    Role,
    ToolCall,
    ToolResult,
    Unknown,
)
from sessionary.model.policy import PolicyVerdict
from sessionary.model.question import Answer, Decision, NewQuestion, Question, QuestionKind
from sessionary.model.transcript import Chat, chats_of
from sessionary.testing.runner_suite import (
    RunnerSuite,
    SlowRunnerSuite,
    decided_question,
    events_of,
    steps_of,
    turn_request,
)
from tests.support import node_clients

ROOT = Path(__file__).parents[2]
AGENT = ROOT / "tests" / "support" / "acp_agent.py"
MakeAgent = Callable[..., AcpRunner]


@dataclass
class People(NoServices):
    """The services of a turn: what is kept, what the policy says, and people who answer as a test says."""

    verdict: ToolDecision = ToolDecision.ALLOW
    answers: list[Answer | None] = field(default_factory=list)
    state: KeptState | None = None
    turn_id: str = "turn-1"
    native: NativeSession | None = None
    decided: list[ProposedCall] = field(default_factory=list)
    asked: list[NewQuestion] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    later: list[Chat] = field(default_factory=list)
    has_asked: asyncio.Event = field(default_factory=asyncio.Event)
    # Whether it was cancelled while it waited for an answer.
    has_withdrawn: bool = False

    async def decide(self, calls: Sequence[ProposedCall]) -> Sequence[PolicyVerdict]:
        self.decided += calls
        return [PolicyVerdict(self.verdict, "a rule") for _ in calls]

    async def ask_now(self, question: NewQuestion, *, seconds: float) -> Question:
        self.asked.append(question)
        self.has_asked.set()
        if not self.answers:
            try:
                await asyncio.Event().wait()
            finally:
                self.has_withdrawn = True
        return decided_question(question, self.answers.pop(0))

    async def start_approved(self, name: str) -> bool:
        self.started.append(name)
        return self.started.count(name) == 1

    async def kept_state(self) -> KeptState | None:
        return self.state

    async def keep_state(
        self, data: Mapping[str, Any], *, native: NativeSession | None = None
    ) -> None:
        self.state = KeptState(dict(data), self.turn_id)
        self.native = native

    async def new_messages(self) -> Sequence[Chat]:
        later, self.later = self.later, []
        return later

    async def turn(self, runner: AcpRunner, *said: str | Chat, **more: Any) -> list[Event]:
        """Run the next turn; the messages are what was said since the one before."""
        number = int(self.turn_id.partition("-")[2])
        if self.state is not None:
            self.turn_id = f"turn-{number + 1}"
            since = turn_request(*said).context
            self.state = KeptState(self.state.data, self.state.turn_id, since=tuple(since))
        request = turn_request(*said, turn_id=self.turn_id, services=self, **more)
        return await events_of(runner, request)


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[MakeAgent]:
    """Return a function that makes the runner of the example agent, whose home is `tmp_path`."""
    made: list[AcpRunner] = []

    def make(
        *command: str, can: str = "", name: str = "example-agent", **options: Any
    ) -> AcpRunner:
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        environ = {"PATH": os.environ["PATH"], "ACP_HOME": str(tmp_path)}
        environ |= {"ACP_CAN": can, "ACP_NAME": name}
        given: dict[str, Any] = {
            "command": command or (sys.executable, str(AGENT)),
            "environ": environ,
            "workspace": str(work),
            "send_prompt": False,
            "kill_after_seconds": 0.3,
            "close_seconds": 0.1,
        } | options
        runner = AcpRunner(AcpOptions(**given))
        made.append(runner)
        return runner

    yield make
    for runner in made:
        await runner.close()


def messages(events: Sequence[Event]) -> list[Message]:
    return [each.message for each in steps_of(events)]


def answer_of(events: Sequence[Event]) -> str:
    return messages(events)[-1].text


def calls_of(home: Path, method: str | None = None) -> list[dict[str, Any]]:
    """What the example agent was sent."""
    log = home / "log.jsonl"
    found = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return [each for each in found if method in (None, each["method"])]


def approve(**given: Any) -> Answer:
    return Answer(decision=Decision.APPROVE, **given)


class TestAcpRunner(RunnerSuite, SlowRunnerSuite):
    """What every runner must do."""

    @pytest.fixture
    def runner(self, agent: MakeAgent) -> AcpRunner:
        return agent()

    @pytest.fixture
    def slow_runner(self, agent: MakeAgent) -> AcpRunner:
        return agent(sys.executable, "-S", "-c", "import time; time.sleep(600)")


async def test_what_an_agent_tells_becomes_steps(agent: MakeAgent, tmp_path: Path) -> None:
    runner, people = agent(), People()

    thought = await people.turn(runner, "think cats")
    edited = messages(await people.turn(runner, "edit /src/b.py"))
    planned = messages(await people.turn(runner, "plan"))
    paid = steps_of(await people.turn(runner, "cost"))
    again = steps_of(await people.turn(runner, "cost"))
    unknown = messages(
        await people.turn(
            runner,
            'raw {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"SESSION",'
            '"update":{"sessionUpdate":"mood","mood":"good"}}}',
        )
    )
    stopped = messages(await people.turn(runner, "stop max_turn_requests"))[-1]

    assert [each for each in thought if isinstance(each, Delta)][:2] == [
        Delta("About cats.", thinking=True),
        Delta("It "),
    ]
    assert messages(thought)[-1].parts == (Reasoning("About cats."), messages(thought)[-1].parts[1])
    assert answer_of(thought) == "It is done."
    call, result = edited[0].parts[-1], edited[1].parts[0]
    assert edited[0].text == "I change it."
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments) == (
        "edit",
        {"path": "/src/b.py", "old_text": "a = 1\n", "new_text": "a = 2\n"},
    )
    assert isinstance(result, ToolResult)
    assert (result.call_id, result.is_error, result.extra["acp"]["title"]) == (
        call.id,
        False,
        "Edit a file",
    )
    assert edited[-1].text == "changed"
    plans = [
        part.content for each in planned for part in each.parts if isinstance(part, ToolResult)
    ]
    assert plans == ["[x] Look\n[ ] Change", "[x] Look\n[x] Change"]
    assert planned[-1].text == "planned"
    used = paid[-1].usage
    assert used is not None
    assert (used.total_tokens, used.cost_microusd) == (128, 250_000)
    assert (used.input_tokens, used.cache_read_tokens) == (3, 100)
    # The agent tells what its session has cost so far.
    assert again[-1].usage is not None
    assert again[-1].usage.cost_microusd == 250_000
    assert again[-1].usage.call_id != used.call_id
    kept = [part for each in unknown for part in each.parts if isinstance(part, Unknown)]
    assert [each.data["update"]["mood"] for each in kept] == ["good"]
    assert stopped.text.startswith("[The agent has called its model as often as it may")
    assert stopped.finish_reason == "max_turn_requests"
    # All of that was one session of one process, which was kept for the next turn.
    assert len(calls_of(tmp_path, "initialize")) == len(calls_of(tmp_path, "new")) == 1


async def test_messages_that_come_meanwhile_are_answered_in_the_same_turn(
    agent: MakeAgent, tmp_path: Path
) -> None:
    people = People(later=[{"role": "user", "content": "and more"}])

    found = messages(await people.turn(agent(), "hello"))

    assert [each.text for each in found] == ["You said: hello", "You said: and more"]


async def test_files_are_sent_as_the_agent_can_take_them(agent: MakeAgent, tmp_path: Path) -> None:
    data = {"text/plain": b"a note", "image/png": b"\x89PNG"}
    blobs = {hashlib.sha256(each).hexdigest(): each for each in data.values()}

    async def blob(name: str) -> bytes:
        return blobs[name]

    content: Any = [
        {
            "type": "attachment",
            "blob": hashlib.sha256(each).hexdigest(),
            "media_type": kind,
            "name": "../x",
        }
        for kind, each in data.items()
    ]
    prompt: Chat = {"role": "user", "content": [*content, {"type": "text", "text": "files"}]}

    (tmp_path / "a").mkdir()
    least = await People().turn(agent(), prompt, blob=blob)
    most = await People().turn(agent(can="image,embed"), prompt, blob=blob)

    # As links to files that are deleted with the turn.
    assert answer_of(least).startswith("resource_link:a note resource_link:")
    assert answer_of(most) == "resource:a note image text"
    links = [each["uri"] for each in calls_of(tmp_path, "prompt")[0]["blocks"] if "uri" in each]
    assert links
    assert not any(os.path.exists(each.removeprefix("file://")) for each in links)  # noqa: ASYNC240
    sent = calls_of(tmp_path, "prompt")[1]["blocks"][1]
    assert base64.b64decode(sent["data"]) == data["image/png"]


# Permissions.


async def test_a_permission_is_decided_by_the_policy_first(
    agent: MakeAgent, tmp_path: Path
) -> None:
    runner = agent()

    allowed = await (people := People()).turn(runner, "run ls")
    denied = await People(verdict=ToolDecision.DENY, state=people.state).turn(runner, "run ls")

    assert (answer_of(allowed), answer_of(denied)) == ("ran it", "did not run it")
    (call,) = people.decided
    assert (call.tool, call.arguments, call.needs_approval) == ("execute", {"command": "ls"}, True)
    # What is allowed for ever is a rule of ours: the agent goes on asking.
    chosen = [each["outcome"].get("optionId") for each in calls_of(tmp_path, "permission")]
    assert chosen == ["yes", "no"]
    failed = messages(denied)[-2].parts[0]
    assert isinstance(failed, ToolResult)
    assert failed.is_error


async def test_people_are_asked_with_the_change_and_their_answer_is_selected(
    agent: MakeAgent,
) -> None:
    runner = agent()
    no = Answer(decision=Decision.DENY, text="not on Fridays")
    other = approve(arguments={"command": "ls -l"})
    people = People(verdict=ToolDecision.ASK, answers=[approve(), no, None, other])

    edited = await people.turn(runner, "edit")
    denied = await people.turn(runner, "run rm")
    expired = await people.turn(runner, "run rm")
    changed = await people.turn(runner, "run ls")

    assert answer_of(edited) == "changed"
    asked = people.asked[0]
    assert (asked.tool, asked.text) == ("edit", "Edit a file")
    assert asked.arguments == {"path": "/src/a.py", "old_text": "a = 1\n", "new_text": "a = 2\n"}
    # The agent is told the reason, which the protocol has no place for, and answers to it.
    assert "Denied by Ann: not on Fridays" in answer_of(denied)
    assert answer_of(expired) == "did not run it"
    assert "command = 'ls -l'" in answer_of(changed)
    assert len(people.started) == 1


async def test_an_approval_that_came_while_the_process_was_gone_is_used_once(
    agent: MakeAgent, tmp_path: Path
) -> None:
    """The process that goes on with the turn does not ask again; whether a call that was begun has run is unknown."""
    question = decided_question(
        NewQuestion(
            name="permission:1",
            kind=QuestionKind.APPROVAL,
            text="",
            tool="execute",
            arguments={"command": "ls"},
        ),
        approve(),
    )
    runner = agent()
    people = People(verdict=ToolDecision.ASK, answers=[approve()])
    await people.turn(runner, "run ls", questions=(question,))
    assert people.asked == []
    assert people.started == ["permission:1"]

    again = People(verdict=ToolDecision.ASK, answers=[approve()], started=["permission:1"])
    again.state = people.state
    await again.turn(runner, "run ls", questions=(question,))

    (asked,) = again.asked
    assert "it is not known whether it ran" in asked.text


async def test_a_question_is_withdrawn_if_the_turn_is_stopped(
    agent: MakeAgent, tmp_path: Path
) -> None:
    """The agent is told to stop, and its process takes the next turn."""
    runner, people = agent(), People(verdict=ToolDecision.ASK)
    task = asyncio.create_task(people.turn(runner, "run ls"))
    await people.has_asked.wait()

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert task.cancelled()
    assert people.has_withdrawn
    assert calls_of(tmp_path, "cancel")
    assert not (tmp_path / "runs").exists()


async def test_a_question_of_an_agent_that_has_died_is_withdrawn(
    agent: MakeAgent, tmp_path: Path
) -> None:
    people = People(verdict=ToolDecision.ASK)
    task = asyncio.create_task(people.turn(agent(), "run ls"))
    await people.has_asked.wait()
    (greeted,) = calls_of(tmp_path, "initialize")

    os.kill(greeted["pid"], signal.SIGKILL)

    with pytest.raises(AgentFailed, match="ended with code -9 before the turn was over"):
        await task
    assert people.has_withdrawn


async def test_a_question_that_the_agent_takes_back_is_withdrawn(
    agent: MakeAgent, tmp_path: Path
) -> None:
    people = People(verdict=ToolDecision.ASK)
    turn = asyncio.create_task(people.turn(agent(), "doubt"))
    await people.has_asked.wait()
    (tmp_path / "gate").touch()

    found = messages(await turn)

    assert people.has_withdrawn
    assert found[-1].text == "never mind"
    assert not [part for each in found for part in each.parts if isinstance(part, Unknown)]


async def test_values_are_asked_for_as_a_question(agent: MakeAgent) -> None:
    people = People(answers=[approve(text="Rome")])

    found = await people.turn(agent(), "form")

    assert answer_of(found) == "accept: {'city': 'Rome'}"
    assert people.asked[0].text.startswith("The agent ")


# Files and terminals.


async def test_files_and_terminals_are_refused_unless_they_are_allowed(
    agent: MakeAgent, tmp_path: Path
) -> None:
    runner, people = agent(), People()
    (tmp_path / "work" / "a.txt").write_text("secret")

    found = [
        answer_of(await people.turn(runner, each))
        for each in ("read a.txt", "write a.txt x", "terminal ls")
    ]

    assert found == ["refused: Method not found"] * 3
    assert (tmp_path / "work" / "a.txt").read_text() == "secret"


async def test_what_an_agent_may_read_write_and_run(agent: MakeAgent, tmp_path: Path) -> None:
    runner = agent(files=FileAccess.WRITE, terminals=True)
    people, denied = People(), People(verdict=ToolDecision.DENY)

    wrote = answer_of(await people.turn(runner, "write new/a.txt some text"))
    read = answer_of(await people.turn(runner, "read new/a.txt"))
    outside = answer_of(await people.turn(runner, "read ../log.jsonl"))
    ran = messages(await people.turn(runner, "terminal echo out; echo err >&2; pwd; exit 3"))
    denied.state = people.state
    not_written = answer_of(await denied.turn(runner, "write b.txt x"))
    not_run = answer_of(await denied.turn(runner, "terminal touch c"))

    assert (wrote, read) == ("done: ", "done: some text")
    assert outside == "refused: ../log.jsonl is outside the workspace."
    assert ran[-1].text == f"exit 3: out\nerr\n{tmp_path / 'work'}\n"
    result = ran[-2].parts[0]
    assert isinstance(result, ToolResult)
    assert result.content == f"out\nerr\n{tmp_path / 'work'}\n"
    assert (not_written, not_run) == (
        "refused: b.txt may not be written.",
        "refused: /bin/sh -c 'touch c' may not be run.",
    )
    assert sorted(each.name for each in (tmp_path / "work").iterdir()) == ["new"]
    assert [each.tool for each in people.decided] == [
        "write_text_file",
        "read_text_file",
        "terminal",
    ]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A workspace with links that lead out of it and within it, and files that are none."""
    inside, outside = tmp_path / "in", tmp_path / "inside-not"
    inside.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (inside / "a").write_text("one\ntwo\nthree\n")
    (inside / "out").symlink_to(outside)
    (inside / "secret").symlink_to(outside / "secret")
    (inside / "new").symlink_to(outside / "new")
    (inside / "loop").symlink_to("loop")
    (inside / "near").symlink_to("a")
    (inside / "bytes").write_bytes(b"\xff\xfe")
    os.mkfifo(inside / "pipe")
    return Workspace(str(inside))


@pytest.mark.parametrize(
    "path",
    [
        *("../inside-not/secret", "/etc/passwd", "out/secret", "secret", "new", "out/new"),
        *("a/../../inside-not/secret", "..", ".", "", "a\0b", "loop", "pipe", "a/b", "../in"),
        "../inside-not/new",
    ],
)
def test_no_path_leads_out_of_the_workspace(workspace: Workspace, path: str) -> None:
    with pytest.raises((NotAllowed, BadInput, NotFound)):
        workspace.read(path)
    with pytest.raises((NotAllowed, BadInput, NotFound)):
        workspace.write(path, "x")

    outside = Path(workspace.folder).parent / "inside-not"
    assert {each.name: each.read_text() for each in outside.iterdir()} == {"secret": "secret"}


def test_a_link_that_is_put_there_meanwhile_is_not_followed(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(workspace.folder)
    (folder / "sub").mkdir()
    find = Workspace.find

    def find_and_swap(self: Workspace, path: str) -> str:
        found = find(self, path)
        (folder / "sub").rmdir()
        (folder / "sub").symlink_to(folder.parent / "inside-not")
        return found

    monkeypatch.setattr(Workspace, "find", find_and_swap)

    with pytest.raises(BadInput, match="cannot be opened"):
        workspace.write("sub/secret", "changed")
    assert (folder.parent / "inside-not" / "secret").read_text() == "secret"


def test_some_lines_of_a_file_can_be_read(workspace: Workspace) -> None:
    assert workspace.read("near") == "one\ntwo\nthree\n"
    assert workspace.read("a", line=2, limit=1) == "two\n"
    assert workspace.read("a", line=9) == ""
    with pytest.raises(BadInput, match="no text file"):
        workspace.read("bytes")
    with pytest.raises(NotFound):
        workspace.read("b")


# Sessions.


async def test_a_session_is_resumed_loaded_or_begun_anew(agent: MakeAgent, tmp_path: Path) -> None:
    """Without its process; a session that the agent cannot find again begins with what was said here."""
    for can, how in (("resume,load", "resume"), ("load", "load"), ("", "new")):
        runner, people = agent(can=can, keep_seconds=0.0), People()
        await people.turn(runner, "hello")
        assert people.state is not None

        found = await people.turn(runner, "remember")

        assert [each["method"] for each in calls_of(tmp_path)][-2:] == [how, "prompt"]
        known = "I know: hello | You said: hello | remember"
        assert answer_of(found) == (known if can else "I know: remember")
        # The history that the agent repeats is not told again.
        assert len(steps_of(found)) == 1


async def test_a_conversation_is_handed_over_to_a_new_session(
    agent: MakeAgent, tmp_path: Path
) -> None:
    before: list[Chat] = [
        {"role": "user", "content": "My dog is Rex."},
        {"role": "assistant", "content": "A good name."},
    ]

    await People().turn(agent(can="load"), *before, "remember")

    (prompt,) = calls_of(tmp_path, "prompt")
    told = [each["text"] for each in prompt["blocks"]]
    assert "user: My dog is Rex.\n\nassistant: A good name." in told[0]
    assert told[1:] == ["remember"]


async def test_a_forked_session_is_forked_at_the_agent_too(
    agent: MakeAgent, tmp_path: Path
) -> None:
    runner, people = agent(can="fork,load", keep_seconds=0.0), People()
    await people.turn(runner, "hello")
    assert people.state is not None
    forked, rewound = People(), People()
    said: tuple[Chat, ...] = ({"role": "user", "content": "remember"},)
    forked.state = KeptState(people.state.data, "turn-1", since=said, is_inherited=True)
    rewound.state = KeptState(people.state.data, "turn-1", since=said, is_rewound=True)

    for each in (forked, rewound):
        request = turn_request("hello", "remember", turn_id="turn-2", services=each)
        await events_of(runner, request)

    (fork,) = calls_of(tmp_path, "fork")
    first, inherited, new = calls_of(tmp_path, "prompt")
    assert (fork["session"], fork["fork"]) == (first["session"], inherited["session"])
    assert new["session"] not in (first["session"], inherited["session"])


async def test_a_turn_goes_on_where_the_agent_can_go_on(agent: MakeAgent, tmp_path: Path) -> None:
    """Its process was killed. A message that the agent has not got is sent; what nobody knows is told."""
    people = People()
    await people.turn(agent(can="load,resume"), "hello")
    assert people.state is not None
    state = KeptState(people.state.data, "turn-2")
    before: list[Chat] = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "You said: hello"},
    ]
    step = Message(Role.ASSISTANT, (ToolCall("c1", "execute", {"command": "ls"}),))

    async def told(can: str, *steps: Message) -> list[str]:
        """What the agent is told when the turn goes on."""
        people.state = state
        context: list[Chat] = [*before, {"role": "user", "content": "remember"}]
        chats = [chat for each in steps for chat in chats_of(each)]
        request = turn_request(
            *context, *chats, turn_id="turn-2", services=people, resumed=1, steps=steps
        )
        await events_of(agent(can=can), request)
        return [each["text"] for each in calls_of(tmp_path, "prompt")[-1]["blocks"]]

    assert await told("load") == ["remember"]  # it was not among what the agent repeats
    going_on, heading, text = await told("resume")
    assert "Go on from where you stopped" in going_on
    assert (heading, text) == ("The message was:", "remember")
    # An agent that has forgotten its session begins a new one only if nothing was done.
    handed_over, text = await told("")
    assert "user: hello\n\nassistant: You said: hello" in handed_over
    assert text == "remember"
    with pytest.raises(AgentFailed, match="cannot go on with its session"):
        await told("", step)


async def test_a_message_that_came_meanwhile_is_answered_when_the_turn_goes_on(
    agent: MakeAgent, tmp_path: Path
) -> None:
    """The process was killed between the answer to the first message of the turn and that to the second."""
    people = People()
    (paid,) = steps_of(await people.turn(agent(can="load"), "cost"))
    assert people.state is not None
    answered = paid.message
    context: list[Chat] = [*turn_request("cost").context, *chats_of(answered)]

    async def go_on(*later: Chat) -> list[Step]:
        request = turn_request(
            *context, *later, turn_id="turn-1", services=people, resumed=1, steps=(answered,)
        )
        return steps_of(await events_of(agent(can="load"), request))

    (again,) = await go_on({"role": "user", "content": "And now, cost"})
    assert again.message.text == "You said: And now, cost"
    (again,) = await go_on({"role": "user", "content": "cost again"})
    assert again.message.text == "paid"
    assert paid.usage is not None
    assert again.usage is not None
    assert paid.usage.call_id != again.usage.call_id
    assert await go_on() == []  # only the end of the turn was not recorded


async def test_the_mode_the_model_and_servers_are_set(agent: MakeAgent, tmp_path: Path) -> None:
    servers = (
        ToolServer(command=("tools", "-x"), name="files", environ={"A": "b"}),
        ToolServer(url="https://example.org/mcp", headers={"X-A": "b"}),
    )
    runner = agent(can="modes,http", mode="plan", model="large", tools=servers)

    found = await People().turn(runner, "hello")

    assert [each["mode"] for each in calls_of(tmp_path, "mode")] == ["plan"]
    assert [each["value"] for each in calls_of(tmp_path, "option")] == ["large"]
    assert messages(found)[-1].model == "large"
    (new,) = calls_of(tmp_path, "new")
    assert [each["name"] for each in new["servers"]] == ["files", "https://example.org/mcp"]
    assert new["cwd"] == str(tmp_path / "work")


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("@agentclientprotocol/claude-agent-acp", "claude-code"),
        ("codex-acp", "codex"),
        ("gemini-cli", "gemini-cli"),
        ("somebody", None),
    ],
)
async def test_the_records_of_known_agents_are_recognised(
    agent: MakeAgent, name: str, tool: str | None
) -> None:
    people = People()

    await people.turn(agent(name=name), "hello")

    assert people.state is not None
    session = people.state.data["session"]
    assert people.native == (None if tool is None else NativeSession(tool, session))


# What goes wrong.


async def failure(runner: AcpRunner, *said: str) -> str:
    """Run a turn that fails; return why. It must not take long, and must end every process."""
    with pytest.raises(SessionaryError) as caught:
        await People().turn(runner, *said)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def program(code: str) -> tuple[str, ...]:
    """A program that is no agent, or one that knows nothing but how to begin."""
    return (sys.executable, "-S", "-c", code)


_GREETING = """
import json, sys, time, os
def send(**m): print(json.dumps({"jsonrpc": "2.0", **m}), flush=True)
send(id=0, result={"protocolVersion": 1}); input(); input()
"""


@pytest.mark.parametrize(
    ("code", "options", "reason"),
    [
        (
            "import sys; sys.exit('no key')",
            {},
            "ended with code 1 before the turn was over. It said: no key",
        ),
        (
            "import time; time.sleep(600)",
            {"start_seconds": 0.2},
            "did not answer initialize in 0.2 seconds",
        ),
        ("import os; os.close(1); import time; time.sleep(600)", {}, "closed its output"),
        (
            "while True: print('hello')",
            {"most_rubbish_lines": 9},
            "wrote rubbish and was stopped. 10 of its lines",
        ),
        (
            "while True: print('{\"id\": []}')",
            {"most_rubbish_lines": 9},
            "wrote rubbish and was stopped.",
        ),
        (
            "while True: print('[' * 100_000)",
            {"most_rubbish_lines": 9},
            "wrote rubbish and was stopped.",
        ),
        (
            "import os\nwhile True: os.write(1, b'x' * 9999)",
            {"most_line_bytes": 99_999},
            "wrote too much",
        ),
        ("while True: print('[]' * 999)", {"most_bytes": 99_999}, "wrote too much"),
        (
            'i = 0\nwhile True: print(\'{"id": %d, "method": "session/request_permission"}\' % i); i += 1',
            {"most_bytes": 9_999_999},
            "",
        ),
        (
            'print(\'{"id": 0, "result": {"protocolVersion": 2}}\'); input(); input()',
            {},
            "speaks version 2",
        ),
        (
            'print(\'{"id": 0, "result": 5}\'); input(); input()',
            {},
            "answered initialize with something",
        ),
        (
            'print(\'{"id": 0, "error": {"code": -1, "message": "a\\\\nb"}}\'); input(); input()',
            {},
            "refused initialize: a b",
        ),
        (_GREETING + "time.sleep(600)", {"start_seconds": 0.5}, "did not answer session/new"),
        (
            _GREETING + "send(id=1, result={}); time.sleep(600)",
            {},
            "answered session/new with something",
        ),
        (
            _GREETING + "send(id=1, result={'sessionId': 's'}); time.sleep(600)",
            {"timeout_seconds": 0.3},
            "said nothing for 0.3 seconds and was stopped.",
        ),
        (
            _GREETING + "send(id=1, result={'sessionId': 's'}); input(); sys.exit('tired')",
            {},
            "ended with code 1 before the turn was over. It said: tired",
        ),
    ],
)
async def test_a_program_that_is_no_proper_agent_fails_with_one_line(
    agent: MakeAgent, code: str, options: dict[str, Any], reason: str
) -> None:
    began = time.monotonic()

    found = await failure(agent(*program(code), **options), "hello")

    assert reason in found
    assert time.monotonic() - began < 60


async def test_an_agent_that_is_not_there(agent: MakeAgent, tmp_path: Path) -> None:
    runner = agent("/nowhere/agent")

    assert "cannot be started" in await failure(runner, "hello")
    with pytest.raises(BadInput, match="cannot be started"):
        runner.check()
    with pytest.raises(BadInput, match="workspace"):
        agent(workspace=str(tmp_path / "none")).check()


async def test_an_agent_that_dies_or_refuses(agent: MakeAgent) -> None:
    people = People()
    with pytest.raises(AgentFailed, match=r"ended with code 3 .* It said: out of ideas"):
        await people.turn(agent(), "die")
    with pytest.raises(AgentFailed, match=r"refused session/prompt: .* \(the model is away\)"):
        await People().turn(agent(), "refuse")


async def test_an_agent_that_needs_a_login(agent: MakeAgent, tmp_path: Path) -> None:
    found = await failure(agent(can="login"), "hello")
    assert "needs a login" in found
    assert 'A key (auth = "key")' in found

    assert answer_of(await People().turn(agent(can="login", auth="key"), "hello"))
    assert [each["method"] for each in calls_of(tmp_path, "authenticate")] == ["authenticate"]


async def test_a_choice_that_is_not_offered(agent: MakeAgent) -> None:
    assert "has no mode 'fast'; it offers: code, plan." in await failure(
        agent(can="modes", mode="fast"), "hello"
    )
    assert "offers no choice of a model" in await failure(agent(model="large"), "hello")


async def test_no_process_of_an_agent_outlives_its_turn(agent: MakeAgent, tmp_path: Path) -> None:
    """Not a child that ignores its end, either; an agent that hangs is ended when it is told to stop in vain."""
    runner = agent(keep_seconds=0.0, terminals=True, cancel_seconds=0.2)
    work = f"(trap '' TERM HUP; sleep 600) & echo $! > {tmp_path}/pid; sleep 600"
    people = People()
    task = asyncio.create_task(people.turn(runner, f"terminal {work}"))
    pid = tmp_path / "pid"
    await until(lambda: pid.exists() and bool(pid.read_text().strip()))

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    (greeted,) = calls_of(tmp_path, "initialize")
    await until(lambda: not is_alive(int(pid.read_text())))
    await until(lambda: not is_alive(greeted["pid"]))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that other processes do."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("steps", [1, 5, 20])
async def test_a_program_that_is_cancelled_while_it_starts_is_ended_whole(
    tmp_path: Path, steps: int
) -> None:
    """It may have children by then."""
    line = f"sleep 600 & echo $$ >> {tmp_path}/pids; echo $! >> {tmp_path}/pids; wait"
    options = ProgramOptions(command=("/bin/sh", "-c", line))
    task = asyncio.create_task(start_program(options))
    for _ in range(steps):
        await asyncio.sleep(0)

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    if not task.cancelled():  # it had started by then
        async with task.result():
            pass
    pids = tmp_path / "pids"
    for pid in pids.read_text().split() if pids.exists() else ():
        await until(lambda number=int(pid): not is_alive(number))  # type: ignore[misc]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def test_what_an_agent_tells_between_turns_does_not_hold_up_the_next(
    agent: MakeAgent, tmp_path: Path
) -> None:
    runner, people = agent(can="modes", start_seconds=20.0), People()
    await people.turn(runner, "chatter")
    (tmp_path / "gate").touch()
    await until(lambda: bool(calls_of(tmp_path, "chattered")))

    found = messages(await people.turn(runner, "hello", settings={"model": "large"}))

    assert [each.text for each in found] == ["You said: hello"]
    assert found[0].model == "large"
    assert len(calls_of(tmp_path, "initialize")) == 1


async def test_what_is_paid_is_kept_with_each_answer_of_a_turn(agent: MakeAgent) -> None:
    """Else it would be in the ledger twice if the agent dies in the next answer."""
    people = People(later=[Chat(role="user", content="die")])

    with pytest.raises(AgentFailed, match="ended with code 3"):
        await people.turn(agent(), "cost")

    assert people.state is not None
    assert people.state.data["cost"] == 0.25


async def test_little_is_kept_of_terminals_that_were_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(terminals, "_MOST_SHOWN", 2)
    made = terminals.Terminals()
    for word in ("one", "two", "three"):
        id = await made.create(ProgramOptions(command=("echo", word)))
        await made.wait(id)
        await made.end(id, forget=True)

    assert made.shown() == {"terminal-2": "two\n", "terminal-3": "three\n"}


async def test_a_process_is_not_used_if_another_one_took_a_turn_since(
    agent: MakeAgent, tmp_path: Path
) -> None:
    """Two servers share the store: the session at the agent has gone on without this process."""
    runner, people = agent(can="resume"), People()
    await people.turn(runner, "hello")
    assert people.state is not None
    people.state = KeptState(people.state.data, "turn-of-another-server")
    request = turn_request("hello", turn_id="turn-2", services=people)

    await events_of(runner, request)

    assert [each["method"] for each in calls_of(tmp_path)][3:] == ["initialize", "resume", "prompt"]


async def test_only_so_many_processes_are_kept(agent: MakeAgent, tmp_path: Path) -> None:
    runner, people = agent(keep_seconds=0.05), People()

    await people.turn(runner, "hello")

    (greeted,) = calls_of(tmp_path, "initialize")
    await until(lambda: not is_alive(greeted["pid"]))


def test_the_kind_is_registered() -> None:
    table = AgentTable(
        name="coder", kind="acp", options={"command": ["some-agent"], "workspace": "/tmp"}
    )

    built = registry.build(table, environ={"PATH": "/bin", "SECRET": "x"})

    assert isinstance(built.runner, AcpRunner)
    assert built.resumes
    with pytest.raises(BadInput, match="needs a program"):
        registry.build(AgentTable(name="coder", kind="acp", options={"command": []}), environ={})


async def test_an_agent_can_be_another_sessionary(agent: MakeAgent, tmp_path: Path) -> None:
    """Both sides of the protocol are ours here: its agent answers, and its record has the session too."""
    (tmp_path / "sessionary.toml").write_text(
        'agent = "clerk"\n[agents.clerk]\nkind = "echo"\n', encoding="utf-8"
    )
    command = (sys.executable, "-m", "sessionary", "--home", str(tmp_path), "acp")
    people, runner = People(), agent(*command)

    first = await people.turn(runner, "hello")
    await runner.close()
    again = await people.turn(agent(*command), "again")

    assert "hello" in answer_of(first)
    assert "again" in answer_of(again)
    assert people.state is not None
    assert len(messages(again)) == 1  # what it repeats is not told again


# An agent that is made with the official package for Node.

_NODE_AGENT = """
import { agent, methods, ndJsonStream, PROTOCOL_VERSION } from "@agentclientprotocol/sdk"
import { Readable, Writable } from "node:stream"
agent({ name: "node-agent" })
  .onRequest(methods.agent.initialize, () => ({ protocolVersion: PROTOCOL_VERSION, agentCapabilities: {} }))
  .onRequest(methods.agent.session.new, () => ({ sessionId: "s1" }))
  .onRequest(methods.agent.session.prompt, async ({ params: { sessionId }, client }) => {
    const tell = (update) => client.notify(methods.client.session.update, { sessionId, update })
    await tell({ sessionUpdate: "agent_message_chunk", content: { type: "text", text: "I look." } })
    await tell({ sessionUpdate: "tool_call", toolCallId: "c1", title: "Change", kind: "edit", status: "pending",
      locations: [{ path: "/p/c.json" }], rawInput: { path: "/p/c.json", content: "{}" } })
    const answer = await client.request(methods.client.session.requestPermission, {
      sessionId, toolCall: { toolCallId: "c1", title: "Change" },
      options: [{ kind: "allow_once", name: "Allow", optionId: "allow" },
                { kind: "reject_once", name: "Skip", optionId: "reject" }] })
    const isAllowed = answer.outcome.outcome === "selected" && answer.outcome.optionId === "allow"
    await tell({ sessionUpdate: "tool_call_update", toolCallId: "c1", status: isAllowed ? "completed" : "failed",
      rawOutput: { success: isAllowed } })
    await tell({ sessionUpdate: "agent_message_chunk", content: { type: "text", text: isAllowed ? "Done." : "No." } })
    return { stopReason: "end_turn" }
  })
  .connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)))
"""


async def test_an_agent_of_the_package_for_node(agent: MakeAgent, tmp_path: Path) -> None:
    node = node_clients.node()
    people = People(verdict=ToolDecision.ASK, answers=[approve()])
    runner = agent(
        *(str(node), "--input-type=module", "-e", _NODE_AGENT), folder=str(node_clients.FOLDER)
    )

    found = messages(await people.turn(runner, "go"))

    assert [each.text for each in found] == ["I look.", "", "Done."]
    assert people.asked[0].arguments == {"path": "/p/c.json", "content": "{}"}
    (result,) = found[1].parts
    assert isinstance(result, ToolResult)
    assert result.content == '{"success":true}'


# Values of the protocol.


def test_blocks_are_parts() -> None:
    picture = {"type": "image", "data": base64.b64encode(b"png").decode(), "mimeType": "image/png"}
    part, data = formats.part_of_block(picture)
    assert (data, part) == (
        b"png",
        Attachment(hashlib.sha256(b"png").hexdigest(), "image/png", None, 3),
    )
    rubbish: list[Any] = [{"type": "image", "data": "%"}, {"type": "hologram"}, None, [], {}]
    for broken in rubbish:
        assert isinstance(formats.part_of_block(broken)[0], Unknown)


def test_a_change_of_too_many_lines_is_only_named() -> None:
    change = formats.FileDiff("a.txt", "a\n" * 6_000, "b\n" * 6_000)
    assert change.unified() == "[a.txt was changed; the change is too long to be shown]"


def test_usage_is_counted_as_the_ledger_does() -> None:
    """Whether cached tokens and thoughts are a part of the others can be told from the total."""
    apart = {"inputTokens": 3, "outputTokens": 20, "cachedReadTokens": 100, "totalTokens": 123}
    within = {"inputTokens": 103, "outputTokens": 20, "cachedReadTokens": 100, "totalTokens": 123}
    thought = {"inputTokens": 3, "outputTokens": 20, "thoughtTokens": 7, "totalTokens": 30}
    for given, total, sent in ((apart, 123, 3), (within, 123, 3), (thought, 30, 3)):
        used = formats.usage_of(given)
        assert used is not None
        assert (used.total_tokens, used.input_tokens) == (total, sent)
        assert used.cost_microusd is None
    assert formats.usage_of({"inputTokens": -1, "outputTokens": "x"}) is None
