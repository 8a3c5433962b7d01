"""A real server on a real store, and a real Chromium before it."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from hansard.app import demo
from hansard.app.house import open_house
from tests.browser.wire import Wire

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DEMO_SESSIONS = 120
WINDOW = {"width": 1280, "height": 800}
WRITE = "Write a message"
PHONE = {"width": 390, "height": 780}
# Measures the longest time in which a tab does not answer, in `window.longest`, from now on.
WATCH_PAUSES = """() => {
    window.longest = 0
    let last = performance.now()
    const look = () => {
        const now = performance.now()
        window.longest = Math.max(window.longest, now - last)
        last = now
        setTimeout(look, 5)
    }
    look()
}"""
# A tenth of a second on an idle machine; what is laid out at once instead takes many seconds.
LONGEST_PAUSE_MS = 3_000
# A machine that does much else is slow, not wrong.
expect.set_options(timeout=30_000)


def chromium() -> str:
    """The browser of this machine; `./dev test` installs it where it may."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found is not None:
            return found
    pytest.fail("Chromium is missing: install it (apt install chromium) and run the tests again.")


@dataclass
class Served:
    """A server that runs in a process of its own."""

    home: Path
    process: "subprocess.Popen[str]"
    address: str
    login_link: str

    def stop(self, *, kill: bool = False) -> None:
        """End it, politely or not."""
        if kill:
            self.process.kill()
        else:
            self.process.terminate()
        self.process.wait(20)
        if self.process.stdout is not None:
            self.process.stdout.close()


def start(home: Path, port: int = 0, *, user_home: Path | None = None) -> Served:
    """Start `hansard serve` and wait until it says where.

    Nobody has records of other tools here, unless a test brings a home directory that has.
    """
    person = str(user_home or home)
    env = {**os.environ, "HOME": person, "XDG_CONFIG_HOME": f"{person}/.config"}
    command = [sys.executable, "-m", "hansard", "--home", str(home), "--json"]
    process = subprocess.Popen(
        [*command, "serve", "--port", str(port)], stdout=subprocess.PIPE, text=True, env=env
    )
    assert process.stdout is not None
    said = json.loads(process.stdout.readline())
    return Served(home, process, said["address"], said["login_link"])


@contextmanager
def served(home: Path, *, user_home: Path | None = None) -> Iterator[Served]:
    """A server for as long as it is needed."""
    server = start(home, user_home=user_home)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with the demo's sessions, shared by the tests of a module."""
    home = tmp_path_factory.mktemp("lived-in")
    with open_house(home=str(home), create=True) as house:
        demo.fill(house, count=DEMO_SESSIONS)
    with served(home) as server:
        yield server


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as server:
        yield server


@pytest.fixture(scope="module")
def talking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that begins empty, shared by tests that each talk in sessions of their own."""
    with served(tmp_path_factory.mktemp("talking")) as server:
        yield server


@pytest.fixture
def wired(empty: Served) -> Iterator[tuple[Served, Wire]]:
    """A server behind a wire that can be cut."""
    wire = Wire(int(empty.address.rpartition(":")[2]))
    link = empty.login_link.replace(empty.address, wire.address)
    yield replace(empty, address=wire.address, login_link=link), wire
    wire.close()


@dataclass
class Visit:
    """A browser that is logged in, and what it asked for and complained about."""

    context: BrowserContext
    page: Page
    requests: list[str]
    complaints: list[str]

    def asks(self, text: str) -> None:
        """Begin a session with these words."""
        self.page.get_by_role("textbox", name=WRITE).fill(text)
        self.page.keyboard.press("Enter")
        expect(self.page).to_have_url(re.compile(r"/s/\w+"))

    def says(self, text: str) -> None:
        """Say something more in the session that is open."""
        self.page.get_by_role("textbox", name=WRITE).fill(text)
        self.page.keyboard.press("Enter")

    def another_tab(self, address: str) -> Page:
        """One more page of the same browser."""
        page = self.context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(address)
        return page


@pytest.fixture(scope="module")
def logins() -> dict[str, str]:
    """The link lets one browser in, once; its cookie serves the whole module."""
    return {}


@pytest.fixture
def visit(browser: Browser, logins: dict[str, str]) -> Iterator["Visitor"]:
    visitor = Visitor(browser, logins)
    yield visitor
    visitor.leave()


class Visitor:
    """Opens windows on a server and looks that none complains."""

    def __init__(self, browser: Browser, logins: dict[str, str]) -> None:
        self._browser = browser
        self._logins = logins
        self._visits: list[Visit] = []

    def __call__(
        self, server: Served, path: str = "/", *, phone: bool = False, script: str | None = None
    ) -> Visit:
        state = self._logins.get(server.login_link)
        context = self._browser.new_context(
            viewport=PHONE if phone else WINDOW,  # type: ignore[arg-type]
            has_touch=phone,
            storage_state=json.loads(state) if state else None,
            permissions=["clipboard-read", "clipboard-write"],
        )
        if script is not None:
            context.add_init_script(script)
        page = context.new_page()
        made = Visit(context, page, [], [])
        page.on("request", lambda request: made.requests.append(request.url))
        page.on("pageerror", lambda error: made.complaints.append(str(error)))
        page.on("console", lambda said: _note(made, said.type, said.text))
        if state is None:
            page.goto(server.login_link)
            self._logins[server.login_link] = json.dumps(context.storage_state())
        if state is not None or path != "/":
            page.goto(server.address + path)
        self._visits.append(made)
        return made

    def leave(self) -> None:
        complaints = [each for visit in self._visits for each in visit.complaints]
        for visit in self._visits:
            visit.context.close()
        assert complaints == []


def _note(visit: Visit, kind: str, text: str) -> None:
    # A request that fails is told by the browser too; the pages say it in their own words.
    told = ("Failed to load resource", "when fetching the script")
    if kind in ("error", "warning") and not any(each in text for each in told):
        visit.complaints.append(text)
