"""Whatever is sent to `/v1/responses` is read or refused, and other SDKs on top of the official package work."""

from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sessionary.web.openai.errors import ApiError
from sessionary.web.openai.response_request import read_request
from tests.support.model_script import Call
from tests.support.model_server import ModelServer, Reply
from tests.support.openai_world import OpenAIWorld

_NAMES = (
    "background",
    "conversation",
    "effort",
    "format",
    "id",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "metadata",
    "mode",
    "model",
    "name",
    "parameters",
    "previous_response_id",
    "reasoning",
    "schema",
    "store",
    "stream",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "type",
    "user",
)
_WORDS = ("function", "json_schema", "allowed_tools", "auto", "required", "none", "high", "x", "")
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(_WORDS)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(_JSON, st.dictionaries(st.sampled_from(_NAMES), _JSON, max_size=8))
def test_whatever_is_asked_is_read_or_refused(body: Any, more: dict[str, Any]) -> None:
    for each in (body, more, {"model": "m", "input": "hi", **more}):
        with suppress(ApiError):
            read_request(each).options.encode()


async def test_the_agents_sdk_runs_its_tools_and_continues(
    server: OpenAIWorld, model: ModelServer
) -> None:
    # Here, because only this test needs it: importing it takes a second.
    from agents import Agent, OpenAIResponsesModel, RunConfig, Runner, function_tool

    @function_tool
    def look(at: str) -> str:
        """Look at a place."""
        return f"a {at}"

    client = await server.client()
    config = RunConfig(tracing_disabled=True)
    agent: Agent[Any] = Agent(
        "eyes",
        instructions="Be kind.",
        model=OpenAIResponsesModel("assistant", client),
        tools=[look],
    )
    model.will(
        Reply("Hm.", calls=(Call("look", {"at": "door"}, id="c1"),)),
        Reply("A door."),
        Reply("More of it."),
        Reply("The end."),
    )

    first = await Runner.run(agent, "look", run_config=config)
    items: Any = [*first.to_input_list(), {"role": "user", "content": "more"}]
    streamed = Runner.run_streamed(agent, items, run_config=config)
    kinds = [each.type async for each in streamed.stream_events()]
    last = await Runner.run(
        agent, "end", run_config=config, previous_response_id=streamed.last_response_id
    )

    assert (first.final_output, streamed.final_output) == ("A door.", "More of it.")
    assert "raw_response_event" in kinds
    assert last.final_output == "The end."
    assert await server.count() == 1
