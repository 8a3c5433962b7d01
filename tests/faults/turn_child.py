"""A process with an engine as `sessionary serve` builds it, on a fake platform, with gates around its writes."""

import asyncio
import json
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import sessionary.store.postgres.store  # noqa: F401  # loaded before the fork
from sessionary.actions import turns
from sessionary.agents.model import ModelOptions, ModelRunner, ToolServer
from sessionary.app.context import open_app
from sessionary.app.engine import Agents, build_engine
from sessionary.clock import SystemClock
from sessionary.config.engine import read_engine
from sessionary.engine import intake, questions
from sessionary.engine.engine import Engine
from sessionary.engine.ports import Receive, Sent
from sessionary.engine.turn import budgets, loop, run
from sessionary.errors import SessionaryError, TurnLost
from sessionary.model.message import Message, Role, ToolResult, message, text_of
from sessionary.model.source import Source
from sessionary.model.turn import Delivery, Lease
from sessionary.store.database import Pending, Store, announce
from sessionary.testing.fakes import LoopbackAdapter
from sessionary.testing.runner_suite import events_of, turn_request
from tests.faults.gates import ANSWER
from tests.support.model_server import ModelServer, Reply
from tests.walks.writing_child import nurse

# By platform, which also chooses the agent.
PLATFORMS = ("wire", "program", "resuming")
# What people type to answer a question, and the tool of each question by its number in the turn.
REPLIES = ("1", "2")
APPROVED = {"2": "send_b", "3": "send_c"}
RENEW_SECONDS = 0.3
CONFIRM_SECONDS = 0.5
_CHAT = re.compile(r"chat-[a-z0-9-]*[a-z0-9]")
_STAGE = re.compile(r"Stage (\d)")


class GateClient:
    """Reports what this process does to the test, and waits for its answers."""

    def __init__(self, port: int, process: str) -> None:
        self._port = port
        self._process = process

    async def ask(self, kind: str, **facts: Any) -> None:
        """Report something and wait until the test answers; raise `ConnectionError` if it does not."""
        async with self.connected(kind, **facts) as (reader, _):
            if await reader.readline() != ANSWER:
                raise ConnectionResetError("the test has closed the connection")

    @asynccontextmanager
    async def connected(self, kind: str, **facts: Any) -> Any:
        """Report something, and keep the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            line = json.dumps({"kind": kind, "process": self._process, **facts})
            writer.write(line.encode() + b"\n")
            yield reader, writer
        finally:
            writer.close()


class Wire(LoopbackAdapter):
    """A platform in the test's process: one connection gives messages, another one takes each delivery."""

    def __init__(
        self, platform: str, gate: GateClient, store: "GatedStore", is_idle: Callable[[], bool]
    ) -> None:
        super().__init__(platform)
        self._gate = gate
        self._store = store
        self._is_idle = is_idle

    async def run(self, receive: Receive) -> None:
        async with self._gate.connected("receive", platform=self.platform) as (reader, writer):
            while line := await reader.readline():
                given = json.loads(line)
                if "freeze" in given:
                    await self._store.freeze_process()
                answer: dict[str, Any] = {"idle": self._is_idle()}
                if "text" in given:
                    source = Source(
                        self.platform, given["chat"], user_id="u", platform_message_id=given["id"]
                    )
                    answer = {"arrival": await receive(source, message("user", given["text"]))}
                writer.write(json.dumps(answer).encode() + b"\n")

    async def send(self, delivery: Delivery) -> Sent:
        facts = {"chat": delivery.channel.chat_id, "text": text_of(delivery.parts)}
        try:
            await self._gate.ask("send", **facts, maybe_twice=delivery.maybe_twice)
        except ConnectionError as error:
            raise SessionaryError("the platform is gone", committed="unknown") from error
        return Sent(delivery.id)


class GatedStore:
    """A store that passes a gate before each write of a turn's output and after its commit."""

    def __init__(self, store: Store, gate: GateClient, lease_seconds: float) -> None:
        self._store = store
        self._lease_seconds = lease_seconds
        self._gate = gate
        self._writes: set[asyncio.Task[Any]] = set()
        self._begun: list[Pending[Any]] = []
        # By turn: those that were continued in this process.
        self._chats: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def write(self, action: Any, /, *args: Any, **kwargs: Any) -> Pending[Any]:
        """Return the outcome of a write, which may have to wait at a gate."""
        if action is loop.take_over:
            return self._begin_later(action, *args, **kwargs)
        found = _what_is_written(action, *args)
        if action is run._start_approved:
            lease, name = args
            found = self._chats[lease.turn_id], f"{APPROVED[name]} started"
        if found is None:
            return self._begin(action, *args, **kwargs)
        chat, what = found
        lease = args[0] if isinstance(args[0], Lease) else None

        async def write() -> Any:
            await self._pass(chat, f"{what} unrecorded", lease=lease)
            inner = self._begin(action, *args, **kwargs)
            await inner.wait_uncancellable()
            # A turn that waits for people has no lease.
            kept = None if action is questions.park else lease
            await self._pass(chat, f"{what} recorded", lease=kept)
            return inner.result()

        return self._outcome_of(write())

    def _begin_later(self, action: Any, *args: Any, **kwargs: Any) -> Pending[Any]:
        """Take a turn over when the test allows it: a busy machine may be late to renew the lease of a living one."""

        async def write() -> Any:
            await self._gate.ask("take over")
            start = await self._begin(action, *args, **kwargs)
            if start is not None and start.begun is not None:
                self._chats[start.begun.lease.turn_id] = start.source.chat_id
            return start

        return self._outcome_of(write())

    def _outcome_of(self, work: Coroutine[Any, Any, Any]) -> Pending[Any]:
        pending: Pending[Any] = Pending()

        def settle(done: asyncio.Task[Any]) -> None:
            self._writes.discard(done)
            error = asyncio.CancelledError() if done.cancelled() else done.exception()
            pending.settle(None if error is not None else done.result(), error)
            announce([pending])

        task = asyncio.create_task(work)
        self._writes.add(task)
        task.add_done_callback(settle)
        return pending

    async def freeze_process(self) -> None:
        """Stop this process as SIGSTOP does, while it holds no lock of the database, which nobody could take over."""
        while any(map(_is_open, self._begun)):  # noqa: ASYNC110 - there is no event for all of them
            await asyncio.sleep(0.001)
        os.kill(os.getpid(), signal.SIGSTOP)

    def _begin(self, action: Any, *args: Any, **kwargs: Any) -> Pending[Any]:
        begun: Pending[Any] = self._store.write(action, *args, **kwargs)
        self._begun = [*filter(_is_open, self._begun), begun]
        return begun

    async def _pass(self, chat: str, point: str, *, lease: Lease | None) -> None:
        """Wait at a gate, and renew the lease meanwhile: the turn's own heartbeat waits for this write."""
        passing = asyncio.create_task(self._gate.ask("gate", chat=chat, point=point))
        while not passing.done():
            await asyncio.wait({passing}, timeout=RENEW_SECONDS)
            if not passing.done() and lease is not None:
                with suppress(TurnLost):
                    await self._begin(
                        turns.renew, lease, seconds=self._lease_seconds, now=SystemClock().now()
                    )
        passing.result()


def _is_open(pending: Pending[Any]) -> bool:
    """Return whether a transaction has not ended yet."""
    try:
        pending.result(timeout=0)
    except TimeoutError:
        return True
    except SessionaryError:
        return False
    return False


def _what_is_written(action: Any, *args: Any) -> tuple[str, str] | None:
    """Return which chat a write of a turn's output concerns, and what is written; None for other writes."""
    if action is questions.park:
        asked = args[1][0]
        return asked.arguments["chat"], f"{asked.tool} asked"
    if action in (intake.admit, intake.admit_and_begin):
        inbound = args[1]
        is_reply = inbound.message.text in REPLIES
        return (inbound.source.chat_id, "reply") if is_reply else None
    if action is budgets.end:
        ending = args[1]
        chats = [reply.channel.chat_id for reply in ending.replies]
        return (chats[0], "end") if chats else None
    if action is not budgets.step:
        return None
    step: Message = args[1]
    text = step.text + str(step.parts)
    chat = _CHAT.search(text)
    if chat is None:
        return None
    if step.role is Role.TOOL:
        names = [part.name for part in step.parts if isinstance(part, ToolResult)]
        return chat[0], names[0] or ""
    stage = _STAGE.search(text)
    return chat[0], f"answer {stage[1]}" if stage else "last answer"


def child(order: dict[str, Any]) -> None:
    """Run until killed, or asked to stop."""
    # The fork server ignores it, so that its own children are no zombies.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asyncio.run(_live(order))


async def _live(order: dict[str, Any]) -> None:
    logging.basicConfig(
        filename=order["log"], format=f"%(asctime)s {order['name']} %(levelname)s %(message)s"
    )
    asked_to_stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked_to_stop.set)
    app = open_app(order["url"], home=order["home"], create=False)
    config = read_engine(app.config)
    agents = Agents(config, folder=Path(order["home"]))
    gate = GateClient(order["port"], order["name"])
    engines: list[Engine] = []

    def is_idle() -> bool:
        return engines[0].turns.turns + engines[0].scheduler.runs == 0

    gated = GatedStore(app.store, gate, config.engine.lease_seconds)
    wires = {name: Wire(name, gate, gated, is_idle) for name in PLATFORMS}
    context = build_engine(app, adapters=wires, agents=agents).context
    settings = replace(context.settings, confirm_seconds=CONFIRM_SECONDS)
    store: Any = gated
    engines.append(Engine(replace(context, settings=settings, store=store)))
    await engines[0].start()
    await asked_to_stop.wait()
    await engines[0].stop()
    await agents.close()
    app.close()


async def _take_one_turn() -> None:
    """Load what a turn of a model loads, before the fork: that takes two seconds."""
    tools = ToolServer(command=(sys.executable, "-m", "tests.faults.turn_tools", "0", os.devnull))
    async with ModelServer() as model:
        model.will(Reply("Hello"))
        runner = ModelRunner(ModelOptions(model="m", base_url=model.openai_url, tools=(tools,)))
        await events_of(runner, turn_request("hello"))
        await runner.close()


if __name__ == "__main__":
    asyncio.run(_take_one_turn())
    nurse(child)
