"""Changes of a session's own agent, model, persona and tools; each is an entry of its log."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from sessionary.actions.sessions import log
from sessionary.clock import Moment
from sessionary.errors import NotFound
from sessionary.model import choice
from sessionary.model.choice import Changes, ChoiceCatalog, ChoiceChange, SettledChoice
from sessionary.model.message import Message, Role
from sessionary.model.session import Opening, SessionFolder, SessionHead, clip
from sessionary.model.source import Person
from sessionary.model.turn import Lease
from sessionary.store.database import Tx
from sessionary.store.tables import entries, sessions


def choose(
    tx: Tx,
    head: SessionHead,
    changes: Changes,
    *,
    by: Person | None,
    moment: Moment,
    catalog: ChoiceCatalog | None = None,
) -> SessionHead:
    """Change the agent, model, persona or tools of a session (None: back to the default), and record it in the log.

    Only what differs is changed; if nothing does, nothing is written. With a `catalog`, names that it does not have
    raise `BadInput`. Raises `Conflict` if the session is read-only or has ended.

    While a turn is running, only its lease may write to the log, and the turn goes on with what it began with. The
    change is stored under `pending` then, and the next turn applies and records it when it begins: see `settle`.
    """
    head = log.lock_session(tx, head.id, profile=head.profile)
    if head.folder is SessionFolder.GONE:
        raise NotFound(f"There is no session {head.id}.")
    if head.read_only:
        raise log.read_only_error(head.id)
    if not head.is_open:
        raise log.ended_error(head)
    current = choice.with_pending(head.settings)
    changed = choice.clean(changes)
    if catalog is not None:
        changed = catalog.check(current, changed, platform=head.source.platform)
    changed = choice.difference(current, changed)
    if not changed:
        return head
    change = ChoiceChange(changed, by)
    model = changed.get("model", head.model)
    if head.running:
        after = choice.add_pending(head.settings, change)
    else:
        after = choice.apply_changes(current, changed)
        log.append(
            tx, head.id, choice.record_of(change, current), profile=head.profile, at=moment.now
        )
    sessions.set_settings(tx, head.no, after, model=model)
    log.notify(tx, head)
    return sessions.get_by_no(tx, head.no)


def record_opening(tx: Tx, session_id: str, opening: Opening, *, moment: Moment) -> None:
    """Record what was chosen for a session that was just opened; its first message follows."""
    if opening.chosen is not None and opening.chosen.changed:
        record = choice.record_of(opening.chosen, {})
        log.append(tx, session_id, record, profile=opening.profile, at=moment.now)


def settle(
    tx: Tx,
    lease: Lease,
    before: Mapping[str, Any],
    settled: SettledChoice,
    *,
    moment: Moment,
) -> None:
    """Record what changed when a turn began: what was chosen during the turn before, and what there is no more."""
    head = sessions.get_by_no(tx, lease.session_no)
    current = {key: value for key, value in before.items() if key != choice.PENDING}
    for change in settled.changes:
        changed = choice.difference(current, change.changed)
        if not changed:
            continue
        record = choice.record_of(replace(change, changed=changed), current)
        log.append(tx, head.id, record, profile=head.profile, at=moment.now, lease=lease)
        current = choice.apply_changes(current, changed)
    model = head.model
    if before.get("model") is not None or settled.settings.get("model") is not None:
        model = settled.settings.get("model")
    sessions.set_settings(tx, head.no, settled.settings, model=model)


def settings_at(tx: Tx, head: SessionHead, through: int) -> Mapping[str, Any]:
    """Return a session's settings as they were when an entry was written, for a fork at that entry."""
    if through >= head.last_seq:
        return head.settings
    later = clip(sessions.segments(tx, head.no), through + 1)
    records = [
        entry.body
        for entry in entries.walk(tx, later)
        if isinstance(entry.body, Message) and entry.body.role is Role.SYSTEM
    ]
    applied = {key: value for key, value in head.settings.items() if key != choice.PENDING}
    return choice.reverted(applied, records)
