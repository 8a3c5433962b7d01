"""Erase a person: their words leave the log for ever, and a receipt says what was removed.

Conversations between them and the agent alone are purged. In conversations with others their
messages are replaced by empty ones, so that no other message changes its number. What the agent
said stays, except for summaries made of what they wrote.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from sessionary.actions import budgets
from sessionary.actions.retention import purge
from sessionary.actions.sessions import log
from sessionary.clock import Moment
from sessionary.errors import Conflict
from sessionary.model import transcript
from sessionary.model.message import Compaction, Message, Role, Unknown
from sessionary.model.question import person_key
from sessionary.model.session import Segment, SessionFolder, SessionHead, TitleBy
from sessionary.model.source import ChatType, Person
from sessionary.store.database import Store, Tx
from sessionary.store.tables import (
    access,
    checkpoints,
    entries,
    exchanges,
    imports,
    prefixes,
    questions,
    retention,
    sessions,
)

PAGE = 200
REMAINS = (
    "What the agent and other people wrote stays, even where it speaks of the person or quotes them; so "
    "do the titles people gave, the costs of the calls, the numbers by which a message is known when it "
    "comes twice, what graphs remember in their long-term store, and schedules and home places that lead to "
    "them: look at those. Other tools' files, "
    "and backups and exports made before this, are not changed: delete them."
)
ERASED = Unknown({"type": "erased"})
ERASED_SUMMARY = "[a summary was erased with the messages of a person]"


class ErasureSubject(Struct, frozen=True):
    """The person who is erased, as a platform knows them, and the names they had."""

    platform: str
    person_id: str
    names: frozenset[str] = frozenset()

    @property
    def digest(self) -> str:
        """What a receipt calls them."""
        name = f"{self.platform}\n{self.person_id}".encode("utf-8", "surrogatepass")
        return sha256(name).hexdigest()

    @property
    def speaker_names(self) -> frozenset[str]:
        """What notes in other people's messages may call them."""
        return self.names | {self.person_id}

    def wrote(self, person: Person | None) -> bool:
        """Whether they are the writer of a message."""
        return person is not None and self.person_id in (person.id, person.alt_id)

    def owns_chat(self, head: SessionHead) -> bool:
        """Whether a session is a direct chat with them."""
        source = head.source
        if source.chat_type != ChatType.DM or source.platform != self.platform:
            return False
        return self.person_id in (source.user_id, source.user_id_alt, source.chat_id)


class PersonContent(Struct, frozen=True):
    """What of a session is theirs: all of it, or some messages and lines in others' messages."""

    head: SessionHead
    is_whole: bool
    seqs: tuple[int, ...]
    # Messages of others that quote what they had said before.
    quotes: tuple[int, ...] = ()
    # What they are called in their messages.
    names: frozenset[str] = frozenset()


@dataclass(slots=True)
class Receipt:
    """What an erasure removed."""

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


def find_content(
    store: Store,
    subject: ErasureSubject,
    *,
    profile: str,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[PersonContent]:
    """Every session in which they wrote or are quoted; this reads all sessions of the platform."""
    known = _with_names(store, subject, profile=profile, progress=progress)
    for no in _session_numbers(store, subject, profile=profile):
        content = store.read(_content_in, no, known).result()
        if content is not None:
            yield content


def erase(
    store: Store,
    subject: ErasureSubject,
    *,
    profile: str,
    moment: Moment,
    progress: Callable[[int], None] = lambda _: None,
) -> Receipt:
    """Remove their words from the log, the inbox, the access lists and the index."""
    receipt = Receipt(moment.new_id(), moment.now.isoformat(), subject.digest)
    known = _with_names(store, subject, profile=profile, progress=progress)
    for no in _session_numbers(store, subject, profile=profile):
        content = store.read(_content_in, no, known).result()
        if content is None:
            continue
        try:
            erased = store.write(_erase_in, no, known, profile=profile, moment=moment).result()
        except Conflict:
            receipt.left.append(content.head.id)
            continue
        if erased is not None:
            receipt.messages_erased += len(erased.seqs)
            receipt.sessions_purged += erased.is_whole
            receipt.sessions_changed += not erased.is_whole
            receipt.sessions.append(content.head.id)
    whose = {"platform": subject.platform, "profile": profile}
    receipt.arrivals_erased = store.write(
        retention.clear_unassigned_arrivals, subject.person_id, page=PAGE, **whose
    ).result()
    store.write(_finish, subject, receipt, profile=profile, moment=moment).result()
    # The index holds their words until it is rebuilt, which the next search does.
    store.rebuild_index().result()
    store.scrub()
    return receipt


def _with_names(
    store: Store, subject: ErasureSubject, *, profile: str, progress: Callable[[int], None]
) -> ErasureSubject:
    """The person with all names under which they wrote: other people's messages quote them by these."""
    for seen, no in enumerate(_session_numbers(store, subject, profile=profile), 1):
        content = store.read(_content_in, no, subject).result()
        if content is not None:
            subject = replace(subject, names=subject.names | content.names)
        progress(seen)
    return subject


def _session_numbers(store: Store, subject: ErasureSubject, *, profile: str) -> Iterator[int]:
    after = 0
    find = retention.sessions_of_platform
    while page := store.read(
        find, subject.platform, profile=profile, after=after, limit=PAGE
    ).result():
        yield from page
        after = page[-1]


def _content_in(tx: Tx, no: int, subject: ErasureSubject) -> PersonContent | None:
    """What of a session's own log is theirs; None when nothing is."""
    head = sessions.get_by_no(tx, no)
    in_their_chat = subject.owns_chat(head)
    theirs, quotes, names, others = [], [], set[str](), 0
    for entry in entries.walk(tx, [_own_log(head)]):
        body = entry.body
        if not isinstance(body, Message) or body.role is not Role.USER:
            continue
        if subject.wrote(body.person) or (body.person is None and in_their_chat):
            theirs.append(entry.seq)
            names |= {body.person.name} if body.person and body.person.name else set()
            continue
        others += 1
        if transcript.has_note(body) and transcript.without(body, subject.speaker_names) != body:
            quotes.append(entry.seq)
    if not (theirs or quotes or in_their_chat):
        return None
    is_whole = in_their_chat or others == 0
    return PersonContent(head, is_whole, tuple(theirs), tuple(quotes), frozenset(names))


def _erase_in(
    tx: Tx, no: int, subject: ErasureSubject, *, profile: str, moment: Moment
) -> PersonContent | None:
    """Empty their messages in a session; purge the session if all of it was theirs."""
    # The lock comes first: what was said since the session was read is theirs too.
    sessions.lock_session_no(tx, no)
    if sessions.get_by_no(tx, no).folder is SessionFolder.GONE:
        return None
    content = _content_in(tx, no, subject)
    if content is None:
        return None
    head = content.head
    if head.running:
        raise Conflict(
            f"A turn is running in session {head.id}; it was not erased. Stop it and erase again."
        )
    retention.unpack(tx, no)
    quotes = set(content.quotes)
    for seq in (*content.seqs, *content.quotes):
        if seq in content.seqs:
            retention.delete_files_of_entry(tx, head, seq)
        [entry] = entries.read(tx, Segment(head.no, head.id, seq, seq))
        assert isinstance(entry.body, Message)
        if seq in quotes:
            body = transcript.without(entry.body, subject.speaker_names)
        else:
            body = Message(entry.body.role, (ERASED,))
        retention.replace_body(tx, head, entry, body)
        retention.clear_arrival(tx, head.no, seq)
    first = min((*content.seqs, *content.quotes), default=head.last_seq + 1)
    # What agents keep with it leads to sessions of their own, which still have the words.
    sessions.delete_agent_state(tx, no)
    for heir in _lock_heirs(tx, no, first):
        _rebuild_summaries(tx, heir, first)
        sessions.delete_agent_state(tx, heir.no)
    retention.delete_responses(tx, head.id)
    questions.delete_of_session(tx, no)
    prefixes.delete_of_session(tx, no)
    if content.is_whole:
        if head.key is not None:
            sessions.take_next_session(tx, str(head.key), profile=head.profile)
        purge.purge(tx, head.id, profile=profile, moment=moment)
        return content
    _rebuild_summaries(tx, head, first)
    if subject.person_id in (head.source.user_id, head.source.user_id_alt):
        # The session goes on without naming who opened it.
        nobody = replace(
            head.source, user_id=None, user_id_alt=None, user_name=None, platform_message_id=None
        )
        retention.set_opener(tx, head.no, nobody)
    # The file of the tool that it came from still has their words.
    imports.close(tx, head.no)
    return content


def _own_log(head: SessionHead) -> Segment:
    return Segment(head.no, head.id, head.base_seq + 1, head.last_seq)


def _lock_heirs(tx: Tx, no: int, seq: int) -> Iterator[SessionHead]:
    """Lock and return the sessions, not purged, whose history includes this entry of another's log."""
    for child in sessions.children(tx, no):
        if not child.inherits or child.base_seq < seq:
            continue
        if child.folder != SessionFolder.GONE:
            sessions.lock_session_no(tx, child.no)
            yield sessions.get_by_no(tx, child.no)
        yield from _lock_heirs(tx, child.no, seq)


def _rebuild_summaries(tx: Tx, head: SessionHead, first: int) -> None:
    """Erase the summaries that cover an entry, and make the head's counts, preview and title again.

    No process may go on with a context that it made of the old entries: the new epoch says so. What models were sent
    besides the messages is deleted: a system prompt names the people of a chat. So is the state of graphs and runs:
    nobody can take a message out of it.
    """
    retention.delete_requests(tx, head)
    checkpoints.delete_of_session(tx, head.no)
    for mark in entries.marks(tx, [_own_log(head)]):
        if isinstance(mark.body, Compaction) and mark.body.through >= first:
            retention.replace_body(tx, head, mark, replace(mark.body, summary=ERASED_SUMMARY))
    sessions.set_counts(tx, head.no, log.count_log(tx, sessions.segments(tx, head.no)))
    sessions.raise_epoch(tx, head.no)
    if head.title_by is not TitleBy.PERSON:
        sessions.set_title(tx, head.no, None, by=None)
    entries.insert_feed(tx, head.no, "head")


def _finish(
    tx: Tx, subject: ErasureSubject, receipt: Receipt, *, profile: str, moment: Moment
) -> None:
    """Remove them from the access lists and from what budgets count, and keep the receipt."""
    receipt.permits_removed = retention.delete_permissions(
        tx, subject.person_id, platform=subject.platform, profile=profile
    )
    for kind in ("person", "channel"):  # a direct chat may have the id of its person
        scope = budgets.scope_name(kind, f"{subject.platform}:{subject.person_id}")
        access.delete_scope(tx, scope, profile=profile)
    person = person_key(subject.platform, Person(subject.person_id))
    questions.delete_approvals_of(tx, person, profile=profile)
    if subject.platform == exchanges.PLATFORM:
        # What has passed the proxy and is not in the log yet.
        exchanges.delete_of_person(tx, subject.person_id, profile=profile)
    retention.insert_receipt(tx, receipt.id, asdict(receipt), profile=profile, at=moment.now)
