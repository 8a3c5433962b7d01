"""What passes is recorded as sessions: one for each conversation, with what it used, whatever comes of it."""

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import zstandard

from sessionary.actions import usage
from sessionary.actions.budgets import budget_of
from sessionary.actions.search import search
from sessionary.actions.sessions import model_calls
from sessionary.config.engine import Budget
from sessionary.model.message import Reasoning, Role, ToolCall, ToolResult
from sessionary.model.session import Lineage
from sessionary.model.turn import TurnState
from sessionary.model.usage import CostStatus
from sessionary.proxy.copy import pack
from sessionary.proxy.sessions import PROCESS_DIED
from sessionary.store.database import Store
from sessionary.store.tables import exchanges
from sessionary.store.tables.exchanges import StoredExchange
from tests.proxy.conftest import (
    KEY,
    ProxyWorld,
    chat,
    chat_events,
    events,
    replied,
    running,
    said,
)
from tests.support.raw_upstream import Script, streamed, whole

CHAT = "/openai/v1/chat/completions"
RESPONSES = "/openai/v1/responses"
MESSAGES = "/anthropic/v1/messages"


async def test_a_conversation_that_is_sent_again_and_again_is_one_session(
    world: ProxyWorld,
) -> None:
    world.upstream.will(chat("hi"), chat("fine"), chat("bye"))

    await world.ask(said("hello"))
    await world.ask(said("hello"), replied("hi"), said("how are you?"))
    await world.ask(said("hello"), replied("hi"), said("how are you?"), replied("fine"), said("ok"))
    await world.settle()

    [head] = world.heads()
    assert world.texts(head) == ["hello", "hi", "how are you?", "fine", "ok", "bye"]
    assert [turn.state for turn in world.turns(head)] == [TurnState.DONE] * 3
    assert (head.source.platform, head.title, head.model) == ("proxy", "hello", "gpt-5")
    assert (head.usage.calls, head.usage.input_tokens, head.usage.output_tokens) == (3, 60, 15)


async def test_a_conversation_that_is_changed_is_forked_where_it_was_changed(
    world: ProxyWorld,
) -> None:
    world.upstream.will(chat("hi"), chat("fine"), chat("good"))

    await world.ask(said("hello"))
    await world.ask(said("hello"), replied("hi"), said("how are you?"))
    await world.ask(said("hello"), replied("hi"), said("what else?"))
    await world.settle()

    first, fork = world.heads()
    assert fork.lineage is Lineage.FORK
    assert world.texts(first) == ["hello", "hi", "how are you?", "fine"]
    assert world.texts(fork) == ["hello", "hi", "what else?", "good"]


async def test_a_conversation_that_began_elsewhere_is_recorded_whole_and_then_continued(
    world: ProxyWorld,
) -> None:
    world.upstream.will(chat("three"), chat("other"))
    talk = [said("one"), replied("two"), said("and?")]

    await world.ask(*talk)
    # The program goes back to what it had before it came here.
    await world.ask(*talk[:2], said("or?"))
    await world.settle()

    first, fork = world.heads()
    assert world.texts(first) == ["one", "two", "and?", "three"]
    assert world.texts(fork) == ["one", "two", "or?", "other"]


async def test_other_keys_are_other_people(world: ProxyWorld) -> None:
    world.upstream.will(chat("hi"), chat("fine"))
    await world.ask(said("hello"))
    world.key = "sk-somebody-else-0815"

    await world.ask(said("hello"), replied("hi"), said("and?"))
    await world.settle()

    assert [world.texts(head) for head in world.heads()] == [
        ["hello", "hi"],
        ["hello", "hi", "and?", "fine"],
    ]


async def test_a_request_that_failed_is_continued_when_it_is_tried_again(
    world: ProxyWorld,
) -> None:
    busy = json.dumps({"error": {"message": "overloaded", "type": "server_error"}}).encode()
    world.upstream.will(whole(busy, status="529 Overloaded"), chat("hi"))

    status, body = await world.post(CHAT, {"model": "gpt-5", "messages": [said("hello")]})
    await world.ask(said("hello"))
    await world.settle()

    assert (status, body) == (529, busy)
    [head] = world.heads()
    assert [message.role for message in world.messages(head)] == [
        Role.USER,
        Role.ASSISTANT,
        Role.ASSISTANT,
    ]
    failed, done = world.turns(head)
    assert (failed.state, failed.reason) == (TurnState.FAILED, "overloaded")
    assert done.state is TurnState.DONE
    assert world.unknown(world.messages(head)[1])[0]["message"] == "overloaded"


async def test_names_and_texts_may_contain_anything(world: ProxyWorld) -> None:
    odd = "a\x00b\u202e\U0001f469\u200d\U0001f52c\ud800"
    answer = {"role": odd, "content": odd, "tool_calls": [{"id": odd, "function": {"name": odd}}]}
    choice = {"message": answer, "finish_reason": odd}
    world.upstream.answer = lambda _: whole(
        json.dumps({"id": odd, "model": odd, "choices": [choice]}).encode()
    )
    part = {"type": odd, "text": odd, "name": odd}
    body = {
        "model": odd,
        "user": odd * 100,
        "metadata": {"session": odd * 100, odd: odd},
        "messages": [{"role": odd, "content": odd}, {"role": "user", "content": [part, odd]}],
        "tools": [{"type": odd, "function": {"name": odd, "parameters": odd}}],
        odd: odd,
    }

    for text in (json.dumps(body), json.dumps(body).replace("\\ud800", "")):
        for path in (CHAT, RESPONSES, MESSAGES):
            status, _ = await world.post(
                path, text.encode(), headers={"X-Session-Id": "\x80\xff\u00fc" * 200}
            )
            assert status == 200
    await world.settle()

    assert world.proxy.service.recorder.status.recorded == 6
    assert world.proxy.service.recorder.status.failed == 0


async def test_the_title_is_the_first_line_that_a_person_wrote(world: ProxyWorld) -> None:
    wrapped = "<system-reminder>Be brief.\n</system-reminder>\n"
    world.upstream.will(chat("hi"))

    await world.ask(said(wrapped), said(f"{wrapped}{wrapped}\nWhat is <b>this</b>?\nAnd that?"))
    await world.settle()

    assert world.heads()[0].title == "What is <b>this</b>?"


async def test_a_question_that_failed_once_does_not_join_what_is_asked_later(
    world: ProxyWorld,
) -> None:
    busy = whole(b'{"error": {"message": "overloaded"}}', status="529 Overloaded")
    world.upstream.will(busy, chat("hi"), chat("hey"), busy, chat("fine"), chat("good"))
    talk = [said("hello"), replied("hey"), said("how are you?")]

    await world.post(CHAT, {"model": "gpt-5", "messages": [said("hello")]})
    await world.ask(said("hello"))
    await world.ask(said("hello"))
    await world.post(CHAT, {"model": "gpt-5", "messages": talk})
    await world.ask(*talk)
    await world.ask(*talk)
    await world.settle()

    first, second, fork = world.heads()
    assert world.texts(first) == ["hello", "", "hi"]
    assert world.texts(second) == ["hello", "hey", "how are you?", "", "fine"]
    assert (fork.lineage, world.texts(fork)) == (
        Lineage.FORK,
        ["hello", "hey", "how are you?", "good"],
    )


async def test_people_who_share_a_key_and_begin_alike_have_sessions_of_their_own(
    world: ProxyWorld,
) -> None:
    world.upstream.will(chat("hi"), chat("hi"), chat("for ada"), chat("for bob"))

    for person in ("ada", "bob"):
        await world.ask(said("hello"), user=person)
    for person in ("ada", "bob"):
        await world.ask(said("hello"), replied("hi"), said(f"I am {person}"), user=person)
    await world.settle()

    assert [(head.source.user_id, world.texts(head)) for head in world.heads()] == [
        (person, ["hello", "hi", f"I am {person}", f"for {person}"]) for person in ("ada", "bob")
    ]


@pytest.mark.parametrize("by", ["conversation", "previous_response_id"])
async def test_a_conversation_that_the_provider_keeps_is_one_session(
    world: ProxyWorld, by: str
) -> None:
    def answered(number: int) -> Script:
        part = {"type": "output_text", "text": f"answer {number}"}
        item = {"type": "message", "role": "assistant", "content": [part]}
        found = {"id": f"resp_{number}", "status": "completed", "model": "m", "output": [item]}
        return whole(json.dumps(found).encode())

    busy = whole(b'{"error": {"message": "overloaded"}}', status="529 Overloaded")
    world.upstream.will(answered(0), busy, answered(1), answered(2))

    # The second question is repeated.
    for answer, number in enumerate((0, 1, 1, 2)):
        asked: dict[str, object] = {"model": "m", "input": f"question {number}"}
        if by == "conversation":
            asked[by] = {"id": "conv_1"} if answer else "conv_1"
        elif number:
            asked[by] = f"resp_{number - 1}"
        await world.post(RESPONSES, asked)
    await world.settle()

    [head] = world.heads()
    assert world.texts(head) == [
        "question 0", "answer 0", "question 1", "", "answer 1", "question 2", "answer 2",
    ]  # fmt: skip


async def test_a_streamed_answer_with_tools_is_recorded_like_a_whole_one(
    world: ProxyWorld,
) -> None:
    def delta(more: object, reason: str | None = None) -> tuple[None, object]:
        choice = {"index": 0, "delta": more, "finish_reason": reason}
        return None, {"id": "c", "model": "gpt-5-2025-08-07", "choices": [choice]}

    call = {"index": 0, "id": "call_7", "type": "function"}
    begun = {**call, "function": {"name": "look", "arguments": ""}}
    details = {"prompt_tokens_details": {"cached_tokens": 8}}
    used = {"prompt_tokens": 20, "completion_tokens": 9, **details}
    used["completion_tokens_details"] = {"reasoning_tokens": 4}
    pieces = events(
        delta({"role": "assistant", "reasoning_content": "Let me "}),
        delta({"reasoning_content": "see ✨"}),
        delta({"content": "Looking…"}),
        delta({"tool_calls": [begun]}),
        delta({"tool_calls": [{"index": 0, "function": {"arguments": '{"at":'}}]}),
        delta({"tool_calls": [{"index": 0, "function": {"arguments": '"Zürich"}'}}]}),
        delta({}, "tool_calls"),
        (None, {"choices": [], "usage": used}),
        (None, b"[DONE]"),
    )
    world.upstream.will(streamed(pieces), chat("It rains."))
    asked = {"role": "assistant", "content": "Looking…", "tool_calls": [
        {"id": "call_7", "type": "function", "function": {"name": "look", "arguments": '{"at":"Zürich"}'}}
    ]}  # fmt: skip

    await world.ask(said("weather?"), stream=True)
    result = {"role": "tool", "tool_call_id": "call_7", "content": "rain"}
    await world.ask(said("weather?"), asked, result)
    await world.settle()

    [head] = world.heads()
    question, answer, told, last = world.messages(head)
    assert answer.parts == (
        Reasoning("Let me see ✨"),
        *answer.parts[1:2],
        ToolCall("call_7", "look", {"at": "Zürich"}),
    )
    assert (answer.text, answer.model, answer.finish_reason) == (
        "Looking…",
        "gpt-5-2025-08-07",
        "tool_calls",
    )
    assert told.parts == (ToolResult("call_7", "rain"),)
    assert (question.text, last.text) == ("weather?", "It rains.")
    assert (head.usage.cache_read_tokens, head.usage.reasoning_tokens) == (8, 4)
    assert head.usage.cost_status is CostStatus.ESTIMATED


async def test_anthropics_stream_is_recorded_with_thinking_tools_and_caches(
    world: ProxyWorld,
) -> None:
    def block(at: int, start: object, *deltas: object) -> list[tuple[str, object]]:
        return [
            ("content_block_start", {"type": "content_block_start", "index": at, "content_block": start}),
            *(("content_block_delta", {"type": "content_block_delta", "index": at, "delta": each}) for each in deltas),
            ("content_block_stop", {"type": "content_block_stop", "index": at}),
        ]  # fmt: skip

    used = {
        "input_tokens": 5,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 30,
        "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
        "output_tokens": 1,
    }
    start = {
        "id": "msg_1",
        "role": "assistant",
        "model": "claude-opus-4-1",
        "usage": used,
        "content": [],
    }
    found = [
        ("message_start", {"type": "message_start", "message": start}),
        *block(0, {"type": "thinking", "thinking": "", "signature": ""},
               {"type": "thinking_delta", "thinking": "Hm, "}, {"type": "thinking_delta", "thinking": "yes."},
               {"type": "signature_delta", "signature": "c2ln"}),
        ("ping", {"type": "ping"}),
        *block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Ich schaue: "},
               {"type": "text_delta", "text": "Zürich"}),
        *block(2, {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
               {"type": "input_json_delta", "partial_json": '{"at": "Zü'},
               {"type": "input_json_delta", "partial_json": 'rich"}'}),
        ("message_delta", {"type": "message_delta", "delta": {"stop_reason": "tool_use"},
                           "usage": {"output_tokens": 42}}),
        ("message_stop", {"type": "message_stop"}),
    ]  # fmt: skip
    world.upstream.will(streamed(events(*found)))
    tool = {"name": "look", "description": "Looks", "input_schema": {"type": "object"}}

    status, _ = await world.post(
        MESSAGES,
        {
            "model": "claude-opus-4-1",
            "max_tokens": 100,
            "stream": True,
            "system": [
                {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
            ],
            "tools": [tool],
            "messages": [said("Wetter?")],
        },
    )
    await world.settle()

    assert status == 200
    [head] = world.heads()
    _, answer = world.messages(head)
    assert answer.parts[0] == Reasoning("Hm, yes.", {"signature": "c2ln"})
    assert answer.text == "Ich schaue: Zürich"
    assert answer.parts[2] == ToolCall("toolu_1", "look", {"at": "Zürich"})
    assert answer.finish_reason == "tool_use"
    used_up = head.usage
    assert (used_up.input_tokens, used_up.output_tokens) == (5, 42)
    assert (used_up.cache_read_tokens, used_up.cache_write_tokens) == (100, 30)
    [turn] = world.turns(head)
    sent = world.store.read(model_calls.read_sent_context, turn.id, profile="main").result()
    assert sent.system_prompt == "Be brief."
    assert [each["name"] for each in sent.tools or ()] == ["look"]
    assert sent.settings == {"max_tokens": 100}


async def test_anthropics_tool_results_continue_the_session(world: ProxyWorld) -> None:
    def answer(*blocks: object, reason: str) -> bytes:
        usage = {"input_tokens": 5, "output_tokens": 3}
        told = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-4-1"}
        return json.dumps(
            {**told, "content": blocks, "stop_reason": reason, "usage": usage}
        ).encode()

    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "Bern"}}
    world.upstream.will(
        whole(answer({"type": "text", "text": "Wait."}, call, reason="tool_use")),
        whole(answer({"type": "text", "text": "Sun."}, reason="end_turn")),
    )
    asked = {"model": "claude-opus-4-1", "max_tokens": 9, "messages": [said("weather?")]}
    result = {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": [{"type": "text", "text": "sun"}],
    }
    text = {"type": "text", "text": "now answer", "cache_control": {"type": "ephemeral"}}
    resent = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "weather?", "cache_control": {"type": "ephemeral"}}
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "Wait."}, call]},
        {"role": "user", "content": [result, text]},
    ]

    await world.post(MESSAGES, asked)
    await world.post(MESSAGES, {**asked, "messages": resent})
    await world.settle()

    [head] = world.heads()
    assert [message.role.value for message in world.messages(head)] == [
        "user", "assistant", "tool", "user", "assistant",
    ]  # fmt: skip
    assert world.texts(head)[-1] == "Sun."


async def test_the_responses_interface_continues_by_its_id_and_by_its_items(
    world: ProxyWorld,
) -> None:
    def response(id: str, *output: object) -> bytes:
        usage = {
            "input_tokens": 20,
            "input_tokens_details": {"cached_tokens": 5},
            "output_tokens": 2,
        }
        return json.dumps(
            {
                "id": id,
                "object": "response",
                "status": "completed",
                "model": "gpt-5",
                "output": output,
                "usage": usage,
            }
        ).encode()

    def text(words: str) -> dict[str, object]:
        part = {"type": "output_text", "text": words, "annotations": []}
        return {"type": "message", "id": "m", "role": "assistant", "content": [part]}

    thought = {
        "type": "reasoning",
        "id": "rs",
        "summary": [{"type": "summary_text", "text": "Hm."}],
    }
    call = {
        "type": "function_call",
        "id": "fc",
        "call_id": "call_1",
        "name": "look",
        "arguments": "{}",
    }
    result = {"type": "function_call_output", "call_id": "call_1", "output": "sun"}
    completed = json.loads(response("resp_3", text("Third.")))
    world.upstream.will(
        whole(response("resp_1", thought, text("First."), call)),
        whole(response("resp_2", text("Second."))),
        streamed(
            events(("response.completed", {"type": "response.completed", "response": completed}))
        ),
    )

    await world.post(RESPONSES, {"model": "gpt-5", "input": "one", "instructions": "Be brief."})
    await world.post(
        RESPONSES, {"model": "gpt-5", "input": [result], "previous_response_id": "resp_1"}
    )
    items = [said("one"), thought, text("First."), call, result, text("Second."), said("three")]
    await world.post(RESPONSES, {"model": "gpt-5", "input": items, "stream": True})
    await world.settle()

    [first, *forks] = world.heads()
    assert world.texts(first)[:4] == ["one", "First.", "", "Second."]
    # The items are recognised as far as they were sent before: up to the first answer.
    everything = world.texts(forks[0] if forks else first)
    assert everything == ["one", "First.", "", "Second.", "three", "Third."]
    assert first.usage.cache_read_tokens >= 10


async def test_a_session_that_is_named_goes_on_whatever_is_sent_of_it(world: ProxyWorld) -> None:
    world.upstream.will(chat("hi"), chat("fine"), chat("other"))
    named = {"X-Sessionary-Session": "my talk", "X-Sessionary-Person": "ada"}

    await world.ask(said("hello"), headers=named)
    await world.ask(said("only what is new"), headers=named)
    await world.ask(said("hello"), metadata={"session": "another"}, user="bob")
    await world.settle()

    first, second = world.heads()
    assert world.texts(first) == ["hello", "hi", "only what is new", "fine"]
    person = world.messages(first)[0].person
    assert (first.source.chat_id, person and person.id) == ("my talk", "ada")
    assert (second.source.chat_id, second.source.user_id) == ("another", "bob")
    assert all(
        "x-sessionary" not in name for each in world.upstream.requests for name in each.headers
    )


async def test_a_session_that_is_named_is_recognised_by_its_last_messages(
    world: ProxyWorld,
) -> None:
    world.upstream.will(*map(chat, ("one", "two", "three", "four")))
    talk = []

    for number, answer in enumerate(("one", "two", "three", "four")):
        talk.append(said(f"question {number}"))
        await world.ask(*talk[-3:], headers={"X-Session-Id": "a long talk"})
        talk.append(replied(answer))
    await world.settle()

    [head] = world.heads()
    assert world.texts(head) == [message["content"] for message in talk]


async def test_claude_codes_conversations_are_told_apart_by_its_session(world: ProxyWorld) -> None:
    def answered(text: str) -> bytes:
        content = [{"type": "text", "text": text}]
        usage = {"input_tokens": 5, "output_tokens": 3}
        return json.dumps({"id": "m", "model": "claude-opus-4-1", "content": content, "stop_reason": "end_turn",
                           "usage": usage}).encode()  # fmt: skip

    world.upstream.will(*(whole(answered(text)) for text in ("hi", "hi", "one", "two")))
    ids = [f"user_abc_account_me_session_{'0' * 8}-{n}" for n in (1, 2)]
    asked = {"model": "claude-opus-4-1", "max_tokens": 9}

    for id in ids:
        await world.post(
            MESSAGES, {**asked, "messages": [said("hello")], "metadata": {"user_id": id}}
        )
    world.key = "a-token-that-was-renewed-meanwhile"
    for id in ids:
        talk = [said("hello"), replied("hi"), said("and?")]
        await world.post(MESSAGES, {**asked, "messages": talk, "metadata": {"user_id": id}})
    await world.settle()

    assert [world.texts(head) for head in world.heads()] == [
        ["hello", "hi", "and?", "one"],
        ["hello", "hi", "and?", "two"],
    ]
    assert {head.source.user_id for head in world.heads()} == {"me"}


async def test_a_stream_that_the_upstream_breaks_off_is_recorded_as_interrupted(
    world: ProxyWorld,
) -> None:
    pieces = chat_events("It was a dark and stormy", is_whole=False)
    world.upstream.will(streamed(pieces, is_whole=False), chat("night"))

    answer = await world.send(
        world.request(CHAT, {"model": "gpt-5", "stream": True, "messages": [said("tell")]})
    )
    await world.ask(said("tell"))
    await world.settle()

    assert b"stormy" in answer
    assert not answer.endswith(b"0\r\n\r\n")
    [head] = world.heads()
    assert [turn.state for turn in world.turns(head)] == [TurnState.INTERRUPTED, TurnState.DONE]
    assert world.texts(head) == ["tell", "It was a dark and stormy", "night"]


async def test_a_client_that_leaves_ends_the_request_at_the_upstream(world: ProxyWorld) -> None:
    never = asyncio.Event()
    pieces = chat_events("It was", is_whole=False)
    script = streamed(pieces)[:-1]
    world.upstream.will([*script, never])
    reader, writer = await asyncio.open_connection("127.0.0.1", world.proxy.port)
    writer.write(
        world.request(CHAT, {"model": "gpt-5", "stream": True, "messages": [said("tell")]})
    )
    await reader.readuntil(b"was")

    writer.close()
    async with asyncio.timeout(30):
        await world.upstream.left.wait()
    await world.settle()

    [head] = world.heads()
    [turn] = world.turns(head)
    assert (turn.state, turn.reason) == (TurnState.INTERRUPTED, "the client broke off")
    assert world.texts(head) == ["tell", "It was"]


async def test_a_client_that_leaves_before_the_first_byte_is_recorded_too(
    world: ProxyWorld,
) -> None:
    never = asyncio.Event()
    world.upstream.will([never])
    _, writer = await asyncio.open_connection("127.0.0.1", world.proxy.port)
    writer.write(world.request(CHAT, {"model": "gpt-5", "messages": [said("tell")]}))
    async with asyncio.timeout(30):
        while not world.upstream.requests:  # noqa: ASYNC110 - the upstream tells nobody
            await asyncio.sleep(0.005)

    writer.close()
    async with asyncio.timeout(30):
        await world.upstream.left.wait()
    await world.settle()

    [head] = world.heads()
    [turn] = world.turns(head)
    assert turn.state is TurnState.INTERRUPTED
    assert world.texts(head)[0] == "tell"


@pytest.mark.parametrize(
    ("coding", "compress"),
    [
        ("zstd", zstandard.ZstdCompressor().compress),
        ("gzip", gzip.compress),
        ("Deflate", zlib.compress),
        ("identity", bytes),
    ],
)
async def test_a_request_that_is_compressed_is_read_and_passed_on_as_it_is(
    coding: str, compress: Callable[[bytes], bytes], fast_world: ProxyWorld
) -> None:
    """Its key is hidden, too."""
    world = fast_world
    world.upstream.will(chat("hi"))
    asked = {"model": "gpt-5", "user": "ann", "messages": [said(f"hello, I am {KEY}")]}
    body = compress(json.dumps(asked).encode())

    await world.post(CHAT, body, headers={"Content-Encoding": coding})
    await world.settle()

    assert world.upstream.requests[0].body == body
    [head] = world.heads()
    assert world.texts(head) == ["hello, I am [key]", "hi"]
    assert head.source.user_id == "ann"


@pytest.mark.parametrize(
    "body",
    [b"rubbish", zstandard.ZstdCompressor().compress(b" " * 400_000)],
    ids=["rubbish", "bomb"],
)
async def test_a_compressed_request_that_cannot_be_read_is_noted(
    body: bytes, file_store: Store
) -> None:
    async with running(file_store, copy_bytes=100_000) as world:
        world.upstream.will(chat("hi"))

        await world.post(CHAT, body, headers={"Content-Encoding": "zstd"})
        await world.settle()

        assert world.upstream.requests[0].body == body
        [head] = world.heads()
        [answer] = world.messages(head)
        assert answer.text == "hi"
        assert "undecoded_request" in str(answer.parts)


@pytest.mark.parametrize("is_stream", [False, True])
async def test_what_cannot_be_read_is_recorded_as_it_came(
    world: ProxyWorld, is_stream: bool
) -> None:
    nonsense = "¿qué? <html>\x00 {".encode()
    world.upstream.will(streamed([nonsense]) if is_stream else whole(nonsense))

    status, answer = await world.post(CHAT, b'{"broken": \xff')
    await world.settle()

    assert status == 200
    assert nonsense in answer
    [head] = world.heads()
    asked, answered = world.messages(head)
    assert world.unknown(asked)[0]["text"].startswith('{"broken": ')
    assert "<html>" in world.unknown(answered)[0]["text"]


async def test_an_exchange_whose_process_died_is_recorded_once_as_far_as_it_came(
    world: ProxyWorld,
) -> None:
    now = datetime.now(UTC)
    facts = {
        "interface": "chat",
        "client": "c",
        "upstream": "openai",
        "path": "/v1/chat/completions",
    }
    body = json.dumps({"model": "gpt-5", "messages": [said("lost?")]}).encode()
    row = StoredExchange("x1", "main", "open", "gone/1", now, now, facts, pack(body))
    await world.store.write(exchanges.put, row, expires_at=datetime(2020, 1, 1, tzinfo=UTC))

    for _ in range(2):
        await world.proxy.service.recorder.sweep()
        await world.settle()

    [head] = world.heads()
    [turn] = world.turns(head)
    assert (turn.state, turn.reason) == (TurnState.INTERRUPTED, PROCESS_DIED)
    assert world.texts(head)[0] == "lost?"

    # It was only frozen, and writes the rest after all.
    done = {**facts, "status": 200, "is_stream": False, "is_whole": True}
    answer = chat("found")[0]
    assert isinstance(answer, bytes)
    whole_body = answer.partition(b"\r\n\r\n")[2]
    late = StoredExchange(
        "x1", "main", "done", "gone/1", now, now, done, pack(body), pack(whole_body)
    )
    for _ in range(2):
        await world.store.write(exchanges.put, late, expires_at=now)
        await world.settle()

    [head] = world.heads()
    assert world.texts(head)[0] == "lost?"
    assert world.texts(head)[-1] == "found"
    assert len(world.turns(head)) == 2


async def test_searches_and_sums_find_what_has_passed(world: ProxyWorld) -> None:
    world.upstream.will(chat("a rhinoceros"))
    await world.ask(said("which animal?"))
    await world.settle()

    [total] = world.store.read(usage.sum_usage, "model", profile="main").result()
    found = world.store.search(
        search.search,
        "rhinoceros",
        profile="main",
        options=search.SearchOptions(),
        now=datetime.now(UTC),
    ).result()

    assert (total.group, total.calls) == ("gpt-5", 1)
    assert total.cost_microusd is not None
    assert [hit.session.id for hit in found.hits] == [world.heads()[0].id]


async def test_a_stream_that_does_not_say_what_it_used_counts_against_budgets_by_estimate(
    store: Store,
) -> None:
    async with running(store, budgets={"profile": Budget(tokens=20)}) as world:
        world.upstream.will(streamed(chat_events("many words " * 20)))
        await world.ask(said("hello"), stream=True)
        await world.settle()

        status, _ = await world.post(CHAT, {"model": "gpt-5", "messages": [said("more")]})

        assert status == 429
        # It is not in the record: nobody has counted it.
        assert world.heads()[0].usage.calls == 0


@pytest.mark.parametrize(("limit", "status"), [("copy_bytes", 413), ("memory_bytes", 503)])
async def test_what_is_too_long_to_be_checked_against_a_budget_is_not_passed_on(
    file_store: Store, limit: str, status: int
) -> None:
    budgets = {"model:gpt-5": Budget(tokens=20)}
    options: Any = {limit: 65_536}
    async with running(file_store, budgets=budgets, **options) as world:
        body = {"model": "gpt-5", "messages": [said("many words " * 20_000)]}

        refused, _ = await world.post(CHAT, body)

        assert (refused, world.upstream.requests) == (status, [])
        world.upstream.will(chat("hi"))
        await world.ask(said("few"))


BUDGETS = {
    "model:gpt-5": Budget(tokens=20),
    "person:proxy:ada": Budget(tokens=20),
    "profile": Budget(tokens=20),
}


@pytest.mark.parametrize("scope", BUDGETS)
async def test_a_budget_that_is_used_up_refuses_before_anything_is_passed_on(
    store: Store, scope: str
) -> None:
    budgets = {scope: BUDGETS[scope]}
    assert budget_of(scope, budgets)
    async with running(store, budgets=budgets) as world:
        world.upstream.will(chat("hi"))
        await world.ask(said("hello"), user="ada")
        await world.settle()
        asked = {"model": "gpt-5", "messages": [said("hello")], "max_tokens": 5}

        refused = await world.post(CHAT, {**asked, "user": "ada"})
        theirs = await world.post(MESSAGES, {**asked, "metadata": {"user_id": "ada"}})

        assert len(world.upstream.requests) == 1
        status, body = refused
        told = json.loads(body)["error"]
        assert (status, told["type"], told["code"]) == (429, "insufficient_quota", "budget_used_up")
        assert "is used up" in told["message"]
        assert (theirs[0], json.loads(theirs[1])["error"]["type"]) == (429, "rate_limit_error")
        if scope != "profile":
            world.upstream.will(chat("hi"))
            other = {**asked, "model": "gpt-4o"} if scope.startswith("model") else asked
            status, _ = await world.post(CHAT, other)
            assert status == 200
