"""Takes pictures of every page of the workbench: `.venv/bin/python -m tools.screenshots FOLDER`.

Needs Chromium, and a font with Chinese characters. Without a folder, only those that the docs show
are taken again, in docs/images.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

from sessionary import Sessionary
from sessionary.app import demo
from tests.browser.conftest import FLAGS, PHONE, Served, served
from tests.browser.test_import import record

DOCS = Path(__file__).parents[1] / "docs" / "images"
WINDOW = {"width": 1280, "height": 800}
WIDE = {"width": 1440, "height": 860}
THEMES = ("light", "dark")
SESSION = "Why the weekly report takes 40 minutes"
# What each page is known by when it is ready.
PAGES = {
    "search": ("/search?q=disk", ".hit"),
    "live": ("/live", ".item-list li"),
    "usage": ("/usage", ".chart"),
    "import": ("/import", ".item-list li"),
    "settings": ("/settings", ".setting"),
}
RESETS = '[reset]\nmode = "both"\nidle_minutes = 1440\n'


class Visitor:
    """A browser that is logged in and takes pictures."""

    def __init__(self, browser: Browser, server: Served, images: Path) -> None:
        self.images = images
        self._browser = browser
        self._server = server
        context = browser.new_context()
        context.new_page().goto(server.login_link)
        self._state = context.storage_state()
        context.close()

    @contextmanager
    def page(self, theme: str, window: dict[str, int], **more: Any) -> Iterator[Page]:
        """A page of the server, in a theme, in a window of a size."""
        context = self._browser.new_context(
            viewport=window,  # type: ignore[arg-type]
            color_scheme=theme,  # type: ignore[arg-type]
            storage_state=self._state,
            reduced_motion="reduce",
            **more,
        )
        page = context.new_page()
        page.goto(self._server.address)
        yield page
        context.close()

    def go(self, page: Page, path: str, ready: str) -> None:
        """Open a page and wait until it is all there."""
        page.goto(self._server.address + path)
        page.locator(ready).first.wait_for()
        expect(
            page.get_by_text("live", exact=True).or_(page.locator(".dot.green"))
        ).not_to_have_count(0)


def main() -> None:
    """Take the pictures into the folder of the command line, or renew those of the docs."""
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        folder.mkdir(parents=True, exist_ok=True)
        take_all(folder)
        return
    with tempfile.TemporaryDirectory() as scratch:
        take_all(Path(scratch))
        for shown in DOCS.glob("*.png"):
            shutil.copy(Path(scratch) / shown.name, shown)


def take_all(images: Path) -> None:
    """Fill a store, serve it, and look at it in both themes and on a phone."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        home, person = Path(folder) / "home", Path(folder) / "person"
        home.mkdir()
        (home / "sessionary.toml").write_text(RESETS)
        record(person)
        with Sessionary(home=str(home), create=True) as client:
            demo.fill(client.app)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        with served(home, user_home=person) as server:
            visitor = Visitor(browser, server, images)
            for theme in THEMES:
                with visitor.page(theme, WINDOW) as page:
                    take(visitor, page, theme)
                with visitor.page(theme, WIDE) as page:
                    take_details(visitor, page, theme)
                with visitor.page(theme, PHONE, has_touch=True) as page:
                    take_phone(visitor, page, theme)
        with served(Path(folder) / "empty", user_home=person) as server:
            visitor = Visitor(browser, server, images)
            for theme in THEMES:
                with visitor.page(theme, WINDOW) as page:
                    page.get_by_text("from another tool").wait_for()
                    page.screenshot(path=images / f"empty-{theme}.png")
        browser.close()


def open_session(page: Page) -> None:
    """Open the session that has a little of everything."""
    page.locator(".session-row", has_text=SESSION).first.click()
    page.locator(".message").first.wait_for()
    page.locator(".message img").first.wait_for()


def take(visitor: Visitor, page: Page, theme: str) -> None:
    """Every page in one theme."""
    open_session(page)
    page.screenshot(path=visitor.images / f"workbench-{theme}.png")
    page.keyboard.press("Control+k")
    page.keyboard.type("retention rule")
    page.locator(".option .snippet").first.wait_for()
    page.screenshot(path=visitor.images / f"palette-{theme}.png")
    for name, (path, ready) in PAGES.items():
        visitor.go(page, path, ready)
        page.screenshot(path=visitor.images / f"{name}-{theme}.png")


def take_details(visitor: Visitor, page: Page, theme: str) -> None:
    """A session with its work unfolded and its details beside it."""
    open_session(page)
    page.locator(".transcript").focus()
    page.keyboard.press("i")
    page.locator(".legend").wait_for()
    page.locator(".step-group .toggle").first.click()
    page.locator(".step .toggle", has_text="Edited").click()
    page.locator(".diff-line.added").first.scroll_into_view_if_needed()
    page.screenshot(path=visitor.images / f"details-{theme}.png")


def take_phone(visitor: Visitor, page: Page, theme: str) -> None:
    """The list, a session and every page on a phone."""
    page.locator(".session-row").first.wait_for()
    page.screenshot(path=visitor.images / f"phone-list-{theme}.png")
    page.locator(".session-row", has_text=SESSION).first.tap()
    page.locator(".message img").first.wait_for()
    page.screenshot(path=visitor.images / f"phone-session-{theme}.png")
    for name, (path, ready) in PAGES.items():
        visitor.go(page, path, ready)
        page.screenshot(path=visitor.images / f"phone-{name}-{theme}.png")


if __name__ == "__main__":
    main()
