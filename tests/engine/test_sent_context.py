"""What a model was sent in a past turn is made again from the log, exactly as it was sent."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from sessionary.actions import turns
from sessionary.actions.retention import erase
from sessionary.actions.retention.erase import ErasureSubject
from sessionary.actions.sessions import model_calls, read
from sessionary.actions.sessions.model_calls import SentContext
from sessionary.engine.ports import Event, Step, TurnRequest
from sessionary.errors import NotFound
from sessionary.model import codec
from sessionary.model.message import Message, message
from sessionary.model.source import Isolation
from sessionary.model.transcript import Chat
from sessionary.model.turn import TurnState
from sessionary.model.usage import Usage
from tests.support.engine_world import EngineWorld

WINDOW = 2_000
LONG = "a line of a long tool output\n" * 100


@dataclass
class ModelLikeRunner:
    """Calls a tool, then answers, as a model agent does; keeps what each call was sent."""

    sent: list[list[Chat]] = field(default_factory=list)
    fits: int | None = None
    tool_output: str = "42"

    async def run(self, request: TurnRequest) -> AsyncIterator[Event]:
        context = list(request.context)
        services = request.services
        await services.record_request(
            model="tiny", tools=[{"name": "look"}], settings={"temperature": 1}, window=WINDOW
        )
        for number in (1, 2):
            compacted = await services.fit(window=self.fits)
            if compacted is not None:
                context = list(compacted)
            self.sent.append(codec.decode(codec.encode(context)))
            answer = self._call(request.turn_id) if number == 1 else message("assistant", "found")
            used = Usage(
                call_id=f"{request.turn_id}:{number}",
                model="tiny",
                input_tokens=len(codec.encode(context)) // 4,
                output_tokens=3,
            )
            yield Step(replace_model(answer), used)
            if number == 1:
                found = message(
                    "tool",
                    [
                        {
                            "type": "tool_result",
                            "call_id": request.turn_id,
                            "content": self.tool_output,
                        }
                    ],
                )
                yield Step(found)
                context += [
                    {
                        "role": "assistant",
                        "content": "",
                        "tool_calls": [
                            {
                                "id": request.turn_id,
                                "type": "function",
                                "function": {"name": "look", "arguments": "{}"},
                            }
                        ],
                    },
                    {
                        "role": "tool",
                        "content": self.tool_output,
                        "tool_call_id": request.turn_id,
                    },
                ]

    def _call(self, id: str) -> Message:
        return message(
            "assistant", [{"type": "tool_call", "id": id, "name": "look", "arguments": {}}]
        )

    async def close(self) -> None:
        """Do nothing."""


def replace_model(answer: Message) -> Message:
    """The answer as one of the model `tiny`."""
    return message(answer.role, list(answer.parts), model="tiny")


async def read_sent(world: EngineWorld, turn_id: str, number: int | None = None) -> SentContext:
    """What a call of a turn was sent."""
    return await world.store.read(
        model_calls.read_sent_context, turn_id, profile="main", number=number
    )


def as_sent(found: SentContext) -> list[Mapping[str, Any]]:
    sent: list[Mapping[str, Any]] = codec.decode(codec.encode(list(found.messages)))
    return sent


async def test_each_call_of_each_turn_is_made_again(world: EngineWorld) -> None:
    runner = ModelLikeRunner()
    engine = await world.started(runner=runner)
    for text in ("one", "two", "three"):
        await world.asks(engine, text)
    head = await world.head()

    page = await world.store.read(model_calls.list_turns, head.id, profile="main")
    oldest_first = [each.turn.id for each in reversed(page.items)]
    found = [await read_sent(world, id, number) for id in oldest_first for number in (1, 2)]
    await engine.stop()

    assert [as_sent(each) for each in found] == runner.sent
    assert [each.calls for each in page.items] == [2, 2, 2]
    assert {each.model for each in found} == {"tiny"}
    assert {each.window for each in found} == {WINDOW}
    assert found[0].tools == [{"name": "look"}]
    assert found[0].settings == {"temperature": 1}
    assert found[0].system_prompt
    assert found[1].call.tokens == len(codec.encode(runner.sent[1])) // 4
    assert set(found[1].tokens_by_kind) == {"system", "tools", "user", "assistant", "tool"}
    assert await read_sent(world, oldest_first[0]) == found[1], "the last call by default"


async def test_a_context_from_before_a_compaction_is_still_the_one_that_was_sent(
    world: EngineWorld,
) -> None:
    runner = ModelLikeRunner(fits=WINDOW, tool_output=LONG)
    world.settings = replace(world.settings, compact_at_percent=70)
    engine = await world.started(runner=runner)
    for number in range(6):
        await world.asks(engine, f"question {number}: {'words ' * 100}")
    head = await world.head()

    page = await world.store.read(model_calls.list_turns, head.id, profile="main")
    found = [
        await read_sent(world, each.turn.id, number)
        for each in reversed(page.items)
        for number in (1, 2)
    ]
    size = await world.store.read(model_calls.measure_context, head.id, profile="main")
    now = await world.store.read(read.read_context, head.id, profile="main")
    await engine.stop()

    assert [as_sent(each) for each in found] == runner.sent
    compacted = [each for each in found if each.compaction is not None]
    assert compacted
    assert found[0].compaction is None
    summarized = [each for each in compacted if each.seqs[0] == 0]
    assert summarized
    assert all(each.tokens_by_kind["summary"] > 0 for each in summarized)
    assert size.compaction is not None
    assert size.window == WINDOW
    assert size.used > 0
    assert sum(size.by_kind.values()) > 0
    assert now


async def test_shortened_tool_outputs_are_named(world: EngineWorld) -> None:
    runner = ModelLikeRunner(fits=10 * WINDOW, tool_output=LONG * 4)
    engine = await world.started(runner=runner)
    for number in range(6):
        await world.asks(engine, f"question {number}")
    await engine.stop()

    found = [await read_sent(world, turn.id) for turn in await world.turns()]

    assert [as_sent(each) for each in found] == runner.sent[1::2]
    last = found[-1]
    assert last.compaction is not None
    assert last.compaction.body.summary == ""
    assert last.shortened
    contents = {seq: chat["content"] for seq, chat in zip(last.seqs, last.messages, strict=True)}
    assert all("characters left out here" in contents[seq] for seq in last.shortened)


async def test_after_an_erasure_the_next_turn_records_its_request_again(
    world: EngineWorld,
) -> None:
    world.use(isolation=Isolation(isolate_people_in_groups=False))
    engine = await world.started(runner=ModelLikeRunner())
    group = {"chat_type": "group"}
    for user in ("u", "v", "v"):
        await world.asks(engine, "hello", user_id=user, user_name=user, **group)
    subject = ErasureSubject("loopback", "u")
    moment = world.context().moment()
    receipt = await asyncio.to_thread(
        erase.erase, world.store, subject, profile="main", moment=moment
    )
    await world.asks(engine, "and now?", user_id="v", user_name="v", **group)
    await engine.stop()

    [head] = await world.sessions()
    page = await world.store.read(model_calls.list_turns, head.id, profile="main")
    prompts = [(await read_sent(world, each.turn.id)).system_prompt for each in page.items]
    assert receipt.sessions_changed == 1
    assert prompts[0]
    assert prompts[1:] == [None, None, None]


async def test_turns_are_listed_newest_first_by_pages(world: EngineWorld) -> None:
    engine = await world.started()
    for number in range(5):
        await world.asks(engine, f"question {number}")
    await engine.stop()
    head = await world.head()

    first = await world.store.read(model_calls.list_turns, head.id, profile="main", limit=3)
    rest = await world.store.read(
        model_calls.list_turns, head.id, profile="main", limit=3, cursor=first.next
    )

    listed = [each.turn.id for each in (*first.items, *rest.items)]
    everyone = [turn.id for turn in await world.turns()]
    assert listed == everyone[::-1]
    assert rest.next is None
    assert {each.calls for each in (*first.items, *rest.items)} == {2}


async def test_a_turn_waits_when_its_process_has_stopped_or_died(world: EngineWorld) -> None:
    engine = await world.started()
    await world.asks(engine, "hello")
    await engine.stop()
    head = await world.head()
    claim = turns.Claim("engine-9", 30, resumable=True)
    moment = world.context().moment()
    begun = await world.store.write(
        turns.begin_in_session,
        head.id,
        message("user", "go"),
        profile="main",
        claim=claim,
        moment=moment,
    )

    async def newest() -> Any:
        page = await world.store.read(model_calls.list_turns, head.id, profile="main")
        return page.items[0].turn

    running = await newest()
    assert running.state is TurnState.RUNNING
    assert not running.is_orphaned(moment.now)
    world.clock.tick(31)
    assert running.is_orphaned(world.clock.now()), "its lease ran out"
    await world.store.write(turns.release, begun.lease, reason="the server stopped")
    released = await newest()
    assert released.is_orphaned(moment.now)
    assert not released.holder
    assert released.resume_reason == "the server stopped"


async def test_a_call_that_the_turn_does_not_have_is_not_found(world: EngineWorld) -> None:
    engine = await world.started()
    await world.asks(engine, "hello")
    await engine.stop()
    [turn] = await world.turns()

    with pytest.raises(NotFound, match="there is no call 3: its last one is call 2"):
        await read_sent(world, turn.id, 3)
    with pytest.raises(NotFound, match="There is no turn nonsense"):
        await read_sent(world, "nonsense")
    with pytest.raises(NotFound):
        await world.store.read(model_calls.list_calls, turn.id, profile="other")
