"""One conversation of Hermes', from its database, its transcripts and its web sessions."""

from collections.abc import Iterator
from datetime import UTC, datetime

from sessionary.errors import BadInput
from sessionary.importers.base import files
from sessionary.importers.base.events import (
    FOLLOWS,
    Branch,
    Compacted,
    Event,
    Facts,
    IgnoredRecord,
    MessageEvent,
    Parent,
    Retracted,
    SessionBegin,
    Skipped,
    UsageEvent,
)
from sessionary.importers.hermes import message, session_facts, web_sessions
from sessionary.importers.hermes.home import HermesHome
from sessionary.importers.hermes.message import local
from sessionary.importers.hermes.plan import (
    PlannedMessage,
    aligned,
    joined,
    merge_segments,
    name,
    steps_of,
)
from sessionary.importers.hermes.session_facts import HermesFacts
from sessionary.importers.hermes.sources import (
    DatabaseMessages,
    ExportedMessages,
    ListedMessages,
    MessageReplay,
    MessageSource,
    TranscriptMessages,
    survey,
)
from sessionary.importers.hermes.state import Chain
from sessionary.importers.hermes.web_sessions import WebFile, WebSession
from sessionary.model.usage import Usage
from sessionary.store.sqlite.external_file import ExternalDatabase

_EPOCH = datetime(1980, 1, 1, tzinfo=UTC)


class HermesConversation:
    """One conversation, merged from all files that have parts of it."""

    def __init__(self, home: HermesHome, chain: Chain, database: ExternalDatabase | None) -> None:
        self._home = home
        self._chain = chain
        self._database = database
        self._sources: list[MessageSource] = []
        self._pending: list[Event] = []
        self._web = self._read_web()
        self._plan = self._planned()
        webs = [session.facts for _, session in self._web]
        self._known = HermesFacts(home, chain, webs, database)

    def events(self) -> Iterator[Event]:
        """Yield all events of the conversation."""
        yield self._begin()
        yield from self._pending
        yield Facts(fields=self._known.fields())
        playback = MessageReplay(self._sources)
        try:
            is_split = any(session.before for _, session in self._web)
            yield from self._branches(playback) if is_split else self._line(playback)
        finally:
            playback.close()
        if usage := self._usage():
            yield UsageEvent(usage=usage)

    # The order of the messages

    def _planned(self) -> list[PlannedMessage]:
        segments = []
        for row in self._chain.rows:
            steps: list[PlannedMessage] = []
            if self._database is not None and row.facts:
                steps = self._steps(DatabaseMessages(self._database, row.id))
            if row.id in self._home.exported:
                steps = self._steps(ExportedMessages(*self._home.exported[row.id]))
            if row.id in self._home.transcripts:
                steps = joined(
                    steps, self._steps(TranscriptMessages(self._home.transcripts[row.id]))
                )
            segments.append(steps)
        compressed = [row.end_reason == "compression" for row in self._chain.rows]
        plan = merge_segments(segments, is_compressed=compressed)
        for file, session in self._web:
            steps = self._steps(ListedMessages(file.path, session.messages))
            source = len(self._sources) - 1
            plan = joined(plan, steps)
            if not any(step.is_compaction for step in plan):
                _anchor(plan, web_sessions.anchored(session), source)
        name(plan)
        return plan

    def _steps(self, source: MessageSource) -> list[PlannedMessage]:
        keys, events = survey(source)
        self._pending += events
        self._sources.append(source)
        return steps_of(keys, len(self._sources) - 1)

    def _read_web(self) -> list[tuple[WebFile, WebSession]]:
        found = []
        for row in self._chain.rows:
            file = self._home.web.get(row.id)
            if file is None:
                continue
            try:
                session = web_sessions.read(file)
                found.append((file, session))
                self._pending += [Skipped(where=p.name, why=why) for p, why in session.faults]
                self._pending += [
                    IgnoredRecord(
                        what=f"fields {name}, longer than {web_sessions.MAX_FIELD:,} bytes"[:80]
                    )
                    for name in web_sessions.too_long(session.facts)
                ]
            except BadInput as error:
                if not row.facts and row.id not in self._home.transcripts:
                    raise
                self._pending.append(Skipped(where=file.path.name, why=str(error)))
        return found

    # The events

    def _line(self, playback: MessageReplay) -> Iterator[Event]:
        """Yield the messages in order; retracted ones are rewound before the next one that stands."""
        last_kept: str | None = None
        is_off = False
        at = self._began()
        for step in self._plan:
            at = step.at or at
            parent: str | None = FOLLOWS
            if is_off and not step.message_key.is_taken_back:
                parent = last_kept
            yield from self._messages(step, playback, at, parent)
            is_off = step.message_key.is_taken_back
            if not is_off and not step.is_compaction:
                last_kept = step.id
        if is_off and last_kept is not None:
            yield Retracted(after=last_kept, at=at)

    def _messages(
        self,
        step: PlannedMessage,
        playback: MessageReplay,
        at: datetime,
        parent: str | None = FOLLOWS,
    ) -> Iterator[MessageEvent | Compacted]:
        raws = [playback.raw(source, number, step.key) for source, number in step.places]
        raw = message.filled(*raws)
        if not step.is_compaction:
            yield message.to_message(raw, id=step.id, at=at, parent=parent)
            if step.summary_after is not None:
                yield Compacted(summary=step.summary_after, at=at, id=f"{step.id}-summary")
            return
        summary, rest = message.split_summary(message.words_of(raw))
        keeps = None if step.keeps is None else step.keeps.id
        yield Compacted(summary=summary, at=at, id=step.id, keeps=keeps)
        if rest:
            after = {"role": raw.get("role"), "content": rest}
            yield message.to_message(after, id=f"{step.id}-rest", at=at)

    def _branches(self, playback: MessageReplay) -> Iterator[Event]:
        """Yield the current branch after the others: retracted messages, and those of a backup."""
        current: list[tuple[PlannedMessage, list[MessageEvent | Compacted]]] = []
        off: list[MessageEvent | Compacted] = []
        at = self._began()
        for step in self._plan:
            at = step.at or at
            items = list(self._messages(step, playback, at))
            if step.message_key.is_taken_back:
                off += items
                continue
            if off:
                yield Branch(items=[*_flat(current), *off], is_current=False)
                off = []
            current.append((step, items))
        if off:
            yield Branch(items=[*_flat(current), *off], is_current=False)
        for file, session in self._web:
            yield from self._before(ListedMessages(file.backup, session.before), current)
        yield Branch(items=_flat(current), is_current=True)

    def _before(
        self,
        source: ListedMessages,
        current: list[tuple[PlannedMessage, list[MessageEvent | Compacted]]],
    ) -> Iterator[Event]:
        """Yield the branch of a backup; messages that still exist are the same ones."""
        keys, events = survey(source)
        yield from events
        steps = steps_of(keys, 0)
        name(steps)
        pairs = aligned([step.key for step in steps], [step.key for step, _ in current])
        same = {ours: current[theirs][1] for ours, theirs in pairs}
        playback = MessageReplay([source])
        items: list[MessageEvent | Compacted] = []
        at = self._began()
        for number, step in enumerate(steps):
            at = step.at or at
            items += same.get(number) or list(self._messages(step, playback, at))
        if len(same) < len(steps):
            yield Branch(items=items, is_current=False)

    # The session

    def _begin(self) -> SessionBegin:
        chain = self._chain
        parent = None
        if chain.parent is not None and chain.lineage is not None:
            parent = Parent(native_id=chain.parent, lineage=chain.lineage)
        return SessionBegin(
            native_id=chain.id, began_at=self._began(), kind=chain.kind, parent=parent
        )

    def _began(self) -> datetime:
        """Return when it began; without any time, when its file was last written."""
        first = self._chain.rows[0]
        entry = self._home.index.entries.get(first.id, {})
        first_at = next((step.at for step in self._plan if step.at is not None), None)
        web = [web_sessions.began_at(session.facts) for _, session in self._web]
        paths = [file for row in self._chain.rows for file in self._home.files_of(row.id)]
        written = min(map(files.changed_at, paths), default=_EPOCH)
        known = [first.began, local(entry.get("created_at")), *web, first_at]
        return next((each for each in known if each is not None), written)

    def _usage(self) -> list[Usage]:
        """Return the usage from the database, or else from the index or the web session."""
        found: list[Usage] = []
        if self._database is not None:
            rows = [row for row in self._chain.rows if row.facts]
            found = session_facts.of_rows(self._database, rows)
        for facts in (self._known.entry(), *(session.facts for _, session in self._web)):
            if not found:
                began = {"started_at": facts.get("created_at")}
                found += session_facts.of_facts(self._chain.id, began | facts)
        return found


def _anchor(plan: list[PlannedMessage], anchored: tuple[int, str] | None, source: int) -> None:
    """Note after which message of a source the model reads a summary."""
    if anchored is None:
        return
    number, summary = anchored
    for step in plan:
        if (source, number) in step.places:
            step.summary_after = summary


def _flat(
    current: list[tuple[PlannedMessage, list[MessageEvent | Compacted]]],
) -> list[MessageEvent | Compacted]:
    return [item for _, items in current for item in items]
