"""Chat message histories of LangChain, and the recorder for LangGraph."""

import asyncio
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

from sessionary import Sessionary
from sessionary.errors import StoreUnavailable
from sessionary.integrations.langchain import SessionaryChatMessageHistory, usage_of
from sessionary.integrations.langgraph import SessionaryRecorder
from tests.integrations.sdk_programs import MODEL, Urls, broken, kept, tell_kill_and_continue
from tests.support.model_server import ModelServer

USED: Any = {
    "input_tokens": 100,
    "output_tokens": 7,
    "total_tokens": 107,
    "input_token_details": {"cache_read": 30},
    "output_token_details": {"reasoning": 2},
}
SAID: list[BaseMessage] = [
    SystemMessage("Be kind."),
    HumanMessage(
        [{"type": "text", "text": "Where is this?"}, {"type": "image", "url": "https://x.test/a"}]
    ),
    AIMessage(
        [{"type": "reasoning", "reasoning": "Hm."}, {"type": "text", "text": "Let me look."}],
        id="run-1",
        tool_calls=[{"name": "look", "args": {"at": "harbour"}, "id": "c1", "type": "tool_call"}],
        usage_metadata=USED,
        response_metadata={"model_name": MODEL, "odd": [1, 2.5]},
    ),
    ToolMessage("three ships", tool_call_id="c1", artifact={"raw": 1}),
    AIMessage("There are three ships."),
]


async def test_a_chain_that_is_killed_goes_on_in_another_process(
    urls: Urls, model: ModelServer
) -> None:
    asks = await tell_kill_and_continue("langchain", urls, model)

    for ask in asks:
        roles = [message["role"] for message in ask.messages]
        assert roles[:6] == ["user", "assistant", "user", "assistant", "tool", "assistant"]
    for url in urls:
        found = kept(url)
        assert "The report says Lisbon: 21 degrees and sunny" in found.texts
        assert "And the weather in Porto?" in found.texts
        assert (found.platform, bool(found.cost)) == ("langchain", True)


async def test_a_graph_that_is_killed_goes_on_and_its_record_is_whole(
    urls: Urls, model: ModelServer
) -> None:
    await tell_kill_and_continue("langgraph", urls, model)

    for url in urls:
        found = kept(url)
        texts = [text for text in found.texts if text]
        assert texts[:4] == [
            "Good morning, this is Ada.",
            "I have read 1 messages.",
            "How is the weather in Lisbon?",
            "The report says Lisbon: 21 degrees and sunny",
        ]
        assert texts[4] == "And the weather in Porto?"
        assert "Do you remember me?" in texts
        assert (found.platform, bool(found.cost)) == ("langgraph", True)
        assert len(texts) == len(set(texts))


async def test_messages_come_back_as_they_were_and_people_read_them(client: Sessionary) -> None:
    history = SessionaryChatMessageHistory("s", client)
    history.add_messages(SAID[:2])
    await history.aadd_messages(SAID[2:])

    assert history.messages == SAID
    assert await SessionaryChatMessageHistory("s", client).aget_messages() == SAID
    (head,) = client.sessions().items
    assert (head.preview, head.tool_call_count) == ("Where is this?", 1)
    assert (head.usage.input_tokens, head.usage.cache_read_tokens) == (70, 30)
    assert head.usage.cost_microusd
    chat = client.find(head.id).context()
    assert [each["role"] for each in chat] == ["system", "user", "assistant", "tool", "assistant"]
    assert client.search("ships").items


async def test_a_cleared_history_begins_afresh(client: Sessionary) -> None:
    history = SessionaryChatMessageHistory("s", client)
    history.add_messages(SAID)
    history.clear()
    await history.aclear()
    history.add_messages([])

    history.add_user_message("again")

    assert history.messages == [HumanMessage("again")]
    assert client.sessions().items[0].last_seq == len(SAID) + 2


async def test_what_a_person_adds_in_the_workbench_the_chain_reads(client: Sessionary) -> None:
    history = SessionaryChatMessageHistory("s", client)
    history.add_messages(SAID[:1])
    chat = client.find(client.sessions().items[0].id)
    chat.append("user", "hello")
    chat.append(
        "assistant", [{"type": "tool_call", "id": "c", "name": "look", "arguments": '{"at": 1}'}]
    )
    chat.append("tool", [{"type": "tool_result", "call_id": "c", "content": "fog"}])

    _, asked, call, result = history.messages

    assert asked == HumanMessage("hello")
    assert isinstance(call, AIMessage)
    assert call.tool_calls[0]["args"] == {"at": 1}
    assert result == ToolMessage("fog", tool_call_id="c")


async def test_histories_written_at_once_or_cancelled_lose_nothing(client: Sessionary) -> None:
    one = SessionaryChatMessageHistory("s", client)
    await asyncio.gather(*(one.aadd_messages(SAID) for _ in range(10)))
    for number in range(10):
        task = asyncio.create_task(one.aadd_messages(SAID))
        for _ in range(number % 3):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    found = await one.aget_messages()
    assert len(found) >= 10 * len(SAID)
    assert len(found) % len(SAID) == 0
    assert broken(client) == []


class Talk(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def graph(*answers: str) -> Any:
    """A graph of nodes that each say something, the first through a graph inside it."""

    def speaker(text: str) -> Any:
        return lambda _: {"messages": [AIMessage(text, usage_metadata=USED)]}

    inner = StateGraph(Talk)
    inner.add_node("whisper", lambda _: {"messages": [AIMessage("a whisper", id="w")]})
    inner.add_node("forget", lambda _: {"messages": []})
    inner.add_edge(START, "whisper")
    quiet = inner.compile()
    plan = StateGraph(Talk)
    last = START
    for text in answers:
        plan.add_node(text, speaker(text))
        plan.add_edge(last, text)
        last = text
    plan.add_node("inside", lambda state: quiet.invoke({"messages": state["messages"]}) and None)
    plan.add_edge(last, "inside")
    return plan.compile(checkpointer=InMemorySaver())


def where(recorder: SessionaryRecorder, name: str = "t") -> Any:
    return {"configurable": {"thread_id": name}, "callbacks": [recorder]}


async def test_a_recorder_writes_each_message_of_a_thread_once(
    url: str, client: Sessionary
) -> None:
    speaking = graph("one", "two")
    speaking.invoke({"messages": [HumanMessage("hello")]}, where(SessionaryRecorder(client)))
    # Another recorder, as in another process: it knows nothing of what was written.
    await speaking.ainvoke({"messages": [HumanMessage("again")]}, where(SessionaryRecorder(client)))

    (head,) = client.sessions().items
    window = client.find(head.id).entries()
    texts = [entry.body.text for entry in window.entries]  # type: ignore[union-attr]
    assert texts == ["hello", "one", "two", "again", "one", "two"]
    assert head.usage.calls == 4
    assert broken(client) == []


def test_threads_are_sessions_of_their_own_and_runs_without_one_are_left_alone(
    client: Sessionary,
) -> None:
    recorder = SessionaryRecorder(client)
    for name in ("a", "b"):
        graph("one").invoke({"messages": [HumanMessage(name)]}, where(recorder, name))
    plain: Any = RunnableLambda(lambda arguments: {"messages": arguments})
    plain.invoke([HumanMessage("c", id="c")], {"callbacks": [recorder]})

    assert sorted(str(head.preview) for head in client.sessions().items) == ["a", "b"]


def test_a_record_that_cannot_be_written_fails_the_run_unless_that_is_not_wanted(url: str) -> None:
    with Sessionary(url) as closed:
        pass
    asked = {"messages": [HumanMessage("hello")]}

    with pytest.raises(StoreUnavailable, match="closed"):
        graph("one").invoke(asked, where(SessionaryRecorder(closed)))

    lenient = SessionaryRecorder(closed, raise_error=False)
    assert graph("one").invoke(asked, where(lenient))["messages"]


def test_tokens_cached_for_an_hour_are_counted_apart() -> None:
    details = {
        "cache_creation": 0,
        "ephemeral_5m_input_tokens": 10,
        "ephemeral_1h_input_tokens": 30,
    }
    used: Any = {**USED, "input_token_details": details}

    usage = usage_of(AIMessage("x", usage_metadata=used), call_id="c")

    assert usage is not None
    assert (usage.input_tokens, usage.cache_write_tokens, usage.cache_write_1h_tokens) == (
        60,
        40,
        30,
    )
