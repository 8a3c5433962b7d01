"""Responses, conversations and files with the clients for Node: `openai`, and `ai` with its OpenAI provider."""

import asyncio
import json
from typing import Any

from tests.support import node_clients
from tests.support.model_script import Call
from tests.support.model_server import ModelServer, Reply
from tests.support.openai_world import OpenAIWorld

_OPENAI = """
import OpenAI, { toFile } from "openai"
const [baseURL, apiKey] = process.argv.slice(1)
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 })
const model = "assistant"
const out = {}

const first = await client.responses.create({ model, input: "hi" })
out.first = first.output_text

const stream = client.responses.stream({ model, input: "more", previous_response_id: first.id })
let deltas = ""
for await (const event of stream) if (event.type === "response.output_text.delta") deltas += event.delta
const second = await stream.finalResponse()
out.deltas = deltas
out.second = second.output_text
out.same = first.conversation.id === second.conversation.id

const tools = [{ type: "function", name: "look", parameters: { type: "object", properties: {} }, strict: false }]
const asked = await client.responses.create({ model, input: "look", tools })
const call = asked.output.find((item) => item.type === "function_call")
const done = await client.responses.create({ model, tools, previous_response_id: asked.id,
  input: [{ type: "function_call_output", call_id: call.call_id, output: "seen" }] })
out.done = done.output_text

const report = await toFile(Buffer.from("Sales rose."), "report.txt")
const file = await client.files.create({ file: report, purpose: "user_data" })
out.file = await (await client.files.content(file.id)).text()
const files = []
for await (const each of client.files.list({ limit: 1 })) files.push(each.filename)
out.files = files

const conversation = await client.conversations.create({ items: [{ type: "message", role: "user",
  content: [{ type: "input_text", text: "see" }, { type: "input_file", file_id: file.id }] }] })
const items = []
for await (const item of client.conversations.items.list(conversation.id))
  items.push(item.content.map((part) => part.type))
out.items = items
out.deleted = (await client.responses.delete(done.id)) ?? null

for (const bad of [{ model: "none", input: "x" }, { model, input: "x", tools: [{ type: "web_search" }] }])
  await client.responses.create(bad).catch((error) => (out.errors ??= []).push([error.status, error.code, error.param]))

const aborter = new AbortController()
const endless = await client.responses.create({ model, input: "endless", stream: true }, { signal: aborter.signal })
for await (const event of endless) if (event.type === "response.created") { out.endless = event.response.id; break }
aborter.abort()
console.log(JSON.stringify(out))
"""

_AI = """
import { createOpenAI } from "@ai-sdk/openai"
import { generateText, Output, stepCountIs, streamText, tool } from "ai"
import { z } from "zod"
const [baseURL, apiKey] = process.argv.slice(1)
const openai = createOpenAI({ baseURL, apiKey })
const model = openai("assistant")
const out = {}

const messages = [{ role: "user", content: "hi" }]
const first = await generateText({ model, system: "Be kind.", messages, maxRetries: 0 })
out.first = first.text
out.usage = first.usage.totalTokens
messages.push(...first.response.messages, { role: "user", content: "stream" })

const streamed = streamText({ model, system: "Be kind.", messages, maxRetries: 0 })
let text = ""
for await (const part of streamed.textStream) text += part
out.text = text
messages.push(...(await streamed.response).messages, { role: "user", content: "look" })

const inputSchema = z.object({ at: z.string() })
const look = tool({ description: "Look.", inputSchema, execute: async ({ at }) => `a ${at}` })
const stopWhen = stepCountIs(3)
const looked = await generateText({ model, system: "Be kind.", messages, tools: { look }, stopWhen, maxRetries: 0 })
out.looked = looked.text
out.steps = looked.steps.length

const output = Output.object({ schema: z.object({ word: z.string() }) })
const object = await generateText({ model, prompt: "a word", output, maxRetries: 0 })
out.object = object.output

out.failed = await generateText({ model: openai("none"), prompt: "x", maxRetries: 0 })
  .then(() => null, (error) => [error.statusCode, error.message.includes("does not exist")])
console.log(JSON.stringify(out))
"""


async def ran(script: str, world: OpenAIWorld) -> Any:
    """What a script prints, which is given our address and a token."""
    node = await asyncio.to_thread(node_clients.node)
    process = await asyncio.create_subprocess_exec(
        str(node),
        *("--input-type=module", "-e", script, world.url, await world.token()),
        cwd=node_clients.FOLDER,
        env=node_clients.environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(120):
        out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return json.loads(out)


async def test_openais_client_for_node(server: OpenAIWorld, model: ModelServer) -> None:
    model.will(
        Reply("Hello!", reasoning="They greet."),
        Reply("Some more words"),
        Reply("Let me.", calls=(Call("look", {}, id="c1"),)),
        Reply("Seen."),
        Reply("on and on and on " * 200, pause=0.01),
    )

    out = await ran(_OPENAI, server)

    assert out["first"] == "Hello!"
    assert out["deltas"] == out["second"] == "Some more words"
    assert out["same"] is True
    assert out["done"] == "Seen."
    assert (out["file"], out["files"]) == ("Sales rose.", ["report.txt"])
    assert out["items"] == [["input_text", "input_file"]]
    assert out["errors"] == [
        [404, "model_not_found", "model"],
        [400, "unsupported_value", "tools[0].type"],
    ]
    # Nobody reads the last answer any more: its turn is stopped.
    await server.world.settle(server.engine)
    client = await server.client()
    assert (await client.responses.retrieve(out["endless"])).status == "cancelled"


async def test_the_ai_sdk_for_node(server: OpenAIWorld, model: ModelServer) -> None:
    model.will(
        Reply("Hello!", reasoning="They greet."),
        Reply("Streamed words"),
        Reply("Let me.", calls=(Call("look", {"at": "door"}, id="c1"),)),
        Reply("It is a door."),
        Reply('{"word":"tea"}'),
    )

    out = await ran(_AI, server)

    assert (out["first"], out["usage"]) == ("Hello!", 15)
    assert out["text"] == "Streamed words"
    assert (out["looked"], out["steps"]) == ("It is a door.", 2)
    assert out["object"] == {"word": "tea"}
    assert out["failed"] == [404, True]
    # It refers to what was said before, and so goes on in one session.
    assert await server.count() == 2
    sent = [str(each.get("content")) for each in model.requests[3].body["messages"]]
    assert sent[-1] == "a door"
    assert "hi" in sent
