"""Erase a person: their words leave the log for ever, and a receipt says what went.

What only they and the agent said is purged. In conversations with others their messages become
empty places, so that nobody else's words move or are lost. What the agent said stays, except for
summaries made of what they wrote.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from hashlib import sha256

from hansard.actions import fold, pack, purge
from hansard.clock import Occasion, to_micros
from hansard.errors import Conflict
from hansard.model import document
from hansard.model.entry import Compaction, Entry, Message, Role
from hansard.model.part import Unknown
from hansard.model.place import ChatType, Person, source_as_stored
from hansard.model.session import Segment, SessionHead, TitleBy
from hansard.store import entries, sessions
from hansard.store.database import Store, Tx

PAGE = 200
ERASED = Unknown({"type": "erased"})
ERASED_SUMMARY = "[a summary was erased with the messages of a person]"
REMAINS = (
    "What the agent and other people wrote stays, even where it speaks of the person; so do the "
    "costs of the calls. Backups and exports made before this are not changed: delete them."
)


@dataclass(frozen=True, slots=True)
class Whom:
    """The person who is erased, as a platform knows them."""

    platform: str
    person_id: str

    @property
    def digest(self) -> str:
        """What a receipt calls them."""
        name = f"{self.platform}\n{self.person_id}".encode("utf-8", "surrogatepass")
        return sha256(name).hexdigest()

    def is_writer(self, person: Person | None) -> bool:
        """Whether they wrote a message."""
        return person is not None and self.person_id in (person.id, person.alt_id)


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


@dataclass(frozen=True, slots=True)
class Share:
    """What of a session is theirs: all of it, or these messages."""

    head: SessionHead
    is_whole: bool
    seqs: tuple[int, ...]


def look(
    store: Store,
    whom: Whom,
    *,
    profile: str,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[Share]:
    """Every session in which they wrote; this reads all sessions of the platform."""
    after = seen = 0
    while page := store.read(_page, whom.platform, profile, after).result():
        for no in page:
            after, seen = no, seen + 1
            share = store.read(_share, no, whom).result()
            if share is not None:
                yield share
            progress(seen)


def erase(
    store: Store,
    whom: Whom,
    *,
    profile: str,
    when: Occasion,
    progress: Callable[[int], None] = lambda _: None,
) -> Receipt:
    """Take their words out of the log, the inbox, the access lists and the index."""
    receipt = Receipt(when.new_id(), when.now.isoformat(), whom.digest)
    for share in look(store, whom, profile=profile, progress=progress):
        erased = store.write(_erase_share, share, profile=profile, when=when).result()
        receipt.messages_erased += erased
        receipt.sessions_purged += share.is_whole
        receipt.sessions_changed += not share.is_whole
        receipt.sessions.append(share.head.id)
    receipt.arrivals_erased = store.write(_forget_arrivals, whom, profile=profile).result()
    store.write(_finish, whom, receipt, profile=profile, when=when).result()
    # The index holds their words until it is made anew; the next search does that.
    store.rebuild_index().result()
    return receipt


def receipts(tx: Tx, *, profile: str) -> list[dict[str, object]]:
    """All receipts of a profile, oldest first."""
    return [document.decode(row[0]) for row in tx.all("list_erasures", profile=profile)]


def _page(tx: Tx, platform: str, profile: str, after: int) -> list[int]:
    rows = tx.all(
        "page_of_platform",
        profile=profile,
        platform=sessions.column(platform),
        after=after,
        limit=PAGE,
    )
    return [row[0] for row in rows]


def _share(tx: Tx, no: int, whom: Whom) -> Share | None:
    head = sessions.get_by_no(tx, no)
    own = Segment(no, head.id, head.base_seq + 1, head.last_seq)
    in_their_chat = _is_their_chat(head, whom)
    theirs, others = [], 0
    for entry in entries.walk(tx, [own]):
        body = entry.body
        if not isinstance(body, Message) or body.role is not Role.USER:
            continue
        if whom.is_writer(body.person) or (body.person is None and in_their_chat):
            theirs.append(entry.seq)
        else:
            others += 1
    if not theirs and not in_their_chat:
        return None
    return Share(head, is_whole=in_their_chat or others == 0, seqs=tuple(theirs))


def _is_their_chat(head: SessionHead, whom: Whom) -> bool:
    source = head.source
    if source.chat_type != ChatType.DM:
        return False
    return whom.person_id in (source.user_id, source.user_id_alt, source.chat_id)


def _erase_share(tx: Tx, share: Share, *, profile: str, when: Occasion) -> int:
    """Empty their messages; then purge the session when all of it was theirs."""
    head = sessions.get_by_no(tx, share.head.no)
    tx.one("lock_session_no", no=head.no)
    if head.running:
        raise Conflict(
            f"A turn is running in session {head.id}; it was not erased. Stop it and erase again."
        )
    pack.unpack(tx, head.no)
    for seq in share.seqs:
        _empty(tx, head, seq)
    if share.is_whole:
        purge.purge(tx, head.id, profile=profile, when=when)
    else:
        _mend(tx, head, share.seqs)
    return len(share.seqs)


def _empty(tx: Tx, head: SessionHead, seq: int) -> None:
    """Replace a message by one that says nothing; its place in the log stays."""
    entry = _entry(tx, head, seq)
    assert isinstance(entry.body, Message)
    _replace(tx, head, entry, Message(entry.body.role, (ERASED,)))
    tx.run("forget_arrival_of_entry", session_no=head.no, seq=seq)


def _mend(tx: Tx, head: SessionHead, seqs: tuple[int, ...]) -> None:
    """Summaries made of their words go too; the head is made again."""
    own = Segment(head.no, head.id, head.base_seq + 1, head.last_seq)
    for mark in entries.marks(tx, [own]):
        if isinstance(mark.body, Compaction) and mark.body.through >= seqs[0]:
            _replace(tx, head, mark, Compaction(ERASED_SUMMARY, mark.body.through))
    fold.put(tx, head.no, fold.counts(tx, sessions.segments(tx, head.no)))
    if head.title_by is not TitleBy.PERSON:
        tx.run("set_title", no=head.no, title=None, title_by=None)
    tx.run("insert_feed", session_no=head.no, seq=0, what="head")


def _replace(tx: Tx, head: SessionHead, entry: Entry, body: Message | Compaction) -> None:
    number = entries.entry_no(head.no, entry.seq)
    tx.run("mark_rewriting", entry_no=number)
    purge.delete_blobs(tx, number, number, profile=head.profile)
    tx.run("delete_entries", first=number, last=number)
    entries.put(tx, head.no, entry.seq, at=entry.at, body=body, turn_id=entry.turn_id)
    tx.run("unmark_rewriting", entry_no=number)


def _entry(tx: Tx, head: SessionHead, seq: int) -> Entry:
    return entries.read(tx, Segment(head.no, head.id, seq, seq))[0]


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


def _finish(tx: Tx, whom: Whom, receipt: Receipt, *, profile: str, when: Occasion) -> None:
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
        at=to_micros(when.now),
        receipt=document.encode(asdict(receipt)),
    )
