"""Find keys and tokens in the log. Nothing is changed."""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from sessionary.actions.sessions import read
from sessionary.errors import NotFound
from sessionary.model.message import Entry, body_to_json
from sessionary.model.redact import secrets_in, texts_in
from sessionary.model.session import Segment, SessionFolder, SessionHead
from sessionary.store.database import Store, Tx
from sessionary.store.tables import entries, sessions

PAGE = 200


class SecretMatch(Struct, frozen=True):
    """A secret in a message: where it is, of what kind, and a part of it to recognize it by."""

    session: SessionHead
    seq: int
    role: str
    kind: str
    shown: str


def scan(
    store: Store,
    ids: Sequence[str] | None = None,
    *,
    profile: str,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[SecretMatch]:
    """Search some sessions, or all of a profile; a secret is reported once per message."""
    for count, head in enumerate(_heads(store, ids, profile=profile), 1):
        yield from _in_session(store, head)
        progress(count)


def _heads(store: Store, ids: Sequence[str] | None, *, profile: str) -> Iterator[SessionHead]:
    if ids is not None:
        for id in ids:
            yield store.read(read.get_head, id, profile=profile).result()
        return
    after = 0
    while page := store.read(_page, profile, after).result():
        for no, head in page:
            after = no
            if head is not None:
                yield head


def _page(tx: Tx, profile: str, after: int) -> list[tuple[int, SessionHead | None]]:
    return [
        (no, None if folder == SessionFolder.GONE else sessions.get_by_no(tx, no))
        for no, _, folder in sessions.page(tx, profile=profile, after=after, limit=PAGE)
    ]


def _in_session(store: Store, head: SessionHead) -> Iterator[SecretMatch]:
    """Secrets in the session's own log; what it inherits is found in its ancestors."""
    first = head.base_seq + 1
    while first <= head.last_seq:
        own = Segment(head.no, head.id, first, head.last_seq)
        try:
            page = store.read(entries.read, own, limit=PAGE).result()
        except NotFound:
            return  # purged meanwhile
        for entry in page:
            yield from _in_entry(head, entry)
        first = page[-1].seq + 1


def _in_entry(head: SessionHead, entry: Entry) -> Iterator[SecretMatch]:
    seen: set[str] = set()
    role = str(getattr(entry.body, "role", "summary"))
    for text in texts_in(body_to_json(entry.body)):
        for secret in secrets_in(text):
            value = text[secret.start : secret.end]
            if value not in seen:
                seen.add(value)
                yield SecretMatch(head, entry.seq, role, secret.kind, secret.shown)
