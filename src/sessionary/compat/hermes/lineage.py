"""Chains of sessions: a compressed one goes on in its newest continuation."""

from collections.abc import Iterator

from sessionary.compat.hermes import messages, rows
from sessionary.compat.hermes.messages import Json
from sessionary.model.session import Lineage, SessionHead
from sessionary.store.database import Tx
from sessionary.store.tables import sessions

COMPRESSION = "compression"
BRANCHED = "branched"


def of_child(parent: SessionHead) -> Lineage:
    """How a session comes from a parent, told by how the parent ended."""
    match parent.end_reason:
        case "compression":
            return Lineage.CONTINUATION
        case "branched":
            return Lineage.FORK
    return Lineage.SUBAGENT


def continuations(tx: Tx, head: SessionHead) -> Iterator[SessionHead]:
    """The session and what continues it, the newest continuation of each; a cycle ends."""
    seen: set[int] = set()
    current: SessionHead | None = head
    while current is not None and current.no not in seen:
        seen.add(current.no)
        yield current
        children = (sessions.head(row) for row in tx.all("child_heads", no=current.no))
        current = next((each for each in children if each.lineage is Lineage.CONTINUATION), None)


def tip(tx: Tx, head: SessionHead) -> SessionHead:
    """The newest continuation that has messages; the session itself when there is none."""
    chain = list(continuations(tx, head))
    return next((each for each in reversed(chain) if each.message_count), head)


def root(tx: Tx, head: SessionHead) -> SessionHead:
    """Where a compressed chain began."""
    return ancestors(tx, head)[0]


def ancestors(tx: Tx, head: SessionHead) -> list[SessionHead]:
    """What a compressed chain was before this session, oldest first, and the session itself."""
    chain = [head]
    seen = {head.no}
    while chain[-1].lineage is Lineage.CONTINUATION and chain[-1].parent_id is not None:
        parent = sessions.get(tx, chain[-1].parent_id, profile=head.profile)
        if parent is None or parent.no in seen:
            break
        seen.add(parent.no)
        chain.append(parent)
    chain.reverse()
    return chain


def conversation(tx: Tx, head: SessionHead, *, with_ancestors: bool) -> list[Json]:
    """The messages as a model reads them; a prompt repeated where a chain goes on stands once."""
    chats: list[Json] = []
    for each in ancestors(tx, head) if with_ancestors else [head]:
        for place, row in enumerate(rows.message_rows(tx, each)):
            chat = messages.to_chat(row)
            is_seam = place == 0 and bool(chats)
            if is_seam and chat["role"] == "user" and chat == _last_prompt(chats):
                continue
            chats.append(chat)
    return chats


def _last_prompt(chats: list[Json]) -> Json | None:
    return next((chat for chat in reversed(chats) if chat["role"] == "user"), None)
