"""What is done to a store of any size, one caller at a time."""

import random
import time
from collections.abc import Callable, Iterator
from itertools import cycle

from benchmarks import populate
from benchmarks.corpus import Language
from benchmarks.growth_place import Place, opened
from benchmarks.measure import Sample, repeat
from benchmarks.raw import TEXT
from benchmarks.turn_engine import Talk
from sessionary.actions import inbox, outbox, turns
from sessionary.actions.search.search import SearchOptions, search
from sessionary.actions.sessions import log, read
from sessionary.actions.sessions.lists import SessionFilters, list_sessions
from sessionary.clock import Moment, RandomIds, SystemClock
from sessionary.model.message import Text, message
from sessionary.model.reset import ResetPolicy
from sessionary.model.usage import Usage
from sessionary.store.database import Store

APPEND, RECEIVE, BEGIN, END = "append", "receive", "begin a turn", "end a turn"
SEND, LIST, RESOLVE = "claim and mark sent", "list 50", "resolve a title"
REPLY, AT_ONCE = "message to reply, 16 at once", 16
OPEN, OPEN_STORE = "open the last 200", "open the store"
SEARCH, SEARCH_COMMON = "search a medium word", "search a common word"
HOLDER = "bench"
Run = Callable[[float], Sample]
Work = tuple[str, Run]


def on_sessions(place: Place, store: Store, count: int) -> Iterator[Work]:
    """What is measured while sessions grow: their numbers are those of `populate`."""
    rng = random.Random(count)
    clock = SystemClock()

    def one() -> int:
        return rng.randrange(count)

    def append() -> None:
        new_message = message("user", TEXT)
        id = populate.id_of(one())
        store.write(log.append, id, new_message, profile=populate.PROFILE, at=clock.now()).result()

    yield APPEND, repeat(append)
    yield from _turn(store, one)
    yield REPLY, Talk(store, count).replies(AT_ONCE)
    yield LIST, repeat(lambda: _listed(store))
    yield RESOLVE, repeat(lambda: _resolved(store, f"session {one()}"))
    yield OPEN, repeat(lambda: _opened(store, populate.id_of(one())))
    yield OPEN_STORE, repeat(lambda: _open_store(place))


def on_messages(store: Store, count: int, language: Language) -> Iterator[Work]:
    """What is measured while messages grow, forty to a session: their ids are the corpus's."""
    rng = random.Random(count)
    clock = SystemClock()
    sessions = max(1, count // 40 - 4)
    medium, common = cycle(language.words[2_000:2_400:10]), cycle(language.words[:40])

    def append() -> None:
        new_message = message("user", TEXT)
        id = populate.id_of(rng.randrange(sessions))
        store.write(log.append, id, new_message, profile=populate.PROFILE, at=clock.now()).result()

    yield APPEND, repeat(append)
    yield LIST, repeat(lambda: _listed(store))
    yield OPEN, repeat(lambda: _opened(store, populate.id_of(rng.randrange(sessions))))
    yield SEARCH, repeat(lambda: _found(store, next(medium)))
    yield SEARCH_COMMON, repeat(lambda: _found(store, next(common)))


def _turn(store: Store, one: Callable[[], int]) -> Iterator[Work]:
    """The steps of a turn, each on turns that the step before it has left."""
    clock, ids = SystemClock(), RandomIds()
    received: list[int] = []
    begun: list[tuple[int, turns.Begun]] = []

    def moment() -> Moment:
        return Moment(clock.now(), ids)

    def take() -> None:
        number = one()
        source, key = populate.source_of(number), populate.key_of(number)
        store.write(inbox.receive, key, source, message("user", TEXT), moment=moment()).result()
        received.append(number)

    def begin() -> None:
        number = received.pop()
        claim = turns.Claim(HOLDER, 600)
        key, policy = populate.key_of(number), ResetPolicy()
        made = store.write(turns.begin, key, policy=policy, claim=claim, moment=moment()).result()
        if made is not None:  # a key that was taken twice has its messages in one turn
            begun.append((number, made))

    def end() -> None:
        number, turn = begun.pop()
        channel = populate.source_of(number).channel
        assert channel is not None
        ending = turns.Ending(
            messages=(message("assistant", TEXT),),
            usage=(Usage("model", input_tokens=900, output_tokens=80, cost_microusd=1200),),
            replies=(turns.TurnReply(channel, (Text(TEXT),)),),
        )
        store.write(
            turns.end, turn.lease, ending, profile=populate.PROFILE, moment=moment()
        ).result()

    def send() -> int:
        now = clock.now()
        claimed = store.write(outbox.claim, holder=HOLDER, seconds=600, now=now, limit=1).result()
        for each in claimed:
            store.write(outbox.mark_sent, each.id, holder=HOLDER, at=now).result()
        return len(claimed)

    yield RECEIVE, repeat(take)
    yield BEGIN, _so_often(lambda: len(received), begin)
    ended = len(begun)
    yield END, _so_often(lambda: len(begun), end)
    yield SEND, _so_often(lambda: ended, send)


def _so_often(count: Callable[[], int], work: Callable[[], object]) -> Run:
    """All that is left of the step before, however long it takes."""

    def run(_: float) -> Sample:
        latencies: list[float] = []
        began = now = time.perf_counter()
        for _ in range(count()):
            work()
            after = time.perf_counter()
            latencies.append(after - now)
            now = after
        return Sample(len(latencies), now - began, latencies)

    return run


def _listed(store: Store) -> None:
    assert store.read(list_sessions, SessionFilters(), profile=populate.PROFILE).result().items


def _resolved(store: Store, title: str) -> None:
    found = store.read(read.find, title, profile=populate.PROFILE).result()
    assert found.title == title


def _opened(store: Store, id: str) -> None:
    assert store.read(read.read_window, id, profile=populate.PROFILE, limit=200).result().entries


def _open_store(place: Place) -> None:
    store = opened(place)
    _listed(store)
    store.close()


def _found(store: Store, word: str) -> None:
    found = store.search(
        search, word, profile=populate.PROFILE, options=SearchOptions(), now=SystemClock().now()
    ).result()
    assert found.behind == 0
