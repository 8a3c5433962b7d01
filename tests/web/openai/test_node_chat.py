"""Chats with the clients for Node: `openai`, and `ai` with its provider for compatible servers."""

from tests.support.model_script import Call
from tests.support.model_server import ModelServer, Refusal, Reply
from tests.support.openai_world import OpenAIWorld
from tests.web.openai.test_node_responses import ran

_OPENAI = """
import OpenAI from "openai"
const [baseURL, apiKey] = process.argv.slice(1)
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 })
const model = "assistant"
const out = {}

const messages = [{ role: "user", content: "hi" }]
const first = await client.chat.completions.create({ model, messages })
messages.push(first.choices[0].message, { role: "user", content: "stream" })
out.first = [first.choices[0].message.content, first.usage.total_tokens]

const stream = client.chat.completions.stream({ model, messages, stream_options: { include_usage: true } })
let deltas = ""
stream.on("content", (delta) => (deltas += delta))
const second = await stream.finalChatCompletion()
out.second = [deltas, second.usage.total_tokens]
messages.push(second.choices[0].message, { role: "user", content: "look" })

const runner = client.chat.completions.runTools({ model, messages, tools: [{ type: "function", function: {
  name: "look", parse: JSON.parse, function: ({ at }) => `a ${at}`,
  parameters: { type: "object", properties: { at: { type: "string" } } } } }] })
out.done = await runner.finalContent()

out.models = []
for await (const each of client.models.list()) out.models.push(each.id)

out.failed = await client.chat.completions.create({ model, messages: [{ role: "user", content: "fail" }] })
  .catch((error) => [error.status, error.code])
const retrying = new OpenAI({ baseURL, apiKey, maxRetries: 1 })
const retried = await retrying.chat.completions.create({ model, messages: [{ role: "user", content: "again" }] })
out.retried = retried.choices[0].message.content

const aborter = new AbortController()
const endless = await client.chat.completions.create(
  { model, messages: [{ role: "user", content: "endless" }], stream: true }, { signal: aborter.signal })
for await (const chunk of endless) if (chunk.choices[0].delta.content) break
aborter.abort()
console.log(JSON.stringify(out))
"""

_AI = """
import { createOpenAICompatible } from "@ai-sdk/openai-compatible"
import { generateText, Output, stepCountIs, streamText, tool } from "ai"
import { z } from "zod"
const [baseURL, apiKey] = process.argv.slice(1)
const provider = createOpenAICompatible({ name: "sessionary", baseURL, apiKey, includeUsage: true,
  supportsStructuredOutputs: true })
const model = provider("assistant")
const out = {}

const messages = [{ role: "user", content: "hi" }]
const first = await generateText({ model, system: "Be kind.", messages, maxRetries: 0 })
out.first = [first.text, first.reasoningText, first.usage.totalTokens]
messages.push(...first.response.messages, { role: "user", content: "look" })

const inputSchema = z.object({ at: z.string() })
const look = tool({ description: "Look.", inputSchema, execute: async ({ at }) => `a ${at}` })
const streamed = streamText({ model, messages, tools: { look }, stopWhen: stepCountIs(3), maxRetries: 0 })
let text = ""
for await (const part of streamed.textStream) text += part
out.text = text
out.steps = (await streamed.steps).length

const output = Output.object({ schema: z.object({ word: z.string() }) })
const object = await generateText({ model, prompt: "a word", output, maxRetries: 0 })
out.object = object.output
out.failed = await generateText({ model: provider("none"), prompt: "x", maxRetries: 0 })
  .then(() => null, (error) => error.statusCode)
out.retried = (await generateText({ model, prompt: "again", maxRetries: 1 })).text

const aborter = new AbortController()
const abortSignal = aborter.signal
const endless = streamText({ model, prompt: "endless", abortSignal, maxRetries: 0 })
out.ends = []
for await (const part of endless.fullStream) {
  if (part.type === "text-delta") aborter.abort()
  if (part.type === "abort") out.ends.push(part.type)
}
console.log(JSON.stringify(out))
"""


async def test_openais_client_for_node_chats(server: OpenAIWorld, model: ModelServer) -> None:
    model.will(
        Reply("Hello!"),
        Reply("Streamed words that are many"),
        Reply("Let me.", calls=(Call("look", {"at": "door"}, id="c1"),)),
        Reply("It is a door."),
        Refusal(400, "no"),
        Refusal(400, "no"),
        Reply("the second time"),
        Reply("on and on and on " * 200, pause=0.01),
    )

    out = await ran(_OPENAI, server)

    assert out["first"] == ["Hello!", 15]
    assert out["second"] == ["Streamed words that are many", 15]
    assert out["done"] == "It is a door."
    assert out["models"][0] == "assistant"
    assert out["failed"] == [502, "agent_failed"]
    assert out["retried"] == "the second time"
    await server.world.settle(server.engine)  # nobody reads the last answer: its turn was stopped
    # The first three requests are one session.
    assert await server.count() == 4


async def test_the_ai_sdk_chats_with_a_compatible_server(
    server: OpenAIWorld, model: ModelServer
) -> None:
    model.will(
        Reply("Hello!", reasoning="They greet."),
        Reply("Let me.", calls=(Call("look", {"at": "door"}, id="c1"),)),
        Reply("It is a door."),
        Reply('{"word":"tea"}'),
        Refusal(400, "no"),
        Reply("the second time"),
        Reply("on and on and on " * 200, pause=0.01),
    )

    out = await ran(_AI, server)

    assert out["first"] == ["Hello!", "They greet.", 15]
    assert (out["text"], out["steps"]) == ("Let me.It is a door.", 2)
    assert out["object"] == {"word": "tea"}
    assert out["failed"] == 404
    assert (out["retried"], out["ends"]) == ("the second time", ["abort"])
    await server.world.settle(server.engine)  # nobody reads the last answer: its turn was stopped
    # This client does not say that it repeats a request: what begins a conversation begins another.
    assert await server.count() == 5
