"""One damaged page of the database: every interface gives the whole truth or the error `damaged`."""

import random
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import httpx2
import pytest

import sessionary
from sessionary.actions import credentials
from sessionary.actions.search import search
from sessionary.actions.sessions import read
from sessionary.actions.sessions.lists import SessionFilters, list_sessions
from sessionary.clock import RandomIds, SystemClock
from sessionary.errors import Damaged
from sessionary.model.access import Scope
from sessionary.store.database import Store
from sessionary.store.open import open_store
from tests.cli.conftest import Program
from tests.cli.test_serve import serving as serving_process
from tests.store.raw import execute
from tests.support.world import World
from tests.web.conftest import API, served

SECRET = credentials.make_secret(bytes(credentials.SECRET_BYTES))
SESSIONS = 12
MESSAGES = 40
DAMAGED = "urn:sessionary:problem:damaged"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def fill(store: Store) -> list[str]:
    """Sessions of forty messages, and a fork of the first."""
    world = World(store)
    ids = [
        world.session(
            *(f"needle {number} of topic{name}, " + "x" * 90 for number in range(MESSAGES))
        )
        for name in range(SESSIONS)
    ]
    ids.append(world.fork(ids[0]).id)
    store.write(
        credentials.add_token, SECRET, profile="main", scope=Scope.ADMIN, moment=world.moment()
    ).result()
    store.search(find, "needle").result()
    return ids


def find(tx: Any, words: str) -> Any:
    wish = search.SearchOptions(limit=100, all_hits=True)
    return search.search(tx, words, profile="main", options=wish, now=NOW)


def opened(url: str) -> Store:
    return open_store(url, create=True, clock=SystemClock(), ids=RandomIds())


class Template:
    """A store that is copied for each page that is damaged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        store = opened(f"sqlite:///{folder}/sessionary.db")
        self.ids = fill(store)
        store.close()
        file = apsw.Connection(str(folder / "sessionary.db"))
        self.page_size: int = file.pragma("page_size")
        rows = file.execute("SELECT name, pageno FROM dbstat ORDER BY pageno").fetchall()
        file.close()
        self.pages: dict[str, list[int]] = {}
        for name, page in rows:
            self.pages.setdefault(str(name), []).append(int(str(page)))

    def damaged(self, home: Path, page: int, damage: Callable[[bytes], bytes]) -> Path:
        """A copy with one page replaced, as a failing disk leaves it."""
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(self.folder, home)
        with open(home / "sessionary.db", "r+b") as file:
            file.seek((page - 1) * self.page_size)
            before = file.read(self.page_size)
            file.seek((page - 1) * self.page_size)
            file.write(damage(before))
        return home


def zeros(page: bytes) -> bytes:
    return bytes(len(page))


def noise(page: bytes) -> bytes:
    return random.Random(1).randbytes(len(page))


def noise_behind_the_header(page: bytes) -> bytes:
    """The page still looks like one of a table: this is what is read as a shorter conversation."""
    return page[:8] + random.Random(2).randbytes(len(page) - 8)


def flipped_byte(page: bytes) -> bytes:
    middle = len(page) // 2
    return page[:middle] + bytes([page[middle] ^ 0xFF]) + page[middle + 1 :]


DAMAGES = (zeros, noise, noise_behind_the_header, flipped_byte)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return Template(tmp_path_factory.mktemp("template"))


def over_python(home: Path, ids: list[str]) -> Iterator[Any]:
    """What a program gets; `Damaged` in the place of an answer."""

    def asked(ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except Damaged:
            return Damaged

    with sessionary.Sessionary(f"sqlite:///{home}/sessionary.db", create=False) as client:
        yield asked(lambda: [head.id for head in client.sessions(limit=100).items])
        for id in ids:
            yield asked(lambda id=id: list(client.find(id).messages()))  # type: ignore[misc]
            yield asked(lambda id=id: client.find(id).context())  # type: ignore[misc]


def over_the_command_line(home: Path, ids: list[str]) -> Iterator[Any]:
    program = Program(home)
    for command in (
        ("sessions", "list", "--json"),
        ("sessions", "show", ids[0], "--json"),
        ("sessions", "show", ids[-1], "--json"),
        ("search", "needle", "--json"),
        ("export", "--all"),
    ):
        answer = program(*command)
        if answer.code == 0:
            yield answer.out
        else:
            assert "damaged" in answer.err, answer.err
            yield Damaged


@asynccontextmanager
async def serving(home: Path) -> AsyncIterator[httpx2.AsyncClient]:
    store = opened(f"sqlite:///{home}/sessionary.db")
    try:
        async with served(store, with_engine=False) as server:
            server.http.headers["Authorization"] = f"Bearer {SECRET}"
            yield server.http
    finally:
        store.close()


async def over_http(http: httpx2.AsyncClient, ids: list[str]) -> list[Any]:
    paths = [
        "/sessions?limit=100",
        "/search?q=needle&limit=100",
        *(f"/sessions/{id}/entries?limit=100" for id in ids),
        *(f"/sessions/{id}" for id in ids),
        "/export",
    ]
    answers: list[Any] = []
    for path in paths:
        try:
            response = await http.get(API + path)
        except httpx2.RemoteProtocolError:
            answers.append(Damaged)  # a download that had begun was cut, which its reader notices
            continue
        if response.status_code == 200:
            answers.append(response.text)
        else:
            assert (response.status_code, response.json()["type"]) == (503, DAMAGED), path
            answers.append(Damaged)
    return answers


def compare(truth: list[Any], answers: list[Any], what: str) -> bool:
    """Whether any answer was `damaged`; fail when one is something else than the truth."""
    for number, (expected, answer) in enumerate(zip(truth, answers, strict=True)):
        if answer is not Damaged and answer != expected:
            pytest.fail(
                f"{what}: answer {number} is neither the truth nor `damaged`: {answer!r:.300}"
            )
    return Damaged in answers


@pytest.mark.parametrize("table", ["entries", "sessions"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_python_and_the_command_line_never_show_less_than_was_stored(
    template: Template, tmp_path: Path, table: str, damage: Callable[[bytes], bytes]
) -> None:
    whole = shutil.copytree(template.folder, tmp_path / "whole")
    truth = [*over_python(whole, template.ids), *over_the_command_line(whole, template.ids)]
    assert Damaged not in truth
    seen = 0
    for page in template.pages[table]:
        home = template.damaged(tmp_path / "damaged", page, damage)
        answers = [*over_python(home, template.ids), *over_the_command_line(home, template.ids)]
        seen += compare(truth, answers, f"page {page} of {table}")
    assert seen


@pytest.mark.anyio
@pytest.mark.parametrize("table", ["entries", "sessions"])
@pytest.mark.parametrize("damage", DAMAGES)
async def test_the_server_never_shows_less_than_was_stored_and_stops_writing(
    template: Template, tmp_path: Path, table: str, damage: Callable[[bytes], bytes]
) -> None:
    whole = shutil.copytree(template.folder, tmp_path / "whole")
    async with serving(whole) as http:
        truth = await over_http(http, template.ids)
        assert (await http.get("/readyz")).status_code == 200
    assert Damaged not in truth
    seen = 0
    for page in template.pages[table]:
        home = template.damaged(tmp_path / "damaged", page, damage)
        async with serving(home) as http:
            if not compare(truth, await over_http(http, template.ids), f"page {page} of {table}"):
                continue
            seen += 1
            ready = await http.get("/readyz")
            written = await http.post(f"{API}/sessions", json={"text": "one more"})
        assert (ready.status_code, ready.text.partition(":")[0]) == (503, "damaged")
        assert str(home) not in ready.text
        assert written.status_code == 503
        assert (written.json()["type"], written.json()["committed"]) == (DAMAGED, "no")
    assert seen


LOSSES = {
    "an entry in the middle": ("DELETE FROM entries WHERE entry_no = {first} + 20", True),
    "the first entry": ("DELETE FROM entries WHERE entry_no = {first} + 1", True),
    "the last entries": (
        "DELETE FROM entries WHERE entry_no BETWEEN {first} + 29 AND {first} + 99",
        True,
    ),
    "all entries": ("DELETE FROM entries WHERE entry_no >> 24 = {first} >> 24", True),
    "the session": ("DELETE FROM sessions WHERE no = {first} >> 24", False),
}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/sessionary.db"
    made: str = request.getfixturevalue("migrated_url")
    return made


@pytest.mark.parametrize(("statement", "keeps_session"), LOSSES.values(), ids=LOSSES.keys())
def test_rows_that_are_gone_are_missed_by_every_reader(
    url: str, statement: str, keeps_session: bool
) -> None:
    store = opened(url)
    ids = fill(store)
    no = store.read(read.get_head, ids[0], profile="main").result().no
    fork, untouched = ids[-1], ids[1]
    execute(url, statement.format(first=no << 24), trusting=True)

    readers: list[Callable[[], Any]] = [
        lambda: store.read(read.read_transcript, fork, profile="main").result(),
        lambda: store.read(read.read_context, fork, profile="main").result(),
        lambda: store.read(read.read_window, fork, profile="main", around=20, limit=200).result(),
        lambda: store.read(read.read_log, fork, profile="main").result(),
        lambda: store.search(find, "topic0").result(),
    ]
    if keeps_session:
        readers.append(lambda: store.read(read.read_window, ids[0], profile="main").result())
    for reader in readers:
        with pytest.raises(Damaged):
            reader()
    assert isinstance(store.damage, Damaged)
    with pytest.raises(Damaged, match="nothing was written"):
        World(store).session("one more")
    assert len(store.read(read.read_transcript, untouched, profile="main").result()) == MESSAGES
    assert (
        len(store.read(list_sessions, SessionFilters(), profile="main").result().items) >= SESSIONS
    )
    store.close()


def test_a_purged_session_and_what_its_forks_keep_of_it_are_no_damage(url: str) -> None:
    store = opened(url)
    world = World(store)
    parent = world.session("a", "b", "c", "d")
    fork = world.fork(parent, at_seq=2).id
    world.purge(parent)

    assert world.texts(fork) == ["a", "b"]
    assert store.damage is None
    assert world.session("writing goes on")
    store.close()


def test_a_server_that_was_not_stopped_cleanly_looks_for_damage_by_itself(
    template: Template, tmp_path: Path
) -> None:
    home = tmp_path / "crashed"
    shutil.copytree(template.folder, tmp_path / "running")
    # Copied while a program has it open: what it wrote last is only in the WAL.
    file = apsw.Connection(str(tmp_path / "running" / "sessionary.db"))
    file.execute("INSERT INTO meta (name, value) VALUES ('x', 'y')")
    shutil.copytree(tmp_path / "running", home)
    file.close()
    page = template.pages["entries"][-1]
    with open(home / "sessionary.db", "r+b") as damaged:
        damaged.seek((page - 1) * template.page_size)
        damaged.write(bytes(template.page_size))

    with serving_process(Program(home)) as (_, server):
        until = time.monotonic() + 60
        status, answer = plain(server["address"] + "/readyz")
        while status == 200 and time.monotonic() < until:
            time.sleep(0.1)
            status, answer = plain(server["address"] + "/readyz")

    assert (status, answer.partition(":")[0]) == (503, "damaged")


def plain(address: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
