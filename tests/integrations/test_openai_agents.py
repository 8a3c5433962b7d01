"""Sessions of the OpenAI Agents SDK, run by the SDK itself."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import pytest
from agents.usage import Usage
from openai import AsyncOpenAI

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesCompactionSession,
    RunContextWrapper,
    Runner,
    RunState,
    Session,
    SessionSettings,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from sessionary import Sessionary
from sessionary.actions import turns
from sessionary.actions.transfer import export, jsonl_import
from sessionary.errors import BadInput, Conflict, StoreUnavailable, TurnLost
from sessionary.integrations.openai_agents import About, SessionarySession
from sessionary.model.message import Attachment, Message
from sessionary.model.source import Person
from sessionary.store.tables import blobs
from tests.integrations.sdk_programs import MODEL, Urls, broken, kept, tell_kill_and_continue
from tests.support.http_server import HttpServer, Request, Response, json_response
from tests.support.model_server import ModelServer

# As the Responses interface has them; the odd numbers and orders are meant.
ITEMS: list[Any] = [
    {"role": "user", "content": "How is the weather in Évora?"},
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "I should look."}],
        "encrypted_content": "gAAAA" * 20,
    },
    {"call_id": "c1", "type": "function_call", "name": "weather", "arguments": '{"city": "Évora"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "21.0 degrees \ud83c"},
    {
        "type": "message",
        "role": "assistant",
        "id": "msg_1",
        "status": "completed",
        "content": [{"type": "output_text", "text": "It is 21 degrees.", "annotations": []}],
    },
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}},
    {"type": "of_the_future", "value": 1.0, "big": 2**70, "nested": [None, True, {"z": 1, "a": 2}]},
    {
        "role": "user",
        "content": [{"type": "input_image", "image_url": "data:image/png;base64," + "A" * 2000}],
    },
]


def session(client: Sessionary, name: str = "alice", **options: Any) -> SessionarySession:
    return SessionarySession(name, client, **options)


@pytest.fixture
async def agent(model: ModelServer) -> AsyncIterator[Agent[Any]]:
    set_tracing_disabled(True)
    async with AsyncOpenAI(base_url=model.openai_url, api_key="none") as openai_client:
        yield Agent(name="guide", model=OpenAIChatCompletionsModel(MODEL, openai_client))


async def test_an_agent_that_is_killed_goes_on_in_another_process(
    urls: Urls, model: ModelServer
) -> None:
    asks = await tell_kill_and_continue("openai_agents", urls, model)

    for ask in asks:
        roles = [message["role"] for message in ask.messages]
        assert roles[:6] == ["user", "assistant", "user", "assistant", "tool", "assistant"]
        assert "Lisbon: 21 degrees" in str(ask.messages)
        assert ask.messages[-1]["content"] == "Do you remember me?"
    for url in urls:
        found = kept(url)
        assert found.texts[0] == "Good morning, this is Ada."
        assert "The report says Lisbon: 21 degrees and sunny" in found.texts
        assert (found.platform, found.cost is not None and found.cost > 0) == (
            "openai-agents",
            True,
        )
        assert found.tool_calls >= 1
        assert found.found >= 3


async def test_items_come_back_byte_for_byte(client: Sessionary) -> None:
    await session(client).add_items(ITEMS)

    found = await session(client).get_items()

    assert [json.dumps(item) for item in found] == [json.dumps(item) for item in ITEMS]
    assert broken(client) == []


async def test_items_are_messages_that_people_read_and_find(client: Sessionary) -> None:
    await session(client).add_items(ITEMS)

    (head,) = client.sessions().items
    assert (head.preview, head.tool_call_count) == ("How is the weather in Évora?", 2)
    chat = client.find(head.id).context()
    assert [each["role"] for each in chat[:3]] == ["user", "assistant", "tool"]
    assert client.search("Évora source:openai-agents").items
    text = "".join(export.export_jsonl(client.store, [head.id], profile=client.profile))
    assert "encrypted_content" in text


async def test_a_picture_in_an_item_is_an_attachment(client: Sessionary) -> None:
    await session(client).add_items(ITEMS)

    window = client.find(client.sessions().items[0].id).entries()
    last = window.entries[-1].body
    assert isinstance(last, Message)
    (picture,) = last.parts
    assert isinstance(picture, Attachment)
    assert picture.media_type == "image/png"
    assert client.store.read(blobs.get, picture.blob).result() == bytes(1500)


async def test_only_the_latest_are_given_and_in_order(client: Sessionary) -> None:
    items: list[Any] = [{"role": "user", "content": f"number {n}"} for n in range(500)]
    one = session(client)
    await one.add_items(items)

    assert await one.get_items(limit=3) == items[-3:]
    assert await one.get_items(limit=450) == items[-450:]
    assert await one.get_items(limit=10_000) == items
    assert await one.get_items(limit=0) == []
    assert await one.get_items(limit=-1) == items
    settled = session(client, session_settings=SessionSettings(limit=2))
    assert await settled.get_items() == items[-2:]


async def test_the_latest_are_found_whatever_was_taken_back_before(
    client: Sessionary,
) -> None:
    one = session(client)
    kept: list[Any] = []
    for step in range(30):
        items: list[Any] = [{"role": "user", "content": f"{step} {n}"} for n in range(step % 4 + 1)]
        await one.add_items(items)
        kept += items
        for _ in range(step % 3):
            assert await one.pop_item() == kept.pop()
        if step == 11:
            await one.clear_session()
            kept.clear()

    for limit in range(1, len(kept) + 3):
        assert await one.get_items(limit) == kept[-limit:]
    assert await one.get_items() == kept


async def test_an_item_whose_text_was_spoilt_is_rebuilt_from_what_people_read(
    client: Sessionary,
) -> None:
    await session(client).add_items(ITEMS[:1])
    spoilt = client.find(client.sessions().items[0].id)
    spoilt.append("assistant", "Warm.", extra={"openai-agents": '{"role": "assis'})

    warm = {"role": "assistant", "content": "Warm."}
    assert await session(client).get_items(limit=1) == [warm]
    assert await session(client).get_items() == [ITEMS[0], warm]


async def test_what_a_person_adds_undoes_or_compacts_in_the_workbench_the_agent_sees(
    client: Sessionary,
) -> None:
    one = session(client)
    await one.add_items([{"role": "user", "content": "one"}, {"role": "user", "content": "two"}])
    chat = client.find(client.sessions().items[0].id)

    chat.append("user", "three")
    assert [item["content"] for item in await one.get_items()] == ["one", "two", "three"]
    chat.undo()
    assert [item["content"] for item in await one.get_items()] == ["one", "two"]
    chat.compact("They counted.", through=1)
    first, second = await one.get_items()
    assert "They counted." in first["content"]
    assert second["content"] == "two"
    assert await one.get_items(limit=1) == [second]
    assert await one.get_items(limit=9) == [first, second]


async def test_the_newest_item_is_popped_and_stays_in_the_log(client: Sessionary) -> None:
    one = session(client)
    await one.add_items(ITEMS)

    popped = [await one.pop_item() for _ in ITEMS]

    assert popped == ITEMS[::-1]
    assert await one.pop_item() is None
    assert await one.get_items() == []
    assert broken(client) == []


async def test_popping_takes_one_call_of_a_message_with_several(client: Sessionary) -> None:
    one = session(client)
    await one.add_items([{"role": "user", "content": "hello"}])
    calls = [{"type": "tool_call", "id": f"c{n}", "name": "look", "arguments": "{}"} for n in "12"]
    client.find(client.sessions().items[0].id).append("assistant", calls)

    popped = await one.pop_item()

    assert popped is not None
    assert popped["call_id"] == "c2"
    assert [item.get("call_id") for item in await one.get_items()] == [None, "c1"]


async def test_a_cleared_session_begins_afresh_and_its_words_are_still_there(
    client: Sessionary,
) -> None:
    one = session(client)
    await one.add_items(ITEMS)
    await one.clear_session()
    await one.clear_session()
    assert await one.get_items() == []

    await one.add_items([{"role": "user", "content": "a summary"}])

    assert await one.get_items() == [{"role": "user", "content": "a summary"}]
    (head,) = client.sessions().items
    assert (head.message_count, head.last_seq) == (1, len(ITEMS) + 2)


async def test_nothing_is_opened_by_looking_or_by_adding_nothing(client: Sessionary) -> None:
    one = session(client)

    assert await one.get_items() == []
    assert await one.pop_item() is None
    await one.clear_session()
    await one.add_items([])

    assert client.sessions().items == ()


async def test_a_person_who_ends_the_session_lets_the_agent_begin_afresh(
    client: Sessionary,
) -> None:
    one = session(client)
    await one.add_items(ITEMS[:1])
    client.find(client.sessions().items[0].id).end()

    assert await one.get_items() == []
    await one.add_items([{"role": "user", "content": "again"}])

    assert len(client.sessions().items) == 2
    assert await one.get_items() == [{"role": "user", "content": "again"}]


async def test_two_runs_on_one_session_lose_nothing(client: Sessionary) -> None:
    async def add(who: str) -> None:
        one = session(client)
        for number in range(20):
            await one.add_items(
                [{"role": "user", "content": f"{who} {number} {half}"} for half in "ab"]
            )

    await asyncio.gather(add("x"), add("y"))

    texts = [item["content"] for item in await session(client).get_items()]
    for who in "xy":
        own = [text for text in texts if text.startswith(who)]
        assert own == [f"{who} {number} {half}" for number in range(20) for half in "ab"]
    # What was added together stands together.
    assert all(a[:-1] == b[:-1] for a, b in zip(texts[::2], texts[1::2], strict=True))
    assert len(client.sessions().items) == 1


async def test_a_cancelled_write_is_settled_before_the_cancellation_is_raised(
    client: Sessionary,
) -> None:
    for number in range(30):
        one = session(client, f"s{number}")
        task = asyncio.create_task(one.add_items(ITEMS))
        for _ in range(number % 3 + 1):
            await asyncio.sleep(0)
        if task.cancel():
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            await task  # on a slow machine the writer may be done by now

        # All of it or nothing of it, and nothing that comes later.
        found = await one.get_items()
        assert found == ITEMS or (found == [] and number % 3 == 0)
    assert broken(client) == []


async def test_a_running_turn_of_the_server_blocks_the_sdk_with_a_reason(
    client: Sessionary,
) -> None:
    one = session(client)
    await one.add_items(ITEMS[:1])
    chat = client.find(client.sessions().items[0].id)

    with (
        chat.turn("A person asks in the workbench."),
        pytest.raises(Conflict, match="turn is running"),
    ):
        await one.add_items(ITEMS[1:])

    assert len(await one.get_items()) == 2


async def test_the_runs_own_context_says_whose_it_is_and_what_it_costs(
    client: Sessionary, agent: Agent[Any]
) -> None:
    def about(context: Any) -> About:
        return About(
            profile=context["tenant"], person=Person(context["user"], name="Ada"), model=MODEL
        )

    for user in ("u1", "u1"):
        await Runner.run(
            agent,
            "Hello",
            session=session(client, about=about),
            context={"tenant": "acme", "user": user},
        )

    assert client.sessions().items == ()
    with Sessionary(client.store.url, profile="acme") as tenant:
        (head,) = tenant.sessions().items
        assert head.source.person == Person("u1", name="Ada")
        assert (head.message_count, head.usage.calls, head.usage.input_tokens) == (4, 2, 20)
        assert head.usage.cost_microusd
        assert head.model == MODEL


async def test_calls_of_a_run_that_goes_on_are_counted_once(client: Sessionary) -> None:
    wrapper: RunContextWrapper[Any] = RunContextWrapper(context=None)
    one = session(client, model=MODEL)
    await one.get_items(wrapper=wrapper)
    for number in (1, 2):
        wrapper.usage.add(_used(tokens=10 * number))
        await one.add_items([{"role": "assistant", "content": "x"}], wrapper=wrapper)

    (head,) = client.sessions().items
    assert (head.usage.calls, head.usage.input_tokens) == (2, 30)


def test_it_is_a_session_for_the_sdk(client: Sessionary) -> None:
    assert isinstance(session(client), Session)
    with pytest.raises(BadInput, match="not empty"):
        session(client, "")


async def test_the_stock_session_gives_the_same_answers(client: Sessionary, tmp_path: Any) -> None:
    theirs = SQLiteSession("alice", tmp_path / "theirs.db")
    ours = session(client)
    for one in (theirs, ours):
        await one.add_items(ITEMS[:5])
        await one.pop_item()
        await one.add_items(ITEMS[5:7])

    assert await ours.get_items() == await theirs.get_items()
    assert await ours.get_items(3) == await theirs.get_items(3)
    theirs.close()


def _used(*, tokens: int) -> Any:
    return Usage(requests=1, input_tokens=tokens, output_tokens=1, total_tokens=tokens + 1)


async def test_an_exported_session_goes_on_in_another_store(
    client: Sessionary, new_url: Callable[[str], str]
) -> None:
    await session(client).add_items(ITEMS)
    lines = [line.encode() for line in export.export_jsonl(client.store, None, profile=None)]

    for kind in ("sqlite", "postgres"):
        with Sessionary(new_url(kind)) as other:
            jsonl_import.import_jsonl(other.store, lines, moment=other.moment())
            moved = session(other)
            await moved.add_items([{"role": "user", "content": "Here I am."}])
            assert await moved.get_items() == [*ITEMS, {"role": "user", "content": "Here I am."}]
            assert len(other.sessions().items) == 1


async def test_a_run_that_was_interrupted_and_resumed_is_paid_for_once(
    client: Sessionary, model: ModelServer, agent: Agent[Any]
) -> None:
    @function_tool(needs_approval=True)
    def weather(city: str) -> str:
        """The weather in a city."""
        return f"{city}: 21 degrees"

    careful = agent.clone(tools=[weather])
    one = session(client, model=MODEL)
    first = await Runner.run(careful, "How is the weather in Faro?", session=one)
    state = await RunState.from_json(careful, first.to_state().to_json())
    for asked in first.interruptions:
        state.approve(asked)

    again = await Runner.run(careful, state, session=session(client, model=MODEL))

    assert again.final_output == "The report says Faro: 21 degrees"
    (head,) = client.sessions().items
    assert head.usage.calls == len([ask for ask in model.requests if ask.messages]) == 2
    assert head.message_count == 4


async def test_the_stock_compaction_replaces_what_the_model_reads_and_loses_nothing(
    client: Sessionary,
) -> None:
    short = {"type": "compaction", "id": "cmp_1", "encrypted_content": "short"}
    used = {"input_tokens": 9, "output_tokens": 1, "total_tokens": 10}
    details = {
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }

    async def compact(request: Request) -> Response:
        assert request.path == "/v1/responses/compact"
        return json_response(
            {
                "id": "resp_1",
                "object": "response.compaction",
                "created_at": 1,
                "output": [short],
                "usage": used | details,
            }
        )

    one = session(client)
    await one.add_items([*ITEMS[:3], ITEMS[4]])
    async with (
        HttpServer(compact) as server,
        AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as openai_client,
    ):
        compacting = OpenAIResponsesCompactionSession(
            "alice", one, client=openai_client, compaction_mode="input"
        )
        await compacting.run_compaction({"force": True})

    assert await one.get_items() == [short]
    (head,) = client.sessions().items
    assert (head.message_count, head.last_seq) == (1, 4 + 1 + 1)
    assert client.search("Évora").items


async def test_settings_may_be_a_dictionary(client: Sessionary) -> None:
    items: list[Any] = [{"role": "user", "content": f"number {n}"} for n in range(5)]
    one = session(client, session_settings={"limit": 2})
    await one.add_items(items)

    assert await one.get_items() == items[-2:]
    assert one.session_settings == SessionSettings(limit=2)
    assert isinstance(one, Session)
    one.session_settings = {"limit": None}
    assert await one.get_items() == items


@pytest.mark.parametrize(
    ("given", "text"),
    [({"limti": 2}, "no 'limti'; it has limit"), ({"limit": "many"}, "many"), ("limit", "a dict")],
)
def test_settings_that_are_not_known_are_refused(client: Sessionary, given: Any, text: str) -> None:
    with pytest.raises(BadInput, match=text):
        session(client, session_settings=given)


async def test_a_closed_store_says_that_it_is_closed(client: Sessionary) -> None:
    one = session(client)
    client.close()

    calls: list[Callable[[], Awaitable[Any]]] = [
        one.get_items,
        partial(one.get_items, limit=0),
        partial(one.add_items, []),
        partial(one.add_items, ITEMS),
        one.pop_item,
        one.clear_session,
    ]
    for call in calls:
        with pytest.raises(StoreUnavailable, match="closed"):
            await call()


def texts(items: Sequence[Any]) -> list[str]:
    return [str(item["content"]) for item in items]


def user_items(*words: str) -> list[Any]:
    return [{"role": "user", "content": each} for each in words]


async def test_a_compaction_replaces_all_items_in_one_step_or_none(
    client: Sessionary,
) -> None:
    one = session(client)
    await one.add_items(user_items("a", "b"))

    with pytest.raises(BadInput, match="32 MiB"):
        await one._atomic_replace_items(user_items("short", "x" * (33 << 20)))
    assert texts(await one.get_items()) == ["a", "b"]

    assert await one._atomic_replace_items(user_items("short"))
    assert texts(await one.get_items()) == ["short"]
    assert client.search("a").items


async def test_a_compaction_replaces_the_end_and_keeps_what_is_before_it(
    client: Sessionary,
) -> None:
    one = session(client)
    await one.add_items(user_items("a", "b", "c", "d"))

    snapshot = await one._get_compaction_snapshot(3)
    assert snapshot is not None
    assert (texts(snapshot.items), snapshot.complete) == (["b", "c", "d"], False)
    assert await snapshot.replace_suffix(1, user_items("short"))
    assert texts(await one.get_items()) == ["a", "b", "short"]

    whole = await one._get_compaction_snapshot(3)
    assert whole is not None
    assert (texts(whole.items), whole.complete) == (["a", "b", "short"], True)
    assert not await whole.replace_suffix(3, user_items("nothing to replace"))
    assert broken(client) == []


async def test_a_compaction_of_items_that_have_changed_replaces_nothing(
    client: Sessionary,
) -> None:
    one = session(client)
    await one.add_items(user_items("a", "b"))
    snapshot = await one._get_compaction_snapshot(10)
    assert snapshot is not None

    await session(client).add_items(user_items("c"))

    assert not await snapshot.replace_suffix(0, user_items("short"))
    assert texts(await one.get_items()) == ["a", "b", "c"]


async def test_a_compaction_of_half_a_message_of_ours_keeps_the_other_half(
    client: Sessionary,
) -> None:
    one = session(client)
    await one.add_items(user_items("a"))
    chat = client.find(client.sessions().items[0].id)
    call = {"type": "tool_call", "id": "c", "name": "look", "arguments": "{}"}
    chat.append("assistant", [{"type": "text", "text": "I look."}, call])

    snapshot = await one._get_compaction_snapshot(10)
    assert snapshot is not None
    assert len(snapshot.items) == 3
    assert await snapshot.replace_suffix(2, user_items("short"))
    assert texts(await one.get_items()) == ["a", "I look.", "short"]


async def test_a_summary_goes_on_to_hold_when_items_behind_it_are_replaced(
    client: Sessionary,
) -> None:
    one = session(client)
    await one.add_items(user_items("a", "b", "c", "d"))
    chat = client.find(client.sessions().items[0].id)
    chat.compact("They said a and b.", through=2)

    assert texts([await one.pop_item()]) == ["d"]
    first, *rest = texts(await one.get_items())
    assert ("They said a and b." in first, rest) == (True, ["c"])
    snapshot = await one._get_compaction_snapshot(10)
    assert snapshot is not None
    assert await snapshot.replace_suffix(1, user_items("short"))
    assert texts(await one.get_items())[1:] == ["short"]
    snapshot = await one._get_compaction_snapshot(10)
    assert snapshot is not None
    assert await snapshot.replace_suffix(0, user_items("shorter"))
    assert texts(await one.get_items()) == ["shorter"]
    assert broken(client) == []


async def test_two_exclusive_runs_do_not_interleave(
    client: Sessionary, agent: Agent[Any], model: ModelServer
) -> None:
    async with session(client, exclusive=True) as one:
        with pytest.raises(Conflict, match="turn is running"):
            async with session(client, exclusive=True):
                pass
        with pytest.raises(Conflict, match="already"):
            async with one:
                pass
        with pytest.raises(Conflict, match="turn is running"):
            await session(client).add_items(user_items("in between"))
        result = await Runner.run(agent, "Hello", session=one)
        assert await one._atomic_replace_items(user_items("short"))
        await one.add_items(user_items("more"))
        assert texts([await one.pop_item()]) == ["more"]

    assert result.final_output
    assert texts(await session(client).get_items()) == ["short"]
    async with session(client, exclusive=True) as again:
        await again.clear_session()
    assert await session(client).get_items() == []
    (head,) = client.sessions().items
    assert not head.running
    assert broken(client) == []


async def test_an_exclusive_session_is_used_in_its_block_only(client: Sessionary) -> None:
    one = session(client, exclusive=True)

    for call in (one.get_items, one.pop_item, one.clear_session):
        with pytest.raises(BadInput, match="async with"):
            await call()
    with pytest.raises(BadInput, match="async with"):
        await one.add_items(user_items("a"))


async def test_an_exclusive_run_that_fails_lets_the_session_go(client: Sessionary) -> None:
    async def run() -> None:
        async with session(client, exclusive=True) as one:
            await one.add_items(user_items("a"))
            raise ValueError("no luck")

    with pytest.raises(ValueError, match="no luck"):
        await run()

    await session(client).add_items(user_items("b"))
    assert texts(await session(client).get_items()) == ["a", "b"]
    (head,) = client.sessions().items
    (turn,) = client.store.read(turns.list_turns, head.no).result()
    assert (str(turn.state), turn.reason) == ("failed", "ValueError: no luck")


async def test_an_exclusive_run_whose_turn_was_stopped_writes_nothing_more(
    client: Sessionary,
) -> None:
    async def run() -> None:
        async with session(client, exclusive=True) as one:
            await one.add_items(user_items("a"))
            (head,) = client.sessions().items
            (turn,) = client.store.read(turns.list_turns, head.no).result()
            client.store.write(
                turns.interrupt,
                turn.id,
                profile="main",
                moment=client.moment(),
                reason="stopped",
            ).result()
            await one.add_items(user_items("too late"))

    with pytest.raises(TurnLost):
        await run()

    assert texts(await session(client).get_items()) == ["a"]
