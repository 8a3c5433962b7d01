"""LangGraph: a checkpointer, a long-term store, and a recorder for graphs that keep their checkpoints elsewhere.

graph = plan.compile(checkpointer=SessionaryCheckpointer(client), store=SessionaryStore(client))
"""

from sessionary.integrations.langgraph.checkpointer import SessionaryCheckpointer
from sessionary.integrations.langgraph.recorder import SessionaryRecorder
from sessionary.integrations.langgraph.store import SessionaryStore

__all__ = ["SessionaryCheckpointer", "SessionaryRecorder", "SessionaryStore"]
