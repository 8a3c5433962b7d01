"""The beginning and the end of most turns, each as one look at the database and one batch of writes.

`actions.turns` can begin and end any turn, a statement at a time; each statement costs SQLite 10 to 20 µs of CPU, most
of it in Python, and PostgreSQL a round trip. Most turns are simpler: one message comes to a session that is open and
idle, and one message answers it. Their rows are known once the session is locked, so they are written together:

    begin: look (lock, session, homes) · arrival as taken, session, turn, entry, feed
    end:   session · entry, feed, deliveries, turn

Both functions return None, before they have written anything, if the turn is not of that kind.
"""

from collections.abc import Callable
from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from sessionary.actions import inbox, usage
from sessionary.actions.outbox import DeliveryAdded
from sessionary.actions.sessions import log, routing
from sessionary.actions.sessions.log import Appended, SessionChanged
from sessionary.actions.turns import Begun, Claim, Ending, with_author
from sessionary.clock import Moment
from sessionary.model.message import Entry, Message, Role, encode_body
from sessionary.model.prompt import HomeAddress
from sessionary.model.reset import ResetPolicy
from sessionary.model.session import SessionFolder, SessionHead
from sessionary.model.source import SessionKey, Source, check_length
from sessionary.model.transcript import ContextFold, fold_context
from sessionary.model.turn import Delivery, DeliveryState, Lease, TurnState
from sessionary.store.database import Tx
from sessionary.store.tables import blobs, deliveries, entries, sessions, turn_scripts
from sessionary.store.tables.deliveries import SendClaim
from sessionary.store.tables.turn_scripts import TakenArrival

# If more entries than this must be read, a reader reads them: the writer has other sessions to serve.
MOST_NEW_ENTRIES = 50
KnownContext = Callable[[int, int], ContextFold | None]


class BegunWithPrompt(Struct, frozen=True):
    """A turn that has begun with one message, and what its agent is given.

    `context` is None if it must be read from the log.
    """

    begun: Begun
    arrival_id: str
    head: SessionHead
    homes: frozenset[HomeAddress]
    context: ContextFold | None


def begin(
    tx: Tx,
    key: SessionKey,
    source: Source,
    message: Message,
    *,
    policy: ResetPolicy,
    claim: Claim,
    moment: Moment,
    known_context: KnownContext,
    idempotency_key: str | None = None,
) -> BegunWithPrompt | None:
    """Store a message and begin a turn with it, in an open session where no turn is running and nothing waits.

    `known_context` returns the context of the turn before, by the session's number and the epoch of the new turn.
    """
    check_length(key)
    prompt = encode_body(with_author(message, source, key))
    if message.role is not Role.USER or message.tool_calls or entries.has_large(prompt):
        return None
    arrival_id = moment.new_id()
    name = inbox.idempotency_key_of(source, arrival_id, idempotency_key)
    found = turn_scripts.find_idle_session(tx, str(key), profile=key.profile, idempotency_key=name)
    if found is None or not _goes_on(found.head, policy, moment):
        return None
    head, epoch, seq = found.head, found.epoch + 1, found.head.last_seq + 1
    settled = claim.catalog.settle(head.settings, platform=claim.platform)
    if settled.changes:
        return None  # they are recorded before the prompt
    lease = Lease(moment.new_id(), head.no, head.id, epoch, claim.holder)
    known = known_context(head.no, epoch)
    # A fork shares the entries of its parent: only the whole context of a session of its own is read here.
    last_known = known.last_seq if known is not None else head.base_seq
    is_near = head.last_seq - last_known <= MOST_NEW_ENTRIES and (known or not head.base_seq)
    preview = log.preview_of(message) if head.preview is None else None
    until = moment.now + timedelta(seconds=claim.seconds)
    newer = turn_scripts.begin_with_prompt(
        tx,
        lease,
        TakenArrival(arrival_id, str(key), key.profile, name, source, message, moment.now),
        prompt,
        seq=seq,
        preview=preview,
        agent=settled.agent or claim.agent,
        until=until,
        resumable=claim.allows_resuming(settled.agent),
        read_from=last_known + 1 if is_near else None,
    )
    context = None
    if newer is not None:
        extend = fold_context if known is None else known.extended
        context = extend(newer, last_seq=seq)
    tx.after_commit(SessionChanged(key.profile, head.id, seq))
    return BegunWithPrompt(
        Begun(
            lease,
            routing.Route(head.id, head.no),
            (Appended(head.id, head.no, seq),),
            agent=settled.agent,
        ),
        arrival_id,
        replace(
            head,
            preview=head.preview or preview,
            last_active_at=max(head.last_active_at, moment.now),
            last_seq=seq,
            message_count=head.message_count + 1,
            running_turn=lease.turn_id,
            turn_lease_until=until,
        ),
        found.homes,
        context,
    )


def _goes_on(head: SessionHead, policy: ResetPolicy, moment: Moment) -> bool:
    """Whether a message to a key goes to this session, without opening another."""
    return (
        head.is_open
        and not head.read_only
        and head.folder is not SessionFolder.TRASH
        and policy.due(last_active=head.last_active_at, now=moment.now) is None
    )


class Ended(Struct, frozen=True):
    """A turn that has ended: the deliveries that this process sends now, and whether messages may wait.

    `reply` is the last entry of the session, if it is all that the turn wrote after its prompt.
    """

    claimed: tuple[Delivery, ...] = ()
    may_wait: bool = True
    reply: Entry | None = None


def end(
    tx: Tx,
    lease: Lease,
    ending: Ending,
    *,
    last_seq: int,
    key: SessionKey,
    moment: Moment,
    claim: SendClaim | None = None,
) -> Ended | None:
    """End a turn that is done with one message, the entry after `last_seq`.

    With a `claim` the caller sends the first delivery itself, unless others wait to be sent to the channel.
    """
    if ending.state is not TurnState.DONE or ending.files or len(ending.messages) != 1:
        return None
    [message] = ending.messages
    body = encode_body(message)
    is_plain = message.role is Role.ASSISTANT and not message.tool_calls
    if not is_plain or entries.has_large(body) or ending.reason is not None:
        return None
    channel = ending.replies[0].channel if ending.replies else None
    if any(reply.channel != channel for reply in ending.replies):
        return None
    profile, seq = key.profile, last_seq + 1
    entries.check_seq(seq)
    freed = turn_scripts.end_with_reply(
        tx,
        lease,
        seq=seq,
        at=moment.now,
        profile=profile,
        key=str(key),
        channel=None if channel is None else str(channel),
    )
    if freed is None:
        return None
    # One at a time for each channel: the rest of a long reply waits for its first piece.
    claims = [None if freed.has_deliveries else claim, *(None for _ in ending.replies)]
    new = [
        (moment.new_id(), reply, held) for reply, held in zip(ending.replies, claims, strict=False)
    ]
    statements = [
        deliveries.insert_statement(
            id,
            profile=profile,
            channel=reply.channel,
            parts=reply.parts,
            at=moment.now,
            session_no=lease.session_no,
            turn_id=lease.turn_id,
            claim=held,
        )
        for id, reply, held in new
    ]
    request = ending.request
    if request is not None and request.text is not None:
        blobs.keep_text(tx, request.text, entry_no=sessions.first_entry_no(lease.session_no))
    written = turn_scripts.write_reply(
        tx,
        lease,
        body,
        statements,
        seq=seq,
        at=moment.now,
        request_hash=None if request is None else request.hash,
    )
    if written is None:
        raise log.turn_lost_error(lease)
    reply_entry, returned = written
    claimed = tuple(
        Delivery(
            no=rows[0][0],
            id=id,
            profile=profile,
            channel=reply.channel,
            session_id=lease.session_id,
            turn_id=lease.turn_id,
            parts=reply.parts,
            state=DeliveryState.SENDING,
            attempts=1,
            unclear_attempts=0,
            not_before=moment.now,
            created_at=moment.now,
        )
        for (id, reply, held), rows in zip(new, returned, strict=True)
        if held is not None
    )
    if len(claimed) < len(new):
        tx.after_commit(DeliveryAdded(profile, str(channel)))
    for used in ending.usage:
        usage.record(
            tx, lease.session_no, used, profile=profile, moment=moment, turn_id=lease.turn_id
        )
    tx.after_commit(SessionChanged(profile, lease.session_id, seq))
    return Ended(claimed, freed.has_arrivals, reply_entry)
