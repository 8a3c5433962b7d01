"""An agent of Microsoft's Agent Framework with a history provider of ours."""

from agent_framework import Agent, AgentSession, tool
from agent_framework_openai import OpenAIChatCompletionClient

from sessionary import Sessionary
from sessionary.integrations.agent_framework import SessionaryHistoryProvider
from tests.integrations.programs.common import MODEL, Task, main


async def converse(task: Task, store_client: Sessionary) -> list[str]:
    @tool(approval_mode="never_require")
    async def weather(city: str) -> str:
        """The weather in a city."""
        return await task.weather(city)

    agent = Agent(
        OpenAIChatCompletionClient(MODEL, api_key="none", base_url=f"{task.model}/v1"),
        instructions="You are a guide.",
        tools=[weather],
        context_providers=[SessionaryHistoryProvider(store_client, model=MODEL)],
    )
    session = AgentSession(session_id=task.name)
    return [(await agent.run(prompt, session=session)).text for prompt in task.prompts]


if __name__ == "__main__":
    main(converse)
