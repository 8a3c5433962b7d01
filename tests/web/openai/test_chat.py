"""Chat completions, asked for by OpenAI's own Python package."""

import asyncio
import base64
import json
import sys
from typing import Any

import openai
import pytest

from sessionary.agents.command import CommandOptions, CommandRunner
from sessionary.model.access import Scope
from sessionary.store.database import Store
from sessionary.web.openai import exchange
from tests.support.model_agent import TOOLS
from tests.support.model_server import Call, ModelServer, Reply, Tokens
from tests.support.openai_world import OpenAIWorld, openai_world, session_of

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


async def test_a_chat_is_answered_by_the_agent(server: OpenAIWorld) -> None:
    client = await server.client()
    server.model.will(Reply("Good morning to you", tokens=Tokens(fresh=10, cache_read=4, output=5)))

    answer = await client.chat.completions.create(model="assistant", messages=HELLO)

    assert answer.choices[0].message.content == "Good morning to you"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (14, 5)
    assert answer.model == "assistant"


async def test_a_chat_is_streamed_as_it_is_written(server: OpenAIWorld) -> None:
    client = await server.client()
    server.model.will(Reply("One two three four five six"))

    stream = await client.chat.completions.create(
        model="assistant", messages=HELLO, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]

    texts = [each.choices[0].delta.content for each in chunks if each.choices]
    assert "".join(filter(None, texts)) == "One two three four five six"
    assert len([each for each in texts if each]) > 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [each.choices[0].finish_reason for each in chunks if each.choices][-1] == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 15


WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a town.",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
    },
}


async def test_a_program_runs_its_own_tools_and_the_agent_its_own(
    store: Store, model: ModelServer
) -> None:
    both = (
        Call("read_lines", {"count": 1}, id="own"),
        Call("weather", {"town": "Rome"}, id="theirs"),
    )
    async with openai_world(store, model, tools=(TOOLS,)) as server:
        client = await server.client()
        model.will(Reply("I look.", calls=both), Reply("It rains in Rome."))
        messages: list[Any] = [{"role": "user", "content": "weather in Rome?"}]

        first = await client.chat.completions.create(
            model="assistant", messages=messages, tools=[WEATHER]
        )
        asked = first.choices[0].message
        assert first.choices[0].finish_reason == "tool_calls"
        assert asked.content == "I look."
        assert [each.id for each in asked.tool_calls or ()] == ["theirs"]
        messages += [
            asked.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": "theirs", "content": "rain"},
        ]
        second = await client.chat.completions.create(
            model="assistant", messages=messages, tools=[WEATHER]
        )

        assert second.choices[0].message.content == "It rains in Rome."
        assert session_of(first) == session_of(second)
        told = {
            each["tool_call_id"]: each["content"]
            for each in model.requests[-1].messages
            if each["role"] == "tool"
        }
        assert told["theirs"] == "rain"
        assert told["own"].startswith("line ")
        names = [each["function"]["name"] for each in model.requests[0].body["tools"]]
        assert {"weather", "read_lines"} <= set(names)


async def test_the_result_of_a_call_that_nobody_has_made_is_refused(server: OpenAIWorld) -> None:
    client = await server.client()
    result = {"role": "tool", "tool_call_id": "unknown", "content": "rain"}

    async def refused(**request: Any) -> None:
        with pytest.raises(openai.BadRequestError) as error:
            await client.post(
                cast_to=object, body={"model": "assistant"} | request.pop("body"), **request
            )
        assert "No tool call 'unknown' is known" in str(error.value)

    server.model.otherwise = Reply("hi")
    first = await client.responses.create(model="assistant", input="hello")
    output = {"type": "function_call_output", "call_id": "unknown", "output": "rain"}

    await refused(path="/chat/completions", body={"messages": [*HELLO, result]})
    await refused(path="/chat/completions", body={"messages": [result], "session": "new"})
    await refused(path="/responses", body={"input": [output], "previous_response_id": first.id})

    assert await server.count() == 1


async def test_calls_are_streamed_with_their_ids_and_arguments(server: OpenAIWorld) -> None:
    client = await server.client()
    calls = (Call("weather", {"town": "Rome"}, id="a"), Call("weather", {"town": "Oslo"}, id="b"))
    server.model.will(Reply(calls=calls))

    async with client.chat.completions.stream(
        model="assistant", messages=HELLO, tools=[WEATHER], parallel_tool_calls=True
    ) as stream:
        final = await stream.get_final_completion()

    made = final.choices[0].message.tool_calls or []
    assert [(each.id, json.loads(each.function.arguments)) for each in made] == [
        ("a", {"town": "Rome"}),
        ("b", {"town": "Oslo"}),
    ]
    assert final.choices[0].finish_reason == "tool_calls"
    assert server.model.requests[0].body["parallel_tool_calls"] is True


async def test_the_settings_of_a_request_reach_the_model(server: OpenAIWorld) -> None:
    client = await server.client()
    server.model.will(Reply('{"town": "Rome"}'), Reply("done"))
    schema: Any = {
        "type": "object",
        "properties": {"town": {"type": "string"}},
        "required": ["town"],
    }
    output: Any = {
        "type": "json_schema",
        "json_schema": {"name": "place", "schema": schema, "strict": True},
    }
    chosen: Any = {"type": "function", "function": {"name": "weather"}}

    await client.chat.completions.create(
        model="assistant/big",
        messages=[{"role": "system", "content": "Speak like a pirate."}, *HELLO],
        temperature=0.25,
        max_completion_tokens=77,
        stop=["END"],
        seed=3,
        tools=[WEATHER],
        tool_choice=chosen,
        response_format=output,
    )
    await client.chat.completions.create(
        model="big", messages=HELLO, tool_choice="none", tools=[WEATHER]
    )

    sent = server.model.requests[0].body
    assert (sent["model"], sent["temperature"], sent["seed"], sent["stop"]) == (
        "big",
        0.25,
        3,
        ["END"],
    )
    assert 77 in (sent.get("max_tokens"), sent.get("max_completion_tokens"))
    assert sent["response_format"]["json_schema"]["schema"]["required"] == ["town"]
    # There is no other tool.
    assert sent["tool_choice"] == "required"
    assert "Speak like a pirate." in str(sent["messages"][0])
    assert server.model.requests[1].body["model"] == "big"
    assert "tools" not in server.model.requests[1].body


async def test_a_picture_in_a_message_is_kept_and_shown_to_the_model(server: OpenAIWorld) -> None:
    client = await server.client()
    server.model.will(Reply("A dot."))
    dot = base64.b64encode(PNG).decode()

    answer = await client.chat.completions.create(
        model="assistant",
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "what is this?"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{dot}"}},
                    {"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x.png"}},
                ],
            }
        ],
    )

    content = server.model.requests[0].messages[-1]["content"]
    assert any(dot in str(each) for each in content)
    assert "[image: http://127.0.0.1:1/x.png]" in str(content)
    assert (await server.texts(session_of(answer)))[0].startswith("user: what is this?")


async def test_agents_and_their_models_are_listed(server: OpenAIWorld) -> None:
    client = await server.client(Scope.READ)

    names = [each.id async for each in client.models.list()]

    assert names == ["assistant", "plain", "assistant/openai:m", "assistant/openai:big"]
    assert (await client.models.retrieve("assistant/openai:big")).id == "assistant/openai:big"
    with pytest.raises(openai.NotFoundError) as error:
        await client.models.retrieve("gpt-9")
    assert error.value.code == "model_not_found"


async def test_the_blocking_client_works_as_well(server: OpenAIWorld) -> None:
    server.model.will(Reply("yes it does"))
    token = await server.token()

    def ask() -> str:
        with openai.OpenAI(base_url=server.url, api_key=token, max_retries=0) as client:
            chunks = client.chat.completions.create(model="assistant", messages=HELLO, stream=True)
            return "".join(each.choices[0].delta.content or "" for each in chunks)

    assert await asyncio.to_thread(ask) == "yes it does"


PROGRAM = """
import json, sys
request = json.loads(sys.stdin.readline())
last = request["context"][-1]
if last["role"] == "tool":
    print(json.dumps({"reply": "It says " + last["content"]}))
elif "output" in request:
    print(json.dumps({"reply": json.dumps({"schema": request["output"]["schema"]})}))
else:
    [tool] = request["client_tools"]
    call = {"type": "tool_call", "id": "c1", "name": tool["name"], "arguments": {"town": "Rome"}}
    print(json.dumps({"step": {"role": "assistant", "parts": [call]}}))
"""


async def test_a_program_that_is_an_agent_may_take_the_tools_of_another(
    store: Store, model: ModelServer
) -> None:
    command = (sys.executable, "-S", "-c", PROGRAM)
    runner = CommandRunner(CommandOptions(command=command, client_tools=True))
    async with openai_world(store, model, runners={"plain": runner}) as server:
        client = await server.client()
        messages = list(HELLO)

        first = await client.chat.completions.create(
            model="plain", messages=messages, tools=[WEATHER]
        )
        [call] = first.choices[0].message.tool_calls or []
        messages += [
            first.choices[0].message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "rain"},
        ]
        second = await client.chat.completions.create(
            model="plain", messages=messages, tools=[WEATHER]
        )
        formed = await client.chat.completions.create(
            model="plain", messages=HELLO, response_format={"type": "json_object"}
        )

    assert first.choices[0].finish_reason == "tool_calls"
    assert call.type == "function"
    assert second.choices[0].message.content == "It says rain"
    assert session_of(first) == session_of(second)
    assert formed.choices[0].message.content == '{"schema": null}'


async def streamed(client: openai.AsyncOpenAI, messages: list[Any], model: str) -> str:
    chunks = await client.chat.completions.create(model=model, messages=messages, stream=True)
    return "".join([each.choices[0].delta.content or "" async for each in chunks])


async def test_an_agent_that_streams_other_text_than_it_finishes_loses_nothing(
    server: OpenAIWorld,
) -> None:
    client = await server.client()

    # It streams "looking", which is in no message, and then its answer.
    text = await streamed(client, HELLO, "plain")
    again = await streamed(
        client,
        [*HELLO, {"role": "assistant", "content": text}, {"role": "user", "content": "more"}],
        "plain",
    )

    assert text == "looking\n\nre: hello"
    assert again == "looking\n\nre: more"
    assert await server.count() == 1


async def test_events_that_were_missed_are_made_up_for_from_the_log(
    server: OpenAIWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_QUEUE_LENGTH", 1)
    client = await server.client()
    long = Reply(" ".join(f"word{n}" for n in range(200)))
    server.model.will(long, long)

    one, two = await asyncio.gather(
        streamed(client, HELLO, "assistant"), streamed(client, [*HELLO, *HELLO], "assistant")
    )

    assert one == two == long.text
