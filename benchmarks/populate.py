"""Stores of any size, the same each time: sessions with keys, bindings and first messages."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.raw import TEXT
from sessionary.actions.sessions import edit, log
from sessionary.clock import Moment, RandomIds, SystemClock, encode_id, to_micros
from sessionary.model.message import Message, message
from sessionary.model.session import Opening
from sessionary.model.source import SessionKey, Source, key_for
from sessionary.store.database import Store, Tx
from sessionary.store.open import open_store
from sessionary.store.tables import sessions as table

PROFILE = "main"
BEGAN = datetime(2024, 5, 1, tzinfo=UTC)
_CHUNK = 2_000
_PLATFORMS = ("telegram", "slack", "discord", "whatsapp")


def source_of(number: int) -> Source:
    """Where the session of this number comes from."""
    person = f"u{number % 997}"
    platform = _PLATFORMS[number % len(_PLATFORMS)]
    return Source(platform, f"chat{number}", user_id=person, user_name=f"Person {person}")


def key_of(number: int) -> SessionKey:
    """The key of the session of this number."""
    return key_for(source_of(number), profile=PROFILE)


def id_of(number: int) -> str:
    """The id of the session of this number."""
    return encode_id(to_micros(BEGAN + timedelta(seconds=number)) // 1000, number)


def opened(path: Path) -> Store:
    """The store at the path, made if it is not there."""
    return open_store(f"sqlite:///{path}", create=True, clock=SystemClock(), ids=RandomIds())


def build(folder: Path, count: int) -> Path:
    """A store with so many sessions; it is kept beside the folder, for the next benchmark too."""
    path = folder.parent / f"sessions-{count}.db"
    if not path.exists():
        store = opened(path)
        open_many(store, range(count))
        store.close()
    return path


def open_many(store: Store, numbers: range) -> None:
    """Open the sessions of these numbers, each with a key, a binding and a message."""
    for first in range(numbers.start, numbers.stop, _CHUNK):
        store.write(_open_many, range(first, min(first + _CHUNK, numbers.stop))).result()


def open_plain(tx: Tx, count: int) -> list[str]:
    """Open so many sessions that no key leads to."""
    moment = Moment(SystemClock().now(), RandomIds())
    opening = Opening(PROFILE, Source("terminal"))
    return [edit.open_session(tx, opening, moment=moment) for _ in range(count)]


def fill(tx: Tx, session: str, first: int, count: int) -> None:
    """A conversation: every other message is the agent's."""
    for number in range(first, first + count):
        role = "assistant" if number % 2 else "user"
        new_message = message(role, f"{number}: {TEXT}")
        at = BEGAN + timedelta(seconds=number)
        log.append(tx, session, new_message, profile=PROFILE, at=at)


def _open_many(tx: Tx, numbers: range) -> None:
    new_message: Message = message("user", TEXT)
    for number in numbers:
        at = BEGAN + timedelta(seconds=number)
        key = str(key_of(number))
        opening = Opening(PROFILE, source_of(number), key=key, title=f"session {number}")
        no = table.insert(tx, id_of(number), opening, at=at)
        tx.run("set_binding", profile=PROFILE, key=key, session_no=no, at=to_micros(at))
        log.append(tx, id_of(number), new_message, profile=PROFILE, at=at)
