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
    name,
    steps_of,
    unfolded,
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
    """A conversation on its way: what its files say, put in order."""

    def __init__(self, home: HermesHome, chain: Chain, database: ExternalDatabase | None) -> None:
        self._home = home
        self._chain = chain
        self._database = database
        self._tapes: list[MessageSource] = []
        self._told: list[Event] = []
        self._web = self._read_web()
        self._plan = self._planned()
        webs = [session.facts for _, session in self._web]
        self._known = HermesFacts(home, chain, webs, database)

    def events(self) -> Iterator[Event]:
        """All that is to be said of it."""
        yield self._begin()
        yield from self._told
        yield Facts(fields=self._known.fields())
        playback = MessageReplay(self._tapes)
        try:
            is_split = any(session.before for _, session in self._web)
            yield from self._branches(playback) if is_split else self._line(playback)
        finally:
            playback.close()
        if usage := self._usage():
            yield UsageEvent(usage=usage)

    # What is said, in which order

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
        plan = unfolded(segments, is_compressed=compressed)
        for file, session in self._web:
            steps = self._steps(ListedMessages(file.path, session.messages))
            tape = len(self._tapes) - 1
            plan = joined(plan, steps)
            if not any(step.is_compaction for step in plan):
                _anchor(plan, web_sessions.anchored(session), tape)
        name(plan)
        return plan

    def _steps(self, tape: MessageSource) -> list[PlannedMessage]:
        lights, told = survey(tape)
        self._told += told
        self._tapes.append(tape)
        return steps_of(lights, len(self._tapes) - 1)

    def _read_web(self) -> list[tuple[WebFile, WebSession]]:
        found = []
        for row in self._chain.rows:
            file = self._home.web.get(row.id)
            if file is None:
                continue
            try:
                session = web_sessions.read(file)
                found.append((file, session))
                self._told += [Skipped(where=p.name, why=why) for p, why in session.faults]
                self._told += [
                    IgnoredRecord(
                        what=f"fields {name}, longer than {web_sessions.MAX_FIELD:,} bytes"[:80]
                    )
                    for name in web_sessions.too_long(session.facts)
                ]
            except BadInput as error:
                if not row.facts and row.id not in self._home.transcripts:
                    raise
                self._told.append(Skipped(where=file.path.name, why=str(error)))
        return found

    # How it is said

    def _line(self, playback: MessageReplay) -> Iterator[Event]:
        """One message behind the other; what was taken back is left before the next that stands."""
        standing: str | None = None
        is_off = False
        at = self._began()
        for step in self._plan:
            at = step.at or at
            parent: str | None = FOLLOWS
            if is_off and not step.light.is_taken_back:
                parent = standing
            yield from self._say(step, playback, at, parent)
            is_off = step.light.is_taken_back
            if not is_off and not step.is_compaction:
                standing = step.id
        if is_off and standing is not None:
            yield Retracted(after=standing, at=at)

    def _say(
        self,
        step: PlannedMessage,
        playback: MessageReplay,
        at: datetime,
        parent: str | None = FOLLOWS,
    ) -> Iterator[MessageEvent | Compacted]:
        raws = [playback.raw(tape, number, step.key) for tape, number in step.places]
        raw = message.filled(*raws)
        if not step.is_compaction:
            yield message.said(raw, id=step.id, at=at, parent=parent)
            if step.summary_after is not None:
                yield Compacted(summary=step.summary_after, at=at, id=f"{step.id}-summary")
            return
        summary, rest = message.split_summary(message.words_of(raw))
        keeps = None if step.keeps is None else step.keeps.id
        yield Compacted(summary=summary, at=at, id=step.id, keeps=keeps)
        if rest:
            said = {"role": raw.get("role"), "content": rest}
            yield message.said(said, id=f"{step.id}-rest", at=at)

    def _branches(self, playback: MessageReplay) -> Iterator[Event]:
        """The way that stands, after those that do not: taken back, or only in a copy."""
        way: list[tuple[PlannedMessage, list[MessageEvent | Compacted]]] = []
        off: list[MessageEvent | Compacted] = []
        at = self._began()
        for step in self._plan:
            at = step.at or at
            items = list(self._say(step, playback, at))
            if step.light.is_taken_back:
                off += items
                continue
            if off:
                yield Branch(items=[*_flat(way), *off], is_current=False)
                off = []
            way.append((step, items))
        if off:
            yield Branch(items=[*_flat(way), *off], is_current=False)
        for file, session in self._web:
            yield from self._before(ListedMessages(file.backup, session.before), way)
        yield Branch(items=_flat(way), is_current=True)

    def _before(
        self, tape: ListedMessages, way: list[tuple[PlannedMessage, list[MessageEvent | Compacted]]]
    ) -> Iterator[Event]:
        """What a session was before its file shrank; what still stands is the same message."""
        lights, told = survey(tape)
        yield from told
        steps = steps_of(lights, 0)
        name(steps)
        pairs = aligned([step.key for step in steps], [step.key for step, _ in way])
        same = {ours: way[theirs][1] for ours, theirs in pairs}
        playback = MessageReplay([tape])
        items: list[MessageEvent | Compacted] = []
        at = self._began()
        for number, step in enumerate(steps):
            at = step.at or at
            items += same.get(number) or list(self._say(step, playback, at))
        if len(same) < len(steps):
            yield Branch(items=items, is_current=False)

    # What is known of it

    def _begin(self) -> SessionBegin:
        chain = self._chain
        parent = None
        if chain.parent is not None and chain.lineage is not None:
            parent = Parent(native_id=chain.parent, lineage=chain.lineage)
        return SessionBegin(
            native_id=chain.id, began_at=self._began(), kind=chain.kind, parent=parent
        )

    def _began(self) -> datetime:
        """When it began; of what names no time, when its file was last written."""
        first = self._chain.rows[0]
        entry = self._home.index.entries.get(first.id, {})
        said = next((step.at for step in self._plan if step.at is not None), None)
        web = [web_sessions.began_at(session.facts) for _, session in self._web]
        paths = [file for row in self._chain.rows for file in self._home.files_of(row.id)]
        written = min(map(files.changed_at, paths), default=_EPOCH)
        known = [first.began, local(entry.get("created_at")), *web, said]
        return next((each for each in known if each is not None), written)

    def _usage(self) -> list[Usage]:
        """The ledger's rows: the database has the word, then the index, then the web session."""
        found: list[Usage] = []
        if self._database is not None:
            rows = [row for row in self._chain.rows if row.facts]
            found = session_facts.of_rows(self._database, rows)
        for facts in (self._known.entry(), *(session.facts for _, session in self._web)):
            if not found:
                began = {"started_at": facts.get("created_at")}
                found += session_facts.of_facts(self._chain.id, began | facts)
        return found


def _anchor(plan: list[PlannedMessage], anchored: tuple[int, str] | None, tape: int) -> None:
    """Note behind which message of a tape the model read a summary."""
    if anchored is None:
        return
    number, summary = anchored
    for step in plan:
        if (tape, number) in step.places:
            step.summary_after = summary


def _flat(
    way: list[tuple[PlannedMessage, list[MessageEvent | Compacted]]],
) -> list[MessageEvent | Compacted]:
    return [item for _, items in way for item in items]
