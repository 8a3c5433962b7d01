"""Agents that speak ACP in an engine: their sessions through restarts, permissions on every channel, and kills."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from sessionary.actions.sessions import edit, routing
from sessionary.agents.acp import AcpOptions
from sessionary.agents.acp.runner import AcpRunner
from sessionary.clock import Moment, RandomIds, SystemClock
from sessionary.engine.engine import Engine
from sessionary.engine.ports import KeptState
from sessionary.engine.turn import compaction, kept
from sessionary.importers.base import driver
from sessionary.importers.base.session_merger import ImportTarget
from sessionary.importers.claude_code import ClaudeCode
from sessionary.model.message import Message, Role, ToolCall, ToolResult
from sessionary.model.question import Always, Answer, Decision, QuestionState
from sessionary.model.session import SessionHead
from sessionary.model.source import key_for
from sessionary.model.turn import Lease, TurnState
from sessionary.store.database import Store, Tx
from sessionary.store.open import open_store
from sessionary.testing.fakes import LoopbackAdapter, ScriptedRunner, scripted_agent
from tests.engine.acp_child import SETTINGS, context_of, source_of
from tests.engine.test_questions import all_questions, answer, make_world, open_questions, press
from tests.importers.write_claude_code import Tape, text
from tests.support.engine_world import EngineWorld

ROOT = Path(__file__).parents[2]
AGENT = ROOT / "tests" / "support" / "acp_agent.py"


@dataclass
class Coder:
    """A world with the example agent, whose process can be started again."""

    world: EngineWorld
    home: Path
    runners: list[AcpRunner] = field(default_factory=list)
    engines: list[Engine] = field(default_factory=list)

    def options(self, can: str, **options: Any) -> dict[str, Any]:
        """The settings of the agent."""
        environ = {"PATH": os.environ["PATH"], "ACP_HOME": str(self.home), "ACP_CAN": can}
        given = {"command": [sys.executable, str(AGENT)], "workspace": str(self.home)}
        environ["ACP_NAME"] = options.pop("name", "example-agent")
        return {**given, "environ": environ, "kill_after_seconds": 0.3, **options}

    async def engine(self, can: str = "load", **options: Any) -> Engine:
        """An engine in a new process, as far as the agent can tell."""
        made = self.options(can, send_prompt=False, **options)
        runner = AcpRunner(AcpOptions(**made | {"command": tuple(made["command"])}))
        self.runners.append(runner)
        agent = replace(scripted_agent(runner), resumes=True)
        self.world.use(agent_for=lambda _, __: agent)
        engine = await self.world.started()
        self.engines.append(engine)
        return engine

    async def restarted(self, can: str = "load", **options: Any) -> Engine:
        """The engine after a restart of the server."""
        await self.stop()
        return await self.engine(can, **options)

    async def stop(self) -> None:
        """Stop the server."""
        for engine in self.engines:
            await engine.stop()
        for runner in self.runners:
            await runner.close()
        self.engines, self.runners = [], []

    def log(self, *methods: str) -> list[dict[str, Any]]:
        """What the agent was sent."""
        path = self.home / "log.jsonl"
        found = (
            [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        )
        return [each for each in found if not methods or each["method"] in methods]


@pytest.fixture
async def coder(store: Store, tmp_path: Path) -> AsyncIterator[Coder]:
    (tmp_path / "agent").mkdir()
    made = Coder(make_world(store), tmp_path / "agent")
    yield made
    await made.stop()


async def test_the_session_of_an_agent_follows_ours(coder: Coder) -> None:
    """It goes on after a restart, with what was said meanwhile; it can be forked, and is left after a retraction."""
    world = coder.world
    engine = await coder.engine("load,fork")
    assert await world.asks(engine, "hello") == ["You said: hello"]
    assert await world.asks(engine, "more") == ["You said: more"]
    (first,) = {each["session"] for each in coder.log("prompt")}
    assert len(coder.log("initialize")) == 1

    await coder.stop()
    world.use(agent_for=lambda _, __: scripted_agent(ScriptedRunner()))
    other = await world.started()
    assert await world.asks(other, "are you there?") == ["re: are you there?"]
    await other.stop()
    engine = await coder.engine("load,fork")
    said = await world.asks(engine, "remember")
    assert [each["session"] for each in coder.log("load")] == [first]
    assert said == ["I know: hello | You said: hello | more | You said: more | remember"]
    told = [each["text"] for each in coder.log("prompt")[-1]["blocks"]]
    assert told[-1] == "remember"
    assert "user: are you there?" in told[0]
    assert "assistant: re: are you there?" in told[0]
    assert "hello" not in told[0]

    # A fork can go on with what the agent knows, unless it began before that.
    now = await world.head()
    whole, part = await forked(world), await forked(world, at_seq=2)
    for each, is_rewound in ((whole, False), (part, True)):
        state = await kept_state(world, each)
        assert state is not None
        assert (state.data["session"], state.is_inherited) == (first, True)
        assert state.is_rewound == is_rewound

    await world.asks(engine, "/retry")
    retried = coder.log("prompt")[-1]
    assert retried["session"] != first
    assert "assistant: You said: more" in retried["blocks"][0]["text"]
    state = await kept_state(world, whole)
    assert state is not None
    assert state.is_rewound
    state = await kept_state(world, now)
    assert state is not None
    assert state.data["session"] == retried["session"]
    assert (state.is_inherited, state.is_rewound, state.is_finished) == (False, False, True)


async def forked(world: EngineWorld, **options: Any) -> SessionHead:
    """A fork of the session of the chat."""
    head, moment = await world.head(), world.context().moment()
    return await world.store.write(edit.fork, head.id, profile="main", moment=moment, **options)


async def kept_state(world: EngineWorld, head: SessionHead) -> KeptState | None:
    """What a turn in a session would find that the agent has kept."""
    lease = Lease("turn", head.no, head.id, 0, "nobody")

    def find(tx: Tx) -> KeptState | None:
        found = compaction.read_session_context(tx, head.id, profile="main")
        return kept.read(tx, lease, "scripted", found, profile="main")

    return await world.store.read(find)


async def test_a_permission_is_asked_and_answered_over_two_channels(coder: Coder) -> None:
    world = coder.world
    engine = await coder.engine()

    await world.says(engine, "edit /src/a.py")
    await world.eventually(lambda: is_asked(world, 1))
    (question,) = await open_questions(world)
    card = world.adapter.texts("loopback:1")[0]
    assert "May the tool **edit** be called?" in card
    assert "old_text: |" in card or "old_text" in card
    assert "Edit a file" in card
    log = await messages_of(world)
    assert [type(part) for part in log[-2].parts][
        -1
    ] is ToolCall  # it is in the log before the question
    await press(world, question, 1)
    await world.settle(engine)
    assert world.adapter.texts("loopback:1")[-1] == "changed"

    await world.says(engine, "run ls", number="2")
    await world.eventually(lambda: is_asked(world, 1))
    (question,) = await open_questions(world)
    always = Answer(decision=Decision.APPROVE, always=Always.SESSION)
    await answer(world, question, always)  # in the workbench
    await world.settle(engine)
    assert world.adapter.texts("loopback:1")[-1] == "ran it"

    # «Always» is a rule of ours now: nobody is asked again, and the agent asks each time.
    assert await world.asks(engine, "run pwd") == ["ran it"]
    assert len(await all_questions(world)) == 2
    assert [each["outcome"]["optionId"] for each in coder.log("permission")] == ["yes"] * 3
    assert (coder.home / "runs").read_text() == "ls\npwd\n"
    assert (await messages_of(world))[-1].text == "ran it"


async def is_asked(world: EngineWorld, count: int) -> bool:
    found = await open_questions(world)
    sent = [each for each in world.adapter.texts("loopback:1") if "May the tool" in each]
    return len(found) == count and bool(sent)


async def messages_of(world: EngineWorld) -> list[Message]:
    head = await world.head()
    return await world.messages(head.id)


async def test_an_agent_that_dies_is_told_what_was_interrupted(coder: Coder) -> None:
    world = coder.world
    engine = await coder.engine()
    await world.says(engine, "work")
    await world.until(lambda: bool(coder.log("working")))

    (coder.home / "gate").write_text("die")
    await world.settle(engine)
    said = await world.asks(engine, "remember")

    (failed,) = [each for each in await world.turns() if each.state is TurnState.FAILED]
    assert "ended with code 3 before the turn was over" in (failed.reason or "")
    assert len({each["session"] for each in coder.log("prompt")}) == 1
    told = [each["text"] for each in coder.log("prompt")[-1]["blocks"]]
    assert "[The turn before this message was interrupted." in told[0]
    assert "(calls execute" in told[0]
    assert told[1:] == ["remember"]
    assert said[0].startswith("I know: work")


async def test_stopping_a_turn_stops_the_agent(coder: Coder) -> None:
    world = coder.world
    engine = await coder.engine()
    await world.says(engine, "work")
    await world.until(lambda: bool(coder.log("working")))

    await world.asks(engine, "/stop")

    assert len(coder.log("cancel")) == 1
    (turn,) = await world.turns()
    assert turn.state is TurnState.INTERRUPTED
    log = await messages_of(world)
    assert log[1].text == "I begin."


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "killed.db")
    found: str = request.getfixturevalue("migrated_url")
    return found


async def test_a_turn_goes_on_after_a_kill_of_our_process(url: str, tmp_path: Path) -> None:
    """Once while a person is asked, who answers before anything runs again; once in the middle of a call."""
    home = tmp_path / "agent"
    home.mkdir()
    clock = SystemClock()
    store = open_store(url, create=True, clock=clock, ids=RandomIds())
    world = EngineWorld(store, settings=SETTINGS, clock=clock)
    coder = Coder(world, home)
    options = coder.options("load")
    order = {"url": url, "options": options, "says": {"asks": "run ls", "works": "work"}}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.engine.acp_child", json.dumps(order)), cwd=ROOT
    )
    try:
        await world.eventually(lambda: has_open_question(world))
        await world.until(lambda: bool(coder.log("working")))
        await world.eventually(lambda: has_call(world, "works"))
    finally:
        process.kill()
        await process.wait()

    (question,) = await open_questions(world)
    await answer(world, question)
    (home / "gate").write_text("go")
    adapter = LoopbackAdapter()
    engine = Engine(context_of(store, options, adapter))
    await engine.start()
    await world.until(lambda: "ran it" in adapter.texts("loopback:asks"))
    await world.until(lambda: bool(adapter.texts("loopback:works")))
    await world.settle(engine)
    await engine.stop()

    assert adapter.texts("loopback:asks").count("ran it") == 1
    assert (home / "runs").read_text() == "ls\n"
    (decided,) = await all_questions(world)
    assert (decided.state, decided.is_started) == (QuestionState.ANSWERED, True)
    assert adapter.texts("loopback:works") == ["All is done."]
    log = [each for each in await log_of(world, "works") if each.role is not Role.SYSTEM]
    assert [each.role for each in log] == [
        *(Role.USER, Role.ASSISTANT, Role.TOOL),
        *(Role.ASSISTANT, Role.TOOL, Role.ASSISTANT),
    ]
    unknown, worked = (part for each in log for part in each.parts if isinstance(part, ToolResult))
    assert unknown.extra["outcome"] == "unknown"
    assert worked.content == "worked"
    # One session of the agent for each chat; it was told to go on, and not told the message again.
    assert len(coder.log("new")) == len(coder.log("load")) == 2
    texts = [[block["text"] for block in each["blocks"]] for each in coder.log("prompt")]
    assert sorted(each[-1] for each in texts)[:2] == [texts[2][0], texts[3][0]]
    assert all("Go on from where you stopped" in each[0] for each in texts[2:])
    store.close()


async def has_open_question(world: EngineWorld) -> bool:
    return bool(await open_questions(world))


async def has_call(world: EngineWorld, chat: str) -> bool:
    return any(each.tool_calls for each in await log_of(world, chat))


async def log_of(world: EngineWorld, chat: str) -> list[Message]:
    head = await world.store.read(routing.get_current, key_for(source_of(chat)))
    return [] if head is None else await world.messages(head.id)


async def test_the_records_of_the_agent_itself_are_not_imported_twice(
    coder: Coder, tmp_path: Path
) -> None:
    world = coder.world
    engine = await coder.engine(name="claude-agent-acp")
    await world.asks(engine, "cost")
    (new,) = coder.log("new")
    folder = tmp_path / "home" / ".claude" / "projects" / "-work"
    tape = Tape(folder / f"{new['session']}.jsonl", new["session"])
    tape.prompt("cost")
    tape.answer(text("paid"), stop="end_turn")
    tape.write()
    moment = Moment(SystemClock().now(), RandomIds())
    target = ImportTarget(world.store, "main", "claude-code", "Claude Code", moment)
    importer = ClaudeCode(SystemClock())

    before = await world.head()
    report = await asyncio.to_thread(
        driver.run, target, importer, list(importer.find(folder.parents[1]))
    )

    assert (report.added, report.extended) == (0, 0)
    assert list(report.omissions.values()) == [
        "it was recorded here while the tool ran as an agent of Sessionary"
    ]
    after = await world.head()
    assert (after.usage, after.last_seq) == (before.usage, before.last_seq)
    assert after.usage.calls == 1
    assert len(await world.sessions()) == 1
