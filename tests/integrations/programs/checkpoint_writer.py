"""Runs a graph again and again on every store, in threads, until it is killed; prints the store after each."""

import json
import sys
import threading
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

from sessionary import Sessionary
from sessionary.integrations.langgraph import SessionaryCheckpointer


def main(urls: list[str]) -> None:
    """Have each store written to until the end."""
    workers = [threading.Thread(target=run, args=(url,)) for url in urls]
    for each in workers:
        each.start()
    for each in workers:
        each.join()


def run(url: str) -> None:
    plan: Any = StateGraph(MessagesState)
    last = START
    for name in ("one", "two"):
        plan.add_node(name, lambda state: {"messages": [AIMessage(f"{len(state['messages'])}")]})
        plan.add_edge(last, name)
        last = name
    with Sessionary(url) as client:
        graph = plan.compile(checkpointer=SessionaryCheckpointer(client))
        while True:
            graph.invoke(
                {"messages": [HumanMessage("more")]}, {"configurable": {"thread_id": "alice"}}
            )
            print(url, flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
