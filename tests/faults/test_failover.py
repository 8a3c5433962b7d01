"""PostgreSQL fails over to its standby in the middle of the work."""

import threading
import time
from collections.abc import Callable
from urllib.parse import quote

import sessionary
from sessionary.actions import verify
from tests.support.history import History, Line, Outcome, Reading, judge
from tests.support.postgres import PostgresServer
from tests.support.standby import Standby

WRITERS = 3


def write(
    client: sessionary.Sessionary, history: History, number: int, stop: threading.Event
) -> None:
    """Append messages; what got no answer is asked again with the same key."""
    place = f"chat-{number}"
    chat = client.session(sessionary.Source(platform="web", chat_id=place))
    count = 0
    while not stop.is_set():
        count += 1
        token = f"tok{number}q{count}"
        while not sent(chat, history, token, place) and not stop.is_set():
            time.sleep(0.1)


def sent(chat: sessionary.Session, history: History, token: str, place: str) -> bool:
    with history.attempt(token, place) as attempt:
        try:
            done = chat.append("user", f"{token} hello", idempotency_key=token)
        except sessionary.SessionaryError as error:
            if getattr(error, "committed", None) == "no":
                attempt.refused()
            return False
        attempt.answered(done.session_id, done.seq)
    return True


def read(client: sessionary.Sessionary) -> Reading:
    heads = client.sessions(limit=100).items
    lines = {
        head.id: [
            Line(seq, chat["role"], str(chat["content"]))
            for seq, chat in enumerate(client.find(head.id).context(), 1)
        ]
        for head in heads
    }
    return Reading(lines, {head.id: head.message_count for head in heads})


def test_a_standby_takes_over_and_nothing_acknowledged_is_lost(
    postgres_to_break: PostgresServer, record_property: Callable[[str, object], None]
) -> None:
    """F23, with a synchronous standby."""
    primary = postgres_to_break
    url = primary.create_database()
    sessionary.Sessionary(url).close()
    standby = Standby(primary)
    standby.start()
    try:
        name = url.split("@/", 1)[1].split("?", 1)[0]
        hosts = quote(f"{primary.home},{standby.home}", safe=",/")
        both = f"postgresql://sessionary@/{name}?host={hosts}&target_session_attrs=read-write"
        history, stop = History(), threading.Event()
        with sessionary.Sessionary(both) as client:
            writers = [
                threading.Thread(target=write, args=(client, history, number, stop))
                for number in range(WRITERS)
            ]
            for each in writers:
                each.start()
            wait_for(history, 60)
            primary.kill()
            before = history.count(Outcome.OK)
            standby.promote()
            wait_for(history, before + 60)
            stop.set()
            for each in writers:
                each.join(60)
            broken = judge(history.attempts, read(client))
            damage = verify.verify(client.store).broken
    finally:
        standby.stop()

    acknowledged = history.count(Outcome.OK)
    record_property("counts", f"failovers=1 acknowledged={acknowledged} broken={len(broken)}")
    assert broken == []
    assert damage == ()
    # Whether an attempt was under way when the primary died is chance; that others go on is not.
    assert acknowledged >= before + 60


def wait_for(history: History, answers: int) -> None:
    until = time.monotonic() + 100
    while history.count(Outcome.OK) < answers:
        assert time.monotonic() < until, "the writers got no answers"
        time.sleep(0.05)
