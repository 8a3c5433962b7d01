"""When a provider fails: passing errors are retried, text so far is kept, the rest is a clear error."""

from typing import Any

import pytest

from sessionary.agents.model import ModelOptions, ModelRunner
from sessionary.config.secret import Secret
from sessionary.engine.ports import Event, Runner
from sessionary.errors import AgentFailed, BadInput, NotAllowed, RetryLater
from sessionary.model.message import Role
from sessionary.testing.runner_suite import events_of, steps_of, streamed, turn_request
from tests.agents.model_runs import KEY, MakeRunner, failure, watched
from tests.support.model_server import Call, ModelServer, Refusal, Reply


async def test_too_many_requests_are_asked_again_as_the_provider_says(
    runner: Runner, server: ModelServer, waited: list[float]
) -> None:
    server.will(Refusal(429, retry_after=7), Refusal(429), Reply("ok"))

    assert streamed(await events_of(runner, turn_request("hello"))) == "ok"

    assert waited == [7, 1]


async def test_a_long_wait_is_left_to_the_caller(
    runner: Runner, server: ModelServer, waited: list[float]
) -> None:
    server.will(Refusal(429, retry_after=600))

    error = await failure(runner, "too many requests")

    assert isinstance(error, RetryLater)
    assert error.after == 600
    assert waited == []


@pytest.mark.parametrize(
    "answer",
    [Refusal(500), Refusal(503), Refusal(529), Refusal(0), Reply("a b c", cut_after=0), Reply()],
    ids=["500", "503", "529", "no answer", "cut before a word", "nothing said"],
)
async def test_a_failure_before_the_first_word_is_asked_again_within_bounds(
    runner: Runner, server: ModelServer, waited: list[float], answer: Reply | Refusal
) -> None:
    server.otherwise = answer

    error = await failure(runner)

    assert isinstance(error, RetryLater)
    assert error.after > 0
    assert len(server.requests) == 3
    assert waited == [0.5, 1]


async def test_a_failure_that_passes_is_not_seen(runner: Runner, server: ModelServer) -> None:
    server.will(Refusal(500), Reply("a b c", cut_after=0), Reply("Here I am."))

    events = await events_of(runner, turn_request("hello"))

    assert streamed(events) == "Here I am."
    assert len(steps_of(events)) == 1


async def test_an_answer_that_breaks_off_is_not_begun_again(
    runner: Runner, server: ModelServer
) -> None:
    server.will(Reply("one two three four five six", cut_after=2))
    shown: list[Event] = []

    with pytest.raises(AgentFailed, match="broke off"):
        await watched(runner, shown)

    assert streamed(shown) == "one two three four "
    assert len(server.requests) == 1


async def test_an_answer_whose_connection_is_closed_early_is_not_taken_for_complete(
    runner: Runner, server: ModelServer
) -> None:
    """A stream without a length ends with its connection; only the finish reason says that it is whole."""
    server.will(Reply("one two three four five six", close_after=2))
    shown: list[Event] = []

    with pytest.raises(AgentFailed, match=r"broke off.*closed the connection before its answer"):
        await watched(runner, shown)

    assert streamed(shown) == "one two three four "
    assert steps_of(shown) == []
    assert len(server.requests) == 1


async def test_an_answer_closed_before_its_first_word_is_asked_again(
    runner: Runner, server: ModelServer
) -> None:
    server.will(Reply("one two", close_after=0), Reply("Here I am."))

    events = await events_of(runner, turn_request("hello"))

    assert streamed(events) == "Here I am."
    assert len(server.requests) == 2


async def test_a_server_that_never_gives_a_finish_reason_can_be_trusted(
    make: MakeRunner, server: ModelServer
) -> None:
    server.will(Reply("one two three four", close_after=2))

    events = await events_of(make(requires_finish_reason=False), turn_request("hello"))

    assert [step.message.text for step in steps_of(events)] == ["one two three four"]


async def test_the_steps_before_a_failure_stand(runner: Runner, server: ModelServer) -> None:
    server.will(Reply("So.", calls=(Call("look"),)))
    server.otherwise = Refusal(401)
    seen: list[Event] = []

    with pytest.raises(NotAllowed):
        await watched(runner, seen)

    assert [step.message.role for step in steps_of(seen)] == [Role.ASSISTANT, Role.TOOL]


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_reported_at_once(
    runner: Runner, server: ModelServer, status: int
) -> None:
    server.otherwise = Refusal(status, f"invalid key {KEY}")

    error = await failure(runner, "the model provider refused the key".capitalize())

    assert isinstance(error, NotAllowed)
    assert len(server.requests) == 1


async def test_a_refused_request_is_quoted(runner: Runner, server: ModelServer) -> None:
    server.will(Refusal(400, "temperature is too high"), Refusal(404, "no such model"))

    assert isinstance(await failure(runner, "temperature is too high", "400"), BadInput)
    assert isinstance(await failure(runner, "no model m"), BadInput)


async def test_a_server_that_is_silent_is_given_up(make: MakeRunner, server: ModelServer) -> None:
    server.otherwise = Reply("one two three four", pause=5)

    assert isinstance(await failure(make(timeout_seconds=0.05, attempts=1)), RetryLater)


async def test_a_server_that_is_away_is_named(make: MakeRunner) -> None:
    assert isinstance(await failure(make(base_url="http://127.0.0.1:9/v1")), RetryLater)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "openai:gpt-5"}, ["api_key_env", "OPENAI_API_KEY"]),
        ({"model": "anthropic:claude"}, ["api_key_env", "ANTHROPIC_API_KEY"]),
        ({"model": "gpt-5"}, ["provider:model"]),
        ({"model": "m", "provider": "nobody"}, ["'nobody'"]),
        ({"model": "bedrock:m"}, ["boto3"]),
        (
            {"model": "openrouter:m", "base_url": "http://x.test", "key": Secret(KEY)},
            ["openrouter", "base_url"],
        ),
    ],
)
async def test_a_model_that_cannot_be_set_up_says_why(
    options: dict[str, Any], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    assert isinstance(await failure(ModelRunner(ModelOptions(**options)), *words), BadInput)


@pytest.mark.parametrize("model", ["ollama:llama3:8b", "llama3:8b", "openai:llama3:8b"])
async def test_any_openai_compatible_server_can_be_used(server: ModelServer, model: str) -> None:
    server.will(Reply("ok"))
    runner = ModelRunner(ModelOptions(model=model, base_url=server.openai_url))

    (step,) = steps_of(await events_of(runner, turn_request("hello")))
    await runner.close()

    assert server.requests[0].body["model"] == "llama3:8b"
    assert step.usage is not None
    assert step.usage.model == "llama3:8b"
