"""A real server on a real store, and a real Chromium before it."""

import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    CDPSession,
    Page,
    Request,
    Route,
    expect,
    sync_playwright,
)

from sessionary import Sessionary
from sessionary.app import demo
from tests.browser.server_process import ServerProcess
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
# A machine that does much else is slow, not wrong. Well above the longest pause between two attempts
# of a page to reach its server, which is 30 seconds.
TIMEOUT_SECONDS = 60
POLL_MS = 50
expect.set_options(timeout=TIMEOUT_SECONDS * 1_000)
# The longest time in which a tab does not answer, in `window.longest`, from now on.
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
# Notes with an «Undo» button close after eight seconds. A slow machine may need longer to click it.
KEEP_TOASTS = """
    const setTimer = window.setTimeout
    window.setTimeout = (act, ms, ...rest) => setTimer(act, ms === 8000 ? 600_000 : ms, ...rest)
"""
# Resolves with the number of changes of the document since the last call, when the page has nothing else to do.
COUNT_CHANGES = """() => new Promise((done) => {
    if (!window.changeWatch) {
        window.changeCount = 1
        window.changeWatch = new MutationObserver(() => window.changeCount++)
        window.changeWatch.observe(document, { subtree: true, childList: true, attributes: true })
    }
    requestAnimationFrame(() => requestIdleCallback(() => {
        const count = window.changeCount
        window.changeCount = 0
        done(count)
    }))
})"""
# Resolves when a service worker answers for the page.
CONTROLLED = """() => new Promise((done) => {
    const worker = navigator.serviceWorker
    if (worker.controller) done()
    else worker.addEventListener('controllerchange', () => done())
})"""
_pending: WeakKeyDictionary[Page, set[Request]] = WeakKeyDictionary()


def eventually(page: Page, claim: str | Callable[[], Any], arg: Any = None) -> Any:
    """Wait until a claim is true, and return its value.

    The claim is a JavaScript function, called with `arg` in the page, or a Python function. A bounding box, a
    computed style, a number of streams: what `expect` has no assertion for.
    """
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        value = page.evaluate(claim, arg) if isinstance(claim, str) else claim()
        if value:
            return value
        if time.monotonic() > deadline:
            name = claim if isinstance(claim, str) else claim.__qualname__
            raise AssertionError(
                f"not true after {TIMEOUT_SECONDS} s: {name}; last value: {value!r}"
            )
        page.wait_for_timeout(POLL_MS)


def settled(page: Page) -> Page:
    """Wait until the page has every answer it asked for and has stopped changing."""
    calm = 0

    def is_calm() -> bool:
        nonlocal calm
        is_idle = page.evaluate(COUNT_CHANGES) == 0 and not _pending.get(page)
        calm = calm + 1 if is_idle else 0
        return calm >= 3

    eventually(page, is_calm)
    return page


def _watch_requests(page: Page) -> None:
    asked = _pending.setdefault(page, set())

    def begun(request: Request) -> None:
        if request.is_navigation_request():
            asked.clear()
        # The stream of events never ends, and the end of a worker's script request is not always reported.
        elif request.resource_type == "fetch":
            asked.add(request)

    def ended(request: Request) -> None:
        asked.discard(request)

    page.on("request", begun)
    page.on("requestfinished", ended)
    page.on("requestfailed", ended)


def wait_for_reply(page: Page, text: str) -> None:
    """Wait until the only reply of the open session contains the text, is stored, and is shown as finished."""
    # Only stored messages have an id. Without it, the unfinished reply would count too.
    expect(page.locator(".message.assistant[id]")).to_contain_text(text)
    expect(page.locator(".live-reply")).to_have_count(0)


def hold(page: Page, pattern: str) -> list[Route]:
    """Hold back the requests that match the pattern; the test lets each of them go on."""
    waiting: list[Route] = []

    def keep(route: Route) -> None:
        waiting.append(route)

    page.route(pattern, keep)
    return waiting


class PauseWatch:
    """Measures how long a page does not answer from now on.

    No piece of work takes longer than the longest pause, nor longer than all the processor time of the page
    together. The first is too long on a busy machine, where the page waits for its turn; so the smaller counts.
    """

    def __init__(self, page: Page) -> None:
        self._page = page
        self._cdp: CDPSession = page.context.new_cdp_session(page)
        self._cdp.send("Performance.enable", {"timeDomain": "threadTicks"})
        self._before = self._processor_ms()
        page.evaluate(WATCH_PAUSES)

    def longest_ms(self) -> float:
        """An upper bound of the longest piece of work."""
        longest: float = self._page.evaluate("window.longest")
        return min(longest, self._processor_ms() - self._before)

    def _processor_ms(self) -> float:
        metrics = self._cdp.send("Performance.getMetrics")["metrics"]
        return 1_000 * float({each["name"]: each["value"] for each in metrics}["TaskDuration"])


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
    process: ServerProcess
    address: str
    login_link: str

    def stop(self, *, kill: bool = False) -> None:
        """End it, politely or not."""
        self.process.stop(TIMEOUT_SECONDS, kill=kill)


def start(home: Path, port: int = 0, *, user_home: Path | None = None) -> Served:
    """Start `sessionary serve` and wait until it says where.

    Nobody has records of other tools here, unless a test brings a home directory that has.
    """
    process = ServerProcess(home, port, user_home=user_home or home)
    return Served(home, process, process.ready["address"], process.ready["login_link"])


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
def demo_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the demo's sessions, to be copied. Made for each module: the demo counts ages from now."""
    home = tmp_path_factory.mktemp("demo")
    with Sessionary(home=str(home), create=True) as client:
        demo.fill(client.app, count=DEMO_SESSIONS)
    return home


@pytest.fixture(scope="module")
def shared_demo(demo_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with the demo's sessions, shared by the tests of a module that only look at them."""
    home = tmp_path_factory.mktemp("lived-in") / "home"
    shutil.copytree(demo_home, home)
    with served(home) as server:
        yield server


@pytest.fixture
def own_demo(demo_home: Path, tmp_path: Path) -> Iterator[Served]:
    """A server with the demo's sessions for one test, which may change them."""
    home = tmp_path / "own-demo"
    shutil.copytree(demo_home, home)
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


AGENT_PROGRAM = """import json, os, pathlib, sys, time

first, rest, gate = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
server = os.getppid()

def wait_for(path):
    while not path.exists():
        if os.getppid() != server:
            sys.exit("the server is gone")
        time.sleep(0.02)

print(json.dumps({"delta": first}), flush=True)
wait_for(gate.with_suffix(".rest"))
print(json.dumps({"delta": rest}), flush=True)
wait_for(gate.with_suffix(".end"))
"""
FIRST_HALF = "## How a message becomes a reply\n\nA turn begins,"
SECOND_HALF = (
    " and it ends.\n\n| what | where |\n|---|---|\n| inbox | arrivals |\n\nThat was all.\n"
)


@dataclass
class GatedAgent:
    """A server whose agent says the first half of a reply, and the rest when the test lets it."""

    server: Served
    gate: Path

    def go_on(self) -> None:
        """Let the agent say the rest."""
        self.gate.with_suffix(".rest").touch()

    def finish(self) -> None:
        """Let the agent end this turn, and all that follow."""
        self.go_on()
        self.gate.with_suffix(".end").touch()


def install_gated_agent(home: Path, first: str = FIRST_HALF, rest: str = SECOND_HALF) -> Path:
    """Write the agent's program and the settings that name it; return the path of its gate."""
    program, gate = home / "agent.py", home / "gate"
    program.write_text(AGENT_PROGRAM)
    command = json.dumps([sys.executable, str(program), first, rest, str(gate)])
    settings = f'[agents.gated]\nkind = "command"\ncommand = {command}\n'
    (home / "sessionary.toml").write_text(settings)
    return gate


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[GatedAgent]:
    gate = install_gated_agent(tmp_path)
    with served(tmp_path) as server:
        yield GatedAgent(server, gate)


@contextmanager
def behind_wire(server: Served) -> Iterator[tuple[Served, Wire]]:
    """The server at an address whose connections can be cut."""
    wire = Wire(int(server.address.rpartition(":")[2]))
    link = server.login_link.replace(server.address, wire.address)
    try:
        yield replace(server, address=wire.address, login_link=link), wire
    finally:
        wire.close()


@pytest.fixture
def wired(empty: Served) -> Iterator[tuple[Served, Wire]]:
    """A server behind a wire that can be cut."""
    with behind_wire(empty) as both:
        yield both


def afternoon_zone() -> str:
    """The name of a time zone in which it is between 14 and 15 o'clock now: the demo's last hours are «Today»."""
    ahead = 14 - time.gmtime().tm_hour
    # These names count westwards.
    return f"Etc/GMT{-ahead:+d}" if ahead else "Etc/GMT"


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
        _watch_requests(page)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(address)
        return settled(page)


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
            timezone_id=afternoon_zone(),
            viewport=PHONE if phone else WINDOW,  # type: ignore[arg-type]
            has_touch=phone,
            storage_state=json.loads(state) if state else None,
            permissions=["clipboard-read", "clipboard-write"],
        )
        context.set_default_timeout(TIMEOUT_SECONDS * 1_000)
        context.add_init_script(KEEP_TOASTS)
        if script is not None:
            context.add_init_script(script)
        page = context.new_page()
        _watch_requests(page)
        made = Visit(context, page, [], [])
        self._visits.append(made)
        page.on("request", lambda request: made.requests.append(request.url))
        page.on("pageerror", lambda error: made.complaints.append(str(error)))
        page.on("console", lambda line: _note(made, line.type, line.text))
        if state is None:
            page.goto(server.login_link)
            self._logins[server.login_link] = json.dumps(context.storage_state())
        if state is not None or path != "/":
            page.goto(server.address + path)
        settled(page)
        return made

    def leave(self) -> None:
        complaints = [each for visit in self._visits for each in visit.complaints]
        for visit in self._visits:
            visit.context.close()
        assert complaints == []


def _note(visit: Visit, kind: str, text: str) -> None:
    # The browser logs a failed request too; the pages show it themselves.
    ignored = ("Failed to load resource", "when fetching the script")
    if kind in ("error", "warning") and not any(each in text for each in ignored):
        visit.complaints.append(text)
