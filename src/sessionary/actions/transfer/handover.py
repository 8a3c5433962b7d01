"""A conversation for another tool to go on with: the newest of it, within a budget."""

from sessionary.actions.sessions import read
from sessionary.actions.transfer import render
from sessionary.errors import BadInput, NotFound
from sessionary.model.handover.passage import ExcerptWindow, HandoverExcerpt
from sessionary.model.record import WHOLE, ExportOptions, head_within
from sessionary.model.session import SessionHead
from sessionary.store.database import Store, Tx
from sessionary.store.tables import blobs, sessions

BUDGET = 100_000


def passage(
    store: Store, id: str, *, profile: str, budget: int = BUDGET, extent: ExportOptions = WHOLE
) -> HandoverExcerpt:
    """What of a session is handed over; an estimate of its tokens stays within the budget."""
    if budget < 1:
        raise BadInput(f"A budget is a number of tokens from 1 up, not {budget}.")
    head = store.read(read.head, id, profile=profile).result()
    window = ExcerptWindow(budget)
    for entry in render.transcript_of(store, head, extent):
        window.add(entry)
    workspace = store.read(_workspace, head).result()
    made = window.passage(
        session_id=head.id,
        began_at=head.began_at,
        title=head_within(head, extent).title,
        model=head.model,
        path=_text(workspace.get("path")),
        branch=_text(workspace.get("branch")),
        blob_of=lambda name: _blob(store, name),
    )
    if not made.lines and made.preface is None:
        raise NotFound(f"Session {head.id} has no messages that another tool could go on with.")
    return made


def _workspace(tx: Tx, head: SessionHead) -> dict[str, object]:
    found = sessions.details(tx, head.no).workspace
    return found if isinstance(found, dict) else {}


def _blob(store: Store, name: str) -> bytes | None:
    try:
        return store.read(blobs.get, name).result()
    except NotFound:
        return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
