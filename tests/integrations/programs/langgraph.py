"""A graph of LangGraph with a checkpointer of its own, and a recorder of ours."""

from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition

from sessionary import Sessionary
from sessionary.integrations.langgraph import SessionaryRecorder
from tests.integrations.programs.common import MODEL, Task, main


class Talk(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


async def converse(task: Task, store_client: Sessionary) -> list[str]:
    @tool
    async def weather(city: str) -> str:
        """The weather in a city."""
        return await task.weather(city)

    model = ChatOpenAI(model=MODEL, api_key="none", base_url=f"{task.model}/v1")  # type: ignore[arg-type]
    speaker = model.bind_tools([weather])

    async def speak(state: Talk) -> dict[str, Any]:
        return {"messages": [await speaker.ainvoke(state["messages"])]}

    plan = StateGraph(Talk)
    plan.add_node("speak", speak)
    plan.add_node("tools", ToolNode([weather]))
    plan.add_edge(START, "speak")
    plan.add_conditional_edges("speak", tools_condition)
    plan.add_edge("tools", "speak")
    async with AsyncSqliteSaver.from_conn_string(checkpoints(task, store_client)) as saver:
        graph = plan.compile(checkpointer=saver)
        where: RunnableConfig = {
            "configurable": {"thread_id": task.name},
            "callbacks": [SessionaryRecorder(store_client)],
        }
        answers = []
        for prompt in task.prompts:
            done = await graph.ainvoke({"messages": [HumanMessage(prompt)]}, where)
            answers.append(str(done["messages"][-1].content))
        return answers


def checkpoints(task: Task, store_client: Sessionary) -> str:
    """A file for each store, beside the one that is a file."""
    folder = Path(task.urls[0].removeprefix("sqlite:///")).parent
    return str(folder / f"checkpoints-{task.urls.index(_given(task, store_client))}.db")


def _given(task: Task, store_client: Sessionary) -> str:
    is_file = store_client.store.url.startswith("sqlite")
    return next(url for url in task.urls if url.startswith("sqlite") == is_file)


if __name__ == "__main__":
    main(converse)
