"""Processes that share a store, and the model, the tools and the platform that they talk to.

The test decides at which points of its turn a chat is held; a process is killed or stopped while its turns are held
there. The counterparts count what reached them: the tools' file what was run, `posts` what was delivered.
"""

import asyncio
import json
import os
import re
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from sessionary.actions import schedules, turns
from sessionary.actions.schedules import ScheduleSpec
from sessionary.actions.sessions import read, routing
from sessionary.clock import Moment, RandomIds, SystemClock
from sessionary.engine import notices
from sessionary.model.message import Message, Role, ToolCall, ToolResult, text_of
from sessionary.model.session import SessionHead
from sessionary.model.source import Source, key_for
from sessionary.model.transcript import CONTINUE_NOTE
from sessionary.model.turn import Delivery, DeliveryState, Turn
from sessionary.model.usage import Usage
from sessionary.store.database import Store
from sessionary.store.open import open_store
from sessionary.store.tables import deliveries
from sessionary.store.tables import usage as usage_rows
from tests.faults.gates import ANSWER
from tests.faults.turn_child import PLATFORMS
from tests.support.fork_server import ROOT, ForkedProcess, ForkServer
from tests.support.model_server import Ask, Call, ModelServer, Reply
from tests.support.tcp_server import TcpServer

# What the model asks for, stage by stage: five tool calls, two of them at once, then the answer.
STAGES = (("read_a",), ("send_b",), ("send_c", "read_d"), ("pay_e",))
LAST_STAGE = len(STAGES) + 1
ONCE = ("send_b", "send_c")
KEYED = ("pay_e",)


def points_of_stage(stage: int, tools: Sequence[str]) -> list[str]:
    """Return the points from the question to the model to the results of the tools that it asks for."""
    moments = ("called", "ran", "unrecorded", "recorded")
    return [
        f"model {stage} asked",
        f"model {stage} streaming",
        f"answer {stage} unrecorded",
        f"answer {stage} recorded",
        *(f"{tool} {moment}" for moment in moments for tool in tools),
    ]


# Each point of a turn at which its process may end, in their order.
POINTS = (
    *(point for stage, tools in enumerate(STAGES, 1) for point in points_of_stage(stage, tools)),
    f"model {LAST_STAGE} asked",
    f"model {LAST_STAGE} streaming",
    "end unrecorded",
    "end recorded",
    "delivery asked",
    "delivery taken",
)
# From here on a turn has ended: it is not continued, only its delivery is sent.
AFTER_END = POINTS[POINTS.index("end recorded") :]
LONG_CHAT = "chat-long"
LONG_ANSWER = " ".join(f"word{number}" for number in range(400)) + f" done with {LONG_CHAT}."
TIMEOUT_SECONDS = 200.0
_CHAT = re.compile(r"chat-[a-z0-9-]*[a-z0-9]")
CONFIGURATION = """
agent = "assistant"

[agents.assistant]
kind = "model"
model = "m"
base_url = "{model_url}"
report_unknown_calls = true

[[agents.assistant.mcp]]
command = ["{python}", "-m", "tests.faults.turn_tools", "{port}", "{file}"]
folder = "{root}"

[agents.program]
kind = "command"
command = ["{python}", "-m", "tests.faults.turn_program", "{port}"]

[agents.resuming]
kind = "command"
command = ["{python}", "-m", "tests.faults.turn_program", "{port}"]
resume = true

[channels.wire]

[channels.program]
agent = "program"

[channels.resuming]
agent = "resuming"

[access.wire]
everyone = true
owners = ["u"]

{policy}

[access.program]
everyone = true

[access.resuming]
everyone = true

[engine]
lease_seconds = 1
poll_seconds = 0.3
sweep_seconds = 0.1
send_seconds = {send_seconds}
"""


ASK_FIRST = """
[[policy]]
decision = "ask"
tool = "send_*"
"""


def answer_of(chat: str) -> str:
    """What the model says at the end of a turn."""
    return LONG_ANSWER if chat == LONG_CHAT else f"All five tools are done with {chat}."


@dataclass(frozen=True, slots=True)
class Held:
    """A turn that is held at a point, until it is let go on or cut off there."""

    chat: str
    point: str
    facts: dict[str, Any]
    is_decided: asyncio.Event = field(default_factory=asyncio.Event)
    goes_on: list[bool] = field(default_factory=list)

    def decide(self, *, goes_on: bool) -> None:
        """Let it go on, or cut its connection."""
        self.goes_on.append(goes_on)
        self.is_decided.set()


@dataclass(frozen=True, slots=True)
class WirePost:
    """A message that the platform has taken."""

    chat: str
    text: str
    maybe_twice: bool


@dataclass(slots=True)
class TurnFacts:
    """What the store and the counterparts know of one chat with one turn."""

    chat: str
    head: SessionHead
    turn: Turn
    log: list[tuple[int, Message]]
    deliveries: list[Delivery]
    usage: list[Usage]
    posts: list[WirePost]
    runs: Counter[str]

    @property
    def messages(self) -> list[Message]:
        """Return the messages of the log."""
        return [message for _, message in self.log]

    @property
    def records(self) -> list[dict[str, Any]]:
        """Return what the log says about continuations."""
        found = [message.extra.get("record") for message in self.messages]
        return [each for each in found if isinstance(each, dict) and each["kind"] == "resumed"]

    @property
    def results(self) -> dict[str, ToolResult]:
        """Return the result of each tool; there is at most one of each."""
        found = [
            part
            for message in self.messages
            for part in message.parts
            if isinstance(part, ToolResult)
        ]
        names = [part.name or "" for part in found]
        assert len(set(names)) == len(names), f"{self.chat}: a call has two results: {names}"
        return dict(zip(names, found, strict=True))

    def is_unknown(self, tool: str) -> bool:
        """Return whether the log says that it is not known whether a tool ran."""
        return self.results[tool].extra.get("outcome") == "unknown"


class TurnWorld:
    """A store, the processes on it, and what they talk to."""

    def __init__(self, url: str, folder: Path, forks: ForkServer) -> None:
        self.url = url
        # A delivery whose sender was killed is sent again a little later than this.
        self.send_seconds = 3.0
        # Whether a person must approve what the tools `send_*` do.
        self.asks_first = False
        self._may_take_over = asyncio.Event()
        self._may_take_over.set()
        self.model = ModelServer()
        self.posts: list[WirePost] = []
        self.alive: dict[str, ForkedProcess] = {}
        # Where each chat is held next, and where it is held now.
        self.holds: dict[str, list[str]] = defaultdict(list)
        self.held: dict[str, Held] = {}
        self.home = folder
        self.tool_file = folder / "tools.jsonl"
        self._forks = forks
        self._server = TcpServer(self._talk)
        self._receivers: dict[
            tuple[str, str], tuple[asyncio.StreamReader, asyncio.StreamWriter]
        ] = {}
        self._sent = 0
        self.store: Store = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["TurnWorld"]:
        """Start the counterparts; at the end kill every process."""
        async with self.model, self._server:
            self.model.otherwise = self._scripted
            self.model.at_moment = self._at_moment
            self.tool_file.touch()
            try:
                yield self
            finally:
                for name in list(self.alive):
                    self.kill(name)
                self.cut(self.held)
                self.store.close()

    # --- processes

    async def start(self) -> str:
        """Start a process; return its name when it takes messages."""
        (self.home / "sessionary.toml").write_text(
            CONFIGURATION.format(
                model_url=self.model.openai_url,
                python=sys.executable,
                port=self._server.port,
                file=self.tool_file,
                root=ROOT,
                send_seconds=self.send_seconds,
                policy=ASK_FIRST if self.asks_first else "",
            )
        )
        process = self._forks.fork(
            self.url, home=str(self.home), port=self._server.port, log=str(self.home / "log")
        )
        self.alive[process.name] = process
        await self.until(
            lambda: all((process.name, each) in self._receivers for each in PLATFORMS),
            f"{process.name} started",
        )
        return process.name

    def forbid_take_over(self) -> None:
        """Let no process take a turn over until one has ended.

        Without this, a process that is only slow loses turns to the other one: they end well, but not as the test says.
        """
        self._may_take_over.clear()

    def allow_take_over(self) -> None:
        """Let processes take turns over again."""
        self._may_take_over.set()

    def kill(self, name: str) -> None:
        """SIGKILL, and wait until it is gone."""
        self._forks.kill(self.alive.pop(name))
        self.allow_take_over()

    def ask_to_stop(self, name: str) -> None:
        """SIGTERM."""
        os.kill(self.alive[name].number, signal.SIGTERM)
        self.allow_take_over()

    async def freeze(self, name: str) -> None:
        """Stop a process without ending it, and wait until it stands still."""
        _, writer = self._receivers[name, "wire"]
        writer.write(b'{"freeze": true}\n')
        state = Path(f"/proc/{self.alive[name].number}/stat")
        await self.until(lambda: ") T " in state.read_text(), f"{name} frozen")

    async def thaw(self, name: str) -> None:
        """Let a frozen process go on, and wait until no turn runs in it."""
        os.kill(self.alive[name].number, signal.SIGCONT)
        reader, _ = self._receivers[name, "wire"]
        await reader.readline()

        async def is_idle() -> bool:
            answer = await self._request(name, "wire", {})
            return bool(answer["idle"])

        await self.eventually(is_idle, f"{name} idle")

    async def ended(self, name: str) -> None:
        """Wait until a process has ended by itself."""
        process = self.alive[name]
        await self.until(lambda: not process.is_alive(), f"{name} ended")
        del self.alive[name]

    # --- people

    async def says(
        self,
        process: str,
        chat: str,
        text: str | None = None,
        *,
        platform: str = "wire",
        id: str | None = None,
    ) -> None:
        """A person writes; return when it is stored, and its turn has begun in this process."""
        self._sent += 1
        number = id or str(self._sent)
        given = {"id": number, "chat": chat, "text": text or f"Begin with {chat}."}
        assert (await self._request(process, platform, given))["arrival"]

    async def schedule(self, task: ScheduleSpec) -> None:
        """Add a scheduled task, which is due at once."""
        earlier = Moment(SystemClock().now() - timedelta(hours=1, seconds=1), RandomIds())
        await self.store.write(schedules.add, task, profile="main", moment=earlier)

    async def _request(self, process: str, platform: str, given: dict[str, Any]) -> dict[str, Any]:
        reader, writer = self._receivers[process, platform]
        writer.write(json.dumps(given).encode() + b"\n")
        answer: dict[str, Any] = json.loads(await reader.readline())
        return answer

    # --- gates

    async def until_held(self, points: Mapping[str, str]) -> None:
        """Wait until each of these chats is held at its point."""

        def is_held(chat: str) -> bool:
            return chat in self.held and self.held[chat].point == points[chat]

        await self.until(
            lambda: all(map(is_held, points)),
            lambda: "\n".join(self._describe(chat) for chat in points if not is_held(chat)),
        )

    def _describe(self, chat: str) -> str:
        """Return where a turn has come, for the message of a test that waits in vain."""
        head = self.store.read(
            routing.get_current, key_for(Source("wire", chat, user_id="u"))
        ).result()
        found = () if head is None else self.store.read(turns.list_turns, head.no).result()
        return f"held at its point: {chat}, {self.held.get(chat)}, {self.holds[chat]}, {found}"

    def let_go(self, chats: Iterable[str]) -> None:
        """Let these turns go on from where they are held."""
        for chat in list(chats):
            self.held.pop(chat).decide(goes_on=True)

    def cut(self, chats: Iterable[str]) -> None:
        """Forget these held turns, whose process has ended."""
        for chat in list(chats):
            self.held.pop(chat).decide(goes_on=False)

    async def _pass(self, chat: str, point: str, facts: dict[str, Any]) -> bool:
        """Hold a turn if it was to be held here; return whether it goes on."""
        if self.holds[chat][:1] != [point]:
            return True
        del self.holds[chat][0]
        held = self.held[chat] = Held(chat, point, facts)
        await held.is_decided.wait()
        return held.goes_on[0]

    async def _at_moment(self, ask: Ask, moment: str) -> None:
        found = _stage_of(ask)
        if found is not None:
            chat, stage = found
            if not await self._pass(chat, f"model {stage} {moment}", {}):
                raise ConnectionResetError

    def _scripted(self, ask: Ask) -> Reply:
        found = _stage_of(ask)
        if found is None:
            return Reply("A title")
        chat, stage = found
        if stage == LAST_STAGE:
            text = answer_of(chat)
            last = ask.messages[-1]
            if last["role"] == "user" and last["content"] == CONTINUE_NOTE:
                text = text.removeprefix(ask.messages[-2]["content"])
            return Reply(text)
        calls = tuple(Call(name, {"chat": chat}, f"{name}.{chat}") for name in STAGES[stage - 1])
        return Reply(f"Stage {stage} of {chat} is next, please wait a moment.", calls)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        if not line:  # its process was killed just when it had connected
            return
        given = json.loads(line)
        if given["kind"] == "receive":
            # Used by `says`, which reads the answers; open until its process ends.
            name = (given["process"], given["platform"])
            self._receivers[name] = (reader, writer)
            await writer.wait_closed()
            return
        chat = given.get("chat", "")
        if given["kind"] == "take over":
            goes_on: bool = await self._may_take_over.wait()
        elif given["kind"] == "gate":
            goes_on = await self._pass(chat, given["point"], given)
        else:
            goes_on = await self._pass(chat, "delivery asked", given)
            if goes_on:
                self.posts.append(WirePost(chat, given["text"], given["maybe_twice"]))
                goes_on = await self._pass(chat, "delivery taken", given)
        if goes_on:
            writer.write(ANSWER)
            await writer.drain()

    # --- what has happened

    async def until(self, holds: Callable[[], bool], what: str | Callable[[], str]) -> None:
        """Wait until a condition holds."""
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while not holds():  # noqa: ASYNC110 - there is no event for every condition
                    await asyncio.sleep(0.01)
        except TimeoutError:
            reason = what if isinstance(what, str) else what()
            raise AssertionError(f"not {reason}\n{self.read_logs()[-3000:]}") from None

    async def eventually(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait until a condition holds that must be awaited, such as a read from the store."""
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while not await holds():  # noqa: ASYNC110 - there is no event for every condition
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"not {what}\n{self.read_logs()[-3000:]}") from None

    def read_logs(self) -> str:
        """Return what the processes have logged."""
        log = self.home / "log"
        return log.read_text() if log.exists() else ""

    async def until_settled(self, chats: Sequence[str], *, platform: str = "wire") -> None:
        """Wait until the turns of these chats have ended, and all their deliveries are sent."""
        waiting = list(chats)

        async def are_settled() -> bool:
            waiting[:] = [chat for chat in waiting if not await self._is_settled(chat, platform)]
            return not waiting

        await self.eventually(are_settled, "settled")

    async def _is_settled(self, chat: str, platform: str) -> bool:
        head = await self._head(chat, platform)
        if head is None or head.running:
            return False
        found = await self.store.read(deliveries.of_session, head.no)
        return bool(found) and all(each.state is DeliveryState.SENT for each in found)

    async def facts(self, chat: str, *, platform: str = "wire") -> TurnFacts:
        """Read what is known of a chat with one turn."""
        head = await self._head(chat, platform)
        assert head is not None
        return await self.facts_of(head, chat)

    async def partial(self, chat: str) -> str:
        """Return the streamed text of a chat's unfinished step that is stored."""
        head = await self._head(chat, "wire")
        assert head is not None
        (turn,) = await self.store.read(turns.list_turns, head.no)
        return turn.partial or ""

    async def facts_of(self, head: SessionHead, chat: str) -> TurnFacts:
        """Read what is known of a session with one turn."""
        (turn,) = await self.store.read(turns.list_turns, head.no)
        entries = await self.store.read(read.read_log, head.id, profile="main")
        log = [(each.seq, each.body) for each in entries if isinstance(each.body, Message)]
        used = await self.store.read(usage_rows.of_session, head.no)
        ran = [json.loads(line) for line in self.tool_file.read_text().splitlines()]
        return TurnFacts(
            chat=chat,
            head=head,
            turn=turn,
            log=log,
            deliveries=list(await self.store.read(deliveries.of_session, head.no)),
            usage=[each for _, each in used if each.task is None],
            posts=[post for post in self.posts if post.chat == chat],
            runs=Counter(line["tool"] for line in ran if line["chat"] == chat),
        )

    async def _head(self, chat: str, platform: str) -> SessionHead | None:
        key = key_for(Source(platform, chat, user_id="u"))
        return await self.store.read(routing.get_current, key)


def _stage_of(ask: Ask) -> tuple[str, int] | None:
    """Return the chat and the stage of its turn that a model is asked for; None for a title."""
    if not ask.body.get("tools"):
        return None
    prompts = [str(each["content"]) for each in ask.messages if each["role"] == "user"]
    chat = _CHAT.search(prompts[0])
    assert chat is not None, prompts
    results = sum(each["role"] == "tool" for each in ask.messages)
    finished = 0
    for stage, tools in enumerate(STAGES, 1):
        if results == finished:
            return chat[0], stage
        finished += len(tools)
    assert results == finished, f"{results} results"
    return chat[0], LAST_STAGE


@dataclass
class TurnCounts:
    """What happened to the turns of a test."""

    turns: int = 0
    continued: int = 0
    ran_once: int = 0
    unknown: int = 0
    twice: int = 0
    deliveries: int = 0
    lost: int = 0
    doubled: int = 0
    marked: int = 0

    def __str__(self) -> str:
        return (
            f"{self.turns} turns, {self.continued} continued; once tools: {self.ran_once} ran once, "
            f"{self.unknown} unknown, {self.twice} twice; deliveries: {self.deliveries}, "
            f"lost {self.lost}, doubled {self.doubled}, marked {self.marked}"
        )


def judge(found: TurnFacts, counts: TurnCounts, *, resumed: int, reason: str) -> None:
    """Count what happened to a turn, and check what must hold wherever its process ended."""
    chat, turn = found.chat, found.turn
    _count(found, counts)
    assert (turn.state, turn.reason) == ("done", None), f"{chat}: {turn}"
    assert turn.resumed == resumed, f"{chat}: {turn}"
    assert [record["attempt"] for record in found.records] == list(range(1, resumed + 1)), chat
    assert {record["reason"] for record in found.records} <= {reason}, f"{chat}: {found.records}"
    assert turn.resume_reason == (reason if resumed else None)
    # The log: dense, each tool called and answered once, one answer.
    assert [seq for seq, _ in found.log] == list(range(1, len(found.log) + 1)), found.log
    calls = [p.name for m in found.messages for p in m.parts if isinstance(p, ToolCall)]
    assert calls == [tool for tools in STAGES for tool in tools], f"{chat}: {calls}"
    assert sorted(found.results) == sorted(calls), chat
    said = [m for m in found.messages if m.role is Role.ASSISTANT and not m.tool_calls]
    assert "".join(message.text for message in said) == answer_of(chat), f"{chat}: {said}"
    # Model calls: each that was recorded is counted, once.
    recorded = [m for m in found.messages if m.role is Role.ASSISTANT and m.model]
    assert len(found.usage) == len(recorded) == LAST_STAGE, f"{chat}: {found.usage}"
    assert len({used.call_id for used in found.usage}) == LAST_STAGE, chat
    for tool in found.results:
        if tool in ONCE:
            assert found.runs[tool] <= 1, f"{chat}: {tool} ran {found.runs[tool]} times"
            assert found.is_unknown(tool) or found.runs[tool] == 1, f"{chat}: {tool} did not run"
        else:
            assert not found.is_unknown(tool), f"{chat}: {tool} is safe"
            assert found.runs[tool] == 1 if tool in KEYED else found.runs[tool] >= 1, chat
    # What the person got: first which tools may have run, if that is not known of some; then the answer.
    unknown = [tool for tool in found.results if found.is_unknown(tool)]
    told = [notices.unknown_calls(unknown)] if unknown else []
    rows = [(text_of(each.parts), each.unclear_attempts > 0) for each in found.deliveries]
    assert [text for text, _ in rows] == [*told, answer_of(chat)], f"{chat}: {rows}"
    for text, is_marked in rows:
        copies = [post.text for post in found.posts].count(text)
        assert copies == 1 or (copies > 1 and is_marked), f"{chat}: {copies} times {text!r}"


def _count(found: TurnFacts, counts: TurnCounts) -> None:
    counts.turns += 1
    counts.continued += found.turn.resumed > 0
    for tool in ONCE:
        if tool not in found.results:
            continue
        if found.is_unknown(tool):
            counts.unknown += 1
        else:
            counts.ran_once += found.runs[tool] == 1
        counts.twice += found.runs[tool] > 1
    posts = Counter(post.text for post in found.posts)
    for delivery in found.deliveries:
        copies, is_marked = posts[text_of(delivery.parts)], delivery.unclear_attempts > 0
        counts.deliveries += 1
        counts.lost += copies == 0
        counts.marked += is_marked
        counts.doubled += copies > 1 and not is_marked
