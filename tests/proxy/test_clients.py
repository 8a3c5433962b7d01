"""The official clients of OpenAI and Anthropic, in Python and for Node, through the proxy."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import openai
import pytest

from sessionary.app import proxy as app_proxy
from sessionary.app.context import AppContext, open_app
from sessionary.config.proxy import read_proxy
from sessionary.model.message import ToolCall
from sessionary.model.turn import TurnState
from sessionary.proxy.service import Proxy
from tests.proxy.conftest import ProxyWorld
from tests.support import node_clients
from tests.support.model_server import Call, ModelServer, Refusal, Reply, Tokens
from tests.support.raw_upstream import RawUpstream

KEY = "sk-this-is-the-key-of-a-person-4711"
TOOL = {"name": "look", "description": "Looks", "parameters": {"type": "object", "properties": {}}}


class Clients:
    """The Python clients, and what was recorded of what they did."""

    def __init__(self, app: AppContext, server: ModelServer, proxy: Proxy, bases: Any) -> None:
        self.server = server
        self.bases = bases
        self.world = ProxyWorld(app.store, RawUpstream(), proxy)
        self.openai = openai.AsyncOpenAI(
            base_url=f"{bases['openai']}/v1", api_key=KEY, max_retries=1
        )
        self.anthropic = anthropic.AsyncAnthropic(
            base_url=bases["anthropic"], api_key=KEY, max_retries=1
        )


@pytest.fixture
async def clients(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Clients]:
    """The clients, with the addresses that `sessionary proxy` prints."""
    with open_app(home=tmp_path_factory.mktemp("home")) as app:
        async with ModelServer() as server:
            given = tuple(f"{name}={server.url}" for name in ("openai", "anthropic"))
            proxy, address = app_proxy.build(
                app,
                read_proxy(app.config),
                app_proxy.ProxyChanges(port=0, upstreams=given),
                tell=lambda _: None,
            )
            await proxy.start()
            made = Clients(app, server, proxy, address().bases)
            yield made
            await made.openai.close()
            await made.anthropic.close()
            await proxy.stop()


async def test_openais_client_chats_streams_and_calls_tools(clients: Clients) -> None:
    look = Call("look", {"at": "Zürich"}, id="call_7")
    clients.server.will(Reply("Hello ✨"), Reply("", calls=(look,)), Reply("It rains there."))
    talk: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    ]
    tools: list[Any] = [{"type": "function", "function": TOOL}]

    first = await clients.openai.chat.completions.create(model="gpt-5", messages=talk)
    talk += [first.choices[0].message.model_dump(), {"role": "user", "content": "weather?"}]
    async with clients.openai.chat.completions.stream(
        model="gpt-5", messages=talk, tools=tools
    ) as stream:
        calls = [event.type async for event in stream]
        second = (await stream.get_final_completion()).choices[0].message
    assert second.tool_calls is not None
    talk += [
        second.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": second.tool_calls[0].id, "content": "rain"},
    ]
    third = await clients.openai.chat.completions.create(model="gpt-5", messages=talk, tools=tools)
    await clients.world.settle()

    assert "tool_calls.function.arguments.done" in calls
    assert third.choices[0].message.content == "It rains there."
    [head] = clients.world.heads()
    messages = clients.world.messages(head)
    assert [message.text for message in messages] == [
        "hi", "Hello ✨", "weather?", "", "", "It rains there.",
    ]  # fmt: skip
    assert ToolCall("call_7", "look", {"at": "Zürich"}) in messages[3].parts


async def test_openais_client_continues_responses(clients: Clients) -> None:
    clients.server.will(Reply("one", reasoning="hm"), Reply("two words"))

    first = await clients.openai.responses.create(model="gpt-5", input="first?")
    async with clients.openai.responses.stream(
        model="gpt-5", input="second?", previous_response_id=first.id
    ) as stream:
        kinds = [event.type async for event in stream]
    await clients.world.settle()

    assert kinds[-1] == "response.completed"
    [head] = clients.world.heads()
    assert clients.world.texts(head) == ["first?", "one", "second?", "two words"]


async def test_errors_and_retries_are_those_of_the_upstream(clients: Clients) -> None:
    clients.server.will(Refusal(429, "slow down", retry_after=0.01), Reply("fine"), Refusal(401))
    talk: list[Any] = [{"role": "user", "content": "hi"}]

    answer = await clients.openai.chat.completions.create(model="gpt-5", messages=talk)
    with pytest.raises(openai.AuthenticationError):
        await clients.openai.chat.completions.create(
            model="gpt-5", messages=[{"role": "user", "content": "who am I?"}]
        )
    await clients.world.settle()

    assert answer.choices[0].message.content == "fine"
    first, second = clients.world.heads()
    assert [turn.state for turn in clients.world.turns(first)] == [TurnState.FAILED, TurnState.DONE]
    assert [turn.state for turn in clients.world.turns(second)] == [TurnState.FAILED]


async def test_anthropics_client_streams_thinks_and_counts(clients: Clients) -> None:
    used = Tokens(fresh=5, cache_read=100, cache_write=7, output=9)
    clients.server.will(Reply("Hello there", reasoning="hm, yes", tokens=used), Reply("bye"))
    talk: list[Any] = [{"role": "user", "content": "hi"}]

    async with clients.anthropic.messages.stream(
        model="claude-opus-4-1", max_tokens=100, messages=talk
    ) as stream:
        text = "".join([piece async for piece in stream.text_stream])
        answer = await stream.get_final_message()
    talk += [
        {"role": "assistant", "content": answer.model_dump()["content"]},
        {"role": "user", "content": "ok"},
    ]
    counted = await clients.anthropic.messages.count_tokens(model="claude-opus-4-1", messages=talk)
    await clients.anthropic.messages.create(model="claude-opus-4-1", max_tokens=9, messages=talk)
    await clients.world.settle()

    assert text == "Hello there"
    assert counted.input_tokens > 0
    [head] = clients.world.heads()
    assert clients.world.texts(head) == ["hi", "Hello there", "ok", "bye"]
    assert (head.usage.cache_read_tokens, head.usage.cache_write_tokens) == (100, 7)


async def test_anthropics_client_calls_tools_and_repeats_what_failed(clients: Clients) -> None:
    look = Call("look", {"at": "Zürich"}, id="toolu_7")
    slow = Refusal(529, "overloaded", retry_after=0.01)
    clients.server.will(Reply("", calls=(look,)), slow, Reply("It rains there."), Refusal(401))
    tools: list[Any] = [{"name": "look", "input_schema": {"type": "object", "properties": {}}}]
    talk: list[Any] = [{"role": "user", "content": "weather?"}]
    asked: dict[str, Any] = {"model": "claude-opus-4-1", "max_tokens": 100, "tools": tools}

    async with clients.anthropic.messages.stream(messages=talk, **asked) as stream:
        first = await stream.get_final_message()
    [call] = [block for block in first.content if block.type == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "rain"}
    talk += [
        {"role": "assistant", "content": [each.model_dump() for each in first.content]},
        {"role": "user", "content": [result]},
    ]
    second = await clients.anthropic.messages.create(messages=talk, **asked)
    with pytest.raises(anthropic.AuthenticationError):
        await clients.anthropic.messages.create(
            model="claude-opus-4-1", max_tokens=9, messages=[{"role": "user", "content": "no"}]
        )
    await clients.world.settle()

    assert call.input == {"at": "Zürich"}
    assert [block.text for block in second.content if block.type == "text"] == ["It rains there."]
    whole, refused = clients.world.heads()
    messages = clients.world.messages(whole)
    assert ToolCall("toolu_7", "look", {"at": "Zürich"}) in messages[1].parts
    assert messages[-1].text == "It rains there."
    states = [turn.state for turn in clients.world.turns(whole)]
    assert states == [TurnState.DONE, TurnState.FAILED, TurnState.DONE]
    assert [turn.state for turn in clients.world.turns(refused)] == [TurnState.FAILED]


async def test_a_stream_that_anthropics_client_cancels_is_recorded_as_interrupted(
    clients: Clients,
) -> None:
    clients.server.will(Reply("one two three four five six seven eight", pause=0.05))

    async with clients.anthropic.messages.stream(
        model="claude-opus-4-1", max_tokens=9, messages=[{"role": "user", "content": "count"}]
    ) as stream:
        async for text in stream.text_stream:
            if "two" in text:
                break
    async with asyncio.timeout(30):
        await clients.server.broken_off.wait()
    await clients.world.settle()

    [head] = clients.world.heads()
    [turn] = clients.world.turns(head)
    assert (turn.state, turn.reason) == (TurnState.INTERRUPTED, "the client broke off")
    assert clients.world.texts(head)[1].startswith("one two")


async def test_a_stream_that_a_client_cancels_is_recorded_as_interrupted(clients: Clients) -> None:
    clients.server.will(Reply("one two three four five six seven eight", pause=0.05))
    stream = await clients.openai.chat.completions.create(
        model="gpt-5", messages=[{"role": "user", "content": "count"}], stream=True
    )

    async for chunk in stream:
        if chunk.choices and "two" in (chunk.choices[0].delta.content or ""):
            break
    await stream.close()
    async with asyncio.timeout(30):
        await clients.server.broken_off.wait()
    await clients.world.settle()

    [head] = clients.world.heads()
    [turn] = clients.world.turns(head)
    assert (turn.state, turn.reason) == (TurnState.INTERRUPTED, "the client broke off")
    assert clients.world.texts(head)[1].startswith("one two")


_SCRIPT = """
import OpenAI from 'openai'
import Anthropic from '@anthropic-ai/sdk'

const [openaiBase, anthropicBase] = process.argv.slice(-2)
const openai = new OpenAI({ baseURL: openaiBase, apiKey: 'sk-node-0123456789' })
const anthropic = new Anthropic({ baseURL: anthropicBase, apiKey: 'sk-node-0123456789' })
const found = []

const messages = [{ role: 'user', content: 'hi' }]
const first = await openai.chat.completions.create({ model: 'gpt-5', messages })
messages.push(first.choices[0].message, { role: 'user', content: 'more' })
let streamed = ''
for await (const chunk of await openai.chat.completions.create({ model: 'gpt-5', messages, stream: true })) {
  streamed += chunk.choices[0]?.delta?.content ?? ''
}
found.push(first.choices[0].message.content, streamed)

const response = await openai.responses.create({ model: 'gpt-5', input: 'a response' })
found.push(response.output_text)
try {
  const refused = [{ role: 'user', content: 'no' }]
  await openai.chat.completions.create({ model: 'gpt-5', messages: refused }, { maxRetries: 0 })
} catch (error) {
  found.push(error.status)
}

const talk = [{ role: 'user', content: 'hallo' }]
const stream = anthropic.messages.stream({ model: 'claude-opus-4-1', max_tokens: 50, messages: talk })
const answer = await stream.finalMessage()
talk.push({ role: 'assistant', content: answer.content }, { role: 'user', content: 'mehr' })
const second = await anthropic.messages.create({ model: 'claude-opus-4-1', max_tokens: 50, messages: talk })
found.push(await stream.finalText(), second.content[0].text)

const tools = [{ name: 'look', input_schema: { type: 'object', properties: {} } }]
const asked = { model: 'claude-opus-4-1', max_tokens: 50, tools }
const weather = [{ role: 'user', content: 'Wetter?' }]
const called = await anthropic.messages.create({ ...asked, messages: weather })
const { id, input } = called.content.find((block) => block.type === 'tool_use')
weather.push({ role: 'assistant', content: called.content })
weather.push({ role: 'user', content: [{ type: 'tool_result', tool_use_id: id, content: 'Regen' }] })
const told = await anthropic.messages.create({ ...asked, messages: weather }, { maxRetries: 1 })
found.push(input, told.content[0].text)
try {
  await anthropic.messages.create({ ...asked, messages: [{ role: 'user', content: 'nein' }] }, { maxRetries: 0 })
} catch (error) {
  found.push([error instanceof Anthropic.AuthenticationError, error.status])
}
const endless = anthropic.messages.stream({ ...asked, messages: [{ role: 'user', content: 'zählen' }] })
for await (const event of endless) if (event.type === 'content_block_delta') break
endless.abort()
console.log(JSON.stringify(found))
"""


async def test_the_clients_for_node_work_and_their_conversations_are_recorded(
    clients: Clients,
) -> None:
    node = await asyncio.to_thread(node_clients.node)
    answers = (
        Reply("eins ✨"),
        Reply("zwei drei"),
        Reply("vier"),
        Refusal(400),
        Reply("fünf sechs"),
        Reply("sieben"),
        Reply("", calls=(Call("look", {"at": "Bern"}, id="toolu_1"),)),
        Refusal(529, "overloaded", retry_after=0.01),
        Reply("Es regnet."),
        Refusal(401),
        Reply("und so weiter " * 200, pause=0.05),
    )
    clients.server.will(*answers)

    process = await asyncio.create_subprocess_exec(
        *(str(node), "--input-type=module", "-e", _SCRIPT, "--"),
        *(f"{clients.bases['openai']}/v1", clients.bases["anthropic"]),
        cwd=node_clients.FOLDER,
        env=node_clients.environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    async with asyncio.timeout(30):
        await clients.server.broken_off.wait()
    await clients.world.settle()

    assert process.returncode == 0, err.decode()
    assert json.loads(out) == [
        "eins ✨", "zwei drei", "vier", 400, "fünf sechs", "sieben", {"at": "Bern"}, "Es regnet.", [True, 401],
    ]  # fmt: skip
    *heads, last = clients.world.heads()
    assert [clients.world.texts(head) for head in heads] == [
        ["hi", "eins ✨", "more", "zwei drei"],
        ["a response", "vier"],
        ["no", ""],
        ["hallo", "fünf sechs", "mehr", "sieben"],
        ["Wetter?", "", "", "", "Es regnet."],
        ["nein", ""],
    ]
    asked, told = clients.world.texts(last)
    assert (asked, told.startswith("und so")) == ("zählen", True)
    assert [turn.state for turn in clients.world.turns(last)] == [TurnState.INTERRUPTED]
