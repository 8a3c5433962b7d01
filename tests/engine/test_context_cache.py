"""The contexts that an engine keeps are what a fold of the whole log gives, whatever happened in between."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from sessionary.actions import turns
from sessionary.actions.retention import erase
from sessionary.actions.retention.erase import ErasureSubject
from sessionary.actions.sessions import edit, log, read, revise
from sessionary.clock import Moment
from sessionary.engine.context_cache import ContextCache
from sessionary.engine.ports import Event, Step, TurnRequest
from sessionary.errors import SessionaryError
from sessionary.model import transcript
from sessionary.model.message import Message, Role, Text, ToolCall, ToolResult, message
from sessionary.model.session import Opening, Segment
from sessionary.model.source import Person, Source
from sessionary.model.transcript import Chat
from sessionary.store.database import Store, Tx
from sessionary.store.tables import entries as log_table
from sessionary.testing.fakes import FakeClock, SequentialIds, moment_of
from tests.support.engine_world import EngineWorld

GROUP = Source("telegram", "group", chat_type="group")
PEOPLE = (Person("ann", name="Ann"), Person("ben", name="Ben"))
OPERATIONS = 80


@dataclass
class RandomWork:
    """Two processes with a cache each, and clients without one, on one store."""

    store: Store
    rng: random.Random
    clock: FakeClock = field(default_factory=FakeClock)
    ids: SequentialIds = field(default_factory=SequentialIds)
    # The second one has room for few sessions.
    caches: tuple[ContextCache, ...] = field(
        default_factory=lambda: (ContextCache(), ContextCache(4_000))
    )
    sessions: list[str] = field(default_factory=list)
    hits: int = 0

    def moment(self) -> Moment:
        self.clock.tick()
        return moment_of(self.clock, self.ids)

    def message(self) -> Message:
        """A message of anyone. Ids of tool calls come again, and not every call has its result."""
        id = f"call-{self.rng.randrange(4)}"
        match self.rng.randrange(6):
            case 0:
                return Message(Role.ASSISTANT, (ToolCall(id, "look", {"at": [1, {"a": 2}]}),))
            case 1:
                return Message(Role.TOOL, (ToolResult(id, {"found": 1}),))
            case 2:
                return Message(Role.ASSISTANT, (Text(""),))
            case 3:
                extra = {transcript.SHARED: True} if self.rng.random() < 0.1 else {}
                return Message(Role.USER, (Text("shared"),), self.rng.choice(PEOPLE), extra=extra)
            case _:
                role = self.rng.choice([Role.USER, Role.ASSISTANT])
                person = PEOPLE[0] if role is Role.USER else None
                return Message(role, (Text(f"text {self.rng.random()}"),), person)

    def open(self) -> None:
        opening = Opening("main", GROUP)
        made = self.store.write(edit.open_session, opening, moment=self.moment()).result()
        self.sessions.append(made)
        self.append(made)

    def append(self, id: str) -> None:
        now = self.moment().now
        self.store.write(log.append, id, self.message(), profile="main", at=now).result()

    def turn(self, id: str) -> None:
        """Take a turn in one of the processes; compare its context with that of the whole log."""
        cache = self.rng.choice(self.caches)
        claim = turns.Claim("p", 30)
        begun = self.store.write(
            turns.begin_in_session,
            id,
            self.message(),
            profile="main",
            claim=claim,
            moment=self.moment(),
        ).result()
        known = cache.get(begun.lease.session_no, epoch=begun.lease.epoch)
        self.hits += known is not None
        fold, whole, is_shared = self.store.read(_folds, id, known).result()
        assert fold.messages() == whole
        assert fold.is_shared == is_shared
        _spoil(fold.messages())
        assert fold.messages() == whole, "an agent may change what it was given"
        cache.put(begun.lease.session_no, fold, epoch=begun.lease.epoch)
        said = tuple(self.message() for _ in range(self.rng.randrange(3)))
        self.store.write(
            turns.end,
            begun.lease,
            turns.Ending(messages=said),
            profile="main",
            moment=self.moment(),
        ).result()

    def revise(self, id: str) -> None:
        head = self.store.read(read.get_head, id, profile="main").result()
        seq = self.rng.randint(1, max(1, head.last_seq))
        now = self.moment().now
        match self.rng.randrange(3):
            case 0:
                self.store.write(revise.retract, id, profile="main", after=seq - 1, at=now).result()
            case 1:
                self.store.write(
                    revise.compact, id, "a summary", profile="main", through=seq, at=now
                ).result()
            case _:
                made = self.store.write(
                    edit.fork, id, profile="main", moment=self.moment(), at_seq=seq
                ).result()
                self.sessions.append(made.id)

    def erase(self) -> None:
        subject = ErasureSubject("telegram", self.rng.choice(PEOPLE).id)
        erase.erase(self.store, subject, profile="main", moment=self.moment())


def _folds(
    tx: Tx, id: str, known: transcript.ContextFold | None
) -> tuple[transcript.ContextFold, list[Chat], bool]:
    head = read.get_head(tx, id, profile="main")
    entries = read.read_since_compaction(tx, head)
    is_shared = transcript.named_from(entries) is not None
    return read.fold_context(tx, head, known), transcript.context(entries), is_shared


def _spoil(chats: Sequence[Chat]) -> None:
    for chat in chats:
        for call in chat.pop("tool_calls", ()):
            call["function"]["name"] = "spoiled"
        chat["content"] = "spoiled"


@pytest.mark.parametrize("seed", range(6))
def test_a_kept_context_is_that_of_the_whole_log(store: Store, seed: int) -> None:
    work = RandomWork(store, random.Random(seed))
    work.open()
    for _ in range(OPERATIONS):
        id = work.rng.choice(work.sessions)
        try:
            match work.rng.randrange(20):
                case 0:
                    work.open()
                case 1 if work.rng.random() < 0.3:
                    work.erase()
                case 1 | 2:
                    work.revise(id)
                case 3 | 4 | 5:
                    work.append(id)
                case _:
                    work.turn(id)
        except SessionaryError:  # erased, or nothing to take back
            if len(work.sessions) > 1:
                work.sessions.remove(id)
    assert work.hits > OPERATIONS / 20


async def test_the_words_of_an_erased_person_are_not_in_the_next_context(
    world: EngineWorld,
) -> None:
    engine = await world.started()
    person = {"platform": "loopback", "chat_type": "group", "thread_id": "t"}
    await world.asks(engine, "okapi", user_id="ann", user_name="Ann", **person)
    await world.asks(engine, "giraffe", user_id="ben", user_name="Ben", **person)
    moment = moment_of(world.clock, world.ids)
    subject = ErasureSubject("loopback", "ann")
    erase.erase(world.store, subject, profile="main", moment=moment)

    await world.asks(engine, "who was here?", user_id="ben", user_name="Ben", **person)
    await engine.stop()

    chats = world.runner.requests[-1].context
    asked = [chat["content"] for chat in chats if chat["role"] == "user"]
    assert asked == ["", "[Ben] giraffe", "[Ben] who was here?"]


async def test_what_a_turn_wrote_is_in_the_next_context_as_it_is_in_the_log(
    world: EngineWorld,
) -> None:
    """The engine adds its own prompts and replies to a kept context without reading them back."""
    texts = [
        "plain",
        "ключ 鍵 🗝",
        "\ud83d\udd11",
        "lone \ud800",
        "nul \x00",
        'quoted "\\n',
        "a\u2028b",
    ]

    def answer(request: TurnRequest) -> list[Event]:
        count = len(request.context)
        return [Step(message("assistant", f"{count}: {texts[count % len(texts)]}"))]

    world.runner.answer = answer
    engine = await world.started()
    for text in texts * 2:
        await world.asks(engine, text, user_name="Ann \ud800")
    head = await world.head()
    await world.store.write(
        revise.compact, head.id, "a summary", profile="main", through=4, at=world.clock.now()
    )
    for text in texts:
        await world.asks(engine, text)
    await engine.stop()

    whole = Segment(head.no, head.id, 1, (await world.head()).last_seq)
    entries = await world.store.read(log_table.read, whole)
    assert len(world.runner.requests) == 3 * len(texts)
    assert len(entries) == 2 * len(world.runner.requests) + 1, "every turn was done"
    for request in world.runner.requests:
        known = [entry for entry in entries if entry.seq <= request.session.last_seq]
        assert request.context == transcript.context(known)


def test_the_cache_stays_within_its_bytes() -> None:
    cache = ContextCache(10_000)
    fold = transcript.fold_context([], last_seq=0)
    for number in range(100):
        made = transcript.ContextFold(0, (), (), fold.speakers, frozenset(), 900)
        cache.put(number, made, epoch=1)
        cache.put(number, made, epoch=2)
        assert cache.size <= 10_000
    assert cache.get(99, epoch=3) is not None
    assert cache.get(0, epoch=3) is None
    cache.put(100, transcript.ContextFold(0, (), (), fold.speakers, frozenset(), 90_000), epoch=1)
    assert cache.size == 0
