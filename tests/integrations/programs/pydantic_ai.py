"""An agent of pydantic-ai on a conversation store of ours."""

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from sessionary import Sessionary
from sessionary.integrations.pydantic_ai import SessionaryConversationStore
from tests.integrations.programs.common import MODEL, Task, main


async def converse(task: Task, store_client: Sessionary) -> list[str]:
    provider = OpenAIProvider(base_url=f"{task.model}/v1", api_key="none")
    agent = Agent(OpenAIChatModel(MODEL, provider=provider), instructions="You are a guide.")

    @agent.tool_plain
    async def weather(city: str) -> str:
        """The weather in a city."""
        return await task.weather(city)

    store = SessionaryConversationStore(store_client)
    answers = []
    for prompt in task.prompts:
        known = await store.load(task.name)
        conversation = known or Conversation(conversation_id=task.name)
        result = await agent.run(prompt, conversation=conversation)
        await store.save(result)
        answers.append(result.output)
    return answers


if __name__ == "__main__":
    main(converse)
