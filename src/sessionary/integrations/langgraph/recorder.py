"""A recorder for LangGraph: it copies the messages of threads, and leaves checkpoints alone.

graph.invoke(state, {"configurable": {"thread_id": "alice"}, "callbacks": [SessionaryRecorder(client)]})
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sessionary.integrations.base import SessionaryClient, require_extra
from sessionary.integrations.langgraph import recording
from sessionary.integrations.langgraph.recording import ThreadRecorder

with require_extra("langgraph", "The recorder for LangGraph"):
    from langchain_core.callbacks import BaseCallbackHandler


class SessionaryRecorder(BaseCallbackHandler):
    """Writes down each message once, as soon as a node has made or read it.

    A message counts as it was first seen: one that the graph rewrites later is not written again.
    If it cannot be written the run fails; with `raise_error=False` the failure is only logged.
    """

    def __init__(
        self,
        client: SessionaryClient,
        *,
        profile: str | None = None,
        channel: str = "messages",
        raise_error: bool = True,
    ) -> None:
        self.raise_error = raise_error
        self._client = client
        self._channel = channel
        self._log = ThreadRecorder(client, profile=profile or client.profile)
        self._runs: dict[UUID, str] = {}
        self._graphs: set[UUID] = set()

    def on_chain_start(
        self,
        serialized: dict[str, Any],
        inputs: dict[str, Any],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A graph or a node begins: it has read these messages."""
        told = metadata or {}
        name = told.get("thread_id")
        is_graph = "langgraph_node" not in told
        # Graphs inside a node have messages of their own.
        if name is None or not (is_graph or parent_run_id in self._graphs):
            return
        self._runs[run_id] = str(name)
        if is_graph:
            self._graphs.add(run_id)
        self._record(str(name), inputs)

    def on_chain_end(
        self,
        outputs: dict[str, Any],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A graph or a node is done: it has made these messages."""
        name = self._ended(run_id)
        if name is not None:
            self._record(name, outputs)

    def on_chain_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A graph or a node has failed: what it had made is not in the thread."""
        self._ended(run_id)

    def _ended(self, run_id: UUID) -> str | None:
        self._graphs.discard(run_id)
        return self._runs.pop(run_id, None)

    def _record(self, name: str, state: Any) -> None:
        found = state.get(self._channel) if isinstance(state, Mapping) else None
        new = self._log.find_new(name, found)
        if new is not None:
            moment = self._client.moment()
            self._client.store.write(recording.append_new, new, moment=moment).result()
            self._log.note(name, new)
