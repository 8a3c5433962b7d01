"""`/v1/responses` with the official client: answered, streamed, continued, forked, stopped and found again."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import Response, ResponseItemList
from pydantic import BaseModel

from sessionary.actions.sessions import log
from sessionary.clock import RandomIds, SystemClock
from sessionary.engine import exchange
from sessionary.model.access import Scope
from sessionary.model.message import message
from sessionary.store.database import Store, Tx
from sessionary.store.open import open_store
from tests.support.model_agent import TOOLS
from tests.support.model_script import Call, Refusal, Reply
from tests.support.model_server import ModelServer
from tests.support.openai_world import OpenAIWorld, openai_world
from tests.support.statement_counter import StatementCounter, counted_sqlite
from tests.web.test_openai_conversations import refused, texts_of
from tests.web.test_openai_files import kept

LOOK: Any = {
    "type": "function",
    "name": "look",
    "description": "Look at a place.",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
    "strict": False,
}
MODEL = "assistant"
NOW = datetime(2026, 11, 15, tzinfo=UTC)


@pytest.fixture
async def world(server: OpenAIWorld) -> OpenAIWorld:
    return server


@pytest.fixture(params=["sqlite", "postgres"])
async def any_world(
    request: pytest.FixtureRequest, tmp_path: Path, model: ModelServer
) -> AsyncIterator[OpenAIWorld]:
    url = f"sqlite:///{tmp_path}/s.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
    opened = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
    async with openai_world(opened, model) as made:
        yield made
    opened.close()


async def connected(
    world: OpenAIWorld, scope: Scope = Scope.WRITE, profile: str = "main"
) -> AsyncOpenAI:
    """The official client, with a token of this profile."""
    secret = await world.token(scope, profile=profile)
    return await world.client(api_key=secret)


@pytest.fixture
async def client(world: OpenAIWorld) -> AsyncOpenAI:
    return await connected(world)


async def ask(client: AsyncOpenAI, text: Any, **more: Any) -> Response:
    """Ask, and check the whole answer against the types of the official package."""
    made: Response = await client.responses.create(model=MODEL, input=text, **more)
    Response.model_validate(json.loads(made.model_dump_json(by_alias=True)))
    return made


def session_of(response: Response) -> str:
    assert response.conversation is not None
    return response.conversation.id


def sent_texts(world: OpenAIWorld) -> list[str]:
    """What the model was sent in its last request, without the system prompt."""
    messages = world.model.requests[-1].body["messages"]
    return [str(each.get("content")) for each in messages if each["role"] != "system"]


async def test_a_response_is_answered_and_found_again(
    world: OpenAIWorld, client: AsyncOpenAI
) -> None:
    world.model.will(Reply("Hello!", reasoning="They greet."))

    made = await ask(
        client, "hi", instructions="Be kind.", metadata={"topic": "tea"}, temperature=0.5
    )

    assert (made.status, made.output_text) == ("completed", "Hello!")
    assert [each.type for each in made.output] == ["reasoning", "message"]
    assert (made.instructions, made.metadata, made.temperature) == (
        "Be kind.",
        {"topic": "tea"},
        0.5,
    )
    assert made.usage is not None
    assert made.usage.total_tokens == 15
    body = world.model.requests[-1].body
    assert body["temperature"] == 0.5
    assert body["messages"][0]["content"].endswith("Be kind.")
    assert await client.responses.retrieve(made.id) == made
    items: Any = await client.responses.input_items.list(made.id)
    assert [each.content[0].text for each in items.data] == ["hi"]


async def test_a_response_goes_on_after_another_without_its_instructions(
    any_world: OpenAIWorld,
) -> None:
    client = await connected(any_world)
    any_world.model.will(Reply("one"), Reply("two"))
    first = await ask(client, "first", instructions="Be kind.")

    second = await ask(client, "second", previous_response_id=first.id)

    assert session_of(second) == session_of(first)
    assert second.previous_response_id == first.id
    assert sent_texts(any_world) == ["first", "one", "second"]
    assert "Be kind." not in any_world.model.requests[-1].body["messages"][0]["content"]
    conversation = session_of(second)
    assert await texts_of(client, conversation, order="asc") == ["first", "one", "second", "two"]


async def test_two_responses_after_the_same_one_are_a_fork(any_world: OpenAIWorld) -> None:
    client = await connected(any_world)
    any_world.model.will(Reply("a"), Reply("b"), Reply("c"), Reply("d"))
    first = await ask(client, "1")
    second = await ask(client, "2", previous_response_id=first.id)

    other = await ask(client, "2 instead", previous_response_id=first.id)

    assert session_of(other) != session_of(second)
    assert sent_texts(any_world) == ["1", "a", "2 instead"]
    after = await ask(client, "3", previous_response_id=other.id)
    assert session_of(after) == session_of(other)
    assert sent_texts(any_world) == ["1", "a", "2 instead", "c", "3"]
    assert await client.responses.retrieve(second.id) == second


async def test_the_events_of_a_stream_make_the_response(
    world: OpenAIWorld, client: AsyncOpenAI
) -> None:
    world.model.will(Reply("Well, hello to you.", reasoning="They greet."))

    async with client.responses.stream(model=MODEL, input="hi") as stream:
        events: list[Any] = [event async for event in stream]
        final: Any = await stream.get_final_response()

    kinds = [each.type for each in events]
    distinct = [kind for n, kind in enumerate(kinds) if n == 0 or kinds[n - 1] != kind]
    assert distinct == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [each.sequence_number for each in events] == list(range(len(events)))
    deltas = [each.delta for each in events if each.type == "response.output_text.delta"]
    assert len(deltas) > 1
    assert "".join(deltas) == final.output_text == "Well, hello to you."
    stored = await client.responses.retrieve(final.id)
    assert [each.id for each in final.output] == [each.id for each in stored.output]


async def test_tools_of_the_client_are_called_by_it_and_the_answer_goes_on(
    any_world: OpenAIWorld,
) -> None:
    client = await connected(any_world)
    any_world.model.will(
        Reply("Let me see.", calls=(Call("look", {"at": "door"}, id="c1"),)), Reply("It is open.")
    )
    tools = [LOOK]

    first = await ask(client, "Is the door open?", tools=tools)
    [_, call] = first.output
    assert call.type == "function_call"
    second = await ask(
        client,
        [{"type": "function_call_output", "call_id": call.call_id, "output": "open"}],
        previous_response_id=first.id,
        tools=tools,
    )

    assert (call.name, json.loads(call.arguments)) == ("look", {"at": "door"})
    assert first.tools[0].type == "function"
    assert second.output_text == "It is open."
    assert session_of(first) == session_of(second)
    offered = any_world.model.requests[-1].body["tools"]
    assert [each["function"]["name"] for each in offered] == ["look"]
    assert any_world.model.requests[-1].body["messages"][-1]["content"] == "open"


async def test_a_call_of_the_clients_tool_is_streamed(
    world: OpenAIWorld, client: AsyncOpenAI
) -> None:
    world.model.will(Reply(calls=(Call("look", {"at": "door"}, id="c1"),)))

    async with client.responses.stream(model=MODEL, input="door?", tools=[LOOK]) as stream:
        kinds = [each.type async for each in stream]
        final: Any = await stream.get_final_response()

    assert "response.function_call_arguments.delta" in kinds
    assert "response.function_call_arguments.done" in kinds
    assert final.output[0].type == "function_call"
    assert final.output[0].arguments == '{"at":"door"}'


async def test_a_client_that_sends_all_items_again_continues_one_session(
    any_world: OpenAIWorld,
) -> None:
    client = await connected(any_world)
    any_world.model.will(
        Reply("Looking.", calls=(Call("look", {"at": "x"}, id="c1"),)),
        Reply("Seen."),
        Reply("Bye."),
    )
    items: list[Any] = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "x?"},
    ]

    first = await ask(client, items, tools=[LOOK])
    items += [each.model_dump() for each in first.output]
    items.append({"type": "function_call_output", "call_id": "c1", "output": "a thing"})
    second = await ask(client, items, tools=[LOOK])
    items += [each.model_dump() for each in second.output]
    items.append({"role": "user", "content": "bye"})
    third = await ask(client, items, store=False)

    assert session_of(first) == session_of(second) == session_of(third)
    texts = sent_texts(any_world)
    assert texts == ["x?", "Looking.", "a thing", "Seen.", "bye"]


def system_prompt(world: OpenAIWorld) -> str:
    return str(world.model.requests[-1].body["messages"][0]["content"])


async def test_system_messages_count_as_they_were_sent_last(
    world: OpenAIWorld, client: AsyncOpenAI
) -> None:
    world.model.otherwise = Reply("yes")
    items: list[Any] = [
        {"role": "system", "content": "It is noon."},
        {"role": "user", "content": "hi"},
    ]

    first = await ask(client, items, instructions="Be kind.")
    assert system_prompt(world).endswith("It is noon.\n\nBe kind.")
    again = [
        {"role": "system", "content": "It is night."},
        *items[1:],
        *(each.model_dump() for each in first.output),
        {"role": "user", "content": "and now?"},
    ]
    second = await ask(client, again)
    assert "It is noon." not in system_prompt(world)
    assert system_prompt(world).endswith("It is night.")
    third = await ask(client, "more", previous_response_id=second.id)
    assert system_prompt(world).endswith("It is night.")

    assert session_of(first) == session_of(second) == session_of(third)
    assert (first.instructions, second.instructions) == ("Be kind.", None)
    texts = await texts_of(client, session_of(first), order="asc")
    assert texts == ["hi", "yes", "and now?", "yes", "more", "yes"]
    sent: Any = await client.responses.input_items.list(first.id, order="asc")
    assert [each.role for each in sent.data] == ["system", "user"]


async def test_a_system_message_in_a_conversation_stays_in_it(
    world: OpenAIWorld, client: AsyncOpenAI
) -> None:
    world.model.otherwise = Reply("yes")
    conversation = await client.conversations.create()
    items: list[Any] = [
        {"role": "developer", "content": "Rhyme."},
        {"role": "user", "content": "hi"},
    ]

    await ask(client, items, conversation=conversation.id)
    await ask(client, "more", conversation=conversation.id)

    assert "Rhyme." in json.dumps(world.model.requests[-1].body["messages"])
    assert await texts_of(client, conversation.id, order="asc") == [
        "Rhyme.",
        "hi",
        "yes",
        "more",
        "yes",
    ]


async def test_items_can_be_referred_to_by_their_ids(
    world: OpenAIWorld, client: AsyncOpenAI
) -> None:
    world.model.will(Reply("one", reasoning="hm"), Reply("two"))
    first = await ask(client, "hi")

    output: Any = first.output
    references: list[Any] = [{"type": "item_reference", "id": each.id} for each in output]
    second = await ask(
        client,
        [{"role": "user", "content": "hi"}, *references, {"role": "user", "content": "go on"}],
    )

    assert session_of(second) == session_of(first)
    assert sent_texts(world) == ["hi", "one", "go on"]
    missing: Any = [{"type": "item_reference", "id": "msg_nothing_0"}]
    error = await refused(ask(client, missing), openai.NotFoundError, "msg_nothing_0")
    assert error.param == "input"


async def test_an_agents_own_tools_run_here_and_are_shown_as_done(
    store: Store, model: ModelServer
) -> None:
    async with openai_world(store, model, tools=(TOOLS,)) as world:
        client = await connected(world)
        world.model.will(
            Reply("Reading.", calls=(Call("read_lines", {"count": 1}, id="c1"),)), Reply("Done.")
        )

        async with client.responses.stream(model=MODEL, input="read") as stream:
            kinds = [each.type async for each in stream]
            final: Any = await stream.get_final_response()

        assert [each.type for each in final.output] == ["message", "mcp_call", "message"]
        assert final.output_text == "Reading.\n\nDone."
        call = final.output[1]
        assert call.type == "mcp_call"
        assert (call.name, call.status, call.server_label) == ("read_lines", "completed", MODEL)
        assert call.output
        assert "response.mcp_call.completed" in kinds
        stored = await client.responses.retrieve(final.id)
        assert [each.id for each in stored.output] == [each.id for each in final.output]
        items: Any = [
            {"role": "user", "content": "read"},
            *(each.model_dump() for each in stored.output),
            {"role": "user", "content": "again"},
        ]
        world.model.will(Reply("No."))
        assert session_of(await ask(client, items)) == session_of(stored)


async def test_a_conversation_goes_on_with_each_response(
    world: OpenAIWorld, client: AsyncOpenAI
) -> None:
    conversation = await client.conversations.create(
        items=[{"type": "message", "role": "user", "content": "I am Ada."}]
    )
    world.model.will(Reply("Hello Ada."), Reply("Ada."))

    first = await ask(client, "hello", conversation=conversation.id)
    await ask(client, "who am I?", conversation={"id": conversation.id})

    assert session_of(first) == conversation.id
    assert sent_texts(world)[-1] == "who am I?"
    assert "I am Ada." in sent_texts(world)[0]
    texts = await texts_of(client, conversation.id, order="asc")
    assert texts == ["I am Ada.", "hello", "Hello Ada.", "who am I?", "Ada."]
    items = [each async for each in client.conversations.items.list(conversation.id, order="asc")]
    assert items[2].id == first.output[-1].id
    error = await refused(
        ask(client, "x", conversation="conv_none"), openai.NotFoundError, "no conversation"
    )
    assert error.param == "conversation"


async def test_a_session_is_named_by_metadata_or_a_header(
    world: OpenAIWorld, client: AsyncOpenAI
) -> None:
    world.model.will(Reply("a"), Reply("b"))

    one = await ask(client, "1", metadata={"session": "tea-time"})
    two = await ask(client, "2", extra_headers={"X-Session-Id": "conv_tea-time"})

    assert session_of(one) == session_of(two) == "conv_tea-time"
    assert sent_texts(world) == ["1", "a", "2"]


async def test_a_chat_goes_on_in_a_conversation(world: OpenAIWorld, client: AsyncOpenAI) -> None:
    world.model.will(Reply("a"), Reply("b"))
    made = await ask(client, "1")

    await client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "2"}],
        extra_body={"conversation": session_of(made)},
    )

    assert await texts_of(client, session_of(made), order="asc") == ["1", "a", "2", "b"]


async def test_what_was_not_to_be_stored_is_not_found_but_recorded(
    world: OpenAIWorld, client: AsyncOpenAI
) -> None:
    world.model.will(Reply("secret answer"))

    made = await ask(client, "secret", store=False)

    assert made.model_dump()["store"] is False
    await refused(client.responses.retrieve(made.id), openai.NotFoundError, "no response")
    error = await refused(
        ask(client, "more", previous_response_id=made.id), openai.BadRequestError, "go on from"
    )
    assert (error.code, error.param) == ("previous_response_not_found", "previous_response_id")
    assert await texts_of(client, session_of(made)) == ["secret answer", "secret"]


async def test_a_deleted_response_is_not_found_any_more(any_world: OpenAIWorld) -> None:
    client = await connected(any_world)
    any_world.model.will(Reply("answer"))
    made = await ask(client, "hi")

    await client.responses.delete(made.id)

    for call in (
        client.responses.retrieve(made.id),
        client.responses.delete(made.id),
        client.responses.cancel(made.id),
    ):
        await refused(call, openai.NotFoundError)
    assert await texts_of(client, session_of(made)) == ["answer", "hi"]


async def test_a_response_in_the_background_is_polled_and_streamed(any_world: OpenAIWorld) -> None:
    client = await connected(any_world)
    gate = asyncio.Event()

    async def hold(_: Any, moment: str) -> None:
        if moment == "asked":
            await gate.wait()

    any_world.model.at_moment = hold
    any_world.model.will(Reply("At last."))

    made = await ask(client, "take your time", background=True)
    assert (made.status, made.output, made.background) == ("in_progress", [], True)
    assert (await client.responses.retrieve(made.id)).status == "in_progress"
    error = await refused(
        ask(client, "x", previous_response_id=made.id), openai.ConflictError, "still being written"
    )
    assert error.param == "previous_response_id"
    followed = asyncio.ensure_future(client.responses.retrieve(made.id, stream=True))
    gate.set()
    kinds = [each.type async for each in await followed]

    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    done = await client.responses.retrieve(made.id)
    assert (done.status, done.output_text) == ("completed", "At last.")
    again: list[Any] = [
        each async for each in await client.responses.retrieve(made.id, stream=True)
    ]
    assert again[-1].response == done
    with pytest.raises(openai.BadRequestError):
        await client.responses.retrieve(made.id, stream=True, starting_after=3)


async def test_a_response_is_cancelled(any_world: OpenAIWorld) -> None:
    client = await connected(any_world)
    streaming = asyncio.Event()

    async def tell(_: Any, moment: str) -> None:
        if moment == "streaming":
            streaming.set()
            await asyncio.Event().wait()

    any_world.model.at_moment = tell
    any_world.model.will(Reply("a long answer that never ends"))
    made = await ask(client, "go", background=True)
    await streaming.wait()

    cancelled = await client.responses.cancel(made.id)

    assert cancelled.status == "cancelled"
    assert await client.responses.retrieve(made.id) == cancelled
    assert (await client.responses.cancel(made.id)).status == "cancelled"
    any_world.model.at_moment = None
    any_world.model.will(Reply("Fine."))
    assert (await ask(client, "again", previous_response_id=made.id)).output_text == "Fine."


async def test_whoever_reads_a_stream_sees_that_it_was_cancelled(
    world: OpenAIWorld, client: AsyncOpenAI
) -> None:
    streaming = asyncio.Event()

    async def tell(_: Any, moment: str) -> None:
        if moment == "streaming":
            streaming.set()
            await asyncio.Event().wait()

    world.model.at_moment = tell
    world.model.will(Reply("a long answer that never ends"))
    stream = await client.responses.create(model=MODEL, input="go", stream=True)
    events: list[Any] = []
    async for event in stream:
        events.append(event)
        if event.type == "response.output_text.delta" and len(events) == 5:
            await streaming.wait()
            await client.responses.cancel(events[0].response.id)

    kinds = [each.type for each in events]
    assert kinds[-1] == "response.failed"
    assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done")
    deltas = [each.delta for each in events if each.type == "response.output_text.delta"]
    end = events[-1].response
    assert (end.status, end.output[-1].status) == ("cancelled", "incomplete")
    assert end.output_text == "".join(deltas)
    assert await client.responses.retrieve(end.id) == end


async def test_an_old_response_is_read_without_the_rest_of_its_session(
    tmp_path: Path, model: ModelServer
) -> None:
    counter = StatementCounter()
    with counted_sqlite(counter):
        url = f"sqlite:///{tmp_path}/s.db"
        opened = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
        async with openai_world(opened, model) as world:
            client = await connected(world)
            model.otherwise = Reply("yes")
            first = await ask(client, "one")
            await ask(client, "two", previous_response_id=first.id)
        facts: Any = first.model_extra
        turn_id, session_id = (facts["sessionary"][name] for name in ("turn_id", "session_id"))

        async def statements() -> int:
            counter.clear()
            progress = await opened.read(exchange.read_progress, turn_id, after=1, profile="main")
            assert progress is not None
            assert [each.body.text for each in progress.written] == ["yes"]  # type: ignore[union-attr]
            return counter.statements

        before = await statements()
        await opened.write(_append_many, session_id, count=3000)

        assert await statements() == before
        opened.close()


def _append_many(tx: Tx, session_id: str, *, count: int) -> None:
    for number in range(count):
        log.append(tx, session_id, message("user", f"note {number}"), profile="main", at=NOW)


async def test_a_repeated_request_with_its_key_is_one_turn(any_world: OpenAIWorld) -> None:
    client = await connected(any_world)
    any_world.model.will(Reply("once"))
    key = {"Idempotency-Key": "once"}

    one = await ask(client, "hi", extra_headers=key)
    two = await ask(client, "hi", extra_headers=key)

    assert one == two
    assert len(any_world.model.requests) == 1
    await refused(ask(client, "other", extra_headers=key), openai.ConflictError, "another request")


async def test_a_request_that_a_client_repeats_by_itself_is_one_response(
    any_world: OpenAIWorld,
) -> None:
    client = await connected(any_world)
    any_world.model.will(Reply("once"), Reply("again"))

    one = await ask(client, "hi")
    two = await ask(client, "hi", extra_headers={"X-Stainless-Retry-Count": "1"})
    other = await ask(client, "hi")

    assert one == two
    assert other.id != one.id


async def test_a_stream_that_is_asked_for_again_is_the_same_response(
    any_world: OpenAIWorld,
) -> None:
    client = await connected(any_world)
    any_world.model.will(Reply("once and for all", reasoning="hm"))
    key = {"Idempotency-Key": "once"}
    ends: list[Any] = []

    for _ in range(2):
        stream = await client.responses.create(
            model=MODEL, input="hi", stream=True, extra_headers=key
        )
        events: list[Any] = [each async for each in stream]
        assert [each.sequence_number for each in events] == list(range(len(events)))
        deltas = [each.delta for each in events if each.type == "response.output_text.delta"]
        assert "".join(deltas) == "once and for all"
        ends.append(events[-1].response)

    assert ends[0] == ends[1]
    assert len(any_world.model.requests) == 1


async def test_an_agent_that_fails_is_an_error_and_a_stored_failure(
    world: OpenAIWorld, client: AsyncOpenAI
) -> None:
    world.model.otherwise = Refusal(400, "no such thing")

    await refused(ask(client, "hi"), openai.InternalServerError, "did not answer")
    events = [
        each async for each in await client.responses.create(model=MODEL, input="hi", stream=True)
    ]

    assert events[-1].type == "response.failed"
    failed = await client.responses.retrieve(events[-1].response.id)
    assert failed.status == "failed"
    assert failed.error is not None
    assert "no such thing" in failed.error.message


async def test_an_answer_that_is_too_long_is_incomplete(
    world: OpenAIWorld, client: AsyncOpenAI
) -> None:
    world.model.will(Reply("One two", finish="length"))

    made = await ask(client, "count", max_output_tokens=2)

    assert made.status == "incomplete"
    assert made.incomplete_details is not None
    assert made.incomplete_details.reason == "max_output_tokens"
    assert world.model.requests[-1].body["max_completion_tokens"] == 2


async def test_files_reach_the_model_as_attachments(
    world: OpenAIWorld, client: AsyncOpenAI
) -> None:
    world.model.will(Reply("A report."))
    file = await kept(client, data=b"Sales rose by a third.")
    content: Any = [
        {"type": "input_text", "text": "What is it?"},
        {"type": "input_file", "file_id": file.id},
    ]

    made = await ask(client, [{"role": "user", "content": content}])

    assert "Sales rose by a third." in json.dumps(world.model.requests[-1].body["messages"])
    page: Any = await client.responses.input_items.list(made.id)
    [item] = page.data
    assert item.content[1].file_id == file.id
    content[1]["file_id"] = "file-none"
    error = await refused(
        ask(client, [{"role": "user", "content": content}]), openai.NotFoundError, "file-none"
    )
    assert error.param == "file_id"


async def test_a_kept_picture_reaches_the_model(world: OpenAIWorld, client: AsyncOpenAI) -> None:
    world.model.will(Reply("A pixel."))
    picture = b"\x89PNG\r\n\x1a\n" + bytes(20)
    file = await kept(client, "a.png", data=picture, purpose="vision")
    content: Any = [{"type": "input_image", "file_id": file.id, "detail": "auto"}]

    made = await ask(client, [{"role": "user", "content": content}])

    assert base64.b64encode(picture).decode() in json.dumps(world.model.requests[-1].body)
    page: Any = await client.responses.input_items.list(made.id)
    assert page.data[0].content[0].file_id == file.id


async def test_files_reach_the_model_of_a_chat_too(world: OpenAIWorld, client: AsyncOpenAI) -> None:
    world.model.will(Reply("A report."))
    file = await kept(client, data=b"Sales rose by a third.")
    part: Any = {"type": "file", "file": {"file_id": file.id}}

    await client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": [part]}]
    )

    assert "Sales rose by a third." in json.dumps(world.model.requests[-1].body["messages"])


class Answer(BaseModel):
    """What the parse helper reads."""

    word: str


async def test_an_answer_in_a_form_is_parsed(world: OpenAIWorld, client: AsyncOpenAI) -> None:
    world.model.will(Reply('{"word":"tea"}'))

    made = await client.responses.parse(model=MODEL, input="a word", text_format=Answer)

    assert made.output_parsed == Answer(word="tea")
    form = world.model.requests[-1].body["response_format"]
    assert form["json_schema"]["name"] == "Answer"


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": [{"type": "computer_call"}]}, "input[0]"),
        ({"input": [{"role": "assistant", "content": "x"}]}, "input"),
        ({"input": [{"role": "developer", "content": "x"}]}, "input"),
        ({"metadata": {"session": "x" * 300}}, "metadata.session"),
        ({"extra_headers": {"X-Session-Id": "x" * 300}}, "X-Session-Id"),
        ({"model": ""}, "model"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [LOOK, LOOK]}, "tools[1].name"),
        ({"tools": [LOOK], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"temperature": 5}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"reasoning": {"effort": "much"}}, "reasoning.effort"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"background": True, "store": False}, "background"),
        ({"previous_response_id": "resp_1", "conversation": "conv_1"}, "previous_response_id"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"stream": "yes"}, "stream"),
        ({"instructions": ["x"]}, "instructions"),
    ],
)
async def test_what_cannot_be_honoured_is_refused_by_its_name(
    world: OpenAIWorld, client: AsyncOpenAI, more: dict[str, Any], param: str
) -> None:
    asked = {"model": MODEL, "input": "hi", **more}

    error = await refused(client.responses.create(**asked), openai.BadRequestError)

    assert error.param == param
    assert world.model.requests == []


async def test_what_is_harmless_is_ignored(world: OpenAIWorld, client: AsyncOpenAI) -> None:
    world.model.will(Reply("fine"))

    made = await ask(
        client,
        "hi",
        truncation="auto",
        service_tier="flex",
        prompt_cache_key="k",
        safety_identifier="ada",
        parallel_tool_calls=False,
        include=["file_search_call.results"],
        extra_body={"something_new": {"x": 1}},
    )

    assert (made.truncation, made.safety_identifier) == ("auto", "ada")


async def test_another_profile_sees_no_response_and_a_reader_asks_nothing(
    world: OpenAIWorld, client: AsyncOpenAI
) -> None:
    world.model.will(Reply("mine"))
    made = await ask(client, "hi")
    other = await connected(world, profile="other")
    reader = await connected(world, Scope.READ)

    for call in (
        other.responses.retrieve(made.id),
        other.responses.delete(made.id),
        other.responses.input_items.list(made.id),
    ):
        await refused(call, openai.NotFoundError)
    assert (await reader.responses.retrieve(made.id)).output_text == "mine"
    await refused(ask(reader, "hi"), openai.PermissionDeniedError)
    await refused(reader.responses.cancel(made.id), openai.PermissionDeniedError)


async def test_input_items_are_listed_page_by_page(world: OpenAIWorld, client: AsyncOpenAI) -> None:
    world.model.will(Reply("x"), Reply("y"))
    messages: Any = [{"role": "user", "content": str(n)} for n in range(5)]
    made = await ask(client, messages)
    after = await ask(client, "next", previous_response_id=made.id)

    pages = client.responses.input_items
    newest = [each async for each in pages.list(made.id, limit=2)]
    oldest: list[Any] = [each async for each in pages.list(made.id, limit=2, order="asc")]

    assert newest == oldest[::-1]
    assert [each.content[0].text for each in oldest] == list("01234")
    page: Any = await pages.list(after.id)
    ResponseItemList.model_validate(page.model_dump(by_alias=True))
    assert [each.content[0].text for each in page.data] == ["next"]


async def test_the_synchronous_client_works_too(world: OpenAIWorld, client: AsyncOpenAI) -> None:
    world.model.will(Reply("Hello!"), Reply("Bye!"))

    def talk() -> list[str]:
        with OpenAI(base_url=world.url, api_key=client.api_key) as ours:
            first = ours.responses.create(model=MODEL, input="hi")
            with ours.responses.stream(
                model=MODEL, input="bye", previous_response_id=first.id
            ) as stream:
                stream.until_done()
                return [first.output_text, stream.get_final_response().output_text]

    assert await asyncio.to_thread(talk) == ["Hello!", "Bye!"]


async def test_a_body_that_is_no_request_is_refused_in_openais_shape(
    world: OpenAIWorld, client: AsyncOpenAI
) -> None:
    headers = {"Authorization": f"Bearer {client.api_key}"}
    async with httpx2.AsyncClient(base_url=world.url, headers=headers) as http:
        for body in (b"[]", b"{", b"\xff", b'"x"', b"[" * 100 + b"]" * 100):
            answer = await http.post(
                "/responses", content=body, headers={"Content-Type": "application/json"}
            )
            assert answer.status_code == 400
            assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_characters_that_no_database_stores_are_taken(any_world: OpenAIWorld) -> None:
    any_world.model.otherwise = Reply("fine")
    odd = "a\\u0000b\\ud800"
    tool = json.dumps(LOOK).replace("Look at a place.", odd)
    text = (
        f'{{"model": "assistant", "input": "{odd}", "instructions": "{odd}", "tools": [{tool}], '
        f'"user": "{odd}", "metadata": {{"{odd}": "{odd}"}}, "safety_identifier": "{odd}"}}'
    )
    headers = {
        "Authorization": f"Bearer {await any_world.token()}",
        "Content-Type": "application/json",
    }
    async with httpx2.AsyncClient(base_url=any_world.url, headers=headers) as http:
        answer = await http.post("/responses", content=text.encode())
        assert answer.status_code == 200, answer.text
        for path in (
            f"/responses/{answer.json()['id']}",
            f"/responses/{answer.json()['id']}/input_items",
            f"/conversations/{answer.json()['conversation']['id']}/items",
        ):
            found = await http.get(path)
            assert found.status_code == 200, found.text
        for id in ("%00", "resp_%00", "resp_%ED%A0%80", "resp_" + "x" * 3000, "resp_.._..", "%2e"):
            for path in (f"/responses/{id}", f"/files/{id}", f"/conversations/{id}/items/{id}"):
                assert (await http.get(path)).status_code in (400, 404), path


async def test_a_message_that_only_looks_like_a_request_is_no_response(
    world: OpenAIWorld, client: AsyncOpenAI
) -> None:
    """`/arrivals` takes any source."""
    world.model.otherwise = Reply("fine")
    headers = {"Authorization": f"Bearer {client.api_key}"}
    address = world.url.removesuffix("/v1")
    async with httpx2.AsyncClient(base_url=address, headers=headers) as http:
        odd: list[Any] = [{}, {"model": 5}, {"model": "m", "system_length": "x"}, []]
        for asked in odd:
            awaited = {"fingerprint": "x", "asked": asked}
            source = {"platform": "api", "chat_id": str(asked), "awaited": awaited}
            sent = await http.post("/api/v1/arrivals", json={"source": source, "text": "hi"})
            await world.world.settle(world.engine)
            id = f"resp_{sent.json()['arrival_id']}"
            await refused(client.responses.retrieve(id), openai.NotFoundError)
