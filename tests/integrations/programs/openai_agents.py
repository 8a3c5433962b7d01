"""An agent of the OpenAI Agents SDK on a session of ours."""

from openai import AsyncOpenAI

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from sessionary import Sessionary
from sessionary.integrations.openai_agents import SessionarySession
from tests.integrations.programs.common import MODEL, Task, main


async def converse(task: Task, store_client: Sessionary) -> list[str]:
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{task.model}/v1", api_key="none")

    @function_tool
    async def weather(city: str) -> str:
        """The weather in a city."""
        return await task.weather(city)

    agent = Agent(name="guide", model=OpenAIChatCompletionsModel(MODEL, client), tools=[weather])
    session = SessionarySession(task.name, store_client, model=MODEL)
    return [
        str((await Runner.run(agent, prompt, session=session)).final_output)
        for prompt in task.prompts
    ]


if __name__ == "__main__":
    main(converse)
