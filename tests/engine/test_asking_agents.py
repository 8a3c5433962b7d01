"""Agents that ask people something: models whose tools need an approval, programs, and functions."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import pytest
import uvicorn
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.types import ToolAnnotations
from pydantic import BaseModel

from sessionary.actions import turns as actions
from sessionary.agents.command import CommandOptions, CommandRunner
from sessionary.agents.model import ToolServer
from sessionary.agents.python import PythonRunner
from sessionary.config.engine import OnExpiry, PolicyRule, QuestionSettings, ToolDecision
from sessionary.engine import questions
from sessionary.engine.engine import Engine
from sessionary.engine.ports import Ask, Event, Step, TurnRequest
from sessionary.engine.turn import run
from sessionary.errors import Conflict, NotAllowed
from sessionary.model.message import Role, ToolResult, message
from sessionary.model.question import (
    Always,
    Answer,
    Decision,
    Question,
    QuestionKind,
    QuestionState,
)
from sessionary.model.source import ChatType
from sessionary.model.turn import Turn, TurnState
from sessionary.store.database import Store
from sessionary.store.tables import upkeep
from tests.engine.test_questions import (
    APPROVE,
    DENY,
    AskingRunner,
    all_questions,
    answer,
    make_world,
    open_questions,
)
from tests.support.crash import CrashingStore, CrashPoint
from tests.support.engine_world import EngineWorld
from tests.support.model_agent import model_engine
from tests.support.model_server import Call, ModelServer, Reply

ASK_SEND = PolicyRule(decision=ToolDecision.ASK, tool="send")
SEND = Call("send", {"to": "Ann"}, id="s")
SENT = [("send", {"to": "Ann"})]


@dataclass
class Tools:
    """An MCP server whose tools note that they were called."""

    url: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    # While it is clear, `send` does not return.
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def server(self) -> MCPServer:
        server = MCPServer("tools", log_level="CRITICAL")

        @server.tool()
        async def send(to: str) -> str:
            """Send something."""
            self.calls.append(("send", {"to": to}))
            await self.gate.wait()
            return f"sent to {to}"

        @server.tool()
        def pay(amount: int) -> str:
            """Pay something."""
            self.calls.append(("pay", {"amount": amount}))
            return f"paid {amount}"

        @server.tool(annotations=ToolAnnotations(read_only_hint=True))
        def read(name: str) -> str:
            """Read something."""
            self.calls.append(("read", {"name": name}))
            return f"the note {name}"

        @server.tool()
        async def book(
            hotel: str, trip: Annotated[ElicitationResult[Trip], Resolve(ask_city)]
        ) -> str:
            """Book a hotel."""
            self.calls.append(("book", {"hotel": hotel}))
            return f"{hotel}: {trip.data.city if trip.action == 'accept' else trip.action}"

        return server


class Trip(BaseModel):
    """What the tool `book` asks people for."""

    city: str


def ask_city(hotel: str) -> Elicit[Trip]:
    return Elicit(f"In which city is {hotel}?", Trip)


@pytest.fixture
async def tools() -> AsyncIterator[Tools]:
    made = Tools()
    made.gate.set()
    listening = socket.create_server(("127.0.0.1", 0))
    made.url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    app = made.server().streamable_http_app()
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
    task = asyncio.create_task(server.serve(sockets=[listening]))
    yield made
    made.gate.set()
    server.should_exit = server.force_exit = True
    await task
    listening.close()


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as model:
        yield model


@dataclass
class Desk:
    """Engines whose agent is a model with these tools."""

    world: EngineWorld
    model: ModelServer
    tools: Tools
    wire: str = "openai"

    @asynccontextmanager
    async def engine(self, *policy: PolicyRule) -> AsyncIterator[Engine]:
        self.world.settings = replace(self.world.settings, policy=policy)
        async with model_engine(
            self.world, self.model, wire=self.wire, tools=(ToolServer(url=self.tools.url),)
        ) as engine:
            yield engine

    async def decides(self, engine: Engine, given: Answer = APPROVE) -> Question:
        """Answer the only open question, and wait until all is done."""
        (question,) = await open_questions(self.world)
        decided = await answer(self.world, question, given)
        await self.world.settle(engine)
        return decided

    async def turn(self) -> Turn:
        """The only turn."""
        (turn,) = await self.world.turns()
        return turn

    async def results(self, **source: Any) -> dict[str, ToolResult]:
        """The results of the calls in the log, by the ids of the calls."""
        head = await self.world.head(**source)
        messages = await self.world.messages(head.id)
        parts = [part for each in messages for part in each.parts]
        return {part.call_id: part for part in parts if isinstance(part, ToolResult)}

    def read_by_model(self) -> list[dict[str, Any]]:
        """The messages of the last request after the person's, as the model's server got them."""
        messages = self.model.requests[-1].messages
        at = max(at for at, each in enumerate(messages) if each["role"] == "user")
        return messages[at + 1 :]


@pytest.fixture
def desk(store: Store, model: ModelServer, tools: Tools) -> Desk:
    return Desk(make_world(store), model, tools)


async def test_an_approved_call_runs_once_and_the_model_reads_its_result(desk: Desk) -> None:
    desk.model.will(Reply("I send it.", calls=(SEND,)), Reply("Done."))
    async with desk.engine(ASK_SEND) as engine:
        (card,) = await desk.world.asks(engine, "go")
        assert "**send**" in card
        assert ((await desk.turn()).state, desk.tools.calls) == (TurnState.WAITING, [])
        await desk.decides(engine)

    assert desk.tools.calls == SENT
    assert (await desk.turn()).state is TurnState.DONE
    assert desk.world.adapter.texts("loopback:1")[-1] == "Done."
    said, result = desk.read_by_model()
    assert said["content"] == "I send it."
    assert (result["tool_call_id"], result["content"]) == ("s", "sent to Ann")


async def test_the_model_reads_why_a_call_was_denied(desk: Desk) -> None:
    desk.model.will(Reply(calls=(SEND,)), Reply("Then not."))
    async with desk.engine(ASK_SEND) as engine:
        await desk.world.asks(engine, "go")
        await desk.decides(engine, Answer(decision=Decision.DENY, text="not on Sundays"))

    assert desk.tools.calls == []
    assert desk.read_by_model()[-1]["content"] == (
        "Error: Denied by The owner: not on Sundays. The call was not run. "
        "Do not make it again unless you are asked to."
    )


async def test_the_tool_gets_the_arguments_that_were_approved(desk: Desk) -> None:
    desk.model.will(Reply(calls=(SEND,)), Reply("Done."))
    async with desk.engine(ASK_SEND) as engine:
        await desk.world.asks(engine, "go")
        await desk.decides(engine, Answer(decision=Decision.APPROVE, arguments={"to": "Bob"}))

    assert desk.tools.calls == [("send", {"to": "Bob"})]
    assert desk.read_by_model()[-1]["content"] == (
        '[The owner changed the arguments of this call to: {"to":"Bob"}]\nsent to Bob'
    )


async def test_arguments_cannot_be_changed_to_what_a_rule_forbids(desk: Desk) -> None:
    never = PolicyRule(decision=ToolDecision.DENY, tool="send", arguments={"to": "Eve"})
    desk.model.will(Reply(calls=(SEND,)), Reply("Then not."))
    async with desk.engine(never, ASK_SEND) as engine:
        await desk.world.asks(engine, "go")
        await desk.decides(engine, Answer(decision=Decision.APPROVE, arguments={"to": "Eve"}))

    assert desk.tools.calls == []
    assert "This call is not allowed: rule 1" in desk.read_by_model()[-1]["content"]


async def test_of_three_calls_one_runs_one_is_asked_about_and_one_is_refused(desk: Desk) -> None:
    no_pay = PolicyRule(decision=ToolDecision.DENY, tool="pay")
    calls = (Call("pay", {"amount": 5}, id="p"), SEND, Call("read", {"name": "tea"}, id="r"))
    desk.model.will(Reply(calls=calls), Reply("Done."))
    async with desk.engine(no_pay, ASK_SEND) as engine:
        await desk.world.asks(engine, "go")
        assert desk.tools.calls == [("read", {"name": "tea"})]
        await desk.decides(engine)

    assert desk.tools.calls == [("read", {"name": "tea"}), *SENT]
    paid, sent, read = desk.read_by_model()[1:]
    assert [each["tool_call_id"] for each in (paid, sent, read)] == ["p", "s", "r"]
    assert paid["content"].startswith("Error: This call is not allowed: rule 1 of [[policy]]")
    assert (sent["content"], read["content"]) == ("sent to Ann", "the note tea")


async def test_of_two_calls_that_were_asked_about_only_the_approved_one_runs(desk: Desk) -> None:
    ask_all = PolicyRule(decision=ToolDecision.ASK, tool="*")
    calls = (SEND, Call("pay", {"amount": 5}, id="p"))
    desk.model.will(Reply(calls=calls), Reply("Done."))
    async with desk.engine(ask_all) as engine:
        await desk.world.asks(engine, "go")
        send, pay = await open_questions(desk.world)
        await answer(desk.world, pay)
        await desk.world.until_outbox_is_idle()
        assert desk.tools.calls == []
        await answer(desk.world, send, DENY)
        await desk.world.settle(engine)

    assert desk.tools.calls == [("pay", {"amount": 5})]
    contents = [each["content"] for each in desk.read_by_model()[1:]]
    assert contents[0].startswith("Error: Denied by The owner.")
    assert contents[1] == "paid 5"


async def test_several_rounds_of_one_turn_are_asked_about_one_after_the_other(desk: Desk) -> None:
    again = Call("send", {"to": "Bob"}, id="s")  # some providers use the same id in each response
    desk.model.will(Reply(calls=(SEND,)), Reply(calls=(again,)), Reply("Done."))
    async with desk.engine(ASK_SEND) as engine:
        await desk.world.asks(engine, "go")
        await desk.decides(engine)
        await desk.decides(engine, DENY)

    assert desk.tools.calls == SENT
    assert [each.asked.name for each in await all_questions(desk.world)] == ["1", "2"]
    contents = [each["content"] for each in desk.read_by_model() if each["role"] == "tool"]
    assert contents[0] == "sent to Ann"
    assert contents[1].startswith("Error: Denied by The owner.")


async def test_a_question_that_nobody_answers_counts_as_denied(desk: Desk) -> None:
    settings = QuestionSettings(expire_seconds=60, remind_seconds=0)
    desk.world.settings = replace(desk.world.settings, questions=settings)
    desk.model.will(Reply(calls=(SEND,)), Reply("Then not."))
    async with desk.engine(ASK_SEND) as engine:
        await desk.world.asks(engine, "go")
        desk.world.clock.tick(61)
        await desk.world.until(lambda: len(desk.model.requests) == 2)
        await desk.world.settle(engine)

    assert desk.tools.calls == []
    assert "Nobody answered in time. The call was not run." in desk.read_by_model()[-1]["content"]


async def test_a_safe_tool_is_asked_about_if_a_rule_says_so(desk: Desk) -> None:
    rule = PolicyRule(decision=ToolDecision.ASK, tool="read", arguments={"name": "secret*"})
    calls = (Call("read", {"name": "tea"}, id="t"), Call("read", {"name": "secrets"}, id="u"))
    desk.model.will(Reply(calls=calls), Reply("Read."))
    async with desk.engine(rule) as engine:
        await desk.world.asks(engine, "go")
        assert desk.tools.calls == [("read", {"name": "tea"})]
        await desk.decides(engine)

    assert desk.tools.calls == [("read", {"name": "tea"}), ("read", {"name": "secrets"})]


async def test_a_rule_that_forbids_a_call_meanwhile_holds_although_it_was_approved(
    desk: Desk,
) -> None:
    desk.model.will(Reply(calls=(SEND,)), Reply("Then not."))
    async with desk.engine(ASK_SEND) as engine:
        await desk.world.asks(engine, "go")
    (question,) = await open_questions(desk.world)
    await answer(desk.world, question)
    async with desk.engine(replace(ASK_SEND, decision=ToolDecision.DENY)) as engine:
        await desk.world.settle(engine)

    assert desk.tools.calls == []
    assert "This call is not allowed: rule 1" in desk.read_by_model()[-1]["content"]


@pytest.mark.parametrize(
    ("fields", "is_asked"),
    [
        ({}, False),
        ({"chat_type": ChatType.GROUP}, True),
        ({"user_id": "eva", "user_name": "Eva"}, True),
    ],
    ids=["an owner in a direct chat", "a group", "somebody else"],
)
async def test_without_rules_the_class_of_a_tool_decides(
    desk: Desk, fields: dict[str, Any], *, is_asked: bool
) -> None:
    calls = (SEND, Call("read", {"name": "tea"}, id="r"))
    desk.model.will(Reply(calls=calls), Reply("Done."))
    async with desk.engine() as engine:
        await desk.world.asks(engine, "go", **fields)

    assert len(await open_questions(desk.world)) == is_asked
    ran = [name for name, _ in desk.tools.calls]
    assert sorted(ran) == (["read"] if is_asked else ["read", "send"])


async def test_always_in_this_session_needs_no_second_question(desk: Desk) -> None:
    for _ in range(2):
        desk.model.will(Reply(calls=(SEND,)), Reply("Done."))
    always = Answer(decision=Decision.APPROVE, always=Always.SESSION)
    async with desk.engine(ASK_SEND) as engine:
        await desk.world.asks(engine, "go")
        await desk.decides(engine, always)
        await desk.world.asks(engine, "again")

    assert desk.tools.calls == SENT * 2
    assert len(await all_questions(desk.world)) == 1


@pytest.mark.parametrize("wire", ["openai", "openai-responses", "anthropic"])
async def test_the_context_is_the_same_as_if_nobody_had_been_asked(desk: Desk, wire: str) -> None:
    """Byte for byte, also in the turn after that."""
    desk.wire = wire
    calls = (
        Call("read", {"name": "tea"}, id="r"),
        SEND,
        Call("pay", {"amount": 5}, id="p"),
        Call("read", "{broken", id="b"),
    )
    ask = [PolicyRule(decision=ToolDecision.ASK, tool=name) for name in ("send", "pay")]
    sent: list[list[bytes]] = []
    for chat, policy in (("asked", ask), ("not asked", [])):
        before = len(desk.model.requests)
        desk.model.will(Reply("So.", calls=calls, reasoning="Hm."), Reply("Done."), Reply("Yes."))
        async with desk.engine(*policy) as engine:
            await desk.world.asks(engine, "go", chat=chat)
            for question in reversed(await open_questions(desk.world)):
                await answer(desk.world, question)
            await desk.world.settle(engine)
            await desk.world.asks(engine, "And?", chat=chat)
        sent.append([each.raw for each in desk.model.requests[before:]])

    asked, plain = sent
    assert len(plain) == 3
    # The chat is named in the system prompt.
    assert [raw.replace(b"not asked", b"asked") for raw in plain] == asked


class CrashingAt(CrashingStore):
    """A store as a process sees it that dies at an action: before it, or after its commit."""

    def __init__(
        self, store: Store, crash: CrashPoint, action: Callable[..., Any], *, after: bool
    ) -> None:
        super().__init__(store, crash)
        self._at = action
        self._after = after

    def write(self, action: Any, /, *args: Any, **kwargs: Any) -> Any:
        if action is self._at:
            self._crash._last = self._crash.steps + self._after
        return super().write(action, *args, **kwargs)


async def dies(desk: Desk, action: Callable[..., Any], *, after: bool, text: str | None) -> None:
    """Let a process work that dies at an action of its store; another one may continue its turn after that."""
    crash = CrashPoint()
    desk.world.use(store=CrashingAt(desk.world.store, crash, action, after=after))
    async with desk.engine(ASK_SEND) as engine:
        if text is not None:
            await desk.world.says(engine, text)
        await desk.world.until(lambda: crash.crashed)
    desk.world.use(store=desk.world.store)
    desk.world.clock.tick(300)


async def test_a_call_is_asked_about_by_the_next_process_if_the_first_died_before(
    desk: Desk,
) -> None:
    desk.model.will(Reply(calls=(SEND,)))
    await dies(desk, questions.park, after=False, text="go")
    assert (await open_questions(desk.world), desk.tools.calls) == ([], [])

    desk.model.will(Reply("Done."))
    async with desk.engine(ASK_SEND) as engine:
        await desk.world.eventually(lambda: is_waiting(desk))
        assert desk.tools.calls == []
        await desk.decides(engine)

    assert desk.tools.calls == SENT
    assert desk.read_by_model()[-1]["content"] == "sent to Ann"


async def is_waiting(desk: Desk) -> bool:
    """Whether a question is open, and those who may answer have it before them."""
    asked = await open_questions(desk.world)
    return bool(asked) and not (await desk.world.store.read(upkeep.backlog)).open_deliveries


async def test_a_call_that_was_to_be_asked_about_is_asked_about_whatever_the_rules_say_now(
    desk: Desk,
) -> None:
    """It is known not to have run: it was marked when it was recorded."""
    desk.model.will(Reply(calls=(SEND,)))
    await dies(desk, questions.park, after=False, text="go")
    async with desk.engine() as engine:
        await desk.world.eventually(lambda: is_waiting(desk))
        desk.model.will(Reply("Then not."))
        await desk.decides(engine, DENY)

    assert desk.tools.calls == []


async def test_a_call_that_may_have_run_is_not_asked_about_by_a_new_rule(desk: Desk) -> None:
    """Whoever approves it would let it run twice."""
    desk.tools.gate.clear()
    desk.model.will(Reply(calls=(SEND,)))
    crash = CrashPoint()
    desk.world.use(store=CrashingStore(desk.world.store, crash))
    async with desk.engine() as engine:
        await desk.world.says(engine, "go")
        await desk.world.until(lambda: bool(desk.tools.calls))
        crash.crashed = True
    desk.world.use(store=desk.world.store)
    desk.world.clock.tick(300)
    desk.tools.gate.set()

    desk.model.will(Reply("I do not know."))
    async with desk.engine(ASK_SEND) as engine:
        await desk.world.settle(engine)

    assert (desk.tools.calls, await all_questions(desk.world)) == (SENT, [])
    assert "It is not known whether this call ran" in desk.read_by_model()[-1]["content"]


@pytest.mark.parametrize("is_forbidden_now", [False, True])
async def test_an_approved_call_that_was_started_is_not_started_again(
    desk: Desk, *, is_forbidden_now: bool
) -> None:
    desk.model.will(Reply(calls=(SEND,)))
    async with desk.engine(ASK_SEND) as engine:
        await desk.world.asks(engine, "go")
    (question,) = await open_questions(desk.world)
    await answer(desk.world, question)
    await dies(desk, run._start_approved, after=True, text=None)

    desk.model.will(Reply("I do not know."))
    decision = ToolDecision.DENY if is_forbidden_now else ToolDecision.ASK
    async with desk.engine(replace(ASK_SEND, decision=decision)) as engine:
        await desk.world.settle(engine)

    assert (await desk.turn()).state is TurnState.DONE
    assert desk.tools.calls == []
    result = (await desk.results())["s"]
    assert result.extra == {"outcome": "unknown"}
    assert "It is not known whether this call ran" in str(result.content)
    assert desk.read_by_model()[-1]["content"] == result.content


async def test_an_approved_call_runs_if_the_process_dies_before_it_starts_it(desk: Desk) -> None:
    desk.model.will(Reply(calls=(SEND,)))
    async with desk.engine(ASK_SEND) as engine:
        await desk.world.asks(engine, "go")
    (question,) = await open_questions(desk.world)
    await answer(desk.world, question)
    await dies(desk, run._start_approved, after=False, text=None)
    assert desk.tools.calls == []

    desk.model.will(Reply("Done."))
    async with desk.engine(ASK_SEND) as engine:
        await desk.world.settle(engine)

    assert desk.tools.calls == SENT


async def test_a_server_that_stops_while_an_approved_call_runs_does_not_run_it_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "TOOL_GRACE_SECONDS", 0.05)
    desk.tools.gate.clear()
    desk.model.will(Reply(calls=(SEND,)))
    async with desk.engine(ASK_SEND) as engine:
        await desk.world.asks(engine, "go")
        (question,) = await open_questions(desk.world)
        await answer(desk.world, question)
        await desk.world.until(lambda: bool(desk.tools.calls))
    desk.tools.gate.set()

    desk.model.will(Reply("I do not know."))
    async with desk.engine(ASK_SEND) as engine:
        await desk.world.settle(engine)

    assert desk.tools.calls == SENT
    assert (await desk.results())["s"].extra == {"outcome": "unknown"}


async def test_a_stop_that_comes_in_the_moment_of_the_question_is_not_lost(store: Store) -> None:
    world = make_world(store, poll_seconds=30)
    asking = AskingRunner()

    class Stopped(AskingRunner):
        async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
            async for event in asking.run(request):
                if isinstance(event, Ask):
                    await store.write(actions.ask_to_stop, request.session.no, reason="stopped")
                yield event

    engine = await world.started(runner=Stopped())
    await world.says(engine, "go")
    await world.settle(engine)
    await engine.stop()

    (turn,) = await world.turns()
    (question,) = await all_questions(world)
    assert (turn.state, turn.reason) == (TurnState.INTERRUPTED, "stopped")
    assert question.state is QuestionState.WITHDRAWN


# Tool servers that ask in the middle of a call.

BOOK = Call("book", {"hotel": "Ritz"}, id="b")


async def waits_for_city(desk: Desk, engine: Engine) -> Question:
    """Begin a turn whose tool asks something, and return the question."""
    desk.model.will(Reply(calls=(BOOK,)), Reply("Done."))
    await desk.world.says(engine, "go")
    await desk.world.eventually(lambda: is_waiting(desk))
    await desk.world.until_outbox_is_idle()
    return await only_open(desk.world)


async def test_a_tool_that_asks_gets_the_answer_while_its_turn_runs(desk: Desk) -> None:
    async with desk.engine() as engine:
        question = await waits_for_city(desk, engine)
        turn = await desk.turn()
        assert (turn.state, desk.tools.calls) == (TurnState.RUNNING, [])
        assert desk.world.adapter.texts("loopback:1") == [question.asked.text]
        await desk.world.asks(engine, "Rome")

    assert desk.tools.calls == [("book", {"hotel": "Ritz"})]
    assert desk.read_by_model()[-1]["content"] == "Ritz: Rome"
    text = "The tool book asks: In which city is Ritz?\n\nCity"
    assert (await desk.world.texts())[2:4] == [
        f"Asked: {text}",
        f"Answered by Ada: Rome. ({text})",
    ]
    (turn,) = await desk.world.turns()
    assert (turn.state, turn.resumed) == (TurnState.DONE, 0)


async def test_a_tool_that_asks_reads_that_the_person_declined(desk: Desk) -> None:
    async with desk.engine() as engine:
        question = await waits_for_city(desk, engine)
        await answer(desk.world, question, DENY)
        await desk.world.settle(engine)

    assert desk.read_by_model()[-1]["content"] == "Ritz: decline"


async def test_a_tool_that_asks_goes_on_without_an_answer_after_its_time(desk: Desk) -> None:
    end = QuestionSettings(expire_seconds=10_000, remind_seconds=0, on_expiry=OnExpiry.END)
    # Nobody renews the lease so often that the clock could be moved so far at once.
    desk.world.settings = replace(desk.world.settings, questions=end, lease_seconds=3600)
    async with desk.engine() as engine:
        question = await waits_for_city(desk, engine)
        desk.world.clock.tick(601)
        await desk.world.settle(engine)

    (question,) = await all_questions(desk.world)
    assert question.state is QuestionState.EXPIRED
    assert (await desk.turn()).state is TurnState.DONE
    assert desk.read_by_model()[-1]["content"] == "Ritz: cancel"


async def test_a_question_of_a_tool_is_withdrawn_when_its_turn_is_stopped(desk: Desk) -> None:
    async with desk.engine() as engine:
        await waits_for_city(desk, engine)
        await desk.world.asks(engine, "/stop")
        await desk.world.eventually(lambda: is_withdrawn(desk))

    assert (await desk.turn()).state is TurnState.INTERRUPTED
    assert desk.tools.calls == []


async def is_withdrawn(desk: Desk) -> bool:
    (question,) = await all_questions(desk.world)
    return question.state is QuestionState.WITHDRAWN


@pytest.mark.parametrize("is_killed", [False, True], ids=["stops", "is killed"])
async def test_a_question_of_a_tool_is_withdrawn_when_another_process_goes_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, *, is_killed: bool
) -> None:
    """The call that waits for its answer is gone."""
    monkeypatch.setattr(run, "TOOL_GRACE_SECONDS", 0.05)
    crash = CrashPoint()
    desk.world.use(store=CrashingStore(desk.world.store, crash))
    async with desk.engine() as engine:
        question = await waits_for_city(desk, engine)
        crash.crashed = is_killed
    desk.world.use(store=desk.world.store)
    if is_killed:
        assert await only_open(desk.world) == question
        desk.world.clock.tick(300)

    async with desk.engine() as engine:
        await desk.world.settle(engine)

    assert await is_withdrawn(desk)
    with pytest.raises(Conflict, match="No answer is needed"):
        await answer(desk.world, question)
    assert desk.tools.calls == []
    assert "It is not known whether this call ran" in desk.read_by_model()[-1]["content"]


async def test_a_tool_may_ask_twice_in_one_turn(desk: Desk) -> None:
    other = Call("book", {"hotel": "Grand"}, id="c")
    desk.model.will(Reply(calls=(BOOK,)), Reply(calls=(other,)), Reply("Done."))
    async with desk.engine() as engine:
        await desk.world.says(engine, "go")
        for city in ("Rome", "Oslo"):
            await desk.world.eventually(lambda: is_waiting(desk))
            await answer(
                desk.world,
                await only_open(desk.world),
                Answer(decision=Decision.APPROVE, text=city),
            )
            await desk.world.eventually(lambda: is_answered(desk))
        await desk.world.settle(engine)

    contents = [each["content"] for each in desk.read_by_model() if each["role"] == "tool"]
    assert contents == ["Ritz: Rome", "Grand: Oslo"]


async def is_answered(desk: Desk) -> bool:
    return not await open_questions(desk.world)


async def test_a_tool_that_must_be_approved_may_ask_after_that(desk: Desk) -> None:
    ask = PolicyRule(decision=ToolDecision.ASK, tool="book")
    desk.model.will(Reply(calls=(BOOK,)), Reply("Done."))
    async with desk.engine(ask) as engine:
        await desk.world.asks(engine, "go")
        approval = await only_open(desk.world)
        await answer(desk.world, approval)
        await desk.world.eventually(lambda: is_waiting(desk))
        assert (await only_open(desk.world)).asked.kind is QuestionKind.TEXT
        await desk.world.asks(engine, "Rome")

    assert desk.read_by_model()[-1]["content"] == "Ritz: Rome"


# Programs and functions.

PROGRAM = """
import json, sys

def write(line):
    print(json.dumps(line), flush=True)

request = json.loads(sys.stdin.readline())
questions = {each["name"]: each for each in request.get("questions", [])}
write({"step": {"content": "Run %d." % request.get("resumed", 0)}})
if "where" not in questions:
    write({"ask": {"name": "where", "text": "Where to?", "options": ["Rome", "Oslo"]}})
elif "book" not in questions:
    write({"ask": {"name": "book", "tool": "book", "arguments": {"nights": 2}}})
else:
    write({"reply": questions["where"]["answer"]["text"] + ": " + questions["book"]["outcome"]})
"""


def program(code: str = PROGRAM) -> CommandRunner:
    return CommandRunner(CommandOptions(command=(sys.executable, "-S", "-c", code)))


async def only_open(world: EngineWorld) -> Question:
    (question,) = await open_questions(world)
    return question


async def test_a_program_is_started_again_with_each_answer(store: Store) -> None:
    """In whatever process, although its turns are not continued after a crash."""
    world, runner = make_world(store), program()
    first = await world.started(runner=runner)
    (card,) = await world.asks(first, "go")
    assert card.startswith("Where to?")
    await world.asks(first, "2")
    await first.stop()
    question = await only_open(world)
    assert question.asked.tool == "book"
    await answer(world, question)
    second = await world.started(runner=runner)
    await world.settle(second)
    await second.stop()

    assert world.adapter.texts("loopback:1")[-1] == "Oslo: Approved by The owner."
    head = await world.head()
    said = [each.text for each in await world.messages(head.id) if each.role is Role.ASSISTANT]
    assert said == ["Run 0.", "Run 1.", "Run 2.", "Oslo: Approved by The owner."]


async def test_a_program_that_asks_the_same_again_fails_and_is_not_started_for_ever(
    store: Store,
) -> None:
    code = """print('{"ask": {"name": "where", "text": "Where to?"}}')"""
    world = make_world(store)
    engine = await world.started(runner=program(code))
    await world.asks(engine, "go")
    await world.asks(engine, "to Rome")
    await engine.stop()

    (turn,) = await world.turns()
    assert turn.state is TurnState.FAILED
    assert turn.reason == "The agent asked the question 'where' twice in one turn."


@pytest.mark.parametrize(
    ("decision", "outcome"),
    [
        (ToolDecision.ALLOW, "Approved by a rule."),
        (
            ToolDecision.DENY,
            "Denied by a rule: rule 1 of [[policy]]: deny if tool = 'book'.",
        ),
    ],
)
async def test_a_rule_answers_what_a_program_asks_about_a_tool(
    store: Store, decision: ToolDecision, outcome: str
) -> None:
    world = make_world(store, policy=(PolicyRule(decision=decision, tool="book"),))
    engine = await world.started(runner=program())
    await world.asks(engine, "go")
    await world.asks(engine, "1")
    await engine.stop()

    assert world.adapter.texts("loopback:1")[-1] == f"Rome: {outcome}"
    # Nobody was asked about it.
    assert not any("**book**" in text for text in world.adapter.texts("loopback:1"))


async def test_always_counts_for_what_a_program_asks(store: Store) -> None:
    world = make_world(store)
    engine = await world.started(runner=program())
    for _ in range(2):
        await world.asks(engine, "go")
        await world.asks(engine, "1")
        for question in await open_questions(world):
            await answer(world, question, Answer(decision=Decision.APPROVE, always=Always.SESSION))
            await world.settle(engine)
    await engine.stop()

    replies = [text for text in world.adapter.texts("loopback:1") if text.startswith("Rome:")]
    assert replies == [
        "Rome: Approved by The owner; the tool may run in this session from now on.",
        "Rome: Approved by a rule.",
    ]


class Clerk:
    """An agent that is a function: it asks where to, and books it if that is approved."""

    def __init__(self) -> None:
        self.calls = 0
        self.booked: list[dict[str, Any]] = []

    async def answer(self, request: TurnRequest) -> AsyncIterator[Step | str]:
        self.calls += 1
        yield Step(message("assistant", "I look."))
        yield "Well, "
        where = await request.ask("Where to?", options=["Rome", "Oslo"])
        try:
            trip = await request.approve("book", {"where": where})
        except NotAllowed as error:
            yield f"then not: {error}"
            return
        self.booked.append(trip)
        yield f"booked {trip['where']}."

    @property
    def runner(self) -> PythonRunner:
        return PythonRunner(self.answer, name="clerk")


async def test_a_function_is_called_again_with_each_answer(store: Store) -> None:
    world, clerk = make_world(store), Clerk()
    first = await world.started(runner=clerk.runner)
    await world.asks(first, "go")
    await first.stop()
    second = await world.started(runner=clerk.runner)
    await world.asks(second, "Oslo")
    assert clerk.booked == []
    changed = Answer(decision=Decision.APPROVE, arguments={"where": "Bergen"})
    await answer(world, await only_open(world), changed)
    await world.settle(second)
    await second.stop()

    assert (clerk.calls, clerk.booked) == (3, [{"where": "Bergen"}])
    head = await world.head()
    said = [each.text for each in await world.messages(head.id) if each.role is Role.ASSISTANT]
    assert said == ["I look.", "Well, booked Bergen."]
    assert world.adapter.texts("loopback:1")[-1] == "Well, booked Bergen."


async def test_a_function_reads_that_it_was_denied(store: Store) -> None:
    world, clerk = make_world(store), Clerk()
    engine = await world.started(runner=clerk.runner)
    await world.asks(engine, "go")
    await world.asks(engine, "1")
    await world.asks(engine, "deny: too hot")
    await engine.stop()

    assert clerk.booked == []
    assert world.adapter.texts("loopback:1")[-1] == "Well, then not: Denied by Ada: too hot."


async def test_an_approval_that_a_function_was_given_is_not_given_again(store: Store) -> None:
    world = make_world(store)
    refused: list[Exception] = []

    async def careless(request: TurnRequest) -> str:
        """Does something between two questions, so that it would do it twice."""
        try:
            await request.approve("deploy", {"to": "prod"})
        except Conflict as error:
            refused.append(error)
        return await request.ask("What else?")

    engine = await world.started(runner=PythonRunner(careless, name="careless"))
    await world.asks(engine, "go")
    await world.asks(engine, "1")
    assert refused == []
    await world.asks(engine, "nothing")
    await engine.stop()

    assert len(refused) == 1
    assert world.adapter.texts("loopback:1")[-1] == "nothing"


async def test_who_asked_for_a_turn_may_answer_its_questions_but_not_approve(store: Store) -> None:
    world, clerk = make_world(store), Clerk()
    engine = await world.started(runner=clerk.runner)
    eva = {"chat": "7", "user_id": "eva", "user_name": "Eva"}
    await world.asks(engine, "go", **eva)
    await world.asks(engine, "Oslo", **eva)
    question = await only_open(world)
    await world.says(engine, "1", number="x", **eva)
    await world.until_outbox_is_idle()
    assert (question.asked.tool, clerk.booked) == ("book", [])
    assert await only_open(world) == question
    await engine.stop()
