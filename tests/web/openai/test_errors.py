"""Errors reach OpenAI's clients in their own form, wherever they come from."""

from typing import Any

import httpx2
import openai
import pytest

from sessionary.config.engine import Budget
from sessionary.model.access import Scope
from sessionary.store.database import Store
from tests.support.model_server import ModelServer, Refusal, Reply, Tokens
from tests.support.openai_world import OpenAIWorld, openai_world, session_of

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
LOOK = {"type": "function", "function": {"name": "look"}}


async def refused(client: openai.AsyncOpenAI, **body: Any) -> openai.APIStatusError:
    given: Any = {"model": "assistant", "messages": HELLO} | body
    with pytest.raises(openai.APIStatusError) as error:
        await client.chat.completions.create(**given)
    body_of: Any = error.value.body
    assert {"message", "type", "param", "code"} <= set(body_of)
    return error.value


async def test_a_wrong_token_a_weak_token_and_no_token_are_refused(server: OpenAIWorld) -> None:
    wrong = await refused(await server.client(api_key="nobody"))
    weak = await refused(await server.client(Scope.READ))

    assert isinstance(wrong, openai.AuthenticationError)
    assert wrong.code == "invalid_api_key"
    assert isinstance(weak, openai.PermissionDeniedError)
    assert "scope write" in str(weak)
    async with httpx2.AsyncClient(base_url=server.url) as http:
        bare = await http.post("/chat/completions", json={"model": "m", "messages": HELLO})
    assert (bare.status_code, bare.json()["error"]["code"]) == (401, "invalid_api_key")
    assert bare.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"model": "gpt-9"}, "model", "model_not_found"),
        ({"n": 2}, "n", "unsupported_parameter"),
        ({"logprobs": True}, "logprobs", "unsupported_parameter"),
        ({"functions": [{"name": "f"}]}, "functions", "unsupported_parameter"),
        ({"temperature": "hot"}, "temperature", "invalid_type"),
        ({"temperature": 3}, "temperature", "invalid_value"),
        ({"max_completion_tokens": 0}, "max_tokens", "invalid_value"),
        ({"reasoning_effort": "huge"}, "reasoning_effort", "invalid_value"),
        ({"response_format": {"type": "xml"}}, "response_format", "invalid_value"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]", "invalid_value"),
        ({"tool_choice": "weather"}, "tool_choice", "invalid_value"),
        ({"messages": []}, None, "invalid_value"),
        ({"messages": [{"role": "robot", "content": ""}]}, "messages[0].role", "invalid_value"),
        ({"messages": ["hello"]}, "messages[0]", "invalid_value"),
        (
            {"messages": [{"role": "user", "content": [{"type": "smell"}]}]},
            "messages[0].content",
            "invalid_value",
        ),
        (
            {"messages": [{"role": "tool", "content": "x"}]},
            "messages[0].tool_call_id",
            "invalid_value",
        ),
        ({"messages": [*HELLO, {"role": "assistant", "content": "x"}]}, None, "invalid_value"),
        ({"messages": [*HELLO] * 3000}, None, "invalid_value"),
        ({"model": "plain", "tools": [LOOK]}, "tools", "unsupported_parameter"),
        ({"user": "u" * 2000}, None, "invalid_value"),
        ({"extra_headers": {"X-Session-Id": "s" * 500}}, "X-Session-Id", "invalid_value"),
        ({"extra_body": {"session": "conv_"}}, "session", "invalid_value"),
        ({"extra_headers": {"Idempotency-Key": "not valid!"}}, None, "invalid_value"),
    ],
)
async def test_a_wrong_parameter_is_named_and_nothing_is_stored(
    server: OpenAIWorld, body: dict[str, Any], param: str | None, code: str
) -> None:
    error = await refused(await server.client(), **body)

    assert (error.param, error.code) == (param, code)
    assert error.status_code == (404 if code == "model_not_found" else 400)
    assert await server.count() == 0
    assert not server.model.requests


async def test_rubbish_and_unknown_paths_are_answered_in_openais_form(server: OpenAIWorld) -> None:
    headers = {
        "Authorization": f"Bearer {await server.token()}",
        "Content-Type": "application/json",
    }
    half = rb'{"model": "m", "messages": [], "\ud800": 1}'
    deep = b'{"model": "m", "messages": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    async with httpx2.AsyncClient(base_url=server.url, headers=headers) as http:
        answers = [
            await http.post("/chat/completions", content=each)
            for each in (b"{", b"[]", b"null", b'"\xff"', deep, b"{}", half, b"{" * 100_000)
        ]
        missing = await http.post("/embeddings", content=b"{}")
        method = await http.get("/chat/completions")
        form = await http.post(
            "/chat/completions", content=b"a=1", headers={"Content-Type": "text/plain"}
        )
        large = await http.post("/chat/completions", content=b" " * (37 * 1024 * 1024))
    assert [each.status_code for each in answers] == [400] * 8
    for each in (*answers, missing, method, form, large):
        assert each.headers["content-type"] == "application/json"
        assert set(each.json()["error"]) == {"message", "type", "param", "code"}
    assert answers[5].json()["error"]["param"] == "model"
    assert [missing.status_code, method.status_code, form.status_code, large.status_code] == [
        404,
        405,
        415,
        413,
    ]


async def test_the_errors_of_our_own_interface_stay_as_they_are(server: OpenAIWorld) -> None:
    async with httpx2.AsyncClient(base_url=server.address) as http:
        answer = await http.get("/api/v1/sessions")
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_budget_that_is_used_up_is_a_quota(store: Store, model: ModelServer) -> None:
    budgets = {"person:api:ann": Budget(tokens=10)}
    async with openai_world(store, model, engine={"budgets": budgets}) as server:
        client = await server.client()
        model.otherwise = Reply("hi", tokens=Tokens(fresh=20))
        first = await client.chat.completions.create(model="assistant", messages=HELLO, user="ann")

        error = await refused(
            client, user="ann", messages=[*HELLO, {"role": "user", "content": "x"}]
        )
        other = await client.chat.completions.create(model="assistant", messages=HELLO, user="bob")

        assert isinstance(error, openai.RateLimitError)
        assert (error.code, error.type) == ("insufficient_quota", "insufficient_quota")
        assert error.response.headers["x-should-retry"] == "false"
        assert session_of(first) != session_of(other)
        assert await server.texts(session_of(first)) == ["user: hello", "assistant: hi"]


async def test_a_failure_in_the_middle_of_a_stream_is_an_event(server: OpenAIWorld) -> None:
    client = await server.client()
    server.model.will(Reply("one two three four five six", cut_after=2), Refusal(500))
    stream = await client.chat.completions.create(model="assistant", messages=HELLO, stream=True)
    texts: list[str] = []

    async def read() -> None:
        async for chunk in stream:
            texts.extend(filter(None, [chunk.choices[0].delta.content]))

    with pytest.raises(openai.APIError) as error:
        await read()
    assert "".join(texts) == "one two three four "
    assert error.value.code == "agent_failed"


async def test_without_an_agent_for_the_profile_nobody_answers(server: OpenAIWorld) -> None:
    other = await server.token(profile="other")
    error = await refused(await server.client(api_key=other))

    assert (error.status_code, error.code) == (503, "no_agent")
