"""A store that looks lived in: a few hundred sessions of several platforms, the same each time."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sessionary import prices
from sessionary.actions.sessions import append, edit, log, projects, routing
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
from sessionary.app.demo_show import Show
from sessionary.client.client import Sessionary
from sessionary.clock import Ids, Moment, encode_id, to_micros
from sessionary.errors import Conflict
from sessionary.model.key import SessionKey
from sessionary.model.message import Message, message
from sessionary.model.session import Kind, Opening
from sessionary.model.source import Source
from sessionary.model.usage import Usage
from sessionary.store.database import Tx

SESSIONS = 320
SEED = 20_261_115
# The same prices each time: those of the day the demo was written.
PRICES_AT = datetime(2026, 11, 15, tzinfo=UTC)
_DAYS = 120
_LONG = 120


@dataclass(frozen=True, slots=True)
class Filled:
    """How much the demo has written."""

    sessions: int
    messages: int


@dataclass(frozen=True, slots=True)
class _Story:
    """One session before it is written."""

    opening: Opening
    said: tuple[append.NewMessage, ...]
    key: SessionKey | None
    project: str | None
    pinned: bool


class _SeededIds:
    """Ids that are the same for the same seed."""

    def __init__(self, rng: random.Random) -> None:
        self._chance = rng

    def new(self, at: datetime) -> str:
        return encode_id(to_micros(at) // 1000, self._chance.getrandbits(80))


def fill(client: Sessionary, *, count: int = SESSIONS, seed: int = SEED) -> Filled:
    """Fill an empty store; one that holds sessions is left as it is."""
    if client.sessions(limit=1).items:
        raise Conflict(
            "This store holds sessions; the demo writes only into an empty one, and nothing was "
            "changed. Name another place: sessionary --home DIR demo"
        )
    rng = random.Random(seed)
    ids: Ids = _SeededIds(random.Random(seed))
    now = client.machine.clock.now()
    began = Moment(now - timedelta(days=_DAYS), ids)
    for name, colour in PROJECTS:
        client.store.write(
            projects.add, name, profile=client.profile, moment=began, colour=colour
        ).result()
    messages = 0
    taken: Counter[str] = Counter()
    for place in range(count):
        story = _titled(_story(client, rng, place, count=count, now=now), taken)
        client.store.write(_write, story, ids=ids).result()
        messages += len(story.said)
    chat = Source("telegram", "204518", chat_name="Mei", chat_type="dm", user_id="204518", user_name="Mei")  # fmt: skip

    def act(tx: Tx) -> Filled:
        show = Show(tx, profile=client.profile, ids=ids, now=now)
        return Filled(count + show.write(client.key(chat), chat), messages + show.messages)

    return client.store.write(act).result()


def _titled(story: _Story, taken: Counter[str]) -> _Story:
    """A title is given once; whoever comes later is numbered."""
    title = story.opening.title or ""
    taken[title] += 1
    if taken[title] == 1:
        return story
    return replace(story, opening=replace(story.opening, title=f"{title} #{taken[title]}"))


def _write(tx: Tx, story: _Story, *, ids: Ids) -> None:
    profile = story.opening.profile
    first = story.said[0].at
    assert first is not None
    moment = Moment(first, ids)
    id = edit.open_session(tx, story.opening, moment=moment)
    last = 0
    for each in story.said:
        assert each.at is not None
        last = append.append_to(tx, id, each, profile=profile, moment=Moment(each.at, ids)).seq
    if story.project is not None:
        projects.move(tx, id, story.project, profile=profile)
    if story.pinned:
        edit.pin(tx, id, profile=profile, pinned=True)
    if story.key is not None:
        head = log.lock_session(tx, id, profile=profile)
        routing.bind(tx, story.key, head.no, moment=moment)
    edit.mark_read(tx, id, last, profile=profile)


def _story(
    client: Sessionary, rng: random.Random, place: int, *, count: int, now: datetime
) -> _Story:
    # Newer days hold more: half of all sessions are of the last three weeks.
    age = _DAYS * (1 - (place + 1) / count) ** 2.2
    at = now - timedelta(days=age, minutes=rng.randrange(5, 300))
    if place % 13 == 5:
        return _job(client, rng, at)
    subject = SUBJECTS[rng.randrange(len(SUBJECTS))]
    thing, person = rng.choice(THINGS), rng.choice(PEOPLE)
    platform, kind, _ = rng.choices(PLACES, [each[2] for each in PLACES])[0]
    source = _source(platform, kind, person, rng)
    words = {"thing": thing, "Thing": thing[0].upper() + thing[1:], "person": person}
    opening = Opening(
        client.profile, source, title=_filled(subject.title, words), model=rng.choice(MODELS)
    )
    rounds = _LONG if place == count // 3 else rng.randrange(1, len(subject.asks) + 1)
    said = tuple(_conversation(rng, subject, words, at, rounds=rounds, model=opening.model))
    is_bound = count - place < 24 and platform not in ("web", "terminal", "api")
    return _Story(
        opening,
        said,
        client.key(source) if is_bound else None,
        rng.choice(PROJECTS)[0] if rng.random() < 0.25 else None,
        place in (count - 3, count - 40),
    )


def _job(client: Sessionary, rng: random.Random, at: datetime) -> _Story:
    title, prompt, answer = rng.choice(JOBS)
    opening = Opening(client.profile, Source("schedule"), kind=Kind.JOB, title=title)
    said = (
        append.NewMessage(message("user", prompt), at=at),
        append.NewMessage(message("assistant", answer), at=at + timedelta(seconds=9)),
    )
    return _Story(opening, said, None, None, pinned=False)


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
        yield append.NewMessage(message("user", _filled(ask, words)), at=at)
        for step, seconds in _steps(rng, subject, words, model, place):
            at += timedelta(seconds=seconds)
            yield append.NewMessage(step, at=at)
        at += timedelta(seconds=rng.randrange(4, 40))
        used = _used(rng, model, place)
        yield append.NewMessage(
            message("assistant", _filled(answer, words), model=model), at, usage=used
        )
        at += timedelta(minutes=rng.choice((1, 2, 4, 9, 75)))


def _steps(
    rng: random.Random, subject: Subject, words: dict[str, str], model: str | None, place: int
) -> Iterator[tuple[Message, int]]:
    for number, (tool, arguments, output, fails) in enumerate(subject.tools):
        id = f"call-{place}-{number}"
        thought = {"type": "reasoning", "text": _filled("What does {thing} say about this?", words)}
        given = {name: _filled(value, words) for name, value in arguments.items()}
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


def _filled(text: str, words: dict[str, str]) -> str:
    for name, value in words.items():
        text = text.replace(f"{{{name}}}", value)
    return text
