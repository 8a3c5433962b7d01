"""What a model was sent is made again from the log, byte for byte, in every provider's format.

A story with everything that shapes a context is told to a model server. Then every call of every turn is read from the
log, and sent through the same code to a second server: it must receive what the first one did.
"""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.tools import ToolDefinition

from sessionary.actions import turns
from sessionary.actions.sessions import lists, model_calls, read
from sessionary.actions.sessions.model_calls import SentContext
from sessionary.agents.provider import Provider
from sessionary.config.engine import WhileRunning
from sessionary.engine.engine import Engine
from sessionary.engine.turn import run
from sessionary.model.message import Attachment, Message, Role, Text, message
from sessionary.model.source import ChatType, Isolation, Source
from sessionary.model.transcript import CONTINUE_NOTE, NO_RESULT
from sessionary.model.turn import Turn
from sessionary.store.tables import blobs
from sessionary.store.tables import turns as turn_rows
from sessionary.testing.runner_suite import turn_request
from tests.support.engine_world import QUICK, EngineWorld
from tests.support.model_agent import TOOLS, is_summary, model_engine, model_runner
from tests.support.model_server import Answer, Ask, Call, ModelServer, Refusal, Reply, Tokens

WINDOW = 4_000
WIRES = ["openai", "openai-responses", "anthropic"]


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@dataclass
class Story:
    """People talk with a model agent; what its server received and answered is noted."""

    world: EngineWorld
    server: ModelServer
    wire: str
    window: int = WINDOW
    answered: list[Ask] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    _said: int = 0

    def __post_init__(self) -> None:
        self.server.otherwise = self._answer
        self.world.use(isolation=Isolation(isolate_people_in_groups=False))

    @asynccontextmanager
    async def engine(self) -> AsyncIterator[Engine]:
        """An engine on the store."""
        options: dict[str, Any] = {"settings": {"temperature": 0.5, "max_tokens": 500}}
        async with model_engine(
            self.world, self.server, wire=self.wire, window=self.window, tools=(TOOLS,), **options
        ) as engine:
            yield engine

    async def says(self, engine: Engine, text: str, *answers: Answer, user: str = "Ada") -> None:
        """Say something in a group, and wait until nothing runs any more; the model gives these answers."""
        await self.begins(engine, text, *answers, user=user)
        await self.world.settle(engine)

    async def begins(self, engine: Engine, text: str, *answers: Answer, user: str = "Ada") -> None:
        """Say something without waiting for the answer."""
        self.answers += answers
        await engine.receive(self.source(user), message("user", text))

    def source(self, user: str) -> Source:
        """The source of a new message in the group."""
        self._said += 1
        return self.world.source(
            "1", f"s{self._said}", user_id=user, user_name=user, chat_type=ChatType.GROUP
        )

    async def until_tool_runs(self) -> None:
        """Wait until the call of a tool is in the log."""

        async def is_open() -> bool:
            begun = await self.turns()
            messages = await self.world.messages(begun[-1].session_id) if begun else []
            return bool(messages and messages[-1].tool_calls)

        await self.world.eventually(is_open)

    async def until_stored(self, characters: int) -> None:
        """Wait until the beginning of an answer is stored."""

        async def is_stored() -> bool:
            return len((await self.turns())[-1].partial or "") >= characters

        await self.world.eventually(is_stored)

    def _answer(self, ask: Ask) -> Answer:
        if is_summary(ask):
            return Reply("They spoke about tea. 茶")
        answer = self.answers.pop(0) if self.answers else Reply("Yes.")
        if isinstance(answer, Reply) and answer.cut_after is None:
            self.answered.append(ask)
        return answer

    async def turns(self) -> list[Turn]:
        """The turns of all sessions, in the order in which they began."""
        store = self.world.store
        page = await store.read(lists.list_sessions, lists.SessionFilters(), profile="main")
        found = [
            turn for head in page.items for turn in await store.read(turn_rows.of_session, head.no)
        ]
        return sorted(found, key=lambda turn: turn.id)

    async def sent(self) -> list[SentContext]:
        """What each call of each turn was sent, from the log."""
        store = self.world.store
        found = []
        for turn in await self.turns():
            for call in await store.read(model_calls.list_calls, turn.id, profile="main"):
                sent = store.read(
                    model_calls.read_sent_context, turn.id, profile="main", number=call.number
                )
                found.append(await sent)
        return found

    async def sent_again(self) -> list[tuple[SentContext, bytes]]:
        """The same, with what a server receives that is sent it again."""
        async with ModelServer() as mirror:
            mirror.otherwise = Reply("Yes.")
            runner = model_runner(mirror, wire=self.wire)
            provider = Provider(runner._options)
            made = []
            for sent in await self.sent():

                async def blob(name: str) -> bytes:
                    return await self.world.store.read(blobs.get, name)

                request = turn_request(
                    system_prompt=sent.system_prompt or "",
                    blob=blob,
                    settings={**(sent.settings or {}), "model": sent.model},
                )
                tools = [
                    ToolDefinition(
                        name=tool["name"],
                        description=tool["description"],
                        parameters_json_schema=tool["parameters"],
                    )
                    for tool in sent.tools or ()
                ]
                conversation = await provider.conversation(request, sent.messages, tools)
                async for _ in conversation.ask():
                    pass
                made.append((sent, mirror.requests[-1].raw))
            await provider.close()
        return made

    async def check(self) -> list[SentContext]:
        """Compare all that was received with what is sent again; return what was sent."""
        made = await self.sent_again()
        received = [
            ask.raw
            for ask in self.server.requests
            if not is_summary(ask) and not (self.server.window and ask.tokens > self.server.window)
        ]
        finished = [raw for sent, raw in made if sent.call.tokens is not None]
        for at, ask in enumerate(self.answered):
            assert finished[at] == ask.raw, f"call {at}"
        assert len(finished) == len(self.answered)
        again = {raw for _, raw in made}
        # What failed or was cut off is in the log, too: as the beginning of an answer, or as it was tried again.
        assert [at for at, raw in enumerate(received) if raw not in again] == []
        return [sent for sent, _ in made]


async def test_tools_odd_texts_and_several_people(world: EngineWorld, wire: str) -> None:
    async with ModelServer() as server:
        story = Story(world, server, wire)
        async with story.engine() as engine:
            odd = 'Hello 茶 \x00 \ud800 «quotes» "more"'
            await story.says(engine, odd, Reply("Hi!", reasoning="A greeting. \x00"))
            why = {"ratio": 1.50, "big": 10**20, "é": None}
            calls = (
                Call("read_lines", {"count": 3, "why": why}, id="a"),
                Call("echo", {"text": "a \x00 b 茶"}, id="b"),
                Call("read_lines", "{broken", id="c"),
                Call("no_such_tool", {}, id="d"),
            )
            first = Reply("I read \x00 now.", calls=calls, reasoning="Two of them.")
            await story.says(engine, "Read.", first, Reply("Done.", reasoning="Fine."))
            # The same id again, as some providers use it.
            again = Reply(calls=(Call("read_lines", {"count": 2}, id="a"),))
            await story.says(engine, "Again.", again, Reply("Two."))
            await story.says(engine, "I am here, too.", Reply("Welcome, Bob."), user="Bob")
            await story.says(engine, "And I again.", Refusal(500), Reply("Yes, Ada."))
            data = b"\x89PNG not really"
            picture = Attachment(hashlib.sha256(data).hexdigest(), "image/png", "tea.png")
            source = story.source("Ada")
            await engine.receive(source, Message(Role.USER, (Text("Look."), picture)), files=[data])
            await world.settle(engine)
        sent = await story.check()

    assert len(sent) == 8
    assert any(chat["content"] == "[Bob] I am here, too." for chat in sent[-1].messages)


async def test_steering_stops_and_turns_that_go_on(
    world: EngineWorld, wire: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "TOOL_GRACE_SECONDS", 0.05)
    world.settings = replace(QUICK, while_running=WhileRunning.STEER)
    gates = [tmp_path / str(number) for number in range(3)]
    async with ModelServer() as server:
        story = Story(world, server, wire)
        is_streaming = asyncio.Event()

        async def hold(ask: Ask, moment: str) -> None:
            if moment == "streaming":
                is_streaming.set()
                await asyncio.Event().wait()

        def waits(number: int) -> Reply:
            return Reply(calls=(Call("wait", {"path": str(gates[number])}, id="w"),))

        async with story.engine() as engine:
            # A message that comes while a tool runs is read before the next call.
            await story.begins(engine, "Wait.", waits(0), Reply("It came."))
            await story.until_tool_runs()
            await story.begins(engine, "And hurry!", user="Bob")
            gates[0].touch()
            await world.settle(engine)
            # A turn that is stopped leaves a call without a result, whose id comes again.
            await story.begins(engine, "Wait again.", waits(1))
            await story.until_tool_runs()
            await story.says(engine, "/stop")
            echo = Reply(calls=(Call("echo", {"text": "other"}, id="w"),))
            await story.says(engine, "Repeat.", echo, Reply("Repeated."))
            # The process stops while a tool runs …
            await story.begins(engine, "Wait once more.", waits(2))
            await story.until_tool_runs()
        gates[2].touch()
        async with story.engine() as engine:
            await world.settle(engine)
            # … in the middle of a short answer …
            server.at_moment = hold
            await story.begins(engine, "Say little.", Reply("one two three four", cut_after=99))
            await is_streaming.wait()
            await story.until_stored(1)
        server.at_moment = None
        async with story.engine() as engine:
            await world.settle(engine)
            # … and of a long one, which is continued where it ended.
            is_streaming.clear()
            server.at_moment = hold
            await story.begins(engine, "Say a lot.", Reply("many words " * 300, cut_after=999))
            await is_streaming.wait()
            await story.until_stored(turns.CONTINUED_CHARACTERS)
        server.at_moment = None
        async with story.engine() as engine:
            await world.settle(engine)
            await story.says(engine, "Thank you.", Reply("Not at all."))
        sent = await story.check()
    states = [turn.state for turn in await story.turns()]

    assert states == ["done", "interrupted", "done", "done", "done", "done", "done"]
    assert [turn.resumed for turn in await story.turns()] == [0, 0, 0, 1, 1, 1, 0]
    assert any(chat["content"] == CONTINUE_NOTE for chat in sent[-1].messages)
    results = [chat["content"] for chat in sent[-1].messages if chat["role"] == "tool"]
    assert results == ["It is there.", NO_RESULT, "other", "It is there."]


async def test_compactions_forks_undo_and_retry(world: EngineWorld, wire: str) -> None:
    async with ModelServer(window=WINDOW) as server:
        story = Story(world, server, wire)
        async with story.engine() as engine:
            for number in range(8):
                await story.says(engine, f"Round {number}. {'kettle ' * 100}", Reply("tea " * 100))
            reads = [
                Reply(calls=(Call("read_lines", {"count": 60}, id=f"r{number}"),))
                for number in range(8)
            ]
            await story.says(engine, "Read a lot.", *reads, Reply("Read."))
            await story.says(engine, "/undo")
            await story.says(engine, "Something else.", Reply("Else."), user="Bob")
            await story.says(engine, "/retry", Reply("Otherwise."))
            await story.says(engine, "Fail.", Refusal(400, "bad request"))
            await story.says(engine, "/branch Another way")
            await story.says(engine, "In the branch.", Reply("Branched."))
            await story.says(engine, "/compact")
            await world.until(lambda: any("ompacted" in text for _, text in world.adapter.sent))
            await story.says(engine, "After that.", Reply("Compacted."))
            # More than the window in one output: it is shortened.
            large = Reply(calls=(Call("read_lines", {"count": 800}, id="x"),))
            back = Reply(calls=(Call("read_output", {"entry": 1}, id="y"),))
            await story.says(engine, "Read all.", large, back, Reply("All read."))
        sent = await story.check()

    assert any(each.compaction is not None for each in sent)
    within = [each.turn.id for each in sent if each.compaction and each.call.number > 1]
    assert within
    assert any(each.shortened for each in sent)
    assert [each.turn.state for each in sent if each.call.answer_seq is None] == ["failed"]


def encoded(what: str) -> bytes:
    """A picture of the tool `draw`, as a request has it."""
    return base64.b64encode(f"\x89PNG\r\n\x1a\n{what}".encode("latin-1"))


async def test_pictures_of_tools_stay_in_the_context(world: EngineWorld, wire: str) -> None:
    async with ModelServer() as server:
        story = Story(world, server, wire, window=20_000)
        async with story.engine() as engine:
            calls = (
                Call("draw", {"what": "cat", "count": 2}, id="a"),
                Call("draw", {"what": "dog"}, id="b"),
            )
            await story.says(engine, "Draw.", Reply(calls=calls), Reply("Drawn."))
            await story.says(engine, "What did you draw?", Reply("Cats and a dog."))
        await story.check()

    _, drawn, asked = story.answered
    for picture in map(encoded, ("cat 1", "cat 2", "dog 1")):
        assert drawn.raw.count(picture) == asked.raw.count(picture) == 1
    # A new turn only extends what the provider has cached.
    assert asked.messages[: len(drawn.messages) - 1] == drawn.messages[:-1]


async def test_a_turn_that_goes_on_has_the_pictures_of_its_tools(
    world: EngineWorld, wire: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "TOOL_GRACE_SECONDS", 0.05)
    gate = tmp_path / "gate"
    async with ModelServer() as server:
        story = Story(world, server, wire)
        async with story.engine() as engine:
            # The process stops when one tool has drawn and the other still runs …
            calls = (
                Call("draw", {"what": "cat"}, id="a"),
                Call("wait", {"path": str(gate)}, id="b"),
            )
            await story.begins(engine, "Draw.", Reply(calls=calls))

            async def is_drawn() -> bool:
                begun = await story.turns()
                messages = await world.messages(begun[-1].session_id) if begun else []
                return bool(messages and messages[-1].role is Role.TOOL)

            await world.eventually(is_drawn)
        gate.touch()
        asked = asyncio.Event()

        async def hold(ask: Ask, moment: str) -> None:
            if moment == "asked":
                asked.set()
                await asyncio.Event().wait()

        # … and again when both have, before the model has answered.
        server.at_moment = hold
        story.answers = [Reply("Never read.", cut_after=99)]
        async with story.engine() as engine:
            await asked.wait()
        server.at_moment = None
        story.answers = [Reply("Drawn.")]
        async with story.engine() as engine:
            await world.settle(engine)
        await story.check()
        (turn,) = await story.turns()

    assert (turn.state, turn.resumed) == ("done", 2)
    assert [ask.raw.count(encoded("cat 1")) for ask in server.requests] == [0, 1, 1]


async def test_a_compaction_names_old_pictures(world: EngineWorld, wire: str) -> None:
    async with ModelServer() as server:
        story = Story(world, server, wire, window=20_000)
        async with story.engine() as engine:
            for number in range(5):
                call = Call("draw", {"what": f"cat {number}", "count": 2}, id=f"d{number}")
                done = Reply("Drawn.", tokens=Tokens(3_000 * (number + 1)))
                await story.says(engine, "Draw.", Reply(calls=(call,)), done)
            (turn, *_) = await story.turns()
            drawn = [
                entry.seq
                for entry in await world.store.read(
                    read.read_transcript, turn.session_id, profile="main"
                )
                if isinstance(entry.body, Message) and entry.body.role is Role.TOOL
            ]
            back = Reply(calls=(Call("read_output", {"entry": drawn[0]}, id="r"),))
            await story.says(engine, "Which was the first?", back, Reply("A cat."))
        await story.check()

    before, after = story.answered[-2:]
    note = f"[image-1.png, image-2.png left out here; read_output with entry {drawn[0]} returns"
    assert encoded("cat 0 1") not in before.raw
    assert note in before.raw.decode()
    assert encoded("cat 4 1") in before.raw
    # The model has asked for the first ones.
    assert encoded("cat 0 1") in after.raw
    assert encoded("cat 1 1") not in after.raw
