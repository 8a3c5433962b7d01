"""History providers of Microsoft's Agent Framework."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from agent_framework import AgentResponse, AgentSession, Content, Message, SessionContext

from sessionary import Sessionary
from sessionary.errors import BadInput, StoreUnavailable
from sessionary.integrations.agent_framework import SessionaryHistoryProvider
from tests.integrations.sdk_programs import MODEL, Urls, broken, kept, tell_kill_and_continue
from tests.support.model_server import ModelServer

SAID = [
    Message("system", ["Be kind."]),
    Message(
        "user", ["Where is this?", Content.from_uri("https://x.test/a.png", media_type="image/png")]
    ),
    Message(
        "assistant",
        [
            Content.from_text_reasoning(text="Hm."),
            Content.from_function_call("c1", "look", arguments={"at": "harbour"}),
        ],
        author_name="guide",
        additional_properties={"mood": [1, 2.5, None]},
    ),
    Message("tool", [Content.from_function_result("c1", result="three ships")]),
    Message("assistant", ["There are three ships."]),
]


@pytest.fixture
def provider(client: Sessionary) -> SessionaryHistoryProvider:
    return SessionaryHistoryProvider(client, model=MODEL)


async def test_an_agent_that_is_killed_goes_on_in_another_process(
    urls: Urls, model: ModelServer
) -> None:
    asks = await tell_kill_and_continue("agent_framework", urls, model)

    for ask in asks:
        roles = [message["role"] for message in ask.messages]
        assert roles == [
            "system",
            "user",
            "assistant",
            "user",
            "assistant",
            "tool",
            "assistant",
            "user",
        ]
    for url in urls:
        found = kept(url)
        assert "The report says Lisbon: 21 degrees and sunny" in found.texts
        assert (found.platform, bool(found.cost)) == ("agent-framework", True)
        assert (found.tool_calls, found.found >= 3) == (1, True)


async def test_messages_come_back_as_they_were_and_people_read_them(
    client: Sessionary, provider: SessionaryHistoryProvider
) -> None:
    await provider.save_messages("s", SAID)

    found = await provider.get_messages("s")

    assert [each.to_dict() for each in found] == [each.to_dict() for each in SAID]
    (head,) = client.sessions().items
    assert (head.preview, head.tool_call_count) == ("Where is this?", 1)
    chat = client.find(head.id).context()
    assert [each["role"] for each in chat] == ["system", "user", "assistant", "tool", "assistant"]
    assert client.search("ships").items


async def test_what_a_person_adds_in_the_workbench_the_agent_reads(
    client: Sessionary, provider: SessionaryHistoryProvider
) -> None:
    await provider.save_messages("s", SAID[:2])
    chat = client.find(client.sessions().items[0].id)
    chat.append("assistant", [{"type": "tool_call", "id": "c", "name": "look", "arguments": "{}"}])
    chat.append("tool", [{"type": "tool_result", "call_id": "c", "content": "fog"}])

    *_, call, result = await provider.get_messages("s")

    assert (call.contents[0].name, result.contents[0].result) == ("look", "fog")


async def test_two_runs_and_a_cancelled_one_lose_nothing(
    client: Sessionary, provider: SessionaryHistoryProvider
) -> None:
    await asyncio.gather(*(provider.save_messages("s", SAID) for _ in range(10)))
    for number in range(10):
        task = asyncio.create_task(provider.save_messages("s", SAID))
        for _ in range(number % 3):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    count = len(await provider.get_messages("s"))
    assert count >= 10 * len(SAID)
    assert count % len(SAID) == 0
    assert broken(client) == []


async def test_a_recorder_of_what_others_keep_only_writes(client: Sessionary) -> None:
    recorder = SessionaryHistoryProvider(client, "audit", load_messages=False, store_inputs=False)
    context = SessionContext(session_id="s", input_messages=[Message("user", ["hello"])])
    used: Any = {
        "input_token_count": 100,
        "cache_read_input_token_count": 30,
        "output_token_count": 7,
    }
    answer = AgentResponse(
        messages=SAID[-1:],
        response_id="r1",
        usage_details=used,
        raw_representation=SimpleNamespace(model=MODEL),
    )
    context._response = answer
    for _ in range(2):
        await recorder.after_run(agent=None, session=AgentSession(), context=context, state={})

    (head,) = client.sessions().items
    assert head.message_count == 2
    assert (head.usage.calls, head.usage.input_tokens, head.usage.cache_read_tokens) == (1, 70, 30)
    assert head.usage.cost_microusd


async def test_a_run_without_a_session_is_refused_in_one_line(
    provider: SessionaryHistoryProvider,
) -> None:
    with pytest.raises(BadInput, match="needs a session"):
        await provider.get_messages(None)


async def test_messages_that_a_compaction_excluded_are_left_out_on_demand(
    client: Sessionary,
) -> None:
    provider = SessionaryHistoryProvider(client)
    old = Message("user", ["old"], additional_properties={"_excluded": True})
    await provider.save_messages("s", [old, Message("user", ["new"])])

    shorter = SessionaryHistoryProvider(client, skip_excluded=True)

    assert [each.text for each in await provider.get_messages("s")] == ["old", "new"]
    assert [each.text for each in await shorter.get_messages("s")] == ["new"]
    assert client.sessions().items[0].message_count == 2


async def test_only_the_latest_messages_are_read_and_no_result_without_its_call(
    client: Sessionary, provider: SessionaryHistoryProvider
) -> None:
    await provider.save_messages("s", SAID)

    async def read(limit: int) -> list[str]:
        few = SessionaryHistoryProvider(client, max_messages=limit)
        return [str(each.role) for each in await few.get_messages("s")]

    assert await read(1) == ["assistant"]
    assert await read(2) == ["assistant"]
    assert await read(3) == ["assistant", "tool", "assistant"]
    assert await read(100) == [str(each.role) for each in SAID]
    with pytest.raises(BadInput, match="max_messages"):
        SessionaryHistoryProvider(client, max_messages=0)


async def test_a_history_is_cleared_and_stays_in_the_log(
    client: Sessionary, provider: SessionaryHistoryProvider
) -> None:
    await provider.save_messages("s", SAID)

    await provider.clear("s")
    await provider.clear("never used")

    assert await provider.get_messages("s") == []
    assert client.search("ships").items
    await provider.save_messages("s", SAID[:1])
    assert len(await provider.get_messages("s")) == 1


async def test_the_sessions_of_the_framework_are_listed(
    client: Sessionary, provider: SessionaryHistoryProvider
) -> None:
    assert await provider.list_sessions() == []
    for name in ("b", "a/b c", "é"):
        await provider.save_messages(name, SAID[:1])
    client.new_session().append("user", "not of the framework")

    assert await provider.list_sessions() == ["a/b c", "b", "é"]


async def test_a_closed_store_says_that_it_is_closed(
    client: Sessionary, provider: SessionaryHistoryProvider
) -> None:
    client.close()

    with pytest.raises(StoreUnavailable, match="closed"):
        await provider.get_messages("s")
    for messages in ([], SAID):
        with pytest.raises(StoreUnavailable, match="closed"):
            await provider.save_messages("s", messages)
