"""A recorder for LangGraph: it copies the messages of threads, and leaves checkpoints alone.

graph.invoke(state, {"configurable": {"thread_id": "alice"}, "callbacks": [SessionaryRecorder(client)]})
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sessionary.actions.sessions import append, log
from sessionary.actions.sessions.append import NewMessage
from sessionary.clock import Moment
from sessionary.integrations import thread
from sessionary.integrations.base import SessionaryClient, require_extra
from sessionary.integrations.langchain import message_of, model_of, usage_of
from sessionary.integrations.thread import ExternalThread
from sessionary.model.message import Message
from sessionary.model.usage import Usage
from sessionary.store.database import Tx

with require_extra("langgraph", "The recorder for LangGraph"):
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.messages import BaseMessage

PLATFORM = "langgraph"
_MOST_THREADS = 1000


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
        self._profile = profile or client.profile
        self._channel = channel
        self._runs: dict[UUID, str] = {}
        self._graphs: set[UUID] = set()
        self._seen: dict[str, set[str]] = {}

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
        given = found if isinstance(found, Sequence) else [found]
        seen = self._seen.setdefault(name, set())
        # Without an id it is not in the thread yet; the next node reads it with one.
        new = [
            each
            for each in given
            if isinstance(each, BaseMessage) and each.id and each.id not in seen
        ]
        if not new:
            return
        model = next((found for each in new if (found := model_of(each))), None)
        where = ExternalThread(self._profile, thread.source_for(PLATFORM, name), model=model)
        rows = [(str(each.id), message_of(each), self._used(name, each)) for each in new]
        moment = self._client.moment()
        self._client.store.write(_record, where, rows, moment=moment).result()
        seen.update(id for id, _, _ in rows)
        while len(self._seen) > _MOST_THREADS:
            self._seen.pop(next(iter(self._seen)))

    def _used(self, name: str, native: BaseMessage) -> Usage | None:
        call_id = f"{PLATFORM}/{name}/{native.id}"
        return self._client.priced(usage_of(native, call_id=call_id), at=None)


def _record(
    tx: Tx,
    where: ExternalThread,
    rows: Sequence[tuple[str, Message, Usage | None]],
    *,
    moment: Moment,
) -> None:
    head = thread.get_or_open(tx, where, moment=moment)
    for id, message, used in rows:
        new_message = NewMessage(
            message,
            idempotency_key=f"{PLATFORM}/{head.id}/{id}"[: log.MAX_IDEMPOTENCY_KEY],
            usage=used,
        )
        append.append_to_session(tx, head.id, new_message, profile=where.profile, moment=moment)
