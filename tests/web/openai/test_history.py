"""Clients without a memory send everything again: which session that continues."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx2
import openai
import pytest
from openai import AsyncOpenAI

from sessionary.actions.sessions import edit, read
from sessionary.clock import RandomIds, SystemClock
from sessionary.model.message import Message, Role, Text
from sessionary.model.prefix import prefix_digests
from sessionary.model.session import Lineage
from sessionary.store.database import Store
from sessionary.store.open import open_store
from tests.support.model_server import Refusal, Reply
from tests.support.openai_world import OpenAIWorld, session_of


def said(*texts: str, system: str | None = None) -> list[Any]:
    roles = ("user", "assistant")
    talk: list[Any] = [{"role": roles[n % 2], "content": each} for n, each in enumerate(texts)]
    return talk if system is None else [{"role": "system", "content": system}, *talk]


@pytest.fixture(params=("sqlite", "postgres"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    url = f"sqlite:///{tmp_path}/sessionary.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
    opened = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
    yield opened
    opened.close()


async def ask(client: AsyncOpenAI, messages: list[Any], **options: Any) -> Any:
    return await client.chat.completions.create(model="assistant", messages=messages, **options)


async def test_a_conversation_that_is_sent_again_goes_on_in_its_session(
    server: OpenAIWorld,
) -> None:
    client = await server.client()
    server.model.will(Reply("hi"), Reply("fine"))

    first = await ask(client, said("hello", system="It is 9:00."))
    second = await ask(client, said("hello", "hi", "how are you?", system="It is 9:05."))

    assert session_of(second) == session_of(first)
    assert await server.texts(session_of(first)) == [
        "user: hello",
        "assistant: hi",
        "user: how are you?",
        "assistant: fine",
    ]
    system = server.model.requests[-1].messages[0]["content"]
    assert "It is 9:05." in str(system)
    assert "It is 9:00." not in str(server.model.requests[-1].messages)


async def test_a_history_that_nobody_knows_is_stored_as_the_beginning(server: OpenAIWorld) -> None:
    client = await server.client()
    server.model.will(Reply("four"), Reply("five"))
    talk = said("one", "two", "three")
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    talk[1] = {"role": "assistant", "content": "two", "tool_calls": [call]}
    talk.insert(2, {"role": "tool", "tool_call_id": "c", "content": "seen"})

    first = await ask(client, talk)
    second = await ask(client, [*talk, *said("", "four", "more")[1:]])

    assert session_of(first) == session_of(second)
    assert await server.texts(session_of(first)) == [
        "user: one",
        "assistant: two",
        "tool: ",
        "user: three",
        "assistant: four",
        "user: more",
        "assistant: five",
    ]
    assert [each["role"] for each in server.model.requests[0].messages[1:]] == [
        "user",
        "assistant",
        "tool",
        "user",
    ]


async def test_a_changed_message_forks_the_session(server: OpenAIWorld) -> None:
    client = await server.client()
    server.model.will(Reply("hi"), Reply("fine"), Reply("bad"), Reply("again"))
    first = await ask(client, said("hello"))
    await ask(client, said("hello", "hi", "how are you?"))

    changed = await ask(client, said("hello", "hi", "how is the weather?"))
    regenerated = await ask(client, said("hello", "hi", "how are you?"))

    assert len({session_of(first), session_of(changed), session_of(regenerated)}) == 3
    head = await server.store.read(read.get_head, session_of(changed), profile="main")
    assert (head.lineage, head.parent_id) == (Lineage.FORK, session_of(first))
    assert await server.texts(session_of(changed)) == [
        "user: hello",
        "assistant: hi",
        "user: how is the weather?",
        "assistant: bad",
    ]
    assert (await server.texts(session_of(first)))[-1] == "assistant: fine"


async def test_other_tokens_and_other_users_do_not_continue_a_conversation(
    server: OpenAIWorld,
) -> None:
    mine, other = await server.client(), await server.client()
    server.model.otherwise = Reply("hi")
    first = await ask(mine, said("hello"), user="ann")
    again = said("hello", "hi", "and now?")

    assert session_of(await ask(other, again, user="ann")) != session_of(first)
    assert session_of(await ask(mine, again, user="bob")) != session_of(first)
    assert session_of(await ask(mine, again, user="ann")) == session_of(first)


async def test_a_user_with_the_name_of_a_session_does_not_continue_it(server: OpenAIWorld) -> None:
    client = await server.client()
    server.model.otherwise = Reply("hi")
    named: Any = {"user": "ann", "extra_headers": {"X-Session-Id": "support"}}
    first = await ask(client, said("my number is 1234"), **named)

    other = await ask(client, said("my number is 1234", "no", "what is it?"), user="ann/support")

    assert session_of(other) not in (session_of(first), "")
    head = await server.store.read(read.get_head, session_of(other), profile="main")
    assert head.parent_id is None


async def test_what_follows_a_response_or_is_sent_alone_is_no_beginning_of_a_conversation(
    server: OpenAIWorld,
) -> None:
    client = await server.client()
    server.model.otherwise = Reply("yes")
    secret: Any = await client.responses.create(model="assistant", input="my number is 1234")
    for retries in ("0", "1"):
        await client.responses.create(
            model="assistant",
            input="go on",
            previous_response_id=secret.id,
            extra_headers={"X-Stainless-Retry-Count": retries},
        )
    named: Any = {"extra_headers": {"X-Session-Id": "one"}}
    await ask(client, said("my name is Ann"), **named)
    await ask(client, said("go on"), **named)
    await ask(client, said("and on"), **named)

    other = await ask(client, said("go on", "yes", "what is my number?"))
    both = [*said("go on"), *said("and now?")]
    await ask(client, both, **named)

    assert "1234" not in str(server.model.requests[-2].messages)
    assert await server.texts(session_of(other)) == [
        "user: go on",
        "assistant: yes",
        "user: what is my number?",
        "assistant: yes",
    ]
    # Nothing was taken back.
    assert [each for each in await server.texts("one") if each.startswith("user")] == [
        "user: my name is Ann",
        "user: go on",
        "user: and on",
        "user: go on",
        "user: and now?",
    ]


async def test_an_answer_that_was_not_noted_is_recognised_by_the_log(server: OpenAIWorld) -> None:
    client = await server.client()
    server.model.will(Reply("hi"), Reply("fine"))
    first = await ask(client, said("hello"))
    # As if the process had died between the end of the turn and the note of its answer.
    [digest] = prefix_digests(
        [Message(Role.ASSISTANT, (Text("hi"),))],
        after=prefix_digests([Message(Role.USER, (Text("hello"),))])[0],
    )
    await server.forget(digest)

    second = await ask(client, said("hello", "hi", "and now?"))

    assert session_of(second) == session_of(first)


async def test_a_turn_that_failed_is_taken_back_when_its_message_comes_again(
    server: OpenAIWorld,
) -> None:
    client = await server.client()
    server.model.will(Reply("hi"), Refusal(400, "no"), Reply("fine"))
    first = await ask(client, said("hello"))
    talk = said("hello", "hi", "how are you?")
    with pytest.raises(openai.APIStatusError) as error:
        await ask(client, talk)
    assert error.value.status_code == 502
    assert error.value.code == "agent_failed"

    second = await ask(client, talk)

    assert session_of(second) == session_of(first)
    assert (await server.texts(session_of(first)))[2:] == ["user: how are you?", "assistant: fine"]


async def test_a_named_session_is_continued_whatever_was_sent(server: OpenAIWorld) -> None:
    client = await server.client()
    server.model.will(Reply("a"), Reply("b"), Reply("c"), Reply("d"), Reply("e"))
    named = {"extra_headers": {"X-Session-Id": "my-chat"}}

    first = await ask(client, said("one"), **named)
    await ask(client, said("two"), metadata={"session": "my-chat"})
    await ask(client, said("never heard of", "this", "three"), extra_body={"session": "my-chat"})
    again = await ask(client, said("never heard of", "this", "three", "c", "four"), **named)

    assert session_of(first) == session_of(again) == "my-chat"
    assert await server.texts("my-chat") == [
        "user: one",
        "assistant: a",
        "user: two",
        "assistant: b",
        "user: three",
        "assistant: c",
        "user: four",
        "assistant: d",
    ]
    # Asked for once more: the last round is taken back, and stays in the session.
    await ask(client, said("never heard of", "this", "three", "c", "four"), **named)
    assert (await server.texts("my-chat"))[-2:] == ["user: four", "assistant: e"]


async def test_a_session_may_have_any_name(server: OpenAIWorld) -> None:
    client = await server.client()
    server.model.otherwise = Reply("hi")

    for name in ("Größe\r\nX-Evil: 1", "a b/c?d", " ", "100%25", "日本"):
        raw = await client.chat.completions.with_raw_response.create(
            model="assistant", messages=said("hello"), extra_body={"session": name}
        )
        assert session_of(raw.parse()) == name
        assert unquote(raw.headers["x-session-id"]) == name
        assert "x-evil" not in raw.headers
        # As the answer has it, the name can be sent back.
        back = {"X-Session-Id": raw.headers["x-session-id"]}
        assert session_of(await ask(client, said("again"), extra_headers=back)) == name
    async with httpx2.AsyncClient(
        base_url=server.url
    ) as http:  # the official client sends ASCII only
        answer = await http.post(
            "/chat/completions",
            headers={
                b"Authorization": f"Bearer {client.api_key}".encode(),
                b"X-Session-Id": "日本".encode(),
            },
            json={"model": "assistant", "messages": said("again")},
        )
    assert answer.json()["sessionary"]["session_id"] == "日本"


async def test_a_session_that_was_moved_to_the_trash_is_refused_by_name_and_replaced_otherwise(
    server: OpenAIWorld,
) -> None:
    client = await server.client()
    server.model.otherwise = Reply("hi")
    first = await ask(client, said("hello"))
    await server.store.write(
        edit.trash, session_of(first), profile="main", moment=server.world.context().moment()
    )

    with pytest.raises(openai.ConflictError):
        await ask(client, said("more"), extra_headers={"X-Session-Id": session_of(first)})
    second = await ask(client, said("hello", "hi", "more"))

    assert session_of(second) != session_of(first)
    assert await server.texts(session_of(second)) == [
        "user: hello",
        "assistant: hi",
        "user: more",
        "assistant: hi",
    ]
