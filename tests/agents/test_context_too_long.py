"""A conversation that is longer than the model reads: every provider's own words are recognized."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, ModelRateLimitError

from sessionary.agents.model import ModelOptions, ModelRunner
from sessionary.agents.provider import translated
from sessionary.config.secret import Secret
from sessionary.errors import ContextTooLong, RetryLater, SessionaryError
from sessionary.testing.runner_suite import events_of, steps_of, turn_request
from tests.agents.model_runs import KEY, failure
from tests.support.model_server import ModelServer, Reply

WINDOW = 4_000
LONG = "tea " * 5_000


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer(window=WINDOW) as server:
        yield server


@pytest.fixture(params=["openai", "openai-responses", "anthropic"])
async def windowed(request: pytest.FixtureRequest, server: ModelServer) -> AsyncIterator[Any]:
    wire = str(request.param)
    url = server.openai_url if wire.startswith("openai") else server.url
    options = ModelOptions(model="m", provider=wire, base_url=url, key=Secret(KEY))
    runner = ModelRunner(options)
    yield wire, runner
    await runner.close()


async def test_a_request_above_the_window_is_refused_as_the_provider_does(
    windowed: tuple[str, ModelRunner], server: ModelServer
) -> None:
    wire, runner = windowed
    server.will(Reply("Hello."))

    with pytest.raises(ContextTooLong, match="longer than m can read") as caught:
        await events_of(runner, turn_request(LONG))
    (step,) = steps_of(await events_of(runner, turn_request("hello")))

    # OpenAI's Responses API names no number.
    assert caught.value.window == (None if wire == "openai-responses" else WINDOW)
    refused, answered = server.requests
    assert refused.tokens > WINDOW > answered.tokens > 0
    assert step.usage is not None
    assert step.usage.input_tokens == answered.tokens


async def test_gemini_s_refusal_is_recognized(server: ModelServer) -> None:
    """Asked without Google's library, which is not among those of the tests."""
    given = {"contents": [{"role": "user", "parts": [{"text": LONG}]}]}
    async with httpx.AsyncClient() as client:
        answer = await client.post(f"{server.url}/v1beta/models/m:generateContent", json=given)

    error = refused(answer.json(), answer.status_code)

    assert isinstance(error, ContextTooLong)
    assert error.window == WINDOW


def refused(body: object, status: int = 400) -> SessionaryError:
    return translated(ModelHTTPError(status, "m", body), "m")


@pytest.mark.parametrize(
    ("words", "window"),
    [
        # OpenAI and Azure
        (
            (
                "This model's maximum context length is 8192 tokens. However, your messages resulted in 8545 "
                "tokens. Please reduce the length of the messages."
            ),
            8192,
        ),
        (
            (
                "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300001 "
                "tokens. Please reduce the length of the messages."
            ),
            272_000,
        ),
        (
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            None,
        ),
        # Anthropic
        ("prompt is too long: 210123 tokens > 200000 maximum", 200_000),
        (
            (
                "input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000, decrease input "
                "length or `max_tokens` and try again"
            ),
            200_000,
        ),
        # Gemini
        (
            "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
            1_048_575,
        ),
        # vLLM
        (
            (
                "This model's maximum context length is 16384 tokens. However, you requested 122946 tokens "
                "(112946 in the messages, 10000 in the completion). Please reduce the length of the messages "
                "or completion."
            ),
            16_384,
        ),
        (
            (
                "You passed 1015 input tokens and requested 10 output tokens. However, the model's context "
                "length is only 1024 tokens, resulting in a maximum input length of 1014 tokens. Please reduce "
                "the length of the input prompt. (parameter=input_tokens, value=1015)"
            ),
            1024,
        ),
        (
            "The decoder prompt (length 40000) is longer than the maximum model length of 32768.",
            32_768,
        ),
        # llama.cpp
        (
            "request (9412 tokens) exceeds the available context size (8192 tokens), try increasing it",
            8192,
        ),
        # Ollama
        ("prompt too long; exceeded max context length by 1234 tokens", None),
        ("the input length exceeds the context length", None),
        # LM Studio
        (
            (
                "Trying to keep the first 10136 tokens when context the overflows. However, the model is loaded "
                "with context length of only 7866 tokens, which is not enough. Try to load the model with a "
                "larger context length, or provide a shorter input."
            ),
            7866,
        ),
        ("Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)", 7424),
        (
            "The number of tokens to keep from the initial prompt is greater than the context length",
            None,
        ),
        # OpenRouter
        (
            (
                "This endpoint's maximum context length is 131072 tokens. However, you requested about 132463 "
                "tokens (1463 of text input, 131000 in the output). Please reduce the length of either one."
            ),
            131_072,
        ),
        # Others with OpenAI's interface
        (
            "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
            131_072,
        ),
        ("Please reduce the length of the messages or completion.", None),
        (
            "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
            32_768,
        ),
        ("Your request exceeded model token limit: 131072 (requested: 200000)", 131_072),
    ],
)
def test_the_words_of_many_servers_are_recognized(words: str, window: int | None) -> None:
    for body in (
        {"message": words, "type": "invalid_request_error", "code": None},
        {"error": {"message": words}},
        {"error": words},
        words,
    ):
        error = refused(body)

        assert isinstance(error, ContextTooLong), body
        assert error.window == window, body


def test_a_window_beside_the_message_is_read_even_of_a_server_error() -> None:
    """llama.cpp answered with status 500 for a while, which would be tried again."""
    said = "the request exceeds the available context size. try increasing the context size"
    body = {"message": said, "type": "exceed_context_size_error", "n_ctx": 256}

    error = refused({"error": body}, status=500)

    assert isinstance(error, ContextTooLong)
    assert error.window == 256


def test_an_error_inside_a_stream_is_recognized() -> None:
    said = "Your input exceeds the context window of this model."
    body = {"message": said, "code": "context_length_exceeded"}

    error = translated(ModelAPIError("m", said, body=body, in_stream=True), "m")

    assert isinstance(error, ContextTooLong)


@pytest.mark.parametrize(
    "words",
    [
        "max_tokens must be at least 1",
        "temperature is too high",
        "The value of `messages` is too long for a title.",
        "Unknown parameter: context_window",
        "Tool names may have at most 64 characters; the maximum length is 64.",
    ],
)
def test_another_refusal_is_not_taken_for_it(words: str) -> None:
    assert not isinstance(refused({"message": words}), ContextTooLong)


def test_too_many_tokens_in_a_minute_are_no_matter_of_the_window() -> None:
    said = "Rate limit reached: input tokens exceed 30000 per minute."

    error = translated(ModelRateLimitError("m", said, body={"message": said}), "m")

    assert isinstance(error, RetryLater)


async def test_a_person_reads_one_line(server: ModelServer) -> None:
    runner = ModelRunner(ModelOptions(model="m", base_url=server.openai_url))
    server.window = 1

    error = await failure(
        runner, "longer than m can read at once (1 tokens)", "send less at a time"
    )
    await runner.close()

    assert error.kind == "context-too-long"
