"""Sessions out of the store: lossless lines of JSON, Markdown and HTML, excerpts for other tools.

Nothing here writes to the store. The log is append-only, so each session is read in short reads up
to the entry that was its last when its turn came; writers do not wait, and memory stays small.
"""

import base64
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from sessionary.actions.sessions import read
from sessionary.errors import BadInput, Conflict, NotFound
from sessionary.model import codec, html_page, markdown, record, transcript
from sessionary.model.handover.excerpt import ExcerptWindow, HandoverExcerpt
from sessionary.model.message import Attachment, Entry, Message, Retraction
from sessionary.model.record import (
    WHOLE,
    BlobLine,
    CloseLine,
    DropLine,
    EndLine,
    ExportOptions,
    Header,
    TurnLine,
    entry_within,
    head_within,
    is_empty,
    line_within,
    turn_within,
)
from sessionary.model.redact import masked_json, secrets_in
from sessionary.model.session import Segment, SessionFolder, SessionHead
from sessionary.model.source import Source
from sessionary.store.database import Store, Tx
from sessionary.store.tables import blobs, entries, meta, sessions, transfer
from sessionary.store.tables.transfer import LineageLink

PAGE = 100
HANDOVER_BUDGET = 100_000
_NOWHERE = {"platform": "unknown"}

# A session's number, and for what others continue from: the last entry they need.
Item = tuple[int, int | None]
Numbered = tuple[int, record.TurnLine] | tuple[int, record.UsageLine]


def export_jsonl(
    store: Store,
    ids: Sequence[str] | None = None,
    *,
    profile: str | None,
    options: ExportOptions = WHOLE,
) -> Iterator[str]:
    """Sessions as lines of JSON that `import_jsonl` reads; all of a profile when no ids are given.

    Ids need a profile; without one and without ids, every profile is exported. Sessions come in
    the order in which they were opened, each after its parent; of a parent that is not exported
    itself, only what its children need is written. Options that leave something out make an
    export that can be imported, but is not lossless.
    """
    options = with_salt(store, options)
    items = _all(store, profile) if ids is None else _selected(store, ids, profile or "")
    yield record.write(Header(record.VERSION))
    count = 0
    for no, through in items:
        for line in _session(store, no, through, options):
            count += isinstance(line, EndLine)
            written = record.write(line)
            yield _masked(written) if options.mask_secrets else written
    yield record.write(CloseLine(sessions=count))


def with_salt(store: Store, options: ExportOptions) -> ExportOptions:
    """The options with the store's salt, if they hide ids."""
    if not options.redact:
        return options
    return replace(options, salt=store.read(meta.redaction_salt).result())


def _masked(line: str) -> str:
    """A line with secrets masked; attachments stay as they are."""
    if not any(True for _ in secrets_in(line)):
        return line
    made = codec.decode(line)
    return line if made.get("line") == "blob" else codec.encode(masked_json(made)) + "\n"


def _all(store: Store, profile: str | None) -> Iterator[Item]:
    """Every session, by number; but a parent that has a higher number comes before its child."""
    after = 0
    early: set[int] = set()
    while page := store.read(sessions.page, profile=profile, after=after, limit=PAGE).result():
        for no, _, _ in page:
            after = no
            line = [(no, link) for no, link in _with_later_ancestors(store, no) if no not in early]
            early.update(higher for higher, _ in line if higher > no)
            for each, link in reversed(line):
                if not link.is_gone:
                    yield each, None
                elif (need := store.read(transfer.needed_below, each).result()) is not None:
                    yield each, need


def _with_later_ancestors(store: Store, no: int) -> list[tuple[int, LineageLink]]:
    """A session and those of its ancestors that have higher numbers, nearest first."""
    line: dict[int, LineageLink] = {}
    at: int | None = no
    while at is not None and at not in line and (not line or at > no):
        line[at] = link = store.read(transfer.link, at).result()
        at = link.parent_no
    return list(line.items())


def _selected(store: Store, ids: Sequence[str], profile: str) -> list[Item]:
    """The wanted sessions by number, each after its ancestors, which are written as far as needed."""
    wanted = {store.read(read.get_head, each, profile=profile).result().no for each in ids}
    links: dict[int, LineageLink] = {}
    needs: dict[int, int] = {}
    for no in sorted(wanted):
        _note_needs(store, no, wanted, links, needs)
    placed: dict[int, None] = {}
    for no in sorted(wanted):
        line: list[int] = []
        at: int | None = no
        while at is not None and at not in placed and at not in line:
            line.append(at)
            goes_on = at in wanted or (needs[at] > 0 and links[at].inherits)
            at = links[at].parent_no if goes_on else None
        placed.update(dict.fromkeys(reversed(line)))
    return [(no, None if no in wanted else needs[no]) for no in placed]


def _note_needs(
    store: Store, no: int, wanted: set[int], links: dict[int, LineageLink], needs: dict[int, int]
) -> None:
    """Climb from a wanted session, noting how much of each ancestor it reads."""
    seen: set[int] = set()
    need: int | None = None
    at: int | None = no
    while at is not None and at not in seen:
        seen.add(at)
        if at not in links:
            links[at] = store.read(transfer.link, at).result()
        link = links[at]
        if at in wanted:
            if at != no:
                return  # it climbs for itself
            need = link.base_seq if link.inherits else 0
        else:
            needs[at] = max(needs.get(at, 0), need or 0)
            if not need or not link.inherits:
                return
            need = min(need, link.base_seq)
        at = link.parent_no


def _session(
    store: Store, no: int, through: int | None, options: ExportOptions
) -> Iterator[record.Line]:
    """One session from its facts to its end line."""
    if through is None:
        line, own = store.read(transfer.facts, no).result()
    else:
        line, own = store.read(transfer.partial_facts, no, through=through).result()
    source = Source.from_json(line.source or _NOWHERE)
    yield line_within(line, options)
    counts = dict.fromkeys(("turns", "blobs", "entries", "usage"), 0)
    written: set[str] = set()
    if through is None:
        for turn in _pages(store, transfer.turns_page, no):
            assert isinstance(turn, TurnLine)
            shown = turn_within(turn, source, options)
            if shown.request is not None and shown.request not in written:
                request = _request(store, shown.request)
                if request is None:
                    shown = replace(shown, request=None)
                else:
                    written.add(request.hash)
                    counts["blobs"] += 1
                    yield request
            counts["turns"] += 1
            yield shown
    has_requests = through is None and options.is_whole
    for each in _log(store, own, source, options, written if has_requests else None):
        if each is None:
            yield DropLine(id=line.id)
            return
        counts["blobs" if isinstance(each, BlobLine) else "entries"] += 1
        yield each
    if through is None:
        for call in _pages(store, transfer.usage_page, no):
            counts["usage"] += 1
            yield call
    yield EndLine(id=line.id, **counts)


def _pages(
    store: Store, page_of: Callable[[Tx, int, int], Sequence[Numbered]], no: int
) -> Iterator[record.Line]:
    after = 0
    while page := store.read(page_of, no, after).result():
        for after, line in page:  # noqa: B007  # the last number is where the next page begins
            yield line


def _request(store: Store, name: str) -> BlobLine | None:
    """What a model was sent besides the messages; None if it was erased."""
    try:
        data = store.read(blobs.get, name).result()
    except NotFound:
        return None
    return BlobLine(hash=name, data=base64.b64encode(data).decode())


def _log(
    store: Store,
    own: Segment,
    source: Source,
    options: ExportOptions,
    requests: set[str] | None,
) -> Iterator[BlobLine | record.EntryLine | None]:
    """A session's own entries, attachments before their first use; None: it is being purged.

    `requests` are the requests of turns that were written already; with None, none is.
    """
    attached: set[str] = set()
    for entry in _walk(store, [own]):
        if entry is None:
            yield None
            return
        for part in entry.body.parts if isinstance(entry.body, Message) else ():
            if isinstance(part, Attachment) and part.blob not in attached:
                attached.add(part.blob)
                data = _bytes_of(store, own.no, part.blob)
                if data is None:
                    yield None
                    return
                yield BlobLine(hash=part.blob, data=base64.b64encode(data).decode())
        named = transcript.request_of_record(entry.body)
        if named is not None and requests is not None and named not in requests:
            requests.add(named)
            request = _request(store, named)
            if request is not None:
                yield request
        yield record.entry_line(entry_within(entry, source, options))


def _bytes_of(store: Store, session_no: int, name: str) -> bytes | None:
    """An attachment's bytes; None when its session has been purged since its entry was read."""
    try:
        return store.read(blobs.get, name).result()
    except NotFound:
        if store.read(sessions.get_by_no, session_no).result().folder is SessionFolder.GONE:
            return None
        raise


def _walk(store: Store, segments: Sequence[Segment]) -> Iterator[Entry | None]:
    """Every entry of the stretches in short reads; None, as the last, if the session was purged meanwhile."""
    for segment in segments:
        first = segment.first
        while first <= segment.last:
            rest = replace(segment, first=first)
            try:
                page = store.read(transfer.entries_page, rest).result()
                for each in page:
                    if isinstance(each, Entry):
                        yield each
                    else:
                        # Read again by itself: its large texts may have been packed meanwhile.
                        alone = replace(segment, first=each, last=each)
                        yield store.read(entries.read, alone).result()[0]
            except NotFound:
                yield None
                return
            first += len(page)


def export_markdown(
    store: Store, ids: Sequence[str] | None = None, *, profile: str, options: ExportOptions = WHOLE
) -> Iterator[str]:
    """Sessions as Markdown, one document behind the other; without ids all but the trash."""
    options = with_salt(store, options)
    for number, head in enumerate(heads_of(store, ids, profile)):
        yield ("\n" if number else "") + markdown.render_head(head_within(head, options))
        for entry in transcript_of(store, head, options):
            yield markdown.render_entry(entry)


def export_html(
    store: Store, ids: Sequence[str] | None = None, *, profile: str, options: ExportOptions = WHOLE
) -> Iterator[str]:
    """Sessions as one page that needs nothing else; without ids all but the trash."""
    options = with_salt(store, options)
    title = "Conversations"
    if ids is not None and len(ids) == 1:
        only = store.read(read.get_head, ids[0], profile=profile).result()
        title = markdown.title_of(head_within(only, options))
    yield html_page.opening(title)
    for head in heads_of(store, ids, profile):
        yield html_page.session_opening(head_within(head, options))
        for entry in transcript_of(store, head, options):
            pictures = {
                name: store.read(blobs.get, name).result() for name in html_page.pictures_of(entry)
            }
            yield html_page.render_entry(entry, pictures)
        yield html_page.session_closing()
    yield html_page.closing()


def heads_of(store: Store, ids: Sequence[str] | None, profile: str) -> Iterator[SessionHead]:
    """The sessions that an export for people has: those named, or all but the trash."""
    if ids is not None:
        for each in ids:
            yield store.read(read.get_head, each, profile=profile).result()
        return
    after = 0
    while page := store.read(sessions.page, profile=profile, after=after, limit=PAGE).result():
        for no, _, folder in page:
            after = no
            if folder not in (SessionFolder.GONE, SessionFolder.TRASH):
                yield store.read(sessions.get_by_no, no).result()


def transcript_of(store: Store, head: SessionHead, options: ExportOptions) -> Iterator[Entry]:
    """What people read of a session, in short reads."""
    segments = store.read(sessions.segments, head.no).result()
    stretches = transcript.retracted(store.read(entries.marks, segments).result())
    for entry in _walk(store, segments):
        if entry is None:
            raise Conflict(f"Session {head.id} was purged while it was exported; begin again.")
        if not isinstance(entry.body, Retraction) and not transcript.is_retracted(
            entry.seq, stretches
        ):
            shown = entry_within(entry, head.source, options)
            if options.is_whole or not is_empty(shown):
                yield shown


def handover_excerpt(
    store: Store,
    id: str,
    *,
    profile: str,
    budget: int = HANDOVER_BUDGET,
    options: ExportOptions = WHOLE,
) -> HandoverExcerpt:
    """The newest part of a session for another tool to continue; `budget` limits its estimated tokens."""
    if budget < 1:
        raise BadInput(f"A budget is a number of tokens from 1 up, not {budget}.")
    options = with_salt(store, options)
    head = store.read(read.get_head, id, profile=profile).result()
    window = ExcerptWindow(budget)
    for entry in transcript_of(store, head, options):
        window.add(entry)
    workspace = store.read(sessions.details, head.no).result().workspace
    known = workspace if isinstance(workspace, dict) else {}
    path, branch = (
        value if isinstance(value := known.get(name), str) and value else None
        for name in ("path", "branch")
    )

    def blob_of(name: str) -> bytes | None:
        try:
            return store.read(blobs.get, name).result()
        except NotFound:
            return None

    made = window.excerpt(
        session_id=head.id,
        began_at=head.began_at,
        title=head_within(head, options).title,
        model=head.model,
        path=path,
        branch=branch,
        blob_of=blob_of,
    )
    if not made.lines and made.preface is None:
        raise NotFound(f"Session {head.id} has no messages that another tool could go on with.")
    return made
