"""The places that a sweep looks at are found without walking through their sessions."""

from pathlib import Path

import apsw
import pytest

from sessionary.actions.sessions import routing
from sessionary.actions.sessions.append import NewMessage, append_to_source
from sessionary.model.message import message
from sessionary.model.reset import ResetPolicy
from sessionary.model.session import EndReason
from sessionary.model.source import Source, key_for
from sessionary.store import queries
from sessionary.store.database import Store, Tx
from tests.store.conftest import opened
from tests.support.world import World

OPEN = {
    ("discord", "channel"),
    ("discord", "thread"),
    ("slack", "dm"),
    ("telegram", "dm"),
    ("telegram", "group"),
}


def append_from(world: World, platform: str, chat_type: str, chat: str) -> Source:
    source = Source(platform, chat, chat_type=chat_type, user_id="u")
    new_message = NewMessage(message("user", "hello"))
    key, policy = key_for(source), ResetPolicy()
    world.write(append_to_source, key, source, new_message, policy=policy, moment=world.moment())
    return source


def places(tx: Tx) -> list[tuple[str, str]]:
    return [(platform, chat_type) for platform, chat_type in tx.all("places_with_open_sessions")]


@pytest.mark.parametrize("chats", [1, 3])
def test_every_place_with_an_open_session_is_found_once(store: Store, chats: int) -> None:
    world = World(store)
    assert world.read(places) == []
    for platform, chat_type in OPEN:
        for chat in range(chats):
            append_from(world, platform, chat_type, str(chat))
    over = append_from(world, "matrix", "dm", "1")
    world.write(routing.reset, key_for(over), moment=world.moment(), reason=EndReason.NEW)

    assert world.read(places) == sorted(OPEN)


def test_sqlite_steps_from_place_to_place(tmp_path: Path) -> None:
    opened(f"sqlite:///{tmp_path}/x.db").close()
    file = apsw.Connection(f"{tmp_path}/x.db")

    text = queries.load("sqlite")["places_with_open_sessions"]
    plan = [row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {text}", {})]
    file.close()

    steps = [line.partition(" (")[2] for line in plan if line.startswith("SEARCH s ")]
    assert steps == ["platform=? AND chat_type>?)", "platform>?)"] * 2
