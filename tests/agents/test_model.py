"""Asking a model: the real client libraries against a server that speaks as providers do."""

import asyncio
import time
from typing import Any

import pytest

from sessionary.agents.model import ModelOptions, ModelRunner
from sessionary.config.secret import Secret
from sessionary.engine.ports import Runner
from sessionary.model.message import (
    Attachment,
    Entry,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    message,
)
from sessionary.model.transcript import Chat, context
from sessionary.model.usage import CostStatus
from sessionary.testing.fakes import START
from sessionary.testing.runner_suite import (
    PROMPT_SECONDS,
    RunnerSuite,
    SlowRunnerSuite,
    events_of,
    steps_of,
    streamed,
    turn_request,
)
from tests.agents.model_runs import KEY, MakeRunner, failure
from tests.support.model_server import Call, ModelServer, Reply, Tokens


class TestModel(RunnerSuite, SlowRunnerSuite):
    @pytest.fixture
    def runner(self, make: MakeRunner, server: ModelServer) -> Runner:
        server.otherwise = Reply("Hello there.", reasoning="A greeting.")
        return make()

    @pytest.fixture
    def slow_runner(self, make: MakeRunner, server: ModelServer) -> Runner:
        server.otherwise = Reply("Hello there my friend.", pause=60)
        return make()


async def test_words_and_thoughts_are_streamed_then_kept(
    runner: Runner, server: ModelServer
) -> None:
    server.will(Reply("Hello, dear Ann. Tea?", reasoning="She is here. Tea."))

    events = await events_of(runner, turn_request("hello", system_prompt="Be kind."))

    (step,) = steps_of(events)
    assert events[-1] is step
    assert len(events) > 3
    assert streamed(events) == step.message.text == "Hello, dear Ann. Tea?"
    assert streamed(events, thinking=True) == "She is here. Tea."
    assert [type(part) for part in step.message.parts] == [Reasoning, Text]
    assert (step.message.model, step.message.finish_reason) == ("m", "stop")


async def test_the_model_reads_prompt_and_conversation(runner: Runner, server: ModelServer) -> None:
    server.will(Reply("ok"))
    request = turn_request(
        "one", {"role": "assistant", "content": "uno"}, "two", system_prompt="Be kind."
    )

    await events_of(runner, request)

    (ask,) = server.requests
    read = str(ask.body)
    assert [read.index(each) >= 0 for each in ("Be kind.", "'one'", "'uno'", "'two'")]
    roles = [each["role"] for each in ask.messages if each["role"] != "system"]
    assert roles == ["user", "assistant", "user"]
    assert ask.body["stream"] is True


async def test_the_key_is_presented_and_nothing_else_is(
    runner: Runner, server: ModelServer
) -> None:
    server.will(Reply("ok"))

    await events_of(runner, turn_request("hello"))

    headers = server.requests[0].headers
    assert KEY in (headers.get("x-api-key") or headers["authorization"])


async def test_another_server_never_gets_the_key_of_the_environment(
    make: MakeRunner, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-mine")
    server.will(Reply("ok"))

    await events_of(make(key=None), turn_request("hello"))

    assert "sk-mine" not in str(server.requests[0].headers)


async def test_cached_tokens_stand_apart_and_an_unknown_price_stays_unknown(
    runner: Runner, server: ModelServer, wire: str
) -> None:
    written = 7 if wire == "anthropic" else 0
    server.will(Reply("ok", tokens=Tokens(fresh=10, cache_read=3, cache_write=written, output=5)))

    (step,) = steps_of(await events_of(runner, turn_request("hello", turn_id="t9")))

    used = step.usage
    assert used is not None
    assert (used.input_tokens, used.cache_read_tokens, used.cache_write_tokens) == (10, 3, written)
    assert (used.output_tokens, used.model, used.provider) == (5, "m", "127.0.0.1")
    assert (used.cost_microusd, used.cost_status) == (None, CostStatus.UNKNOWN)
    assert (used.call_id, used.at) == ("fake-1:t9:1", START)


async def test_a_provider_that_does_not_say_what_was_used_is_not_free(
    runner: Runner, server: ModelServer
) -> None:
    server.will(Reply("ok", tokens=None, model="gpt-4o"))

    (step,) = steps_of(await events_of(runner, turn_request("hello")))

    assert step.usage is not None
    assert step.usage.cost_microusd is None


async def test_every_call_of_a_turn_has_its_usage(runner: Runner, server: ModelServer) -> None:
    server.will(Reply("Let me look.", calls=(Call("look"),)), Reply("Done."))

    steps = steps_of(await events_of(runner, turn_request("hello")))

    ids = [step.usage.call_id for step in steps if step.usage is not None]
    assert ids == ["fake-1:turn-1:1", "fake-2:turn-1:2"]


async def test_a_wrong_tool_call_is_reported_to_the_model(
    runner: Runner, server: ModelServer
) -> None:
    calls = (Call("look", {"a": 1}), Call("look", '{"a": ', id="call_2"))
    server.will(Reply("So.", calls=calls), Reply("Sorry."))

    first, one, two, last = steps_of(await events_of(runner, turn_request("hello")))

    assert first.message.parts == (
        Text("So."),
        ToolCall("call_1", "look", {"a": 1}),
        ToolCall("call_2", "look", '{"a": '),
    )
    for step, call_id in ((one, "call_1"), (two, "call_2")):
        (result,) = step.message.parts
        assert isinstance(result, ToolResult)
        assert (result.call_id, result.is_error) == (call_id, True)
    assert last.message.text == "Sorry."
    assert "There is no tool" in str(server.requests[1].messages)


async def test_a_model_that_keeps_calling_wrongly_is_stopped(
    runner: Runner, server: ModelServer
) -> None:
    server.otherwise = Reply(calls=(Call("look", "{"),))

    await failure(runner, "wrongly 4 times")

    assert len(server.requests) == 4


async def test_a_model_that_never_ends_is_stopped(make: MakeRunner, server: ModelServer) -> None:
    server.otherwise = Reply(calls=(Call("look"),))

    await failure(make(most_calls=3, most_malformed=9), "3 times")


async def test_cancelling_closes_the_connection(make: MakeRunner, server: ModelServer) -> None:
    server.otherwise = Reply("word " * 1000, pause=0.05)
    runner = make()
    begun = asyncio.Event()

    async def watch() -> None:
        async for _ in runner.run(turn_request("hello")):
            begun.set()

    task = asyncio.create_task(watch())
    await begun.wait()
    began = time.monotonic()
    task.cancel()
    await asyncio.wait({task})
    await server.broken_off.wait()

    assert task.cancelled()
    assert time.monotonic() - began < PROMPT_SECONDS


async def test_a_session_s_own_settings_are_used(make: MakeRunner, server: ModelServer) -> None:
    server.will(Reply("ok"))
    settings = {"model": "m2", "temperature": 0.25, "base_url": "http://evil.test"}

    await events_of(
        make(settings={"temperature": 1, "top_p": 0.5}), turn_request("hello", settings=settings)
    )

    asked = server.requests[0].body
    assert (asked["model"], asked["temperature"], asked["top_p"]) == ("m2", 0.25, 0.5)


async def test_attachments_are_shown_as_far_as_a_model_can_see_them(
    runner: Runner, server: ModelServer
) -> None:
    blobs = {"p": b"\x89PNG", "t": b"tea, milk", "z": b"PK"}

    async def blob(name: str) -> bytes:
        return blobs[name]

    parts: tuple[Part, ...] = (
        Text("look"),
        Attachment("p", "image/png", "a.png"),
        Attachment("t", "text/csv", "b.csv"),
        Attachment("z", "application/zip", "c.zip"),
        # Types that pydantic-ai does not know: it would raise an error in this turn and in each that follows.
        Attachment("z", "audio/x-m4a", "d.m4a"),
        Attachment("z", "image/heic", "e.heic"),
    )
    server.will(Reply("ok"))

    await events_of(runner, turn_request(*chats(Message(Role.USER, parts)), blob=blob))

    read = str(server.requests[0].messages)
    assert "iVBORw==" in read
    assert "tea, milk" in read
    for label in ("c.zip (application/zip)", "d.m4a (audio/x-m4a)", "e.heic (image/heic)"):
        assert f"{label}: cannot be shown" in read


@pytest.mark.parametrize(
    ("provider", "sound"),
    [("openai", {"audio/wav", "audio/mpeg"}), ("openai-responses", set()), ("anthropic", set())],
)
async def test_only_files_that_the_provider_s_interface_can_carry_are_sent(
    provider: str, sound: set[str], server: ModelServer
) -> None:
    """A voice message would fail this turn, and every later one of its session."""
    types = ("image/png", "application/pdf", "audio/wav", "audio/mpeg", "audio/ogg", "video/mp4")
    files = tuple(Attachment("f", each, f"a {each}") for each in types)

    async def blob(_: str) -> bytes:
        return b"data"

    server.will(Reply("ok"))
    url = server.url if provider == "anthropic" else server.openai_url
    runner = ModelRunner(ModelOptions(model="m", provider=provider, base_url=url, key=Secret(KEY)))
    asked = turn_request(*chats(Message(Role.USER, (Text("look"), *files))), blob=blob)

    steps = steps_of(await events_of(runner, asked))
    await runner.close()

    assert [each.message.text for each in steps] == ["ok"]
    read = str(server.requests[0].body)
    missing = {each for each in types if f"a {each} ({each}): cannot be shown" in read}
    assert set(types) - missing == {"image/png", "application/pdf"} | sound


async def test_the_next_turn_only_extends_what_the_model_read(
    runner: Runner, server: ModelServer, wire: str
) -> None:
    server.will(
        Reply("Let me.", calls=(Call("look", {"b": 1.5, "a": ["é"]}),), reasoning="Look first."),
        Reply("Done.", reasoning="Good."),
        Reply("Bye."),
    )
    asked = message("user", "hello")
    steps = steps_of(await events_of(runner, turn_request(*chats(asked), system_prompt="Be kind.")))
    messages = [asked, *(step.message for step in steps), message("user", "bye")]

    await events_of(runner, turn_request(*chats(*messages), system_prompt="Be kind."))

    second, third = (without_marks(ask.messages) for ask in server.requests[1:])
    assert third[: len(second)] == second
    assert server.requests[1].body.get("system") == server.requests[2].body.get("system")
    if wire == "anthropic":
        assert "'signature': 'signed'" in str(third)


async def test_one_question_outside_a_turn_says_what_it_was_for(
    make: MakeRunner, server: ModelServer
) -> None:
    server.will(Reply("Tea."), Reply("Tea."))
    runner = make()

    text, usage = await runner.ask("Name it.", "hello", task="title")
    _, other = await runner.ask("Name it.", "hello", task="title")

    assert (text, usage.task) == ("Tea.", "title")
    assert usage.call_id != other.call_id
    assert "Name it." in str(server.requests[0].body)


async def test_a_closed_runner_can_be_used_again(make: MakeRunner, server: ModelServer) -> None:
    server.otherwise = Reply("ok")
    runner = make()

    for _ in range(2):
        assert streamed(await events_of(runner, turn_request("hello"))) == "ok"
        await runner.close()


def chats(*messages: Message) -> list[Chat]:
    return context([Entry("s", seq, START, body) for seq, body in enumerate(messages, 1)])


def without_marks(messages: list[dict[str, Any]]) -> list[Any]:
    """The messages without cache marks, which move with the end of the conversation."""

    def cleaned(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: cleaned(v) for k, v in value.items() if k != "cache_control"}
        return [cleaned(each) for each in value] if isinstance(value, list) else value

    return [cleaned(each) for each in messages]


async def test_a_turn_that_has_its_answer_asks_nothing_more(
    runner: Runner, server: ModelServer
) -> None:
    """Its process died after the answer was recorded and before the end of the turn was."""
    server.will(Reply(" and milk."))
    half = Message(Role.ASSISTANT, (Text("Tea"),), finish_reason="interrupted")

    answered = turn_request("hello", resumed=1, steps=(message("assistant", "Tea."),))
    begun = turn_request("hello", resumed=1, steps=(half,))

    assert await events_of(runner, answered) == []
    assert server.requests == []
    assert [step.message.text for step in steps_of(await events_of(runner, begun))] == [
        " and milk."
    ]
