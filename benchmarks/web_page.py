"""The workbench in Chromium: how soon it is there, how much it loads, how much it holds."""

import importlib
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from benchmarks.goals import at_most
from benchmarks.measure import Case, Contestant, Sample, Scale
from benchmarks.web_server import LONG_TITLE, Web

FIRST, READABLE, FLOOR = "first load, cold, painted", "a session, readable", "GET / over HTTP"
FIRST_BYTES, MOST_REQUESTS, MOST_NODES = 110_000, 12, 3_000
TABS = 3
_SETTLED_MS = 2_000
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_PAINTED = """() => new Promise((done) => {
  new PerformanceObserver((list) => done(list.getEntries().at(-1).startTime / 1000))
    .observe({ type: 'largest-contentful-paint', buffered: true })
})"""
_OPEN = """(title) => new Promise((done) => {
  const row = [...document.querySelectorAll('.session-row')].find((each) => each.title === title)
  const began = performance.now()
  const look = () => document.querySelectorAll('.message').length > 20
    ? done((performance.now() - began) / 1000) : requestAnimationFrame(look)
  row.click()
  requestAnimationFrame(look)
})"""
_LOADED = """() => performance.getEntriesByType('resource')
  .filter((each) => /\\.(js|css)$/.test(new URL(each.name).pathname))
  .reduce((sum, each) => sum + each.encodedBodySize, 0)"""


def cases(web: Web, scale: Scale, stack: ExitStack) -> Iterator[Case]:
    """The page; nothing where there is no Chromium or nobody to drive it."""
    page = _Pages.opened(web, stack)
    if page is None:
        return
    first, kept = page.first_load(), page.kept_open()
    yield Case(
        "in Chromium",
        (
            Contestant(FIRST, "product", _timed(page.paint, scale)),
            Contestant(READABLE, "product", _timed(page.open_long, scale)),
            Contestant(FLOOR, "floor", _timed(page.shell, scale)),
        ),
        (
            at_most(FIRST_BYTES, "bytes of scripts and styles first", lambda _: first["bytes"]),
            at_most(MOST_REQUESTS, "requests first", lambda _: first["requests"]),
            at_most(1000, "ms", lambda got: got.percentile(FIRST, 95) * 1000, of="p95 painted"),
            at_most(300, "ms", lambda got: got.percentile(READABLE, 95) * 1000, of="p95 readable"),
            at_most(MOST_NODES, "nodes with a session open", lambda _: kept["nodes"]),
            at_most(1, f"connection for {TABS} tabs", lambda _: kept["streams"]),
            at_most(0, "requests to anyone else", lambda _: kept["foreign"]),
        ),
        by="p50",
    )


class _Pages:
    """A browser that is logged in."""

    def __init__(self, web: Web, browser: Any) -> None:
        self._web = web
        self._browser = browser
        context = browser.new_context()
        page = context.new_page()
        page.goto(web.login_link)
        page.wait_for_selector(".session-row")
        self._state = context.storage_state()
        context.close()
        self._open: Any = None

    @classmethod
    def opened(cls, web: Web, stack: ExitStack) -> "_Pages | None":
        """Start Chromium; None where that cannot be done."""
        found = next(filter(None, map(shutil.which, _BROWSERS)), None)
        try:
            playwright = importlib.import_module("playwright.sync_api")
        except ImportError:
            return None
        if found is None:
            return None
        driver = stack.enter_context(playwright.sync_playwright())
        browser = driver.chromium.launch(executable_path=found, args=_FLAGS)
        stack.callback(browser.close)
        return cls(web, browser)

    def first_load(self) -> dict[str, int]:
        """What the first visit of a browser loads before the list is there."""
        asked: list[str] = []
        context = self._browser.new_context(storage_state=self._state)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto(self._web.address)
        page.wait_for_selector(".session-row")
        loaded = int(page.evaluate(_LOADED))
        context.close()
        return {"bytes": loaded, "requests": len(asked)}

    def kept_open(self) -> dict[str, int]:
        """What a browser holds with a session open, and several tabs."""
        asked: list[str] = []
        context = self._browser.new_context(storage_state=self._state)
        context.on("request", lambda request: asked.append(request.url))
        tabs = [context.new_page() for _ in range(TABS)]
        for tab in tabs:
            tab.goto(f"{self._web.address}/s/{self._web.long_id}")
            tab.wait_for_selector(".message")
        nodes = int(tabs[0].evaluate("() => document.querySelectorAll('*').length"))
        tabs[0].wait_for_timeout(
            _SETTLED_MS
        )  # what a tab let go of when it changed its page is gone
        streams = self._streams()
        context.close()
        foreign = [url for url in asked if not url.startswith(self._web.address)]
        return {"nodes": nodes, "streams": streams, "foreign": len(foreign)}

    def paint(self) -> float:
        """How long a cold first load takes until the largest thing is painted."""
        context = self._browser.new_context(storage_state=self._state)
        page = context.new_page()
        page.goto(self._web.address)
        page.wait_for_selector(".session-row")
        took = float(page.evaluate(_PAINTED))
        context.close()
        return took

    def open_long(self) -> float:
        """How long the long session takes from the click until it can be read."""
        if self._open is None:
            self._open = self._browser.new_context(storage_state=self._state).new_page()
        self._open.goto(self._web.address)
        self._open.wait_for_selector(f'.session-row[title="{LONG_TITLE}"]')
        return float(self._open.evaluate(_OPEN, LONG_TITLE))

    def shell(self) -> float:
        """How long the bare page takes over HTTP."""
        return self._web.ask("GET", "/", api=False).seconds

    def _streams(self) -> int:
        text = self._web.ask("GET", "/metrics").body.decode()
        line = next(
            line for line in text.splitlines() if line.startswith("sessionary_streams_open ")
        )
        return int(line.split()[1])


def _timed(work: Callable[[], float], scale: Scale) -> Callable[[float], Sample]:
    """A contestant that says itself how long it took; a browser is slow, so it runs longer."""

    def run(seconds: float) -> Sample:
        latencies: list[float] = []
        began = time.perf_counter()
        while not latencies or time.perf_counter() - began < seconds * scale.rounds:
            latencies.append(work())
        return Sample(len(latencies), time.perf_counter() - began, latencies)

    return run
