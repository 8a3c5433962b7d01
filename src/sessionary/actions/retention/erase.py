"""Erase a person: their words leave the log for ever, and a receipt says what went.

What only they and the agent said is purged. In conversations with others their messages become
empty places, so that nobody else's words move or are lost. What the agent said stays, except for
summaries made of what they wrote.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256

from sessionary.actions.retention import pack, purge
from sessionary.actions.sessions import log
from sessionary.clock import Moment, to_micros
from sessionary.errors import Conflict
from sessionary.model import codec, transcript
from sessionary.model.message import Attachment, Compaction, Entry, Message, Role, Unknown
from sessionary.model.session import Segment, SessionFolder, SessionHead, TitleBy
from sessionary.model.source import ChatType, Person, escape, source_as_stored
from sessionary.store.database import Store, Tx
from sessionary.store.tables import entries, sessions

PAGE = 200
REMAINS = (
    "What the agent and other people wrote stays, even where it speaks of the person or quotes them; so "
    "do the titles people gave, the costs of the calls, the numbers by which a message is known when it "
    "comes twice, and schedules and home places that lead to them: look at those. Other tools' files, "
    "and backups and exports made before this, are not changed: delete them."
)


ERASED = Unknown({"type": "erased"})
ERASED_SUMMARY = "[a summary was erased with the messages of a person]"


@dataclass(frozen=True, slots=True)
class ErasureSubject:
    """The person who is erased, as a platform knows them, and the names they bore."""

    platform: str
    person_id: str
    names: frozenset[str] = frozenset()

    @property
    def digest(self) -> str:
        """What a receipt calls them."""
        name = f"{self.platform}\n{self.person_id}".encode("utf-8", "surrogatepass")
        return sha256(name).hexdigest()

    def is_writer(self, person: Person | None) -> bool:
        """Whether they wrote a message."""
        return person is not None and self.person_id in (person.id, person.alt_id)

    def known_as(self, names: frozenset[str]) -> "ErasureSubject":
        """The same person, with further names."""
        return replace(self, names=self.names | names)


@dataclass(frozen=True, slots=True)
class PersonContent:
    """What of a session is theirs: all of it, or these messages and lines in these messages."""

    head: SessionHead
    is_whole: bool
    seqs: tuple[int, ...]
    # Messages of others that took along what they had said before.
    quotes: tuple[int, ...] = ()
    # What they are called in their messages.
    names: frozenset[str] = frozenset()


def share_of(tx: Tx, no: int, whom: ErasureSubject) -> PersonContent | None:
    """What of a session's own log is theirs; None when nothing is."""
    head = sessions.get_by_no(tx, no)
    in_their_chat = _is_their_chat(head, whom)
    theirs, quotes, names, others = [], [], set[str](), 0
    for entry in entries.walk(tx, [_own(head)]):
        body = entry.body
        if not isinstance(body, Message) or body.role is not Role.USER:
            continue
        if whom.is_writer(body.person) or (body.person is None and in_their_chat):
            theirs.append(entry.seq)
            names |= {body.person.name} if body.person and body.person.name else set()
            continue
        others += 1
        if transcript.has_note(body) and transcript.without(body, _speakers(whom)) != body:
            quotes.append(entry.seq)
    if not (theirs or quotes or in_their_chat):
        return None
    is_whole = in_their_chat or others == 0
    return PersonContent(head, is_whole, tuple(theirs), tuple(quotes), frozenset(names))


def take(
    tx: Tx, no: int, whom: ErasureSubject, *, profile: str, moment: Moment
) -> PersonContent | None:
    """Empty their messages; then purge the session when all of it was theirs."""
    # The lock comes first: what was said since someone looked is theirs too.
    tx.one("lock_session_no", no=no)
    if sessions.get_by_no(tx, no).folder is SessionFolder.GONE:
        return None
    share = share_of(tx, no, whom)
    if share is None:
        return None
    head = share.head
    if head.running:
        raise Conflict(
            f"A turn is running in session {head.id}; it was not erased. Stop it and erase again."
        )
    pack.unpack(tx, no)
    for seq in share.seqs:
        _empty(tx, head, seq)
    for seq in share.quotes:
        _erase_quotes(tx, head, seq, whom)
    first = min((*share.seqs, *share.quotes), default=head.last_seq + 1)
    for heir in _heirs(tx, no, first):
        _mend(tx, heir, first)
    tx.run("forget_requests", id=head.id)
    if share.is_whole:
        _forget_next_title(tx, head)
        purge.purge(tx, head.id, profile=profile, moment=moment)
    else:
        _mend(tx, head, first)
        _forget_opener(tx, head, whom)
        _close_import(tx, head)
    return share


def _own(head: SessionHead) -> Segment:
    return Segment(head.no, head.id, head.base_seq + 1, head.last_seq)


def _is_their_chat(head: SessionHead, whom: ErasureSubject) -> bool:
    source = head.source
    if source.chat_type != ChatType.DM or source.platform != whom.platform:
        return False
    return whom.person_id in (source.user_id, source.user_id_alt, source.chat_id)


def _speakers(whom: ErasureSubject) -> frozenset[str]:
    return whom.names | {whom.person_id}


def _heirs(tx: Tx, no: int, first: int) -> Iterator[SessionHead]:
    """The living sessions that read a session's log up to an entry at least."""
    for child_no, _, lineage, base_seq, shelf in tx.all("children", no=no):
        if lineage not in ("fork", "continuation") or base_seq < first:
            continue
        if shelf != SessionFolder.GONE:
            tx.one("lock_session_no", no=child_no)
            yield sessions.get_by_no(tx, child_no)
        yield from _heirs(tx, child_no, first)


def _empty(tx: Tx, head: SessionHead, seq: int) -> None:
    """Replace a message by one that says nothing; its place in the log stays."""
    entry = _entry(tx, head, seq)
    assert isinstance(entry.body, Message)
    _replace(tx, head, entry, Message(entry.body.role, (ERASED,)))
    tx.run("forget_arrival_of_entry", session_no=head.no, seq=seq)


def _erase_quotes(tx: Tx, head: SessionHead, seq: int, whom: ErasureSubject) -> None:
    """Take their lines out of a message that someone else wrote."""
    entry = _entry(tx, head, seq)
    assert isinstance(entry.body, Message)
    _replace(tx, head, entry, transcript.without(entry.body, _speakers(whom)))
    tx.run("forget_arrival_of_entry", session_no=head.no, seq=seq)


def _mend(tx: Tx, head: SessionHead, first: int) -> None:
    """Summaries made of their words go too; the head is made again."""
    for mark in entries.marks(tx, [_own(head)]):
        if isinstance(mark.body, Compaction) and mark.body.through >= first:
            _replace(tx, head, mark, replace(mark.body, summary=ERASED_SUMMARY))
    log.put(tx, head.no, log.counts(tx, sessions.segments(tx, head.no)))
    if head.title_by is not TitleBy.PERSON:
        tx.run("set_title", no=head.no, title=None, title_by=None)
    tx.run("insert_feed", session_no=head.no, seq=0, what="head")


def _forget_opener(tx: Tx, head: SessionHead, whom: ErasureSubject) -> None:
    """A session that they opened and others go on with does not name them."""
    source = head.source
    if whom.person_id in (source.user_id, source.user_id_alt):
        nobody = replace(
            source, user_id=None, user_id_alt=None, user_name=None, platform_message_id=None
        )
        tx.run("forget_opener", no=head.no, source=codec.encode(nobody.to_json()))


def _forget_next_title(tx: Tx, head: SessionHead) -> None:
    """What they wanted their next session to be called."""
    if head.key is not None:
        tx.one("take_next_title", profile=head.profile, key=str(head.key))


def _close_import(tx: Tx, head: SessionHead) -> None:
    """The tool's file still has their words: the session is not read from it again."""
    if tx.one("is_imported", no=head.no) is not None:
        extra = {**sessions.details(tx, head.no).extra, "erased": True}
        tx.run("set_imported_facts", no=head.no, model=None, extra=codec.encode(extra))


def _replace(tx: Tx, head: SessionHead, entry: Entry, body: Message | Compaction) -> None:
    number = entries.entry_no(head.no, entry.seq)
    tx.run("mark_rewriting", entry_no=number)
    purge.delete_blobs(tx, number, number, profile=head.profile, but=_attached(body))
    tx.run("delete_entries", first=number, last=number)
    entries.put(tx, head.no, entry.seq, at=entry.at, body=body, turn_id=entry.turn_id)
    tx.run("unmark_rewriting", entry_no=number)


def _attached(body: Message | Compaction) -> frozenset[str]:
    parts = body.parts if isinstance(body, Message) else ()
    return frozenset(part.blob for part in parts if isinstance(part, Attachment))


def _entry(tx: Tx, head: SessionHead, seq: int) -> Entry:
    return entries.read(tx, Segment(head.no, head.id, seq, seq))[0]


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
    whom: ErasureSubject,
    *,
    profile: str,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[PersonContent]:
    """Every session in which they wrote or were overheard; this reads all sessions of the platform."""
    known = named(store, whom, profile=profile, progress=progress)
    for no in _numbers(store, whom, profile=profile):
        share = store.read(share_of, no, known).result()
        if share is not None:
            yield share


def named(
    store: Store,
    whom: ErasureSubject,
    *,
    profile: str,
    progress: Callable[[int], None] = lambda _: None,
) -> ErasureSubject:
    """The person with all names under which they wrote: others' messages know them by these."""
    for seen, no in enumerate(_numbers(store, whom, profile=profile), 1):
        share = store.read(share_of, no, whom).result()
        if share is not None:
            whom = whom.known_as(share.names)
        progress(seen)
    return whom


def erase(
    store: Store,
    whom: ErasureSubject,
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
    return [codec.decode(row[0]) for row in tx.all("list_erasures", profile=profile)]


def _take(
    store: Store, no: int, whom: ErasureSubject, receipt: Receipt, *, profile: str, moment: Moment
) -> None:
    share = store.read(share_of, no, whom).result()
    if share is None:
        return
    id = share.head.id
    try:
        taken = store.write(take, no, whom, profile=profile, moment=moment).result()
    except Conflict:
        receipt.left.append(id)
        return
    if taken is None:
        return
    receipt.messages_erased += len(taken.seqs)
    receipt.sessions_purged += taken.is_whole
    receipt.sessions_changed += not taken.is_whole
    receipt.sessions.append(id)


def _numbers(store: Store, whom: ErasureSubject, *, profile: str) -> Iterator[int]:
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


def _forget_arrivals(tx: Tx, whom: ErasureSubject, *, profile: str) -> int:
    """What they wrote and what never became part of a conversation."""
    forgotten = after = 0
    while rows := tx.all("page_of_free_arrivals", profile=profile, after=after, limit=PAGE):
        for no, text, _ in rows:
            after = no
            source = source_as_stored(codec.decode(text))
            ids = (source.user_id, source.user_id_alt)
            if source.platform == whom.platform and whom.person_id in ids:
                forgotten += tx.run("forget_arrival", no=no)
    return forgotten


def _finish(
    tx: Tx, whom: ErasureSubject, receipt: Receipt, *, profile: str, moment: Moment
) -> None:
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
        receipt=codec.encode(asdict(receipt)),
    )
