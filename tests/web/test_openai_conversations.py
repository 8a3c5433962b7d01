"""`/v1/conversations` with the official client: the sessions of the record, with their entries as items."""

from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.conversations import ConversationItem, ConversationItemList
from pydantic import TypeAdapter

from sessionary.model.access import Scope
from tests.web.conftest import Client, Served
from tests.web.test_openai_files import connected, kept
from tests.web.test_sessions import begin_elsewhere, end_elsewhere

ITEM: TypeAdapter[Any] = TypeAdapter(ConversationItem)
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def says(text: str, role: str = "user") -> Any:
    return {"type": "message", "role": role, "content": text}


async def items_of(client: AsyncOpenAI, id: str, **how: Any) -> list[Any]:
    found = [each async for each in client.conversations.items.list(id, **how)]
    for each in found:
        ITEM.validate_python(each.model_dump(by_alias=True))
    return found


async def texts_of(client: AsyncOpenAI, id: str, **how: Any) -> list[str]:
    return [each.content[0].text for each in await items_of(client, id, **how)]


async def refused(call: Any, error: type[openai.APIStatusError], *words: str) -> Any:
    with pytest.raises(error) as caught:
        await call
    for word in words:
        assert word in str(caught.value)
    return caught.value


async def test_a_conversation_is_begun_changed_and_put_into_the_trash(
    server: Served, client: Client
) -> None:
    ours = await connected(server)

    made = await ours.conversations.create(items=[says("hello")], metadata={"topic": "tea"})
    changed = await ours.conversations.update(made.id, metadata={"topic": "coffee"})

    assert made.metadata == {"topic": "tea"}
    assert await ours.conversations.retrieve(made.id) == changed
    assert changed.metadata == {"topic": "coffee"}
    session_id = made.id.removeprefix("conv_")
    assert (await client.get(f"/sessions/{session_id}"))["preview"] == "hello"
    assert (await ours.conversations.delete(made.id)).deleted
    await refused(ours.conversations.retrieve(made.id), openai.NotFoundError, "no conversation")
    trash = await client.get("/sessions?folder=trash")
    assert [each["id"] for each in trash["items"]] == [session_id]


async def test_an_empty_conversation_can_be_listed_and_filled(server: Served) -> None:
    ours = await connected(server)

    made = await ours.conversations.create()

    page = await ours.conversations.items.list(made.id)
    assert (page.data, page.has_more) == ([], False)
    added = await ours.conversations.items.create(made.id, items=[says("a"), says("b")])
    ConversationItemList.model_validate(added.model_dump(by_alias=True))
    assert await texts_of(ours, made.id, order="asc") == ["a", "b"]


async def test_items_of_every_kind_come_back(server: Served) -> None:
    ours = await connected(server)
    file = await kept(ours)
    made = await ours.conversations.create(
        items=[
            says("Be short.", "developer"),
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "what is this?"},
                    {"type": "input_image", "detail": "auto", "image_url": PIXEL},
                    {"type": "input_file", "file_id": file.id},
                ],
            },
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "hm"}],
            },
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"a":1}'},
            {"type": "function_call_output", "call_id": "c1", "output": "a pixel"},
            says("A pixel.", "assistant"),
        ]
    )

    system, asked, thought, call, result, answered = await items_of(ours, made.id, order="asc")

    assert (system.role, answered.role) == ("system", "assistant")
    assert [each.type for each in asked.content] == ["input_text", "input_image", "input_file"]
    assert asked.content[2].file_id == file.id
    assert thought.summary[0].text == "hm"
    assert (call.name, call.arguments, result.output) == ("look", '{"a":1}', "a pixel")
    for each in (system, asked, thought, call, result, answered):
        found = await ours.conversations.items.retrieve(each.id, conversation_id=made.id)
        assert found == each


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_pages_have_each_item_once(server: Served, order: Any, limit: int) -> None:
    ours = await connected(server)
    made = await ours.conversations.create()
    for start in range(0, 16, 8):
        rounds: list[Any] = [
            item
            for number in range(start // 4, start // 4 + 2)
            for item in (
                says(f"q{number}"),
                {"type": "function_call", "call_id": f"{number}a", "name": "f", "arguments": "{}"},
                {"type": "function_call", "call_id": f"{number}b", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": f"{number}a", "output": "x"},
            )
        ]
        await ours.conversations.items.create(made.id, items=rounds)

    found = await items_of(ours, made.id, order=order, limit=limit)

    whole = (await ours.conversations.items.list(made.id, order="asc", limit=100)).data
    assert len(whole) == 16
    assert found == (whole if order == "asc" else whole[::-1])


async def test_only_the_newest_message_is_taken_back(server: Served) -> None:
    ours = await connected(server)
    made = await ours.conversations.create(items=[says("one"), says("two"), says("three")])
    three, two, _ = await items_of(ours, made.id)

    delete = ours.conversations.items.delete
    await refused(delete(two.id, conversation_id=made.id), openai.ConflictError, "newest")
    await delete(three.id, conversation_id=made.id)
    await delete(two.id, conversation_id=made.id)

    assert await texts_of(ours, made.id) == ["one"]
    await refused(delete(three.id, conversation_id=made.id), openai.NotFoundError, "no item")


async def test_any_session_of_the_record_is_a_conversation(server: Served, client: Client) -> None:
    opened = await client.post("/sessions", {"text": "hi", "run": True}, status=202)
    await server.settle()
    ours = await connected(server)

    items = await items_of(ours, opened["session_id"], order="asc")

    types = [each.type for each in items]
    assert types[0] == types[-1] == "message"
    assert types.count("function_call") == types.count("function_call_output") > 0
    assert (items[0].role, items[-1].role) == ("user", "assistant")
    assert await items_of(ours, opened["session_id"], after=items[0].id, order="asc") == items[1:]


async def test_nothing_is_appended_or_deleted_while_a_turn_runs(server: Served) -> None:
    ours = await connected(server)
    made = await ours.conversations.create(items=[says("hello")])
    begun = await begin_elsewhere(server, made.id.removeprefix("conv_"))

    add = ours.conversations.items.create(made.id, items=[says("more")])
    await refused(add, openai.ConflictError, "turn")
    await refused(ours.conversations.delete(made.id), openai.ConflictError, "turn")

    await end_elsewhere(server, begun)
    assert (await ours.conversations.delete(made.id)).deleted


async def test_another_profile_sees_no_conversation(server: Served) -> None:
    made = await (await connected(server)).conversations.create(items=[says("secret")])
    other = await connected(server, profile="other")

    for call in (
        other.conversations.retrieve(made.id),
        other.conversations.update(made.id, metadata={}),
        other.conversations.delete(made.id),
        other.conversations.items.create(made.id, items=[says("x")]),
        other.conversations.create(items=[{"type": "item_reference", "id": "msg_1-1"}]),
    ):
        await refused(call, openai.NotFoundError)
    reader = await connected(server, scope=Scope.READ)
    assert await texts_of(reader, made.id) == ["secret"]
    await refused(reader.conversations.delete(made.id), openai.PermissionDeniedError)


async def test_a_repeated_request_appends_once(server: Served) -> None:
    ours = await connected(server)
    made = await ours.conversations.create()
    key = {"Idempotency-Key": "once"}

    for _ in range(2):
        await ours.conversations.items.create(made.id, items=[says("a")], extra_headers=key)

    assert await texts_of(ours, made.id) == ["a"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"items": [says("x")] * 21}, "items"),
        ({"items": [says("fine"), {"type": "computer_call"}]}, "items[1]"),
        ({"items": [says("x", "king")]}, "items[0]"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": {"a" * 65: "b"}}, "metadata"),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata"),
    ],
)
async def test_what_cannot_be_kept_is_refused_with_its_parameter(
    server: Served, body: Any, param: str
) -> None:
    ours = await connected(server)

    error = await refused(ours.conversations.create(**body), openai.BadRequestError)

    assert error.param == param


@pytest.mark.parametrize("id", ["conv_", "conv_nothing", "%00", "ä" * 100, "a" * 5000])
async def test_an_id_that_there_is_not_is_not_found(server: Served, id: str) -> None:
    ours = await connected(server)

    await refused(ours.conversations.retrieve(id), openai.NotFoundError)
