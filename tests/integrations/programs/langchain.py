"""A chain of LangChain with a chat message history of ours, and a loop for its tool."""

import warnings

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from sessionary import Sessionary
from sessionary.integrations.langchain import SessionaryChatMessageHistory
from tests.integrations.programs.common import MODEL, Task, main

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from langchain_core.runnables.history import RunnableWithMessageHistory


async def converse(task: Task, store_client: Sessionary) -> list[str]:
    warnings.simplefilter("ignore")

    @tool
    async def weather(city: str) -> str:
        """The weather in a city."""
        return await task.weather(city)

    model = ChatOpenAI(model=MODEL, api_key="none", base_url=f"{task.model}/v1")  # type: ignore[arg-type]
    chain = RunnableWithMessageHistory(
        model.bind_tools([weather]),
        lambda session_id: SessionaryChatMessageHistory(session_id, store_client),
    )
    where = {"configurable": {"session_id": task.name}}
    answers = []
    for prompt in task.prompts:
        message: BaseMessage = HumanMessage(prompt)
        while True:
            answer = await chain.ainvoke([message], where)  # type: ignore[arg-type]
            assert isinstance(answer, AIMessage)
            if not answer.tool_calls:
                break
            call = answer.tool_calls[0]
            message = ToolMessage(await weather.ainvoke(call["args"]), tool_call_id=call["id"])
        answers.append(str(answer.content))
    return answers


if __name__ == "__main__":
    main(converse)
