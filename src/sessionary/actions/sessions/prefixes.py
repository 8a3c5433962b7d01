"""Continue the conversation whose beginning a client has sent again, in its session or in a fork of it."""

from collections.abc import Sequence

from msgspec import Struct

from sessionary.actions.sessions import edit, log
from sessionary.clock import Moment
from sessionary.errors import NotFound
from sessionary.model.session import SessionFolder, SessionHead
from sessionary.store.database import Tx
from sessionary.store.tables import prefixes, sessions

# How many beginnings are compared with one query: the last ones first.
_COMPARED = 64
# A client that has changed something further back than this begins a new session.
_MOST_COMPARED = 1024


class KnownPrefix(Struct, frozen=True):
    """How many of the client's messages are in the log already, and the session's entry at which they end."""

    session_no: int
    seq: int
    length: int


def find(tx: Tx, digests: Sequence[str], *, profile: str, client: str) -> KnownPrefix | None:
    """Find the longest known beginning; `digests` are those of `prefix_digests`."""
    end = len(digests)
    while end > max(0, len(digests) - _MOST_COMPARED):
        first = max(0, end - _COMPARED)
        known = prefixes.find(tx, digests[first:end], profile=profile, client=client)
        for place in range(end - 1, first - 1, -1):
            if found := known.get(digests[place]):
                return KnownPrefix(*found, length=place + 1)
        end = first
    return None


def continue_at(tx: Tx, known: KnownPrefix, *, profile: str, moment: Moment) -> SessionHead | None:
    """Return the session to append to: the known one, or a fork of it if it went on differently since.

    None if it is in the trash or was deleted: then a new session begins.
    """
    head = sessions.by_numbers(tx, (known.session_no,)).get(known.session_no)
    if head is None:
        return None
    try:
        head = log.lock_session(tx, head.id, profile=profile)
    except NotFound:
        return None
    if head.folder is SessionFolder.GONE or head.trashed_at is not None:
        return None
    is_at_end = head.last_seq == known.seq and not head.running
    if is_at_end and head.ended_at is None and not head.read_only:
        return head
    return edit.fork(tx, head.id, profile=profile, moment=moment, at_seq=known.seq)


def note(tx: Tx, digest: str, head: SessionHead, *, seq: int, client: str) -> None:
    """Note that a client which sends this beginning continues the session after this entry."""
    prefixes.put(tx, digest, head.no, seq, profile=head.profile, client=client)
