"""Conversation stores of pydantic-ai: beside its own store in memory, and with its own agents."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai import BinaryImage
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from sessionary import Sessionary
from sessionary.integrations.pydantic_ai import SessionaryConversationStore
from sessionary.model.message import Message
from sessionary.model.session import Lineage, SessionFolder
from tests.integrations.sdk_programs import MODEL, Urls, broken, kept, tell_kill_and_continue
from tests.support.model_server import ModelServer

EVERYTHING: list[ModelMessage] = [
    ModelRequest(
        parts=[
            SystemPromptPart("You are a guide."),
            UserPromptPart(["Where is this?", BinaryImage(b"\x89PNG\x00", media_type="image/png")]),
        ]
    ),
    ModelResponse(
        parts=[
            ThinkingPart("A harbour.", signature="sig"),
            TextPart("Let me look."),
            ToolCallPart("look", {"at": "harbour"}, "c1"),
        ],
        usage=RequestUsage(input_tokens=100, cache_read_tokens=40, output_tokens=7),
        model_name=MODEL,
    ),
    ModelRequest(
        parts=[
            ToolReturnPart("look", {"ships": 3}, "c1"),
            ToolReturnPart("look", "try again", "c2", outcome="retried"),
        ]
    ),
    ModelResponse(parts=[TextPart("Three ships.")], model_name=MODEL),
]


def says(*texts: str) -> list[ModelMessage]:
    return [ModelRequest(parts=[UserPromptPart(text)]) for text in texts]


@pytest.fixture
def store(client: Sessionary) -> SessionaryConversationStore:
    return SessionaryConversationStore(client)


async def grown(store: ConversationStore, id: str, *texts: str) -> Conversation:
    """Store the conversation with more messages."""
    conversation = await store.load(id) or Conversation(conversation_id=id)
    conversation.messages.extend(says(*texts))
    await store.save(conversation)
    return conversation


async def texts(store: ConversationStore, id: str, **how: Any) -> list[str] | None:
    found = await store.load(id, **how)
    return None if found is None else [str(message.parts[0].content) for message in found.messages]  # type: ignore[union-attr]


async def test_an_agent_that_is_killed_goes_on_in_another_process(
    urls: Urls, model: ModelServer
) -> None:
    asks = await tell_kill_and_continue("pydantic_ai", urls, model)

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
        # The address of the model is not one that has a price.
        assert (found.platform, found.tokens > 0, found.cost) == ("pydantic-ai", True, None)
        assert (found.tool_calls, found.found >= 3) == (1, True)


async def test_messages_come_back_as_they_were(store: SessionaryConversationStore) -> None:
    await store.save(Conversation(conversation_id="a", messages=EVERYTHING))

    found = await store.load("a")

    assert found is not None
    assert found.messages == EVERYTHING


async def test_a_conversation_is_a_session_that_people_read(
    client: Sessionary, store: SessionaryConversationStore
) -> None:
    await store.save(Conversation(conversation_id="a", messages=EVERYTHING), scope="ada")

    (head,) = client.sessions().items
    assert (head.preview, head.tool_call_count) == ("Where is this?", 1)
    assert (head.usage.input_tokens, head.usage.cache_read_tokens) == (60, 40)
    assert head.usage.cost_microusd
    assert head.source.user_id == "ada"
    asked = client.find(head.id).entries().entries[0].body
    assert isinstance(asked, Message)
    assert [type(part).__name__ for part in asked.parts] == ["Unknown", "Text", "Attachment"]
    chat = client.find(head.id).context()
    assert [each["role"] for each in chat] == ["user", "assistant", "tool", "assistant"]
    assert client.search("ships").items


async def test_a_save_over_someone_elses_is_a_conflict_and_loses_nothing(
    client: Sessionary, store: SessionaryConversationStore
) -> None:
    await grown(store, "a", "one")
    mine, theirs = await store.load("a"), await store.load("a")
    assert mine is not None
    assert theirs is not None
    theirs.messages.extend(says("theirs"))
    await store.save(theirs)
    mine.messages.extend(says("mine"))

    with pytest.raises(ConversationConflict):
        await store.save(mine)
    with pytest.raises(ConversationConflict):
        await store.save(Conversation(conversation_id="a", messages=says("new")))

    assert await texts(store, "a") == ["one", "theirs"]
    assert broken(client) == []


async def test_of_many_saves_at_once_one_wins(url: str, client: Sessionary) -> None:
    with Sessionary(url) as other:
        stores = [SessionaryConversationStore(each) for each in (client, other)]
        outcomes = await asyncio.gather(
            *(
                stores[number % 2].save(
                    Conversation(conversation_id="a", messages=says(str(number)))
                )
                for number in range(10)
            ),
            return_exceptions=True,
        )
        won = [number for number, each in enumerate(outcomes) if not isinstance(each, Exception)]
        assert await texts(stores[0], "a") == [str(won[0])]

    assert len(won) == 1
    assert all(isinstance(each, ConversationConflict | list) for each in outcomes)


async def test_a_cancelled_save_is_whole_or_not_there(
    client: Sessionary, store: SessionaryConversationStore
) -> None:
    for number in range(20):
        conversation = Conversation(conversation_id=f"c{number}", messages=says("one", "two"))
        task = asyncio.create_task(store.save(conversation))
        for _ in range(number):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert await texts(store, f"c{number}") in (None, ["one", "two"])
    assert broken(client) == []


async def test_a_branch_is_what_people_read_and_the_left_one_can_be_had_again(
    client: Sessionary, store: SessionaryConversationStore
) -> None:
    await grown(store, "a", "one", "two", "three")
    entries = await store.load_entries("a")
    record = await store.read_record("a")
    assert entries is not None
    assert record is not None

    branched = await store.branch("a", at=1, expected_revision=record.revision)
    branched.messages.extend(says("other"))
    await store.save(branched)
    assert await texts(store, "a") == ["one", "other"]
    (head,) = client.sessions().items
    assert client.find(head.id).context()[-1]["content"] == "other"

    record = await store.read_record("a")
    assert record is not None
    await store.branch("a", from_entry=entries[2].id, expected_revision=record.revision)
    assert await texts(store, "a") == ["one", "two", "three"]
    assert (await store.load_entries("a")) == entries
    assert broken(client) == []


async def test_a_fork_is_a_fork_and_outlives_what_it_came_from(
    client: Sessionary, store: SessionaryConversationStore
) -> None:
    await grown(store, "a", "one", "two", "three")
    await store.fork("a", at=2, new_conversation_id="b")
    await grown(store, "b", "other")

    await store.delete("a")

    assert await texts(store, "a") is None
    assert await texts(store, "b") == ["one", "two", "other"]
    (fork,) = client.sessions().items
    assert (fork.lineage, fork.message_count) == (Lineage.FORK, 3)
    (gone,) = client.sessions(folder=SessionFolder.TRASH).items
    client.find(gone.id).purge()
    assert await texts(store, "b") == ["one", "two", "other"]
    await store.fork("b", at=2, new_conversation_id="c")
    assert await texts(store, "c") == ["one", "two"]
    assert broken(client) == []


async def test_a_fork_of_what_is_gone_is_a_conflict(
    client: Sessionary, store: SessionaryConversationStore
) -> None:
    await grown(store, "a", "one")
    record = await store.read_record("a")
    assert record is not None
    client.find(client.sessions().items[0].id).purge()
    made = replace(record, conversation_id="b", forked_from="a")

    with pytest.raises(ConversationConflict):
        await store.write_record(made, expected_revision=None)

    assert client.sessions().items == ()


async def test_what_a_person_takes_back_in_the_workbench_the_agent_does_not_read(
    client: Sessionary, store: SessionaryConversationStore
) -> None:
    loaded = await grown(store, "a", "one", "two")
    client.find(client.sessions().items[0].id).undo()

    assert await texts(store, "a") == ["one"]
    loaded.messages.extend(says("three"))
    await store.save(loaded)
    assert (await texts(store, "a") or [])[0] == "one"


async def test_a_conversation_without_messages_is_kept_too(
    client: Sessionary, store: SessionaryConversationStore
) -> None:
    await store.save(Conversation(conversation_id="a"))

    found = await store.load("a")
    assert found is not None
    assert found.messages == []
    await grown(store, "a", "one")
    assert await texts(store, "a") == ["one"]


async def test_only_the_last_messages_are_loaded(store: SessionaryConversationStore) -> None:
    await grown(store, "a", *(f"number {n}" for n in range(50)))

    assert await texts(store, "a", limit=2) == ["number 48", "number 49"]
    assert await texts(store, "a", limit=0) == []


async def test_an_entry_that_is_not_there_is_a_lookup_error(
    store: SessionaryConversationStore,
) -> None:
    with pytest.raises(LookupError):
        await store.read_entry("nowhere")
    with pytest.raises(LookupError):
        await store.read_history("nowhere")


NAMES = st.sampled_from(["a", "b", "c"])
STEP = st.one_of(
    st.tuples(st.just("grow"), NAMES, st.integers(0, 3)),
    st.tuples(st.just("branch"), NAMES, st.integers(0, 6)),
    st.tuples(st.just("back"), NAMES, st.integers(0, 3)),
    st.tuples(st.just("rewrite"), NAMES, st.integers(0, 4)),
    st.tuples(st.just("fork"), NAMES, NAMES),
    st.tuples(st.just("delete"), NAMES, st.none()),
)


async def _step(store: ConversationStore, number: int, what: str, name: str, arg: Any) -> Any:
    """Run one operation; return its outcome in a form that does not depend on the store."""
    record = await store.read_record(name)
    revision = "" if record is None else record.revision
    try:
        match what:
            case "grow":
                await grown(store, name, *(f"{number}.{n}" for n in range(arg)))
            case "branch":
                await store.branch(name, at=arg, expected_revision=revision)
            case "back" if record is not None and record.branches:
                tip = record.branches[arg % len(record.branches)]
                await store.branch(name, from_entry=tip, expected_revision=revision)
            case "rewrite":
                old = await store.load(name)
                kept = [] if old is None else old.messages[:arg]
                made = Conversation(conversation_id=name, messages=[*kept, *says(f"{number}.r")])
                made.revision = None if old is None else old.revision
                await store.save(made)
            case "fork":
                await store.fork(name, new_conversation_id=arg)
            case "delete":
                await store.delete(name)
    except (UserError, ConversationConflict) as error:
        return type(error).__name__
    listed = await store.list_conversations()
    found = {each.conversation_id: await texts(store, each.conversation_id) for each in listed}
    branches = {each.conversation_id: len(each.branches) for each in listed}
    return [each.conversation_id for each in listed], found, branches


@settings(max_examples=25)
@given(steps=st.lists(STEP, min_size=3, max_size=12))
def test_it_does_what_the_store_in_memory_does(steps: list[tuple[str, str, Any]]) -> None:
    async def play() -> None:
        with Sessionary("sqlite::memory:") as client:
            ours, theirs = SessionaryConversationStore(client), InMemoryConversationStore()
            for number, (what, name, arg) in enumerate(steps):
                results = [await _step(each, number, what, name, arg) for each in (ours, theirs)]
                assert results[0] == results[1]
            assert broken(client) == []

    asyncio.run(play())
