"""A graph of LangGraph with our checkpointer, that asks a person before it goes on."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt

from sessionary import Sessionary
from sessionary.integrations.langgraph import SessionaryCheckpointer


class Talk(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def main(url: str, log: str, die: str, answer: str | None) -> None:
    """Ask, or go on with the answer; `die` says where to be killed. The tool writes a line of the log."""

    def reach(point: str) -> None:
        if point == die:
            os.kill(os.getpid(), signal.SIGKILL)

    def plan_trip(_: Talk) -> dict[str, Any]:
        return {"messages": [AIMessage("I would book Lisbon.")]}

    def book(_: Talk) -> dict[str, Any]:
        told = interrupt({"book": "Lisbon"})
        reach("before the tool")
        with Path(log).open("a", encoding="utf-8") as lines:
            lines.write(f"{told}\n")
        return {"messages": [AIMessage(f"Booked: {told}.")]}

    def thank(_: Talk) -> dict[str, Any]:
        reach("after the tool")
        return {"messages": [AIMessage("Have a good trip.")]}

    plan: Any = StateGraph(Talk)
    plan.add_node(plan_trip)
    plan.add_node(book)
    plan.add_node(thank)
    plan.add_edge(START, "plan_trip")
    plan.add_edge("plan_trip", "book")
    plan.add_edge("book", "thank")
    with Sessionary(url) as client:
        graph = plan.compile(checkpointer=SessionaryCheckpointer(client))
        where: Any = {"configurable": {"thread_id": "alice"}}
        state = graph.get_state(where)
        given: Any = {"messages": [HumanMessage("I need a trip.")]}
        if state.created_at is not None:
            given = Command(resume=answer) if state.interrupts else None
        done = graph.invoke(given, where, durability="sync")
        reach("while it waits")
        print(json.dumps([each.content for each in done["messages"]]))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
