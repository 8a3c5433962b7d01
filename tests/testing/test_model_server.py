"""The fake model server is real to the providers' own libraries."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests.support.model_script import count_tokens
from tests.support.model_server import Call, ModelServer, Refusal, Reply, Tokens

ASKED: Any = [{"role": "user", "content": "hello"}]
ANSWER = Reply(
    "Hello, dear Ann.",
    calls=(Call("look", {"at": "tea"}),),
    reasoning="She is here.",
    tokens=Tokens(fresh=10, cache_read=3, cache_write=0, output=5, reasoning=2),
)


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def openai_client(server: ModelServer) -> AsyncIterator[openai.AsyncOpenAI]:
    client = openai.AsyncOpenAI(base_url=server.openai_url, api_key="k", max_retries=0)
    yield client
    await client.close()


@pytest.fixture
async def anthropic_client(server: ModelServer) -> AsyncIterator[anthropic.AsyncAnthropic]:
    client = anthropic.AsyncAnthropic(base_url=server.url, api_key="k", max_retries=0)
    yield client
    await client.close()


async def test_openai_s_library_reads_a_stream(
    server: ModelServer, openai_client: openai.AsyncOpenAI
) -> None:
    server.will(ANSWER)

    stream = await openai_client.chat.completions.create(
        model="m",
        messages=ASKED,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]

    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == "Hello, dear Ann."
    calls = [call.function for delta in deltas for call in delta.tool_calls or ()]
    assert "".join(call.arguments or "" for call in calls if call) == '{"at": "tea"}'
    used = chunks[-1].usage
    assert used is not None
    assert (used.prompt_tokens, used.completion_tokens) == (13, 5)


async def test_openai_s_library_reads_a_whole_answer(
    server: ModelServer, openai_client: openai.AsyncOpenAI
) -> None:
    server.will(ANSWER)

    whole = await openai_client.chat.completions.create(
        model="m",
        messages=ASKED,
    )

    assert whole.choices[0].message.content == "Hello, dear Ann."
    assert whole.choices[0].finish_reason == "tool_calls"


async def test_openai_s_library_reads_a_streamed_response(
    server: ModelServer, openai_client: openai.AsyncOpenAI
) -> None:
    server.will(ANSWER)

    async with openai_client.responses.stream(model="m", input="hello") as stream:
        texts = [each.delta async for each in stream if each.type == "response.output_text.delta"]
        whole = await stream.get_final_response()

    assert "".join(texts) == whole.output_text == "Hello, dear Ann."
    assert [item.type for item in whole.output] == ["reasoning", "message", "function_call"]
    assert whole.usage is not None
    assert (whole.usage.input_tokens, whole.usage.output_tokens) == (13, 5)
    assert server.requests[0].messages == ASKED


async def test_openai_s_library_reads_a_whole_response(
    server: ModelServer, openai_client: openai.AsyncOpenAI
) -> None:
    server.will(ANSWER)

    whole = await openai_client.responses.create(model="m", input=ASKED)

    assert whole.output_text == "Hello, dear Ann."
    assert server.requests[0].messages == ASKED


async def test_gemini_s_stream_ends_with_the_tokens(server: ModelServer) -> None:
    server.will(ANSWER)
    path = "/v1beta/models/m:streamGenerateContent?alt=sse"

    async with httpx.AsyncClient() as client:
        given = {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}
        answer = await client.post(server.url + path, json=given)

    lines = [line for line in answer.text.splitlines() if line]
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    parts = [part for each in events for part in each["candidates"][0]["content"]["parts"]]
    spoken = [part["text"] for part in parts if "text" in part and not part.get("thought")]
    assert "".join(spoken) == "Hello, dear Ann."
    assert parts[-2]["functionCall"]["args"] == {"at": "tea"}
    assert events[-1]["usageMetadata"]["totalTokenCount"] == 18
    assert server.requests[0].messages == ASKED


async def test_tokens_are_counted_without_taking_an_answer(
    server: ModelServer, anthropic_client: anthropic.AsyncAnthropic
) -> None:
    counted = await anthropic_client.messages.count_tokens(model="m", messages=ASKED)

    assert counted.input_tokens == 10
    assert server.requests == []


async def test_anthropic_s_library_reads_a_stream(
    server: ModelServer, anthropic_client: anthropic.AsyncAnthropic
) -> None:
    server.will(ANSWER)

    async with anthropic_client.messages.stream(
        model="m",
        max_tokens=10,
        messages=ASKED,
    ) as stream:
        whole = await stream.get_final_message()

    assert [block.type for block in whole.content] == ["thinking", "text", "tool_use"]
    assert whole.content[2].to_dict()["input"] == {"at": "tea"}
    assert (whole.usage.input_tokens, whole.usage.cache_read_input_tokens) == (10, 3)
    assert whole.usage.output_tokens == 5


async def test_anthropic_s_library_reads_a_whole_answer(
    server: ModelServer, anthropic_client: anthropic.AsyncAnthropic
) -> None:
    server.will(ANSWER)

    whole = await anthropic_client.messages.create(
        model="m",
        max_tokens=10,
        messages=ASKED,
    )

    assert whole.stop_reason == "tool_use"


async def test_refusals_are_each_library_s_own_errors(
    server: ModelServer,
    openai_client: openai.AsyncOpenAI,
    anthropic_client: anthropic.AsyncAnthropic,
) -> None:
    server.otherwise = Refusal(429, "slowly", retry_after=7)

    with pytest.raises(openai.RateLimitError, match="slowly") as one:
        await openai_client.chat.completions.create(
            model="m",
            messages=ASKED,
        )
    with pytest.raises(anthropic.RateLimitError, match="slowly") as other:
        await anthropic_client.messages.create(
            model="m",
            max_tokens=1,
            messages=ASKED,
        )

    assert one.value.response.headers["retry-after"] == "7"
    assert other.value.response.headers["retry-after"] == "7"


async def test_a_script_that_is_over_says_so(
    server: ModelServer, openai_client: openai.AsyncOpenAI
) -> None:
    with pytest.raises(openai.BadRequestError, match="no further answer"):
        await openai_client.chat.completions.create(
            model="m",
            messages=ASKED,
        )

    assert server.requests[0].messages == ASKED


WINDOW = 50
SHORT, LONG = "hello", "tea " * 100
PATHS: dict[str, Callable[[str], dict[str, Any]]] = {
    "/v1/chat/completions": lambda text: {"messages": [{"role": "user", "content": text}]},
    "/v1/responses": lambda text: {"input": [{"role": "user", "content": text}]},
    "/v1/messages": lambda text: {"messages": [{"role": "user", "content": text}]},
    "/v1beta/models/m:generateContent": lambda text: {"contents": [{"parts": [{"text": text}]}]},
}


@pytest.mark.parametrize("path", PATHS)
async def test_a_window_is_enforced_in_every_format(server: ModelServer, path: str) -> None:
    server.window = WINDOW
    server.will(ANSWER)
    short, long = (json.dumps(PATHS[path](text)).encode() for text in (SHORT, LONG))

    async with httpx.AsyncClient() as client:
        refused = await client.post(server.url + path, content=long)
        answered = await client.post(server.url + path, content=short)

    assert (refused.status_code, answered.status_code) == (400, 200)
    assert [ask.raw for ask in server.requests] == [long, short]
    assert server.requests[0].tokens > WINDOW >= server.requests[1].tokens
    reported = answered.json().get("usage") or answered.json()["usageMetadata"]
    assert server.requests[1].tokens in reported.values()


def test_tokens_are_a_quarter_of_the_characters_that_the_model_reads() -> None:
    body = {"system": "abc", "messages": ["ä"], "tools": [], "model": "not counted", "stream": True}

    # "abc" and ["ä"], with their quotes and brackets.
    assert count_tokens(body) == -(-(5 + 5) // 4)
