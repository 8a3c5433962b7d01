"""Erase a person: their words leave the log for ever, and a receipt says what went.

What only they and the agent said is purged. In conversations with others their messages become
empty places, so that nobody else's words move or are lost. What the agent said stays, except for
summaries made of what they wrote.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field

from sessionary.actions import shares
from sessionary.actions.shares import Share, Whom
from sessionary.clock import Moment, to_micros
from sessionary.errors import Conflict
from sessionary.model import document
from sessionary.model.place import escape, source_as_stored
from sessionary.store.database import Store, Tx
from sessionary.store.tables import sessions

PAGE = 200
REMAINS = (
    "What the agent and other people wrote stays, even where it speaks of the person or quotes them; so "
    "do the titles people gave, the costs of the calls, the numbers by which a message is known when it "
    "comes twice, and schedules and home places that lead to them: look at those. Other tools' files, "
    "and backups and exports made before this, are not changed: delete them."
)


@dataclass(slots=True)
class Receipt:
    """What an erasure took away."""

    id: str
    at: str
    person: str
    sessions_purged: int = 0
    sessions_changed: int = 0
    messages_erased: int = 0
    arrivals_erased: int = 0
    permits_removed: int = 0
    remains: str = REMAINS
    sessions: list[str] = field(default_factory=list)
    # Sessions in which a turn was running: erase again when it has ended.
    left: list[str] = field(default_factory=list)


def look(
    store: Store,
    whom: Whom,
    *,
    profile: str,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[Share]:
    """Every session in which they wrote or were overheard; this reads all sessions of the platform."""
    known = named(store, whom, profile=profile, progress=progress)
    for no in _numbers(store, whom, profile=profile):
        share = store.read(shares.share_of, no, known).result()
        if share is not None:
            yield share


def named(
    store: Store, whom: Whom, *, profile: str, progress: Callable[[int], None] = lambda _: None
) -> Whom:
    """The person with all names under which they wrote: others' messages know them by these."""
    for seen, no in enumerate(_numbers(store, whom, profile=profile), 1):
        share = store.read(shares.share_of, no, whom).result()
        if share is not None:
            whom = whom.known_as(share.names)
        progress(seen)
    return whom


def erase(
    store: Store,
    whom: Whom,
    *,
    profile: str,
    moment: Moment,
    progress: Callable[[int], None] = lambda _: None,
) -> Receipt:
    """Take their words out of the log, the inbox, the access lists and the index."""
    receipt = Receipt(moment.new_id(), moment.now.isoformat(), whom.digest)
    known = named(store, whom, profile=profile, progress=progress)
    for no in _numbers(store, whom, profile=profile):
        _take(store, no, known, receipt, profile=profile, moment=moment)
    receipt.arrivals_erased = store.write(_forget_arrivals, whom, profile=profile).result()
    store.write(_finish, whom, receipt, profile=profile, moment=moment).result()
    # The index holds their words until it is made anew; the next search does that.
    store.rebuild_index().result()
    store.scrub()
    return receipt


def receipts(tx: Tx, *, profile: str) -> list[dict[str, object]]:
    """All receipts of a profile, oldest first."""
    return [document.decode(row[0]) for row in tx.all("list_erasures", profile=profile)]


def _take(
    store: Store, no: int, whom: Whom, receipt: Receipt, *, profile: str, moment: Moment
) -> None:
    share = store.read(shares.share_of, no, whom).result()
    if share is None:
        return
    id = share.head.id
    try:
        taken = store.write(shares.take, no, whom, profile=profile, moment=moment).result()
    except Conflict:
        receipt.left.append(id)
        return
    if taken is None:
        return
    receipt.messages_erased += len(taken.seqs)
    receipt.sessions_purged += taken.is_whole
    receipt.sessions_changed += not taken.is_whole
    receipt.sessions.append(id)


def _numbers(store: Store, whom: Whom, *, profile: str) -> Iterator[int]:
    after = 0
    while page := store.read(_page, whom.platform, profile, after).result():
        for after in page:
            yield after


def _page(tx: Tx, platform: str, profile: str, after: int) -> list[int]:
    # Keys begin so that were made of what came from the platform; «0» follows «/».
    keys = f"{profile}/{escape(platform, keep=':')}"
    rows = tx.all(
        "page_of_platform",
        profile=profile,
        platform=sessions.column(platform),
        first_key=f"{keys}/",
        last_key=f"{keys}0",
        after=after,
        limit=PAGE,
    )
    return [row[0] for row in rows]


def _forget_arrivals(tx: Tx, whom: Whom, *, profile: str) -> int:
    """What they wrote and what never became part of a conversation."""
    forgotten = after = 0
    while rows := tx.all("page_of_free_arrivals", profile=profile, after=after, limit=PAGE):
        for no, text, _ in rows:
            after = no
            source = source_as_stored(document.decode(text))
            ids = (source.user_id, source.user_id_alt)
            if source.platform == whom.platform and whom.person_id in ids:
                forgotten += tx.run("forget_arrival", no=no)
    return forgotten


def _finish(tx: Tx, whom: Whom, receipt: Receipt, *, profile: str, moment: Moment) -> None:
    """Take them off the lists, and keep the receipt."""
    names = {
        "profile": profile,
        "platform": sessions.column(whom.platform),
        "person_id": sessions.column(whom.person_id),
    }
    receipt.permits_removed = tx.run("delete_permit", **names) + tx.run(
        "delete_pairing_of", **names
    )
    tx.run(
        "insert_erasure",
        id=receipt.id,
        profile=profile,
        at=to_micros(moment.now),
        receipt=document.encode(asdict(receipt)),
    )
