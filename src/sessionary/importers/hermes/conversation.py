"""One conversation of Hermes', merged from its database, its transcripts and its web sessions.

A long conversation is cut into segments: Hermes begins a new one (or, in newer versions, new rows)
with the first messages, a summary, and the last messages again. Here it is one conversation:
repeated messages are dropped, and the summary is for the model only.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from sessionary.errors import BadInput
from sessionary.formats import coerce
from sessionary.formats.coerce import Json
from sessionary.importers.base import databases, events, files
from sessionary.importers.base.content import call_usage, first_time
from sessionary.importers.hermes import messages, sessions
from sessionary.importers.hermes.home import HermesHome
from sessionary.importers.hermes.messages import (
    MessageKey,
    MessageReplay,
    MessageSource,
    local,
    survey,
)
from sessionary.importers.hermes.sessions import Chain, WebFile, WebSession
from sessionary.model.session import Lineage
from sessionary.model.title import numbered_base
from sessionary.model.usage import CostStatus, Usage
from sessionary.store.sqlite.external_file import ExternalDatabase

T = TypeVar("T")
Pair = tuple[int, int]
# How often a range between two common entries is divided again.
ROUNDS = 20


def aligned(a: Sequence[str], b: Sequence[str]) -> list[Pair]:
    """Return the pairs of indices at which two lists are equal, in the order of both."""
    found: list[Pair] = []
    stretches = [(0, len(a), 0, len(b), ROUNDS)]
    while stretches:
        a0, a1, b0, b1, rounds = stretches.pop()
        while a0 < a1 and b0 < b1 and a[a0] == b[b0]:
            found.append((a0, b0))
            a0, b0 = a0 + 1, b0 + 1
        while a0 < a1 and b0 < b1 and a[a1 - 1] == b[b1 - 1]:
            a1, b1 = a1 - 1, b1 - 1
            found.append((a1, b1))
        if a0 == a1 or b0 == b1 or rounds == 0:
            continue
        # The longest common subsequence, counting repeated items.
        places = {key: b0 + n for n, key in enumerate(_numbered(b[b0:b1]))}
        numbered = enumerate(_numbered(a[a0:a1]), a0)
        anchors = _longest_rise([(n, places[key]) for n, key in numbered if key in places])
        found += anchors
        for (ax, bx), (ay, by) in zip(
            [(a0 - 1, b0 - 1), *anchors], [*anchors, (a1, b1)], strict=True
        ):
            if anchors and ax + 1 < ay and bx + 1 < by:
                stretches.append((ax + 1, ay, bx + 1, by, rounds - 1))
    return sorted(found)


def merged(
    a: Sequence[T],
    b: Sequence[T],
    pairs: Sequence[Pair],
    *,
    time_of: Callable[[T], datetime | None],
) -> list[tuple[T | None, T | None]]:
    """Merge two lists: common items once, the others between them by time, or else a's first."""
    out: list[tuple[T | None, T | None]] = []
    ax = bx = 0
    for ay, by in [*pairs, (len(a), len(b))]:
        alone = _between(a[ax:ay], b[bx:by], time_of)
        out.extend(alone)
        if ay < len(a) and by < len(b):
            out.append((a[ay], b[by]))
        ax, bx = ay + 1, by + 1
    return out


def _between(
    a: Sequence[T], b: Sequence[T], time_of: Callable[[T], datetime | None]
) -> list[tuple[T | None, T | None]]:
    sides: list[tuple[T | None, T | None]] = [(each, None) for each in a]
    others: list[tuple[T | None, T | None]] = [(None, each) for each in b]
    times = [time_of(each) for each in (*a, *b)]
    known = [at for at in times if at is not None]
    if not a or not b or len(known) < len(times):
        return sides + others
    out = []
    a_next = b_next = 0
    while a_next < len(a) and b_next < len(b):
        if known[a_next] <= known[len(a) + b_next]:
            out.append(sides[a_next])
            a_next += 1
        else:
            out.append(others[b_next])
            b_next += 1
    return out + sides[a_next:] + others[b_next:]


def _numbered(keys: Sequence[str]) -> list[tuple[str, int]]:
    seen: Counter[str] = Counter()
    out = []
    for key in keys:
        seen[key] += 1
        out.append((key, seen[key]))
    return out


def _longest_rise(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the longest subsequence of the pairs whose second numbers increase."""
    ends: list[int] = []
    at: list[int] = []
    before: list[int | None] = []
    for n, (_, second) in enumerate(pairs):
        place = bisect_left(ends, second)
        before.append(at[place - 1] if place else None)
        if place == len(ends):
            ends.append(second)
            at.append(n)
        else:
            ends[place], at[place] = second, n
    out = []
    last = at[-1] if at else None
    while last is not None:
        out.append(pairs[last])
        last = before[last]
    return out[::-1]


# How many messages may come before the summary at the beginning of a segment.
HEAD = 12
# How far back the repeated last messages of a segment are searched.
TAIL = 3000
# How often they are searched: no conversation is compressed more often.
LOOKS = 2000


@dataclass(slots=True, eq=False)
class PlannedMessage:
    """One message: its key, and its index in each source that has it."""

    message_key: MessageKey
    places: list[tuple[int, int]] = field(default_factory=list)
    id: str = ""
    # A summary that replaces everything before `keeps`, or before this message, for the model.
    is_compaction: bool = False
    keeps: "PlannedMessage | None" = None
    # The summary that the model reads instead of everything up to this message.
    summary_after: str | None = None

    @property
    def key(self) -> str:
        """The message's key."""
        return self.message_key.key

    @property
    def at(self) -> datetime | None:
        """The message's time."""
        return self.message_key.at


def steps_of(message_keys: Sequence[MessageKey], source: int) -> list[PlannedMessage]:
    """Return the messages of one source."""
    return [PlannedMessage(each, [(source, number)]) for number, each in enumerate(message_keys)]


def joined(steps: list[PlannedMessage], others: list[PlannedMessage]) -> list[PlannedMessage]:
    """Merge two records of the same conversation; nothing of either is lost."""
    if not steps or not others:
        return steps or others
    # A summary in one file does not equal the messages that another file has there.
    pairs = aligned([each.key for each in steps], [each.key for each in others])
    out: list[PlannedMessage] = []
    for ours, theirs in merged(steps, others, pairs, time_of=lambda step: step.at):
        step = ours or theirs
        assert step is not None
        if ours is not None and theirs is not None:
            ours.places += theirs.places
        out.append(step)
    return out


def set_ids(plan: Sequence[PlannedMessage]) -> None:
    """Give each message a stable id: its key, and how often that came before."""
    seen: Counter[str] = Counter()
    for step in plan:
        seen[step.key] += 1
        count = seen[step.key]
        step.id = step.key if count == 1 else f"{step.key}-{count}"


class SegmentMerge:
    """Merges the segments of a conversation, one after the other."""

    def __init__(self) -> None:
        self.plan: list[PlannedMessage] = []
        # The messages that are neither retracted nor summaries.
        self._standing: list[PlannedMessage] = []
        self._looks = LOOKS

    def take(self, segment: list[PlannedMessage], *, is_first: bool, was_compressed: bool) -> None:
        """Add a segment; `was_compressed` says how the one before it ended."""
        at = 0 if is_first else self._past_seam(segment, was_compressed=was_compressed)
        while at < len(segment):
            step = segment[at]
            at += 1
            if step.message_key.is_summary and self._standing:
                self._drop_head()
                # The last messages before a summary are repeated after it.
                repeated = self._repeated(segment, at)
                step.is_compaction = True
                step.keeps = self._standing[-repeated] if repeated else None
                self.plan.append(step)
                at += repeated
                continue
            self.plan.append(step)
            if not step.message_key.is_taken_back:
                self._standing.append(step)

    def _drop_head(self) -> None:
        """Drop the first messages of the conversation where they are repeated before a summary."""
        standing = [step.key for step in self._standing[-HEAD:]]
        first = [step.key for step in self._standing[:HEAD]]
        for count in range(min(HEAD, len(self._standing) // 2), 0, -1):
            if standing[-count:] == first[:count] and self.plan[-count:] == self._standing[-count:]:
                del self._standing[-count:], self.plan[-count:]
                return

    def _past_seam(self, segment: list[PlannedMessage], *, was_compressed: bool) -> int:
        """Return the index of a segment's first new message."""
        summary = next((n for n, s in enumerate(segment[:HEAD]) if s.message_key.is_summary), None)
        if summary is not None:
            known = {step.key for step in self._standing}
            fresh = [step for step in segment[:summary] if step.key not in known]
            self.plan += fresh
            self._standing += fresh
            return summary
        repeated = self._repeated(segment, 0)
        if repeated or not was_compressed or not segment:
            return repeated
        last_prompt = next(
            (s for s in reversed(self._standing) if s.message_key.role == "user"), None
        )
        return int(last_prompt is not None and last_prompt.key == segment[0].key)

    def _repeated(self, segment: list[PlannedMessage], at: int) -> int:
        """Return how many messages from there on repeat the last ones."""
        self._looks -= 1
        if at >= len(segment) or self._looks < 0:
            return 0
        standing = self._standing
        for begin in range(max(0, len(standing) - TAIL), len(standing)):
            count = len(standing) - begin
            if standing[begin].key == segment[at].key and at + count <= len(segment):
                again = (step.key for step in segment[at : at + count])
                if all(a.key == b for a, b in zip(standing[begin:], again, strict=True)):
                    return count
        return 0


_CRON_ID = re.compile(r"\Acron_(.+?)_\d{8}.*\Z|\Acron_(.+)_[^_]*\Z")
# Columns that are read elsewhere, or are sums over the log.
_KNOWN_COLUMNS = frozenset(
    {
        *("source", "user_id", "model", "model_config", "system_prompt", "parent_session_id"),
        *("started_at", "ended_at", "end_reason", "message_count", "tool_call_count"),
        *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"),
        *("reasoning_tokens", "billing_provider", "billing_base_url", "billing_mode"),
        *("estimated_cost_usd", "actual_cost_usd", "cost_status", "cost_source", "pricing_version"),
        *("title", "api_call_count", "archived", "pinned", "cwd", "git_branch", "git_repo_root"),
        *("origin_json", "origin"),
    }
)


_USAGE = (
    *("model", "billing_provider", "billing_base_url", "billing_mode", "task", "input_tokens"),
    *("output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens"),
    *("estimated_cost_usd", "actual_cost_usd", "cost_status", "cost_source", "first_seen"),
)


def _usage_of(session_id: str, facts: Json) -> Iterator[Usage]:
    """Yield the usage of one row, if anything was counted."""
    named = [facts.get(n) for n in ("model", "billing_provider", "billing_mode", "task")]
    id = ":".join([session_id, *(each for each in named if isinstance(each, str) and each)])
    billed = facts.get("actual_cost_usd")
    is_reported = isinstance(billed, int | float) and billed > 0
    estimated = facts.get("estimated_cost_usd", facts.get("estimated_cost"))
    for used in call_usage(
        "hermes",
        id,
        model=coerce.name(facts.get("model")),
        provider=coerce.name(facts.get("billing_provider")),
        at=first_time(facts.get("first_seen"), facts.get("started_at")),
        dollars=billed if is_reported else estimated,
        is_reported=is_reported,
        input=facts.get("input_tokens"),
        output=facts.get("output_tokens"),
        cache_read=facts.get("cache_read_tokens"),
        cache_write=facts.get("cache_write_tokens"),
        reasoning=facts.get("reasoning_tokens"),
    ):
        more: dict[str, Any] = {
            "base_url": coerce.name(facts.get("billing_base_url")),
            "billing_mode": coerce.name(facts.get("billing_mode")),
            "task": coerce.name(facts.get("task")),
        }
        if facts.get("cost_status") == "included" and used.cost_microusd is None:
            # Calls included in a subscription cost nothing.
            more |= {"cost_microusd": 0, "cost_status": CostStatus.INCLUDED}
            more["price_source"] = "hermes"
        yield replace(used, **more)


_EPOCH = datetime(1980, 1, 1, tzinfo=UTC)


class HermesConversation:
    """One conversation, merged from all files that have parts of it."""

    def __init__(self, home: HermesHome, chain: Chain, database: ExternalDatabase | None) -> None:
        self._home = home
        self._chain = chain
        self._database = database
        self._sources: list[MessageSource] = []
        self._pending: list[events.Event] = []
        self._web = self._read_web()
        self._plan = self._planned()

    def read(self) -> Iterator[events.Event]:
        """Yield all events of the conversation."""
        chain = self._chain
        parent = None if chain.lineage is None else chain.parent
        lineage = chain.lineage or Lineage.FORK
        yield events.begin_session(
            chain.id, self._began(), parent=parent, lineage=lineage, kind=chain.kind
        )
        yield from self._pending
        yield events.Facts(fields=self._fields())
        playback = MessageReplay(self._sources)
        try:
            is_split = any(session.before for _, session in self._web)
            yield from self._branches(playback) if is_split else self._line(playback)
        finally:
            playback.close()
        if usage := self._usage():
            yield events.UsageEvent(usage=usage)

    # The order of the messages

    def _planned(self) -> list[PlannedMessage]:
        merge = SegmentMerge()
        was_compressed = False
        for number, row in enumerate(self._chain.rows):
            steps: list[PlannedMessage] = []
            if self._database is not None and row.facts:
                read = partial(messages.read_database, self._database, row.id)
                steps = self._steps(self._database.path, read)
            if row.id in self._home.exported:
                path, place = self._home.exported[row.id]
                steps = self._steps(path, partial(messages.read_exported, path, place))
            if row.id in self._home.transcripts:
                path = self._home.transcripts[row.id]
                found = self._steps(path, partial(messages.read_transcript, path))
                steps = joined(steps, found)
            merge.take(steps, is_first=number == 0, was_compressed=was_compressed)
            was_compressed = row.end_reason == "compression"
        plan = merge.plan
        for file, session in self._web:
            read_list = partial(messages.read_list, file.path, session.messages)
            plan = joined(plan, self._steps(file.path, read_list))
            summarised = sessions.summary_place(session)
            if summarised is not None and not any(step.is_compaction for step in plan):
                place, summary = summarised
                for step in plan:
                    if (len(self._sources) - 1, place) in step.places:
                        step.summary_after = summary
        set_ids(plan)
        return plan

    def _steps(
        self, path: Path, read: Callable[[], Iterator[Json | events.Event]]
    ) -> list[PlannedMessage]:
        source = MessageSource(path, read)
        keys, others = survey(source)
        self._pending += others
        self._sources.append(source)
        return steps_of(keys, len(self._sources) - 1)

    def _read_web(self) -> list[tuple[WebFile, WebSession]]:
        found = []
        for row in self._chain.rows:
            file = self._home.web.get(row.id)
            if file is None:
                continue
            try:
                session = sessions.read_web_session(file)
                found.append((file, session))
                self._pending += [
                    events.Skipped(where=p.name, why=why) for p, why in session.faults
                ]
                self._pending += [
                    events.IgnoredRecord(
                        what=f"fields {name}, longer than {sessions.MAX_FIELD:,} bytes"[:80]
                    )
                    for name, value in session.fields.items()
                    if sessions.is_long(value)
                ]
            except BadInput as error:
                if not row.facts and row.id not in self._home.transcripts:
                    raise
                self._pending.append(events.Skipped(where=file.path.name, why=str(error)))
        return found

    # The events

    def _line(self, playback: MessageReplay) -> Iterator[events.Event]:
        """Yield the messages in order; retracted ones are rewound before the next one that stands."""
        last_kept: str | None = None
        is_off = False
        at = self._began()
        for step in self._plan:
            at = step.at or at
            parent: str | None = events.FOLLOWS
            if is_off and not step.message_key.is_taken_back:
                parent = last_kept
            yield from self._messages(step, playback, at, parent)
            is_off = step.message_key.is_taken_back
            if not is_off and not step.is_compaction:
                last_kept = step.id
        if is_off and last_kept is not None:
            yield events.Retracted(after=last_kept, at=at)

    def _messages(
        self,
        step: PlannedMessage,
        playback: MessageReplay,
        at: datetime,
        parent: str | None = events.FOLLOWS,
    ) -> Iterator[events.MessageEvent | events.Compacted]:
        raws = [playback.raw(source, number, step.key) for source, number in step.places]
        # Merge the copies of the message; the fields of the first copy win.
        raw = dict(raws[0])
        for other in raws[1:]:
            for name, value in other.items():
                if raw.get(name) in (None, "", []) and value not in (None, "", []):
                    raw[name] = value
        if not step.is_compaction:
            yield messages.to_message(raw, id=step.id, at=at, parent=parent)
            if step.summary_after is not None:
                yield events.Compacted(summary=step.summary_after, at=at, id=f"{step.id}-summary")
            return
        summary, rest = messages.split_summary(messages.words_of(raw))
        keeps = None if step.keeps is None else step.keeps.id
        yield events.Compacted(summary=summary, at=at, id=step.id, keeps=keeps)
        if rest:
            after = {"role": raw.get("role"), "content": rest}
            yield messages.to_message(after, id=f"{step.id}-rest", at=at)

    def _branches(self, playback: MessageReplay) -> Iterator[events.Event]:
        """Yield the current branch after the others: retracted messages, and those of a backup."""
        current: list[tuple[PlannedMessage, list[events.MessageEvent | events.Compacted]]] = []
        off: list[events.MessageEvent | events.Compacted] = []
        at = self._began()
        for step in self._plan:
            at = step.at or at
            items = list(self._messages(step, playback, at))
            if step.message_key.is_taken_back:
                off += items
                continue
            if off:
                yield events.Branch(items=[*_flat(current), *off], is_current=False)
                off = []
            current.append((step, items))
        if off:
            yield events.Branch(items=[*_flat(current), *off], is_current=False)
        for file, session in self._web:
            read = partial(messages.read_list, file.backup, session.before)
            yield from self._before(MessageSource(file.backup, read), current)
        yield events.Branch(items=_flat(current), is_current=True)

    def _before(
        self,
        source: MessageSource,
        current: list[tuple[PlannedMessage, list[events.MessageEvent | events.Compacted]]],
    ) -> Iterator[events.Event]:
        """Yield the branch of a backup; messages that still exist are the same ones."""
        keys, others = survey(source)
        yield from others
        steps = steps_of(keys, 0)
        set_ids(steps)
        pairs = aligned([step.key for step in steps], [step.key for step, _ in current])
        same = {ours: current[theirs][1] for ours, theirs in pairs}
        playback = MessageReplay([source])
        items: list[events.MessageEvent | events.Compacted] = []
        at = self._began()
        for number, step in enumerate(steps):
            at = step.at or at
            items += same.get(number) or list(self._messages(step, playback, at))
        if len(same) < len(steps):
            yield events.Branch(items=items, is_current=False)

    # The session

    def _fields(self) -> dict[str, Any]:
        home, chain = self._home, self._chain
        last = chain.rows[-1]
        titles = [t for row in chain.rows if (t := coerce.name(row.facts.get("title")))]
        title = titles[-1] if titles else None
        if title is not None:
            base, _ = numbered_base(title)
            title = base if base in titles else title
        elif cron := _CRON_ID.match(chain.id):
            title = home.jobs.get(cron[1] or cron[2])
        prompt = None
        if last.id in home.exported:
            exported = messages.exported_session(*home.exported[last.id])
            prompt = coerce.name(exported.get(sessions.PROMPT))
        elif self._database is not None and last.facts:
            prompt = sessions.prompt_of(self._database, chain)
        branch, repository = chain.last("git_branch"), chain.last("git_repo_root")
        fields: dict[str, Any] = {
            "title": title,
            "source": home.source_of(chain),
            "model": chain.last("model"),
            "settings": last.settings,
            "system_prompt": prompt,
            "workspace": events.workspace(chain.last("cwd"), branch=branch, repository=repository),
            "pinned": bool(chain.last("pinned")),
            "archived": bool(chain.last("archived") or chain.last("hidden")),
            "ended_at": last.ended,
            "end_reason": last.end_reason,
        }
        extra: Json = {}
        for row in chain.rows:
            for name, value in row.facts.items():
                is_plain = isinstance(value, str | int | float) and value not in (0, "")
                if is_plain and name not in _KNOWN_COLUMNS:
                    extra[name] = value
        for _, session in self._web:
            fields |= sessions.fields_of(session.facts, home.projects)
            extra |= {n: v for n, v in session.fields.items() if not sessions.is_long(v)}
        if len(chain.rows) > 1:
            extra["segments"] = [row.id for row in chain.rows]
        fields["extra"] = {"hermes": extra} if extra else {}
        return {name: value for name, value in fields.items() if value}

    def _began(self) -> datetime:
        """Return when it began; without any time, when its file was last written."""
        first = self._chain.rows[0]
        entry = self._home.index.entries.get(first.id, {})
        first_at = next((step.at for step in self._plan if step.at is not None), None)
        web = [sessions.began_at(session.facts) for _, session in self._web]
        paths = [file for row in self._chain.rows for file in self._home.files_of(row.id)]
        written = min(map(files.changed_at, paths), default=_EPOCH)
        known = [first.began, local(entry.get("created_at")), *web, first_at]
        return next((each for each in known if each is not None), written)

    def _usage(self) -> list[Usage]:
        """Return the usage from the database, or else from the index or the web session."""
        found: list[Usage] = []
        for row in self._chain.rows if self._database is not None else ():
            where, began = ("session_id", row.id), {"started_at": row.facts.get("started_at")}
            database = self._database
            if row.facts and database is not None:
                by_model = databases.records(database, "session_model_usage", _USAGE, where=where)
                for facts in list(by_model) or [row.facts]:
                    found += _usage_of(row.id, began | facts)
        for facts in (self._home.entry_of(self._chain), *(web.facts for _, web in self._web)):
            if not found:
                began = {"started_at": facts.get("created_at")}
                found += _usage_of(self._chain.id, began | facts)
        return found


def _flat(
    current: list[tuple[PlannedMessage, list[events.MessageEvent | events.Compacted]]],
) -> list[events.MessageEvent | events.Compacted]:
    return [item for _, items in current for item in items]
