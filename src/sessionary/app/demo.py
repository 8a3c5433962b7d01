"""Example data: a few hundred sessions of several platforms, the same each time."""

import random
import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import structs

from sessionary import prices
from sessionary.actions.sessions import append, edit, lists, log, projects, revise, routing
from sessionary.app.context import AppContext
from sessionary.app.demo_scenes import (
    JOBS,
    MODELS,
    PEOPLE,
    PLACES,
    PROJECTS,
    SUBJECTS,
    THINGS,
    Subject,
)
from sessionary.clock import Ids, Moment, encode_id, to_micros
from sessionary.errors import Conflict
from sessionary.model.message import Message, message
from sessionary.model.reset import ResetMode, ResetPolicy
from sessionary.model.session import Kind, Opening
from sessionary.model.source import SessionKey, Source
from sessionary.model.usage import Usage
from sessionary.store.database import Tx
from sessionary.store.tables import blobs

SESSIONS = 320
SEED = 20_261_115
# Fixed, so that the costs are the same each time.
PRICES_AT = datetime(2026, 11, 15, tzinfo=UTC)
_DAYS = 120
_LONG = 120


@dataclass(frozen=True, slots=True)
class DemoResult:
    """How much was written."""

    sessions: int
    messages: int


@dataclass(frozen=True, slots=True)
class _DemoSession:
    """One session before it is written."""

    opening: Opening
    messages: tuple[append.NewMessage, ...]
    key: SessionKey | None
    project: str | None
    pinned: bool


class _SeededIds:
    """Ids that are the same for the same seed."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def new(self, at: datetime) -> str:
        return encode_id(to_micros(at) // 1000, self._rng.getrandbits(80))


def fill(app: AppContext, *, count: int = SESSIONS, seed: int = SEED) -> DemoResult:
    """Fill an empty store; one that has sessions raises Conflict."""
    has_sessions = app.store.read(
        lists.list_sessions, lists.SessionFilters(), profile=app.profile, limit=1
    ).result()
    if has_sessions.items:
        raise Conflict(
            "This store has sessions, and the demo needs an empty one; nothing was changed. "
            "Name another directory: sessionary --home DIR demo"
        )
    rng = random.Random(seed)
    ids: Ids = _SeededIds(random.Random(seed))
    now = app.clock.now()
    began = Moment(now - timedelta(days=_DAYS), ids)
    for name, colour in PROJECTS:
        app.store.write(
            projects.add, name, profile=app.profile, moment=began, colour=colour
        ).result()
    messages = 0
    taken: Counter[str] = Counter()
    for place in range(count):
        session = _titled(_make_session(app, rng, place, count=count, now=now), taken)
        app.store.write(_write, session, ids=ids).result()
        messages += len(session.messages)
    chat = Source("telegram", "204518", chat_name="Mei", chat_type="dm", user_id="204518", user_name="Mei")  # fmt: skip

    def act(tx: Tx) -> DemoResult:
        features = _FeatureSessions(tx, profile=app.profile, ids=ids, now=now)
        added = features.write(app.key(chat), chat)
        return DemoResult(count + added, messages + features.messages)

    return app.store.write(act).result()


def _titled(session: _DemoSession, taken: Counter[str]) -> _DemoSession:
    """Number a title that was used before."""
    title = session.opening.title or ""
    taken[title] += 1
    if taken[title] == 1:
        return session
    return replace(
        session, opening=structs.replace(session.opening, title=f"{title} #{taken[title]}")
    )


def _write(tx: Tx, session: _DemoSession, *, ids: Ids) -> None:
    profile = session.opening.profile
    first = session.messages[0].at
    assert first is not None
    moment = Moment(first, ids)
    id = edit.open_session(tx, session.opening, moment=moment)
    last = 0
    for each in session.messages:
        assert each.at is not None
        last = append.append_to_session(
            tx, id, each, profile=profile, moment=Moment(each.at, ids)
        ).seq
    if session.project is not None:
        projects.move_session(tx, id, session.project, profile=profile)
    if session.pinned:
        edit.pin(tx, id, profile=profile, pinned=True)
    if session.key is not None:
        head = log.lock_session(tx, id, profile=profile)
        routing.bind(tx, session.key, head.no, moment=moment)
    edit.mark_read(tx, id, last, profile=profile)


def _make_session(
    app: AppContext, rng: random.Random, place: int, *, count: int, now: datetime
) -> _DemoSession:
    # Recent days have more: half of all sessions are from the last three weeks.
    age = _DAYS * (1 - (place + 1) / count) ** 2.2
    at = now - timedelta(days=age, minutes=rng.randrange(5, 300))
    if place % 13 == 5:
        return _job(app, rng, at)
    subject = SUBJECTS[rng.randrange(len(SUBJECTS))]
    thing, person = rng.choice(THINGS), rng.choice(PEOPLE)
    platform, kind, _ = rng.choices(PLACES, [each[2] for each in PLACES])[0]
    source = _source(platform, kind, person, rng)
    words = {"thing": thing, "Thing": thing[0].upper() + thing[1:], "person": person}
    opening = Opening(
        app.profile, source, title=_fill_in(subject.title, words), model=rng.choice(MODELS)
    )
    rounds = _LONG if place == count // 3 else rng.randrange(1, len(subject.asks) + 1)
    messages = tuple(_conversation(rng, subject, words, at, rounds=rounds, model=opening.model))
    is_bound = count - place < 24 and platform not in ("web", "terminal", "api")
    return _DemoSession(
        opening,
        messages,
        app.key(source) if is_bound else None,
        rng.choice(PROJECTS)[0] if rng.random() < 0.25 else None,
        place in (count - 3, count - 40),
    )


def _job(app: AppContext, rng: random.Random, at: datetime) -> _DemoSession:
    title, prompt, answer = rng.choice(JOBS)
    opening = Opening(app.profile, Source("schedule"), kind=Kind.JOB, title=title)
    messages = (
        append.NewMessage(message("user", prompt), at=at),
        append.NewMessage(message("assistant", answer), at=at + timedelta(seconds=9)),
    )
    return _DemoSession(opening, messages, None, None, pinned=False)


def _source(platform: str, kind: str, person: str, rng: random.Random) -> Source:
    if platform in ("terminal", "web", "api"):
        return Source(platform, user_id=person.lower(), user_name=person)
    number = str(rng.randrange(10**8, 10**9))
    name = f"#{rng.choice(('ops', 'web', 'general'))}" if kind != "dm" else person
    return Source(
        platform, number, chat_name=name, chat_type=kind, user_id=number[::-1], user_name=person
    )


def _conversation(
    rng: random.Random,
    subject: Subject,
    words: dict[str, str],
    at: datetime,
    *,
    rounds: int,
    model: str | None,
) -> Iterator[append.NewMessage]:
    for place in range(rounds):
        ask = subject.asks[place % len(subject.asks)]
        answer = subject.answers[place % len(subject.answers)]
        yield append.NewMessage(message("user", _fill_in(ask, words)), at=at)
        for step, seconds in _steps(rng, subject, words, model, place):
            at += timedelta(seconds=seconds)
            yield append.NewMessage(step, at=at)
        at += timedelta(seconds=rng.randrange(4, 40))
        used = _used(rng, model, place)
        yield append.NewMessage(
            message("assistant", _fill_in(answer, words), model=model), at, usage=used
        )
        at += timedelta(minutes=rng.choice((1, 2, 4, 9, 75)))


def _steps(
    rng: random.Random, subject: Subject, words: dict[str, str], model: str | None, place: int
) -> Iterator[tuple[Message, int]]:
    for number, (tool, arguments, output, fails) in enumerate(subject.tools):
        id = f"call-{place}-{number}"
        thought = {
            "type": "reasoning",
            "text": _fill_in("What does {thing} say about this?", words),
        }
        given = {name: _fill_in(value, words) for name, value in arguments.items()}
        call = {"type": "tool_call", "id": id, "name": tool, "arguments": given}
        parts: list[Any] = [call] if number else [thought, call]
        yield message("assistant", parts, model=model), rng.randrange(2, 9)
        result = {"type": "tool_result", "call_id": id, "name": tool, "content": output}
        yield (
            message("tool", [result | ({"is_error": True} if fails else {})]),
            rng.randrange(1, 6),
        )


def _used(rng: random.Random, model: str | None, place: int) -> Usage:
    read, written = 900 + 700 * place + rng.randrange(800), rng.randrange(80, 700)
    cached = read // 2
    used = Usage(
        model=model,
        input_tokens=read - cached,
        output_tokens=written,
        cache_read_tokens=cached,
    )
    return prices.priced(used, at=PRICES_AT)


def _fill_in(text: str, words: dict[str, str]) -> str:
    for name, value in words.items():
        text = text.replace(f"{{{name}}}", value)
    return text


_MODEL = "claude-sonnet-4-5"
_DIFF = {
    "path": "reports/weekly.sql",
    "old": "-- of a week\nselect * from runs\nwhere date(at) = current_date - 7\norder by at",
    "new": "-- of a week\nselect id, state, at from runs\nwhere at >= current_date - interval '7 days'\norder by at",
}
_FOUND = (
    "reports/weekly.sql:14:where date(at) = current_date - 7\n"
    "reports/monthly.sql:9:where date(at) > current_date - 31\n"
    "app/jobs.py:203:    rows = query(WEEKLY)"
)
_PARSER = "def parse(path):\n    text = path.read_text()\n    return lex(text)\n"
_WORKERS = (
    ("Read the query plans", "Which queries of the report scan the whole table?",
     "Two of five: `weekly.sql` and `monthly.sql`. Both call `date(at)`, so the index is not used."),
    ("Measure the indexes", "How large are the indexes, and are they used?",
     "`runs_at` has 1.2 GB and was used **0** times since Monday."),
    ("Look for callers", "Who runs the weekly report?",
     "Only `app/jobs.py`, on Mondays at 06:00."),
)  # fmt: skip


class _FeatureSessions:
    """Writes a few sessions of the last hours that show versions, forks, subagents and files."""

    def __init__(self, tx: Tx, *, profile: str, ids: Ids, now: datetime) -> None:
        self._tx = tx
        self._profile = profile
        self._ids = ids
        self._at = now - timedelta(hours=3)
        self._now = now
        self.messages = 0

    def write(self, key: SessionKey, chat: Source) -> int:
        """Write all of them, and return their number."""
        slow = self._slow_report()
        workers = self._workers(slow)
        self._answer(slow)
        self._read(slow)
        self._another_way(slow)
        self._imported()
        self._reset_chat(key, chat)
        return 1 + workers + 1 + 1 + 2

    def _slow_report(self) -> str:
        id = self._open("Why the weekly report takes 40 minutes", Source("web"), labels=("report",))
        picture = self._file(_chart(), "image/png", "duration.png")
        self._append(id, "user", [_text("It used to take two minutes. See the chart."), picture])
        self._append(id, "assistant", "Could be the network. Shall I look?")
        revise.retract(self._tx, id, profile=self._profile, after=0, at=self._tick(4))
        asked = "It used to take two minutes. See the chart. Find the cause, do not guess."
        self._append(id, "user", [_text(asked), picture])
        thought = {"type": "reasoning", "text": "Three questions that do not need each other."}
        call = _call("plan", "task", {"description": "Find what makes the report slow"})
        self._append(id, "assistant", [thought, call], seconds=6)
        return id

    def _workers(self, parent: str) -> int:
        for title, prompt, answer in _WORKERS:
            opening = Opening(self._profile, Source("web"), title=title, model=_MODEL)
            id = edit.open_subagent(self._tx, parent, opening, moment=self._moment(1))
            self._append(id, "user", prompt, seconds=0)
            self._append(id, "assistant", answer, seconds=1)
            self._read(id)
        return len(_WORKERS)

    def _answer(self, id: str) -> None:
        self._step(id, ("plan", "task"), None, "Three subagents reported.")
        self._step(id, ("grep", "grep"), {"pattern": r"date\(at\)"}, _FOUND)
        self._step(id, ("edit", "edit_file"), _DIFF, "1 replacement")
        self._step(id, ("try", "bash"), {"command": "make report"}, "make: *** [report] Error 2")
        made = "done in \x1b[32m1m52s\x1b[0m"
        self._step(id, ("again", "bash"), {"command": "make report WEEK=46"}, made)
        self._append(
            id,
            "assistant",
            "The filter calls `date(at)`, so PostgreSQL cannot use the index and reads **61 million** "
            "rows.\n\n| | before | after |\n|---|---|---|\n| rows read | 61 M | 210 k |\n"
            "| time | 40 min | 1 m 52 s |\n\n`monthly.sql` has the same line. Shall I change it too?",
            seconds=20,
        )  # fmt: skip
        head = log.lock_session(self._tx, id, profile=self._profile)
        revise.compact(
            self._tx,
            id,
            "The weekly report was slow because of `date(at)` in its filter; fixed in weekly.sql.",
            profile=self._profile,
            through=head.last_seq - 1,
            at=self._tick(2),
        )
        self._append(id, "user", "Yes, please.", seconds=300)
        self._append(id, "assistant", "Done: the monthly report takes 4 minutes now.", seconds=30)

    def _another_way(self, parent: str) -> None:
        title = "The weekly report with a summary table"
        made = edit.fork(
            self._tx, parent, profile=self._profile, moment=self._moment(60), title=title
        )
        self._append(made.id, "user", "What if we kept a table of daily sums instead?")
        self._append(made.id, "assistant", "Then the report reads 7 rows. It costs one trigger.")
        self._read(made.id)

    def _imported(self) -> None:
        opening = Opening(
            self._profile,
            Source("claude-code"),
            kind=Kind.IMPORT,
            title="Port the parser to streaming",
            model=_MODEL,
            workspace={"cwd": "~/src/parser", "branch": "streaming"},
            labels=("import",),
        )
        id = edit.open_session(self._tx, opening, moment=self._moment(60))
        self._append(id, "user", "Read the file in chunks instead of at once.")
        self._step(id, ("read", "Read"), {"file_path": "parser.py"}, _PARSER)
        self._append(id, "assistant", "Done; a 2 GB file needs 40 MB of memory now.")
        self._read(id)
        edit.seal(self._tx, id, profile=self._profile)

    def _reset_chat(self, key: SessionKey, chat: Source) -> None:
        policy = ResetPolicy(mode=ResetMode.IDLE, idle=timedelta(minutes=60))
        old = self._now - timedelta(hours=20)
        for at, role, text in (
            (old, "user", "Remind me to call the plumber."),
            (old + timedelta(seconds=9), "assistant", "I will, tomorrow at nine."),
            (self._now - timedelta(minutes=12), "user", "Is the kitchen tap on his list?"),
            (self._now - timedelta(minutes=11), "assistant", "Yes, with the boiler check."),
        ):
            saying = append.NewMessage(message(role, text), at=at)
            moment = Moment(at, self._ids)
            id = append.append_to_source(
                self._tx, key, chat, saying, policy=policy, moment=moment
            ).session_id
            if role == "user":
                title = "The plumber" if at == old else "The kitchen tap"
                edit.rename(self._tx, id, title, profile=self._profile)
            self.messages += 1

    def _open(self, title: str, source: Source, *, labels: tuple[str, ...] = ()) -> str:
        opening = Opening(self._profile, source, title=title, model=_MODEL, labels=labels)
        return edit.open_session(self._tx, opening, moment=self._moment(60))

    def _append(
        self, id: str, role: str, content: str | Sequence[Any], *, seconds: float = 8
    ) -> None:
        content = content if isinstance(content, str) else list(content)
        model = _MODEL if role == "assistant" else None
        saying = append.NewMessage(
            message(role, content, model=model),
            at=self._tick(seconds),
            usage=_fixed_usage() if role == "assistant" else None,
        )
        append.append_to_session(
            self._tx, id, saying, profile=self._profile, moment=self._moment(0)
        )
        self.messages += 1

    def _step(self, id: str, call: tuple[str, str], given: Any, output: str) -> None:
        call_id, tool = call
        if given is not None:
            self._append(id, "assistant", [_call(call_id, tool, given)], seconds=3)
        result = {"type": "tool_result", "call_id": call_id, "name": tool, "content": output}
        failed = {"is_error": True} if "***" in output else {}
        self._append(id, "tool", [result | failed], seconds=4)

    def _file(self, data: bytes, media_type: str, name: str) -> dict[str, Any]:
        blob = blobs.add(self._tx, data)
        about = {"media_type": media_type, "name": name, "size": len(data)}
        return {"type": "attachment", "blob": blob} | about

    def _read(self, id: str) -> None:
        last = log.lock_session(self._tx, id, profile=self._profile).last_seq
        edit.mark_read(self._tx, id, last, profile=self._profile)

    def _tick(self, seconds: float) -> datetime:
        self._at += timedelta(seconds=seconds)
        return self._at

    def _moment(self, seconds: float) -> Moment:
        return Moment(self._tick(seconds), self._ids)


def _chart(width: int = 320, height: int = 120) -> bytes:
    """Return a small PNG of growing bars."""
    bars = [8, 9, 8, 10, 9, 12, 18, 31, 52, 88]
    rows = bytearray()
    for y in range(height):
        rows.append(0)
        for x in range(width):
            bar = bars[x * len(bars) // width] * height // 100
            is_bar = height - y <= bar and x % (width // len(bars)) > 5
            rows.extend((43, 91, 199) if is_bar else (246, 246, 244))
    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", size), (b"IDAT", zlib.compress(bytes(rows), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def _fixed_usage() -> Usage:
    used = Usage(model=_MODEL, input_tokens=2400, output_tokens=160, cache_read_tokens=1800)
    return prices.priced(used, at=PRICES_AT)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _call(id: str, tool: str, given: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": id, "name": tool, "arguments": given}
