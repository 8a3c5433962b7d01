"""Chat completions, asked for by OpenAI's own Python package."""

from typing import Any

from tests.support.model_server import Reply, Tokens
from tests.support.openai_world import OpenAIWorld

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
