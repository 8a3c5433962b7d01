"""One `sessionary serve` with every channel on, and 500 people who write 5,000 messages."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO

import aiohttp
import pytest

from sessionary import Sessionary
from sessionary.actions.sessions import lists, read
from sessionary.model.message import Message
from sessionary.model.session import SessionHead
from sessionary.store.database import Store
from sessionary.store.tables import upkeep
from tests.load import places
from tests.load.places import Matrix, Place, ServerWebhook
from tests.support.dovecot import Dovecot
from tests.support.fake_discord import FakeDiscord
from tests.support.fake_program import FakeProgram
from tests.support.fake_signal import FakeSignal
from tests.support.fake_slack import FakeSlack
from tests.support.fake_telegram import FakeTelegram
from tests.support.fake_whatsapp import FakeWhatsApp
from tests.support.homeserver import MatrixPlatform
from tests.support.mailbox import MailPlatform
from tests.support.synapse import Synapse

EACH = 10
PEOPLE = 500
# The real homeserver and the real mail server take a few dozen messages a second on a small
# machine, whoever writes: their share is smaller, and their ways are the same.
SHARES = {"telegram": 100, "discord": 90, "slack": 90, "whatsapp": 90, "signal": 70, "webhook": 30}
MAIL, ROOMS = 20, 10
LOOK_SECONDS = 0.02
TIMEOUT_SECONDS = 1500.0
# Measured: 9 MB from the first thousand to the fifth, caches that fill; at 20,000 messages it has
# been level since 10,000.
MOST_GROWTH_MB = 32.0


class Town:
    """Everyone on all platforms; each writes on when the answer has come."""

    def __init__(self, inhabited: list[Place]) -> None:
        self.places = inhabited
        self.answered = 0
        self.received: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._waiting: dict[tuple[str, str], asyncio.Event] = {}
        self._numbers = iter(range(1, 10_000_000))

    async def live(self) -> None:
        """Everyone says all that they have to say."""
        listening = asyncio.ensure_future(self._listen())
        people = [self._talk(place, person) for place in self.places for person in place.people]
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await asyncio.gather(*people)
        finally:
            listening.cancel()

    async def _talk(self, place: Place, person: str) -> None:
        for index in range(EACH):
            came = self._waiting[place.name, person] = asyncio.Event()
            await place.says(person, words(place, person, index), next(self._numbers))
            await came.wait()

    async def _listen(self) -> None:
        while True:
            for place in self.places:
                for person, text in place.newly_read():
                    self.answered += 1
                    self.received[place.name, person].append(text)
                    self._waiting[place.name, person].set()
            await asyncio.sleep(LOOK_SECONDS)


def words(place: Place, person: str, index: int) -> str:
    """What someone says; nobody else ever says the same."""
    return f"{place.name} {person} says word {index}"


@contextlib.asynccontextmanager
async def inhabited(synapse: Synapse, dovecot: Dovecot) -> AsyncIterator[list[Place]]:
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        yield [
            places.Telegram(await enter(FakeTelegram()), SHARES["telegram"]),
            places.Discord(await enter(FakeDiscord()), SHARES["discord"]),
            places.Slack(await enter(FakeSlack()), SHARES["slack"]),
            places.WhatsApp(await enter(FakeWhatsApp()), SHARES["whatsapp"]),
            places.Signal(await enter(FakeSignal("tcp")), SHARES["signal"]),
            places.Program(await enter(FakeProgram()), SHARES["webhook"]),
            places.Mail(await enter(MailPlatform(dovecot)), MAIL),
            places.Matrix(await enter(MatrixPlatform(synapse)), ROOMS),
        ]


@contextlib.contextmanager
def serving(home: Path, town: list[Place], log: IO[bytes]) -> Iterator[tuple[int, str]]:
    """`sessionary serve` with all channels on; its process and its address."""
    home.mkdir()
    (home / "sessionary.toml").write_text(places.toml(town))
    secrets = {name: value for place in town for name, value in place.environ.items()}
    process = subprocess.Popen(
        [sys.executable, "-m", "sessionary", "serve", "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=log,
        env={**os.environ, **secrets, "SESSIONARY_HOME": str(home)},
    )
    assert process.stdout is not None
    try:
        yield process.pid, json.loads(process.stdout.readline())["address"]
        process.terminate()
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.communicate()


async def watch(town: Town, pid: int, sizes: dict[int, float]) -> None:
    """Note how large the process is as each thousandth answer comes."""
    for mark in range(1000, PEOPLE * EACH + 1, 1000):
        while town.answered < mark:  # noqa: ASYNC110 - the process is looked at from outside
            await asyncio.sleep(LOOK_SECONDS)
        sizes[mark] = resident_mb(pid)


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


def transcripts(store: Store) -> list[list[str]]:
    """What every session holds."""
    found, cursor = [], None
    while True:
        page = store.read(
            lists.list_sessions, lists.SessionFilters(), profile="main", limit=200, cursor=cursor
        ).result()
        found += [transcript(store, head) for head in page.items]
        cursor = page.next
        if cursor is None:
            return found


def transcript(store: Store, head: SessionHead) -> list[str]:
    entries = store.read(read.read_transcript, head.id, profile="main").result()
    return [each.body.text for each in entries if isinstance(each.body, Message)]


@pytest.mark.timeout(1800)
async def test_500_people_on_all_channels_at_once_lose_nothing_and_cost_bounded_memory(
    tmp_path: Path, synapse: Synapse, dovecot: Dovecot, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes: dict[int, float] = {}
    async with inhabited(synapse, dovecot) as everywhere, aiohttp.ClientSession() as session:
        town = Town(everywhere)
        with (
            (tmp_path / "log").open("wb") as log,
            serving(tmp_path / "home", everywhere, log) as (
                pid,
                address,
            ),
        ):
            for place in everywhere:
                if isinstance(place, places.WhatsApp | places.Program):
                    place.fake.current = ServerWebhook(session, address, place.name)
            began = time.monotonic()
            await asyncio.gather(town.live(), watch(town, pid, sizes))
            took = time.monotonic() - began
        rooms = {
            person: place.written(person)
            for place in everywhere
            if isinstance(place, Matrix)
            for person in place.people
        }
    with capsys.disabled():
        shown = ", ".join(f"{mark}: {size:.0f} MB" for mark, size in sizes.items())
        print(f"\n{PEOPLE * EACH} messages in {took:.0f} s; resident after {shown}")

    expected = {
        (place.name, person): [words(place, person, index) for index in range(EACH)]
        for place in everywhere
        for person in place.people
    }
    assert len(expected) == PEOPLE
    assert dict(town.received) == expected
    assert all(rooms[room] == expected["matrix", room] for room in rooms)
    with Sessionary(home=str(tmp_path / "home")) as client:
        kept = sorted(transcripts(client.store))
        left = client.store.read(upkeep.backlog).result()
    assert kept == sorted([text for text in texts for _ in range(2)] for texts in expected.values())
    assert (left.waiting_arrivals, left.open_deliveries, left.running_turns) == (0, 0, 0)
    assert sizes[5000] - sizes[1000] < MOST_GROWTH_MB
