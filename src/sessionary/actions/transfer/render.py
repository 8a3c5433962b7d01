"""Out of the store for people: Markdown, and pages for a browser; an entry at a time."""

from collections.abc import Iterator, Sequence

from sessionary.actions.sessions import read
from sessionary.actions.transfer import jsonl_export
from sessionary.errors import Conflict
from sessionary.model import html_page, markdown, transcript
from sessionary.model.message import Entry, Retraction
from sessionary.model.record import WHOLE, ExportOptions, entry_within, head_within, is_empty
from sessionary.model.session import SessionFolder, SessionHead
from sessionary.store.database import Store, Tx
from sessionary.store.tables import blobs, entries, sessions


def export_markdown(
    store: Store, ids: Sequence[str] | None = None, *, profile: str, extent: ExportOptions = WHOLE
) -> Iterator[str]:
    """Sessions as Markdown, one document behind the other; without ids all but the trash."""
    for number, head in enumerate(_heads(store, ids, profile)):
        yield ("\n" if number else "") + markdown.opening(head_within(head, extent))
        for entry in transcript_of(store, head, extent):
            yield markdown.entry(entry)


def export_html(
    store: Store, ids: Sequence[str] | None = None, *, profile: str, extent: ExportOptions = WHOLE
) -> Iterator[str]:
    """Sessions as one page that needs nothing else; without ids all but the trash."""
    title = "Conversations"
    if ids is not None and len(ids) == 1:
        only = store.read(read.head, ids[0], profile=profile).result()
        title = markdown.title_of(head_within(only, extent))
    yield html_page.opening(title)
    for head in _heads(store, ids, profile):
        yield html_page.session_opening(head_within(head, extent))
        for entry in transcript_of(store, head, extent):
            pictures = {
                name: store.read(blobs.get, name).result() for name in html_page.pictures_of(entry)
            }
            yield html_page.entry(entry, pictures)
        yield html_page.session_closing()
    yield html_page.closing()


def _heads(store: Store, ids: Sequence[str] | None, profile: str) -> Iterator[SessionHead]:
    if ids is not None:
        for each in ids:
            yield store.read(read.head, each, profile=profile).result()
        return
    after = 0
    while rows := store.read(_page, profile, after).result():
        for no, shelf in rows:
            after = no
            if shelf not in (SessionFolder.GONE, SessionFolder.TRASH):
                yield store.read(sessions.get_by_no, no).result()


def _page(tx: Tx, profile: str, after: int) -> list[tuple[int, str]]:
    rows = tx.all("page_of_sessions", profile=profile, after=after, limit=jsonl_export.PAGE)
    return [(no, shelf) for no, _, shelf in rows]


def transcript_of(store: Store, head: SessionHead, extent: ExportOptions) -> Iterator[Entry]:
    """What people read of a session, in short reads."""
    segments = store.read(sessions.segments, head.no).result()
    stretches = transcript.retracted(store.read(entries.marks, segments).result())
    for entry in jsonl_export.walk(store, segments):
        if entry is None:
            raise Conflict(f"Session {head.id} was purged while it was exported; begin again.")
        if not isinstance(entry.body, Retraction) and not transcript.is_retracted(
            entry.seq, stretches
        ):
            shown = entry_within(entry, head.source, extent)
            if extent.is_whole or not is_empty(shown):
                yield shown
